//! The model that comes with Formwork, as bytes.
//!
//! A first command needs a model, and a machine without network can download none. So this library
//! carries one: a Qwen3 network of about three million parameters, trained by the scripts in
//! `training/` on text that they generate. It fills JSON from a sentence, writes a `SELECT`, calls
//! tools, does small sums between `<think>` and `</think>`, names a sentiment, and greets. Its card,
//! `MODEL_CARD.md`, says how well it was measured to do each.
//!
//! It is not a model to learn facts from: it knows little beyond its word lists, and what it is good
//! at is copying and reshaping what the prompt gives.
//!
//! The constants are the files of the folder `model/`, which is an ordinary Hugging Face checkpoint;
//! whoever loads checkpoints can load these. Nothing is parsed here, and nothing is allocated.
//!
//! ```
//! // The chat template stands in the tokenizer's configuration.
//! let config = std::str::from_utf8(builtin_model::TOKENIZER_CONFIG_JSON).expect("UTF-8");
//! assert!(config.contains("\"chat_template\""));
//!
//! // Written to a folder, the files are a checkpoint.
//! let names: Vec<&str> = builtin_model::FILES.iter().map(|(name, _)| *name).collect();
//! assert_eq!(
//!     names,
//!     ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"],
//! );
//! ```

/// The name under which Formwork lists the model.
pub const NAME: &str = "formwork-builtin";

/// The architecture and its sizes, as `transformers` writes them.
pub const CONFIG_JSON: &[u8] = include_bytes!("../model/config.json");

/// The ids that end an answer.
pub const GENERATION_CONFIG_JSON: &[u8] = include_bytes!("../model/generation_config.json");

/// The weights in bfloat16, six and a half megabytes; the head shares the embedding's.
pub static MODEL_SAFETENSORS: &[u8] = include_bytes!("../model/model.safetensors");

/// The byte-level BPE vocabulary of 4,096 tokens.
pub const TOKENIZER_JSON: &[u8] = include_bytes!("../model/tokenizer.json");

/// The control tokens and the chat template.
pub const TOKENIZER_CONFIG_JSON: &[u8] = include_bytes!("../model/tokenizer_config.json");

/// Every file of the checkpoint by its name, ordered by name.
pub static FILES: &[(&str, &[u8])] = &[
    ("config.json", CONFIG_JSON),
    ("generation_config.json", GENERATION_CONFIG_JSON),
    ("model.safetensors", MODEL_SAFETENSORS),
    ("tokenizer.json", TOKENIZER_JSON),
    ("tokenizer_config.json", TOKENIZER_CONFIG_JSON),
];
