//! Why a tokenizer can't be loaded or used.

use std::path::PathBuf;

use structured_output::TokenizerInfoError;

use crate::model_file::ModelFileError;

/// Why a tokenizer can't be loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The path is neither a folder nor a file.
    #[error(
        "{path} is not a folder: a tokenizer is a folder with a tokenizer.json, or a GGUF file"
    )]
    NotAFolder {
        /// The path given.
        path: PathBuf,
    },
    /// A GGUF file is broken, or its tokenizer is of a kind that is not supported.
    #[error("{path}: {source}")]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<::gguf::GgufError>,
    },
    /// A file that must be there is not.
    #[error("{file} is missing in {place}")]
    MissingFile {
        /// Its name.
        file: &'static str,
        /// The folder, or what else was searched.
        place: String,
    },
    /// A file of the folder is not read.
    #[error(transparent)]
    File(#[from] ModelFileError),
    /// A file is not the JSON that it should be.
    #[error("{file}, line {line}, column {column}: {message}")]
    BrokenJson {
        /// Its name.
        file: &'static str,
        /// 1-based.
        line: usize,
        /// 1-based, in bytes; 0 is the line's end before.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// A text file is not UTF-8.
    #[error("{file} is not UTF-8: first wrong byte at {valid_up_to}")]
    NotUtf8 {
        /// Its name.
        file: &'static str,
        /// Bytes before the wrong one.
        valid_up_to: usize,
    },
    /// The tokenizer is of a kind that is not supported.
    #[error("tokenizer.json: {field} {value:?} is not supported; supported: {supported}")]
    Unsupported {
        /// Where it stands.
        field: &'static str,
        /// What stands there.
        value: String,
        /// What would be right.
        supported: &'static str,
    },
    /// The `tokenizers` library refuses the file.
    #[error("tokenizer.json: {message}")]
    Invalid {
        /// What it says.
        message: String,
    },
    /// A configuration file names a token that the tokenizer doesn't have.
    #[error("{file}: {field} is {token:?}, which is no token of tokenizer.json")]
    UnknownToken {
        /// The configuration file.
        file: &'static str,
        /// The field in it.
        field: &'static str,
        /// Its value.
        token: String,
    },
    /// A configuration file names an id that the tokenizer doesn't have.
    #[error("{file}: {field} is {token_id}, but the tokenizer's ids go from 0 to {}", vocab_size.saturating_sub(1))]
    UnknownTokenId {
        /// The configuration file.
        file: &'static str,
        /// The field in it.
        field: &'static str,
        /// Its value.
        token_id: u32,
        /// Highest id plus 1.
        vocab_size: usize,
    },
    /// The `tokenizers` library could not encode a text.
    #[error("can't encode the text: {message}")]
    Encode {
        /// What it says.
        message: String,
    },
    /// The vocabulary can't be used for structured output.
    #[error(transparent)]
    TokenizerInfo(#[from] TokenizerInfoError),
}
