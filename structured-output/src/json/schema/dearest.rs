//! Which schema a compilation has spent most on.

use super::place::Key;

/// What schemas have cost so far, each with those in it.
#[derive(Default)]
pub(super) struct Dearest {
    in_all: u64,
    /// Those that are being compiled, each within the one before it, and what all had cost before.
    open: Vec<(Key, u64)>,
    /// Those that are done and had cost more than half of all by then, and what they cost: of others none
    /// will ever have.
    done: Vec<(Key, u64)>,
}

impl Dearest {
    /// From here on up to [`Dearest::leave`] what is spent is a schema's.
    pub(super) fn enter(&mut self, key: Key) {
        self.open.push((key, self.in_all));
    }

    /// How many schemas are being compiled, each within the one before it.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Takes note of steps or expressions.
    pub(super) fn spend(&mut self, cost: u64) {
        self.in_all += cost;
    }

    /// The schema that was entered last is done.
    pub(super) fn leave(&mut self) {
        if let Some((key, before)) = self.open.pop() {
            self.note(key, self.in_all - before);
        }
    }

    /// Takes note of what was spent on a schema that is done.
    pub(super) fn note(&mut self, key: Key, cost: u64) {
        if self.is_most(cost) {
            self.done.push((key, cost));
        }
    }

    fn is_most(&self, cost: u64) -> bool {
        cost > self.in_all / 2
    }

    /// The innermost schema that has cost more than all that is not in it.
    pub(super) fn key(&self) -> Option<Key> {
        let open = self
            .open
            .iter()
            .map(|&(key, before)| (key, self.in_all - before));
        // Where two cost the same, the one that is done is in the other.
        let known = self.done.iter().copied().chain(open.rev());
        let most = known.filter(|&(_, cost)| self.is_most(cost));
        most.min_by_key(|&(_, cost)| cost).map(|(key, _)| key)
    }
}
