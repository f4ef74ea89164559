//! Where grammars end, and who is told.

use std::sync::Arc;

use crossbeam_channel::{Sender, unbounded};

use super::backend::StructuredOutputBackend;
use super::compile_queue::CompileQueue;
use super::priority::{SHORT_NICENESS, lower_priority};
use super::request::StructuredOutputRequest;

/// A thread that drops the grammars of requests that are over. With the last grammar of a generation all its states go,
/// up to hundreds of MiB in small pieces: that would hold up the busy loop, and with it all others. It ends with
/// the last of these.
#[derive(Clone)]
pub(super) struct GrammarBin(Sender<Box<StructuredOutputRequest>>);

impl GrammarBin {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses it.
    pub(super) fn new() -> std::io::Result<Self> {
        let (sender, discarded) = unbounded::<Box<StructuredOutputRequest>>();
        std::thread::Builder::new()
            .name("grammar-bin".to_owned())
            .spawn(move || {
                if let Err(error) = lower_priority(SHORT_NICENESS) {
                    tracing::warn!(%error, "grammars end at the priority of all others");
                }
                discarded.into_iter().for_each(drop);
            })?;
        Ok(Self(sender))
    }

    /// Drops a request there.
    pub(super) fn discard(&self, request: Box<StructuredOutputRequest>) {
        // Without the thread the process ends.
        let _ = self.0.send(request);
    }
}

/// Tells the jobs that wait for memory that a grammar is gone, when it is dropped: after the grammar.
pub(super) struct TellWhenGone {
    pub(super) queue: Arc<CompileQueue>,
    pub(super) backend: Arc<dyn StructuredOutputBackend>,
}

impl Drop for TellWhenGone {
    fn drop(&mut self) {
        // Most had no memory of their own, and where none is free then, a job that looks for it does much for
        // nothing.
        if self.backend.has_own_memory() {
            self.queue.memory_freed();
        }
    }
}
