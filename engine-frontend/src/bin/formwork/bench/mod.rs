//! `formwork bench serve`: loads a server and says how it answers.
//!
//! What it is: requests (`workload.rs`, `constraints.rs`) sent when they are due (`load.rs`), each
//! timed and judged (`send.rs`), and summed up (`statistics.rs`, `report.rs`). It speaks the OpenAI
//! API alone, so that any server can be measured; what a server of this machine uses is read from
//! the system (`server_process.rs`). What it is not: the benchmarks of Formwork's own parts, which
//! are in the package `benchmarks`.

mod args;
mod constraints;
mod load;
mod random;
mod report;
mod send;
mod server_process;
mod statistics;
mod workload;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Subcommand;
use engine_frontend::frontend_runtime;
use tokio::time::sleep;

use crate::http::Client;
use args::BenchServeArgs;
use report::Report;
use server_process::ServerProcess;
use workload::Workload;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Send requests to a server and print latencies and throughput
    Serve(Box<BenchServeArgs>),
}

/// How often a server is asked whether it has come to rest, and how many times.
const REST_POLL: Duration = Duration::from_millis(250);
const REST_POLLS: usize = 120;

/// Measures. Exit code 0: every request was answered, and validly; 1: not so.
pub(crate) fn serve(args: &BenchServeArgs) -> anyhow::Result<ExitCode> {
    crate::serve::raise_file_limit();
    let runtime = frontend_runtime().context("can't start the async runtime")?;
    let report = runtime.block_on(run(args))?;
    print!("{report}");
    if let Some(path) = &args.result_json {
        let json = serde_json::to_string_pretty(&report.to_json())?;
        std::fs::write(path, json).with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(match report.is_good() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn run(args: &BenchServeArgs) -> anyhow::Result<Report> {
    args.verify()?;
    let key = crate::api_key(args.api_key.as_deref());
    let client = Client::new(&args.base_url(), key.as_deref(), &args.trust)?;
    let metrics = match &args.metrics_url {
        Some(url) => Client::new(url, key.as_deref(), &args.trust)?,
        None => client.clone(),
    };
    let model = match &args.model {
        Some(model) => model.clone(),
        None => {
            let models = client.models().await?;
            models
                .into_iter()
                .next()
                .context("the server has no model")?
        }
    };
    let workload = Arc::new(Workload::new(args, model.clone())?);
    let process = args.server_pid.map(ServerProcess::new).transpose()?;
    if let Some(process) = process.as_ref().filter(|_| args.check_leaks) {
        process.check_name()?;
    }
    let warmed = load::warm_up(args, &client, &workload).await;
    if let Some(error) = warmed.errors.keys().next() {
        bail!("a request of the warm-up failed: {error}");
    }
    let before = match &process {
        Some(process) => {
            rest(&metrics).await?;
            Some(process.usage()?)
        }
        None => None,
    };
    let results = load::run(args, &client, &workload).await;
    let server = match (&process, before) {
        (Some(process), Some(before)) => {
            let is_at_rest = rest(&metrics).await?;
            Some(server_process::Difference {
                before,
                after: process.usage()?,
                is_at_rest,
            })
        }
        _ => None,
    };
    Ok(Report {
        model,
        backend: args.backend,
        request_rate: args.request_rate,
        max_concurrency: args.max_concurrency,
        percentiles: args.metric_percentiles.to_vec(),
        check_leaks: args.check_leaks,
        results,
        server,
    })
}

/// Waits until a server has nothing to do and holds no block of its KV cache; says whether that
/// came to be.
async fn rest(client: &Client) -> anyhow::Result<bool> {
    for _ in 0..REST_POLLS {
        let text = client
            .get("/metrics")
            .await?
            .checked()
            .await?
            .bytes()
            .await?;
        let text = String::from_utf8(text)?;
        let busy = [
            "vllm:num_requests_running",
            "vllm:num_requests_waiting",
            "vllm:kv_cache_usage_perc",
        ];
        let values: Vec<f64> = busy.iter().filter_map(|name| metric(&text, name)).collect();
        if values.len() != busy.len() {
            bail!("/metrics lacks one of {}", busy.join(", "));
        }
        if values.iter().all(|value| *value == 0.0) {
            return Ok(true);
        }
        sleep(REST_POLL).await;
    }
    Ok(false)
}

/// The value of a metric, summed over its labels.
fn metric(text: &str, name: &str) -> Option<f64> {
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_whole = rest.starts_with(['{', ' ']);
        is_whole.then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
    });
    samples.reduce(|sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_by_their_whole_name() {
        let text = "# HELP a_b x\na_b{x=\"1\"} 2\na_b{x=\"2\"} 0.5\na_bc 7\nc 1\n";
        assert_eq!(metric(text, "a_b"), Some(2.5));
        assert_eq!(metric(text, "c"), Some(1.0));
        assert_eq!(metric(text, "d"), None);
    }
}
