//! Masks of states.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::memo::{LexemeMask, LexemeMasks, Part, frames_read};
use super::{State, TokenAutomaton};
use crate::index::Trie;
use crate::lexical::{EMPTY, ExprId, Fuel, NO_MARK, OutOfFuel};
use crate::mask::walk::{Exit, walk};
use crate::mask::{MAX_SPARSE, Mask};

/// Tokens with what they go on with after a lexeme.
type Suffixes<'a> = Vec<(u32, &'a [u8])>;

impl TokenAutomaton {
    /// The tokens that may come next, the vocabulary's stop tokens included where the text may end.
    ///
    /// A look-up where the state, or one that no token can tell from it, has been asked for before.
    /// Otherwise what the lexeme allows by itself, and for the few tokens that go on after it, a
    /// walk of the machine through what they go on with.
    pub(crate) fn mask(&mut self, state: State, fuel: &mut Fuel) -> Result<Arc<Mask>, OutOfFuel> {
        // Saturation speaks of bytes: it holds where any text can be written.
        let lexeme = if self.writes_any_text {
            self.machine.lexicon.saturated(state.lexeme)
        } else {
            state.lexeme
        };
        if let Some(known) = self.masks.get(lexeme, state, self.machine.stacks()) {
            return Ok(known);
        }
        if !self.writes_any_text {
            let mask = self.mask_where(state, fuel, |automaton, next, fuel| {
                automaton.is_completable(next, fuel)
            })?;
            self.masks
                .insert_for_state(lexeme, state, Arc::clone(&mask));
            return Ok(mask);
        }
        self.machine.start_recording();
        let mut words = vec![0_u32; self.index.text_tokens().len()];
        self.add_stop_tokens(&mut words, state, fuel)?;
        let mut depends_on_text = std::mem::take(&mut self.machine.reads.key);
        let mut unsure = Vec::new();
        let mut at = State { lexeme, ..state };
        loop {
            for part in &self.lexeme_masks(at.lexeme, fuel)?.parts {
                if part.less.is_empty() {
                    self.add_part(&part.alone, at, &mut words, &mut unsure, fuel)?;
                    continue;
                }
                let mut own = vec![0_u32; words.len()];
                self.add_part(&part.alone, at, &mut own, &mut unsure, fuel)?;
                for &id in &part.less {
                    own[id as usize / 32] &= !(1 << (id % 32));
                }
                for (word, own) in words.iter_mut().zip(own) {
                    *word |= own;
                }
            }
            // The lexeme may end before the token begins.
            match self.machine.lexicon.end_mark(at.lexeme) {
                NO_MARK => break,
                mark => at = self.machine.end_lexeme(at, mark, fuel)?,
            }
            depends_on_text |= std::mem::take(&mut self.machine.reads.key);
            at.lexeme = self.machine.lexicon.saturated(at.lexeme);
        }
        let reads = self.machine.stop_recording();
        for token in &unsure {
            if self.advance(state, *token, fuel)?.is_some() {
                set_bits(&mut words, &[*token]);
            }
        }
        let mask = self.finish(words);
        if unsure.is_empty() && !depends_on_text {
            let stacks = self.machine.stacks();
            let read = frames_read(stacks, state.stack, reads.lowest);
            self.masks
                .insert(lexeme, state, read, stacks, Arc::clone(&mask));
        } else {
            self.masks
                .insert_for_state(lexeme, state, Arc::clone(&mask));
        }
        Ok(mask)
    }

    /// The tokens after which at most `num_tokens - 1` more are enough to complete, stop token
    /// included. Empty where `num_tokens` is below [`TokenAutomaton::min_tokens`] of the state.
    pub(crate) fn mask_within(
        &mut self,
        state: State,
        num_tokens: u32,
        fuel: &mut Fuel,
    ) -> Result<Arc<Mask>, OutOfFuel> {
        let left = num_tokens.saturating_sub(1);
        let farthest = self.farthest_successor.get(&state);
        if farthest.is_some_and(|&farthest| farthest <= left) {
            return self.mask(state, fuel);
        }
        let mut farthest = 0;
        let mask = self.mask_where(state, fuel, |automaton, next, fuel| {
            if !automaton.is_completable(next, fuel)? {
                return Ok(false);
            }
            let needs = automaton.min_tokens(next, fuel)?;
            farthest = farthest.max(needs);
            Ok(needs <= left)
        })?;
        self.farthest_successor.insert(state, farthest);
        Ok(mask)
    }

    /// The tokens that lead to states of which `keep` is true, which is asked once per state.
    fn mask_where(
        &mut self,
        state: State,
        fuel: &mut Fuel,
        mut keep: impl FnMut(&mut Self, State, &mut Fuel) -> Result<bool, OutOfFuel>,
    ) -> Result<Arc<Mask>, OutOfFuel> {
        let mut words = vec![0_u32; self.index.text_tokens().len()];
        self.add_stop_tokens(&mut words, state, fuel)?;
        let mut verdicts: hashbrown::HashMap<State, bool> = hashbrown::HashMap::new();
        for (tokens, next) in self.reached_by_tokens(state, fuel)? {
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
        Ok(self.finish(words))
    }

    /// All states that a token leads to, with such tokens. The text of a key is not kept in them.
    pub(super) fn reached_by_tokens(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Vec<(Vec<u32>, State)>, OutOfFuel> {
        let index = Arc::clone(&self.index);
        let mut reached: Vec<(Vec<u32>, State)> = Vec::new();
        let mut unsure = Vec::new();
        self.machine.start_recording();
        if state.stack == crate::pushdown::EMPTY_STACK {
            // One lexeme: the trie of the coarsest alphabet will do.
            let trie = index.trie(self.alphabet_of(state.lexeme));
            let found = |tokens: std::ops::Range<u32>, lexeme| {
                let tokens = &trie.tokens()[tokens.start as usize..tokens.end as usize];
                reached.push((tokens.to_vec(), State { lexeme, ..state }));
            };
            walk(
                &mut self.machine.lexicon,
                trie,
                state.lexeme,
                fuel,
                found,
                |_| {},
            )?;
        } else {
            let found = |tokens: &[u32], next| reached.push((tokens.to_vec(), next));
            self.walk_states(index.byte_trie(), state, fuel, found, &mut unsure)?;
        }
        self.machine.stop_recording();
        for token in unsure {
            if let Some(next) = self.advance(state, token, fuel)? {
                reached.push((vec![token], next));
            }
        }
        Ok(reached)
    }

    /// The coarsest alphabet that keeps apart what the lexeme keeps apart.
    fn alphabet_of(&self, lexeme: ExprId) -> usize {
        let finest = self.index.num_alphabets() - 1;
        (0..finest)
            .find(|&alphabet| self.machine.lexicon.fits_alphabet(lexeme, alphabet))
            .unwrap_or(finest)
    }

    /// Adds what a part of a lexeme allows, by itself and with what follows in a state.
    fn add_part(
        &mut self,
        part: &LexemeMask,
        state: State,
        words: &mut [u32],
        unsure: &mut Vec<u32>,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        part.inside.add_to(words);
        for (mark, suffixes) in &part.exits {
            let next = self.machine.end_lexeme(state, *mark, fuel)?;
            if std::mem::take(&mut self.machine.reads.key) {
                // What follows depends on the text of the token too.
                unsure.extend_from_slice(suffixes.tokens());
                continue;
            }
            let set = |tokens: &[u32], _: State| set_bits(words, tokens);
            self.walk_states(suffixes, next, fuel, set, unsure)?;
        }
        Ok(())
    }

    /// What a lexeme allows by itself, as parts that lexemes have in common.
    ///
    /// An alternative that a coarse alphabet fits is a part of its own: the body of a string, a
    /// number. So is one less some words, such as an object's other keys: the tokens that write
    /// such a word to its end are found by a walk of those words alone. All others together are
    /// one part.
    fn lexeme_masks(
        &mut self,
        lexeme: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Arc<LexemeMasks>, OutOfFuel> {
        /// More alternatives than this are not worth to be told apart.
        const MAX_PARTS: usize = 32;
        if let Some(known) = self.masks.lexeme(lexeme) {
            return Ok(known);
        }
        let finest = self.index.num_alphabets() - 1;
        let mut parts = Vec::new();
        let mut others = Vec::new();
        for expr in self.machine.lexicon.alternatives(lexeme) {
            if parts.len() >= MAX_PARTS {
                others.push(expr);
            } else if self.alphabet_of(expr) < finest {
                let alone = self.lexeme_mask(expr, fuel)?;
                parts.push(Part {
                    alone,
                    less: Vec::new(),
                });
            } else {
                match self.part_with_exclusion(expr, fuel)? {
                    Some(part) => parts.push(part),
                    None => others.push(expr),
                }
            }
        }
        if !others.is_empty() {
            let rest = self.machine.lexicon.or(&others);
            parts.push(Part {
                alone: self.lexeme_mask(rest, fuel)?,
                less: Vec::new(),
            });
        }
        Ok(self.masks.insert_lexeme(lexeme, LexemeMasks { parts }))
    }

    /// `(S & ~N) R` as `S R` less some tokens, where `S R` fits a coarse alphabet. The two differ
    /// only on the way of strings of `S & N`, so a walk of those finds the tokens: where the former
    /// dies on that way. `None` too where a lexeme may end there.
    fn part_with_exclusion(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Option<Part>, OutOfFuel> {
        let finest = self.index.num_alphabets() - 1;
        let Some((all, taken)) = self.machine.lexicon.exclusion(expr) else {
            return Ok(None);
        };
        if self.alphabet_of(all) == finest {
            return Ok(None);
        }
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let lexicon = &mut self.machine.lexicon;
        let mut less = Vec::new();
        let mut path: Vec<((ExprId, ExprId), u32)> = Vec::new();
        let (mut states, mut end) = ((taken, expr), trie.num_nodes());
        let mut node = 0;
        while node < trie.num_nodes() {
            while node == end
                && let Some(above) = path.pop()
            {
                (states, end) = above;
            }
            fuel.burn(1)?;
            let byte = trie.byte(node);
            let taken = lexicon.derivative(states.0, byte, fuel)?;
            if taken == EMPTY || !lexicon.is_live(taken, fuel)? {
                node = trie.end(node);
                continue;
            }
            let rest = lexicon.derivative(states.1, byte, fuel)?;
            if rest == EMPTY || !lexicon.is_live(rest, fuel)? {
                if lexicon.end_mark(states.1) != NO_MARK {
                    return Ok(None);
                }
                let tokens = trie.token_start(node)..trie.token_start(trie.end(node));
                less.extend_from_slice(&trie.tokens()[tokens.start as usize..tokens.end as usize]);
                node = trie.end(node);
                continue;
            }
            if trie.end(node) > node + 1 {
                path.push((states, end));
                (states, end) = ((taken, rest), trie.end(node));
            }
            node += 1;
        }
        let alone = self.lexeme_mask(all, fuel)?;
        Ok(Some(Part { alone, less }))
    }

    /// What one part of a lexeme allows by itself.
    fn lexeme_mask(
        &mut self,
        lexeme: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Arc<LexemeMask>, OutOfFuel> {
        if let Some(known) = self.masks.part(lexeme) {
            return Ok(known);
        }
        let index = Arc::clone(&self.index);
        let trie = index.trie(self.alphabet_of(lexeme));
        let mut ranges = Ranges::default();
        let mut exits: Vec<Exit> = Vec::new();
        let inside = |tokens, _| ranges.add(tokens);
        walk(
            &mut self.machine.lexicon,
            trie,
            lexeme,
            fuel,
            inside,
            |exit| exits.push(exit),
        )?;
        let inside = self.masks.store.intern(self.mask_of_ranges(trie, &ranges));
        let mut suffixes: BTreeMap<u16, Suffixes<'_>> = BTreeMap::new();
        for Exit { node, depth, mark } in exits {
            let of_mark = suffixes.entry(mark).or_default();
            let tokens = trie.token_start(node)..trie.token_start(trie.end(node));
            for &token in &trie.tokens()[tokens.start as usize..tokens.end as usize] {
                fuel.burn(1)?;
                let suffix = &index.info().token_bytes(token)[depth as usize..];
                of_mark.push((token, suffix));
            }
        }
        let exits: Vec<(u16, Trie)> = suffixes
            .into_iter()
            .map(|(mark, suffixes)| (mark, Trie::of_bytes(&suffixes)))
            .collect();
        let bytes = exits.iter().map(|exit| exit.1.memory_bytes()).sum();
        let alone = LexemeMask {
            inside,
            exits,
            bytes,
        };
        Ok(self.masks.insert_part(lexeme, alone))
    }

    fn add_stop_tokens(
        &mut self,
        words: &mut [u32],
        state: State,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        if self.is_accepting(state, fuel)? {
            set_bits(words, self.index.info().stop_token_ids());
        }
        Ok(())
    }

    fn finish(&mut self, words: Vec<u32>) -> Arc<Mask> {
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        self.masks.store.intern(Mask::from_words(words, count))
    }

    /// The mask of ranges of a trie's tokens.
    fn mask_of_ranges(&self, trie: &Trie, ranges: &Ranges) -> Mask {
        let inside =
            |range: &std::ops::Range<u32>| &trie.tokens()[range.start as usize..range.end as usize];
        if ranges.count <= MAX_SPARSE {
            return Mask::from_ids(ranges.list.iter().flat_map(inside).copied().collect());
        }
        // Set what is allowed or clear what isn't, whichever is less.
        if ranges.count <= trie.tokens().len() / 2 {
            let mut words = vec![0; self.index.text_tokens().len()];
            for range in &ranges.list {
                set_bits(&mut words, inside(range));
            }
            return Mask::from_words(words, ranges.count);
        }
        let mut words = self.index.text_tokens().to_vec();
        let all = trie.tokens().len() as u32;
        let mut start = 0;
        for range in ranges.list.iter().chain([&(all..all)]) {
            for &id in inside(&(start..range.start)) {
                words[id as usize / 32] &= !(1 << (id % 32));
            }
            start = range.end;
        }
        Mask::from_words(words, ranges.count)
    }
}

fn set_bits(words: &mut [u32], ids: &[u32]) {
    for &id in ids {
        words[id as usize / 32] |= 1 << (id % 32);
    }
}

/// Ascending ranges, adjacent ones joined.
#[derive(Default)]
struct Ranges {
    list: Vec<std::ops::Range<u32>>,
    count: usize,
}

impl Ranges {
    fn add(&mut self, range: std::ops::Range<u32>) {
        self.count += range.len();
        match self.list.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.list.push(range),
        }
    }
}
