//! Texts of few tokens: a longer text may take fewer tokens than the [canonical completion](super::completion).
//!
//! What is found from a state doesn't depend on what was asked before, so neither does what is sampled.

use hashbrown::HashSet;

use super::completion::ByTokens;
use super::{GrammarState, State, TokenAutomaton};
use crate::lexical::search::Graph;
use crate::lexical::{Fuel, Stop};

/// How a text of few tokens is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextSearch {
    /// Among all texts, token by token: no text takes fewer. It meets many states.
    All,
    /// One way alone: each token is one that leaves the fewest bytes to the end. Other texts may take fewer.
    Greedy,
}

impl TokenAutomaton {
    /// The tokens of a text of few tokens from a state that can be completed, the stop token included, if these
    /// are at most `limit`. `None` where there is no such text.
    pub(crate) fn fewest_tokens_by(
        &mut self,
        start: GrammarState,
        search: TextSearch,
        limit: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<u32>, Stop> {
        let tokens = match (search, start) {
            (TextSearch::All, GrammarState::Machine(first)) => {
                self.distance_within(first, limit, fuel)?
            }
            // Among all texts of a grammar with rules a search might not end.
            (TextSearch::All, GrammarState::Parser(_)) => None,
            (TextSearch::Greedy, _) => self.greedy_distance(start, limit, fuel)?,
        };
        Ok(tokens.map(|tokens| tokens.saturating_add(1)))
    }

    /// The tokens that begin the texts of [`fewest_tokens_by`](Self::fewest_tokens_by), and their number;
    /// no tokens where the text may end.
    pub(crate) fn tokens_toward_fewest(
        &mut self,
        start: GrammarState,
        search: TextSearch,
        limit: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<(u32, Vec<u32>)>, Stop> {
        let Some(tokens) = self.fewest_tokens_by(start, search, limit, fuel)? else {
            return Ok(None);
        };
        // Without the stop token and the next one.
        let Some(tokens_after) = tokens.checked_sub(2) else {
            return Ok(Some((tokens, Vec::new())));
        };
        if search == TextSearch::Greedy {
            let nearest = self.with_fewest_bytes_left(start, fuel)?;
            return Ok(nearest.map(|(_, tokens_toward)| (tokens, tokens_toward)));
        }
        let mut tokens_toward = Vec::new();
        self.walk_tokens(start, false, fuel, |automaton, tokens, reached, fuel| {
            let Some(&token) = tokens.first() else {
                return Ok(());
            };
            if let GrammarState::Machine(next) = automaton.after_whole(reached, token, fuel)?
                && automaton.token_distance.get(&next) == Some(&tokens_after)
            {
                tokens_toward.extend_from_slice(tokens);
            }
            Ok(())
        })?;
        Ok(Some((tokens, tokens_toward)))
    }

    /// Tokens of the text that has the fewest bytes left after each token, if these are at most `limit` with a stop
    /// token. `None` where they are more, or lead nowhere: so they may where a vocabulary can't write any text.
    fn greedy_distance(
        &mut self,
        first: GrammarState,
        limit: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<u32>, Stop> {
        let mut way = Vec::new();
        let (mut at, mut bytes) = (first, u32::MAX);
        let rest = loop {
            if let Some(&known) = self.greedy_distance.get(&at) {
                break known;
            }
            let bytes_left = self.bytes_to_end(at, fuel)?;
            if bytes_left >= bytes {
                break None;
            }
            bytes = bytes_left;
            if self.may_end(at, fuel)? {
                self.greedy_distance.insert(at, Some(0));
                break Some(0);
            }
            way.push(at);
            match self.with_fewest_bytes_left(at, fuel)? {
                Some((next, _)) => at = next,
                None => break None,
            }
        };
        let mut tokens = rest;
        for state in way.into_iter().rev() {
            tokens = tokens.map(|tokens: u32| tokens.saturating_add(1));
            self.greedy_distance.insert(state, tokens);
        }
        Ok(tokens.filter(|tokens| tokens.saturating_add(1) <= limit))
    }

    /// The state after a token that leaves the fewest bytes, of several the one that the walk reaches first; and all
    /// tokens that lead to it.
    fn with_fewest_bytes_left(
        &mut self,
        at: GrammarState,
        fuel: &mut Fuel,
    ) -> Result<Option<(GrammarState, Vec<u32>)>, Stop> {
        let mut seen = HashSet::new();
        let mut fewest = u32::MAX;
        let mut nearest: Option<(GrammarState, Vec<u32>)> = None;
        self.walk_tokens(at, false, fuel, |automaton, tokens, reached, fuel| {
            let Some(&token) = tokens.first() else {
                return Ok(());
            };
            let next = automaton.after_whole(reached, token, fuel)?;
            if seen.insert(next) {
                let bytes = automaton.bytes_to_end(next, fuel)?;
                if nearest.is_none() || bytes < fewest {
                    fewest = bytes;
                    nearest = Some((next, Vec::new()));
                }
            }
            if let Some((state, toward)) = &mut nearest
                && *state == next
            {
                toward.extend_from_slice(tokens);
            }
            Ok(())
        })?;
        Ok(nearest)
    }

    /// Tokens from a state to the nearest end, if these are at most `limit` with a stop token: a search level by
    /// level. From then on the distances of all states on all such ways are known: a search from one of these would
    /// meet a part of the same states. `None` where there is no such way.
    fn distance_within(
        &mut self,
        first: State,
        limit: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<u32>, Stop> {
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
