//! Masks of items whose lexeme is a language: what it allows by itself, and of the tokens that leave
//! it those whose rest its context allows.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashSet;

use super::TokenAutomaton;
use super::context_free::Grammars;
use super::language_facts::Beside;
use crate::earley::{
    ContextId, End, FreeTextWalked, Item, LanguageMask, Lexeme, Places, Rests, TokenUnion, Tokens,
    Walked, Walks, walk_free_text, walk_language,
};
use crate::index::{ROOT, Trie};
use crate::lexical::{ByteSet, ExprId, FreeText, Fuel, Stop};
use crate::mask::beside::resting_state;
use crate::mask::walk::Labelled;
use crate::mask::{clear_bits, set_bits};
use crate::pushdown::EMPTY_STACK;

/// Where tokens begin.
const START: End = End {
    node: ROOT,
    depth: 0,
};

/// Rests of up to one in so many tokens get a trie of their own.
const FEW: usize = 32;

/// So many alternatives of a language that many bytes begin are kept apart.
const MOST_PARTS: usize = 32;

impl TokenAutomaton {
    /// Adds what a language and what follows it allow.
    pub(super) fn add_language_item(
        &mut self,
        language: ExprId,
        context: ContextId,
        union: &mut TokenUnion,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let language = self.machine.lexicon.saturated(language);
        for &part in &*self.language_parts(language, fuel)? {
            if let Some(tokens) = self.bounded_item(part, context, fuel)? {
                union.add(&tokens);
                continue;
            }
            match self.beside(START, part, fuel)? {
                Some(beside) if beside.has_large_ends => {
                    let rest = self.item_mask(beside.rest, None, context, fuel)?;
                    let unset = union.unset_of(&beside.apart);
                    union.add(&rest);
                    union.remove(&unset);
                    let mask = Some(&beside.mask);
                    union.add(&*self.item_mask(part, mask, context, fuel)?);
                    continue;
                }
                Some(_) => {}
                None => {
                    let alone = self.language_mask(START, part, fuel)?;
                    if alone.tagged.is_empty() && alone.rests.are_few() {
                        self.add_language(alone, context, union, fuel)?;
                        continue;
                    }
                }
            }
            union.add(&*self.item_mask(part, None, context, fuel)?);
        }
        Ok(())
    }

    /// Makes known what a language allows by itself, where tokens begin and, where it may follow others,
    /// after each byte but letters and digits that many tokens begin with.
    pub(super) fn learn_language(
        &mut self,
        language: ExprId,
        may_follow: bool,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let mut places = vec![START];
        if may_follow {
            let ends = trie.children(ROOT).filter(|&node| {
                let byte = trie.label(node);
                let ends_others = byte.is_ascii() && !byte.is_ascii_alphanumeric();
                ends_others && trie.below(node).len() >= End::MANY as usize
            });
            places.extend(ends.map(|node| End { node, depth: 1 }));
        }
        for &part in &*self.language_parts(language, fuel)? {
            for &at in &places {
                let beside = self.beside(at, part, fuel)?;
                let rest = beside.map_or(part, |beside| beside.rest);
                self.language_mask(at, rest, fuel)?;
            }
            // And by which characters it goes on: walks ask for that.
            self.machine.lexicon.learn_lasting(part, fuel)?;
        }
        Ok(())
    }

    /// What a language allows together with what follows it; with `alone`, what that allows, which is
    /// known by the language.
    fn item_mask(
        &mut self,
        language: ExprId,
        alone: Option<&Arc<LanguageMask>>,
        context: ContextId,
        fuel: &mut Fuel,
    ) -> Result<Arc<Tokens>, Stop> {
        let key = (language, alone.is_some());
        let Grammars { parser, memo } = &mut self.grammars;
        if let Some(known) = parser.recall(&memo.by_context, key, context) {
            return Ok(known);
        }
        let mut union = TokenUnion::new(self.index.text_tokens().len());
        let interrupted = self.grammars.parser.start_recording();
        let alone = match alone {
            Some(alone) => Ok(Arc::clone(alone)),
            None => self.language_beside(START, language, context, &mut union, fuel),
        };
        let added = alone.and_then(|alone| self.add_language(alone, context, &mut union, fuel));
        let reads = self.grammars.parser.stop_recording(interrupted);
        added?;
        let tokens = Arc::new(union.finish());
        let Grammars { parser, memo } = &mut self.grammars;
        memo.bytes += tokens.memory_bytes();
        let value = Arc::clone(&tokens);
        parser.remember(&mut memo.by_context, key, context, &reads, value);
        Ok(tokens)
    }

    /// What a language allows of the tokens below a node, where it differs from the one that it most
    /// likely comes to, such as a name that is no keyword from any name. `None` where it has none, or
    /// differs too much.
    fn beside(
        &mut self,
        at: End,
        language: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<Beside>>, Stop> {
        if let Some(known) = self.grammars.memo.languages.beside(at, language) {
            return Ok(known);
        }
        let index = Arc::clone(&self.index);
        let mut found = None;
        if let Some(place) = self.machine.lexicon.as_free_text(language) {
            let found = self.free_text_beside(at, place, fuel)?;
            let languages = &mut self.grammars.memo.languages;
            return Ok(languages.insert_beside(at, language, found));
        }
        if self.has_many_bytes(language, fuel)?
            && let Some(rest) = resting_state(&mut self.machine.lexicon, language, fuel)?
        {
            let bytes = Labelled::of_bytes(index.byte_trie());
            let walked = self.walk_bytes(bytes, at, language, Some(rest), fuel)?;
            let mut walked = walked.unwrap_or_default();
            let apart = std::mem::take(&mut walked.apart);
            let num_apart: usize = apart.iter().map(Range::len).sum();
            if num_apart <= index.byte_trie().tokens().len() / FEW {
                let mask = Arc::new(self.language_mask_of(walked));
                let of_rest = self.language_mask(at, rest, fuel)?;
                let trie = index.byte_trie();
                let ids = apart.iter().flat_map(|tokens| trie.ids(tokens.clone()));
                found = Some(Beside {
                    rest,
                    apart: ids.copied().collect(),
                    mask,
                    has_large_ends: !of_rest.rests.large().is_empty(),
                });
            }
        }
        let languages = &mut self.grammars.memo.languages;
        Ok(languages.insert_beside(at, language, found))
    }

    /// The same of free text in which words have begun, beside the same where none has.
    fn free_text_beside(
        &mut self,
        at: End,
        place: FreeText,
        fuel: &mut Fuel,
    ) -> Result<Option<Beside>, Stop> {
        let without = place.without_words();
        if place == without || !place.is_before_words() {
            return Ok(None);
        }
        let index = Arc::clone(&self.index);
        let lexicon = &mut self.machine.lexicon;
        let rest = lexicon.free_text(without);
        let trie = index.byte_trie();
        let mut walked = walk_free_text(lexicon, trie, at, place, Some(without), fuel)?;
        let apart = std::mem::take(&mut walked.text.apart);
        let ids = apart.into_iter().flat_map(|tokens| trie.ids(tokens));
        let apart = ids.copied().collect();
        let of_rest = self.language_mask(at, rest, fuel)?;
        Ok(Some(Beside {
            rest,
            apart,
            mask: Arc::new(self.mask_of_free_text(walked)),
            // What words end is put together like those.
            has_large_ends: place.is_for_tags() || !of_rest.rests.large().is_empty(),
        }))
    }

    /// What a walk of free text found.
    fn mask_of_free_text(&mut self, walked: FreeTextWalked) -> LanguageMask {
        let tagged = walked.tagged.into_iter();
        let tagged = tagged.map(|(tag, walked)| (tag, Arc::new(self.language_mask_of(walked))));
        let tagged = tagged.collect();
        LanguageMask {
            tagged,
            ..self.language_mask_of(walked.text)
        }
    }

    /// Adds what a language and what follows it allow, item by item: the same items follow in many
    /// places. Where many tokens leave a language at one place, such as after a space, each lexeme
    /// that may follow is a language of its own there, which is known by itself, too.
    fn add_language(
        &mut self,
        alone: Arc<LanguageMask>,
        context: ContextId,
        union: &mut TokenUnion,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let index = Arc::clone(&self.index);
        let mut pending = vec![(alone, context)];
        let mut seen: HashSet<(End, Item)> = HashSet::new();
        while let Some((alone, context)) = pending.pop() {
            union.add(&alone.inside);
            for (tag, alone) in &alone.tagged {
                fuel.burn(1)?;
                for after in self.grammars.parser.after_tag(context, *tag, fuel)? {
                    pending.push((Arc::clone(alone), after));
                }
            }
            let large = alone.rests.large();
            if large.is_empty() && !alone.rests.may_begin_with(&ByteSet::FULL) {
                continue;
            }
            for item in self.grammars.parser.first_items(context, fuel)? {
                // A token that comes here begins in what is counted, or before it.
                let item = item.uncounted();
                let Lexeme::Text(text) = item.lexeme else {
                    continue;
                };
                if self.may_exit(&alone, item, fuel)? {
                    self.add_language_exits(&alone, item, union, fuel)?;
                }
                let is_language = text.stack == EMPTY_STACK;
                for &end in large {
                    if !seen.insert((end, item)) {
                        continue;
                    }
                    if is_language {
                        let language = self.machine.lexicon.saturated(text.lexeme);
                        for &part in &*self.language_parts(language, fuel)? {
                            let alone =
                                self.language_beside(end, part, item.context, union, fuel)?;
                            pending.push((alone, item.context));
                        }
                        continue;
                    }
                    let start = self.grammars.parser.single(item, fuel)?;
                    let start = self.number(start, fuel)?;
                    let set = |tokens: &[u32]| union.add_ids(tokens);
                    self.walk_below(index.byte_trie(), end.node, start, fuel, set)?;
                }
            }
        }
        Ok(())
    }

    /// What a language allows by itself of the tokens below a node. Where it has almost all in common
    /// with another one, that is added here with what follows it in a context, and the rest is
    /// returned.
    fn language_beside(
        &mut self,
        at: End,
        language: ExprId,
        context: ContextId,
        union: &mut TokenUnion,
        fuel: &mut Fuel,
    ) -> Result<Arc<LanguageMask>, Stop> {
        let Some(beside) = self.beside(at, language, fuel)? else {
            return self.language_mask(at, language, fuel);
        };
        if beside.has_large_ends {
            return self.language_mask(at, language, fuel);
        }
        let rest = self.language_mask(at, beside.rest, fuel)?;
        // What both allow is the other's, but for the tokens for which they differ.
        let unset = union.unset_of(&beside.apart);
        union.add(&rest.inside);
        for follower in self.grammars.parser.first_items(context, fuel)? {
            let follower = follower.uncounted();
            if self.may_exit(&rest, follower, fuel)? {
                self.add_language_exits(&rest, follower, union, fuel)?;
            }
        }
        union.remove(&unset);
        Ok(Arc::clone(&beside.mask))
    }

    /// Whether tokens that leave a language may begin an item that follows it.
    pub(super) fn may_exit(
        &mut self,
        alone: &LanguageMask,
        item: Item,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        fuel.burn(1)?;
        let Some(text) = item.lexeme.text() else {
            return Ok(false);
        };
        let firsts = match text.stack == EMPTY_STACK {
            true => {
                let (parser, machine) = self.parser();
                parser.language_first_bytes(machine, text.lexeme, fuel)?
            }
            false => ByteSet::FULL,
        };
        Ok(alone.rests.may_begin_with(&firsts))
    }

    /// Alternatives that many bytes begin, each alone, and all others together.
    pub(super) fn language_parts(
        &mut self,
        language: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Arc<[ExprId]>, Stop> {
        if let Some(known) = self.grammars.memo.languages.parts(language) {
            return Ok(known);
        }
        let mut parts = Vec::new();
        let mut others = Vec::new();
        let alternatives = self.machine.lexicon.alternatives(language);
        let is_union = alternatives.len() > 1;
        for expr in alternatives {
            let is_apart = parts.len() < MOST_PARTS
                && (self.has_many_bytes(expr, fuel)?
                    || is_union && self.is_known_number(expr, fuel)?);
            match is_apart {
                true => parts.push(expr),
                false => others.push(expr),
            }
        }
        if !others.is_empty() {
            parts.push(self.machine.lexicon.or(&others));
        }
        let languages = &mut self.grammars.memo.languages;
        Ok(languages.insert_parts(language, parts))
    }

    /// Whether it is known what a language allows by itself that begins with any digit, or more bytes.
    fn is_known_number(&mut self, language: ExprId, fuel: &mut Fuel) -> Result<bool, Stop> {
        if self.grammars.memo.languages.mask(START, language).is_none() {
            return Ok(false);
        }
        let (parser, machine) = self.parser();
        let firsts = parser.language_first_bytes(machine, language, fuel)?;
        let digits = ByteSet::range(b'0', b'9');
        Ok(firsts.intersection(&digits) == digits)
    }

    /// What a language allows by itself, of the tokens below a node of the trie of bytes.
    fn language_mask(
        &mut self,
        at: End,
        language: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Arc<LanguageMask>, Stop> {
        if let Some(known) = self.grammars.memo.languages.mask(at, language) {
            return Ok(known);
        }
        if let Some(place) = self.machine.lexicon.as_free_text(language) {
            let lexicon = &mut self.machine.lexicon;
            let plain = lexicon.free_text(place.or_nothing());
            if let Some(known) = self.grammars.memo.languages.mask(at, plain) {
                return Ok(known);
            }
            let trie = self.index.byte_trie();
            let walked = walk_free_text(lexicon, trie, at, place, None, fuel)?;
            let mask = self.mask_of_free_text(walked);
            let languages = &mut self.grammars.memo.languages;
            return Ok(languages.insert_mask(at, plain, mask));
        }
        let coarse = match at == START && self.may_have_few_rests(language, fuel)? {
            true => self.coarse_language(language, fuel)?,
            false => None,
        };
        let mask = match coarse {
            Some(mask) => mask,
            None => self.fine_language(at, language, fuel)?,
        };
        let languages = &mut self.grammars.memo.languages;
        Ok(languages.insert_mask(at, language, mask))
    }

    /// Whether a language begins with many bytes, and doesn't end wherever it may go on: what does,
    /// such as that of names, most tokens leave.
    fn may_have_few_rests(&mut self, language: ExprId, fuel: &mut Fuel) -> Result<bool, Stop> {
        if !self.has_many_bytes(language, fuel)? {
            return Ok(false);
        }
        let rest = resting_state(&mut self.machine.lexicon, language, fuel)?;
        let rest = rest.unwrap_or(language);
        Ok(!self.machine.lexicon.is_nullable(rest))
    }

    /// By a coarse trie and that of the tokens that it leaves out; `None` where no alphabet fits, or
    /// where many tokens leave the language.
    fn coarse_language(
        &mut self,
        language: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Option<LanguageMask>, Stop> {
        let index = Arc::clone(&self.index);
        // A walk that fails may have seen much of its trie before.
        let fits = self.machine.lexicon.fitting_alphabets(language, fuel)?;
        for coarse in Labelled::of_coarse(&index).filter(|coarse| coarse.is_among(fits)) {
            let lexicon = &mut self.machine.lexicon;
            let mut own = Walks::default();
            let walked = walk_language(lexicon, &mut own, coarse, START, language, None, fuel)?;
            let Some(plain) = walked else {
                continue;
            };
            let escapes = Labelled::of_bytes(index.escape_trie());
            let escaped = self.walk_bytes(escapes, START, language, None, fuel)?;
            let walks = [
                (coarse.trie, plain),
                (escapes.trie, escaped.unwrap_or_default()),
            ];
            let num_rests = |(trie, walked): &(&Trie, Walked)| -> usize {
                let leaves = walked.leaves.iter();
                leaves.map(|leave| trie.below(leave.node).len()).sum()
            };
            let is_large = walks.iter().any(|(_, walked)| !walked.large.is_empty());
            let num_rests: usize = walks.iter().map(num_rests).sum();
            if is_large || num_rests > index.byte_trie().tokens().len() / FEW {
                return Ok(None);
            }
            let mut words = vec![0_u32; index.text_tokens().len()];
            let mut rests: Vec<(u32, &[u8])> = Vec::with_capacity(num_rests);
            for (trie, walked) in &walks {
                for tokens in &walked.inside {
                    set_bits(&mut words, trie.ids(tokens.clone()));
                }
                for leave in &walked.leaves {
                    for &token in trie.ids(trie.below(leave.node)) {
                        fuel.burn(1)?;
                        let bytes = index.info().token_bytes(token);
                        rests.push((token, &bytes[leave.depth as usize..]));
                    }
                }
            }
            return Ok(Some(LanguageMask {
                tagged: Box::default(),
                number: self.grammars.memo.languages.next_number(),
                inside: Tokens::from_words(words),
                rests: Rests::Trie(Trie::of_bytes(rests.into_iter())),
            }));
        }
        Ok(None)
    }

    /// By the trie of bytes.
    fn fine_language(
        &mut self,
        at: End,
        language: ExprId,
        fuel: &mut Fuel,
    ) -> Result<LanguageMask, Stop> {
        let index = Arc::clone(&self.index);
        let bytes = Labelled::of_bytes(index.byte_trie());
        let walked = self.walk_bytes(bytes, at, language, None, fuel)?;
        Ok(self.language_mask_of(walked.unwrap_or_default()))
    }

    /// Walks a language through a trie of bytes, with what earlier walks met.
    fn walk_bytes(
        &mut self,
        bytes: Labelled<'_>,
        at: End,
        language: ExprId,
        beside: Option<ExprId>,
        fuel: &mut Fuel,
    ) -> Result<Option<Walked>, Stop> {
        let lexicon = &mut self.machine.lexicon;
        let mut walks = std::mem::take(&mut self.grammars.memo.walks);
        let walked = walk_language(lexicon, &mut walks, bytes, at, language, beside, fuel)?;
        self.grammars.memo.walks = walks;
        Ok(walked)
    }

    /// What a walk through the trie of bytes found.
    fn language_mask_of(&mut self, walked: Walked) -> LanguageMask {
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let count: usize = walked.inside.iter().map(Range::len).sum();
        let inside = match count {
            0..=Tokens::MAX_LISTED => {
                let mut ids = Vec::with_capacity(count);
                for tokens in &walked.inside {
                    ids.extend_from_slice(trie.ids(tokens.clone()));
                }
                Tokens::Ids(ids.into())
            }
            _ if count > trie.tokens().len() / 2 => {
                // Fewer are outside.
                let mut words = index.text_tokens().to_vec();
                let mut inside = walked.inside.clone();
                inside.sort_unstable_by_key(|tokens| tokens.start);
                let mut start = 0;
                for tokens in inside {
                    clear_bits(&mut words, trie.ids(start..tokens.start));
                    start = tokens.end;
                }
                let all = trie.tokens().len() as u32;
                clear_bits(&mut words, trie.ids(start..all));
                Tokens::from_words(words)
            }
            _ => {
                let mut words = vec![0_u32; index.text_tokens().len()];
                for tokens in &walked.inside {
                    set_bits(&mut words, trie.ids(tokens.clone()));
                }
                Tokens::from_words(words)
            }
        };
        LanguageMask {
            tagged: Box::default(),
            number: self.grammars.memo.languages.next_number(),
            inside,
            rests: Rests::Places(Places::new(walked, |node| index.text_below(node))),
        }
    }
}
