//! Masks of the parser's states.
//!
//! A token may come next if one of a state's items allows it, alone: so a state's mask is the union
//! of its items' masks. An item allows what its lexeme allows by itself, and of the tokens that leave
//! the lexeme those whose rest its context allows.

use std::sync::Arc;

use super::TokenAutomaton;
use super::context_free::{DEAD_END, Steps, UNSEEN};
use crate::earley::{ContextId, Item, LanguageMask, Leave, Lexeme, Rests, StateId, walk_language};
use crate::index::Trie;
use crate::lexical::{ExprId, Fuel, OutOfFuel};
use crate::mask::{Mask, MaskRef};
use crate::pushdown::{self, EMPTY_STACK};

/// Rests of up to one in so many tokens get a trie of their own.
const FEW: usize = 32;

impl TokenAutomaton {
    /// The tokens that may come next, the vocabulary's stop tokens included where the text may end.
    pub(super) fn parser_mask(
        &mut self,
        state: StateId,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, OutOfFuel> {
        if let Some(known) = self.grammars.memo.by_state.get(&state) {
            return Ok(Arc::clone(known));
        }
        let mask = if !self.parser_needs_search() {
            let items = self.grammars.parser.items(state).to_vec();
            let mut words = vec![0_u32; self.index.text_tokens().len()];
            for item in items {
                self.add_item(item, &mut words, fuel)?;
            }
            self.interned(words)
        } else {
            self.parser_mask_where(state, fuel, |automaton, next, fuel| {
                automaton.is_parser_completable(next, fuel)
            })?
        };
        let memo = &mut self.grammars.memo;
        memo.by_state.insert(state, Arc::clone(&mask));
        Ok(mask)
    }

    /// The tokens after which at most `num_tokens - 1` more are enough to complete, stop token
    /// included.
    pub(super) fn parser_mask_within(
        &mut self,
        state: StateId,
        num_tokens: u32,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, OutOfFuel> {
        let left = num_tokens.saturating_sub(1);
        let farthest = self.grammars.memo.farthest_successor.get(&state);
        if farthest.is_some_and(|&farthest| farthest <= left) {
            return self.parser_mask(state, fuel);
        }
        let mut farthest = 0;
        let mask = self.parser_mask_where(state, fuel, |automaton, next, fuel| {
            if !automaton.is_parser_completable(next, fuel)? {
                return Ok(false);
            }
            let needs = automaton.parser_min_tokens(next, fuel)?;
            farthest = farthest.max(needs);
            Ok(needs <= left)
        })?;
        let memo = &mut self.grammars.memo;
        memo.farthest_successor.insert(state, farthest);
        Ok(mask)
    }

    /// The tokens that lead to states of which `keep` is true, which is asked once per state, and
    /// stop tokens.
    fn parser_mask_where(
        &mut self,
        state: StateId,
        fuel: &mut Fuel,
        mut keep: impl FnMut(&mut Self, StateId, &mut Fuel) -> Result<bool, OutOfFuel>,
    ) -> Result<Arc<Mask>, OutOfFuel> {
        let mut words = vec![0_u32; self.index.text_tokens().len()];
        for item in self.grammars.parser.items(state).to_vec() {
            if matches!(item.lexeme, Lexeme::End | Lexeme::Stop(_)) {
                self.add_item(item, &mut words, fuel)?;
            }
        }
        let mut verdicts: hashbrown::HashMap<StateId, bool> = hashbrown::HashMap::new();
        for (tokens, next) in self.parser_reached_by_tokens(state, fuel)? {
            let kept = match verdicts.get(&next) {
                Some(&kept) => kept,
                None => {
                    let kept = keep(self, next, fuel)?;
                    verdicts.insert(next, kept);
                    kept
                }
            };
            if kept {
                set_bits(&mut words, &tokens);
            }
        }
        Ok(self.interned(words))
    }

    /// All states that a token leads to, with such tokens.
    pub(super) fn parser_reached_by_tokens(
        &mut self,
        state: StateId,
        fuel: &mut Fuel,
    ) -> Result<Vec<(Vec<u32>, StateId)>, OutOfFuel> {
        let index = Arc::clone(&self.index);
        let mut reached: Vec<(Vec<u32>, StateId)> = Vec::new();
        self.walk_parser(index.byte_trie(), state, fuel, |tokens, next| {
            reached.push((tokens.to_vec(), next));
        })?;
        if !self.grammars.parser.has_tokens(state) {
            return Ok(reached);
        }
        // A token that is named here, and perhaps written as well: one by one.
        let mut named: Vec<u32> = Vec::new();
        for item in self.grammars.parser.items(state) {
            if let Lexeme::Token(set) = item.lexeme {
                named.extend(self.grammars.parser.token_set(set).token_ids());
            }
        }
        named.sort_unstable();
        named.dedup();
        for (tokens, _) in &mut reached {
            tokens.retain(|token| named.binary_search(token).is_err());
        }
        reached.retain(|(tokens, _)| !tokens.is_empty());
        for token in named {
            fuel.burn(1)?;
            let by_name = self.grammars.parser.step_token(state, token, fuel)?;
            let mut by_text = index.is_text_token(token).then_some(state);
            for &byte in index.info().token_bytes(token) {
                let Some(at) = by_text else { break };
                by_text = self.parser_step(at, byte, fuel)?;
            }
            let next = match (by_name, by_text) {
                (Some(a), Some(b)) => Some(self.grammars.parser.either(a, b, fuel)?),
                (a, b) => a.or(b),
            };
            reached.extend(next.map(|next| (vec![token], next)));
        }
        Ok(reached)
    }

    /// Adds what an item allows.
    fn add_item(
        &mut self,
        item: Item,
        words: &mut [u32],
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        match item.lexeme {
            Lexeme::End => set_bits(words, self.index.info().stop_token_ids()),
            Lexeme::Token(set) | Lexeme::Stop(set) => {
                let ids = self.grammars.parser.token_set(set).token_ids();
                set_bits(words, &ids);
            }
            Lexeme::Text(text) if text.stack == EMPTY_STACK => {
                let mask = self.language_item_mask(text.lexeme, item.context, fuel)?;
                mask.add_to(words);
            }
            Lexeme::Text(text) => {
                let mask = self.json_item_mask(text, item.context, fuel)?;
                mask.add_to(words);
            }
        }
        Ok(())
    }

    /// What a language and what follows it allow.
    fn language_item_mask(
        &mut self,
        language: ExprId,
        context: ContextId,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, OutOfFuel> {
        let language = self.machine.lexicon.saturated(language);
        let parser = &self.grammars.parser;
        if let Some(known) = parser.recall(&self.grammars.memo.by_context, language, context) {
            return Ok(known);
        }
        let mut words = vec![0_u32; self.index.text_tokens().len()];
        self.grammars.parser.start_recording();
        let added = self.add_language(language, context, &mut words, fuel);
        let reads = self.grammars.parser.stop_recording();
        added?;
        let mask = self.interned(words);
        let super::context_free::Grammars { parser, memo } = &mut self.grammars;
        let value = Arc::clone(&mask);
        parser.remember(&mut memo.by_context, language, context, &reads, value);
        Ok(mask)
    }

    fn add_language(
        &mut self,
        language: ExprId,
        context: ContextId,
        words: &mut [u32],
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        let index = Arc::clone(&self.index);
        let mut steps = Steps::default();
        for part in self.language_parts(language) {
            let alone = self.language_mask(part, fuel)?;
            alone.inside.add_to(words);
            let mut set = |tokens: &[u32], _: StateId| set_bits(words, tokens);
            match &alone.rests {
                Rests::Trie(rests) if rests.num_nodes() == 0 => {}
                Rests::Trie(rests) => {
                    let start = steps.number(self.grammars.parser.follow(context, fuel)?);
                    let all = 0..rests.num_nodes();
                    self.walk_subtree(rests, all, start, &mut steps, fuel, &mut set)?;
                }
                Rests::Places(places) => {
                    let start = steps.number(self.grammars.parser.follow(context, fuel)?);
                    let trie = index.byte_trie();
                    for place in places {
                        let token = trie.tokens()[trie.token_start(place.node) as usize];
                        let bytes = index.info().token_bytes(token);
                        let before = &bytes[place.depth as usize..place.at as usize];
                        let Some(state) = self.numbered_steps(&mut steps, start, before, fuel)?
                        else {
                            continue;
                        };
                        let nodes = place.node..trie.end(place.node);
                        self.walk_subtree(trie, nodes, state, &mut steps, fuel, &mut set)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Alternatives that fit a coarse alphabet, each alone, and all others together.
    fn language_parts(&mut self, language: ExprId) -> Vec<ExprId> {
        const MAX_PARTS: usize = 32;
        let finest = self.index.num_alphabets() - 1;
        let mut parts = Vec::new();
        let mut others = Vec::new();
        for expr in self.machine.lexicon.alternatives(language) {
            match self.coarsest_alphabet(expr) < finest && parts.len() < MAX_PARTS {
                true => parts.push(expr),
                false => others.push(expr),
            }
        }
        if !others.is_empty() {
            parts.push(self.machine.lexicon.or(&others));
        }
        parts
    }

    fn coarsest_alphabet(&self, language: ExprId) -> usize {
        let finest = self.index.num_alphabets() - 1;
        (0..finest)
            .find(|&alphabet| self.machine.lexicon.fits_alphabet(language, alphabet))
            .unwrap_or(finest)
    }

    /// The state after some bytes, by its number.
    fn numbered_steps(
        &mut self,
        steps: &mut Steps,
        start: u32,
        bytes: &[u8],
        fuel: &mut Fuel,
    ) -> Result<Option<u32>, OutOfFuel> {
        let mut state = start;
        for &byte in bytes {
            fuel.burn(1)?;
            state = match steps.known(state, byte) {
                UNSEEN => self.number_step(steps, state, byte, fuel)?,
                next => next,
            };
            if state == DEAD_END {
                return Ok(None);
            }
        }
        Ok(Some(state))
    }

    /// What a language allows by itself.
    fn language_mask(
        &mut self,
        language: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Arc<LanguageMask>, OutOfFuel> {
        if let Some(known) = self.grammars.memo.languages.get(&language) {
            return Ok(Arc::clone(known));
        }
        let index = Arc::clone(&self.index);
        let trie = index.trie(self.coarsest_alphabet(language));
        let mut words = vec![0_u32; index.text_tokens().len()];
        let mut leaves: Vec<Leave> = Vec::new();
        walk_language(
            &mut self.machine.lexicon,
            trie,
            language,
            fuel,
            |tokens| {
                set_bits(
                    &mut words,
                    &trie.tokens()[tokens.start as usize..tokens.end as usize],
                )
            },
            |leave| leaves.push(leave),
        )?;
        let tokens_at = |leave: &Leave| {
            let tokens = trie.token_start(leave.node)..trie.token_start(trie.end(leave.node));
            &trie.tokens()[tokens.start as usize..tokens.end as usize]
        };
        let num_rests: usize = leaves.iter().map(|leave| tokens_at(leave).len()).sum();
        let is_few = num_rests <= index.byte_trie().tokens().len() / FEW;
        let (rests, bytes) = if is_few {
            let mut rests: Vec<(u32, &[u8])> = Vec::with_capacity(num_rests);
            for leave in &leaves {
                for &token in tokens_at(leave) {
                    fuel.burn(1)?;
                    let bytes = index.info().token_bytes(token);
                    rests.push((token, &bytes[leave.depth as usize..]));
                }
            }
            let rests = Trie::of_bytes(&rests);
            let bytes = rests.memory_bytes();
            (Rests::Trie(rests), bytes)
        } else {
            // Places are those of the trie of bytes.
            let mut places: Vec<Leave> = Vec::new();
            let lexicon = &mut self.machine.lexicon;
            let bytes = index.byte_trie();
            walk_language(
                lexicon,
                bytes,
                language,
                fuel,
                |_| {},
                |leave| places.push(leave),
            )?;
            places.shrink_to_fit();
            let bytes = places.capacity() * size_of::<Leave>();
            (Rests::Places(places), bytes)
        };
        let memo = &mut self.grammars.memo;
        memo.language_bytes += bytes + size_of::<LanguageMask>();
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        let inside = memo.store.intern(Mask::from_words(words, count));
        let mask = Arc::new(LanguageMask { inside, rests });
        memo.languages.insert(language, Arc::clone(&mask));
        Ok(mask)
    }

    /// What JSON and what follows it allow: what the machine allows by itself, and of the tokens that
    /// go on after its end those that the context allows.
    fn json_item_mask(
        &mut self,
        text: pushdown::State,
        context: ContextId,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, OutOfFuel> {
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
        if self.masks.reads_bottom(lexeme, text, self.machine.stacks()) {
            let start = Item {
                lexeme: Lexeme::Text(text),
                context,
            };
            let start = self.grammars.parser.single(start, fuel)?;
            let others = self.outside(&inside);
            let index = Arc::clone(&self.index);
            let trie = others.as_deref().unwrap_or(index.byte_trie());
            let set = |tokens: &[u32], _: StateId| set_bits(&mut words, tokens);
            self.walk_parser(trie, start, fuel, set)?;
        }
        let mask = self.interned(words);
        let memo = &mut self.grammars.memo;
        memo.by_item.insert((text, context), Arc::clone(&mask));
        Ok(mask)
    }

    /// The text tokens that are not in a mask, where they are few.
    fn outside(&mut self, inside: &Arc<Mask>) -> Option<Arc<Trie>> {
        const MAX_OUTSIDE: usize = 16 << 10;
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
        if count > MAX_OUTSIDE {
            return None;
        }
        let ids = MaskRef::new(Arc::new(Mask::from_words(words, count))).token_ids();
        let info = Arc::clone(self.index.info());
        let tokens: Vec<(u32, &[u8])> = ids.iter().map(|&id| (id, info.token_bytes(id))).collect();
        let trie = Arc::new(Trie::of_bytes(&tokens));
        let memo = &mut self.grammars.memo;
        memo.language_bytes += trie.memory_bytes();
        // The mask is held, so that its address stays its own.
        memo.outside
            .insert(key, (Arc::clone(inside), Arc::clone(&trie)));
        Some(trie)
    }

    fn interned(&mut self, words: Vec<u32>) -> Arc<Mask> {
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        self.grammars
            .memo
            .store
            .intern(Mask::from_words(words, count))
    }
}

fn set_bits(words: &mut [u32], ids: &[u32]) {
    for &id in ids {
        words[id as usize / 32] |= 1 << (id % 32);
    }
}
