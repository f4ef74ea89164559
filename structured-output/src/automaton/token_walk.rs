//! Where each token of the vocabulary leads from a state of any kind.
//!
//! A walk of the trie of bytes meets few states often: those of a string's body. They are numbered,
//! and each step between two of them is made once, so that most nodes cost a look-up.
//!
//! The text of a key or an item is different at each node. While it is written it makes no
//! difference to what may come, so states are kept as if none of the token's bytes belonged to it,
//! with the number of bytes that are left out; where the lexeme ends they are put in.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{GrammarState, TokenAutomaton};
use crate::index::{ROOT, TokenizerIndex};
use crate::lexical::{Fuel, Stop};

/// A state that tokens lead to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Reached {
    /// Without the last bytes of the token in the texts that it keeps: see
    /// [`TokenAutomaton::whole`].
    pub(super) state: GrammarState,
    /// How many bytes.
    pub(super) behind: u32,
    /// Whether the text in which the walk began is over, or goes on in another lexeme: the state is what
    /// it is without that text.
    pub(super) is_unread: bool,
}

/// A step from a state by a byte.
#[derive(Clone, Copy)]
enum Step {
    /// It was not made yet, or is another with each text.
    Unknown,
    /// There is none.
    Dead,
    /// To a state with all its texts.
    To(u32),
    /// Within a lexeme whose text is kept: the byte is left out of it.
    Within(u32),
    /// Out of the lexeme in which the walk began, without its text.
    Unread(u32),
}

/// The states met in a walk, numbered, with the steps between them.
#[derive(Default)]
struct Steps {
    numbers: HashMap<GrammarState, u32>,
    states: Vec<GrammarState>,
    rows: Vec<[Step; 256]>,
}

impl Steps {
    fn number(&mut self, state: GrammarState) -> u32 {
        *self.numbers.entry(state).or_insert_with(|| {
            self.states.push(state);
            self.rows.push([Step::Unknown; 256]);
            (self.states.len() - 1) as u32
        })
    }

    fn state(&self, number: u32) -> GrammarState {
        self.states[number as usize]
    }
}

impl TokenAutomaton {
    /// Calls `reached` with tokens and the state that they lead to, for all tokens that lead to one;
    /// a state may come several times. Whether tokens can complete it isn't asked.
    ///
    /// Where `may_leave_out` is true, the text in which the walk begins may be left out of the states
    /// beyond its lexeme, so that these are few; what a token writes there may be more than the text
    /// allows.
    pub(super) fn walk_tokens(
        &mut self,
        start: GrammarState,
        may_leave_out: bool,
        fuel: &mut Fuel,
        mut reached: impl FnMut(&mut Self, &[u32], Reached, &mut Fuel) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        // A token that is named here, and perhaps written as well: one by one.
        let named = match start {
            GrammarState::Machine(_) => Vec::new(),
            GrammarState::Parser(state) => self.named_tokens(state),
        };
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let mut steps = Steps::default();
        let mut pending = vec![(ROOT, 0, steps.number(start), 0, false)];
        while let Some((node, depth, number, behind, is_unread)) = pending.pop() {
            for child in trie.children(node) {
                fuel.burn(1)?;
                let byte = trie.label(child);
                let mut step = steps.rows[number as usize][usize::from(byte)];
                if let Step::Unknown = step {
                    let before = Reached {
                        state: steps.state(number),
                        behind,
                        is_unread,
                    };
                    // The bytes so far are those of any token here.
                    let token = trie.ids(trie.below(child)).first().copied();
                    // All bytes before it are within the lexeme.
                    let leaves_out = may_leave_out && behind as usize == depth;
                    step = match leaves_out {
                        true => self.step_without_text(before, byte, &mut steps, fuel)?,
                        false => Step::Unknown,
                    };
                    if let Step::Unknown = step {
                        step = self.token_step(before, token, depth, byte, &mut steps, fuel)?;
                    }
                }
                let (next, behind, is_unread) = match step {
                    Step::Unknown | Step::Dead => continue,
                    Step::To(next) => (next, 0, is_unread),
                    Step::Within(next) => (next, behind + 1, is_unread),
                    Step::Unread(next) => (next, 0, true),
                };
                let at = Reached {
                    state: steps.state(next),
                    behind,
                    is_unread,
                };
                let tokens = trie.ids(trie.own(child));
                if named.is_empty() && !tokens.is_empty() {
                    reached(self, tokens, at, fuel)?;
                } else {
                    for token in tokens {
                        if named.binary_search(token).is_err() {
                            reached(self, &[*token], at, fuel)?;
                        }
                    }
                }
                pending.push((child, depth + 1, next, behind, is_unread));
            }
        }
        for token in named {
            if let Some(state) = self.after_token(start, token, fuel)? {
                let at = Reached {
                    state,
                    behind: 0,
                    is_unread: false,
                };
                reached(self, &[token], at, fuel)?;
            }
        }
        Ok(())
    }

    /// A step out of the lexeme in which the walk began, without its text; unknown where it isn't such a
    /// step, or is another with each text.
    fn step_without_text(
        &mut self,
        before: Reached,
        byte: u8,
        steps: &mut Steps,
        fuel: &mut Fuel,
    ) -> Result<Step, Stop> {
        let GrammarState::Machine(state) = before.state else {
            return Ok(Step::Unknown);
        };
        let Some(place) = self.machine.unread_place(state) else {
            return Ok(Step::Unknown);
        };
        if self.machine.step_in_lexeme(state, byte, fuel)?.is_some() {
            return Ok(Step::Unknown);
        }
        let next = self.step_unread(place, byte, fuel)?;
        Ok(match next {
            None => Step::Unknown,
            Some(None) => Step::Dead,
            Some(Some(next)) => Step::Unread(steps.number(GrammarState::Machine(next))),
        })
    }

    /// A step after `depth` bytes of a token; remembered where it is the same for each text.
    fn token_step(
        &mut self,
        before: Reached,
        token: Option<u32>,
        depth: usize,
        byte: u8,
        steps: &mut Steps,
        fuel: &mut Fuel,
    ) -> Result<Step, Stop> {
        let mut keeps_text = false;
        let mut step = Step::Unknown;
        if let GrammarState::Machine(state) = before.state {
            keeps_text = self.machine.keeps_text(state);
            if let Some(next) = self.machine.step_in_lexeme(state, byte, fuel)? {
                step = Step::Within(steps.number(GrammarState::Machine(next)));
            }
        }
        if let Step::Unknown = step {
            let state = match token {
                Some(token) => self.whole(before, token, depth),
                None => before.state,
            };
            step = match self.after_byte(state, byte, fuel)? {
                Some(next) => Step::To(steps.number(next)),
                None => Step::Dead,
            };
        }
        if !keeps_text || matches!(step, Step::Within(_)) {
            let number = steps.number(before.state);
            steps.rows[number as usize][usize::from(byte)] = step;
        }
        Ok(step)
    }

    /// The state with its texts, after `length` bytes of a token.
    fn whole(&mut self, reached: Reached, token: u32, length: usize) -> GrammarState {
        match reached {
            Reached {
                state: GrammarState::Machine(state),
                behind,
                ..
            } if behind > 0 => {
                let index: Arc<TokenizerIndex> = Arc::clone(&self.index);
                let bytes = index.info().token_bytes(token);
                let from = length.saturating_sub(behind as usize);
                let text = bytes.get(from..length).unwrap_or_default();
                GrammarState::Machine(self.machine.with_text(state, text))
            }
            _ => reached.state,
        }
    }

    /// The state with its texts, after a whole token.
    pub(super) fn after_whole(
        &mut self,
        reached: Reached,
        token: u32,
        fuel: &mut Fuel,
    ) -> Result<GrammarState, Stop> {
        let length = self.index.info().token_bytes(token).len();
        Ok(match self.whole(reached, token, length) {
            GrammarState::Parser(state) => {
                GrammarState::Parser(self.grammars.parser.end_token(state, fuel)?)
            }
            whole => whole,
        })
    }

    /// All states that a token leads to, ascending.
    pub(super) fn after_tokens(
        &mut self,
        state: GrammarState,
        fuel: &mut Fuel,
    ) -> Result<Vec<GrammarState>, Stop> {
        let mut states = Vec::new();
        self.walk_tokens(state, false, fuel, |automaton, tokens, reached, fuel| {
            for &token in &tokens[..tokens.len().min(1)] {
                states.push(automaton.after_whole(reached, token, fuel)?);
            }
            Ok(())
        })?;
        states.sort_unstable();
        states.dedup();
        Ok(states)
    }
}
