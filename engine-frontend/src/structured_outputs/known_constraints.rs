//! Constraints that were checked before and found good.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::StructuredOutputsParams;

/// Constraints that are remembered, at most.
const MAX_KNOWN: usize = 8192;

/// Which constraints need no check any more; of many the last that were found good. Of each a hash of eight
/// bytes, with a key that nobody knows: should two be the same, then one is left to the core unchecked.
#[derive(Debug, Default)]
pub(super) struct KnownConstraints {
    hasher: RandomState,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: HashSet<u64>,
    /// The oldest first.
    by_age: VecDeque<u64>,
}

impl KnownConstraints {
    /// Whether a constraint with its options was found good. Reads it once.
    pub(super) fn contains(&self, params: &StructuredOutputsParams) -> bool {
        let hash = self.hash(params);
        self.state().known.contains(&hash)
    }

    /// Remembers that it was.
    pub(super) fn insert(&self, params: &StructuredOutputsParams) {
        let hash = self.hash(params);
        let mut state = self.state();
        if state.known.insert(hash) {
            state.by_age.push_back(hash);
        }
        if state.by_age.len() > MAX_KNOWN
            && let Some(oldest) = state.by_age.pop_front()
        {
            state.known.remove(&oldest);
        }
    }

    fn hash(&self, params: &StructuredOutputsParams) -> u64 {
        // What is compiled, and nothing else.
        let compiled = (params.constraint.specification(), params.options());
        self.hasher.hash_one(compiled)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No call into it panics midway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use protocol::{StructuredOutputsConstraint, Whitespace};

    use super::*;

    fn regex(number: usize) -> StructuredOutputsParams {
        StructuredOutputsParams::new(StructuredOutputsConstraint::Regex(number.to_string()))
    }

    #[test]
    fn the_last_ones_are_known() {
        let known = KnownConstraints::default();
        for number in 0..MAX_KNOWN + 10 {
            known.insert(&regex(number));
            known.insert(&regex(number));
        }
        assert!(!known.contains(&regex(9)));
        assert!(known.contains(&regex(10)));
        assert!(known.contains(&regex(MAX_KNOWN + 9)));
        assert_eq!(known.state().known.len(), MAX_KNOWN);
        assert_eq!(known.state().by_age.len(), MAX_KNOWN);
    }

    #[test]
    fn options_that_are_compiled_make_another_constraint() {
        let known = KnownConstraints::default();
        let mut params =
            StructuredOutputsParams::new(StructuredOutputsConstraint::Json("{}".to_owned()));
        known.insert(&params);
        params.complete_within_max_tokens = false;
        assert!(known.contains(&params));
        params.whitespace = Whitespace::Pattern(String::new());
        assert!(!known.contains(&params));
        // The same text is a pattern as well.
        let pattern = StructuredOutputsConstraint::Regex("{}".to_owned());
        assert!(!known.contains(&StructuredOutputsParams::new(pattern)));
    }
}
