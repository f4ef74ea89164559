//! The engine behind Dynamo's trait.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use dynamo_backend_common::{
    BackendError, DynamoError, EngineConfig, ErrorType, GenerateContext, KvEventSource, LLMEngine,
    LLMEngineOutput, LlmRegistration, MetricsBindings, MetricsCtx, PreprocessedRequest,
};
use engine_frontend::metrics::PrometheusStatLogger;
use engine_frontend::openai::DefaultSamplingParams;
use engine_frontend::{
    AsyncLLM, DataParallelClient, EngineArgs, SupervisorOptions, start_supervised_engine,
};
use futures::stream::{self, BoxStream};
use serde_json::{Value, json};

use crate::Args;
use crate::args::in_flags;
use crate::error::{error, of_generate};
use crate::metrics::{RANK, Snapshots};
use crate::output::{Answer, cancelled};
use crate::request::EngineRequest;

/// Between two looks at whether the engine is gone for good, as in `formwork serve`.
const ENGINE_CHECK: Duration = Duration::from_millis(200);

type Outputs = BoxStream<'static, Result<LLMEngineOutput, DynamoError>>;

/// Formwork as Dynamo's `LLMEngine`: a frontend in this process and an engine core, or several, in others. A core that
/// dies is replaced, and its requests go on.
#[derive(Debug)]
pub struct FormworkEngine {
    args: EngineArgs,
    served_model_name: String,
    running: Mutex<Option<Arc<Running>>>,
    death: OnceLock<String>,
}

/// An engine from its start to its end.
#[derive(Debug)]
struct Running {
    engine: AsyncLLM,
    cores: Arc<DataParallelClient>,
    defaults: DefaultSamplingParams,
    prometheus: Arc<PrometheusStatLogger>,
    snapshots: Arc<Snapshots>,
}

impl FormworkEngine {
    /// An engine that is not started. The model is on this machine ([`Args::worker_config`]).
    pub fn new(args: &Args) -> Self {
        Self {
            args: args.engine.clone(),
            served_model_name: args.served_model_name(),
            running: Mutex::new(None),
            death: OnceLock::new(),
        }
    }

    /// Why the cores were gone for good before [`cleanup`](LLMEngine::cleanup), if they were.
    pub fn death(&self) -> Option<&str> {
        self.death.get().map(String::as_str)
    }

    fn running(&self) -> MutexGuard<'_, Option<Arc<Running>>> {
        // It is set and taken whole.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn started(&self) -> Result<Arc<Running>, DynamoError> {
        let gone = || {
            let error_type = ErrorType::Backend(BackendError::EngineShutdown);
            error(error_type, "the engine is not started, or has ended")
        };
        self.running().clone().ok_or_else(gone)
    }
}

#[async_trait]
impl LLMEngine for FormworkEngine {
    async fn start(&self, _worker_id: u64) -> Result<EngineConfig, DynamoError> {
        let options = SupervisorOptions::default();
        let started = start_supervised_engine(&self.args, false, options).await;
        let (engine, defaults, cores) =
            started.map_err(|problem| in_flags(&problem.to_string()))?;
        if engine.pooler_config().is_some() {
            return Err(in_flags(
                "model: it generates no text (runner: pooling), and this worker serves chat and completions",
            ));
        }
        let name = self.served_model_name.clone();
        let each = cores.cores().iter().map(|core| core.ready_response());
        let running = Arc::new(Running {
            prometheus: Arc::new(PrometheusStatLogger::new(name.clone(), each.clone())),
            // One block of each is never used.
            snapshots: Arc::new(Snapshots::new(
                each.map(|ready| ready.num_blocks.saturating_sub(1)),
            )),
            engine,
            cores,
            defaults,
        });
        running
            .engine
            .set_stat_loggers(vec![running.prometheus.clone(), running.snapshots.clone()]);
        let prometheus = Arc::downgrade(&running.prometheus);
        running.cores.on_event(move |index, event| {
            prometheus
                .upgrade()
                .iter()
                .for_each(|counted| counted.record_event(index, event));
        });
        tokio::spawn(end_with(Arc::downgrade(&running)));
        let ready = running.cores.ready_response();
        let config = EngineConfig {
            model: name.clone(),
            served_model_name: Some(name),
            llm: Some(LlmRegistration {
                context_length: Some(ready.max_model_len),
                kv_cache_block_size: Some(ready.block_size),
                total_kv_blocks: Some(u64::from(ready.num_blocks.saturating_sub(1))),
                max_num_seqs: Some(u64::from(ready.max_num_seqs)),
                max_num_batched_tokens: Some(u64::from(ready.max_num_batched_tokens)),
                ..LlmRegistration::default()
            }),
            ..EngineConfig::default()
        };
        *self.running() = Some(running);
        Ok(config)
    }

    async fn generate(
        &self,
        request: PreprocessedRequest,
        context: GenerateContext,
    ) -> Result<Outputs, DynamoError> {
        let running = self.started()?;
        let context = context.inner_arc();
        let mut request = EngineRequest::new(context.id(), request, &running.defaults)?;
        let params = &mut request.request.sampling_params;
        params.seed = params.seed.or(self.args.seed);
        // A constraint that takes long to check has a client that may leave.
        let outputs = tokio::select! {
            biased;
            () = cancelled(&*context) => {
                let answer = Answer::new(0, None, Vec::new());
                return Ok(Box::pin(stream::iter([Ok(answer.cancelled())])));
            }
            outputs = running.engine.generate(request.request) => outputs,
        };
        let outputs = outputs.map_err(|problem| of_generate(&problem))?;
        let answer = Answer::new(
            outputs.num_prompt_tokens(),
            request.num_logprobs,
            request.warnings,
        );
        Ok(answer.stream(outputs, context))
    }

    // `abort` has nothing to add: each answer's own task looks for the stop (`Answer::stream`).

    async fn is_quiescent(&self) -> Result<Option<bool>, DynamoError> {
        let running = self.running().clone();
        Ok(running.map(|running| running.engine.num_unfinished_requests() == 0))
    }

    /// Ends the cores; requests in flight have `--shutdown-timeout` seconds to finish. Later calls have no effect.
    async fn cleanup(&self) -> Result<(), DynamoError> {
        let Some(running) = self.running().take() else {
            return Ok(());
        };
        if let Some(dead) = running.engine.errored() {
            // There is nothing left to end.
            self.death.get_or_init(|| dead.to_string());
            return Ok(());
        }
        let ended = running.engine.shutdown(self.args.shutdown_timeout).await;
        let error_type = ErrorType::Backend(BackendError::EngineShutdown);
        ended.map_err(|dead| error(error_type, dead.to_string()))
    }

    /// None yet: Dynamo's router balances this worker by its load. A core that publishes its KV events
    /// (`--kv-events-config`) is a [`KvEventSource::Zmq`] with that endpoint, topic and [`RANK`].
    async fn kv_event_sources(&self) -> Result<Vec<KvEventSource>, DynamoError> {
        Ok(Vec::new())
    }

    async fn setup_metrics(&self, context: MetricsCtx<'_>) -> Result<MetricsBindings, DynamoError> {
        let running = self.started()?;
        let observed = Arc::downgrade(&running);
        context.metrics.add_expfmt_callback(Arc::new(move || {
            let running = observed.upgrade();
            let text =
                running.map(|running| running.prometheus.render(&running.engine.engine_metrics()));
            Ok(text.unwrap_or_default())
        }));
        let snapshots = running.snapshots.clone();
        Ok(MetricsBindings {
            dp_ranks: vec![RANK],
            on_publisher_ready: Some(Box::new(move |publisher| {
                snapshots.publish_by(publisher);
                Ok(())
            })),
        })
    }

    /// One greedy token: a core that hangs doesn't give it.
    async fn health_check_payload(&self) -> Result<Option<Value>, DynamoError> {
        Ok(Some(json!({
            "token_ids": [0],
            "stop_conditions": {"max_tokens": 1, "ignore_eos": true},
            "sampling_options": {"temperature": 0.0},
            "output_options": {},
        })))
    }
}

/// Ends the worker when its engine is gone for good, by the signal that Dynamo's runtime ends in order at: it tells
/// discovery first, so that requests go elsewhere.
async fn end_with(running: Weak<Running>) {
    loop {
        tokio::time::sleep(ENGINE_CHECK).await;
        let Some(running) = running.upgrade() else {
            return;
        };
        if let Some(dead) = running.engine.errored() {
            tracing::error!("the engine is gone, and so is this worker: {dead}");
            let own = rustix::process::getpid();
            if let Err(error) = rustix::process::kill_process(own, rustix::process::Signal::TERM) {
                tracing::error!("can't end the worker: {error}");
            }
            return;
        }
    }
}
