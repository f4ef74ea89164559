//! From command-line flags to an engine that is ready.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use protocol::{EngineCoreReadyResponse, LoadProgress};
use tokenizer::{GenerationConfig, Tokenizer, TokenizerError, weights_fingerprint};
use tokio::task::{JoinError, JoinSet};

use crate::arg_utils::{DeviceArg, EngineArgs, GenerationConfigArg, QuantizationArg};
use crate::async_llm::AsyncLLM;
use crate::data_parallel::DataParallelClient;
use crate::engine_core_client::{
    EngineCoreClient, EngineCoreStartupError, LaunchOptions, SharedWeights,
};
use crate::error::ValidationError;
use crate::fetch_model::fetch_model;
use crate::kv_events::{KVEventPublisher, KVEventsError};
use crate::openai::DefaultSamplingParams;
use crate::pooler_config::PoolerConfig;
use crate::progress_display::ProgressDisplay;
use crate::sampling_params::verify_ranges;
use crate::startup_error::StartupError;
use crate::supervisor::{CoreSource, SupervisedCore, SupervisorOptions, difference};

/// Loads the tokenizer, starts (or connects to) a core and waits until it is ready. The model is on this
/// machine: [`fetch_model`] puts it there. Of several cores each is replaced when it dies, since the others go on.
///
/// # Errors
/// Why not; no process is left behind then.
pub async fn start_engine(
    args: &EngineArgs,
) -> Result<(AsyncLLM, DefaultSamplingParams), StartupError> {
    if args.data_parallel_size > 1 || args.kv_events().is_some() {
        let options = match args.data_parallel_size {
            // Nobody goes on in its place.
            1 => SupervisorOptions {
                max_restarts: 0,
                ..SupervisorOptions::default()
            },
            _ => SupervisorOptions::default(),
        };
        let (engine, defaults, _) = start_supervised_engine(args, false, options).await?;
        return Ok((engine, defaults));
    }
    let (client, tokenizer, defaults) = start_core(args, &launch_options(args)).await?;
    let ready = client.ready_response().clone();
    let engine = AsyncLLM::new(Arc::new(client), ready, Arc::new(tokenizer))
        .with_structured_outputs(args.structured_outputs())?
        .with_pooler_config(args.pooler()?);
    Ok((engine, defaults))
}

/// Downloads the model where it is a name on the Hub, and starts an engine. Returns the flags that were
/// used: [`fetch_model`]'s.
///
/// # Errors
/// As [`fetch_model`] and [`start_engine`].
pub(crate) async fn fetch_and_start_engine(
    args: &EngineArgs,
) -> Result<(EngineArgs, AsyncLLM, DefaultSamplingParams), StartupError> {
    let given = args.clone();
    let fetching = tokio::task::spawn_blocking(move || fetch_model(&given));
    let args = fetching
        .await
        .map_err(|error| StartupError::Runtime(error.into()))??;
    let (engine, defaults) = start_engine(&args).await?;
    Ok((args, engine, defaults))
}

/// An engine as [`start_engine`] makes it, whose cores are replaced when they die or hang. `json_logs` says how they log.
///
/// # Errors
/// Why there is no core; no process is left behind then.
pub async fn start_supervised_engine(
    args: &EngineArgs,
    json_logs: bool,
    options: SupervisorOptions,
) -> Result<(AsyncLLM, DefaultSamplingParams, Arc<DataParallelClient>), StartupError> {
    let launch = LaunchOptions {
        json_logs,
        ..launch_options(args)
    };
    let options = SupervisorOptions {
        has_siblings: args.data_parallel_size > 1,
        ..options
    };
    args.verify()?;
    // First: a taken address is found before a model is loaded.
    let publishers = kv_event_publishers(args).await?;
    let (client, tokenizer, defaults) = start_core(args, &launch).await?;
    let others = start_other_cores(args, &launch, client.ready_response()).await?;
    let supervise = |(client, source)| SupervisedCore::new(client, source, options);
    let source = match &args.engine_core_address {
        Some(address) => CoreSource::Connect(address.into(), launch.startup_timeout),
        None => source_of(args, 0, &launch, client.ready_response()),
    };
    let first = supervise((client, source));
    let others = others.into_iter().map(supervise).collect();
    let cores = DataParallelClient::new(first, others);
    for (core, publisher) in cores.cores().iter().zip(publishers) {
        core.publish_kv_events(publisher);
    }
    let ready = cores.ready_response().clone();
    let engine = AsyncLLM::new(cores.clone(), ready, Arc::new(tokenizer))
        .with_structured_outputs(args.structured_outputs())?
        .with_pooler_config(args.pooler()?);
    Ok((engine, defaults, cores))
}

/// What publishes the events of each core, where they are published.
async fn kv_event_publishers(args: &EngineArgs) -> Result<Vec<KVEventPublisher>, KVEventsError> {
    let mut publishers = Vec::new();
    if let Some(config) = args.kv_events() {
        for rank in 0..args.data_parallel_size {
            publishers.push(KVEventPublisher::start(config, rank).await?);
        }
    }
    Ok(publishers)
}

/// Where core `rank` comes from, beside the first or after it. Each has the length and the blocks of the first, however
/// much memory is free when it starts: an answer must not depend on the core that gives it.
fn source_of(
    args: &EngineArgs,
    rank: u32,
    launch: &LaunchOptions,
    first: &EngineCoreReadyResponse,
) -> CoreSource {
    let mut config = args.engine_config_of(rank);
    config.model_config.max_model_len = Some(first.max_model_len);
    config.cache_config.num_blocks_of_first = Some(first.num_blocks);
    CoreSource::Launch(Box::new((launch.clone(), config)))
}

/// Starts the cores beside the first, all at once: the weights that it has made ready are theirs too.
async fn start_other_cores(
    args: &EngineArgs,
    launch: &LaunchOptions,
    first: &EngineCoreReadyResponse,
) -> Result<Vec<(EngineCoreClient, CoreSource)>, StartupError> {
    let size = args.data_parallel_size;
    let mut starting = JoinSet::new();
    for index in 1..size {
        let source = source_of(args, index, launch, first);
        starting.spawn(async move {
            let client = source.client().await;
            (index, client.map(|client| (client, source)))
        });
    }
    let mut started = Vec::new();
    // A failure ends those that still start: they belong to the set.
    while let Some(joined) = starting.join_next().await {
        let (index, core) = joined.map_err(|error| StartupError::Runtime(error.into()))?;
        let core = core.map_err(|source| StartupError::Replica {
            index,
            size,
            source,
        })?;
        if let Some(difference) = difference(first, core.0.ready_response()) {
            return Err(StartupError::OtherReplica { index, difference });
        }
        started.push((index, core));
    }
    started.sort_by_key(|(index, _)| *index);
    Ok(started.into_iter().map(|(_, core)| core).collect())
}

/// A core that is ready and fits the tokenizer, and what requests get by default.
async fn start_core(
    args: &EngineArgs,
    launch: &LaunchOptions,
) -> Result<(EngineCoreClient, Tokenizer, DefaultSamplingParams), StartupError> {
    args.verify()?;
    let model = args.model.clone();
    if let Some(path) = model.as_ref().filter(|path| !path.exists()) {
        return Err(StartupError::NoModel { path: path.clone() });
    }
    if let Some(path) = args.draft_model().filter(|path| !path.exists()) {
        let path = path.to_owned();
        return Err(StartupError::DraftModel(Box::new(StartupError::NoModel {
            path,
        })));
    }
    let pooler = args.pooler()?;
    let (tokenizer, client) = load_both(
        tokio::task::spawn_blocking(move || load_tokenizer(model.as_deref())),
        start_engine_core(args, launch),
    )
    .await?;
    let ready = client.ready_response();
    verify_core(ready, tokenizer.fingerprint(), args.model.as_deref())?;
    if args.engine_core_address.is_some() {
        verify_weights(ready, args.model.clone()).await?;
    }
    verify_runner(client.ready_response(), pooler.as_ref())?;
    let defaults = match args.generation_config {
        GenerationConfigArg::Auto => default_sampling_params(tokenizer.generation_config()),
        GenerationConfigArg::Vllm => DefaultSamplingParams::default(),
    };
    let defaults = defaults.overridden_by(args.override_generation_config.unwrap_or_default());
    verify_defaults(&defaults)?;
    let tokenizer = match &args.chat_template {
        Some(template) => with_chat_template(tokenizer, template)?,
        None => tokenizer,
    };
    warn_of_templates(&tokenizer);
    Ok((client, tokenizer, defaults))
}

/// Says which of the model's chat templates can't be used: conversations will be refused.
fn warn_of_templates(tokenizer: &Tokenizer) {
    let templates = tokenizer.chat_templates();
    for name in templates.names() {
        if let Err(error) = templates.get(name) {
            tracing::warn!(
                "conversations will be refused: the model's chat template {name:?} can't be used: {error}; \
                 --chat-template gives another"
            );
        }
    }
}

/// The tokenizer with the chat template of a file, or with one that the flag is itself.
fn with_chat_template(tokenizer: Tokenizer, template: &str) -> Result<Tokenizer, StartupError> {
    let wrong = |why: String| {
        let message = format!("chat_template: {why}");
        StartupError::Flags(ValidationError::field("chat_template", template, message))
    };
    // No file's name has braces or line ends.
    let source = if template.contains(['{', '\n']) {
        template.to_owned()
    } else {
        std::fs::read_to_string(template).map_err(|error| wrong(format!("{template}: {error}")))?
    };
    let with_template = tokenizer.with_chat_template(&source);
    with_template.map_err(|error| wrong(error.to_string()))
}

fn launch_options(args: &EngineArgs) -> LaunchOptions {
    LaunchOptions {
        engine_core: args.engine_core.clone(),
        no_sandbox: args.no_sandbox,
        shared_weights: match args.device {
            DeviceArg::Cpu if args.data_parallel_size > 1 => SharedWeights::create(),
            _ => None,
        },
        ..LaunchOptions::default()
    }
}

/// Refuses a core that makes something else of prompts than this frontend asks for: one that was started by hand may.
fn verify_runner(
    ready: &EngineCoreReadyResponse,
    pooler: Option<&PoolerConfig>,
) -> Result<(), StartupError> {
    let own = PoolerConfig::runner(pooler);
    if own == ready.pooler.runner {
        return Ok(());
    }
    let message = format!(
        "the engine core's runner is {:?} and this frontend's {own:?}: give the core the runner in its model_config, \
         or this one --runner",
        ready.pooler.runner
    );
    Err(ValidationError::about("runner", message).into())
}

/// Refuses a core that runs another model than this frontend was given: one that was started by
/// hand may.
fn verify_core(
    ready: &EngineCoreReadyResponse,
    fingerprint: &str,
    model: Option<&Path>,
) -> Result<(), StartupError> {
    if ready.tokenizer_fingerprint != fingerprint {
        return Err(StartupError::TokenizerMismatch {
            core: ready.tokenizer_fingerprint.clone(),
            core_model: ready.model_name.clone(),
            own: fingerprint.to_owned(),
        });
    }
    let own = match model {
        Some(path) => path_name(path),
        None => builtin_model::NAME.to_owned(),
    };
    if own == ready.model_name {
        return Ok(());
    }
    Err(StartupError::OtherModel {
        core: ready.model_name.clone(),
        own,
    })
}

/// Refuses a core that was started by hand with other weights than those of the model given here, whose name and tokenizer are
/// the same. Where the weights aren't on this machine there is nothing to compare.
async fn verify_weights(
    ready: &EngineCoreReadyResponse,
    model: Option<PathBuf>,
) -> Result<(), StartupError> {
    let (Some(path), Some(core)) = (model, ready.weights_fingerprint.clone()) else {
        return Ok(());
    };
    let name = ready.model_name.clone();
    let looking = tokio::task::spawn_blocking(move || (weights_fingerprint(&path), path));
    let (own, path) = looking
        .await
        .map_err(|error| StartupError::Runtime(error.into()))?;
    match own {
        Ok(Some(own)) if own != core => Err(StartupError::OtherWeights {
            name,
            core,
            own,
            path,
        }),
        _ => Ok(()),
    }
}

/// A model's name as the core gives it: its folder's, without links and dots, or its file's.
fn path_name(path: &Path) -> String {
    let resolved = if path.is_file() {
        path.to_owned()
    } else {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    };
    let name = resolved.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Waits for the tokenizer and for the core, which load at the same time. A tokenizer that can't
/// be loaded is the error at once, and the core, whose future is dropped, ends. Where both fail the
/// tokenizer's error is given: it names the file, and the core's may follow from it.
async fn load_both(
    tokenizer: impl Future<Output = Result<Result<Tokenizer, StartupError>, JoinError>>,
    core: impl Future<Output = Result<EngineCoreClient, EngineCoreStartupError>>,
) -> Result<(Tokenizer, EngineCoreClient), StartupError> {
    let tokenizer = async {
        tokenizer
            .await
            .map_err(|error| StartupError::Runtime(error.into()))?
    };
    let (mut tokenizer, mut core) = (pin!(tokenizer), pin!(core));
    tokio::select! {
        biased;
        tokenizer = &mut tokenizer => Ok((tokenizer?, core.await?)),
        client = &mut core => Ok((tokenizer.await?, client?)),
    }
}

async fn start_engine_core(
    args: &EngineArgs,
    options: &LaunchOptions,
) -> Result<EngineCoreClient, EngineCoreStartupError> {
    let quantizes = args.quantization != QuantizationArg::None;
    let mut progress = ProgressDisplay::of_a_load(quantizes);
    let on_progress = |loaded: LoadProgress| progress.update_load(&loaded);
    match &args.engine_core_address {
        Some(address) => {
            let address = Path::new(address);
            EngineCoreClient::connect(address, options.startup_timeout, on_progress).await
        }
        None => EngineCoreClient::launch(options, args.engine_config(), on_progress).await,
    }
}

fn load_tokenizer(model: Option<&Path>) -> Result<Tokenizer, StartupError> {
    let Some(path) = model else {
        return load_built_in_tokenizer();
    };
    Tokenizer::from_files(path).map_err(|source| match source {
        // It is the whole file that was looked at, and the error names it.
        TokenizerError::Gguf { .. } => StartupError::Gguf(source),
        source => StartupError::Tokenizer {
            model: path.display().to_string(),
            source,
        },
    })
}

fn load_built_in_tokenizer() -> Result<Tokenizer, StartupError> {
    // Without the weights, which only the core needs.
    let files = [
        (
            "generation_config.json",
            builtin_model::GENERATION_CONFIG_JSON,
        ),
        ("tokenizer.json", builtin_model::TOKENIZER_JSON),
        (
            "tokenizer_config.json",
            builtin_model::TOKENIZER_CONFIG_JSON,
        ),
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

/// Refuses defaults by which every request without sampling parameters of its own would be refused.
fn verify_defaults(defaults: &DefaultSamplingParams) -> Result<(), ValidationError> {
    verify_ranges(&defaults.to_sampling_params()).map_err(|error| {
        let message = format!(
            "the model's sampling defaults can't be used: {error}; --override-generation-config gives \
             others, --generation-config vllm ignores them"
        );
        ValidationError::new(message)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_broken_tokenizer_is_reported_while_the_core_still_loads() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tokenizer.json"), "{").unwrap();
        // Never connects, and ends only when it is killed.
        let core = folder.path().join("core");
        fs::write(&core, "#!/bin/sh\nexec sleep 100000\n").unwrap();
        fs::set_permissions(&core, fs::Permissions::from_mode(0o755)).unwrap();
        let args = EngineArgs {
            engine_core: Some(core),
            ..EngineArgs::for_model(folder.path())
        };
        // Below the core's own ten minutes; an error takes milliseconds.
        let started = tokio::time::timeout(Duration::from_secs(60), start_engine(&args)).await;
        let error = started.expect("it waits for the core").unwrap_err();
        assert!(matches!(error, StartupError::Tokenizer { .. }), "{error}");
        assert!(error.to_string().contains("tokenizer.json"), "{error}");
    }

    #[test]
    fn defaults_that_no_request_could_have_are_refused() {
        let config = |change: fn(&mut GenerationConfig)| {
            let mut config = GenerationConfig::default();
            change(&mut config);
            verify_defaults(&default_sampling_params(&config)).map_err(|error| error.to_string())
        };
        assert_eq!(config(|_| {}), Ok(()));
        assert_eq!(config(|config| config.temperature = Some(0.0)), Ok(()));
        assert_eq!(config(|config| config.top_k = Some(-1)), Ok(()));
        let error = config(|config| config.temperature = Some(-1.0)).unwrap_err();
        assert!(
            error.contains("defaults")
                && error.contains("temperature must be between 0 and 2, got -1"),
            "{error}"
        );
        let error = config(|config| config.top_p = Some(7.0)).unwrap_err();
        assert!(error.contains("top_p must be greater than 0"), "{error}");
        let error = config(|config| config.min_p = Some(f32::NAN)).unwrap_err();
        assert!(error.contains("min_p"), "{error}");
        let error = config(|config| config.repetition_penalty = Some(0.0)).unwrap_err();
        assert!(error.contains("repetition_penalty"), "{error}");
    }

    #[test]
    fn a_core_with_another_model_is_refused() {
        let mut ready = crate::test_support::ready(64);
        ready.tokenizer_fingerprint = "f".to_owned();
        let verify = |ready: &_, folder: &str| verify_core(ready, "f", Some(Path::new(folder)));
        assert!(verify(&ready, "models/test-model").is_ok());
        assert!(verify(&ready, "models/test-model/").is_ok());
        let error = verify(&ready, "models/other").unwrap_err().to_string();
        assert!(
            error.contains("\"test-model\"") && error.contains("\"other\""),
            "{error}"
        );
        let built_in = verify_core(&ready, "f", None).unwrap_err().to_string();
        assert!(built_in.contains(builtin_model::NAME), "{built_in}");
        assert!(matches!(
            verify_core(&ready, "g", None),
            Err(StartupError::TokenizerMismatch { .. })
        ));
        ready.model_name = builtin_model::NAME.to_owned();
        assert!(verify_core(&ready, "f", None).is_ok());
    }

    #[test]
    fn a_model_has_the_name_of_the_folder_that_a_link_leads_to() {
        let parent = tempfile::tempdir().unwrap();
        let (real, link) = (parent.path().join("real"), parent.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        for folder in [&real, &link, &real.join("../link/.")] {
            assert_eq!(path_name(folder), "real");
        }
    }

    #[tokio::test]
    async fn where_both_fail_the_tokenizer_says_why() {
        let core_fails = async { Err(EngineCoreStartupError::Exited { exit_status: None }) };
        let tokenizer_fails = async {
            tokio::task::yield_now().await;
            Ok(Err(StartupError::NoModel { path: "m".into() }))
        };
        let error = load_both(tokenizer_fails, core_fails).await.unwrap_err();
        assert!(matches!(error, StartupError::NoModel { .. }), "{error}");
    }
}
