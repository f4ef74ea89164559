//! `tokenizer.json`, as far as we read it ourselves.

use std::fmt;

use serde::Deserialize;
use serde::de::{
    DeserializeOwned, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use crate::error::TokenizerError;
use crate::files::{TOKENIZER_JSON, parse_json};

/// What we read of `tokenizer.json` ourselves. The `tokenizers` library reads the whole.
#[derive(Debug, Deserialize)]
pub(crate) struct TokenizerJson {
    pub(crate) model: Model,
    #[serde(default, deserialize_with = "short_json")]
    pub(crate) decoder: Option<Decoder>,
    #[serde(default, deserialize_with = "short_json")]
    pub(crate) normalizer: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "short_json")]
    pub(crate) pre_tokenizer: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "short_json")]
    pub(crate) post_processor: Option<serde_json::Value>,
    pub(crate) added_tokens: Option<Vec<AddedToken>>,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    model_type: Option<String>,
    /// Files of before 2020 have no `type`; a BPE has merges.
    pub(crate) merges: Option<NumItems>,
    pub(crate) vocab: Option<NumItems>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    pub(crate) dropout: Option<f64>,
}

/// Most bytes of a part of the file that is neither vocabulary, merges nor added tokens. The charsmaps of published
/// normalizers have up to half a megabyte.
const MAX_PART_BYTES: usize = 4 << 20;
/// Most values of such a part, counted by what stands between them: the library takes up to 800 bytes of memory for each.
/// Published ones have a few hundred.
const MAX_PART_VALUES: usize = 8192;

/// A part of the file whose text is short and has few values.
fn short_json<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let Some(text) = Option::<Box<RawValue>>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let len = text.get().len();
    if len > MAX_PART_BYTES {
        let problem = format!("a part of {len} bytes: at most {MAX_PART_BYTES} are supported");
        return Err(D::Error::custom(problem));
    }
    let num_values = num_values(text.get());
    if num_values > MAX_PART_VALUES {
        let problem =
            format!("a part of {num_values} values: at most {MAX_PART_VALUES} are supported");
        return Err(D::Error::custom(problem));
    }
    serde_json::from_str(text.get())
        .map(Some)
        .map_err(D::Error::custom)
}

/// How many values a JSON text has, at most: what opens a list or an object, and what parts values, outside of texts.
fn num_values(json: &str) -> usize {
    let (mut number, mut in_text, mut is_escaped) = (1, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' | b',' | b':' if !in_text => number += 1,
            _ => {}
        }
    }
    number
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ModelVisitor;

        /// A field that isn't read here: the library reads it.
        struct Other;

        impl<'de> Deserialize<'de> for Other {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                short_json::<D, IgnoredAny>(deserializer).map(|_| Self)
            }
        }

        impl<'de> Visitor<'de> for ModelVisitor {
            type Value = Model;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Model, A::Error> {
                let mut model = Model::default();
                while let Some(name) = members.next_key::<String>()? {
                    match name.as_str() {
                        "type" => model.model_type = members.next_value()?,
                        "merges" => model.merges = members.next_value()?,
                        "vocab" => model.vocab = members.next_value()?,
                        "continuing_subword_prefix" => {
                            model.continuing_subword_prefix = members.next_value()?;
                        }
                        "end_of_word_suffix" => model.end_of_word_suffix = members.next_value()?,
                        "dropout" => model.dropout = members.next_value()?,
                        _ => {
                            members.next_value::<Other>()?;
                        }
                    }
                }
                Ok(model)
            }
        }

        deserializer.deserialize_map(ModelVisitor)
    }
}

/// How many items a list has, or members an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumItems(pub(crate) usize);

impl<'de> Deserialize<'de> for NumItems {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counter;

        impl<'de> Visitor<'de> for Counter {
            type Value = NumItems;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list or an object")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<NumItems, A::Error> {
                let mut number = 0;
                while items.next_element::<IgnoredAny>()?.is_some() {
                    number += 1;
                }
                Ok(NumItems(number))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<NumItems, A::Error> {
                let mut number = 0;
                while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    number += 1;
                }
                Ok(NumItems(number))
            }
        }

        deserializer.deserialize_any(Counter)
    }
}

/// One decoder, with the fields of all the types that are read here.
#[derive(Debug, Deserialize)]
pub(crate) struct Decoder {
    #[serde(rename = "type")]
    pub(crate) decoder_type: String,
    #[serde(default)]
    pub(crate) decoders: Vec<Decoder>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) content: Option<String>,
    pub(crate) replacement: Option<char>,
    pub(crate) start: Option<usize>,
    pub(crate) stop: Option<usize>,
    pub(crate) prefix: Option<String>,
}

/// What a `Replace` replaces: a string, or a regular expression, which is not read here.
#[derive(Debug, Deserialize)]
pub(crate) struct Pattern {
    #[serde(rename = "String")]
    pub(crate) string: Option<String>,
}

/// An added token, as far as it is read here.
#[derive(Debug, Deserialize)]
pub(crate) struct AddedToken {
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) single_word: bool,
    #[serde(default)]
    pub(crate) rstrip: bool,
    #[serde(default)]
    pub(crate) normalized: bool,
}

impl TokenizerJson {
    /// Reads the file, and refuses what is neither a BPE, a Unigram nor a WordPiece.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let json: Self = parse_json(TOKENIZER_JSON, bytes)?;
        let model = &json.model;
        let model_type = match (&model.model_type, &model.merges) {
            (Some(model_type), _) => model_type.as_str(),
            (None, Some(_)) => "BPE",
            (None, None) => "none",
        };
        if model_type == "WordPiece" {
            return Ok(json);
        }
        if !["BPE", "Unigram"].contains(&model_type) {
            return Err(TokenizerError::Unsupported {
                field: "model.type",
                value: model_type.to_owned(),
                supported: "BPE, Unigram or WordPiece",
            });
        }
        for (field, value) in [
            (
                "model.continuing_subword_prefix",
                &model.continuing_subword_prefix,
            ),
            ("model.end_of_word_suffix", &model.end_of_word_suffix),
        ] {
            if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
                return Err(TokenizerError::Unsupported {
                    field,
                    value: value.clone(),
                    supported: "none",
                });
            }
        }
        Ok(json)
    }
}
