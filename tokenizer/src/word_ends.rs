//! Places in a text before and after which a tokenizer encodes apart: what stands on one side never
//! changes the tokens of the other.
//!
//! A byte-level BPE first splits a text into pieces by a regular expression, and then encodes each piece
//! by itself. Of the expressions known here every one ends a piece after a letter that something else than
//! letters and marks follows, and after a digit likewise, and looks no further back than to where a piece
//! begins. So the text can be cut there.

use std::sync::OnceLock;

use regex_syntax::hir::{Class, HirKind};
use serde_json::Value;
use tokenizers::NormalizedString;

use crate::gguf::pre_tokenizer::{GPT2, GPT4O, LLAMA3, QWEN2, TEKKEN};
use crate::tokenizer_json::TokenizerJson;

/// That of the model that comes with Formwork.
const LETTERS_DIGITS_OTHERS: &str = r"\p{L}+|\p{N}|[^\p{L}\p{N}]+";

/// The expressions with single characters after words: an apostrophe alone may belong to one.
const KNOWN: [&str; 6] = [GPT2, LLAMA3, QWEN2, TEKKEN, GPT4O, LETTERS_DIGITS_OTHERS];

/// Between which characters a text can be cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WordEnds {
    /// Whether it can be cut anywhere.
    is_known: bool,
    /// Whether it is brought to NFC first.
    normalizes: bool,
    /// Pairs of characters between which a cut could go through an added token, in order.
    within_added: Vec<(char, char)>,
}

impl WordEnds {
    /// Of a `tokenizer.json`; nowhere where that says anything that is not known here.
    pub(crate) fn new(json: &TokenizerJson) -> Self {
        let nowhere = Self::default();
        let normalizes = match &json.normalizer {
            None => false,
            Some(normalizer) if type_of(normalizer) == "NFC" => true,
            Some(_) => return nowhere,
        };
        let is_known = json.pre_tokenizer.as_ref().is_some_and(is_known);
        if !is_known || json.model.dropout.is_some_and(|dropout| dropout > 0.0) {
            return nowhere;
        }
        let mut within_added = Vec::new();
        for token in json.added_tokens.iter().flatten() {
            if token.single_word || token.rstrip || (token.normalized && normalizes) {
                return nowhere;
            }
            let content = token.content.chars();
            let pairs = content.clone().zip(content.skip(1));
            within_added.extend(pairs.filter(|(before, after)| ends_word(*before, *after)));
        }
        within_added.sort_unstable();
        within_added.dedup();
        Self {
            is_known,
            normalizes,
            within_added,
        }
    }

    /// Whether a text can be cut between these two characters.
    pub(crate) fn is_between(&self, before: char, after: char) -> bool {
        self.is_known
            && ends_word(before, after)
            && (!self.normalizes || ends_word_in_nfc(before, after))
            && self.within_added.binary_search(&(before, after)).is_err()
    }
}

/// What the expressions tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Letter,
    Digit,
    Mark,
    Other,
}

impl CharClass {
    fn of(character: char) -> Self {
        match character {
            'a'..='z' | 'A'..='Z' => Self::Letter,
            '0'..='9' => Self::Digit,
            '\0'..='\x7f' => Self::Other,
            _ => Self::beyond_ascii(character),
        }
    }

    /// By the tables that the library matches the expressions with.
    fn beyond_ascii(character: char) -> Self {
        static RANGES: OnceLock<Vec<(char, char, CharClass)>> = OnceLock::new();
        let ranges = RANGES.get_or_init(|| {
            let classes = [
                (r"\p{L}", Self::Letter),
                (r"\p{N}", Self::Digit),
                (r"\p{M}", Self::Mark),
            ];
            let mut ranges: Vec<_> = (classes.into_iter())
                .flat_map(|(regex, class)| {
                    ranges_of(regex).map(move |(start, end)| (start, end, class))
                })
                .collect();
            ranges.sort_unstable_by_key(|(start, ..)| *start);
            ranges
        });
        let behind = ranges.partition_point(|(start, ..)| *start <= character);
        let range = behind.checked_sub(1).and_then(|at| ranges.get(at));
        match range {
            Some(&(_, end, class)) if character <= end => class,
            _ => Self::Other,
        }
    }
}

/// The characters of a class, in ranges of which both ends belong to them.
fn ranges_of(class: &str) -> impl Iterator<Item = (char, char)> {
    let ranges = match regex_syntax::parse(class).map(regex_syntax::hir::Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => class.ranges().to_vec(),
        _ => Vec::new(),
    };
    (ranges.into_iter()).map(|range| (range.start(), range.end()))
}

/// Whether a piece ends between two characters by each of the known expressions.
fn ends_word(before: char, after: char) -> bool {
    use CharClass::{Digit, Letter, Mark};

    let (before, class) = (CharClass::of(before), CharClass::of(after));
    matches!(before, Letter | Digit) && class != before && class != Mark && after != '\''
}

/// The same of what they become in NFC. What is no mark doesn't change what stands before it, but for letters of Hangul
/// after others.
fn ends_word_in_nfc(before: char, after: char) -> bool {
    let nfc = |character: char| {
        let mut normalized = NormalizedString::from(character.to_string());
        normalized.nfc();
        normalized.get().to_owned()
    };
    if before.is_ascii() && after.is_ascii() {
        return true;
    }
    let ends = nfc(before)
        .chars()
        .next_back()
        .zip(nfc(after).chars().next());
    ends.is_some_and(|(before, after)| ends_word(before, after))
}

fn type_of(component: &Value) -> &str {
    component["type"].as_str().unwrap_or_default()
}

/// Whether a text is split into bytes' pieces by one of the known expressions.
fn is_known(pre_tokenizer: &Value) -> bool {
    match type_of(pre_tokenizer) {
        "ByteLevel" => is_byte_level(pre_tokenizer, true),
        "Sequence" => match pre_tokenizer["pretokenizers"].as_array().map(Vec::as_slice) {
            Some([split, byte_level]) => {
                let pattern = split["pattern"]["Regex"].as_str();
                type_of(split) == "Split"
                    && split["behavior"] == "Isolated"
                    && split["invert"] == false
                    && pattern.is_some_and(|pattern| KNOWN.contains(&pattern))
                    && type_of(byte_level) == "ByteLevel"
                    && is_byte_level(byte_level, false)
            }
            _ => false,
        },
        _ => false,
    }
}

/// With the expression of GPT-2, or with none.
fn is_byte_level(byte_level: &Value, with_regex: bool) -> bool {
    let uses_regex = byte_level["use_regex"].as_bool().unwrap_or(true);
    byte_level["add_prefix_space"] == false && uses_regex == with_regex
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;
    use serde_json::json;
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::{
        OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
    };

    use super::*;

    fn ends_of(pre_tokenizer: &Value, normalizer: &Value, added: &Value) -> WordEnds {
        let json = json!({
            "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer,
            "added_tokens": added,
            "model": {"type": "BPE", "vocab": {}, "merges": []},
        });
        WordEnds::new(&TokenizerJson::parse(json.to_string().as_bytes()).unwrap())
    }

    fn split(pattern: &str) -> Value {
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
        ]})
    }

    #[test]
    fn words_end_before_what_no_added_token_goes_through() {
        let added = json!([{"content": "<|im_end|>"}, {"content": "a:b"}]);
        let ends = ends_of(&split(QWEN2), &json!({"type": "NFC"}), &added);
        for (before, after, expected) in [
            ('a', '"', true),
            ('7', ',', true),
            ('a', ' ', true),
            ('a', '7', true),
            ('7', 'a', true),
            ('é', ' ', true),
            ('中', '。', true),
            ('½', 'д', true),
            ('a', 'b', false),
            ('a', 'é', false),
            ('7', '½', false),
            ('"', 'a', false),
            ('"', ',', false),
            ('a', '\'', false),
            ('a', '\u{301}', false),
            ('\u{301}', ' ', false),
            // NFC makes a letter and a mark of it.
            ('\u{958}', ' ', false),
            // Through added tokens.
            ('d', '|', false),
            ('m', '_', false),
            ('a', ':', false),
            ('b', ':', true),
        ] {
            assert_eq!(ends.is_between(before, after), expected, "{before} {after}");
        }
        let gpt2 = json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true});
        let as_is = ends_of(&gpt2, &Value::Null, &json!([]));
        assert!(as_is.is_between('a', '|'));
        assert!(as_is.is_between('\u{958}', ' '));
    }

    /// The pieces that the library splits a text into.
    fn pieces(split: &Split, normalizes: bool, text: &str) -> Vec<String> {
        let mut normalized = NormalizedString::from(text);
        if normalizes {
            normalized.nfc();
        }
        let mut pieces = PreTokenizedString::from(normalized);
        split.pre_tokenize(&mut pieces).unwrap();
        let splits = pieces.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
        (splits.into_iter())
            .map(|(piece, ..)| piece.to_owned())
            .collect()
    }

    /// Of each known expression, in text as it is and in NFC.
    #[test]
    fn pieces_end_where_a_text_can_be_cut() {
        let part = r#"([a-zA-Z0-9]{1,4}|[ '"’,.:;{}()<>|_/-]{1,3}|[éßΣ中文]|\p{M}|[\r\n\t ]{1,3}|(?s:.)){0,4}"#;
        let before = r"[a-zA-Z0-9]|[éſ가ᄀ\u{958}\u{FB1D}½]|\p{L}|\p{N}";
        let after = r"[\x00-\x7f]|[\u{301}\u{338}\u{1161}\u{11a8}\u{37e}’]|\p{P}|\p{N}|(?s:.)";
        for (known, normalizes) in KNOWN
            .iter()
            .flat_map(|known| [(*known, false), (*known, true)])
        {
            let normalizer = if normalizes {
                json!({"type": "NFC"})
            } else {
                Value::Null
            };
            let ends = ends_of(&split(known), &normalizer, &json!([]));
            let regex = SplitPattern::Regex(known.to_owned());
            let library = Split::new(regex, SplitDelimiterBehavior::Isolated, false).unwrap();
            let config = ProptestConfig {
                cases: 1000,
                failure_persistence: None,
                ..ProptestConfig::default()
            };
            let texts = (part, before, after, part);
            let test = |(first, before, after, rest): (String, String, String, String)| {
                let last = before.chars().next().unwrap();
                if ends.is_between(last, after.chars().next().unwrap()) {
                    let (first, second) = (first + &before, after + &rest);
                    let mut apart = pieces(&library, normalizes, &first);
                    apart.extend(pieces(&library, normalizes, &second));
                    let together = pieces(&library, normalizes, &(first + &second));
                    prop_assert_eq!(together, apart, "{}", known);
                }
                Ok(())
            };
            TestRunner::new(config).run(&texts, test).unwrap();
        }
    }

    #[test]
    fn nothing_is_said_of_what_is_not_known() {
        let null = Value::Null;
        let none = json!([]);
        let known = split(LLAMA3);
        assert_ne!(ends_of(&known, &null, &none), WordEnds::default());
        let other = split(r"\w+|.");
        let spaced = json!({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true});
        let lowercase = json!({"type": "Lowercase"});
        let single_word = json!([{"content": "<a>", "single_word": true}]);
        let rstrip = json!([{"content": "<a>", "rstrip": true}]);
        for (pre_tokenizer, normalizer, added) in [
            (&other, &null, &none),
            (&spaced, &null, &none),
            (&null, &null, &none),
            (&known, &lowercase, &none),
            (&known, &null, &single_word),
            (&known, &null, &rstrip),
        ] {
            assert_eq!(
                ends_of(pre_tokenizer, normalizer, added),
                WordEnds::default(),
                "{pre_tokenizer} {normalizer} {added}"
            );
        }
    }
}
