//! The frontend's end of the connection to the EngineCore.
//!
//! [`EngineCoreClient::launch`] starts the core as a child process and owns its life;
//! [`EngineCoreClient::connect`] uses one that was started by hand and stays.

mod client;
mod connection;
mod core_event;
mod error;
mod process;
mod shared_weights;

pub use client::EngineCoreClient;
pub(crate) use client::{Frame, MAX_SHUTDOWN_TIMEOUT, within_a_year};
pub use core_event::CoreEvent;
pub use error::{EngineCoreClientError, EngineCoreStartupError, EngineDeadError};
pub use process::LaunchOptions;
pub(crate) use process::core_executable;
pub use shared_weights::SharedWeights;
