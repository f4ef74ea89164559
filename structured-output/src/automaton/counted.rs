//! What strings with a bound on their length allow: what those without allow, less what is too long
//! or too short.
//!
//! The walk of a vocabulary through the characters of a string is made once, and says of each token
//! how many characters it takes. Near its bound a length is another state after each character; the
//! mask of each is then a list of tokens away from one that is known.

use std::sync::Arc;

use super::TokenAutomaton;
use super::memo::{LexemeMask, Reference};
use crate::index::ROOT;
use crate::lexical::{Characters, ExprId, Fuel, OutOfFuel};
use crate::mask::Mask;
use crate::mask::table::{DEAD, Table};
use crate::mask::walk::Labelled;

/// Where more tokens than these are too long, the walk of what is left is short.
const MAX_LESS: usize = 8192;

/// How many characters the tokens take that characters and what follows them allow.
#[derive(Default)]
pub(super) struct Lengths {
    /// Tokens that end within the characters, with what they need, a begun one included; ascending.
    /// Once all are found, only those that need more than `least`.
    within: Vec<(u32, u32)>,
    /// At most [`MAX_LESS`] tokens need more.
    least: u32,
    /// Tokens that end later, with the characters before, and whether they end within the lexeme.
    ended: Vec<(u32, u32, bool)>,
}

impl Lengths {
    /// Keeps the tokens that are too long where not too many are.
    fn keep_longest(&mut self) {
        let mut counts: Vec<usize> = Vec::new();
        for &(need, _) in &self.within {
            if counts.len() <= need as usize {
                counts.resize(need as usize + 1, 0);
            }
            counts[need as usize] += 1;
        }
        let mut num_longer = 0;
        while let Some(count) = counts.last() {
            num_longer += count;
            if num_longer > MAX_LESS {
                break;
            }
            counts.pop();
        }
        self.least = (counts.len() as u32).saturating_sub(1);
        let least = self.least;
        self.within.retain(|&(need, _)| need > least);
        self.within.shrink_to_fit();
        self.within.sort_unstable();
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.within.capacity() * size_of::<(u32, u32)>()
            + self.ended.capacity() * size_of::<(u32, u32, bool)>()
    }
}

/// Where a walk is.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// Within a character.
    Character,
    /// Between characters.
    Between,
    /// After the characters.
    After,
}

impl TokenAutomaton {
    /// A part that is a bounded number of characters and then something else. `None` where it is no
    /// such part, or where too many tokens are too long for it.
    pub(super) fn part_of_characters(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<LexemeMask>>, OutOfFuel> {
        let Some(characters) = self.machine.lexicon.characters(expr) else {
            return Ok(None);
        };
        let Characters { min, max, .. } = characters;
        let Some(lengths) = self.lengths(characters, fuel)? else {
            return Ok(None);
        };
        if max < lengths.least {
            return Ok(None);
        }
        let first_too_long = lengths.within.partition_point(|&(need, _)| need <= max);
        let too_long = &lengths.within[first_too_long..];
        fuel.burn(lengths.ended.len() as u64)?;
        let ended = lengths.ended.iter();
        let outside: Vec<_> = ended.filter(|end| end.0 < min || end.0 > max).collect();
        if too_long.len() + outside.len() > MAX_LESS {
            return Ok(None);
        }
        fuel.burn(too_long.len() as u64)?;
        let num_inside = too_long.len() + outside.iter().filter(|end| end.2).count();
        let ids = too_long.iter().map(|&(_, id)| id);
        let mut less: Vec<u32> = ids.chain(outside.iter().map(|end| end.1)).collect();
        less.sort_unstable();
        let mask = self.lexeme_mask(characters.any_number, fuel)?;
        if mask.reference.is_some() {
            return Ok(None);
        }
        if less.is_empty() {
            return Ok(Some(mask));
        }
        // No token tells most bounds from the next one.
        if let Some(known) = self.masks.lessened(&mask, &less) {
            return Ok(Some(known));
        }
        let mask = LexemeMask {
            number: self.masks.next_number(),
            reference: Some(Reference {
                mask,
                less: less.into(),
                num_inside,
            }),
            inside: Mask::from_ids(Vec::new()),
            exits: Vec::new(),
        };
        Ok(Some(self.masks.insert_lessened(mask)))
    }

    /// The lengths of tokens, kept under the expression for any number of characters. `None` where
    /// it can't be told where a character begins.
    fn lengths(
        &mut self,
        characters: Characters,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<Lengths>>, OutOfFuel> {
        if let Some(known) = self.masks.lengths(characters.any_number) {
            return Ok(known);
        }
        let index = Arc::clone(&self.index);
        let mut found = None;
        if self.begins_plainly(characters, fuel)? {
            let lexicon = &mut self.machine.lexicon;
            let fits = lexicon.fitting_alphabets(characters.any_number, fuel)?;
            let escapes = Labelled::of_bytes(index.escape_trie());
            for coarse in Labelled::of_coarse(&index).filter(|coarse| coarse.is_among(fits)) {
                let mut lengths = Lengths::default();
                if self.add_lengths(coarse, characters.any_number, &mut lengths, fuel)?
                    && self.add_lengths(escapes, characters.any_number, &mut lengths, fuel)?
                {
                    lengths.keep_longest();
                    found = Some(Arc::new(lengths));
                    break;
                }
            }
        }
        self.masks
            .insert_lengths(characters.any_number, found.clone());
        Ok(found)
    }

    /// Whether no byte begins both a character and what follows the characters, and no character is the
    /// beginning of another: then each text is so many characters, and no more or less.
    fn begins_plainly(
        &mut self,
        characters: Characters,
        fuel: &mut Fuel,
    ) -> Result<bool, OutOfFuel> {
        let lexicon = &mut self.machine.lexicon;
        let character = lexicon.first_bytes(characters.character, fuel)?;
        let rest = lexicon.first_bytes(characters.rest, fuel)?;
        Ok(character.intersection(&rest).is_empty()
            && !lexicon.is_nullable(characters.character)
            && !lexicon.is_nullable(characters.rest)
            && lexicon.is_prefix_free(characters.character, fuel)?)
    }

    /// Walks the words of a trie. False where a state can't be told to be within a character or
    /// after all, or where the trie's alphabet doesn't fit.
    fn add_lengths(
        &mut self,
        labelled: Labelled<'_>,
        any_number: ExprId,
        lengths: &mut Lengths,
        fuel: &mut Fuel,
    ) -> Result<bool, OutOfFuel> {
        let lexicon = &mut self.machine.lexicon;
        let trie = labelled.trie;
        let mut table = Table::default();
        let start = table.state(lexicon, any_number);
        let mut pending = vec![(ROOT, start, At::Between, 0_u32)];
        while let Some((node, state, at, count)) = pending.pop() {
            let need = count + u32::from(at == At::Character);
            for &id in trie.ids(trie.own(node)) {
                match at {
                    At::After => lengths.ended.push((count, id, true)),
                    _ => lengths.within.push((need, id)),
                }
            }
            let children = trie.children(node);
            if children.is_empty() {
                continue;
            }
            table.expand(lexicon, state, fuel)?;
            if !table.fits(lexicon, state, labelled) {
                return Ok(false);
            }
            fuel.burn(children.len() as u64)?;
            let ends = at == At::After && table.has_end_mark(state);
            for child in children {
                let byte = labelled.byte(trie.label(child));
                let next = table.step(lexicon, state, byte, fuel)?;
                if next == DEAD {
                    if ends {
                        let leaving = trie.ids(trie.below(child)).iter();
                        lengths.ended.extend(leaving.map(|&id| (count, id, false)));
                    }
                    continue;
                }
                let after = table.expr(next);
                let (at, count) = match at {
                    At::After => (At::After, count),
                    _ if after == any_number => (At::Between, count + 1),
                    _ if lexicon.ends_with(after, any_number) => (At::Character, count),
                    At::Between => (At::After, count),
                    At::Character => return Ok(false),
                };
                pending.push((child, next, at, count));
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

    /// A token is in the mask if and only if it is accepted.
    fn assert_mask_is_its_tokens(matcher: &GrammarMatcher, last_id: u32, what: &str) {
        let mask = matcher.next_token_mask().unwrap();
        for id in 0..=last_id {
            let is_accepted = matcher.fork().accept_token(id).unwrap();
            assert_eq!(mask.is_allowed(id), is_accepted, "{what}: {id}");
        }
    }

    /// Each mask near a bound is what each token by itself is.
    #[test]
    fn masks_near_a_bound_are_those_of_their_tokens() {
        let mut vocab: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
        let texts = [
            "ab",
            "abc",
            "abcdefgh",
            "é",
            "aé",
            "a\"",
            "abc\"",
            "\",",
            "é\"}",
            "\\n",
            "\\\"",
            "a\\",
            "\\u00",
            "e\\u00e9",
            "\u{1f600}",
            "ab\u{1f600}\"",
            "\\ud83d",
            "abcdefghijkl\"",
        ];
        vocab.extend(texts.map(|text| text.as_bytes().to_vec()));
        vocab.push("é".as_bytes()[1..].to_vec());
        vocab.push(b"<eos>".to_vec());
        let eos = vocab.len() as u32 - 1;
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[eos], &[eos]).unwrap();
        let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
        for (min, max) in [(0, 12), (3, 9), (9, 9), (0, 1)] {
            let schema = format!(
                r#"{{"type": "array", "items": {{"type": "string", "minLength": {min}, "maxLength": {max}}}}}"#
            );
            let grammar = compiler
                .compile_json_schema(&schema, &Default::default())
                .unwrap();
            let mut matcher = GrammarMatcher::new(&grammar);
            for &byte in "[\"a\\né".as_bytes() {
                if !matcher.accept_token(u32::from(byte)).unwrap() {
                    break;
                }
                assert_mask_is_its_tokens(&matcher, eos, &schema);
            }
        }
    }

    /// What is counted may itself be of several lengths: then no token says how many it has.
    #[test]
    fn what_has_several_lengths_is_not_counted() {
        let mut vocab: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
        // Enough of them that a vocabulary is worth its classes.
        for first in b'a'..=b'z' {
            for length in 2..40 {
                vocab.push((0..length).map(|at| b'a' + (first + at) % 26).collect());
            }
        }
        vocab.push(b"<eos>".to_vec());
        let eos = vocab.len() as u32 - 1;
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[eos], &[eos]).unwrap();
        let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
        for pattern in [
            "([a-z]{2,6})? ",
            "([a-z]{2,7}){0,2} ",
            "([a-z]{2}|[a-z]{5}){1,3};",
            "([a-z]+x){2,3} ",
        ] {
            let grammar = compiler.compile_regex(pattern).unwrap();
            let mut matcher = GrammarMatcher::new(&grammar);
            for &byte in b"abc" {
                assert_mask_is_its_tokens(&matcher, eos, pattern);
                assert!(matcher.accept_token(u32::from(byte)).unwrap());
            }
        }
    }
}
