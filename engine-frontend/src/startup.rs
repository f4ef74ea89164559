//! From command-line flags to an engine that is ready.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use protocol::LoadProgress;
use tokenizer::{GenerationConfig, Tokenizer, TokenizerError};

use crate::arg_utils::{EngineArgs, GenerationConfigArg};
use crate::async_llm::AsyncLLM;
use crate::engine_core_client::{EngineCoreClient, EngineCoreStartupError, LaunchOptions};
use crate::openai::DefaultSamplingParams;

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// The model's folder isn't there.
    #[error("no model folder at {}: --model takes a Hugging Face folder", .path.display())]
    NoModelFolder {
        /// The path given.
        path: PathBuf,
    },
    /// The tokenizer can't be loaded.
    #[error("can't load the tokenizer of {model}: {source}")]
    Tokenizer {
        /// The model's folder or name.
        model: String,
        /// Why not.
        source: TokenizerError,
    },
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
    /// The async runtime can't be started.
    #[error("can't start the async runtime: {0}")]
    Runtime(io::Error),
}

/// Loads the tokenizer, starts (or connects to) a core and waits until it is ready.
///
/// # Errors
/// Why not; no process is left behind then.
pub async fn start_engine(
    args: &EngineArgs,
) -> Result<(AsyncLLM, DefaultSamplingParams), StartupError> {
    let model = args.model.clone();
    if let Some(path) = model.as_ref().filter(|path| !path.is_dir()) {
        return Err(StartupError::NoModelFolder { path: path.clone() });
    }
    // Both processes load the tokenizer, at the same time.
    let tokenizer = tokio::task::spawn_blocking(move || load_tokenizer(model.as_deref()));
    let progress = LoadProgressBar::default();
    let (tokenizer, client) = tokio::join!(tokenizer, start_engine_core(args, &progress));
    progress.finish();
    // The tokenizer's error comes first: it names the file, the core's may follow from it.
    let tokenizer = tokenizer.map_err(|error| StartupError::Runtime(error.into()))??;
    let client = client?;
    let ready = client.ready_response().clone();
    if ready.tokenizer_fingerprint != tokenizer.fingerprint() {
        return Err(StartupError::TokenizerMismatch {
            core: ready.tokenizer_fingerprint,
            core_model: ready.model_name,
            own: tokenizer.fingerprint().to_owned(),
        });
    }
    let defaults = match args.generation_config {
        GenerationConfigArg::Auto => default_sampling_params(tokenizer.generation_config()),
        GenerationConfigArg::Vllm => DefaultSamplingParams::default(),
    };
    let engine = AsyncLLM::new(Arc::new(client), ready, Arc::new(tokenizer));
    Ok((engine, defaults))
}

async fn start_engine_core(
    args: &EngineArgs,
    progress: &LoadProgressBar,
) -> Result<EngineCoreClient, EngineCoreStartupError> {
    let options = LaunchOptions {
        engine_core: args.engine_core.clone(),
        ..LaunchOptions::default()
    };
    let on_progress = |loaded| progress.update(loaded);
    match &args.engine_core_address {
        Some(address) => {
            let address = Path::new(address);
            EngineCoreClient::connect(address, options.startup_timeout, on_progress).await
        }
        None => EngineCoreClient::launch(&options, args.engine_config(), on_progress).await,
    }
}

fn load_tokenizer(model: Option<&Path>) -> Result<Tokenizer, StartupError> {
    let Some(folder) = model else {
        return load_built_in_tokenizer();
    };
    Tokenizer::from_files(folder).map_err(|source| StartupError::Tokenizer {
        model: folder.display().to_string(),
        source,
    })
}

fn load_built_in_tokenizer() -> Result<Tokenizer, StartupError> {
    // Without the weights, which only the core needs.
    let files = [
        ("generation_config.json", builtin_model::GENERATION_CONFIG_JSON),
        ("tokenizer.json", builtin_model::TOKENIZER_JSON),
        ("tokenizer_config.json", builtin_model::TOKENIZER_CONFIG_JSON),
    ];
    Tokenizer::from_bytes(&files).map_err(|source| StartupError::Tokenizer {
        model: "the built-in model".to_owned(),
        source,
    })
}

/// The model's own recommendations.
fn default_sampling_params(config: &GenerationConfig) -> DefaultSamplingParams {
    DefaultSamplingParams {
        temperature: config.temperature,
        top_p: config.top_p,
        // 0 and -1 are off.
        top_k: config
            .top_k
            .map(|top_k| u32::try_from(top_k.max(0)).unwrap_or(0)),
        min_p: config.min_p,
        repetition_penalty: config.repetition_penalty,
        max_tokens: config.max_new_tokens,
    }
}

/// How far the weights are, at a terminal.
#[derive(Debug, Default)]
struct LoadProgressBar(std::sync::OnceLock<ProgressBar>);

impl LoadProgressBar {
    fn update(&self, loaded: LoadProgress) {
        if !io::stderr().is_terminal() {
            return;
        }
        let bar = self.0.get_or_init(|| {
            let bar = ProgressBar::new(loaded.total_bytes);
            let template = "loading the model {bar:30} {bytes}/{total_bytes} [{elapsed}]";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        bar.set_position(loaded.done_bytes);
    }

    fn finish(&self) {
        if let Some(bar) = self.0.get() {
            bar.finish_and_clear();
        }
    }
}
