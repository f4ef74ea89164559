//! Signs of life, readable while the busy loop is busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A counter that the worker raises at every layer and the loop at every step, and whether there
/// is work: no beat for long although there is means that the core hangs. Also whether the scheduler
/// is paused.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    beats: Arc<AtomicU64>,
    runnable: AtomicBool,
    paused: AtomicBool,
}

impl Heartbeat {
    /// The counter, for the model to raise.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.beats)
    }

    /// One step of the loop is over or begins.
    pub(crate) fn beat(&self, runnable: bool, paused: bool) {
        self.beats.fetch_add(1, Ordering::Relaxed);
        self.runnable.store(runnable, Ordering::Relaxed);
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Beats so far.
    pub(crate) fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Whether requests are being worked on.
    pub(crate) fn is_runnable(&self) -> bool {
        self.runnable.load(Ordering::Relaxed)
    }

    /// True while the scheduler takes no requests.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }
}
