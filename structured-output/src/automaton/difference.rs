//! Parts of lexemes by what they differ from another one.

use std::ops::Range;
use std::sync::Arc;

use super::TokenAutomaton;
use super::lexeme::exits_of;
use super::memo::{Exits, LexemeMask, Reference};
use crate::index::Trie;
use crate::lexical::{ExprId, Fuel, Less, Stop};
use crate::mask::beside::{Difference, walk_beside};
use crate::mask::ended_texts::ended_texts;
use crate::mask::{MAX_SPARSE, Mask, clear_bits, listed, set_bits};

/// A part that leaves out more tokens than these is made without a list of them, which would take more
/// room than its words.
const MAX_LESS: usize = 4096;

/// More ids than these are put in order by their bits.
const MANY_IDS: usize = 512;

impl TokenAutomaton {
    /// A part that is another one less finitely many texts, such as an object's other keys: by a
    /// walk along these texts. `None` where it is no such part, or the walk can't tell.
    pub(super) fn part_without_texts(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<LexemeMask>>, Stop> {
        let lexicon = &mut self.machine.lexicon;
        let Some(Less { whole, texts, rest }) = lexicon.less_texts(expr) else {
            return Ok(None);
        };
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let num_words = index.text_tokens().len();
        let fruitless = self.masks.fruitless();
        let Some(less) = ended_texts(lexicon, trie, whole, texts, fruitless, fuel)? else {
            return Ok(None);
        };
        let reference = lexicon.concat(whole, rest);
        let reference = self.lexeme_mask(reference, fuel)?;
        if reference.reference.is_some() {
            return Ok(None);
        }
        let less = known_to(&reference, trie, &less, num_words, fuel)?;
        if less.is_empty() {
            return Ok(Some(reference));
        }
        // Texts that end in no token leave the same mask.
        if let Some(known) = self.masks.lessened(&reference, &less) {
            return Ok(Some(known));
        }
        let mask = LexemeMask {
            number: self.masks.next_number(),
            inside: Mask::from_ids(Vec::new()),
            exits: Vec::new(),
            reference: Some(Reference::new(reference, less)),
        };
        Ok(Some(self.masks.insert_lessened(mask)))
    }

    /// By the trie of bytes as far as the part differs from another one.
    pub(super) fn part_beside(
        &mut self,
        expr: ExprId,
        rest: ExprId,
        mask: Arc<LexemeMask>,
        fuel: &mut Fuel,
    ) -> Result<LexemeMask, Stop> {
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let lexicon = &mut self.machine.lexicon;
        let difference = walk_beside(lexicon, trie, expr, rest, fuel)?;
        self.part_from(mask, difference, fuel)
    }

    /// A part by what it differs from another one.
    fn part_from(
        &mut self,
        mask: Arc<LexemeMask>,
        difference: Difference,
        fuel: &mut Fuel,
    ) -> Result<LexemeMask, Stop> {
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let num_words = index.text_tokens().len();
        let less = known_to(&mask, trie, &difference.less, num_words, fuel)?;
        let more = difference.more.iter().map(|range| trie.ids(range.clone()));
        let exits = exits_of(&index, &difference.exits, fuel)?;
        let number = self.masks.next_number();
        if less.len() > MAX_LESS {
            // Each mask would go through a long list.
            let mut words = vec![0; num_words];
            mask.inside.add_to(&mut words);
            clear_bits(&mut words, &less);
            more.for_each(|ids| set_bits(&mut words, ids));
            let reference = (!mask.exits.is_empty()).then(|| {
                let mut gone = vec![0; num_words];
                mask.for_exit_ids(trie, |ids| set_bits(&mut gone, ids));
                let mut leaving = vec![0; num_words];
                set_bits(&mut leaving, &less);
                let less = common(leaving, &gone, 0);
                Reference {
                    mask,
                    less: less.into(),
                    num_inside: 0,
                    only_exits: true,
                }
            });
            return Ok(LexemeMask {
                number,
                reference,
                inside: Mask::from_uncounted(words),
                exits,
            });
        }
        let num_more: usize = difference.more.iter().map(Range::len).sum();
        let inside = match num_more {
            0..=MAX_SPARSE => Mask::from_ids(ids_of(trie, &difference.more)),
            count => {
                let mut words = vec![0; num_words];
                more.for_each(|ids| set_bits(&mut words, ids));
                Mask::from_words(words, count)
            }
        };
        Ok(LexemeMask {
            number,
            reference: Some(Reference::new(mask, less)),
            inside,
            exits,
        })
    }
}

/// The tokens of some ranges of a trie's, ascending.
fn ids_of(trie: &Trie, ranges: &[Range<u32>]) -> Vec<u32> {
    let ids = ranges.iter().flat_map(|range| trie.ids(range.clone()));
    let mut ids: Vec<u32> = ids.copied().collect();
    ids.sort_unstable();
    ids
}

/// The ids in both of two sets of words, ascending, about so many.
fn common(mut words: Vec<u32>, other: &[u32], about: usize) -> Vec<u32> {
    for (word, other) in words.iter_mut().zip(other) {
        *word &= other;
    }
    listed(&words, about)
}

/// Of the tokens of some ranges those that a part allows, or may by what follows it; ascending.
fn known_to(
    part: &LexemeMask,
    trie: &Trie,
    ranges: &[Range<u32>],
    num_words: usize,
    fuel: &mut Fuel,
) -> Result<Vec<u32>, Stop> {
    let num_ids: usize = ranges.iter().map(Range::len).sum();
    fuel.burn(num_ids as u64)?;
    if num_ids > MANY_IDS {
        // To sort them would take longer than all of the walk.
        let mut words = vec![0; num_words];
        for range in ranges {
            set_bits(&mut words, trie.ids(range.clone()));
        }
        let mut known = vec![0; num_words];
        part.inside.add_to(&mut known);
        part.for_exit_ids(trie, |ids| set_bits(&mut known, ids));
        return Ok(common(words, &known, num_ids));
    }
    let mut ids = ids_of(trie, ranges);
    if !ids.is_empty() {
        let exit_ids = part.exit_ids(trie);
        ids.retain(|id| part.inside.is_allowed(*id) || exit_ids.binary_search(id).is_ok());
    }
    Ok(ids)
}

impl Reference {
    /// A part, less some of its tokens: ids, ascending.
    fn new(mask: Arc<LexemeMask>, less: Vec<u32>) -> Self {
        let inside = less.iter().filter(|&&id| mask.inside.is_allowed(id));
        Self {
            num_inside: inside.count(),
            less: less.into(),
            mask,
            only_exits: false,
        }
    }
}

impl LexemeMask {
    /// The tokens that go on after the lexeme, ascending.
    fn exit_ids(&self, bytes: &Trie) -> Vec<u32> {
        let mut ids = Vec::new();
        self.for_exit_ids(bytes, |some| ids.extend_from_slice(some));
        ids.sort_unstable();
        ids
    }

    /// The same in pieces, in no order.
    fn for_exit_ids(&self, bytes: &Trie, mut each: impl FnMut(&[u32])) {
        for (_, exits) in &self.exits {
            match exits {
                Exits::Suffixes(trie) => each(trie.tokens()),
                Exits::Nodes(nodes) => {
                    for &node in &**nodes {
                        each(bytes.ids(bytes.below(node)));
                    }
                }
                Exits::After(nodes) => {
                    for (node, leaving) in &**nodes {
                        let gone = |&child: &u32| leaving.contains(bytes.label(child));
                        for child in bytes.children(*node).filter(gone) {
                            each(bytes.ids(bytes.below(child)));
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::lexical::numbers_below;
    use crate::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

    /// Where a state differs from the one that it comes to by thousands of tokens, each is still told.
    #[test]
    fn parts_that_differ_by_thousands_of_tokens_are_those_of_their_tokens() {
        let mut random = numbers_below(20_261_122);
        let mut vocab: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
        let pieces = [
            "a", "b", "0", "1", "-", "@", ".", "gov", "x", "the", "é", "\"", "\",", "\\n", " ",
        ];
        let mut words = std::collections::BTreeSet::new();
        while words.len() < 12_000 {
            let count = 2 + random(5);
            let word = (0..count).map(|_| pieces[random(pieces.len() as u32) as usize]);
            words.insert(word.collect::<String>().into_bytes());
        }
        vocab.extend(words);
        vocab.push(b"<eos>".to_vec());
        let eos = vocab.len() as u32 - 1;
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[eos], &[eos]).unwrap();
        let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
        for pattern in [
            r"[a-f0-9]{6}-[a-f0-9]{2}",
            r"^[^@\\s]+@[^@.\\s]+(\\.[^@.\\s]*)*.gov.uk",
        ] {
            let schema = format!(r#"{{"type": "string", "pattern": "{pattern}"}}"#);
            let grammar = compiler
                .compile_json_schema(&schema, &Default::default())
                .unwrap();
            let mut matcher = GrammarMatcher::new(&grammar);
            for &byte in b"\"a0b0@x.a-gov.uk" {
                if !matcher.accept_token(u32::from(byte)).unwrap() {
                    break;
                }
                let mask = matcher.next_token_mask().unwrap();
                for id in 0..=eos {
                    let is_accepted = matcher.fork().accept_token(id).unwrap();
                    assert_eq!(mask.is_allowed(id), is_accepted, "{pattern} {byte}: {id}");
                }
            }
        }
    }

    /// Keys of a bounded length, less those that the object has: bounds below and above the longest token
    /// and the longest key, until all are taken.
    #[test]
    fn keys_with_a_bound_are_those_of_their_tokens() {
        let mut vocab: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
        let texts = [
            "aa", "ab", "ba", "bb", "aab", "abb", "bba", "aaaa", "abab", "a\"", "b\":", "ab\"",
            "{\"", "\":1", "1,\"", ",\"a", "\\u00", "61", "62", "1}",
        ];
        vocab.extend(texts.map(|text| text.as_bytes().to_vec()));
        vocab.push(b"<eos>".to_vec());
        let eos = vocab.len() as u32 - 1;
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[eos], &[eos]).unwrap();
        let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
        let keys = [
            "a", "b", "ab", "aa", "bb", "ba", "aaa", "abab", "abba", "bbbb", "aaaab", "ababab",
            "aaaaaaa",
        ];
        for pattern in [
            "^[ab]{1,1}$",
            "^[ab]{1,2}$",
            "^[ab]{2,4}$",
            "^[ab]{0,5}$",
            "^[ab]{1,6}$",
            "^a?[ab]{3,7}$",
            "^a{1,9}$",
            "^b?a{2,5}$",
        ] {
            let schema = format!(
                r#"{{"type": "object", "additionalProperties": false, "patternProperties": {{"{pattern}": {{"const": 1}}}}}}"#
            );
            let grammar = compiler
                .compile_json_schema(&schema, &Default::default())
                .unwrap();
            let mut matcher = GrammarMatcher::new(&grammar);
            let assert_mask_is_its_tokens = |matcher: &GrammarMatcher, place: &str| {
                let mask = matcher.next_token_mask().unwrap();
                for id in 0..=eos {
                    let is_accepted = matcher.fork().accept_token(id).unwrap();
                    assert_eq!(mask.is_allowed(id), is_accepted, "{pattern} {place}: {id}");
                }
            };
            let accept = |matcher: &mut GrammarMatcher, text: &str| {
                let before = matcher.fork();
                for &byte in text.as_bytes() {
                    if !matcher.accept_token(u32::from(byte)).unwrap() {
                        *matcher = before;
                        return false;
                    }
                    assert_mask_is_its_tokens(matcher, text);
                }
                true
            };
            assert!(accept(&mut matcher, "{"));
            let mut num_keys = 0;
            for key in keys {
                let comma = if num_keys > 0 { "," } else { "" };
                num_keys += usize::from(accept(&mut matcher, &format!("{comma}\"{key}\":1")));
            }
            assert!(num_keys >= 2 && accept(&mut matcher, "}"), "{pattern}");
        }
    }
}
