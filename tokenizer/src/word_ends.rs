//! Places in a text before and after which a tokenizer encodes apart: what stands on one side never
//! changes the tokens of the other.
//!
//! A byte-level BPE first splits a text into pieces by a regular expression, and then encodes each piece
//! by itself. Of the expressions known here every one ends a piece after a letter or digit that something
//! else follows, and looks no further back than to where a piece begins. So the text can be cut there.

use serde_json::Value;

use crate::gguf::pre_tokenizer::{GPT2, GPT4O, LLAMA3, QWEN2, TEKKEN};
use crate::tokenizer_json::TokenizerJson;

/// That of the model that comes with Formwork.
const LETTERS_DIGITS_OTHERS: &str = r"\p{L}+|\p{N}|[^\p{L}\p{N}]+";

/// The expressions with single characters after words: an apostrophe alone may belong to one.
const KNOWN: [&str; 6] = [GPT2, LLAMA3, QWEN2, TEKKEN, GPT4O, LETTERS_DIGITS_OTHERS];

/// What may follow a letter or digit so that a text can be cut between the two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WordEnds {
    /// Bit `c` is the ASCII character `c`.
    after: u128,
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
        let mut after = 0;
        for byte in 0..128_u8 {
            if !byte.is_ascii_alphanumeric() && byte != b'\'' {
                after |= 1 << byte;
            }
        }
        for token in json.added_tokens.iter().flatten() {
            if token.single_word || token.rstrip || (token.normalized && normalizes) {
                return nowhere;
            }
            // A cut would go through it.
            for pair in token.content.as_bytes().windows(2) {
                if let &[before, next] = pair
                    && before.is_ascii_alphanumeric()
                    && next < 128
                {
                    after &= !(1 << next);
                }
            }
        }
        Self { after }
    }

    /// Whether a text can be cut between these two bytes.
    pub(crate) fn is_between(self, before: u8, after: u8) -> bool {
        before.is_ascii_alphanumeric() && after < 128 && self.after >> after & 1 == 1
    }
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
    use serde_json::json;

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
            (b'a', b'"', true),
            (b'7', b',', true),
            (b'a', b' ', true),
            (b'a', b'b', false),
            (b'"', b'a', false),
            (b'"', b',', false),
            (b'a', b'\'', false),
            // Through added tokens.
            (b'a', b'|', false),
            (b'a', b'_', false),
            (b'a', b':', false),
            (b'a', 0xC3, false),
            (0xC3, b'"', false),
        ] {
            assert_eq!(ends.is_between(before, after), expected, "{before} {after}");
        }
        let gpt2 = json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true});
        assert!(ends_of(&gpt2, &Value::Null, &json!([])).is_between(b'a', b'|'));
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
