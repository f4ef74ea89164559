//! What the frontend asks of the core.

use serde::{Deserialize, Serialize};

use crate::request::EngineCoreRequest;
use crate::siblings::Siblings;
use crate::utility::UtilityRequest;

/// One frame from the frontend to the core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum EngineCoreRequestType {
    /// Generate.
    Add(Box<EngineCoreRequest>),
    /// Stop generating for these internal ids. Unknown or finished ids are ignored.
    Abort(Vec<String>),
    /// Call a method of the core; answered by a `UtilityOutput` with the same `call_id`.
    Utility(UtilityRequest),
    /// End the process: abort everything in flight when `drain_seconds` is 0, else finish it
    /// within that time and abort the rest.
    Shutdown {
        /// Seconds to wait for requests in flight.
        drain_seconds: f64,
    },
    /// Generate, for each of these.
    AddMany(Box<Siblings>),
}
