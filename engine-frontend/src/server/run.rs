//! The life of the server's process.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::access_args::AccessArgs;
use super::api_keys::ApiKeys;
use super::args::{LogFormat, ServeArgs, ServerArgs};
use super::audit_log::AuditLog;
use super::connections::{Connections, Limits};
use super::error::ServeError;
use super::listener::Listener;
use super::router::{management_router, router};
use super::state::AppState;
use crate::arg_utils::EngineArgs;
use crate::async_llm::AsyncLLM;
use crate::data_parallel::DataParallelClient;
use crate::freed_memory::keep_little_freed_memory;
use crate::metrics::{LoggingStatLogger, PrometheusStatLogger, StatLogger};
use crate::openai::{ChatSettings, OpenAIServing};
#[cfg(feature = "opentelemetry")]
use crate::otlp::OtlpTracer;
use crate::startup::start_supervised_engine;
use crate::supervisor::SupervisorOptions;

/// How long connections may take to send what is finished, when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Connections to the management port: a scraper, probes and a person. They have places of their own, so
/// that no client keeps them out.
const MAX_MANAGEMENT_CONNECTIONS: u32 = 64;
/// How often a server looks whether its engine is gone for good.
const ENGINE_CHECK: Duration = Duration::from_millis(200);
/// Time between two lines of statistics, as in vLLM.
const LOG_STATS_INTERVAL: Duration = Duration::from_secs(10);

/// What a server says when it is ready.
#[derive(Debug)]
pub struct Ready {
    /// Where it listens: `http://...` or `unix:...`.
    pub address: String,
    /// What it serves, and how that was chosen; lines for people.
    pub summary: String,
}

/// Serves until SIGTERM or SIGINT, or until the engine is gone for good. Calls `on_ready` once,
/// when requests may come.
///
/// # Errors
/// The server can't start, or its engine is gone.
pub async fn serve(args: &ServeArgs, on_ready: impl FnOnce(&Ready)) -> Result<(), ServeError> {
    keep_little_freed_memory();
    let engine_args = args.engine_args();
    // First: a taken address is found before a model is loaded.
    let listener = Listener::bind(&args.server).await?;
    let management_args = management_args(&args.server);
    let management = match &management_args {
        Some(args) => Some(Listener::bind(args).await?),
        None => None,
    };
    let keys = ApiKeys::load(&args.server.access)?;
    if !listener.is_loopback && !keys.are_required() {
        tracing::warn!(
            "whoever reaches {} may use this server: it asks for no key. Give --api-key, or \
             --host 127.0.0.1 for this machine alone",
            listener.address
        );
    }
    let mut signals = Signals::new()?;
    // Before the model is loaded: the signal would end the process.
    let hang_up = match args.server.access.api_keys {
        Some(_) => Some(signal(SignalKind::hangup())?),
        None => None,
    };
    let options = SupervisorOptions {
        max_restarts: if args.server.no_restart {
            0
        } else {
            args.server.max_restarts
        },
        health_stall: args.server.health_stall_seconds,
        ..SupervisorOptions::default()
    };
    let json_logs = args.server.log_format == LogFormat::Json;
    let started = tokio::select! {
        started = start_supervised_engine(&engine_args, json_logs, options) => started?,
        () = signals.next() => return Ok(()),
    };
    let (engine, defaults, cores) = started;
    let engine = Arc::new(engine);
    let names = served_model_names(args, &engine_args);
    let name = names.first().cloned().unwrap_or_default();
    let ready_responses = cores.cores().iter().map(|core| core.ready_response());
    let metrics = Arc::new(PrometheusStatLogger::new(name, ready_responses));
    for (index, core) in (0..).zip(cores.cores()) {
        if let Some(stats) = core.kv_event_stats() {
            metrics.show_kv_events(index, stats);
        }
    }
    let mut loggers: Vec<Arc<dyn StatLogger>> = vec![metrics.clone()];
    if !args.server.disable_log_stats {
        loggers.push(Arc::new(LoggingStatLogger::new(cores.cores().len())));
        tokio::spawn(log_stats(Arc::downgrade(&engine)));
    }
    #[cfg(feature = "opentelemetry")]
    let tracer = match &args.server.otlp_traces_endpoint {
        Some(endpoint) => Some(Arc::new(OtlpTracer::new(endpoint.uri())?)),
        None => None,
    };
    #[cfg(feature = "opentelemetry")]
    loggers.extend(tracer.clone().map(|tracer| tracer as Arc<dyn StatLogger>));
    engine.set_stat_loggers(loggers);
    let audit_log = audit_log(&args.server.access, &metrics)?;
    let ready = Ready {
        summary: summary(&names, &engine_args, &cores),
        address: listener.address.clone(),
    };
    let serving = OpenAIServing::new(engine.clone(), names, defaults)
        .with_prompt_tokens_details(args.server.enable_prompt_tokens_details)
        .with_chat_settings(ChatSettings {
            default_chat_template_kwargs: (*args.server.default_chat_template_kwargs).clone(),
            trust_request_chat_template: args.server.trust_request_chat_template,
            exclude_tools_when_tool_choice_none: !args
                .server
                .no_exclude_tools_when_tool_choice_none,
            response_role: args.server.response_role.clone(),
        });
    let format = &args.server.tool_format_file;
    let format = format
        .as_ref()
        .or(args.server.tool_call_parser.as_ref().as_ref());
    let serving = match format {
        Some(format) => serving.with_tool_call_format(Arc::clone(format)),
        None => serving,
    };
    let app = Arc::new(AppState::new(
        serving, cores, metrics, args, keys, audit_log,
    ));
    app.cores.on_event({
        let app = Arc::downgrade(&app);
        move |index, event| {
            app.upgrade()
                .iter()
                .for_each(|app| app.metrics.record_event(index, event))
        }
    });
    if let Some(hang_up) = hang_up {
        tokio::spawn(reload_keys(app.clone(), hang_up));
    }
    let (end, ending) = watch::channel(false);
    let server_args = args.server.clone();
    let connections = tokio::spawn({
        let (router, connections) = (router(app.clone()), app.connections.clone());
        let ending = ending.clone();
        async move {
            listener
                .run(router, &server_args, connections, ending)
                .await
        }
    });
    if let (Some(listener), Some(args)) = (management, management_args) {
        tracing::info!("management at {}", listener.address);
        let router = management_router(app.clone(), listener.is_loopback);
        let connections = Connections::new(Limits::new(&args, false));
        // Its clients don't keep the server.
        tokio::spawn(async move { listener.run(router, &args, connections, ending).await });
    }
    on_ready(&ready);

    let dead = tokio::select! {
        () = signals.next() => None,
        dead = engine_death(&engine) => Some(dead),
    };
    app.draining.store(true, Ordering::Relaxed);
    let seconds = engine_args.shutdown_timeout;
    // While requests are finished, whoever comes is told so rather than not let in.
    let drains = dead.is_none() && seconds > 0.0;
    end.send_replace(!drains);
    let result = match dead {
        Some(dead) => Err(ServeError::EngineDead(dead)),
        None => {
            tracing::info!("ending; requests in flight have {seconds} s to finish");
            tokio::select! {
                shut_down = engine.shutdown(seconds) => shut_down.map_err(ServeError::EngineDead),
                // A second signal is impatience.
                () = signals.next() => Ok(()),
            }
        }
    };
    end.send_replace(true);
    if timeout(LAST_WORDS, connections).await.is_err() {
        tracing::warn!("some clients did not take in their answers in time");
    }
    if let Some(audit_log) = app.audit_log.clone() {
        // It waits for a thread.
        let _ = spawn_blocking(move || audit_log.flush()).await;
    }
    #[cfg(feature = "opentelemetry")]
    if let Some(tracer) = tracer {
        tracer.shutdown().await;
    }
    result
}

/// The management port's own flags; `None` without one.
fn management_args(args: &ServerArgs) -> Option<ServerArgs> {
    let port = args.access.management_port?;
    Some(ServerArgs {
        host: args.access.management_host.clone(),
        port,
        uds: None,
        max_connections: MAX_MANAGEMENT_CONNECTIONS,
        ..args.clone()
    })
}

/// The audit log, where it is asked for.
fn audit_log(
    args: &AccessArgs,
    metrics: &Arc<PrometheusStatLogger>,
) -> Result<Option<AuditLog>, ServeError> {
    let Some(path) = &args.audit_log else {
        return Ok(None);
    };
    let metrics = metrics.clone();
    let log = AuditLog::open(path, move || metrics.record_lost_audit_line());
    log.map(Some).map_err(|error| ServeError::AuditLog {
        path: path.clone(),
        error,
    })
}

/// Reads the file of keys again at each SIGHUP.
async fn reload_keys(app: Arc<AppState>, mut hang_up: Signal) {
    while hang_up.recv().await.is_some() {
        let reloading = app.clone();
        // It reads a file.
        let reloaded = spawn_blocking(move || reloading.keys.reload()).await;
        match reloaded {
            Ok(Ok(count)) => tracing::info!("--api-keys was read again: {count} keys"),
            Ok(Err(error)) => tracing::error!("the keys stay as they were: {error}"),
            Err(error) => tracing::error!("the keys stay as they were: {error}"),
        }
    }
}

/// Logs statistics every few seconds, for as long as there is the engine.
async fn log_stats(engine: Weak<AsyncLLM>) {
    let mut ticker = interval(LOG_STATS_INTERVAL);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticker.tick().await;
        match engine.upgrade() {
            Some(engine) => engine.do_log_stats(),
            None => return,
        }
    }
}

/// Waits until the engine is gone for good.
async fn engine_death(engine: &AsyncLLM) -> crate::error::EngineDeadError {
    loop {
        if let Some(dead) = engine.errored() {
            return dead;
        }
        tokio::time::sleep(ENGINE_CHECK).await;
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => (),
            _ = self.interrupt.recv() => (),
        }
    }
}

/// What the model is called: as asked for, or its path or its name on the Hub as it was given, as in vLLM.
fn served_model_names(args: &ServeArgs, engine_args: &EngineArgs) -> Vec<String> {
    if !args.server.served_model_name.is_empty() {
        return args.server.served_model_name.clone();
    }
    vec![match (&engine_args.hub_name, &engine_args.model) {
        (Some(name), _) => name.clone(),
        (None, Some(path)) => path.display().to_string(),
        (None, None) => builtin_model::NAME.to_owned(),
    }]
}

fn summary(names: &[String], engine_args: &EngineArgs, cores: &DataParallelClient) -> String {
    let ready = cores.ready_response();
    let chosen = if engine_args.engine_core_address.is_some() {
        "by the engine core"
    } else if engine_args.num_blocks_override.is_some() {
        "--num-blocks-override"
    } else if engine_args.kv_cache_memory_bytes.is_some() {
        "--kv-cache-memory-bytes"
    } else {
        "from the machine's free memory"
    };
    let mebibytes = ready.kv_cache_bytes >> 20;
    let tokens = u64::from(ready.num_blocks.saturating_sub(1)) * u64::from(ready.block_size);
    let queue = match ready.max_num_queued_reqs {
        Some(limit) => format!("{limit} waiting"),
        None => "any number waiting".to_owned(),
    };
    let engines = match cores.cores().len() {
        1 => String::new(),
        size => format!(", shared out among {size} engine cores"),
    };
    let is_built_in = engine_args.model.is_none() && engine_args.engine_core_address.is_none();
    let built_in = match is_built_in {
        true => "no MODEL was given: this is the small built-in model, for trying things out\n",
        false => "",
    };
    format!(
        "{built_in}\
         model      {} ({}, {})\n\
         context    {} tokens\n\
         KV cache   {mebibytes} MiB for {tokens} tokens, {chosen} (reserved; memory is taken as it \
         fills)\n\
         requests   {} running, {queue}, {} tokens per step\n\
         threads    {}{engines}",
        names.join(", "),
        ready.model_name,
        ready.dtype,
        ready.max_model_len,
        ready.max_num_seqs,
        ready.max_num_batched_tokens,
        ready.num_threads,
    )
}
