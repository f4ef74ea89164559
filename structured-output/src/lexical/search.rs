//! The way to the nearest end, in a graph of states that is made as it is walked.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;

use hashbrown::HashMap;

use super::fuel::{Fuel, Stop};

/// Distance of a state from which no end can be reached.
pub(crate) const DEAD: u32 = u32::MAX;
/// Not searched yet.
pub(crate) const UNKNOWN: u32 = u32::MAX - 1;
/// A distance is at most this.
pub(crate) const FARTHEST: u32 = u32::MAX - 2;

/// A graph whose edges have length 1.
pub(crate) trait Graph {
    /// A state.
    type State: Copy + Eq + Hash + Ord;

    /// The state's distance where it is known, or [`UNKNOWN`].
    fn known(&self, state: Self::State) -> u32;

    /// A lower bound on the distance, which falls by at most 1 along an edge.
    fn bound(&self, state: Self::State) -> u32;

    /// A guess at what is still to be done. Of ways that may be equally long, the one with less to
    /// do is tried first.
    fn effort(&self, _state: Self::State) -> u32 {
        0
    }

    /// Whether a state is an end, where its distance is not known.
    fn is_end(&mut self, state: Self::State, fuel: &mut Fuel) -> Result<bool, Stop>;

    /// The states one edge away.
    fn successors(&mut self, state: Self::State, fuel: &mut Fuel)
    -> Result<Vec<Self::State>, Stop>;

    /// Takes note of a distance, so that `known` gives it from now on.
    fn remember(&mut self, state: Self::State, distance: u32);
}

/// Bound on the whole way, effort, cost so far, state. Of equals the farthest comes first: where the
/// bound is right, that goes straight to the end instead of meeting all states before it.
type Waiting<S> = (Reverse<(u32, u32)>, u32, S);

/// A search for the end nearest to a state, best first (A*; Hart, Nilsson, Raphael 1968). It can be
/// interrupted: where fuel runs out, `run` goes on from there.
pub(crate) struct Search<S> {
    start: S,
    /// Best cost so far and the state before, per state seen.
    seen: HashMap<S, (u32, S)>,
    queue: BinaryHeap<Waiting<S>>,
}

/// Distance of `start` from the nearest end, [`DEAD`] where there is none.
pub(crate) fn nearest_end<G: Graph>(
    graph: &mut G,
    start: G::State,
    fuel: &mut Fuel,
) -> Result<u32, Stop> {
    let known = graph.known(start);
    if known != UNKNOWN {
        return Ok(known);
    }
    Search::new(start).run(graph, fuel)
}

impl<S: Copy + Eq + Hash + Ord> Search<S> {
    /// A search that has not begun.
    pub(crate) fn new(start: S) -> Self {
        Self {
            start,
            seen: HashMap::from_iter([(start, (0, start))]),
            queue: BinaryHeap::from([(Reverse((0, 0)), 0, start)]),
        }
    }

    /// How many states have been met.
    pub(crate) fn num_seen(&self) -> usize {
        self.seen.len()
    }

    /// Distance of the start, [`DEAD`] where no end can be reached.
    ///
    /// Distances along the way found are remembered, and where there is none, that of all states
    /// seen.
    pub(crate) fn run<G: Graph<State = S>>(
        &mut self,
        graph: &mut G,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        while let Some(&(Reverse((total, effort)), reached, state)) = self.queue.peek() {
            fuel.burn(1)?;
            let known = graph.known(state);
            let outdated = self
                .seen
                .get(&state)
                .is_some_and(|&(best, _)| best < reached);
            let left = if known == UNKNOWN {
                graph.bound(state)
            } else {
                known
            };
            if outdated || known == DEAD {
                self.queue.pop();
            } else if total < reached.saturating_add(left) {
                // Farther than was promised: it waits until it is the nearest.
                self.queue.pop();
                let total = reached.saturating_add(left);
                self.queue.push((Reverse((total, effort)), reached, state));
            } else if known != UNKNOWN {
                self.remember_path(graph, state, known);
                return Ok(total.min(FARTHEST));
            } else if graph.is_end(state, fuel)? {
                graph.remember(state, 0);
            } else {
                let successors = graph.successors(state, fuel)?;
                self.queue.pop();
                for next in successors {
                    self.reach(graph, state, next, reached.saturating_add(1));
                }
            }
        }
        for &state in self.seen.keys() {
            graph.remember(state, DEAD);
        }
        Ok(graph.known(self.start))
    }

    /// Takes note of a way to `next`.
    fn reach<G: Graph<State = S>>(&mut self, graph: &G, before: S, next: S, cost: u32) {
        let known = graph.known(next);
        let better = self.seen.get(&next).is_none_or(|&(best, _)| cost < best);
        if better && known != DEAD {
            self.seen.insert(next, (cost, before));
            let left = if known == UNKNOWN {
                graph.bound(next)
            } else {
                known
            };
            let total = cost.saturating_add(left);
            let effort = graph.effort(next);
            self.queue.push((Reverse((total, effort)), cost, next));
        }
    }

    /// Remembers the distances on the way to `state`, which is `distance` from an end.
    fn remember_path<G: Graph<State = S>>(&self, graph: &mut G, mut state: S, mut distance: u32) {
        loop {
            if graph.known(state) == UNKNOWN {
                graph.remember(state, distance);
            }
            match self.seen.get(&state) {
                Some(&(_, before)) if before != state => {
                    state = before;
                    distance = distance.saturating_add(1).min(FARTHEST);
                }
                _ => return,
            }
        }
    }
}
