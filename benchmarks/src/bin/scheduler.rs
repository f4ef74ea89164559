//! Time of the scheduler alone, under a full load: what a step costs beside the model.
//!
//! Requests come and go as in a busy server: one that finishes makes room for one that waits, and
//! one more joins the queue, so that both numbers stay as they are.

use std::time::{Duration, Instant};

use benchmarks::machine;
use benchmarks::statistics::Summary;
use clap::Parser;
use engine_core::core::KVCacheConfig;
use engine_core::core::request::Request;
use engine_core::core::sched::{EngineClock, ModelRunnerOutput, Scheduler, SchedulerOutput};
use protocol::{
    EngineCoreOutputs, EngineCoreRequest, SamplingParams, SchedulerConfig, SchedulingPolicy,
};

/// Times Scheduler::schedule and Scheduler::update_from_output per step.
#[derive(Debug, Parser)]
struct Arguments {
    /// Requests that run
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    running: u32,
    /// Requests that wait
    #[arg(long, default_value_t = 10_000)]
    waiting: usize,
    /// Steps to time, after as many as the longest request takes
    #[arg(long, default_value_t = 2000)]
    steps: usize,
    /// Tokens of each prompt, no two alike
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    prompt_tokens: u32,
    /// Most tokens that a request generates; the least is a third of it, and all between are as
    /// many
    #[arg(long, default_value_t = 192, value_parser = clap::value_parser!(u32).range(3..))]
    output_tokens: u32,
}

/// Tokens per KV block.
const BLOCK_SIZE: u32 = 16;

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    println!("{}\n", machine::description());
    println!(
        "{} running, {} waiting, {} steps\n",
        arguments.running, arguments.waiting, arguments.steps
    );
    println!("| policy | part | p50 us | p99 us | max us |\n|---|---|---:|---:|---:|");
    for policy in [SchedulingPolicy::Fcfs, SchedulingPolicy::Priority] {
        let times = Load::new(&arguments, policy)?.measure(arguments.steps);
        for (part, times) in [
            ("schedule", times.schedule),
            ("update_from_output", times.update_from_output),
            ("both", times.both),
        ] {
            let summary = Summary::of(times);
            let [p50, p99, max] = [summary.p50, summary.p99, summary.max]
                .map(|time| format!("{:.0}", time.as_secs_f64() * 1e6));
            println!("| {policy:?} | {part} | {p50} | {p99} | {max} |");
        }
    }
    Ok(())
}

/// A scheduler and those who keep it busy.
struct Load<'a> {
    arguments: &'a Arguments,
    scheduler: Scheduler,
    num_requests: u32,
}

#[derive(Default)]
struct Times {
    schedule: Vec<Duration>,
    update_from_output: Vec<Duration>,
    /// Of one step; the freeing of what `schedule` returned included.
    both: Vec<Duration>,
}

impl<'a> Load<'a> {
    fn new(arguments: &'a Arguments, policy: SchedulingPolicy) -> anyhow::Result<Self> {
        let max_model_len = arguments.prompt_tokens + arguments.output_tokens;
        let config = SchedulerConfig {
            max_num_seqs: arguments.running,
            // Room for the running requests and for the prompts of those that replace them.
            max_num_batched_tokens: arguments.running + 64 * arguments.prompt_tokens,
            policy,
            ..SchedulerConfig::default()
        };
        let kv_cache_config = KVCacheConfig {
            num_blocks: arguments.running * max_model_len.div_ceil(BLOCK_SIZE) + 1,
            block_size: BLOCK_SIZE,
            enable_prefix_caching: true,
        };
        let clock = EngineClock::start();
        let scheduler = Scheduler::new(config, kv_cache_config, max_model_len, clock)?;
        Ok(Self {
            arguments,
            scheduler,
            num_requests: 0,
        })
    }

    /// Steps until the mix of old and new requests is an even one, then times `num_steps`.
    fn measure(mut self, num_steps: usize) -> Times {
        let num_requests = self.arguments.running as usize + self.arguments.waiting;
        (0..num_requests).for_each(|_| self.add_request());
        let mut unused = Times::default();
        for _ in 0..self.arguments.output_tokens * 2 {
            self.step(&mut unused);
        }
        let mut times = Times::default();
        for _ in 0..num_steps {
            self.step(&mut times);
        }
        times
    }

    fn step(&mut self, times: &mut Times) {
        let started = Instant::now();
        let scheduled = self.scheduler.schedule();
        let schedule = started.elapsed();

        let sampled = sample(&self.scheduler, &scheduled);

        let started = Instant::now();
        let outputs = self.scheduler.update_from_output(&scheduled, sampled);
        let update_from_output = started.elapsed();
        drop(scheduled);
        times.both.push(schedule + started.elapsed());
        times.schedule.push(schedule);
        times.update_from_output.push(update_from_output);

        let num_finished: usize = outputs.values().map(count_finished).sum();
        (0..num_finished).for_each(|_| self.add_request());
    }

    fn add_request(&mut self) {
        let number = self.num_requests;
        self.num_requests += 1;
        // Spread evenly, without order.
        let scattered = number.wrapping_mul(0x9e37_79b9);
        let most = self.arguments.output_tokens;
        let first = number * self.arguments.prompt_tokens;
        let request = EngineCoreRequest {
            request_id: format!("cmpl-{number:032x}"),
            prompt_token_ids: (first..first + self.arguments.prompt_tokens).collect(),
            sampling_params: SamplingParams {
                max_tokens: Some(most / 3 + scattered % (most - most / 3 + 1)),
                ..SamplingParams::default()
            },
            arrival_time: f64::from(number),
            priority: i64::from(scattered >> 16) % 10,
            ..EngineCoreRequest::default()
        };
        let block_hasher = self.scheduler.block_hasher();
        let request = Request::from_engine_core_request(request, &block_hasher);
        self.scheduler.add_request(request);
    }
}

/// What a model runner would answer: one token for each request whose prompt is computed.
fn sample(scheduler: &Scheduler, scheduled: &SchedulerOutput) -> ModelRunnerOutput {
    // Schedule order is the order of admission, which is that of `running`.
    let mut running = scheduler.running().map(|(request, _)| request);
    let sampled = scheduled
        .num_scheduled_tokens
        .iter()
        .map(
            |(request_id, _)| match running.find(|request| request.request_id() == request_id) {
                Some(request) if request.num_computed_tokens() == request.num_tokens() => vec![7],
                _ => Vec::new(),
            },
        );
    ModelRunnerOutput {
        sampled_token_ids: sampled.collect(),
        ..ModelRunnerOutput::default()
    }
}

fn count_finished(outputs: &EngineCoreOutputs) -> usize {
    let finished = |output: &&protocol::EngineCoreOutput| output.finish_reason.is_some();
    outputs.outputs.iter().filter(finished).count()
}
