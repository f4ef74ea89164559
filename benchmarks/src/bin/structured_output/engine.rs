//! An engine in this process, with a fixed number of requests in flight.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use crossbeam_channel::Sender;
use engine_core::core::request::Request;
use engine_core::engine::{AbortRequests, EngineCore, StepTimes, load_engine_core};
use protocol::{
    EngineConfig, EngineCoreOutput, EngineCoreRequest, ModelSource, SamplingParams,
    StructuredOutputStats, StructuredOutputsConstraint, StructuredOutputsParams, Whitespace,
};
use tokenizer::Tokenizer;

/// Tokens of every prompt.
const PROMPT_TOKENS: u32 = 16;
/// Steps after the first that are not counted: masks of states that nobody has met are made here.
const WARM_UP_STEPS: usize = 8;

/// What some steps brought.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    /// Delivered tokens, forced ones included.
    pub(crate) num_tokens: usize,
    /// All of it.
    pub(crate) elapsed: Duration,
    pub(crate) step_times: Vec<Duration>,
    /// Seconds of mask making that the forward pass didn't hide.
    pub(crate) exposed_fill: f64,
    /// Seconds of mask making, most of it while the forward pass runs.
    pub(crate) fill: f64,
    /// Seconds of `Scheduler::update_from_output`, where grammars accept tokens.
    pub(crate) update: f64,
    pub(crate) num_forced: u64,
    /// Rows of the LM head, and those that were left out.
    pub(crate) num_head_rows: u64,
    pub(crate) num_head_rows_skipped: u64,
}

impl Measured {
    pub(crate) fn tokens_per_second(&self) -> f64 {
        self.num_tokens as f64 / self.elapsed.as_secs_f64()
    }

    /// Share of the time that mask making adds.
    pub(crate) fn exposed_share(&self) -> f64 {
        self.exposed_fill / self.elapsed.as_secs_f64()
    }

    /// Seconds in which a step's masks are made.
    pub(crate) fn fill_per_step(&self) -> f64 {
        self.fill / self.step_times.len() as f64
    }

    /// Seconds in which a step's tokens are taken.
    pub(crate) fn update_per_step(&self) -> f64 {
        self.update / self.step_times.len() as f64
    }

    /// Delivered tokens of a step.
    pub(crate) fn tokens_per_step(&self) -> f64 {
        self.num_tokens as f64 / self.step_times.len() as f64
    }

    /// Share of the tokens that no model chose.
    pub(crate) fn forced_share(&self) -> f64 {
        self.num_forced as f64 / self.num_tokens as f64
    }

    /// Share of the LM head's rows that were not computed.
    pub(crate) fn skipped_share(&self) -> f64 {
        self.num_head_rows_skipped as f64 / self.num_head_rows.max(1) as f64
    }
}

/// A loaded engine.
pub(crate) struct Engine {
    core: EngineCore,
    _aborts: Sender<AbortRequests>,
    eos_token_id: u32,
    /// Of prompts: the tokens from here on are control tokens.
    num_text_tokens: u32,
    max_model_len: u32,
    num_requests: u32,
}

impl Engine {
    pub(crate) fn load(config: &EngineConfig) -> anyhow::Result<Self> {
        let tokenizer = match &config.model_config.model {
            ModelSource::BuiltIn => Tokenizer::from_bytes(builtin_model::FILES)?,
            ModelSource::Path(folder) => Tokenizer::from_files(folder)?,
        };
        let eos_token_id = tokenizer
            .eos_token_id()
            .context("the tokenizer has no end of text")?;
        let loaded = load_engine_core(config, None, &mut |_| ())?;
        let (aborts, aborts_queue) = crossbeam_channel::unbounded();
        Ok(Self {
            core: EngineCore::new(loaded.scheduler, loaded.executor, aborts_queue)
                .with_structured_output(loaded.structured_output_manager),
            _aborts: aborts,
            eos_token_id,
            num_text_tokens: tokenizer.vocab_size() as u32 * 9 / 10,
            max_model_len: config.model_config.max_model_len.unwrap_or(1024),
            num_requests: 0,
        })
    }

    /// Adds a request with a prompt of its own, and returns its id. Free text never ends by itself.
    pub(crate) fn add(
        &mut self,
        constraint: Option<StructuredOutputsConstraint>,
        max_tokens: u32,
    ) -> String {
        let structured_outputs = constraint.map(|constraint| StructuredOutputsParams {
            whitespace: Whitespace::Spaced,
            ..StructuredOutputsParams::new(constraint)
        });
        self.add_with(structured_outputs, max_tokens)
    }

    /// The same with all that may be said of a constraint.
    pub(crate) fn add_with(
        &mut self,
        structured_outputs: Option<StructuredOutputsParams>,
        max_tokens: u32,
    ) -> String {
        let number = self.num_requests;
        self.num_requests += 1;
        let ignore_eos = structured_outputs.is_none();
        let request = EngineCoreRequest {
            request_id: number.to_string(),
            prompt_token_ids: (0..PROMPT_TOKENS)
                .map(|at| (number * 7919 + at * 104_729) % self.num_text_tokens)
                .collect(),
            sampling_params: SamplingParams {
                max_tokens: Some(max_tokens),
                temperature: 1.0,
                seed: Some(u64::from(number)),
                ignore_eos,
                eos_token_id: (!ignore_eos).then_some(self.eos_token_id),
                structured_outputs: structured_outputs.map(Into::into),
                ..SamplingParams::default()
            },
            ..EngineCoreRequest::default()
        };
        let request = Request::from_engine_core_request(request, &self.core.block_hasher());
        self.core.add_request(request);
        number.to_string()
    }

    /// Adds a greedy request about a prompt.
    pub(crate) fn ask(
        &mut self,
        prompt_token_ids: &[u32],
        constraint: StructuredOutputsConstraint,
    ) {
        let request = EngineCoreRequest {
            request_id: "asked".to_owned(),
            prompt_token_ids: prompt_token_ids.into(),
            sampling_params: SamplingParams {
                max_tokens: Some(200),
                temperature: 0.0,
                eos_token_id: Some(self.eos_token_id),
                structured_outputs: Some(
                    StructuredOutputsParams {
                        whitespace: Whitespace::Spaced,
                        ..StructuredOutputsParams::new(constraint)
                    }
                    .into(),
                ),
                ..SamplingParams::default()
            },
            ..EngineCoreRequest::default()
        };
        let request = Request::from_engine_core_request(request, &self.core.block_hasher());
        self.core.add_request(request);
    }

    /// The most steps of work that grammars took within one step.
    pub(crate) fn most_grammar_steps(&self) -> u64 {
        self.core.most_grammar_steps()
    }

    /// Where the time of the steps went so far.
    pub(crate) fn step_times(&self) -> StepTimes {
        self.core.step_times()
    }

    /// Whether a step has something to do.
    pub(crate) fn has_work(&self) -> bool {
        self.core.has_work()
    }

    /// Sleeps until a request has its grammar, or is refused: its id.
    pub(crate) fn next_grammar(&mut self) -> anyhow::Result<String> {
        let request_id = self.core.structured_output_manager().done().recv()?;
        self.core.grammar_compiled(&request_id);
        Ok(request_id.to_string())
    }

    /// Sleeps until no request waits for its grammar.
    pub(crate) fn wait_for_grammars(&mut self) {
        while self.core.wait_for_grammar() {}
    }

    /// One step: its outputs and what it reported.
    pub(crate) fn step(
        &mut self,
    ) -> anyhow::Result<(Vec<EngineCoreOutput>, StructuredOutputStats)> {
        let (mut all, mut stats) = (Vec::new(), StructuredOutputStats::default());
        for outputs in self.core.step()?.into_values() {
            all.extend(outputs.outputs);
            let scheduler_stats = outputs.scheduler_stats;
            if let Some(of_step) = scheduler_stats.and_then(|stats| stats.structured_output_stats) {
                stats = of_step;
            }
        }
        Ok((all, stats))
    }

    /// Measures `num_steps` steps in which `batch` requests get tokens, and ends them.
    pub(crate) fn decode(
        &mut self,
        constraint: Option<&StructuredOutputsConstraint>,
        batch: usize,
        num_steps: usize,
    ) -> anyhow::Result<Measured> {
        let ids: Vec<String> = (0..batch)
            .map(|_| self.add(constraint.cloned(), self.max_model_len - 2 * PROMPT_TOKENS))
            .collect();
        self.wait_for_grammars();
        for _ in 0..1 + WARM_UP_STEPS {
            self.step()?;
        }
        let before = self.core.step_times();
        let mut measured = Measured::default();
        for _ in 0..num_steps {
            let started = Instant::now();
            let (outputs, stats) = self.step()?;
            let took = started.elapsed();
            ensure!(
                outputs.len() == batch,
                "a step brought tokens to {} requests",
                outputs.len()
            );
            for output in outputs {
                if let Some(error) = output.error {
                    bail!("{}", error.message);
                }
                ensure!(output.finish_reason.is_none(), "a request ended early");
                measured.num_tokens += output.new_token_ids.len();
            }
            measured.elapsed += took;
            measured.step_times.push(took);
            measured.num_head_rows += stats.num_head_rows;
            measured.num_head_rows_skipped += stats.num_head_rows_skipped;
            measured.exposed_fill += stats.exposed_fill_seconds;
            measured.num_forced += stats.num_forced_tokens;
        }
        let times = self.core.step_times() - before;
        measured.fill = times.grammar_bitmask.as_secs_f64();
        measured.update = times.update_from_output.as_secs_f64();
        self.abort(ids)?;
        Ok(measured)
    }

    /// Ends requests.
    pub(crate) fn end(&mut self, request_ids: Vec<String>) {
        self.core.abort_requests(&AbortRequests {
            client_index: 0,
            request_ids,
        });
    }

    /// Ends requests, and lets the runner know.
    pub(crate) fn abort(&mut self, request_ids: Vec<String>) -> anyhow::Result<()> {
        self.end(request_ids);
        while self.core.has_work() {
            self.step()?;
        }
        Ok(())
    }
}
