//! `tokenizer_config.json` and `generation_config.json`: what we read of them.

use serde::Deserialize;

use crate::error::TokenizerError;
use crate::files::{
    CHAT_TEMPLATE_JINJA, GENERATION_CONFIG_JSON, TOKENIZER_CONFIG_JSON, TokenizerFiles, parse_json,
};

/// The model's own defaults for sampling, from `generation_config.json`. `None` where the file
/// doesn't say. Values are as the file has them: ranges are checked where they are used.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct GenerationConfig {
    /// Tokens that end the text (`eos_token_id`, one id or a list).
    #[serde(rename = "eos_token_id", deserialize_with = "one_or_many")]
    pub eos_token_ids: Vec<u32>,
    /// Default temperature.
    pub temperature: Option<f32>,
    /// Default `top_p`.
    pub top_p: Option<f32>,
    /// Default `top_k`; 0 and, in some files, -1 are off.
    pub top_k: Option<i64>,
    /// Default `min_p`.
    pub min_p: Option<f32>,
    /// Default `repetition_penalty`.
    pub repetition_penalty: Option<f32>,
    /// Default for the most tokens to generate.
    pub max_new_tokens: Option<u32>,
}

impl GenerationConfig {
    pub(crate) fn parse(files: &TokenizerFiles<'_>) -> Result<Self, TokenizerError> {
        match &files.generation_config_json {
            Some(bytes) => parse_json(GENERATION_CONFIG_JSON, bytes),
            None => Ok(Self::default()),
        }
    }
}

/// What we read of `tokenizer_config.json`, and of `chat_template.jinja` beside it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TokenizerConfig {
    pub(crate) bos_token: Option<TokenName>,
    pub(crate) eos_token: Option<TokenName>,
    pub(crate) unk_token: Option<TokenName>,
    pub(crate) pad_token: Option<TokenName>,
    pub(crate) chat_template: Option<ChatTemplateField>,
}

impl TokenizerConfig {
    /// `chat_template.jinja` wins over the field in `tokenizer_config.json`.
    pub(crate) fn parse(files: &TokenizerFiles<'_>) -> Result<Self, TokenizerError> {
        let mut config: Self = match &files.tokenizer_config_json {
            Some(bytes) => parse_json(TOKENIZER_CONFIG_JSON, bytes)?,
            None => Self::default(),
        };
        if let Some(bytes) = &files.chat_template_jinja {
            let source = std::str::from_utf8(bytes).map_err(|error| TokenizerError::NotUtf8 {
                file: CHAT_TEMPLATE_JINJA,
                valid_up_to: error.valid_up_to(),
            })?;
            config.chat_template = Some(ChatTemplateField::One(source.to_owned()));
        }
        Ok(config)
    }

    /// The special tokens by the names that chat templates use, with their text.
    pub(crate) fn special_tokens(&self) -> Vec<(String, String)> {
        [
            ("bos_token", &self.bos_token),
            ("eos_token", &self.eos_token),
            ("unk_token", &self.unk_token),
            ("pad_token", &self.pad_token),
        ]
        .into_iter()
        .filter_map(|(name, token)| {
            let content = token.as_ref()?.content().to_owned();
            Some((name.to_owned(), content))
        })
        .collect()
    }
}

/// A token by its text, alone or as the description of an added token.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum TokenName {
    Text(String),
    AddedToken { content: String },
}

impl TokenName {
    pub(crate) fn content(&self) -> &str {
        match self {
            Self::Text(content) | Self::AddedToken { content } => content,
        }
    }
}

/// One chat template, or several by name.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum ChatTemplateField {
    One(String),
    Named(Vec<NamedChatTemplate>),
}

#[derive(Debug, Deserialize)]
pub(crate) struct NamedChatTemplate {
    pub(crate) name: String,
    pub(crate) template: String,
}

/// An id, a list of ids, or null.
fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(u32),
        Many(Vec<u32>),
    }
    Ok(match Option::deserialize(deserializer)? {
        None => Vec::new(),
        Some(OneOrMany::One(id)) => vec![id],
        Some(OneOrMany::Many(ids)) => ids,
    })
}
