//! What texts with a bound on their length allow: what those without allow, less what is too long
//! or too short.
//!
//! The walk of a vocabulary through a text is made once, and says of each token how many characters a
//! text has at least that begins with it (`counted_walk`). Near its bound a length is another state
//! after each character; the mask of each is then a list of tokens away from one that is known, or the
//! tokens up to a place in a list that is sorted by characters.

use std::sync::Arc;

use super::TokenAutomaton;
use super::counted_walk::{CharacterWalk, Counted};
use super::memo::{LexemeMask, Reference};
use crate::index::Trie;
use crate::lexical::{Characters, ExprId, Fuel, Stop, UNBOUNDED};
use crate::mask::walk::Labelled;
use crate::mask::{MAX_SPARSE, Mask, clear_bits, set_bits};

/// Where more tokens than these are too long, a mask is made without a list of them.
const MAX_LESS: usize = 8192;

/// So many ids set or cleared are a step.
const IDS_A_STEP: u64 = 8;

/// How many characters the tokens need that a text and what follows it allow.
pub(super) struct Lengths {
    /// What is allowed with any number of characters. Has no reference.
    all: Arc<LexemeMask>,
    /// Tokens that end within the text, by the fewest characters of a text that begins with them.
    within: Vec<u32>,
    /// How many of them need no more than so many characters.
    num_within: Vec<u32>,
    /// Whether each of them also begins texts of every greater number of characters.
    is_open: bool,
    /// Tokens that end later, with the characters before, and whether they end within the lexeme.
    ended: Vec<(u32, u32, bool)>,
}

impl Lengths {
    /// Those of walks through tries, with what the tokens may do in all. `num_chars` are those of
    /// `TokenizerIndex::num_chars`.
    fn new(all: Arc<LexemeMask>, walks: &[(&Trie, Counted)], num_chars: &[u16]) -> Self {
        // Each token with what it needs.
        let for_each = |each: &mut dyn FnMut(usize, &[u32])| {
            for (trie, counted) in walks {
                for (need, tokens) in &counted.within {
                    each(*need as usize, trie.ids(tokens.clone()));
                }
                for (more, tokens) in &counted.staying {
                    let ids = trie.ids(tokens.clone());
                    let chars = num_chars.get(tokens.start as usize..tokens.end as usize);
                    for (id, &chars) in ids.iter().zip(chars.unwrap_or_default()) {
                        let need = i64::from(chars) + more;
                        each(need.max(0) as usize, std::slice::from_ref(id));
                    }
                }
            }
        };
        let mut num_within = Vec::new();
        for_each(&mut |need, ids| {
            if num_within.len() <= need {
                num_within.resize(need + 1, 0);
            }
            num_within[need] += ids.len() as u32;
        });
        // Where the tokens of each number of characters go, which then is where the next ones start.
        let mut start = 0;
        for count in &mut num_within {
            start += std::mem::replace(count, start);
        }
        let mut within = vec![0; start as usize];
        for_each(&mut |need, ids| {
            let start = num_within[need] as usize;
            within[start..start + ids.len()].copy_from_slice(ids);
            num_within[need] += ids.len() as u32;
        });
        let mut ended = Vec::new();
        for (trie, counted) in walks {
            for (list, is_inside) in [(&counted.after, true), (&counted.leaving, false)] {
                for (count, tokens) in list {
                    let ids = trie.ids(tokens.clone()).iter();
                    ended.extend(ids.map(|&id| (*count, id, is_inside)));
                }
            }
        }
        Self {
            all,
            within,
            num_within,
            is_open: walks.iter().all(|(_, counted)| counted.is_open),
            ended,
        }
    }

    /// The tokens that need no more than so many characters, and the others.
    fn split(&self, max: u32) -> (&[u32], &[u32]) {
        let known = self.num_within.get(max as usize);
        let at = known.map_or(self.within.len(), |&at| at as usize);
        self.within.split_at(at.min(self.within.len()))
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.all.memory_bytes()
            + (self.within.capacity() + self.num_within.capacity()) * size_of::<u32>()
            + self.ended.capacity() * size_of::<(u32, u32, bool)>()
    }
}

impl TokenAutomaton {
    /// A part that is a text of a bounded number of characters and then something else. `None` where it
    /// is no such part, or where its characters can't be counted.
    pub(super) fn part_of_characters(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<LexemeMask>>, Stop> {
        let Some(characters) = self.machine.lexicon.characters(expr) else {
            return Ok(None);
        };
        let Characters { min, max, .. } = characters;
        let is_pattern = characters.any_number != characters.all;
        if is_pattern && max == UNBOUNDED {
            // Such a state goes on for ever, as the pattern does: little of the vocabulary is walked.
            return Ok(None);
        }
        let Some(lengths) = self.lengths(characters, fuel)? else {
            return Ok(None);
        };
        // A token has a character at least, or a part of one.
        if min > 1 && !lengths.is_open {
            return Ok(None);
        }
        fuel.burn(1 + lengths.ended.len() as u64)?;
        let (_, too_long) = lengths.split(max);
        let ended = lengths.ended.iter();
        let outside: Vec<_> = ended.filter(|end| end.0 < min || end.0 > max).collect();
        if too_long.len() + outside.len() > MAX_LESS {
            let mask = self.part_with_few(&lengths, min, max, fuel)?;
            return Ok(Some(self.masks.insert_part(expr, mask)));
        }
        fuel.burn(too_long.len() as u64)?;
        let num_inside = too_long.len() + outside.iter().filter(|end| end.2).count();
        let ids = too_long.iter().copied();
        let mut less: Vec<u32> = ids.chain(outside.iter().map(|end| end.1)).collect();
        less.sort_unstable();
        let mask = if less.is_empty() {
            Arc::clone(&lengths.all)
        } else if let Some(known) = self.masks.lessened(&lengths.all, &less) {
            // No token tells most bounds from the next one.
            known
        } else {
            let mask = LexemeMask {
                number: self.masks.next_number(),
                reference: Some(Reference {
                    mask: Arc::clone(&lengths.all),
                    less: less.into(),
                    num_inside,
                    only_exits: false,
                }),
                inside: Mask::from_ids(Vec::new()),
                exits: Vec::new(),
            };
            self.masks.insert_lessened(mask)
        };
        self.masks.share_part(expr, &mask);
        Ok(Some(mask))
    }

    /// A part that leaves out many tokens: what ends within the lexeme by itself, and what goes on after
    /// it as a part of what does with any number of characters.
    fn part_with_few(
        &mut self,
        lengths: &Lengths,
        min: u32,
        max: u32,
        fuel: &mut Fuel,
    ) -> Result<LexemeMask, Stop> {
        let (allowed, too_long) = lengths.split(max);
        let is_right = |count: u32| min <= count && count <= max;
        let ended = lengths.ended.iter().filter(|end| end.2);
        let (right, wrong): (Vec<&(u32, u32, bool)>, Vec<_>) =
            ended.partition(|end| is_right(end.0));
        let count = allowed.len() + right.len();
        let right = right.into_iter().map(|end| end.1);
        let inside = if count <= MAX_SPARSE {
            Mask::from_ids(right.chain(allowed.iter().copied()).collect())
        } else {
            let mut words;
            match &lengths.all.inside {
                Mask::Dense { words: all, .. } if too_long.len() < allowed.len() => {
                    fuel.burn(too_long.len() as u64 / IDS_A_STEP)?;
                    words = all.to_vec();
                    clear_bits(&mut words, too_long);
                    let wrong: Vec<u32> = wrong.iter().map(|end| end.1).collect();
                    clear_bits(&mut words, &wrong);
                }
                _ => {
                    fuel.burn(allowed.len() as u64 / IDS_A_STEP)?;
                    words = vec![0; self.index.text_tokens().len()];
                    set_bits(&mut words, allowed);
                    set_bits(&mut words, &right.collect::<Vec<u32>>());
                }
            }
            Mask::from_words(words, count)
        };
        let leaving = lengths.ended.iter().filter(|end| !end.2);
        let gone = leaving.filter(|end| !is_right(end.0)).map(|end| end.1);
        let mut less: Vec<u32> = gone.collect();
        less.sort_unstable();
        Ok(LexemeMask {
            number: self.masks.next_number(),
            reference: Some(Reference {
                mask: Arc::clone(&lengths.all),
                less: less.into(),
                num_inside: 0,
                only_exits: true,
            }),
            inside,
            exits: Vec::new(),
        })
    }

    /// What the tokens need, kept under the expression for any number of characters. `None` where it
    /// can't be told where a character begins, or how many come.
    fn lengths(
        &mut self,
        characters: Characters,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<Lengths>>, Stop> {
        let key = (characters.character, characters.any_number, characters.rest);
        if let Some(known) = self.masks.lengths(key) {
            return Ok(known);
        }
        let found = match self.begins_plainly(characters, fuel)? {
            true => self.count(characters, fuel)?.map(Arc::new),
            false => None,
        };
        self.masks.insert_lengths(key, found.clone());
        Ok(found)
    }

    /// Walks the vocabulary by the first alphabet that fits, or by bytes.
    fn count(&mut self, characters: Characters, fuel: &mut Fuel) -> Result<Option<Lengths>, Stop> {
        let index = Arc::clone(&self.index);
        let lexicon = &mut self.machine.lexicon;
        let fits = lexicon.fitting_alphabets(characters.any_number, fuel)?
            & lexicon.fitting_alphabets(characters.all, fuel)?;
        let escapes = Labelled::of_bytes(index.escape_trie());
        let bytes = Labelled::of_bytes(index.byte_trie());
        let coarse = Labelled::of_coarse(&index).filter(|coarse| coarse.is_among(fits));
        let coarse = coarse.map(|coarse| vec![coarse, escapes]);
        for tries in coarse.chain([vec![bytes]]) {
            let mut walk = CharacterWalk::new(&mut self.machine.lexicon, characters, fuel)?;
            let mut walks = Vec::new();
            for labelled in &tries {
                let Some(counted) = walk.run(&index, *labelled, fuel)? else {
                    break;
                };
                walks.push((labelled.trie, counted));
            }
            if walks.len() < tries.len() {
                continue;
            }
            let all = match self.masks.part(characters.any_number) {
                Some(known) if known.reference.is_none() => known,
                known => {
                    let found: Vec<_> = walks.iter().map(|(trie, c)| (*trie, &c.found)).collect();
                    let part = self.part_of_walks(&found, fuel)?;
                    match known {
                        None => self.masks.insert_part(characters.any_number, part),
                        Some(_) => Arc::new(part),
                    }
                }
            };
            let num_tokens: usize = walks.iter().map(|(trie, _)| trie.tokens().len()).sum();
            fuel.burn(num_tokens as u64 / IDS_A_STEP)?;
            return Ok(Some(Lengths::new(all, &walks, index.num_chars())));
        }
        Ok(None)
    }

    /// Whether no byte begins both a character and what follows the characters, and no character is the
    /// beginning of another: then each text is so many characters, and no more or less.
    fn begins_plainly(&mut self, characters: Characters, fuel: &mut Fuel) -> Result<bool, Stop> {
        let lexicon = &mut self.machine.lexicon;
        let character = lexicon.first_bytes(characters.character, fuel)?;
        let rest = lexicon.first_bytes(characters.rest, fuel)?;
        Ok(character.intersection(&rest).is_empty()
            && !lexicon.is_nullable(characters.character)
            && !lexicon.is_nullable(characters.rest)
            && lexicon.is_prefix_free(characters.character, fuel)?)
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
