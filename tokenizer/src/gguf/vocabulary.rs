//! The tokens of a GGUF file with their types.

use std::borrow::Cow;
use std::collections::HashMap;

use ::gguf::{GgufError, Metadata};
use serde_json::{Map, Value, json};

use super::{MODEL, SPACE};

const TOKENS: &str = "tokenizer.ggml.tokens";
const TOKEN_TYPES: &str = "tokenizer.ggml.token_type";

/// Most tokens: eight times the largest vocabulary.
const MAX_TOKENS: usize = 1 << 21;

/// What a token is, by its number in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenType {
    /// Text.
    Normal,
    /// What stands for text that can't be encoded.
    Unknown,
    /// Never text.
    Control,
    /// Text that is one token wherever it occurs.
    UserDefined,
    /// Fills a gap of the ids.
    Unused,
    /// `<0xNN>`
    Byte,
}

/// Token texts as `tokenizer.json` spells them, with their types, by id.
pub(super) struct Vocabulary<'a> {
    tokens: Vec<(Cow<'a, str>, TokenType)>,
}

impl<'a> Vocabulary<'a> {
    pub(super) fn read(metadata: &'a Metadata) -> Result<Self, GgufError> {
        let texts = metadata.required_strings(TOKENS)?;
        if texts.is_empty() || texts.len() > MAX_TOKENS {
            return Err(metadata.wrong(TOKENS, &format!("1 to {MAX_TOKENS} tokens")));
        }
        let types = metadata.numbers(TOKEN_TYPES)?;
        if types
            .as_ref()
            .is_some_and(|types| types.len() != texts.len())
        {
            let expected = format!("as long as {TOKENS} ({})", texts.len());
            return Err(metadata.wrong(TOKEN_TYPES, &expected));
        }
        let sentence_piece = metadata.str(MODEL)? == Some("llama");
        let tokens = texts.iter().enumerate().map(|(id, text)| {
            let token_type = match types.as_ref().map_or(1, |types| types[id] as i64) {
                // Nothing can be written by an empty token.
                _ if text.is_empty() => TokenType::Unused,
                2 => TokenType::Unknown,
                3 => TokenType::Control,
                4 => TokenType::UserDefined,
                5 => TokenType::Unused,
                6 => TokenType::Byte,
                _ => TokenType::Normal,
            };
            // Converters write the spaces of such tokens as spaces.
            let text = if sentence_piece && token_type == TokenType::UserDefined {
                text.replace(' ', SPACE).into()
            } else {
                Cow::Borrowed(text.as_str())
            };
            (text, token_type)
        });
        let vocabulary = Self {
            tokens: tokens.collect(),
        };
        let mut ids = HashMap::new();
        for (id, text) in vocabulary.used() {
            if let Some(first) = ids.insert(text, id) {
                let expected = format!("without repetition; {first} and {id} are both {text:?}");
                return Err(metadata.wrong(TOKENS, &expected));
            }
        }
        Ok(vocabulary)
    }

    /// Ids and texts of all tokens but the unused.
    pub(super) fn used(&self) -> impl Iterator<Item = (u32, &str)> {
        self.with_types()
            .filter(|(.., token_type)| *token_type != TokenType::Unused)
            .map(|(id, text, _)| (id, text))
    }

    /// Ids, texts and types.
    pub(super) fn with_types(&self) -> impl Iterator<Item = (u32, &str, TokenType)> {
        let tokens = (0..).zip(&self.tokens);
        tokens.map(|(id, (text, token_type))| (id, text.as_ref(), *token_type))
    }

    /// Ids and texts of the tokens of a type.
    pub(super) fn of_type(&self, wanted: TokenType) -> impl Iterator<Item = (u32, &str)> {
        self.with_types()
            .filter(move |(.., token_type)| *token_type == wanted)
            .map(|(id, text, _)| (id, text))
    }

    /// All ids, unused ones included.
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The vocabulary of `tokenizer.json`. Control tokens are in it too, so that the library gives
    /// none of them another id.
    pub(super) fn ids(&self) -> Map<String, Value> {
        self.used()
            .map(|(id, text)| (text.to_owned(), id.into()))
            .collect()
    }

    /// `added_tokens` of `tokenizer.json`: what is found in a text before it is encoded.
    pub(super) fn added_tokens(&self) -> Vec<Value> {
        let mut added = Vec::new();
        for (id, text, token_type) in self.with_types() {
            let special = match token_type {
                TokenType::Control | TokenType::Unknown => true,
                TokenType::UserDefined => false,
                TokenType::Normal | TokenType::Unused | TokenType::Byte => continue,
            };
            added.push(
                json!({"id": id, "content": text, "single_word": false, "lstrip": false,
                              "rstrip": false, "normalized": false, "special": special}),
            );
        }
        added
    }

    /// The token that a key names by its id, where the key is there.
    pub(super) fn special(
        &self,
        metadata: &Metadata,
        key: &str,
    ) -> Result<Option<(u32, &str)>, GgufError> {
        let Some(id) = metadata.u64(key)? else {
            return Ok(None);
        };
        let token = usize::try_from(id).ok().and_then(|id| self.tokens.get(id));
        match token {
            Some((text, token_type)) if *token_type != TokenType::Unused => {
                Ok(Some((id as u32, text.as_ref())))
            }
            _ => Err(metadata.wrong(key, &format!("the id of one of the {} tokens", self.len()))),
        }
    }
}
