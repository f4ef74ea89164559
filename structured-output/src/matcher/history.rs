//! A stack that is shared when it is cloned.

use std::sync::Arc;

/// A stack as a linked list from the top down: push, pop and clone are O(1), clones share what lies
/// below.
#[derive(Debug)]
pub(super) struct History<T> {
    top: Option<Arc<Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    len: usize,
    below: Option<Arc<Entry<T>>>,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        Self { top: None }
    }
}

impl<T> Clone for History<T> {
    fn clone(&self) -> Self {
        Self {
            top: self.top.clone(),
        }
    }
}

impl<T: Copy> History<T> {
    pub(super) fn len(&self) -> usize {
        self.top.as_ref().map_or(0, |entry| entry.len)
    }

    /// The values from the top down.
    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        let mut entry = self.top.as_deref();
        std::iter::from_fn(move || {
            let Entry { value, below, .. } = entry?;
            entry = below.as_deref();
            Some(*value)
        })
    }

    pub(super) fn push(&mut self, value: T) {
        let len = self.len() + 1;
        let below = self.top.take();
        self.top = Some(Arc::new(Entry { value, len, below }));
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let top = self.top.take()?;
        let value = top.value;
        self.top = match Arc::try_unwrap(top) {
            Ok(mut owned) => owned.below.take(),
            Err(shared) => shared.below.clone(),
        };
        Some(value)
    }
}

impl<T> Drop for Entry<T> {
    /// Frees what lies below in a loop: a long history must not cost a deep call stack.
    fn drop(&mut self) {
        let mut below = self.below.take();
        while let Some(entry) = below {
            // Shared with a fork: it lives on.
            let Some(mut owned) = Arc::into_inner(entry) else {
                return;
            };
            below = owned.below.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_history_is_dropped_without_recursion() {
        let mut history = History::default();
        for value in 0..1_000_000 {
            history.push(value);
        }
        let fork = history.clone();
        drop(history);
        assert_eq!(fork.len(), 1_000_000);
    }

    proptest! {
        #[test]
        fn equals_stacks_that_are_copied(ops in prop::collection::vec((0_usize..3, 0..4_u8), 0..200)) {
            let mut stacks = vec![(History::default(), Vec::new())];
            for (which, value) in ops {
                let at = which % stacks.len();
                match value {
                    0 => {
                        let (history, reference) = &mut stacks[at];
                        prop_assert_eq!(history.pop(), reference.pop());
                    }
                    1 if stacks.len() < 4 => {
                        let fork = stacks[at].clone();
                        stacks.push(fork);
                    }
                    _ => {
                        stacks[at].0.push(value);
                        stacks[at].1.push(value);
                    }
                }
                for (history, reference) in &stacks {
                    prop_assert_eq!(history.len(), reference.len());
                    prop_assert!(history.iter().eq(reference.iter().rev().copied()));
                }
            }
        }
    }
}
