//! Texts of few tokens: a longer text may take fewer tokens than the [canonical completion](super::completion).
//!
//! Two searches over tokens, one after the other. The first goes level by level and finds the fewest tokens of
//! all texts, where it meets few enough states. The second goes one way alone: of all tokens it takes one that
//! leaves the fewest bytes to the end. That number may not be the least, but a text that has it is known.
//!
//! What is found from a state doesn't depend on what was asked before, so neither does what is sampled.

use hashbrown::HashSet;

use super::completion::ByTokens;
use super::{GrammarState, State, TokenAutomaton};
use crate::lexical::search::Graph;
use crate::lexical::{Fuel, OutOfFuel};

/// How many tokens a text takes from some state, its stop token apart.
#[derive(Clone, Copy)]
enum Found {
    /// No text takes fewer.
    Fewest(u32),
    /// The text that has the fewest bytes left after each token.
    Greedy(u32),
}

impl Found {
    fn num_tokens(self) -> u32 {
        match self {
            Self::Fewest(tokens) | Self::Greedy(tokens) => tokens,
        }
    }
}

impl TokenAutomaton {
    /// The tokens of a text of few tokens from a state that can be completed, the stop token included, if these
    /// are at most `limit`. Each of two searches may take `max_steps`. `None` where there is no such text, or none
    /// is found.
    pub(crate) fn fewest_tokens_of_all(
        &mut self,
        start: GrammarState,
        limit: u32,
        max_steps: u64,
        fuel: &mut Fuel,
    ) -> Result<Option<u32>, OutOfFuel> {
        let GrammarState::Machine(first) = start else {
            return Ok(None);
        };
        let found = self.text_of_few_tokens(first, limit, max_steps, fuel)?;
        Ok(found.map(|found| found.num_tokens().saturating_add(1)))
    }

    /// The tokens that begin the texts of [`fewest_tokens_of_all`](Self::fewest_tokens_of_all), and their number;
    /// no tokens where the text may end.
    pub(crate) fn tokens_toward_fewest(
        &mut self,
        start: GrammarState,
        limit: u32,
        max_steps: u64,
        fuel: &mut Fuel,
    ) -> Result<Option<(u32, Vec<u32>)>, OutOfFuel> {
        let GrammarState::Machine(first) = start else {
            return Ok(None);
        };
        let Some(found) = self.text_of_few_tokens(first, limit, max_steps, fuel)? else {
            return Ok(None);
        };
        let Some(tokens_after) = found.num_tokens().checked_sub(1) else {
            return Ok(Some((1, Vec::new())));
        };
        let greedy = match found {
            Found::Fewest(_) => None,
            Found::Greedy(_) => self.with_fewest_bytes_left(first, fuel)?,
        };
        let mut tokens_toward = Vec::new();
        self.walk_tokens(start, false, fuel, |automaton, tokens, reached, fuel| {
            let Some(&token) = tokens.first() else {
                return Ok(());
            };
            if let GrammarState::Machine(next) = automaton.after_whole(reached, token, fuel)? {
                let is_nearer = match greedy {
                    Some(state) => next == state,
                    None => automaton.token_distance.get(&next) == Some(&tokens_after),
                };
                if is_nearer {
                    tokens_toward.extend_from_slice(tokens);
                }
            }
            Ok(())
        })?;
        Ok(Some((tokens_after.saturating_add(2), tokens_toward)))
    }

    fn text_of_few_tokens(
        &mut self,
        first: State,
        limit: u32,
        max_steps: u64,
        fuel: &mut Fuel,
    ) -> Result<Option<Found>, OutOfFuel> {
        let is_within = |tokens: &u32| tokens.saturating_add(1) <= limit;
        if let Some(&tokens) = self.greedy_tokens.get(&first) {
            return Ok(Some(tokens).filter(is_within).map(Found::Greedy));
        }
        let fewest = search(fuel, max_steps, |fuel| {
            self.distance_within(first, limit, fuel)
        })?;
        if let Some(fewest) = fewest {
            return Ok(fewest.map(Found::Fewest));
        }
        // Where a vocabulary can't write any text, fewer bytes may be no way to the end.
        if !self.writes_any_text {
            return Ok(None);
        }
        let tokens = search(fuel, max_steps, |fuel| self.greedy_distance(first, fuel))?;
        let tokens = tokens.flatten().unwrap_or(u32::MAX);
        self.greedy_tokens.insert(first, tokens);
        Ok(Some(tokens).filter(is_within).map(Found::Greedy))
    }

    /// Tokens of the text that has the fewest bytes left after each token. `None` where that leads nowhere.
    fn greedy_distance(&mut self, first: State, fuel: &mut Fuel) -> Result<Option<u32>, OutOfFuel> {
        let (mut at, mut tokens) = (first, 0_u32);
        let mut bytes = self.machine_bytes_to_end(at, fuel)?;
        while !self.is_accepting(at, fuel)? {
            let Some(next) = self.with_fewest_bytes_left(at, fuel)? else {
                return Ok(None);
            };
            let bytes_left = self.machine_bytes_to_end(next, fuel)?;
            if bytes_left >= bytes {
                return Ok(None);
            }
            (at, bytes, tokens) = (next, bytes_left, tokens.saturating_add(1));
        }
        Ok(Some(tokens))
    }

    /// The state after a token that leaves the fewest bytes; of several the one that the walk reaches first.
    fn with_fewest_bytes_left(
        &mut self,
        at: State,
        fuel: &mut Fuel,
    ) -> Result<Option<State>, OutOfFuel> {
        let mut seen = HashSet::new();
        let mut nearest: Option<(u32, State)> = None;
        let start = GrammarState::Machine(at);
        self.walk_tokens(start, false, fuel, |automaton, tokens, reached, fuel| {
            let Some(&token) = tokens.first() else {
                return Ok(());
            };
            if let GrammarState::Machine(next) = automaton.after_whole(reached, token, fuel)?
                && seen.insert(next)
            {
                let bytes = automaton.machine_bytes_to_end(next, fuel)?;
                if nearest.is_none_or(|(fewest, _)| bytes < fewest) {
                    nearest = Some((bytes, next));
                }
            }
            Ok(())
        })?;
        Ok(nearest.map(|(_, state)| state))
    }

    /// Tokens from a state to the nearest end, if these are at most `limit` with a stop token: a search level by
    /// level. From then on the distances of all states on all such ways are known: a search from one of these would
    /// meet a part of the same states. `None` where there is no such way.
    fn distance_within(
        &mut self,
        first: State,
        limit: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<u32>, OutOfFuel> {
        let is_within = |distance: &u32| distance.saturating_add(1) <= limit;
        // Other vocabularies are searched in another way too, which remembers one way alone.
        if let Some(known) = self.token_distance.get(&first)
            && self.writes_any_text
        {
            return Ok(Some(*known).filter(is_within));
        }
        let mut seen: HashSet<State> = HashSet::from_iter([first]);
        // Of each level, its states and where their tokens lead.
        let mut levels: Vec<Vec<(State, Vec<State>)>> = Vec::new();
        let mut level = vec![first];
        let mut ends = HashSet::new();
        if self.is_accepting(first, fuel)? {
            return Ok(Some(0).filter(is_within));
        }
        while ends.is_empty() {
            let num_levels = u32::try_from(levels.len() + 1).unwrap_or(u32::MAX);
            if level.is_empty() || !is_within(&num_levels) {
                return Ok(None);
            }
            let mut explored = Vec::with_capacity(level.len());
            let mut next_level = Vec::new();
            for state in level {
                let successors = ByTokens(self).successors(state, fuel)?;
                for &next in &successors {
                    if seen.insert(next) {
                        next_level.push(next);
                        if self.is_accepting(next, fuel)? {
                            ends.insert(next);
                        }
                    }
                }
                explored.push((state, successors));
            }
            levels.push(explored);
            level = next_level;
        }
        // Back from the ends.
        let mut distance = 0;
        let mut nearer = ends;
        for explored in levels.iter().rev() {
            let leads = |successors: &[State]| successors.iter().any(|next| nearer.contains(next));
            let before = explored.iter().filter(|(_, successors)| leads(successors));
            let before = before.map(|(state, _)| *state).collect();
            let known = nearer.into_iter().map(|state| (state, distance));
            self.token_distance.extend(known);
            (nearer, distance) = (before, distance + 1);
        }
        self.token_distance.insert(first, distance);
        Ok(Some(distance))
    }
}

/// Does a search that may take `max_steps`. `None` where these are not enough for it; where fewer were granted, it
/// is asked again with more.
fn search<T>(
    fuel: &mut Fuel,
    max_steps: u64,
    work: impl FnOnce(&mut Fuel) -> Result<T, OutOfFuel>,
) -> Result<Option<T>, OutOfFuel> {
    let mut part = fuel.part(max_steps);
    let granted = part.left();
    let found = work(&mut part);
    fuel.burn(granted - part.left())?;
    match found {
        Err(error) if granted < max_steps => Err(error),
        found => Ok(found.ok()),
    }
}
