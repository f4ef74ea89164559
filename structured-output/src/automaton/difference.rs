//! Parts of lexemes by what they differ from another one.

use std::ops::Range;
use std::sync::Arc;

use super::TokenAutomaton;
use super::lexeme::exits_of;
use super::memo::{Exits, LexemeMask, Reference};
use crate::index::Trie;
use crate::lexical::{ExprId, Fuel, Less, OutOfFuel};
use crate::mask::beside::{Difference, walk_beside};
use crate::mask::ended_texts::ended_texts;
use crate::mask::{MAX_SPARSE, Mask, set_bits};

impl TokenAutomaton {
    /// A part that is another one less finitely many texts, such as an object's other keys: by a
    /// walk along these texts. `None` where it is no such part, or the walk can't tell.
    pub(super) fn part_without_texts(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<LexemeMask>>, OutOfFuel> {
        let lexicon = &mut self.machine.lexicon;
        let Some(Less { whole, texts, rest }) = lexicon.less_texts(expr) else {
            return Ok(None);
        };
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let fruitless = self.masks.fruitless();
        let Some(less) = ended_texts(lexicon, trie, whole, texts, fruitless, fuel)? else {
            return Ok(None);
        };
        let reference = lexicon.concat(whole, rest);
        let reference = self.lexeme_mask(reference, fuel)?;
        if reference.reference.is_some() {
            return Ok(None);
        }
        let less = known_to(&reference, trie, &less, fuel)?;
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
    ) -> Result<LexemeMask, OutOfFuel> {
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
    ) -> Result<LexemeMask, OutOfFuel> {
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let less = known_to(&mask, trie, &difference.less, fuel)?;
        let more = ids_of(trie, &difference.more);
        let inside = match more.len() {
            0..=MAX_SPARSE => Mask::from_ids(more),
            count => {
                let mut words = vec![0; index.text_tokens().len()];
                set_bits(&mut words, &more);
                Mask::from_words(words, count)
            }
        };
        Ok(LexemeMask {
            number: self.masks.next_number(),
            reference: Some(Reference::new(mask, less)),
            inside,
            exits: exits_of(&index, &difference.exits, fuel)?,
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

/// Of the tokens of some ranges those that a part allows, or may by what follows it; ascending.
fn known_to(
    part: &LexemeMask,
    trie: &Trie,
    ranges: &[Range<u32>],
    fuel: &mut Fuel,
) -> Result<Vec<u32>, OutOfFuel> {
    let mut ids = ids_of(trie, ranges);
    fuel.burn(ids.len() as u64)?;
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
        for (_, exits) in &self.exits {
            match exits {
                Exits::Suffixes(trie) => ids.extend_from_slice(trie.tokens()),
                Exits::Nodes(nodes) => {
                    let tokens = nodes.iter().map(|&node| bytes.ids(bytes.below(node)));
                    ids.extend(tokens.flatten());
                }
                Exits::After(nodes) => {
                    for (node, leaving) in nodes {
                        let gone = |&child: &u32| leaving.contains(bytes.label(child));
                        let gone = bytes.children(*node).filter(gone);
                        ids.extend(gone.flat_map(|child| bytes.ids(bytes.below(child))));
                    }
                }
            }
        }
        ids.sort_unstable();
        ids
    }
}

#[cfg(test)]
mod tests {
    use crate::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

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
