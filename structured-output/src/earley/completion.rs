//! How a text may be completed: what must come next, how far the end is, and the way there.

use super::parser::{Item, Parser, StateId};
use super::program::Lexeme;
use super::to_tags::tagged_text;
use crate::lexical::{ByteSet, Fuel, Stop};
use crate::pushdown::Machine;

/// What comes first in a canonical completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symbol {
    Byte(u8),
    Token(u32),
}

impl Parser {
    /// The one byte that can come next, if there is only one, and no token.
    pub(crate) fn only_byte(
        &mut self,
        machine: &mut Machine,
        state: StateId,
        fuel: &mut Fuel,
    ) -> Result<Option<u8>, Stop> {
        let mut all = ByteSet::EMPTY;
        for at in 0..self.items(state).len() {
            fuel.burn(1)?;
            match self.items(state)[at].lexeme {
                Lexeme::Text(text) | Lexeme::Counted(text, _) => {
                    // Within a key each byte would make another text.
                    if text.has_text() && machine.goes_on_in_ways(text, fuel)? {
                        return Ok(None);
                    }
                    for (bytes, _) in machine.next_bytes(text, fuel)? {
                        all = all.union(&bytes);
                    }
                    if all.len() > 1 {
                        return Ok(None);
                    }
                }
                Lexeme::Token(_) | Lexeme::Stop(_) | Lexeme::End => return Ok(None),
            }
        }
        Ok(all.iter().next().filter(|_| all.len() == 1))
    }

    /// The length of the shortest completion: bytes, and 1 for a token.
    pub(crate) fn distance(
        &mut self,
        machine: &mut Machine,
        state: StateId,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let mut least = u32::MAX;
        for at in 0..self.items(state).len() {
            let item = self.items(state)[at];
            least = least.min(self.item_distance(machine, item, fuel)?);
        }
        Ok(least)
    }

    fn item_distance(
        &mut self,
        machine: &mut Machine,
        item: Item,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        fuel.burn(1)?;
        if let Some(text) = tagged_text(machine, item.lexeme) {
            return self.tags_distance(machine, text, item.context, fuel);
        }
        let own = match item.lexeme {
            Lexeme::Text(text) | Lexeme::Counted(text, _) => machine.distance(text, fuel)?.0,
            Lexeme::Token(_) => 1,
            Lexeme::Stop(_) => return Ok(u32::MAX),
            Lexeme::End => 0,
        };
        Ok(super::length::add(
            own,
            self.contexts.min_length(item.context),
        ))
    }

    /// What comes first in the canonical completion, the shortest in bytes and tokens with the
    /// smallest bytes first, and the state after it; `None` at an end.
    pub(crate) fn toward_end(
        &mut self,
        machine: &mut Machine,
        state: StateId,
        fuel: &mut Fuel,
    ) -> Result<Option<(Symbol, StateId)>, Stop> {
        if self.is_accepting(state) {
            return Ok(None);
        }
        let least = self.distance(machine, state, fuel)?;
        let (mut first, mut token): (Option<u8>, Option<u32>) = (None, None);
        for at in 0..self.items(state).len() {
            let item = self.items(state)[at];
            if self.item_distance(machine, item, fuel)? != least {
                continue;
            }
            if let Some(text) = tagged_text(machine, item.lexeme) {
                let byte = self.byte_to_tag(machine, text, item.context, least, fuel)?;
                first = [first, byte].into_iter().flatten().min();
                continue;
            }
            match item.lexeme {
                Lexeme::Text(text) | Lexeme::Counted(text, _) => {
                    let next = machine.toward_end(text, fuel)?;
                    if let Some((byte, _)) = next {
                        first = Some(first.map_or(byte, |first| first.min(byte)));
                    }
                }
                Lexeme::Token(set) => {
                    let id = self.token_set(set).runs().first().map(|run| run.0);
                    token = match (token, id) {
                        (Some(known), Some(id)) => Some(known.min(id)),
                        (known, id) => known.or(id),
                    };
                }
                Lexeme::Stop(_) | Lexeme::End => {}
            }
        }
        let next = match (first, token) {
            (Some(byte), _) => {
                let next = self.step(machine, state, byte, fuel)?;
                next.map(|next| (Symbol::Byte(byte), next))
            }
            (None, Some(id)) => {
                let next = self.step_token(state, id, fuel)?;
                next.map(|next| (Symbol::Token(id), next))
            }
            (None, None) => None,
        };
        Ok(next)
    }
}
