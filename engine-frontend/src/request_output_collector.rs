//! The hand-over point between the output handler and the one who reads a request's stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::answer_budget::AnswerShare;
use crate::error::GenerateError;
use crate::outputs::RequestOutput;
use crate::token_usage::{Ending, TokenUsage};

/// Holds at most one output. Where the reader lags, the next output is merged into the one that
/// waits: deltas are appended, cumulative outputs replaced. So a slow reader costs the memory of
/// its own text and never more, and nobody waits for it. What waits of a stream holds its share of what the
/// request's answers may take.
#[derive(Debug)]
pub struct RequestOutputCollector {
    aggregate: bool,
    slot: Mutex<Slot>,
    ready: Notify,
    usage: Option<Arc<TokenUsage>>,
}

#[derive(Debug, Default)]
struct Slot {
    output: Option<RequestOutput>,
    /// Of a stream's output.
    share: Option<AnswerShare>,
    error: Option<GenerateError>,
    /// Whether the core has taken the request for good, or something came of it.
    admitted: bool,
}

impl RequestOutputCollector {
    /// An empty collector; `aggregate` for outputs that are deltas.
    pub fn new(aggregate: bool) -> Self {
        Self {
            aggregate,
            slot: Mutex::default(),
            ready: Notify::new(),
            usage: None,
        }
    }

    /// The same, with a count of the answer's tokens as they come.
    #[must_use]
    pub fn with_usage(mut self, usage: Option<Arc<TokenUsage>>) -> Self {
        self.usage = usage;
        self
    }

    /// Counts tokens that the core has made, whether or not they are handed over.
    pub(crate) fn count_tokens(&self, tokens: usize) {
        if let Some(usage) = &self.usage {
            usage.add_completion_tokens(tokens);
        }
    }

    /// Notes how an answer ended, whether or not its reader learns it.
    pub(crate) fn note_ending(&self, ending: Ending) {
        if let Some(usage) = &self.usage {
            usage.add_ending(ending);
        }
    }

    /// Adds an output or the error that ends the request. Never blocks. An error comes after the
    /// output that waits; nothing more is accepted behind it.
    pub fn put(&self, item: Result<RequestOutput, GenerateError>) {
        self.add(item, None);
    }

    fn add(&self, item: Result<RequestOutput, GenerateError>, share: Option<AnswerShare>) {
        {
            let mut slot = self.slot();
            if slot.error.is_some() {
                return;
            }
            match item {
                Ok(next) => {
                    slot.admitted = true;
                    match (&mut slot.share, share) {
                        (Some(held), Some(share)) => held.add(share),
                        (held, share) => *held = share,
                    }
                    match &mut slot.output {
                        Some(held) => held.add(next, self.aggregate),
                        None => slot.output = Some(next),
                    }
                }
                Err(error) => slot.error = Some(error),
            }
        }
        self.ready.notify_one();
    }

    /// Adds a piece of a stream, and what it takes until it is read.
    pub(crate) fn put_piece(&self, piece: RequestOutput, share: AnswerShare) {
        self.add(Ok(piece), Some(share));
    }

    /// The core has taken the request for good.
    pub fn admit(&self) {
        self.slot().admitted = true;
        self.ready.notify_one();
    }

    /// Waits until the core has taken the request for good, or there is an output. For the one
    /// reader; takes nothing out.
    ///
    /// # Errors
    /// The request was refused or failed before that.
    pub async fn admitted(&self) -> Result<(), GenerateError> {
        loop {
            {
                let slot = self.slot();
                if slot.admitted {
                    return Ok(());
                }
                if let Some(error) = &slot.error {
                    return Err(error.clone());
                }
            }
            self.ready.notified().await;
        }
    }

    /// Takes what waits, or `None`.
    pub fn get_nowait(&self) -> Option<Result<RequestOutput, GenerateError>> {
        let mut slot = self.slot();
        slot.share = None;
        match slot.output.take() {
            Some(output) => Some(Ok(output)),
            None => slot.error.clone().map(Err),
        }
    }

    /// Waits for the next output. For one reader at a time.
    pub async fn get(&self) -> Result<RequestOutput, GenerateError> {
        loop {
            if let Some(item) = self.get_nowait() {
                return item;
            }
            self.ready.notified().await;
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        // A panic between lock and unlock can't leave the slot half-written.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use protocol::FinishReason;

    use super::*;
    use crate::error::EngineDeadError;
    use crate::outputs::tests::output;

    #[tokio::test]
    async fn a_lagging_reader_gets_merged_deltas() {
        let collector = RequestOutputCollector::new(true);
        collector.put(Ok(output(0, "a", None)));
        collector.put(Ok(output(0, "b", None)));
        collector.put(Ok(output(0, "c", Some(FinishReason::Length))));
        let merged = collector.get().await.unwrap();
        assert_eq!(merged.outputs[0].text, "abc");
        assert!(merged.finished);
        assert!(collector.get_nowait().is_none());
    }

    #[tokio::test]
    async fn a_lagging_reader_gets_the_latest_cumulative_output() {
        let collector = RequestOutputCollector::new(false);
        collector.put(Ok(output(0, "a", None)));
        collector.put(Ok(output(0, "ab", None)));
        assert_eq!(collector.get().await.unwrap().outputs[0].text, "ab");
    }

    #[tokio::test]
    async fn an_error_comes_last() {
        let collector = RequestOutputCollector::new(true);
        collector.put(Ok(output(0, "a", None)));
        let dead = GenerateError::from(EngineDeadError {
            reason: "gone".to_owned(),
            exit_status: None,
        });
        collector.put(Err(dead.clone()));
        collector.put(Ok(output(0, "b", None)));
        assert_eq!(collector.get().await.unwrap().outputs[0].text, "a");
        assert_eq!(collector.get().await, Err(dead.clone()));
        assert_eq!(collector.get().await, Err(dead));
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken() {
        let collector = std::sync::Arc::new(RequestOutputCollector::new(true));
        let reader = tokio::spawn({
            let collector = collector.clone();
            async move { collector.get().await }
        });
        tokio::task::yield_now().await;
        collector.put(Ok(output(0, "a", None)));
        assert_eq!(reader.await.unwrap().unwrap().outputs[0].text, "a");
    }
}
