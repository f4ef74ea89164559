use std::fs;
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, Semaphore};

use super::super::line::{BadLine, BatchRequestOutput};
use super::super::output::OutputPolicy;
use super::super::progress::EngineProgress;
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
        OutputFile::open(&self.path, policy).unwrap()
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
        custom_id: None,
        error: None,
    }
}

fn progress() -> Progress {
    Progress::new(None, &ResumePoint::default(), EngineProgress::default)
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
    let config = RunnerConfig {
        max_inflight,
        max_held_bytes: usize::MAX,
    };
    run_within(config, input, output, serve, stop).await
}

async fn run_within<S, F>(
    config: RunnerConfig,
    input: InputReader,
    output: &mut OutputFile,
    serve: S,
    stop: impl Future<Output = ()>,
) -> Result<RunEnd, BatchError>
where
    S: Fn(InputLine) -> F,
    F: Future<Output = Result<LineResult, EngineDeadError>> + Send + 'static,
{
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

/// Lines of 100 bytes, ends included.
fn hundreds(count: usize) -> String {
    (0..count).map(|i| format!("{i:099}\n")).collect()
}

#[tokio::test]
async fn waiting_results_are_bounded_in_bytes() {
    let file = Output::new();
    let mut output = file.open(OutputPolicy::Refuse);
    let started = Arc::new(AtomicUsize::new(0));
    let held_enough = Arc::new(Notify::new());
    let serve = |line: InputLine| {
        let (started, held_enough) = (started.clone(), held_enough.clone());
        async move {
            let seen = started.fetch_add(1, Ordering::SeqCst) + 1;
            if line.number == 1 {
                held_enough.notified().await;
            } else if seen == 4 {
                // 99 bytes of the first line and 100 of each result or 99 of each line: 350 are
                // held once the fourth is taken.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(started.load(Ordering::SeqCst), 4);
                held_enough.notify_one();
            }
            Ok(echo(&line))
        }
    };
    let config = RunnerConfig {
        max_inflight: 8,
        max_held_bytes: 350,
    };
    let lines = hundreds(50);
    let reader = input(lines.clone());
    let end = run_within(config, reader, &mut output, serve, std::future::pending()).await;
    assert_eq!(end.unwrap(), RunEnd::Complete);
    assert_eq!(file.text(), lines);
}

#[tokio::test]
async fn a_line_beyond_the_budget_is_served_alone() {
    let file = Output::new();
    let mut output = file.open(OutputPolicy::Refuse);
    let running = Arc::new(AtomicUsize::new(0));
    let serve = |line: InputLine| {
        let running = running.clone();
        async move {
            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(echo(&line))
        }
    };
    let config = RunnerConfig {
        max_inflight: 8,
        max_held_bytes: 1,
    };
    let lines = hundreds(50);
    let reader = input(lines.clone());
    let end = run_within(config, reader, &mut output, serve, std::future::pending()).await;
    assert_eq!(end.unwrap(), RunEnd::Complete);
    assert_eq!(file.text(), lines);
}

/// Counts what is read.
struct Counting(Cursor<String>, Arc<AtomicUsize>);

impl io::Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1.fetch_add(read, Ordering::SeqCst);
        Ok(read)
    }
}

impl io::BufRead for Counting {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.1.fetch_add(bytes, Ordering::SeqCst);
        self.0.consume(bytes);
    }
}

#[tokio::test]
async fn lines_are_read_ahead_up_to_a_number_of_bytes() {
    let read = Arc::new(AtomicUsize::new(0));
    let reader = Counting(Cursor::new(hundreds(50)), read.clone());
    let mut lines = ReadAhead::start(InputReader::new(reader), 250);
    for taken in 1..=20 {
        lines.next().await.unwrap().unwrap();
        // Two lines wait within the budget, and a third in the reader's hand.
        let expected = (taken + 3) * 100;
        while read.load(Ordering::SeqCst) < expected {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(read.load(Ordering::SeqCst), expected);
    }
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
        custom_id: None,
        error: Some("no".to_owned()),
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
