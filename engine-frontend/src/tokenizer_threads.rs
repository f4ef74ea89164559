//! How many threads tokenize at the same time.

use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// Most threads that tokenize. Each of them keeps a cache of the words that it has seen, so their
/// number bounds the memory.
const MAX_THREADS: usize = 4;

/// Blocking threads that do something else: one reads the input of a batch.
const OTHER_BLOCKING_THREADS: usize = 1;

/// A runtime for an engine's frontend. It has no more blocking threads than the frontend needs.
///
/// # Errors
/// The system has no more threads or files.
pub fn frontend_runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(num_threads() + OTHER_BLOCKING_THREADS)
        .enable_all()
        .build()
}

fn num_threads() -> usize {
    available_parallelism().map_or(1, |cores| cores.get().min(MAX_THREADS))
}

/// Runs what takes too long for a thread that serves streams, on a few blocking threads of the
/// runtime however much there is to do.
#[derive(Debug)]
pub(crate) struct TokenizerThreads(Arc<Semaphore>);

impl TokenizerThreads {
    /// As many threads as the machine has cores, and at most [`MAX_THREADS`].
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(num_threads())))
    }

    /// Runs `work` when a thread is free. A dropped future that waits for one runs nothing.
    ///
    /// # Errors
    /// It panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        // Fails only where it is closed, which it never is.
        let permit = self.0.clone().acquire_owned().await.ok();
        spawn_blocking(move || {
            // Given back by the thread: its future may be dropped before.
            let _permit = permit;
            work()
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

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
                    let work = move || {
                        let running = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
                        counts.1.fetch_max(running, Ordering::SeqCst);
                        barrier.wait();
                        counts.0.fetch_sub(1, Ordering::SeqCst);
                    };
                    threads.run(work).await.unwrap();
                });
            }
            callers.join_all().await;
        });
        assert_eq!(counts.1.load(Ordering::SeqCst), k);
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
