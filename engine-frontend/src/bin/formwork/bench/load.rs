//! When requests are sent, and what comes back of all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::args::BenchServeArgs;
use super::random::Random;
use super::send::{End, Record, send};
use super::workload::Workload;
use crate::http::Client;

/// Numbers of the requests of a warm-up: none of the measurement's.
const WARM_UP: u64 = 1 << 40;
/// The random numbers of arrivals: no request's.
const ARRIVALS: u64 = u64::MAX;
/// Requests of a warm-up at the same time, where nothing else is said.
const WARM_UP_CONCURRENCY: u32 = 16;

/// What came of a load. Times are in seconds.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// Answered, and validly.
    pub(super) completed: u64,
    /// Of these, constrained.
    pub(super) constrained: u64,
    pub(super) cut_off: u64,
    pub(super) left: u64,
    pub(super) invalid: u64,
    pub(super) failed: u64,
    /// Failures by status; 0 where there was none.
    pub(super) failed_by_status: BTreeMap<u16, u64>,
    /// What was wrong, and how often.
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) prompt_tokens: u64,
    /// Of all requests, those that were left too.
    pub(super) output_tokens: u64,
    pub(super) times_to_first_token: Vec<f64>,
    pub(super) times_per_output_token: Vec<f64>,
    pub(super) inter_token_latencies: Vec<f64>,
    pub(super) latencies: Vec<f64>,
    pub(super) duration: f64,
}

/// Messages of errors that are kept: a server that fails has one or two.
const MAX_ERRORS: usize = 20;

impl Results {
    fn add(&mut self, record: Record) {
        self.output_tokens += record.usage.completion_tokens;
        self.prompt_tokens += record.usage.prompt_tokens;
        match record.end {
            End::Finished | End::CutOff => {
                if record.end == End::CutOff {
                    self.cut_off += 1;
                }
                self.completed += 1;
                self.constrained += u64::from(record.is_constrained);
                self.latencies.push(record.latency);
                self.inter_token_latencies
                    .extend(record.inter_token_latencies);
                if let Some(first) = record.time_to_first_token {
                    self.times_to_first_token.push(first);
                    let others = record.usage.completion_tokens.saturating_sub(1);
                    if others > 0 {
                        self.times_per_output_token
                            .push((record.latency - first) / others as f64);
                    }
                }
            }
            End::Left => self.left += 1,
            End::Invalid(error) => {
                self.invalid += 1;
                self.note(format!("not valid: {error}"));
            }
            End::Failed(status, error) => {
                self.failed += 1;
                *self
                    .failed_by_status
                    .entry(status.unwrap_or(0))
                    .or_default() += 1;
                self.note(error);
            }
        }
    }

    fn note(&mut self, error: String) {
        if self.errors.len() < MAX_ERRORS || self.errors.contains_key(&error) {
            *self.errors.entry(error).or_default() += 1;
        }
    }

    fn take(&mut self, joined: Result<Record, JoinError>) {
        match joined {
            Ok(record) => self.add(record),
            Err(error) => {
                self.failed += 1;
                self.note(error.to_string());
            }
        }
    }
}

/// Sends requests that count for nothing but their errors.
pub(super) async fn warm_up(
    args: &BenchServeArgs,
    client: &Client,
    workload: &Arc<Workload>,
) -> Results {
    let plan = Plan {
        first: WARM_UP,
        count: Some(args.num_warmups),
        until: None,
        rate: None,
        concurrency: Some(args.max_concurrency.unwrap_or(WARM_UP_CONCURRENCY)),
    };
    drive(args, client, workload, &plan, &ProgressBar::hidden()).await
}

/// Sends all requests and waits for their answers.
pub(super) async fn run(
    args: &BenchServeArgs,
    client: &Client,
    workload: &Arc<Workload>,
) -> Results {
    let plan = Plan {
        first: 0,
        count: args.duration.is_none().then_some(args.num_prompts),
        until: args.duration,
        rate: args.request_rate,
        concurrency: args.max_concurrency,
    };
    let progress = match plan.count {
        Some(count) => ProgressBar::new(count),
        None => ProgressBar::no_length(),
    };
    let template = "{bar:30} {pos}/{len} requests [{elapsed}]";
    if let Ok(style) = ProgressStyle::with_template(template) {
        progress.set_style(style);
    }
    let results = drive(args, client, workload, &plan, &progress).await;
    progress.finish_and_clear();
    results
}

/// When which requests are sent.
#[derive(Debug)]
struct Plan {
    first: u64,
    count: Option<u64>,
    until: Option<Duration>,
    rate: Option<f64>,
    concurrency: Option<u32>,
}

async fn drive(
    args: &BenchServeArgs,
    client: &Client,
    workload: &Arc<Workload>,
    plan: &Plan,
    progress: &ProgressBar,
) -> Results {
    let mut results = Results::default();
    let mut arrivals = Random::new(args.seed, ARRIVALS);
    let mut tasks = JoinSet::new();
    let permits = plan
        .concurrency
        .map(|n| Arc::new(Semaphore::new(n as usize)));
    let start = Instant::now();
    let mut due = start;
    for number in 0.. {
        if let Some(rate) = plan.rate {
            sleep_until(due).await;
            due += Duration::from_secs_f64(arrivals.interval(rate));
        }
        let permit = match &permits {
            // Fails only where it is closed, which it never is.
            Some(permits) => permits.clone().acquire_owned().await.ok(),
            None => None,
        };
        let is_over = match plan.until {
            Some(until) => start.elapsed() >= until,
            None => plan.count.is_none_or(|count| number >= count),
        };
        if is_over {
            break;
        }
        let (client, workload) = (client.clone(), workload.clone());
        let patience = args.timeout;
        let number = plan.first + number;
        tasks.spawn(async move {
            let _permit = permit;
            let request = workload.request(number);
            let is_constrained = request.constraint.is_some();
            match timeout(patience, send(&client, &workload, request)).await {
                Ok(record) => record,
                Err(_) => Record::timed_out(patience, is_constrained),
            }
        });
        while let Some(joined) = tasks.try_join_next() {
            results.take(joined);
            progress.inc(1);
        }
    }
    while let Some(joined) = tasks.join_next().await {
        results.take(joined);
        progress.inc(1);
    }
    results.duration = start.elapsed().as_secs_f64();
    results
}
