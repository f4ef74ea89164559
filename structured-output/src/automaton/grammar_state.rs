//! A place in a grammar of any kind, and what a matcher asks of it.
//!
//! Regular languages and JSON run on the machine, a stack of frames; what needs a parser runs on the
//! parser, whose lexemes are states of the machine. Here each question goes where it belongs.

use std::sync::Arc;

use super::TokenAutomaton;
use crate::earley;
use crate::lexical::{ExprId, Fuel, Stop};
use crate::mask::Mask;
use crate::pushdown;

/// A place in a grammar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum GrammarState {
    /// In a regular language or a JSON text.
    Machine(pushdown::State),
    /// In a grammar with rules.
    Parser(earley::StateId),
}

/// A step by a token.
#[derive(Clone, Copy)]
pub(crate) struct TokenStep {
    pub(crate) next: GrammarState,
    /// The lexeme before and after, where the token stays within it whatever the stack is, and the text
    /// can't end there.
    pub(crate) within: Option<(ExprId, ExprId)>,
}

use GrammarState::{Machine, Parser};

impl TokenAutomaton {
    /// The tokens that may come next, the vocabulary's stop tokens included where the text may end.
    pub(crate) fn next_tokens(
        &mut self,
        state: GrammarState,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, Stop> {
        match state {
            Machine(state) => self.mask(state, fuel),
            Parser(state) => self.parser_mask(state, fuel),
        }
    }

    /// How many tokens complete the text, the stop token included.
    pub(crate) fn tokens_to_end(
        &mut self,
        state: GrammarState,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        match state {
            Machine(state) => self.min_tokens(state, fuel),
            Parser(state) => self.parser_min_tokens(state, fuel),
        }
    }

    /// The tokens that begin the canonical completion, see
    /// [`TokenAutomaton::completing_tokens`]; `None` where there is none.
    pub(crate) fn tokens_toward_end(
        &mut self,
        state: GrammarState,
        num_tokens: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<u32>>, Stop> {
        match state {
            Machine(state) => self.completing_tokens(state, num_tokens, fuel),
            Parser(state) => self.parser_completing_tokens(state, num_tokens, fuel),
        }
    }

    /// How many bytes a short completion has.
    pub(crate) fn bytes_to_end(
        &mut self,
        state: GrammarState,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        match state {
            Machine(state) => self.machine_bytes_to_end(state, fuel),
            Parser(state) => self
                .grammars
                .parser
                .distance(&mut self.machine, state, fuel),
        }
    }

    /// A bound from below on [`TokenAutomaton::tokens_to_end`], by [`TokenAutomaton::bytes_to_end`].
    pub(crate) fn min_tokens_bound(
        &mut self,
        state: GrammarState,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let longest = self.index.max_token_bytes().max(1);
        let bytes = self.bytes_to_end(state, fuel)?;
        Ok(bytes.div_ceil(longest).saturating_add(1))
    }

    /// The state after a token that doesn't end the text; `None` where the token isn't allowed.
    pub(crate) fn after_token(
        &mut self,
        state: GrammarState,
        token_id: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<GrammarState>, Stop> {
        let step = self.step_by_token(state, token_id, fuel)?;
        Ok(step.map(|step| step.next))
    }

    /// The step by a token that doesn't end the text; `None` where the token isn't allowed.
    pub(crate) fn step_by_token(
        &mut self,
        state: GrammarState,
        token_id: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<TokenStep>, Stop> {
        Ok(match state {
            Machine(state) => {
                let step = self.advance_within(state, token_id, fuel)?;
                step.map(|(next, is_within)| TokenStep {
                    next: Machine(next),
                    within: (is_within && !self.machine.lexicon.is_nullable(next.lexeme))
                        .then_some((state.lexeme, next.lexeme)),
                })
            }
            Parser(state) => self
                .parser_advance(state, token_id, fuel)?
                .map(|next| TokenStep {
                    next: Parser(next),
                    within: None,
                }),
        })
    }

    /// Whether the frame of a state keeps no text, so that its steps within a lexeme depend on the
    /// lexeme alone.
    pub(crate) fn is_without_text(&self, state: GrammarState) -> bool {
        match state {
            Machine(state) => {
                self.writes_any_text && !state.has_text() && !self.machine.keeps_text(state)
            }
            Parser(_) => false,
        }
    }

    /// Whether tokens of the vocabulary can complete the text.
    pub(crate) fn can_end(&mut self, state: GrammarState, fuel: &mut Fuel) -> Result<bool, Stop> {
        match state {
            Machine(state) => self.is_completable(state, fuel),
            Parser(state) => self.is_parser_completable(state, fuel),
        }
    }

    /// The state after a byte; `None` where the byte can't come next.
    pub(crate) fn after_byte(
        &mut self,
        state: GrammarState,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<GrammarState>, Stop> {
        Ok(match state {
            Machine(state) => self.machine.step(state, byte, fuel)?.map(Machine),
            Parser(state) => self.parser_step(state, byte, fuel)?.map(Parser),
        })
    }

    /// Whether the text may end here.
    pub(crate) fn may_end(&mut self, state: GrammarState, fuel: &mut Fuel) -> Result<bool, Stop> {
        match state {
            Machine(state) => self.is_accepting(state, fuel),
            Parser(state) => Ok(self.grammars.parser.is_accepting(state)),
        }
    }

    /// Whether the grammar names this stop token here, as the last of the text.
    pub(crate) fn names_stop_token(&self, state: GrammarState, token_id: u32) -> bool {
        match state {
            Machine(_) => false,
            Parser(state) => self.grammars.parser.is_named_stop(state, token_id),
        }
    }

    /// The bytes that must come next, see [`TokenAutomaton::forced_bytes`].
    pub(crate) fn next_forced_bytes(
        &mut self,
        state: GrammarState,
        max_bytes: usize,
        fuel: &mut Fuel,
    ) -> Result<Vec<u8>, Stop> {
        match state {
            Machine(state) => self.forced_bytes(state, max_bytes, fuel),
            Parser(state) => self.parser_forced_bytes(state, max_bytes, fuel),
        }
    }
}
