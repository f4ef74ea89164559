//! What the engine needs of a core, and the client that has it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use protocol::{EngineCoreOutputs, EngineCoreRequest};

use crate::engine_core_client::{EngineCoreClient, EngineCoreClientError};
use crate::error::EngineDeadError;

/// What [`AsyncLLM`](super::AsyncLLM) needs of a core. The seam between text and transport: [`EngineCoreClient`]
/// hides a process and a socket behind it, tests are a core themselves.
pub trait CoreClient: fmt::Debug + Send + Sync {
    /// Sends a request. Never waits.
    ///
    /// # Errors
    /// The core is gone, or this request doesn't fit a frame.
    fn add_request(&self, request: EngineCoreRequest) -> Result<(), EngineCoreClientError>;

    /// Sends requests, in their order: what siblings share only once. Never waits.
    ///
    /// # Errors
    /// As for one of them; some may have been sent.
    fn add_requests(&self, requests: Vec<EngineCoreRequest>) -> Result<(), EngineCoreClientError> {
        requests
            .into_iter()
            .try_for_each(|request| self.add_request(request))
    }

    /// Ends requests, by their internal ids. Unknown ones are ignored. Never waits.
    ///
    /// # Errors
    /// The core is gone.
    fn abort_requests(&self, request_ids: Vec<String>) -> Result<(), EngineCoreClientError>;

    /// Waits for the outputs of the next step; `None` after a shutdown that was asked for.
    fn get_output(&self) -> BoxFuture<'_, Result<Option<EngineCoreOutputs>, EngineDeadError>>;

    /// Ends the core, if this client started it; requests in flight have `drain_seconds`.
    fn shutdown(&self, drain_seconds: f64) -> BoxFuture<'_, Result<(), EngineDeadError>>;
}

/// A future behind a pointer: one per step.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl CoreClient for EngineCoreClient {
    fn add_request(&self, request: EngineCoreRequest) -> Result<(), EngineCoreClientError> {
        Self::add_request(self, request)
    }

    fn add_requests(&self, requests: Vec<EngineCoreRequest>) -> Result<(), EngineCoreClientError> {
        self.encode(requests)?
            .into_iter()
            .try_for_each(|frame| self.send_frame(frame))
    }

    fn abort_requests(&self, request_ids: Vec<String>) -> Result<(), EngineCoreClientError> {
        Self::abort_requests(self, request_ids)
    }

    fn get_output(&self) -> BoxFuture<'_, Result<Option<EngineCoreOutputs>, EngineDeadError>> {
        Box::pin(Self::get_output(self))
    }

    fn shutdown(&self, drain_seconds: f64) -> BoxFuture<'_, Result<(), EngineDeadError>> {
        Box::pin(Self::shutdown(self, drain_seconds))
    }
}
