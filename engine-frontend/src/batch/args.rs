//! The command line of `formwork-batch`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Parser};

use super::error::BatchError;
use crate::arg_utils::{EngineArgs, human_readable_int};
use crate::sampling_params::{MAX_N_SEQUENCES, SAMPLING_EPS};
use crate::startup_error::StartupError;

/// Answer a file of requests in the OpenAI batch format, or prompts given here.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(
    name = "formwork-batch",
    version,
    about,
    max_term_width = 100,
    args_override_self = true,
    override_usage = "formwork-batch [OPTIONS] <--input-file <FILE.jsonl>|--prompt <TEXT>>"
)]
#[command(group = ArgGroup::new("source").required(true).args(["input_file", "prompts"]))]
pub struct BatchArgs {
    /// Requests, one JSON object per line; "-" is standard input
    #[arg(short, long, value_name = "FILE.jsonl")]
    pub input_file: Option<PathBuf>,
    /// Where the results go, one JSON object per line; "-" is standard output. Without it the
    /// answers are printed as text
    #[arg(short, long, value_name = "FILE.jsonl", conflicts_with = "prompts")]
    pub output_file: Option<PathBuf>,
    /// Go on after a kill: keep the complete lines of the output file
    #[arg(long, requires = "output_file")]
    pub resume: bool,
    /// Replace an output file that has something in it
    #[arg(long, requires = "output_file", conflicts_with = "resume")]
    pub overwrite: bool,
    /// Exit with 1 where a line has an error for its result. The other lines are answered all the same
    #[arg(long, conflicts_with = "prompts")]
    pub fail_on_error: bool,
    /// Most answers in the engine at the same time; twice --max-num-seqs where absent
    #[arg(long, value_name = "N", conflicts_with = "prompts", value_parser = human_readable_int(1_u32..=65_536))]
    pub max_inflight: Option<u32>,
    /// Show no progress; what was done is still said at the end
    #[arg(long, conflicts_with = "prompts")]
    pub no_progress: bool,
    /// A prompt to answer; may be repeated
    #[arg(
        short,
        long = "prompt",
        value_name = "TEXT",
        conflicts_with = "input_file"
    )]
    pub prompts: Vec<String>,
    /// Continue --prompt as it is, without the model's chat template
    #[arg(long, conflicts_with = "input_file")]
    pub raw: bool,
    /// Most tokens of an answer to --prompt
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "input_file",
        default_value_t = 256,
        value_parser = human_readable_int(1_u32..)
    )]
    pub max_tokens: u32,
    /// Temperature of answers to --prompt; the model's own default where absent, 0 is greedy
    #[arg(
        long,
        value_name = "T",
        conflicts_with = "input_file",
        allow_negative_numbers = true,
        value_parser = temperature
    )]
    pub temperature: Option<f32>,
    /// Nucleus sampling for answers to --prompt
    #[arg(
        long,
        value_name = "P",
        conflicts_with = "input_file",
        allow_negative_numbers = true,
        value_parser = top_p
    )]
    pub top_p: Option<f32>,
    /// Keep the K most probable tokens for answers to --prompt; 0 and -1 are off
    #[arg(
        long,
        value_name = "K",
        conflicts_with = "input_file",
        allow_negative_numbers = true,
        value_parser = top_k
    )]
    pub top_k: Option<u32>,
    /// Number of answers to each --prompt
    #[arg(
        short,
        long,
        value_name = "N",
        conflicts_with = "input_file",
        default_value_t = 1,
        value_parser = human_readable_int(1_u32..=MAX_N_SEQUENCES)
    )]
    pub n: u32,
    /// A string that ends an answer to --prompt; may be repeated
    #[arg(long, value_name = "TEXT", conflicts_with = "input_file", value_parser = NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// Refuse fields that have no effect here, such as store, instead of ignoring them
    #[arg(long)]
    pub strict_requests: bool,
    /// What to run and with which limits.
    #[command(flatten)]
    pub engine: EngineArgs,
}

impl BatchArgs {
    /// What can be told of flags together, before a model is loaded.
    ///
    /// # Errors
    /// Flags of the engine that don't go together; several answers that would all be the same, under
    /// `--strict-requests`.
    pub fn verify(&self) -> Result<(), BatchError> {
        self.engine.verify().map_err(StartupError::Flags)?;
        match self.temperature {
            Some(temperature)
                if self.strict_requests && temperature < SAMPLING_EPS && self.n > 1 =>
            {
                Err(BatchError::GreedyAnswers { n: self.n })
            }
            _ => Ok(()),
        }
    }
}

/// Reads `--temperature`. NaN is in no range.
fn temperature(text: &str) -> Result<f32, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (0.0..=2.0).contains(number))
        .ok_or_else(|| "must be between 0 and 2".to_owned())
}

/// Reads `--top-p`.
fn top_p(text: &str) -> Result<f32, String> {
    let number = text.parse().ok();
    number
        .filter(|number| *number > 0.0 && *number <= 1.0)
        .ok_or_else(|| "must be greater than 0 and at most 1".to_owned())
}

/// Reads `--top-k`.
fn top_k(text: &str) -> Result<u32, String> {
    match text {
        "-1" => Ok(0),
        text => text
            .parse()
            .map_err(|_| "must be a whole number from 0 up, or -1 for off".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(args: &[&str]) -> Result<BatchArgs, clap::Error> {
        BatchArgs::try_parse_from([&["formwork-batch"], args].concat())
    }

    #[test]
    fn the_command_is_well_formed() {
        BatchArgs::command().debug_assert();
    }

    #[test]
    fn files_and_prompts() {
        let args = parse(&["-i", "in", "-o", "out", "--resume", "--max-num-seqs", "4"]).unwrap();
        assert_eq!(args.input_file, Some("in".into()));
        assert_eq!(args.engine.max_num_seqs, Some(4));
        let args = parse(&["--prompt", "a", "--prompt", "b", "--temperature", "0"]).unwrap();
        assert_eq!(args.prompts, ["a", "b"]);
        assert_eq!(args.temperature, Some(0.0));
    }

    #[test]
    fn values_out_of_range_are_refused_with_their_flag() {
        for (flag, values) in [
            ("--n", &["0", "16385", "-1"][..]),
            ("--max-tokens", &["0", "x"]),
            ("--temperature", &["-1", "nan", "inf", "2.1", "hot"]),
            ("--top-p", &["0", "1.5", "nan"]),
            ("--top-k", &["-2", "1.5"]),
            ("--stop", &[""]),
        ] {
            for value in values {
                let error = parse(&["--prompt", "a", &format!("{flag}={value}")]).unwrap_err();
                assert_eq!(error.exit_code(), 2, "{flag} {value}");
                assert!(error.to_string().contains(flag), "{error}");
            }
        }
        let good = [
            "--n=16384",
            "--temperature=2",
            "--top-p=1",
            "--top-k=-1",
            "--stop=x",
        ];
        let args = parse(&[&["--prompt", "a"][..], &good].concat()).unwrap();
        assert_eq!((args.n, args.top_k), (16_384, Some(0)));
        assert!(args.verify().is_ok());
    }

    #[test]
    fn several_greedy_answers_are_wrong_usage_where_requests_are_strict() {
        let args = ["--prompt", "a", "--n", "2", "--temperature", "0"];
        assert!(parse(&args).unwrap().verify().is_ok());
        let args = parse(&[&args[..], &["--strict-requests"]].concat()).unwrap();
        let error = args.verify().unwrap_err();
        assert!(error.to_string().starts_with("--n must be 1"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn usage_errors() {
        for args in [
            &[][..],
            &["-o", "out"],
            &["-i", "in", "--prompt", "a"],
            &["-i", "in", "--resume"],
            &["-i", "in", "-o", "out", "--resume", "--overwrite"],
            &["-i", "in", "--raw"],
            &["-i", "in", "--temperature", "1"],
            &["-i", "in", "--max-tokens", "1"],
            &["--prompt", "a", "-o", "out"],
            &["--prompt", "a", "--max-inflight", "3"],
            &["-i", "in", "-o", "out", "--max-inflight", "0"],
        ] {
            assert_eq!(parse(args).unwrap_err().exit_code(), 2, "{args:?}");
        }
    }
}
