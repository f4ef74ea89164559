//! Many lines in flight, results in order.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::error::BatchError;
use super::input::{InputLine, InputReader};
use super::output::OutputFile;
use super::progress::Progress;
use crate::error::EngineDeadError;

/// How many times `max_inflight` results and requests together may lie between the next line to
/// write and the last line read.
pub const WINDOW_FACTOR: usize = 4;

/// Lines that are read ahead of the window.
const READ_AHEAD: usize = 16;

/// Time between two updates of the progress display.
const TICK: Duration = Duration::from_millis(200);

/// How much may be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnerConfig {
    /// Most requests in the engine at the same time.
    pub max_inflight: usize,
}

/// What a line came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineResult {
    /// What is written, its newline included.
    pub bytes: Vec<u8>,
    /// Whether the caller got what was asked for.
    pub success: bool,
}

/// How a run ended. In every case the output holds complete lines only, in input order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// Every line has its result.
    Complete,
    /// `stop` came before the end of the input.
    Interrupted,
    /// The core is gone.
    EngineDead(EngineDeadError),
}

/// A place in the window: the result of a line when it is there.
#[derive(Debug)]
struct Place {
    end_offset: u64,
    result: Option<LineResult>,
}

/// Serves the lines of `input` with at most `max_inflight` at a time and writes their results in
/// order. When `stop` resolves no further line is taken; those in flight are finished.
///
/// # Errors
/// The input can't be read or the output can't be written. Then, too, what was written before is
/// whole.
pub async fn run_lines<S, F>(
    input: InputReader,
    input_path: &Path,
    output: &mut OutputFile,
    config: RunnerConfig,
    serve: S,
    stop: impl Future<Output = ()>,
    progress: &mut Progress,
) -> Result<RunEnd, BatchError>
where
    S: Fn(InputLine) -> F,
    F: Future<Output = Result<LineResult, EngineDeadError>> + Send + 'static,
{
    let max_window = config.max_inflight.saturating_mul(WINDOW_FACTOR);
    let mut lines = read_ahead(input);
    let mut stop = pin!(stop);
    let mut ticker = tokio::time::interval(TICK);
    let mut running = JoinSet::new();
    let mut window: VecDeque<Place> = VecDeque::new();
    // Sequence number of the window's front.
    let mut front: usize = 0;
    let mut input_ended = false;
    let mut end = RunEnd::Complete;
    let mut input_error = None;
    while !(input_ended && running.is_empty()) {
        let may_take =
            !input_ended && running.len() < config.max_inflight && window.len() < max_window;
        tokio::select! {
            biased;
            () = &mut stop, if !input_ended => {
                input_ended = true;
                end = RunEnd::Interrupted;
                progress.stopping(running.len());
            }
            Some(joined) = running.join_next() => {
                match flatten(joined) {
                    Ok((sequence, result)) => {
                        let place = window.get_mut(usize::wrapping_sub(sequence, front));
                        if let Some(place) = place {
                            place.result = Some(result);
                        }
                    }
                    Err(dead) => {
                        input_ended = true;
                        end = RunEnd::EngineDead(dead);
                    }
                }
            }
            received = lines.recv(), if may_take => match received {
                Some(Ok(line)) => {
                    let sequence = front + window.len();
                    window.push_back(Place { end_offset: line.end_offset, result: None });
                    let served = serve(line);
                    running.spawn(async move { served.await.map(|result| (sequence, result)) });
                }
                Some(Err(error)) => {
                    input_ended = true;
                    input_error = Some(error);
                }
                None => input_ended = true,
            },
            _ = ticker.tick() => progress.tick(),
        }
        while let Some(Place {
            result: Some(_), ..
        }) = window.front()
        {
            if let Some(Place {
                end_offset,
                result: Some(result),
            }) = window.pop_front()
            {
                output.write_line(&result.bytes)?;
                progress.line_written(end_offset, result.success);
            }
            front += 1;
        }
    }
    output.finish()?;
    match input_error {
        Some(source) => Err(BatchError::Input {
            path: input_path.to_owned(),
            source,
        }),
        None => Ok(end),
    }
}

type Joined = Result<Result<(usize, LineResult), EngineDeadError>, tokio::task::JoinError>;

fn flatten(joined: Joined) -> Result<(usize, LineResult), EngineDeadError> {
    joined.unwrap_or_else(|error| {
        Err(EngineDeadError {
            reason: format!("a task of the frontend failed: {error}"),
            exit_status: None,
        })
    })
}

/// Reads on a blocking thread: standard input can't be read asynchronously, and may never end.
fn read_ahead(mut input: InputReader) -> mpsc::Receiver<io::Result<InputLine>> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    tokio::task::spawn_blocking(move || {
        while let Some(line) = input.next_line().transpose() {
            let failed = line.is_err();
            if sender.blocking_send(line).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests;
