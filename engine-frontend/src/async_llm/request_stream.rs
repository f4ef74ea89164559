//! The outputs of one request.

use std::sync::Arc;

use super::{Inner, internal_error};
use crate::error::GenerateError;
use crate::outputs::RequestOutput;
use crate::request_output_collector::RequestOutputCollector;

/// The outputs of one request. Dropped before its end, it aborts the request.
#[derive(Debug)]
pub struct RequestStream {
    pub(super) inner: Arc<Inner>,
    pub(super) queue: Arc<RequestOutputCollector>,
    pub(super) request_id: String,
    pub(super) num_prompt_tokens: usize,
    pub(super) aggregate: bool,
    pub(super) finished: bool,
}

impl RequestStream {
    /// Tokens of the prompt, as it is computed.
    pub fn num_prompt_tokens(&self) -> usize {
        self.num_prompt_tokens
    }

    /// The next output; `None` after the last one or after an error. Safe to cancel. A reader
    /// that lags gets merged outputs, never a queue of them.
    pub async fn next(&mut self) -> Option<Result<RequestOutput, GenerateError>> {
        if self.finished {
            return None;
        }
        let item = self.queue.get().await;
        self.finished = item.as_ref().map_or(true, |output| output.finished);
        Some(item)
    }

    /// Waits until it is sure that the request isn't refused: its grammar is compiled, or its first
    /// output is there. An HTTP status line waits for this. Takes nothing out of the stream. Safe to
    /// cancel.
    ///
    /// # Errors
    /// Why it was refused or failed; [`Self::next`] gives the same.
    pub async fn admitted(&mut self) -> Result<(), GenerateError> {
        self.queue.admitted().await
    }

    /// Waits for the end and returns everything as one output.
    ///
    /// # Errors
    /// Why the request has no (complete) answer.
    pub async fn collect(mut self) -> Result<RequestOutput, GenerateError> {
        let mut whole: Option<RequestOutput> = None;
        while let Some(item) = self.next().await {
            let next = item?;
            match &mut whole {
                Some(held) => held.add(next, self.aggregate),
                None => whole = Some(next),
            }
        }
        whole.ok_or_else(|| internal_error("the stream was read to its end before"))
    }
}

impl Drop for RequestStream {
    fn drop(&mut self) {
        if !self.finished {
            let ids = self
                .inner
                .state()
                .output_processor
                .abort_request(&self.request_id);
            self.inner.abort(ids);
        }
    }
}
