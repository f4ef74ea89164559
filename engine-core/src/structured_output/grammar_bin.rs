//! Where the grammars of requests that are over end. With the last grammar of a generation all its states
//! go, up to hundreds of MiB in small pieces: that would hold up the busy loop, and with it all others.

use crossbeam_channel::{Sender, unbounded};

use super::priority::lower_priority;
use super::request::StructuredOutputRequest;
use super::turn::Duty;

/// A thread that drops what it is sent. It ends with the last of these.
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
                if let Err(error) = lower_priority(Duty::Answer) {
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
