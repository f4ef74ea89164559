//! The command line: vLLM's names where `vllm bench serve` has such a flag.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use engine_frontend::human_readable_int;

use crate::http::TrustArgs;

/// Which route is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// /v1/completions
    Openai,
    /// /v1/chat/completions
    OpenaiChat,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 every request was answered, and every constraint held; 1 not so; 2 a flag is wrong.")]
pub(crate) struct BenchServeArgs {
    /// Route to ask
    #[arg(long, value_enum, default_value = "openai")]
    pub(super) backend: Backend,
    /// Server: http://..., https://... or unix:PATH; the one at --host and --port where absent
    #[arg(long, value_name = "URL", conflicts_with_all = ["host", "port"])]
    base_url: Option<String>,
    /// The server's address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: String,
    /// The server's port
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Model to ask for; the server's first where absent
    #[arg(long, value_name = "NAME")]
    pub(super) model: Option<String>,
    /// The server's key; FORMWORK_API_KEY or OPENAI_API_KEY where absent
    #[arg(long, value_name = "KEY")]
    pub(super) api_key: Option<String>,
    #[command(flatten)]
    pub(super) trust: TrustArgs,
    /// Where the server's /metrics is, for --server-pid: its --management-port, such as
    /// http://127.0.0.1:9000; beside the other routes where absent
    #[arg(long, value_name = "URL")]
    pub(super) metrics_url: Option<String>,
    /// Seed of prompts, lengths, arrivals and sampling
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,

    /// JSON Lines, each with "prompt" or "messages" and any other field of a request
    /// ("output_tokens" is "max_tokens"), or a file for `formwork-batch`; random prompts where
    /// absent
    #[arg(long, value_name = "FILE", help_heading = "Requests")]
    pub(super) dataset_path: Option<PathBuf>,
    /// Requests to send
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        value_parser = human_readable_int(0_u64..),
        help_heading = "Requests"
    )]
    pub(super) num_prompts: u64,
    /// Seconds to send requests for, instead of a number of them
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "num_prompts", help_heading = "Requests")]
    pub(super) duration: Option<Duration>,
    /// Requests to send first that count for nothing
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = human_readable_int(0_u64..), help_heading = "Requests")]
    pub(super) num_warmups: u64,
    /// Words of a random prompt, each about a token
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        value_parser = human_readable_int(0_u32..),
        help_heading = "Requests"
    )]
    pub(super) random_input_len: u32,
    /// Most tokens of an answer, where the dataset does not say
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = human_readable_int(1_u32..), help_heading = "Requests")]
    pub(super) random_output_len: u32,
    /// Lengths lie between their number times 1 - RATIO and times 1 + RATIO
    #[arg(long, value_name = "RATIO", default_value_t = 0.0, value_parser = share, help_heading = "Requests")]
    pub(super) random_range_ratio: f64,
    /// Let unconstrained answers go on to their most tokens
    #[arg(long, help_heading = "Requests")]
    pub(super) ignore_eos: bool,
    /// Temperature of the sampling; the server's own where absent
    #[arg(long, value_name = "T", help_heading = "Requests")]
    pub(super) temperature: Option<f64>,
    /// Share of requests that get a constraint, which is checked in the answer. Constraints of the
    /// dataset are checked as well
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, help_heading = "Requests")]
    pub(super) constrained_share: f64,
    /// Kinds of these constraints. Of the kinds, "json" is known to every server (as
    /// `response_format`), the others to Formwork and vLLM
    #[arg(long, value_enum, value_name = "KIND", value_delimiter = ',', default_values = ["json", "regex", "choice", "grammar"], help_heading = "Requests")]
    pub(super) constraint_kinds: Vec<super::constraints::ConstraintKind>,

    /// Requests per second, at random times; all at once where absent
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Load")]
    pub(super) request_rate: Option<f64>,
    /// Most requests at the same time
    #[arg(long, value_name = "N", value_parser = human_readable_int(1_u32..=1_000_000), help_heading = "Load")]
    pub(super) max_concurrency: Option<u32>,
    /// Share of requests whose client leaves in the middle of the answer
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, help_heading = "Load")]
    pub(super) disconnect_share: f64,
    /// Seconds until a request counts as failed
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds, help_heading = "Load")]
    pub(super) timeout: Duration,

    /// Percentiles to print
    #[arg(long, value_name = "LIST", default_value = "50,99", value_parser = percentiles, help_heading = "Report")]
    pub(super) metric_percentiles: Arc<[f64]>,
    /// File for all figures as JSON
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(super) result_json: Option<PathBuf>,
    /// Formwork's process on this machine: report what processor time and memory it and its core
    /// took
    #[arg(long, value_name = "PID", help_heading = "Report")]
    pub(super) server_pid: Option<u32>,
    /// Fail unless that server is back at rest in the end: no request, all blocks of the KV cache
    /// free, resident memory at most 5 % above that after the warm-up
    #[arg(long, requires = "server_pid", help_heading = "Report")]
    pub(super) check_leaks: bool,
}

impl BenchServeArgs {
    /// Where the server is.
    pub(super) fn base_url(&self) -> String {
        let (host, port) = (&self.host, self.port);
        match &self.base_url {
            Some(url) => url.clone(),
            // An address of IPv6.
            None if host.contains(':') => format!("http://[{host}]:{port}"),
            None => format!("http://{host}:{port}"),
        }
    }

    /// What no single flag says.
    ///
    /// # Errors
    /// The flags don't go together.
    pub(super) fn verify(&self) -> anyhow::Result<()> {
        if self.duration.is_some() && self.request_rate.is_none() && self.max_concurrency.is_none()
        {
            bail!("--duration needs --request-rate or --max-concurrency: how many at a time?");
        }
        Ok(())
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "must be a number between 0 and 1".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.parse().ok();
    // vLLM's default, spelled out, is infinity. Below a request per day there is no end to wait for.
    rate.filter(|rate| *rate >= 1e-5)
        .ok_or_else(|| "must be a number from 0.00001, or \"inf\"".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "must be a number of seconds above 0".to_owned())
}

fn percentiles(text: &str) -> Result<Arc<[f64]>, String> {
    let parse = |text: &str| {
        let percentile: Option<f64> = text.trim().parse().ok();
        percentile.filter(|percentile| (0.0..=100.0).contains(percentile))
    };
    let parsed: Option<Vec<f64>> = text.split(',').map(parse).collect();
    parsed
        .map(Arc::from)
        .ok_or_else(|| "must be numbers from 0 to 100 with commas between them".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: BenchServeArgs,
    }

    fn parse(args: &[&str]) -> Result<BenchServeArgs, clap::Error> {
        Command::try_parse_from([&["serve"], args].concat()).map(|command| command.args)
    }

    #[test]
    fn the_command_is_well_formed() {
        Command::command().debug_assert();
        let args = parse(&["--metric-percentiles", "50, 99.9", "--request-rate", "inf"]).unwrap();
        assert_eq!(&*args.metric_percentiles, [50.0, 99.9]);
        assert_eq!(args.request_rate, Some(f64::INFINITY));
    }

    #[test]
    fn the_server_has_a_url_or_a_host_and_a_port() {
        for (args, url) in [
            (&[][..], "http://127.0.0.1:8000"),
            (&["--port", "9"], "http://127.0.0.1:9"),
            (
                &["--host", "a.example", "--port", "9"],
                "http://a.example:9",
            ),
            (&["--host", "::1"], "http://[::1]:8000"),
            (&["--base-url", "unix:/s"], "unix:/s"),
        ] {
            assert_eq!(parse(args).unwrap().base_url(), url);
        }
        assert!(parse(&["--base-url", "unix:/s", "--port", "9"]).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for args in [
            &["--constrained-share", "1.1"][..],
            &["--request-rate", "0"],
            &["--request-rate", "1e-300"],
            &["--request-rate", "nan"],
            &["--metric-percentiles", "101"],
            &["--duration", "1", "--num-prompts", "2"],
            &["--check-leaks"],
            &["--constraint-kinds", "yaml"],
        ] {
            assert_eq!(parse(args).unwrap_err().exit_code(), 2, "{args:?}");
        }
        assert!(parse(&["--duration", "1"]).unwrap().verify().is_err());
        let both = parse(&["--duration", "1", "--max-concurrency", "2"]).unwrap();
        assert!(both.verify().is_ok());
    }
}
