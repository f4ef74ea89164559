//! What of `cache_bytes` is for what.

/// How `cache_bytes` is shared out: three quarters for what all grammars have together, which is the current generation
/// and those before it, and the rest for the two generations apart. All of it together is `cache_bytes`.
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
    /// States and masks of all generations before the current one.
    pub(crate) past: usize,
    /// States and masks that the matchers of one request may add.
    pub(super) request: usize,
    /// Compiled grammars and failures, with their sources.
    pub(crate) grammars: usize,
}

impl Shares {
    /// The shares of what all grammars have together.
    pub(crate) fn of(cache_bytes: usize) -> Self {
        let part = cache_bytes / 256 * 6;
        Self {
            masks: part * 8,
            // Of each of three generations.
            ready: part,
            states: part * 7,
            states_at_most: part * 9,
            past: part * 8,
            request: cache_bytes / 32,
            grammars: part * 4,
        }
    }

    /// The shares of one of two generations apart. Their grammars have their part once.
    pub(crate) fn apart(cache_bytes: usize) -> Self {
        let part = cache_bytes / 256;
        Self {
            masks: part * 4,
            ready: part * 2,
            states: part * 21,
            states_at_most: part * 24,
            past: 0,
            request: usize::MAX,
            grammars: part * 4,
        }
    }

    /// The least `cache_bytes` with which states that take so many bytes fill no more than half of their
    /// share, also in a generation apart, where that is the smallest.
    pub(crate) fn least_for(state_bytes: usize) -> usize {
        let of_states = state_bytes.saturating_mul(2);
        of_states.div_ceil(21).saturating_mul(256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_are_cache_bytes() {
        for cache_bytes in [0, 512, 1 << 20, 192 << 20, 256 << 20, (1 << 30) + 12_345] {
            let (shared, apart) = (Shares::of(cache_bytes), Shares::apart(cache_bytes));
            let together = shared.states_at_most + shared.masks + shared.past + 3 * shared.ready;
            let of_each = apart.states_at_most + apart.masks + apart.ready;
            let sum = together + shared.grammars + 2 * of_each + apart.grammars;
            assert!(sum <= cache_bytes, "{sum} of {cache_bytes}");
            assert!(sum >= cache_bytes / 64 * 61, "{sum} of {cache_bytes}");
        }
    }

    #[test]
    fn the_least_leaves_as_much_room() {
        for state_bytes in [8, 77, 100_000, 1_234_567] {
            let has_room = |cache_bytes| {
                let shares = [Shares::apart(cache_bytes), Shares::of(cache_bytes)];
                shares.iter().all(|shares| shares.states / 2 >= state_bytes)
            };
            let least = Shares::least_for(state_bytes);
            assert!(
                has_room(least) && (least == 256 || !has_room(least - 512)),
                "{state_bytes}"
            );
        }
    }
}
