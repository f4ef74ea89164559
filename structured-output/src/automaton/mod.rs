//! The automaton over tokens: the pushdown machine, stepped by whole tokens of a vocabulary.
//!
//! Everything that is known of a state is known here once: its mask, the tokens it needs to
//! complete. Requests and grammars share one automaton behind the engine's lock.

mod all_tokens;
#[cfg(test)]
mod all_tokens_tests;
mod base;
mod beyond;
mod bounded;
mod completion;
mod context_free;
mod context_free_mask;
mod counted;
mod counted_walk;
mod difference;
mod exit_rests;
mod exits;
mod fewest_tokens;
mod gather;
mod grammar_state;
mod language_facts;
mod language_item;
mod lexeme;
mod loose_walk;
mod mask;
mod memo;
mod parser_steps;
mod read_text;
mod rests;
#[cfg(test)]
mod tests;
mod token_walk;
mod unread_text;
mod walk;
mod ways;
mod within;
mod writable;

use std::sync::Arc;

use hashbrown::HashMap;

use crate::index::TokenizerIndex;
use crate::lexical::{ByteSet, Fuel, Lexicon, Stop};
use crate::mask::Forgotten;
use crate::mask::table::Table;
use crate::pushdown::Machine;
pub(crate) use crate::pushdown::State;
pub(crate) use base::Base;
use context_free::{Grammars, Memo};
pub use fewest_tokens::TextSearch;
pub(crate) use grammar_state::{GrammarState, TokenStep};
use memo::MaskMemo;
use rests::RestsScratch;
use unread_text::UnreadMemo;
use ways::Ways;
use writable::Writable;

/// The longest forced text that is looked for at once.
pub(crate) const MAX_FORCED_BYTES: usize = 16 << 10;

/// The machine together with what is remembered of its states.
pub(crate) struct TokenAutomaton {
    index: Arc<TokenizerIndex>,
    base: Option<Arc<Base>>,
    machine: Machine,
    /// Whether completion by bytes implies completion by tokens, see
    /// [`TokenizerIndex::writes_any_text`].
    writes_any_text: bool,
    masks: MaskMemo,
    /// Tokens to the nearest end, where not every text can be written (else empty).
    token_distance: HashMap<State, u32>,
    /// Which states lead to an end, where not every text can be written (else empty).
    writable: Writable,
    /// The bytes that occur in tokens.
    written_bytes: ByteSet,
    /// Tokens of the text that has the fewest bytes left after each token, see [`fewest_tokens`]; `None` where
    /// these lead nowhere.
    greedy_distance: HashMap<GrammarState, Option<u32>>,
    /// Tokens of the canonical completion, its stop token included.
    min_tokens: HashMap<State, u32>,
    /// Where it is still being walked.
    ways: Ways<State, u8>,
    /// Bytes of a short completion, of places far from the end of a text that has to be known.
    bytes_to_end: HashMap<State, u32>,
    /// What is known of places without the text of a key or an item.
    unread: UnreadMemo,
    /// The most that any successor by a token needs to complete: with more tokens left than that,
    /// the limit changes no mask.
    farthest_successor: HashMap<GrammarState, u32>,
    /// Where not every text can be written: the bytes that can, if tokens consist of them.
    closed_bytes: Option<ByteSet>,
    /// Grammars with rules.
    grammars: Grammars,
    /// What is no longer remembered, but still held.
    forgotten: Forgotten,
    rests_scratch: RestsScratch,
    /// Ids of the last mask, for their room.
    ids_scratch: Vec<u32>,
    /// The last walk's, for its room.
    walk_table: Table,
}

impl TokenAutomaton {
    /// An automaton that begins with a base of the same vocabulary, if there is one.
    pub(crate) fn new(
        index: Arc<TokenizerIndex>,
        base: Option<Arc<Base>>,
        max_items: usize,
    ) -> Self {
        let lexicon = match &base {
            Some(base) => base.lexicon(),
            None => Lexicon::new(index.alphabets(), index.max_token_bytes()),
        };
        Self {
            machine: Machine::new(lexicon),
            writes_any_text: index.writes_any_text(),
            masks: base.as_ref().map(|base| base.masks()).unwrap_or_default(),
            token_distance: HashMap::new(),
            writable: Writable::default(),
            written_bytes: match index.writes_any_text() {
                true => ByteSet::FULL,
                false => index.written_bytes(),
            },
            greedy_distance: HashMap::new(),
            min_tokens: HashMap::new(),
            ways: Ways::default(),
            bytes_to_end: HashMap::new(),
            unread: UnreadMemo::default(),
            farthest_successor: HashMap::new(),
            closed_bytes: match index.writes_any_text() {
                true => None,
                false => index.closed_bytes(),
            },
            grammars: Grammars::new(
                max_items,
                base.as_ref()
                    .map(|base| base.languages())
                    .unwrap_or_default(),
            ),
            base,
            index,
            forgotten: Forgotten::default(),
            rests_scratch: RestsScratch::default(),
            ids_scratch: Vec::new(),
            walk_table: Table::default(),
        }
    }

    /// Makes room for states that take so many bytes, as far as it would take long to make it later.
    pub(crate) fn expect_state_bytes(&mut self, bytes: usize) {
        self.machine.lexicon.expect_bytes(bytes);
    }

    /// The bytes that grammars with rules are to keep to, so that what can be completed by bytes can
    /// be completed by tokens. `None` where all are good, or where no such bytes exist.
    pub(crate) fn closed_bytes(&self) -> Option<ByteSet> {
        self.closed_bytes
    }

    /// Whether the vocabulary can write every text.
    pub(crate) fn writes_any_text(&self) -> bool {
        self.writes_any_text
    }

    /// Whether completion of the parser's states has to be searched for token by token.
    fn parser_needs_search(&self) -> bool {
        !self.writes_any_text && self.closed_bytes.is_none()
    }

    /// The machine.
    pub(crate) fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Bytes of the states, the index apart.
    pub(crate) fn state_bytes(&self) -> usize {
        self.machine.memory_bytes() + self.grammars.parser.memory_bytes()
    }

    /// Bytes of what can be computed again.
    pub(crate) fn cache_bytes(&self) -> usize {
        let numbers = self.token_distance.capacity()
            + self.min_tokens.capacity()
            + self.bytes_to_end.capacity();
        self.masks.memory_bytes()
            + numbers * (size_of::<(State, u32)>() + 1)
            + self.greedy_distance.capacity() * (size_of::<(GrammarState, Option<u32>)>() + 1)
            + self.farthest_successor.capacity() * (size_of::<(GrammarState, u32)>() + 1)
            + self.ways.memory_bytes()
            + self.writable.memory_bytes()
            + self.unread.memory_bytes()
            + self.grammars.memo.memory_bytes()
    }

    /// Bytes of what was forgotten and is still held.
    pub(crate) fn forgotten_bytes(&self) -> usize {
        self.forgotten.memory_bytes()
    }

    /// Forgets what can be computed again, for the caller to drop. States stay valid.
    pub(crate) fn take_caches(&mut self) -> Forgotten {
        let mut forgotten = Forgotten::of_bytes(self.cache_bytes());
        let base = self.base.as_ref();
        let masks = base.map(|base| base.masks()).unwrap_or_default();
        std::mem::replace(&mut self.masks, masks).forget(&mut forgotten);
        let languages = base.map(|base| base.languages()).unwrap_or_default();
        std::mem::replace(&mut self.grammars.memo, Memo::with(languages)).forget(&mut forgotten);
        forgotten.add(std::mem::take(&mut self.token_distance));
        let (states, lexemes) = std::mem::take(&mut self.writable).into_maps();
        forgotten.add(states);
        forgotten.add(lexemes);
        forgotten.add(std::mem::take(&mut self.greedy_distance));
        forgotten.add(std::mem::take(&mut self.min_tokens));
        forgotten.add(std::mem::take(&mut self.bytes_to_end));
        forgotten.add(std::mem::take(&mut self.farthest_successor));
        forgotten.add(std::iter::once(std::mem::take(&mut self.ways)));
        std::mem::take(&mut self.unread).forget(&mut forgotten);
        forgotten
    }

    /// Holds what was forgotten, to drop it by and by; what was held before goes at once.
    pub(crate) fn drop_later(&mut self, forgotten: Forgotten) {
        self.forgotten = forgotten;
    }

    /// What is held of what was forgotten.
    pub(crate) fn take_forgotten(&mut self) -> Forgotten {
        std::mem::take(&mut self.forgotten)
    }

    /// Drops a little of what was forgotten, or as much as is needed so that it takes, with what can be
    /// computed again, no more than some bytes.
    pub(crate) fn drop_some_forgotten(&mut self, max_bytes: usize) {
        if !self.forgotten.is_empty() {
            let max_bytes = max_bytes.saturating_sub(self.cache_bytes());
            self.forgotten.drop_some(max_bytes);
        }
    }

    /// How many states there are.
    pub(crate) fn num_states(&self) -> usize {
        self.machine.lexicon.len() + self.grammars.parser.num_states()
    }

    /// How many expressions have been asked for, see [`Lexicon::num_asked`].
    pub(crate) fn num_asked(&self) -> u64 {
        self.machine.lexicon.num_asked()
    }

    /// Whether the text may end here.
    pub(crate) fn is_accepting(&mut self, state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        self.machine.is_accepting(state, fuel)
    }

    /// The state after a text token; `None` where the token isn't allowed.
    pub(crate) fn advance(
        &mut self,
        state: State,
        token_id: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<State>, Stop> {
        let next = self.advance_within(state, token_id, fuel)?;
        Ok(next.map(|(next, _)| next))
    }

    /// As [`TokenAutomaton::advance`]; and whether the token stays within the lexeme, at a place whose
    /// frame keeps no text: then what is left of the lexeme is the same wherever it stands.
    pub(super) fn advance_within(
        &mut self,
        state: State,
        token_id: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<(State, bool)>, Stop> {
        if !self.index.is_text_token(token_id) {
            return Ok(None);
        }
        let index = Arc::clone(&self.index);
        let mut next = state;
        let mut is_within = !state.has_text() && !self.machine.keeps_text(state);
        for &byte in index.info().token_bytes(token_id) {
            fuel.burn(1)?;
            if is_within {
                match self.machine.step_within(next.lexeme, byte, fuel)? {
                    Some(lexeme) => {
                        next.lexeme = lexeme;
                        continue;
                    }
                    None => is_within = false,
                }
            }
            match self.machine.step_once(next, byte, fuel)? {
                Some(after) => next = after,
                None => return Ok(None),
            }
        }
        let live = self.is_completable(next, fuel)?;
        Ok(live.then_some((next, is_within && self.writes_any_text)))
    }

    /// The bytes that must come next: from the state on, as long as the text can't end and there is
    /// only one byte to go on with; at most `max_bytes`.
    pub(crate) fn forced_bytes(
        &mut self,
        mut state: State,
        max_bytes: usize,
        fuel: &mut Fuel,
    ) -> Result<Vec<u8>, Stop> {
        let mut forced = Vec::new();
        while forced.len() < max_bytes && !self.is_accepting(state, fuel)? {
            fuel.burn(1)?;
            // Within a key each byte would make another text.
            if state.has_text() && self.machine.goes_on_in_ways(state, fuel)? {
                break;
            }
            match self.machine.next_bytes(state, fuel)?[..] {
                [(bytes, next)] if bytes.len() == 1 => {
                    forced.extend(bytes.iter());
                    state = next;
                }
                _ => break,
            }
        }
        Ok(forced)
    }
}
