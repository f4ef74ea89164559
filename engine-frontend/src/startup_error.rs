//! Why an engine can't be started.

use std::io;
use std::path::PathBuf;

use hub::HubError;
use tokenizer::TokenizerError;

use crate::engine_core_client::EngineCoreStartupError;
use crate::error::ValidationError;
use crate::kv_events::KVEventsError;

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// The model isn't there.
    #[error(
        "no model at {}: give a folder, a GGUF file, or a name on the Hub such as Qwen/Qwen3-0.6B",
        .path.display()
    )]
    NoModel {
        /// The path given.
        path: PathBuf,
    },
    /// The draft model isn't there, or can't be downloaded.
    #[error("--speculative-config: {0}")]
    DraftModel(Box<StartupError>),
    /// There is neither a path nor a repository of that name.
    #[error("no folder or file is called {name}, and {source}")]
    NotOnTheHub {
        /// The model as it was given.
        name: String,
        /// What the Hub says.
        source: Box<HubError>,
    },
    /// The model's files can't be downloaded.
    #[error(transparent)]
    Hub(#[from] Box<HubError>),
    /// The tokenizer can't be loaded.
    #[error("can't load the tokenizer{}", of_model(.model, .source))]
    Tokenizer {
        /// The model's folder, file or name.
        model: String,
        /// Why not.
        source: TokenizerError,
    },
    /// The GGUF file is broken, or of a kind that is not supported.
    #[error("can't load {0}")]
    Gguf(TokenizerError),
    /// Flags that are wrong together, or with this model.
    #[error(transparent)]
    Flags(#[from] ValidationError),
    /// The core can't be started or reached.
    #[error(transparent)]
    EngineCore(#[from] EngineCoreStartupError),
    /// The core runs a model with another tokenizer.
    #[error(
        "the engine core has the tokenizer {core} (of its model {core_model}), this frontend has \
         {own}: give both the same --model"
    )]
    TokenizerMismatch {
        /// Fingerprint in the core.
        core: String,
        /// The core's model.
        core_model: String,
        /// Fingerprint here.
        own: String,
    },
    /// The core runs another model with the same tokenizer.
    #[error(
        "the engine core runs the model {core:?}, and this frontend was given {own:?}: give both \
         the same --model"
    )]
    OtherModel {
        /// The core's model.
        core: String,
        /// The model given here.
        own: String,
    },
    /// The core runs another model with the same name and tokenizer.
    #[error(
        "the engine core runs a model {name:?} with the weights {core}, and {} has {own}: give both \
         the same --model",
        path.display()
    )]
    OtherWeights {
        /// The model's name.
        name: String,
        /// What identifies the core's weights.
        core: String,
        /// What identifies those given here.
        own: String,
        /// Where these are.
        path: PathBuf,
    },
    /// An address for KV events can't be had.
    #[error(transparent)]
    KVEvents(#[from] KVEventsError),
    /// One of several cores can't be started.
    #[error("engine core {index} of {size} (--data-parallel-size) can't be started: {source}")]
    Replica {
        /// The core's number, from 0.
        index: u32,
        /// How many cores there were to be.
        size: u32,
        /// Why not.
        source: EngineCoreStartupError,
    },
    /// One of several cores serves something else than the first.
    #[error("engine core {index} can't stand beside engine core 0: it has {difference}")]
    OtherReplica {
        /// The core's number, from 0.
        index: u32,
        /// What both have.
        difference: String,
    },
    /// The async runtime can't be started.
    #[error("can't start the async runtime: {0}")]
    Runtime(io::Error),
}

/// "of the model: why", where the reason doesn't name it.
fn of_model(model: &str, source: &TokenizerError) -> String {
    let source = source.to_string();
    match source.contains(model) {
        true => format!(": {source}"),
        false => format!(" of {model}: {source}"),
    }
}
