//! Masks of the parser's states.
//!
//! A token may come next if one of a state's items allows it, alone: so a state's mask is the union
//! of its items' masks. An item allows what its lexeme allows by itself, and of the tokens that leave
//! the lexeme those whose rest its context allows.

use std::sync::Arc;

use super::{GrammarState, TokenAutomaton};
use crate::earley::{ContextId, Item, Lexeme, StateId, TokenRuns, TokenUnion};
use crate::index::Trie;
use crate::lexical::{Fuel, Stop};
use crate::mask::{Mask, set_bits};
use crate::pushdown::{self, EMPTY_STACK, NO_KEY};

/// So many tokens outside a mask are worth a trie of their own.
const FEW_OUTSIDE: usize = 16 << 10;

/// Fewer steps than these are always taken with items by themselves.
const MIN_STEPS_BY_ITEM: u64 = 8 << 10;

/// So often the number of steps after which that ends is halved.
const MAX_HALVED: u32 = 5;

/// Whether an item is within JSON.
fn is_json(item: &Item) -> bool {
    let text = item.lexeme.text();
    text.is_some_and(|text| text.stack != EMPTY_STACK)
}

impl TokenAutomaton {
    /// The tokens that may come next, the vocabulary's stop tokens included where the text may end.
    pub(super) fn parser_mask(
        &mut self,
        state: StateId,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, Stop> {
        if let Some(known) = self.grammars.memo.by_state.get(&state) {
            return Ok(Arc::clone(known));
        }
        let mask = if !self.parser_needs_search() {
            let words = self.mask_of_items(state, self.steps_by_item(state), fuel)?;
            self.interned(words)
        } else {
            self.completable_tokens(GrammarState::Parser(state), fuel)?
        };
        let memo = &mut self.grammars.memo;
        memo.by_state.insert(state, Arc::clone(&mask));
        Ok(mask)
    }

    /// What a state's items allow, as bits: each by itself, or where those that are no JSON take more steps than
    /// they may, these by a walk of all tokens.
    pub(super) fn mask_of_items(
        &mut self,
        state: StateId,
        steps_by_item: u64,
        fuel: &mut Fuel,
    ) -> Result<Vec<u32>, Stop> {
        let items = self.grammars.parser.items(state).to_vec();
        let mut union = TokenUnion::new(self.index.text_tokens().len());
        for item in &items {
            self.learn_runs(item, fuel)?;
        }
        // JSON is never walked token by token for want of steps: that would take more.
        let (json, texts): (Vec<Item>, Vec<Item>) = items.into_iter().partition(is_json);
        let has_json = !json.is_empty();
        for item in json {
            self.add_item(item, &mut union, fuel)?;
        }
        let of_json = (has_json && !texts.is_empty()).then(|| union.words().to_vec());
        let before = fuel.left();
        let found = fuel.within(steps_by_item, |part| {
            let mut items = texts.iter();
            items.try_for_each(|&item| self.add_item(item, &mut union, part))
        })?;
        let taken = before - fuel.left();
        let grammar = self.grammars.parser.grammar_of(state);
        let num_halved = self.grammars.memo.num_halved.entry(grammar).or_default();
        match found {
            Some(()) if taken < MIN_STEPS_BY_ITEM => {}
            Some(()) => *num_halved = num_halved.saturating_sub(1),
            None => *num_halved = (*num_halved + 1).min(MAX_HALVED),
        }
        if found.is_none() {
            let texts = match has_json {
                true => self.grammars.parser.state_of(texts, fuel)?,
                false => Some(state),
            };
            self.walk_state(texts.unwrap_or(state), union.words(), fuel)?;
            for (word, of_json) in union.words().iter_mut().zip(of_json.iter().flatten()) {
                *word |= of_json;
            }
        }
        Ok(union.into_words())
    }

    /// After so many steps with items by themselves all tokens are walked at once. Where a byte takes the
    /// parser about a step, that takes one for each node of their trie, so both together take at most twice
    /// what is needed; in a grammar that is ambiguous at each byte it may take far more than either bound.
    /// Where the same grammar needed that before it is tried sooner.
    fn steps_by_item(&self, state: StateId) -> u64 {
        let grammar = self.grammars.parser.grammar_of(state);
        let num_halved = self.grammars.memo.num_halved.get(&grammar).copied();
        // Some two nodes for each token.
        let num_nodes = 2 * self.index.num_text_tokens() as u64;
        (num_nodes >> num_halved.unwrap_or(0)).max(MIN_STEPS_BY_ITEM)
    }

    /// Finds what a state allows by a walk of all tokens, where they go on in too many ways for a look
    /// at each item by itself.
    pub(super) fn walk_state(
        &mut self,
        state: StateId,
        words: &mut [u32],
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        words.fill(0);
        for item in self.grammars.parser.items(state).to_vec() {
            self.add_without_text(item, words, fuel)?;
        }
        self.walk_all_tokens(state, words, fuel)
    }

    /// Adds the tokens with which the text ends.
    pub(super) fn add_parser_ends(
        &mut self,
        state: StateId,
        words: &mut [u32],
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        for item in self.grammars.parser.items(state).to_vec() {
            if matches!(item.lexeme, Lexeme::End | Lexeme::Stop(_)) {
                self.add_without_text(item, words, fuel)?;
            }
        }
        Ok(())
    }

    /// The tokens that a state names, ascending.
    pub(super) fn named_tokens(&self, state: StateId) -> Vec<u32> {
        if !self.grammars.parser.has_tokens(state) {
            return Vec::new();
        }
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for item in self.grammars.parser.items(state) {
            if let Lexeme::Token(set) = item.lexeme {
                runs.extend_from_slice(self.grammars.parser.token_set(set).runs());
            }
        }
        let runs = TokenRuns::new(runs);
        let ids = runs.runs().iter();
        ids.flat_map(|&(first, last)| first..=last).collect()
    }

    /// Adds what an item allows.
    fn add_item(
        &mut self,
        item: Item,
        union: &mut TokenUnion,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        match item.lexeme.uncounted() {
            Lexeme::Text(text) if text.stack == EMPTY_STACK => {
                self.add_language_item(text.lexeme, item.context, union, fuel)
            }
            Lexeme::Text(text) => {
                let mask = self.json_item_mask(text, item.context, fuel)?;
                mask.add_to(union.words());
                Ok(())
            }
            Lexeme::End => {
                union.add_ids(self.index.info().stop_token_ids());
                Ok(())
            }
            _ => self.add_without_text(item, union.words(), fuel),
        }
    }

    /// The same for an item that is no text.
    fn add_without_text(
        &mut self,
        item: Item,
        words: &mut [u32],
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        match item.lexeme {
            Lexeme::End => set_bits(words, self.index.info().stop_token_ids()),
            Lexeme::Token(set) | Lexeme::Stop(set) => {
                let tokens = self.grammars.parser.token_set(set);
                fuel.burn(tokens.num_steps())?;
                tokens.add_to(words);
            }
            // What is counted is text, too.
            Lexeme::Text(_) | Lexeme::Counted(..) => {}
        }
        Ok(())
    }

    /// What JSON and what follows it allow: what the machine allows by itself, and of the tokens that
    /// go on after its end those that the context allows.
    fn json_item_mask(
        &mut self,
        text: pushdown::State,
        context: ContextId,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, Stop> {
        if let Some(known) = self.grammars.memo.by_item.get(&(text, context)) {
            return Ok(Arc::clone(known));
        }
        let inside = self.mask(text, fuel)?;
        let mut words = vec![0_u32; self.index.text_tokens().len()];
        inside.add_to(&mut words);
        // What the machine takes for the end of the whole text is the end of the value.
        for &stop in self.index.info().stop_token_ids() {
            words[stop as usize / 32] &= !(1 << (stop % 32));
        }
        // Can a token reach the end of the value, and go on?
        let lexeme = self.machine.lexicon.saturated(text.lexeme);
        let reads_bottom = self.masks.reads_bottom(lexeme, text, self.machine.stacks());
        if reads_bottom || self.may_end_early(text, fuel)? {
            match self.rests_beyond(text, fuel)? {
                Some(rests) => {
                    let mut union = TokenUnion::of_words(words);
                    for item in self.grammars.parser.first_items(context, fuel)? {
                        let item = item.uncounted();
                        if self.may_exit(&rests, item, fuel)? {
                            self.add_language_exits(&rests, item, &mut union, fuel)?;
                        }
                    }
                    words = union.into_words();
                }
                None => {
                    let others = self.outside(&inside);
                    let index = Arc::clone(&self.index);
                    let trie = others.as_deref().unwrap_or(index.byte_trie());
                    let tokens = self.tokens_beyond(trie, text, context, fuel)?;
                    set_bits(&mut words, &tokens);
                }
            }
        }
        let mask = self.interned(words);
        let memo = &mut self.grammars.memo;
        memo.by_item.insert((text, context), Arc::clone(&mask));
        Ok(mask)
    }

    /// The tokens of a trie that JSON and what follows it allow.
    fn tokens_beyond(
        &mut self,
        trie: &Trie,
        text: pushdown::State,
        context: ContextId,
        fuel: &mut Fuel,
    ) -> Result<Vec<u32>, Stop> {
        let item = |text| Item {
            lexeme: Lexeme::Text(text),
            context,
        };
        let start = self.grammars.parser.single(item(text), fuel)?;
        let mut tokens = Vec::new();
        if text.item == NO_KEY && self.has_long_text(text) {
            // What can't follow all keys can't follow this one; few tokens are left to be looked at.
            let unread = self
                .grammars
                .parser
                .single(item(text.without_text()), fuel)?;
            self.walk_parser(trie, unread, fuel, |found| tokens.extend_from_slice(found))?;
            let mut allowed = Vec::with_capacity(tokens.len());
            for token in tokens {
                if self.parser_advance(start, token, fuel)?.is_some() {
                    allowed.push(token);
                }
            }
            return Ok(allowed);
        }
        self.walk_parser(trie, start, fuel, |found| tokens.extend_from_slice(found))?;
        Ok(tokens)
    }

    /// The text tokens that are not in a mask, where they are few.
    fn outside(&mut self, inside: &Arc<Mask>) -> Option<Arc<Trie>> {
        let key = Arc::as_ptr(inside) as usize;
        if let Some((_, known)) = self.grammars.memo.outside.get(&key) {
            return Some(Arc::clone(known));
        }
        let mut words = self.index.text_tokens().to_vec();
        let mut taken = vec![0_u32; words.len()];
        inside.add_to(&mut taken);
        for (word, taken) in words.iter_mut().zip(taken) {
            *word &= !taken;
        }
        let count: usize = words.iter().map(|word| word.count_ones() as usize).sum();
        if count > FEW_OUTSIDE {
            return None;
        }
        // In the order of their bytes, so that nothing has to be sorted.
        let index = Arc::clone(&self.index);
        let is_outside = |id: u32| words[id as usize / 32] >> (id % 32) & 1 == 1;
        let ids = index.byte_trie().tokens().iter().copied();
        let tokens = ids.filter(|&id| is_outside(id));
        let tokens = tokens.map(|id| (id, index.info().token_bytes(id)));
        let trie = Arc::new(Trie::of_bytes(tokens));
        let memo = &mut self.grammars.memo;
        memo.bytes += trie.memory_bytes();
        // The mask is held, so that its address stays its own.
        memo.outside
            .insert(key, (Arc::clone(inside), Arc::clone(&trie)));
        Some(trie)
    }

    pub(super) fn interned(&mut self, words: Vec<u32>) -> Arc<Mask> {
        self.grammars.memo.store.intern_words(words)
    }
}
