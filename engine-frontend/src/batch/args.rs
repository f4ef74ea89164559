//! The command line of `formwork-batch`.

use std::path::PathBuf;

use clap::{ArgGroup, Parser};

use crate::arg_utils::EngineArgs;

/// Answer a file of requests in the OpenAI batch format, or prompts given here.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "formwork-batch", version, about, max_term_width = 100, args_override_self = true)]
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
    /// Most requests in the engine at the same time; twice --max-num-seqs where absent
    #[arg(long, value_name = "N", conflicts_with = "prompts", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub max_inflight: Option<u32>,
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
        default_value_t = 256
    )]
    pub max_tokens: u32,
    /// Temperature of answers to --prompt; the model's own default where absent, 0 is greedy
    #[arg(
        long,
        value_name = "T",
        conflicts_with = "input_file",
        allow_negative_numbers = true
    )]
    pub temperature: Option<f32>,
    /// Nucleus sampling for answers to --prompt
    #[arg(
        long,
        value_name = "P",
        conflicts_with = "input_file",
        allow_negative_numbers = true
    )]
    pub top_p: Option<f32>,
    /// Keep the K most probable tokens for answers to --prompt; 0 is off
    #[arg(long, value_name = "K", conflicts_with = "input_file")]
    pub top_k: Option<u32>,
    /// Number of answers to each --prompt
    #[arg(
        short,
        long,
        value_name = "N",
        conflicts_with = "input_file",
        default_value_t = 1
    )]
    pub n: u32,
    /// A string that ends an answer to --prompt; may be repeated
    #[arg(long, value_name = "TEXT", conflicts_with = "input_file")]
    pub stop: Vec<String>,
    /// What to run and with which limits.
    #[command(flatten)]
    pub engine: EngineArgs,
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
        assert_eq!(args.engine.max_num_seqs, 4);
        let args = parse(&["--prompt", "a", "--prompt", "b", "--temperature", "0"]).unwrap();
        assert_eq!(args.prompts, ["a", "b"]);
        assert_eq!(args.temperature, Some(0.0));
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
