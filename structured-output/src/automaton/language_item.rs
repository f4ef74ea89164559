//! Masks of items whose lexeme is a language: what it allows by itself, and of the tokens that leave
//! it those whose rest its context allows.

use std::sync::Arc;

use super::TokenAutomaton;
use super::context_free::{DEAD_END, Steps};
use crate::earley::{ContextId, LanguageMask, Leave, Rests, StateId, walk_language};
use crate::index::{ROOT, Trie};
use crate::lexical::{ExprId, Fuel, OutOfFuel};
use crate::mask::walk::Labelled;
use crate::mask::{Mask, set_bits};

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
        let mut steps = Steps::default();
        for part in self.language_parts(language, fuel)? {
            let alone = self.language_mask(part, fuel)?;
            alone.inside.add_to(words);
            match &alone.rests {
                Rests::Trie(rests) if rests.is_empty() => {}
                Rests::Trie(rests) => {
                    let start = steps.number(self.grammars.parser.follow(context, fuel)?);
                    let set = |tokens: &[u32], _: StateId| set_bits(words, tokens);
                    self.walk_below(rests, ROOT, start, &mut steps, fuel, set)?;
                }
                Rests::Places(places) => {
                    let start = steps.number(self.grammars.parser.follow(context, fuel)?);
                    for place in places {
                        self.add_place(place, start, &mut steps, words, fuel)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the tokens at and below a place of the trie of bytes whose rests a state allows.
    fn add_place(
        &mut self,
        place: &Leave,
        start: u32,
        steps: &mut Steps,
        words: &mut [u32],
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let Some(&token) = trie.ids(trie.below(place.node)).first() else {
            return Ok(());
        };
        let mut state = start;
        let bytes = index.info().token_bytes(token);
        for &byte in &bytes[place.depth as usize..=place.at as usize] {
            fuel.burn(1)?;
            state = self.numbered_step(steps, state, byte, fuel)?;
            if state == DEAD_END {
                return Ok(());
            }
        }
        set_bits(words, trie.ids(trie.own(place.node)));
        let set = |tokens: &[u32], _: StateId| set_bits(words, tokens);
        self.walk_below(trie, place.node, state, steps, fuel, set)
    }

    /// Alternatives that many bytes begin, each alone, and all others together.
    fn language_parts(
        &mut self,
        language: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Vec<ExprId>, OutOfFuel> {
        const MAX_PARTS: usize = 32;
        let mut parts = Vec::new();
        let mut others = Vec::new();
        for expr in self.machine.lexicon.alternatives(language) {
            match parts.len() < MAX_PARTS && self.has_many_bytes(expr, fuel)? {
                true => parts.push(expr),
                false => others.push(expr),
            }
        }
        if !others.is_empty() {
            parts.push(self.machine.lexicon.or(&others));
        }
        Ok(parts)
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
        let mut found = None;
        if self.has_many_bytes(language, fuel)? {
            for (alphabet, coarse) in index.coarse().iter().enumerate() {
                let coarse = Labelled {
                    trie: coarse.trie(),
                    alphabet: Some((alphabet, coarse.representatives())),
                };
                let lexicon = &mut self.machine.lexicon;
                if let Some(plain) = walk_language(lexicon, coarse, language, fuel)? {
                    let escapes = Labelled::of_bytes(index.escape_trie());
                    let escaped = walk_language(lexicon, escapes, language, fuel)?;
                    found = Some(vec![(coarse.trie, Some(plain)), (escapes.trie, escaped)]);
                    break;
                }
            }
        }
        let walks = match found {
            Some(walks) => walks,
            None => {
                let bytes = Labelled::of_bytes(index.byte_trie());
                let walked = walk_language(&mut self.machine.lexicon, bytes, language, fuel)?;
                vec![(bytes.trie, walked)]
            }
        };
        let mut words = vec![0_u32; index.text_tokens().len()];
        let mut num_rests = 0;
        for (trie, walked) in &walks {
            if let Some(found) = walked {
                for tokens in &found.inside {
                    set_bits(&mut words, trie.ids(tokens.clone()));
                }
                let rests = found
                    .leaves
                    .iter()
                    .map(|leave| trie.below(leave.node).len());
                num_rests += rests.sum::<usize>();
            }
        }
        let (rests, bytes) = if num_rests <= index.byte_trie().tokens().len() / FEW {
            let mut rests: Vec<(u32, &[u8])> = Vec::with_capacity(num_rests);
            for (trie, walked) in &walks {
                for leave in walked.iter().flat_map(|found| &found.leaves) {
                    for &token in trie.ids(trie.below(leave.node)) {
                        fuel.burn(1)?;
                        let bytes = index.info().token_bytes(token);
                        rests.push((token, &bytes[leave.depth as usize..]));
                    }
                }
            }
            let rests = Trie::of_bytes(rests.into_iter());
            let bytes = rests.memory_bytes();
            (Rests::Trie(rests), bytes)
        } else {
            let bytes = Labelled::of_bytes(index.byte_trie());
            let walked = walk_language(&mut self.machine.lexicon, bytes, language, fuel)?;
            let places = walked.map_or(Vec::new(), |found| found.leaves);
            let bytes = places.capacity() * size_of::<Leave>();
            (Rests::Places(places), bytes)
        };
        let memo = &mut self.grammars.memo;
        memo.language_bytes += bytes + size_of::<LanguageMask>();
        let inside = memo.store.intern_words(words);
        let mask = Arc::new(LanguageMask { inside, rests });
        memo.languages.insert(language, Arc::clone(&mask));
        Ok(mask)
    }
}
