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

/// Reads on a thread of its own: standard input can't be read asynchronously, and may never end.
fn read_ahead(mut input: InputReader) -> mpsc::Receiver<io::Result<InputLine>> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    std::thread::spawn(move || {
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
mod tests {
    use std::fs;
    use std::io::Cursor;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::{Notify, Semaphore};

    use super::super::line::{BadLine, BatchRequestOutput};
    use super::super::output::OutputPolicy;
    use super::super::resume::{ResumePoint, resume};
    use super::*;

    const INPUT: &str = "{\"custom_id\":\"a\"}\n\nbroken\n{\"custom_id\":\"ü\"}\r\n\
        {\"custom_id\":\"a\"}\n{\"custom_id\":\"d\"}";

    struct Output {
        _folder: tempfile::TempDir,
        path: PathBuf,
    }

    impl Output {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("out");
            Self {
                _folder: folder,
                path,
            }
        }

        fn open(&self, policy: OutputPolicy) -> OutputFile {
            OutputFile::open(&self.path, Path::new("-"), policy).unwrap()
        }

        fn text(&self) -> String {
            fs::read_to_string(&self.path).unwrap()
        }
    }

    fn input(text: impl Into<Vec<u8>>) -> InputReader {
        InputReader::new(Cursor::new(text.into()))
    }

    fn numbers(count: usize) -> InputReader {
        input((0..count).map(|i| format!("{i}\n")).collect::<String>())
    }

    fn echo(line: &InputLine) -> LineResult {
        let mut bytes = line.bytes.clone().unwrap();
        bytes.push(b'\n');
        LineResult {
            bytes,
            success: true,
        }
    }

    fn progress() -> Progress {
        Progress::new(None, 0, 0, || 0)
    }

    async fn run<S, F>(
        input: InputReader,
        output: &mut OutputFile,
        max_inflight: usize,
        serve: S,
        stop: impl Future<Output = ()>,
    ) -> Result<RunEnd, BatchError>
    where
        S: Fn(InputLine) -> F,
        F: Future<Output = Result<LineResult, EngineDeadError>> + Send + 'static,
    {
        let config = RunnerConfig { max_inflight };
        let path = Path::new("in");
        run_lines(input, path, output, config, serve, stop, &mut progress()).await
    }

    #[tokio::test]
    async fn results_are_in_order_whatever_the_order_of_their_ends() {
        let file = Output::new();
        let mut output = file.open(OutputPolicy::Refuse);
        let serve = |line: InputLine| async move {
            // Later lines of a group of eight are ready earlier.
            for _ in 0..(8 - line.number % 8) * 3 {
                tokio::task::yield_now().await;
            }
            Ok(echo(&line))
        };
        let end = run(numbers(200), &mut output, 8, serve, std::future::pending()).await;
        assert_eq!(end.unwrap(), RunEnd::Complete);
        let expected: String = (0..200).map(|i| format!("{i}\n")).collect();
        assert_eq!(file.text(), expected);
    }

    #[tokio::test]
    async fn a_slow_first_line_bounds_what_is_read() {
        let file = Output::new();
        let mut output = file.open(OutputPolicy::Refuse);
        let started = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let running = Arc::new(AtomicUsize::new(0));
        let window_full = Arc::new(Notify::new());
        let serve = |line: InputLine| {
            let (started, running, most) = (started.clone(), running.clone(), most.clone());
            let window_full = window_full.clone();
            async move {
                let seen = started.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                if line.number == 1 {
                    // Ends only when the window can't grow any more.
                    window_full.notified().await;
                } else if seen == 3 * WINDOW_FACTOR {
                    for _ in 0..100 {
                        tokio::task::yield_now().await;
                    }
                    assert_eq!(started.load(Ordering::SeqCst), 3 * WINDOW_FACTOR);
                    window_full.notify_one();
                }
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(echo(&line))
            }
        };
        let end = run(numbers(100), &mut output, 3, serve, std::future::pending()).await;
        assert_eq!(end.unwrap(), RunEnd::Complete);
        assert_eq!(file.text().lines().count(), 100);
        assert!(most.load(Ordering::SeqCst) <= 3);
    }

    #[tokio::test]
    async fn a_stop_finishes_what_is_in_flight() {
        let file = Output::new();
        let mut output = file.open(OutputPolicy::Refuse);
        let stop = Arc::new(Notify::new());
        let gate = Arc::new(Semaphore::new(0));
        let serve = |line: InputLine| {
            let (stop, gate) = (stop.clone(), gate.clone());
            async move {
                if line.number == 4 {
                    stop.notify_one();
                    for _ in 0..100 {
                        tokio::task::yield_now().await;
                    }
                    gate.add_permits(1000);
                }
                let _permit = gate.acquire().await;
                Ok(echo(&line))
            }
        };
        let end = run(numbers(1000), &mut output, 4, serve, stop.notified()).await;
        assert_eq!(end.unwrap(), RunEnd::Interrupted);
        assert_eq!(file.text(), "0\n1\n2\n3\n");
    }

    #[tokio::test]
    async fn a_dead_core_leaves_a_prefix() {
        let file = Output::new();
        let mut output = file.open(OutputPolicy::Refuse);
        let dead = EngineDeadError {
            reason: "gone".to_owned(),
            exit_status: None,
        };
        let serve = |line: InputLine| {
            let dead = dead.clone();
            async move {
                if line.number < 50 {
                    Ok(echo(&line))
                } else {
                    Err(dead)
                }
            }
        };
        let end = run(numbers(1000), &mut output, 8, serve, std::future::pending()).await;
        assert_eq!(end.unwrap(), RunEnd::EngineDead(dead));
        let expected: String = (0..49).map(|i| format!("{i}\n")).collect();
        assert_eq!(file.text(), expected);
    }

    #[tokio::test]
    async fn an_input_that_breaks_off_is_an_error() {
        struct Broken;
        impl io::Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("unplugged"))
            }
        }
        let file = Output::new();
        let mut output = file.open(OutputPolicy::Refuse);
        let reader = InputReader::new(io::BufReader::new(io::Read::chain(&b"0\n"[..], Broken)));
        let serve = |line: InputLine| async move { Ok(echo(&line)) };
        let end = run(reader, &mut output, 8, serve, std::future::pending()).await;
        assert!(matches!(end, Err(BatchError::Input { .. })), "{end:?}");
        assert_eq!(file.text(), "0\n");
    }

    /// A result like a real one, and the same in every run.
    fn result(line: &InputLine) -> LineResult {
        let bad = BadLine {
            custom_id: super::super::line::BatchRequestInput::custom_id_of(line),
            code: "test",
            message: "é".to_owned(),
        };
        let output = BatchRequestOutput::bad_line(line.number, bad);
        let mut bytes = serde_json::to_vec(&output).unwrap();
        bytes.push(b'\n');
        LineResult {
            bytes,
            success: false,
        }
    }

    async fn run_to_end(file: &Output, policy: OutputPolicy) -> String {
        let mut reader = input(INPUT);
        let mut output = file.open(policy);
        let point = match policy {
            OutputPolicy::Resume => {
                let written = output.reader().unwrap().unwrap();
                resume(written, &file.path, &mut reader, Path::new("in")).unwrap()
            }
            _ => ResumePoint::default(),
        };
        output.start_at(point.length).unwrap();
        let serve = |line: InputLine| async move { Ok(result(&line)) };
        let end = run(reader, &mut output, 2, serve, std::future::pending()).await;
        assert_eq!(end.unwrap(), RunEnd::Complete);
        file.text()
    }

    #[tokio::test]
    async fn resuming_after_a_cut_at_any_byte_gives_the_same_file() {
        let file = Output::new();
        let whole = run_to_end(&file, OutputPolicy::Refuse).await;
        assert_eq!(whole.lines().count(), 5);
        for cut in 0..=whole.len() {
            fs::write(&file.path, &whole.as_bytes()[..cut]).unwrap();
            assert_eq!(
                run_to_end(&file, OutputPolicy::Resume).await,
                whole,
                "cut at {cut}"
            );
        }
    }
}
