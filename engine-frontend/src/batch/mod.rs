//! `formwork-batch`: files of requests in the OpenAI batch format, and prompts from the command
//! line.
//!
//! One output line per input line that isn't blank, in input order, written when it and all
//! before it are complete. So the output is a prefix of the final one at any time, and what a
//! kill leaves, up to the last newline, is what [`resume`] goes on from.
//!
//! Memory doesn't depend on the input's length: lines are read as they are needed, and results
//! wait for an earlier line that is slow within a number of lines ([`WINDOW_FACTOR`] times
//! `--max-inflight`) and of bytes ([`RunnerConfig::max_held_bytes`]).

mod args;
mod custom_ids;
mod error;
mod input;
mod line;
mod output;
mod progress;
mod prompts;
mod resume;
mod run;
mod runner;
mod serve;

pub use args::BatchArgs;
pub use custom_ids::CustomIds;
pub use error::BatchError;
pub use input::{InputLine, InputReader, MAX_LINE_BYTES};
pub use line::{BadLine, BatchRequestInput, BatchRequestOutput, BatchResponseData, BatchUrl};
pub use output::{OutputFile, OutputPolicy, refuse_same_file};
pub use resume::{ResumePoint, resume};
pub use run::run;
pub use runner::{RunEnd, RunnerConfig, WINDOW_FACTOR, run_lines};
