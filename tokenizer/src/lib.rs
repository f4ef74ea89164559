//! Tokenizers as models ship them: text to token ids and back, the bytes that each token writes,
//! special tokens, the chat template and the model's sampling defaults.
//!
//! Both processes use it: the frontend encodes prompts and decodes outputs, the core needs the
//! vocabulary's bytes. [`Tokenizer::fingerprint`] tells whether the two mean the same.
//!
//! What it is: a Hugging Face folder's `tokenizer.json` (byte-level BPE as in GPT-2, Llama 3 and
//! Qwen; SentencePiece-style BPE with `▁` and byte fallback as in Llama 2 and Gemma) and the
//! files beside it. Encoding is the `tokenizers` crate's. What it is not: it downloads nothing,
//! trains nothing, and refuses by name what it can't decode byte by byte (WordPiece, Unigram).
//!
//! ```
//! use tokenizer::Tokenizer;
//!
//! // A byte-level BPE of five tokens and one that ends the text.
//! let tokenizer_json = r#"{
//!     "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
//!     "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
//!                       "trim_offsets": true, "use_regex": true},
//!     "post_processor": null,
//!     "decoder": {"type": "ByteLevel", "add_prefix_space": false,
//!                 "trim_offsets": true, "use_regex": true},
//!     "added_tokens": [{"id": 5, "content": "<end>", "special": true, "single_word": false,
//!                       "lstrip": false, "rstrip": false, "normalized": false}],
//!     "model": {"type": "BPE", "vocab": {"h": 0, "i": 1, "Ġ": 2, "hi": 3, "Ġhi": 4},
//!               "merges": [["h", "i"], ["Ġ", "hi"]]}
//! }"#;
//! let tokenizer = Tokenizer::from_bytes(&[
//!     ("tokenizer.json", tokenizer_json.as_bytes()),
//!     ("tokenizer_config.json", br#"{"eos_token": "<end>"}"#),
//! ])?;
//! assert_eq!(tokenizer.encode("hi hi<end>", false)?, [3, 4, 5]);
//! assert_eq!(tokenizer.token_bytes(4), b" hi");
//! assert_eq!(tokenizer.decode(&[3, 4, 5], true), "hi hi");
//! assert_eq!(tokenizer.eos_token_id(), Some(5));
//! # Ok::<(), tokenizer::TokenizerError>(())
//! ```

mod chat_template;
mod config;
mod decode_stream;
mod error;
mod file_content;
mod files;
mod gguf;
mod json_limits;
mod model_file;
mod token_bytes;
mod tokenizer;
mod tokenizer_json;
mod weights_fingerprint;
mod word_ends;

pub use chat_template::{
    ChatTemplate, ChatTemplateError, ChatTemplateRequest, ChatTemplates, TemplateMessage,
    TemplateValue, TemplateVariables, mentions_name,
};
pub use config::GenerationConfig;
pub use decode_stream::DecodeStream;
pub use error::TokenizerError;
pub use file_content::{SAMPLE_BYTES, hash_content};
pub use model_file::{ModelFileError, open_model_file, read_model_file};
pub use tokenizer::Tokenizer;
pub use weights_fingerprint::weights_fingerprint;
