//! The files of a tokenizer, from a folder or from memory. `gguf/` makes them from a GGUF file.

use std::borrow::Cow;
use std::path::Path;

use crate::error::TokenizerError;
use crate::model_file::{ModelFileError, read_model_file};

/// Most bytes of a `tokenizer.json`: twice the largest that is published (Gemma 3's 33 MB).
const MAX_TOKENIZER_JSON_BYTES: u64 = 64 << 20;
/// Most bytes of any other file: the largest published list a few thousand added tokens in 1.2 MB.
const MAX_OTHER_FILE_BYTES: u64 = 16 << 20;

pub(crate) const TOKENIZER_JSON: &str = "tokenizer.json";
pub(crate) const TOKENIZER_CONFIG_JSON: &str = "tokenizer_config.json";
pub(crate) const CHAT_TEMPLATE_JINJA: &str = "chat_template.jinja";
pub(crate) const GENERATION_CONFIG_JSON: &str = "generation_config.json";

/// The contents of the files that describe a tokenizer. All but the first are optional.
pub(crate) struct TokenizerFiles<'a> {
    pub(crate) tokenizer_json: Cow<'a, [u8]>,
    pub(crate) tokenizer_config_json: Option<Cow<'a, [u8]>>,
    pub(crate) chat_template_jinja: Option<Cow<'a, [u8]>>,
    pub(crate) generation_config_json: Option<Cow<'a, [u8]>>,
}

impl TokenizerFiles<'static> {
    /// Those of a folder.
    pub(crate) fn from_folder(folder: &Path) -> Result<Self, TokenizerError> {
        if !folder.is_dir() {
            return Err(TokenizerError::NotAFolder {
                path: folder.to_owned(),
            });
        }
        let read = |file: &str| -> Result<Option<Cow<'static, [u8]>>, TokenizerError> {
            let max_bytes = match file {
                TOKENIZER_JSON => MAX_TOKENIZER_JSON_BYTES,
                _ => MAX_OTHER_FILE_BYTES,
            };
            match read_model_file(folder, file, max_bytes) {
                Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
                Err(ModelFileError::NotFound { .. }) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        Self::find(read, || folder.display().to_string())
    }
}

impl<'a> TokenizerFiles<'a> {
    pub(crate) fn from_list(files: &[(&str, &'a [u8])]) -> Result<Self, TokenizerError> {
        let find = |file: &str| {
            let found = files.iter().find(|(name, _)| *name == file);
            Ok(found.map(|&(_, bytes)| Cow::Borrowed(bytes)))
        };
        Self::find(find, || {
            let names: Vec<&str> = files.iter().map(|&(name, _)| name).collect();
            format!("the {} given files {names:?}", names.len())
        })
    }

    fn find(
        read: impl Fn(&str) -> Result<Option<Cow<'a, [u8]>>, TokenizerError>,
        place: impl Fn() -> String,
    ) -> Result<Self, TokenizerError> {
        Ok(Self {
            tokenizer_json: read(TOKENIZER_JSON)?.ok_or_else(|| TokenizerError::MissingFile {
                file: TOKENIZER_JSON,
                place: place(),
            })?,
            tokenizer_config_json: read(TOKENIZER_CONFIG_JSON)?,
            chat_template_jinja: read(CHAT_TEMPLATE_JINJA)?,
            generation_config_json: read(GENERATION_CONFIG_JSON)?,
        })
    }
}

/// `bytes` as the JSON of `file`.
pub(crate) fn parse_json<'de, T: serde::Deserialize<'de>>(
    file: &'static str,
    bytes: &'de [u8],
) -> Result<T, TokenizerError> {
    serde_json::from_slice(bytes).map_err(|error| {
        // serde_json ends its message with the place, which has its own fields here.
        let message = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        TokenizerError::BrokenJson {
            file,
            line: error.line(),
            column: error.column(),
            message: message.strip_suffix(&place).unwrap_or(&message).to_owned(),
        }
    })
}
