//! Why a batch can't start or can't go on.

use std::io;
use std::path::PathBuf;

use super::progress::count;
use crate::error::{EngineDeadError, GenerateError};
use crate::startup_error::StartupError;

/// Why a batch can't start or can't go on. What is wrong with a single line is no error of the
/// batch: it becomes that line's result.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// Input and output are the same file.
    #[error("input and output are the same file, {}: choose another output", .path.display())]
    SameFile {
        /// The file.
        path: PathBuf,
    },
    /// `--n` with greedy decoding.
    #[error("--n must be 1 with --temperature 0, got {n}: all answers would be the same")]
    GreedyAnswers {
        /// The answers asked for.
        n: u32,
    },
    /// The output file has something in it.
    #[error(
        "{} exists and isn't empty: --resume goes on with it, --overwrite replaces it",
        .path.display()
    )]
    OutputExists {
        /// The file.
        path: PathBuf,
    },
    /// `--resume` with an output that can't be read again.
    #[error("--resume needs an output file, and {} is none", .path.display())]
    NotResumable {
        /// The output.
        path: PathBuf,
    },
    /// The input can't be read.
    #[error("can't read the input {}: {source}", .path.display())]
    Input {
        /// The input.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The output can't be written.
    #[error("can't write the output {}: {source}", .path.display())]
    Output {
        /// The output.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The output file has no name any more.
    #[error(
        "{} was deleted or replaced while the batch ran: its results are lost",
        .path.display()
    )]
    OutputDeleted {
        /// The file.
        path: PathBuf,
    },
    /// Another process writes the same output.
    #[error("another process is writing {}: wait for it, or choose another output", .path.display())]
    OutputLocked {
        /// The file.
        path: PathBuf,
    },
    /// The output file isn't the beginning of this input's results.
    #[error(
        "{} doesn't belong to this input: its line {line} {problem}. Give the input that it was \
         made from, or use --overwrite to start again",
        .path.display()
    )]
    ForeignOutput {
        /// The file.
        path: PathBuf,
        /// 1-based line in it.
        line: u64,
        /// What is wrong there.
        problem: String,
    },
    /// The output file was made with another model.
    #[error(
        "{} was made with the model {made_with:?}, and this run has {running:?}: give the model \
         that it was made with, or use --overwrite to start again",
        .path.display()
    )]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// The model that its results name.
        made_with: String,
        /// The model that runs.
        running: String,
    },
    /// The engine could not start.
    #[error(transparent)]
    Startup(#[from] StartupError),
    /// The core died.
    #[error("{error}. {}; {advice}", complete(*.written))]
    EngineDead {
        /// Why, as far as known.
        error: EngineDeadError,
        /// Lines in the output.
        written: u64,
        /// How to go on.
        advice: &'static str,
    },
    /// The user ended the batch.
    #[error("interrupted. {}; {advice}", complete(*.written))]
    Interrupted {
        /// Lines in the output.
        written: u64,
        /// How to go on.
        advice: &'static str,
    },
    /// `--fail-on-error`, and lines have errors for their results.
    #[error("--fail-on-error: {failed} of {} failed", count(*.lines, "line"))]
    LinesFailed {
        /// Lines with an error.
        failed: u64,
        /// Lines in the output.
        lines: u64,
    },
    /// A prompt has no answer.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Standard output can't be written.
    #[error("can't write to standard output: {0}")]
    Stdout(io::Error),
}

/// How many results are there.
fn complete(written: u64) -> String {
    let are = if written == 1 { "is" } else { "are" };
    format!("{} {are} complete", count(written, "result"))
}

impl BatchError {
    /// 2 for wrong usage, 1 for the rest.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::SameFile { .. }
            | Self::GreedyAnswers { .. }
            | Self::OutputExists { .. }
            | Self::NotResumable { .. }
            | Self::Startup(StartupError::Flags(_)) => 2,
            _ => 1,
        }
    }
}
