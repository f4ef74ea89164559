//! Whether tokens of a vocabulary that can't write every text lead from a state to an end.
//!
//! Any end will do. So the search goes on from the state with the fewest bytes left (greedy best-first search), which is
//! mostly a straight way, where a search for the nearest end meets all states before it: under JSON each beginning of a
//! key is a state of its own.
//!
//! A state from which no end is in sight may have successors without end. Two things tell most of these without a search:
//! the running lexeme has no end in bytes that occur in tokens, or a bracket that is open has no closing one.

use hashbrown::HashMap;

use super::completion::ByTokens;
use super::{State, TokenAutomaton};
use crate::lexical::search::{DEAD, Graph, UNKNOWN, nearest_end};
use crate::lexical::{ByteSet, ExprId, Fuel, Lexicon, Stop};
use crate::pushdown::EMPTY_STACK;

/// A state that leads to an end.
const ALIVE: u32 = 0;

/// A bound that nothing but the bytes left decides on: more than the tokens of any way.
const WEIGHT: u32 = 1 << 10;

/// More bytes than that are as many.
const MAX_BYTES: u32 = 1 << 20;

/// What is known of states where not every text can be written.
#[derive(Default)]
pub(super) struct Writable {
    /// [`ALIVE`], [`DEAD`], or 1 and the bytes of a completion by any bytes.
    states: HashMap<State, u32>,
    /// Bytes of the shortest end of a lexeme in bytes that occur in tokens, or [`DEAD`].
    lexemes: HashMap<ExprId, u32>,
}

impl Writable {
    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.states.capacity() * (size_of::<(State, u32)>() + 1)
            + self.lexemes.capacity() * (size_of::<(ExprId, u32)>() + 1)
    }

    /// Its maps, for the caller to drop.
    pub(super) fn into_maps(self) -> (HashMap<State, u32>, HashMap<ExprId, u32>) {
        (self.states, self.lexemes)
    }
}

impl TokenAutomaton {
    /// Whether tokens lead from a state to an end.
    pub(super) fn is_writable(&mut self, state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        if !self.weigh(state, fuel)? {
            return Ok(false);
        }
        Ok(nearest_end(&mut AnyEnd(self), state, fuel)? != DEAD)
    }

    /// Takes note of the bytes left from a state; false where it is known to lead to no end.
    fn weigh(&mut self, state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        if let Some(&known) = self.writable.states.get(&state) {
            return Ok(known != DEAD);
        }
        let bytes = match self.may_be_written(state, fuel)? {
            true => self.machine.distance(state, fuel)?.0,
            false => DEAD,
        };
        let known = match bytes {
            DEAD => DEAD,
            bytes => 1 + bytes.min(MAX_BYTES),
        };
        self.writable.states.insert(state, known);
        Ok(known != DEAD)
    }

    /// False where bytes that occur in tokens end the running lexeme or an open bracket nowhere.
    fn may_be_written(&mut self, state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        let written = self.written_bytes;
        if !self
            .machine
            .closing_brackets(state.stack)
            .iter()
            .all(|byte| written.contains(byte))
        {
            return Ok(false);
        }
        let mut ends = Ends {
            lexicon: &mut self.machine.lexicon,
            known: &mut self.writable.lexemes,
            written,
            is_marked: state.stack != EMPTY_STACK,
        };
        Ok(nearest_end(&mut ends, state.lexeme, fuel)? != DEAD)
    }
}

/// The automaton as a graph whose edges are tokens, in which any end is as good as the nearest.
pub(super) struct AnyEnd<'a>(pub(super) &'a mut TokenAutomaton);

impl Graph for AnyEnd<'_> {
    type State = State;

    fn known(&self, state: State) -> u32 {
        match self.0.writable.states.get(&state) {
            Some(&known @ (ALIVE | DEAD)) => known,
            _ => UNKNOWN,
        }
    }

    fn bound(&self, state: State) -> u32 {
        let known = self.0.writable.states.get(&state);
        known.map_or(0, |bytes| bytes.saturating_mul(WEIGHT))
    }

    fn is_end(&mut self, state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        self.0.is_accepting(state, fuel)
    }

    fn successors(&mut self, state: State, fuel: &mut Fuel) -> Result<Vec<State>, Stop> {
        let mut successors = Vec::new();
        for next in ByTokens(self.0).successors(state, fuel)? {
            if self.0.weigh(next, fuel)? {
                successors.push(next);
            }
        }
        Ok(successors)
    }

    fn remember(&mut self, state: State, distance: u32) {
        let known = match distance {
            DEAD => DEAD,
            _ => ALIVE,
        };
        self.0.writable.states.insert(state, known);
    }
}

/// A lexeme's states as a graph whose edges are bytes that occur in tokens.
struct Ends<'a> {
    lexicon: &'a mut Lexicon,
    known: &'a mut HashMap<ExprId, u32>,
    written: ByteSet,
    is_marked: bool,
}

impl Graph for Ends<'_> {
    type State = ExprId;

    fn known(&self, expr: ExprId) -> u32 {
        self.known.get(&expr).copied().unwrap_or(UNKNOWN)
    }

    fn bound(&self, expr: ExprId) -> u32 {
        Graph::bound(&*self.lexicon, expr)
    }

    fn is_end(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<bool, Stop> {
        match self.is_marked {
            true => Ok(self.lexicon.ends(expr, fuel)?.iter().any(|end| end.0 == 0)),
            false => Ok(self.lexicon.is_nullable(expr)),
        }
    }

    fn successors(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Vec<ExprId>, Stop> {
        let all = self.lexicon.derivatives(expr, fuel)?;
        let written = all
            .into_iter()
            .filter(|(bytes, _)| !bytes.intersection(&self.written).is_empty());
        Ok(written.map(|(_, next)| next).collect())
    }

    fn remember(&mut self, expr: ExprId, distance: u32) {
        self.known.insert(expr, distance);
    }
}
