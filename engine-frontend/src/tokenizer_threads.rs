//! How many threads tokenize at the same time.

use std::thread::available_parallelism;

use structured_output::CancelFlag;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, spawn_blocking};

use crate::cancel_on_drop::CancelOnDrop;
use crate::client_turns::ClientTurns;
use crate::freed_memory::give_memory_back;

/// Most threads that tokenize. Each of them keeps a cache of the words that it has seen, so their
/// number bounds the memory.
const MAX_THREADS: usize = 4;

/// Most threads that serve connections and streams.
const MAX_WORKERS: usize = 8;

/// Blocking threads that do something else: one reads the input of a batch; of a server four parse bodies of clients
/// with a key, four those of others, and two make long answers.
const OTHER_BLOCKING_THREADS: usize = 10;

/// A runtime for an engine's frontend. It has no more blocking threads than the frontend needs. From here
/// on a file that may not grow (`ulimit -f`) is an error where it is written, not the process's end.
///
/// # Errors
/// The system has no more threads or files.
pub fn frontend_runtime() -> std::io::Result<Runtime> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(num_workers())
        .max_blocking_threads(num_threads() + OTHER_BLOCKING_THREADS)
        .enable_all()
        .build()?;
    let inside = runtime.enter();
    // Once asked for, the signal is caught for as long as the process lives.
    drop(signal(SignalKind::from_raw(libc::SIGXFSZ))?);
    drop(inside);
    Ok(runtime)
}

/// Threads that serve connections and streams: a quarter of the cores, for the engine core has the others, but
/// two at least, so that one that is busy holds up nobody.
fn num_workers() -> usize {
    available_parallelism().map_or(2, |cores| (cores.get() / 4).clamp(2, MAX_WORKERS))
}

/// At least two: one is for what is small.
fn num_threads() -> usize {
    available_parallelism().map_or(2, |cores| cores.get().clamp(2, MAX_THREADS))
}

/// Bytes of input above which work is large.
pub(crate) const LARGE: usize = 256 << 10;

/// Bytes of input above which work takes long: some ten milliseconds to tokenize it, and up to two to read it.
pub(crate) const LONG: usize = 16 << 10;

/// Runs what takes too long for a thread that serves streams, on a few blocking threads of the
/// runtime however much there is to do. Clients take turns on them, and long work leaves one of them to the
/// short: texts of many megabytes, which take seconds, hold up only each other.
#[derive(Debug)]
pub(crate) struct TokenizerThreads {
    threads: ClientTurns,
    for_long: ClientTurns,
}

impl TokenizerThreads {
    /// As many threads as the machine has cores, but from two to [`MAX_THREADS`].
    pub(crate) fn new() -> Self {
        let threads = num_threads();
        Self {
            threads: ClientTurns::new(threads, threads),
            for_long: ClientTurns::new(threads - 1, threads - 1),
        }
    }

    /// Runs `work` on an input of `bytes` when a thread is free. A dropped future that waits for
    /// one runs nothing; one whose work has begun sets its flag.
    ///
    /// # Errors
    /// It panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(&CancelFlag) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let cancel = CancelOnDrop::new();
        let flag = cancel.flag();
        let long = match bytes > LONG {
            true => self.for_long.acquire().await,
            false => None,
        };
        let turn = self.threads.acquire().await;
        spawn_blocking(move || {
            // Given back by the thread: its future may be dropped before.
            let _turns = (long, turn);
            let done = work(&flag);
            give_memory_back(bytes);
            done
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn many_callers_share_a_few_threads() {
        let k = num_threads();
        // A runtime that would give every caller a thread.
        let runtime = Builder::new_multi_thread().worker_threads(2).build();
        let threads = Arc::new(TokenizerThreads::new());
        // (running now, most at once)
        let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        // Nothing passes unless `k` run at once.
        let barrier = Arc::new(Barrier::new(k));
        runtime.unwrap().block_on(async {
            let mut callers = tokio::task::JoinSet::new();
            for _ in 0..16 * k {
                let (threads, counts, barrier) = (threads.clone(), counts.clone(), barrier.clone());
                callers.spawn(async move {
                    let work = move |_: &CancelFlag| {
                        let running = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
                        counts.1.fetch_max(running, Ordering::SeqCst);
                        barrier.wait();
                        counts.0.fetch_sub(1, Ordering::SeqCst);
                    };
                    threads.run(0, work).await.unwrap();
                });
            }
            callers.join_all().await;
        });
        assert_eq!(counts.1.load(Ordering::SeqCst), k);
    }

    #[test]
    fn short_work_passes_by_long() {
        let runtime = frontend_runtime().unwrap();
        let threads = Arc::new(TokenizerThreads::new());
        runtime.block_on(async {
            let mut callers = tokio::task::JoinSet::new();
            let (release, held) = std::sync::mpsc::channel::<()>();
            let held = Arc::new(std::sync::Mutex::new(held));
            for _ in 0..16 {
                let (threads, held) = (threads.clone(), held.clone());
                let work = move |_: &CancelFlag| {
                    let _ = held.lock().unwrap().recv();
                };
                callers.spawn(async move { threads.run(LONG + 1, work).await.unwrap() });
            }
            for _ in 0..100 {
                tokio::task::yield_now().await;
                assert_eq!(threads.run(LONG, |_| 7).await.unwrap(), 7);
            }
            drop(release);
            callers.join_all().await;
        });
    }

    /// Whether a time is over or a client is gone: what is under way is told, what waits never begins.
    #[tokio::test]
    async fn a_dropped_future_ends_its_work() {
        let threads = TokenizerThreads::new();
        let (started, has_started) = tokio::sync::oneshot::channel();
        let (ended, has_ended) = std::sync::mpsc::channel();
        let endless = threads.run(0, move |cancel| {
            started.send(()).unwrap();
            while !cancel.is_cancelled() {
                std::thread::yield_now();
            }
            ended.send(()).unwrap();
        });
        tokio::select! {
            biased;
            _ = endless => unreachable!(),
            begun = has_started => begun.unwrap(),
        }
        has_ended.recv().unwrap();
        // One that is never asked does nothing.
        drop(threads.run(0, |_| panic!("nobody waits for it")));
        assert_eq!(threads.run(0, |_| 7).await.unwrap(), 7);
    }

    #[test]
    fn a_runtime_has_a_bounded_number_of_blocking_threads() {
        let runtime = frontend_runtime().unwrap();
        let ids = Arc::new(std::sync::Mutex::new(std::collections::HashSet::new()));
        runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..500 {
                let ids = ids.clone();
                tasks.spawn_blocking(move || {
                    ids.lock().unwrap().insert(std::thread::current().id());
                });
            }
            tasks.join_all().await;
        });
        assert!(ids.lock().unwrap().len() <= num_threads() + OTHER_BLOCKING_THREADS);
    }
}
