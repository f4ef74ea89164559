//! What of `cache_bytes` is for what.

/// How `cache_bytes` is shared out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    /// Masks and what else can be computed again: dropped when it exceeds this.
    pub(crate) masks: usize,
    /// Answers by state and by token, which point to these.
    pub(super) ready: usize,
    /// States: when they exceed this, the next compilation starts a new generation.
    pub(crate) states: usize,
    /// States: when they exceed this, matchers that need more of them fail.
    pub(crate) states_at_most: usize,
    /// Compiled grammars and failures, with their sources.
    pub(crate) grammars: usize,
}

impl Shares {
    pub(crate) fn of(cache_bytes: usize) -> Self {
        Self {
            masks: cache_bytes / 16 * 7,
            ready: cache_bytes / 16,
            states: cache_bytes / 4,
            states_at_most: cache_bytes / 8 * 3,
            grammars: cache_bytes / 8,
        }
    }

    /// The shares of a generation apart: the states of a few grammars take half of what those of all others have, and
    /// their masks a quarter.
    pub(super) fn apart(self) -> Self {
        Self {
            masks: self.masks / 4,
            states: self.states / 2,
            states_at_most: self.states_at_most / 2,
            ..self
        }
    }

    /// The least `cache_bytes` with which states that take so many bytes fill no more than half of their
    /// share.
    pub(crate) fn least_for(state_bytes: usize) -> usize {
        state_bytes.saturating_mul(8)
    }
}
