//! Languages that begin with characters up to a count: `C{m,n} B`.
//!
//! Each number of characters that is left is a language of its own, whose walk would come through most
//! of the vocabulary. But where what follows the characters doesn't begin as one of them does, a token
//! can be read in one way only: as many characters as it begins with, and then what follows. So it is
//! allowed if and only if `C* B` allows it, it begins no more than `n` of them, and it ends within them
//! or has `m`. What `C* B` allows is known for all counts, and how many characters a token begins with
//! for all that follows.

use std::sync::Arc;

use hashbrown::HashMap;

use super::TokenAutomaton;
use crate::bitmask::BITS_PER_WORD;
use crate::earley::{ContextId, Item, Lexeme, TokenUnion, Tokens};
use crate::index::{ROOT, TokenizerIndex};
use crate::lexical::{
    BoundedHead, ByteSet, EPSILON, ExprId, Fuel, Labels, Lexicon, NO_MARK, Others, Stop,
};
use crate::mask::Forgotten;
use crate::mask::set_bits;
use crate::mask::table::{DEAD, Table};
use crate::mask::walk::Labelled;
use crate::pushdown::EMPTY_STACK;

/// With a bound below this a walk ends after few bytes, and is made.
const MIN_BOUND: u32 = 4;

/// So many tokens whose characters are looked up are a step.
const TOKENS_A_STEP: u64 = 64;

/// How many characters tokens begin with.
struct Runs {
    /// Of each token, whole characters and one that is only begun.
    num_begun: Box<[u16]>,
    /// The tokens that are nothing else, a bit per id.
    inside: Box<[u32]>,
}

impl Runs {
    /// The tokens that have too many characters, or go on after too few.
    fn refused(&self, min: u32, max: u32) -> Tokens {
        let mut words = vec![0_u32; self.inside.len()];
        let of_words = self.num_begun.chunks(BITS_PER_WORD);
        for ((word, inside), num_begun) in words.iter_mut().zip(&self.inside).zip(of_words) {
            for (bit, &num_begun) in num_begun.iter().enumerate() {
                let num_begun = u32::from(num_begun);
                let is_short = num_begun < min && inside >> bit & 1 == 0;
                *word |= u32::from(is_short || num_begun > max) << bit;
            }
        }
        Tokens::from_words(words)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.num_begun) + size_of_val(&*self.inside)
    }
}

/// What is known of characters that are counted.
#[derive(Clone, Default)]
pub(super) struct BoundedFacts {
    /// By the character; `None` where they can't be counted.
    runs: HashMap<ExprId, Option<Arc<Runs>>>,
    /// See [`Runs::refused`].
    refused: HashMap<(ExprId, u32, u32), Arc<Tokens>>,
    /// Bytes of what the tables refer to.
    bytes: usize,
}

impl BoundedFacts {
    /// The same for others, who don't count its bytes again.
    pub(super) fn shared(&self) -> Self {
        Self {
            bytes: 0,
            ..self.clone()
        }
    }

    /// Hands all tables over to be dropped.
    pub(super) fn forget(self, forgotten: &mut Forgotten) {
        forgotten.add(self.runs);
        forgotten.add(self.refused);
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
            + self.runs.capacity() * (size_of::<(ExprId, usize)>() + 1)
            + self.refused.capacity() * (size_of::<(ExprId, u32, u32, usize)>() + 1)
    }
}

impl TokenAutomaton {
    /// Makes known how many characters of a count tokens begin with, where an item's mask is made of that:
    /// once for all counts, so it is worth more steps than a mask may take otherwise.
    pub(super) fn learn_runs(&mut self, item: &Item, fuel: &mut Fuel) -> Result<(), Stop> {
        if let Lexeme::Text(text) = item.lexeme.uncounted()
            && text.stack == EMPTY_STACK
        {
            let language = self.machine.lexicon.saturated(text.lexeme);
            for &part in &*self.language_parts(language, fuel)? {
                self.bounded_runs(part, item.context, fuel)?;
            }
        }
        Ok(())
    }

    /// What a language that begins with characters up to a count allows together with what follows it.
    /// `None` where it is no such language, where what follows may begin as characters do, or where it
    /// is as well walked by itself.
    pub(super) fn bounded_item(
        &mut self,
        language: ExprId,
        context: ContextId,
        fuel: &mut Fuel,
    ) -> Result<Option<Tokens>, Stop> {
        let Some((head, runs)) = self.bounded_runs(language, context, fuel)? else {
            return Ok(None);
        };
        let refused = self.refused(&head, &runs, fuel)?;
        let mut union = TokenUnion::new(self.index.text_tokens().len());
        self.add_language_item(head.any_number, context, &mut union, fuel)?;
        union.subtract(&refused);
        Ok(Some(union.finish()))
    }

    /// What a language begins with, and how many such characters tokens do; `None` as above.
    fn bounded_runs(
        &mut self,
        language: ExprId,
        context: ContextId,
        fuel: &mut Fuel,
    ) -> Result<Option<(BoundedHead, Arc<Runs>)>, Stop> {
        let Some(head) = self.machine.lexicon.bounded_head(language, fuel)? else {
            return Ok(None);
        };
        let known = self
            .grammars
            .memo
            .languages
            .bounded
            .runs
            .get(&head.character);
        let known = known.cloned();
        if known.is_none() && (head.max < MIN_BOUND || !self.has_many_bytes(language, fuel)?) {
            return Ok(None);
        }
        let firsts = self.machine.lexicon.first_bytes(head.character, fuel)?;
        if self.may_come_after(head.rest, context, &firsts, fuel)? {
            return Ok(None);
        }
        let runs = match known {
            Some(known) => known,
            None => self.find_runs(head.character, fuel)?,
        };
        Ok(runs.map(|runs| (head, runs)))
    }

    /// Whether what comes after characters, first the rest of their language, may begin with some bytes.
    fn may_come_after(
        &mut self,
        rest: ExprId,
        context: ContextId,
        bytes: &ByteSet,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let firsts = self.machine.lexicon.first_bytes(rest, fuel)?;
        if !firsts.intersection(bytes).is_empty() {
            return Ok(true);
        }
        if !self.machine.lexicon.is_nullable(rest) {
            return Ok(false);
        }
        for item in self.grammars.parser.first_items(context, fuel)? {
            fuel.burn(1)?;
            let Some(text) = item.uncounted().lexeme.text() else {
                continue;
            };
            // JSON whose lexeme is over may go on with what its frames say.
            if text.stack != EMPTY_STACK && self.machine.lexicon.end_mark(text.lexeme) != NO_MARK {
                return Ok(true);
            }
            let (parser, machine) = self.parser();
            let firsts = parser.language_first_bytes(machine, text.lexeme, fuel)?;
            if !firsts.intersection(bytes).is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn refused(
        &mut self,
        head: &BoundedHead,
        runs: &Runs,
        fuel: &mut Fuel,
    ) -> Result<Arc<Tokens>, Stop> {
        let key = (head.character, head.min, head.max);
        let bounded = &mut self.grammars.memo.languages.bounded;
        if let Some(known) = bounded.refused.get(&key) {
            return Ok(Arc::clone(known));
        }
        fuel.burn(runs.num_begun.len() as u64 / TOKENS_A_STEP)?;
        let refused = Arc::new(runs.refused(head.min, head.max));
        bounded.bytes += refused.memory_bytes();
        bounded.refused.insert(key, Arc::clone(&refused));
        Ok(refused)
    }

    /// How many characters tokens begin with; `None` where a text may be read as more characters or less.
    fn find_runs(&mut self, character: ExprId, fuel: &mut Fuel) -> Result<Option<Arc<Runs>>, Stop> {
        let lexicon = &mut self.machine.lexicon;
        let runs = match lexicon.is_nullable(character) {
            true => None,
            false => walk_characters(lexicon, &self.index, character, fuel)?.map(Arc::new),
        };
        let bounded = &mut self.grammars.memo.languages.bounded;
        bounded.bytes += runs.as_ref().map_or(0, |runs| runs.memory_bytes());
        bounded.runs.insert(character, runs.clone());
        Ok(runs)
    }
}

/// Walks characters through the trie of bytes. `None` where a token may be read as more characters or
/// less.
fn walk_characters(
    lexicon: &mut Lexicon,
    index: &TokenizerIndex,
    character: ExprId,
    fuel: &mut Fuel,
) -> Result<Option<Runs>, Stop> {
    let labelled = Labelled::of_bytes(index.byte_trie());
    let trie = labelled.trie;
    let num_words = index.text_tokens().len();
    if index.max_token_bytes() >= u32::from(u16::MAX) {
        return Ok(None);
    }
    let mut num_begun = vec![0_u16; num_words * BITS_PER_WORD];
    let mut inside = vec![0_u32; num_words];
    // The bytes that are a character each.
    let mut single = ByteSet::EMPTY;
    for (bytes, next) in lexicon.derivatives(character, fuel)? {
        if next == EPSILON {
            single = single.union(&bytes);
        }
    }
    let single = Labels::within(&single, Others::Some);
    let mut table = Table::default();
    let (between, over) = (
        table.state(lexicon, character),
        table.state(lexicon, EPSILON),
    );
    let mut pending = vec![(ROOT, between, 0_u16, 0_usize)];
    while let Some((node, state, count, depth)) = pending.pop() {
        let own = trie.own(node);
        if node != ROOT {
            for &id in trie.ids(own.clone()) {
                num_begun[id as usize] = count;
            }
            set_bits(&mut inside, trie.ids(own.clone()));
        }
        let children = trie.children(node);
        if children.is_empty() {
            continue;
        }
        let below = trie.labels_below(node);
        let is_single = |below: Labels| below.is_ascii() && below.is_subset(single);
        if state == between && below.is_some_and(is_single) {
            fuel.burn(1)?;
            let ids = trie.ids(own.end..trie.below(node).end);
            for &id in ids {
                let left = index.info().token_bytes(id).len() - depth;
                num_begun[id as usize] = count + left as u16;
            }
            set_bits(&mut inside, ids);
            continue;
        }
        table.expand(lexicon, state, fuel)?;
        fuel.burn(children.len() as u64)?;
        for child in children {
            let next = table.step(lexicon, state, trie.label(child), fuel)?;
            if next == DEAD {
                for &id in trie.ids(trie.below(child)) {
                    num_begun[id as usize] = count;
                }
                continue;
            }
            let begun = u16::from(state == between);
            let next = match next == over {
                true => between,
                // The same text may be a character and the beginning of another one.
                false if lexicon.is_nullable(table.expr(next)) => return Ok(None),
                false => next,
            };
            pending.push((child, next, count + begun, depth + 1));
        }
    }
    Ok(Some(Runs {
        num_begun: num_begun.into(),
        inside: inside.into(),
    }))
}
