//! How much of others' time a matcher may take.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lexical::Bound;

/// No limit but that of each call.
const UNLIMITED: u64 = u64::MAX;

/// Steps that a matcher's calls may together still take.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: AtomicU64,
    /// Steps that each of them may take, beside the engine's own limit.
    max_call_steps: u64,
    /// Whether they wait for others at work in memory apart.
    is_patient: bool,
    /// The bound, if there is one, that a call met.
    beyond: OnceLock<Bound>,
}

impl Allowance {
    /// So many, for calls that wait for nobody; `None` for no limit but that of each call.
    pub(crate) fn new(steps: Option<u64>) -> Self {
        Self {
            left: AtomicU64::new(steps.unwrap_or(UNLIMITED)),
            max_call_steps: UNLIMITED,
            is_patient: steps.is_none(),
            beyond: OnceLock::new(),
        }
    }

    /// With at most so many steps for each call.
    pub(crate) fn with_max_call_steps(self, max_call_steps: u64) -> Self {
        Self {
            max_call_steps,
            ..self
        }
    }

    /// Steps that each call may take.
    pub(crate) fn max_call_steps(&self) -> u64 {
        self.max_call_steps
    }

    /// So many, for calls that wait where they have to.
    pub(crate) fn patient(steps: u64) -> Self {
        Self {
            left: AtomicU64::new(steps),
            max_call_steps: UNLIMITED,
            is_patient: true,
            beyond: OnceLock::new(),
        }
    }

    /// Whether calls wait for others at work in memory apart.
    pub(super) fn is_patient(&self) -> bool {
        self.is_patient
    }

    /// What is left.
    pub(crate) fn left(&self) -> Option<u64> {
        let left = self.left.load(Ordering::Relaxed);
        (left != UNLIMITED).then_some(left)
    }

    /// The bound that no limit raises and that a call met, if one did.
    pub(crate) fn beyond(&self) -> Option<Bound> {
        self.beyond.get().copied()
    }

    /// Takes note of such a bound.
    pub(super) fn note_beyond(&self, bound: Bound) {
        // The first is as good as another.
        let _ = self.beyond.set(bound);
    }

    /// Takes some.
    pub(super) fn spend(&self, steps: u64) {
        if let Some(left) = self.left() {
            self.left
                .store(left.saturating_sub(steps), Ordering::Relaxed);
        }
    }
}

impl Clone for Allowance {
    fn clone(&self) -> Self {
        Self {
            left: AtomicU64::new(self.left.load(Ordering::Relaxed)),
            max_call_steps: self.max_call_steps,
            is_patient: self.is_patient,
            beyond: OnceLock::new(),
        }
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self::new(None)
    }
}
