//! Masks of items whose lexeme is a language: what it allows by itself, and of the tokens that leave
//! it those whose rest its context allows.

use std::sync::Arc;

use super::TokenAutomaton;
use super::context_free::{DEAD_END, Steps, UNSEEN};
use super::context_free_mask::set_bits;
use crate::earley::{ContextId, LanguageMask, Leave, Rests, StateId, walk_language};
use crate::index::Trie;
use crate::lexical::{ExprId, Fuel, OutOfFuel};
use crate::mask::Mask;

/// Rests of up to one in so many tokens get a trie of their own.
const FEW: usize = 32;

impl TokenAutomaton {
    /// What a language and what follows it allow.
    pub(super) fn language_item_mask(
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
}
