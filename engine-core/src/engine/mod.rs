//! Process 1: the core, its busy loop, and the threads that connect it to frontends.

mod confinement;
mod connection;
mod core;
mod core_input;
mod core_proc;
mod draft_model;
mod heartbeat;
mod input_thread;
mod kv_cache_size;
mod memory;
mod output_thread;
#[cfg(debug_assertions)]
mod poison;
mod pooling_checks;
mod startup;
mod utility;
mod warm_up;

pub use self::core::{EngineCore, EngineCoreError, StepTimes};
pub use confinement::Confine;
pub use connection::{ServeError, run_connected, run_listening};
pub use core_input::{AbortRequests, ShutdownCause};
pub use core_proc::EngineCoreProc;
pub use draft_model::DraftModelError;
pub use kv_cache_size::KvCacheSizeError;
pub use startup::{LoadedEngineCore, StartupError, load_engine_core};
