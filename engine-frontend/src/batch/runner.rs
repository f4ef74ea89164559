//! Many lines in flight, results in order.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
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
    /// Most lines that are served at the same time.
    pub max_inflight: usize,
    /// No line is taken while the lines that are served and the results that wait to be written
    /// hold this many bytes. As many are read ahead. What a line or its result needs beyond its
    /// own bytes is not counted.
    pub max_held_bytes: usize,
}

/// The result of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineResult {
    /// What is written, its newline included.
    pub bytes: Vec<u8>,
    /// The line's `custom_id`, where it has one.
    pub custom_id: Option<String>,
    /// Why the caller didn't get what was asked for.
    pub error: Option<String>,
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
    /// Bytes of the line, until the result is there.
    line_bytes: usize,
    result: Option<LineResult>,
}

/// Serves the lines of `input` within the limits of `config` and writes their results in order. When `stop` resolves no further line is taken; those in flight are finished.
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
    let mut lines = ReadAhead::start(input, config.max_held_bytes);
    let mut stop = pin!(stop);
    let mut ticker = tokio::time::interval(TICK);
    let mut running = JoinSet::new();
    let mut window: VecDeque<Place> = VecDeque::new();
    // Sequence number of the window's front.
    let mut front: usize = 0;
    // Bytes of the window's lines and results.
    let mut held_bytes: usize = 0;
    let mut input_ended = false;
    let mut end = RunEnd::Complete;
    let mut input_error = None;
    while !(input_ended && running.is_empty()) {
        // Never false for good: the window's front is being served, and is written then.
        let may_take = !input_ended
            && running.len() < config.max_inflight
            && window.len() < max_window
            && (held_bytes < config.max_held_bytes || window.is_empty());
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
                            held_bytes = held_bytes - place.line_bytes + result.bytes.len();
                            place.result = Some(result);
                        }
                    }
                    Err(dead) => {
                        input_ended = true;
                        end = RunEnd::EngineDead(dead);
                    }
                }
            }
            received = lines.next(), if may_take => match received {
                Some(Ok(line)) => {
                    let sequence = front + window.len();
                    held_bytes += line.num_bytes();
                    window.push_back(Place {
                        end_offset: line.end_offset,
                        line_bytes: line.num_bytes(),
                        result: None,
                    });
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
                ..
            }) = window.pop_front()
            {
                held_bytes -= result.bytes.len();
                output.write_line(&result.bytes)?;
                progress.line_written(end_offset, result);
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

/// Lines that a blocking thread reads before they are needed: standard input can't be read
/// asynchronously, and may never end.
struct ReadAhead {
    lines: mpsc::Receiver<(io::Result<InputLine>, OwnedSemaphorePermit)>,
    /// One permit per byte that may be read ahead.
    budget: Arc<Semaphore>,
}

impl ReadAhead {
    /// Reads until `max_bytes` or [`READ_AHEAD`] lines wait; one line more is in the reader's hand.
    fn start(mut input: InputReader, max_bytes: usize) -> Self {
        let max_bytes = u32::try_from(max_bytes).unwrap_or(u32::MAX);
        let budget = Arc::new(Semaphore::new(max_bytes as usize));
        let (sender, lines) = mpsc::channel(READ_AHEAD);
        let reader_budget = budget.clone();
        let runtime = tokio::runtime::Handle::current();
        tokio::task::spawn_blocking(move || {
            while let Some(line) = input.next_line().transpose() {
                let failed = line.is_err();
                let bytes = line.as_ref().map_or(0, InputLine::num_bytes);
                // A line that is longer than the budget waits for all of it.
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(max_bytes);
                let permit = runtime.block_on(reader_budget.clone().acquire_many_owned(bytes));
                let Ok(permit) = permit else { return };
                if sender.blocking_send((line, permit)).is_err() || failed {
                    return;
                }
            }
        });
        Self { lines, budget }
    }

    /// The next line; `None` at the input's end. A dropped future loses nothing.
    async fn next(&mut self) -> Option<io::Result<InputLine>> {
        self.lines.recv().await.map(|(line, _permit)| line)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // The reader may wait for it.
        self.budget.close();
    }
}

#[cfg(test)]
mod tests;
