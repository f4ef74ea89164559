//! What the busy loop is told from outside: requests, their ends, calls, and its own end.

use std::time::Duration;

use protocol::UtilityRequest;

use crate::core::request::Request;

/// Ends requests of one client.
#[derive(Debug, Clone)]
pub struct AbortRequests {
    /// Whose requests; another client's are out of reach.
    pub client_index: u32,
    /// Internal ids.
    pub request_ids: Vec<String>,
}

/// Longest time that requests may take to finish once the process is to end: a year.
pub(crate) const MAX_DRAIN: Duration = Duration::from_secs(365 * 24 * 3600);

/// What the input threads hand to the busy loop, in order of arrival.
pub(crate) enum CoreInput {
    /// A request, preprocessed.
    Add(Box<Request>),
    /// Ends requests of one client.
    Abort(AbortRequests),
    /// A method call.
    Utility(UtilityRequest),
    /// A client left: its requests end, its outputs have nowhere to go.
    ClientGone(u32),
    /// The process is to end: at once with 0 seconds, else after what is in flight.
    Shutdown {
        drain: Duration,
        cause: ShutdownCause,
    },
}

/// Who wants the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownCause {
    /// The frontend that started it, by a message or by its own end.
    Owner,
    /// SIGTERM, or SIGINT.
    Signal,
}
