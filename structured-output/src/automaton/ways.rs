//! Ways toward the end of a text whose walk is not over, since the fuel was spent.

use std::hash::Hash;

use hashbrown::HashMap;

/// A part of a canonical completion.
pub(super) struct Way<S, B> {
    /// Where it leads, from its start on.
    pub(super) places: Vec<S>,
    /// What is written between each two of them.
    pub(super) steps: Vec<B>,
}

/// Ways by their start: the next walk from there goes on where the last one ended, so that one that takes
/// more fuel than there is at a time comes to its end in some turns.
pub(super) struct Ways<S, B> {
    by_start: HashMap<S, Way<S, B>>,
    /// Of the ways.
    num_places: usize,
}

impl<S, B> Default for Ways<S, B> {
    fn default() -> Self {
        Self {
            by_start: HashMap::new(),
            num_places: 0,
        }
    }
}

impl<S: Copy + Eq + Hash, B> Ways<S, B> {
    /// What was walked from a place so far.
    pub(super) fn take(&mut self, start: S) -> Way<S, B> {
        match self.by_start.remove(&start) {
            Some(way) => {
                self.num_places -= way.places.len();
                way
            }
            None => Way {
                places: vec![start],
                steps: Vec::new(),
            },
        }
    }

    /// Keeps it for the next time.
    pub(super) fn put(&mut self, start: S, way: Way<S, B>) {
        self.num_places += way.places.len();
        self.by_start.insert(start, way);
    }

    /// About the bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        // Vectors have room for twice as many at most.
        2 * self.num_places * (size_of::<S>() + size_of::<B>())
            + self.by_start.capacity() * (size_of::<(S, Way<S, B>)>() + 1)
    }
}
