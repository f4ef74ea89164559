//! Where constraints are checked: on threads that give way to all others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use structured_output::CancelFlag;
use tokio::sync::oneshot;

use crate::tokenizer_threads::LARGE;

type Job = Box<dyn FnOnce() + Send>;

/// Two threads that check constraints, in the order in which they come: one for the large, so that small
/// ones, which take milliseconds at most, wait for each other alone. Requests without a constraint have
/// nothing to do with either.
///
/// Both run where a core is idle, since the running requests' steps need all of them.
#[derive(Debug)]
pub(crate) struct CheckThreads {
    small: Sender<Job>,
    large: Sender<Job>,
}

/// Cancels when it is dropped.
struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl CheckThreads {
    /// Starts them. They end with it.
    pub(crate) fn new() -> Self {
        Self {
            small: start("constraints"),
            large: start("constraints-l"),
        }
    }

    /// Runs `work` on a constraint of `bytes`. A future that is dropped sets its flag, and what hasn't
    /// begun by then never does. `None` where it panicked, or where the system had no thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(&CancelFlag) -> T + Send + 'static,
    ) -> Option<T> {
        let cancel = CancelOnDrop(CancelFlag::new());
        let flag = cancel.0.clone();
        let (result, receiver) = oneshot::channel();
        let job = move || {
            if !flag.is_cancelled() {
                // An error means that nobody waits any more.
                let _ = result.send(work(&flag));
            }
        };
        let thread = if bytes > LARGE {
            &self.large
        } else {
            &self.small
        };
        thread.send(Box::new(job)).ok()?;
        receiver.await.ok()
    }
}

/// Starts a thread that does what it is sent.
fn start(name: &str) -> Sender<Job> {
    let (sender, jobs) = channel();
    let thread = thread::Builder::new().name(name.to_owned());
    if let Err(error) = thread.spawn(move || work_through(&jobs)) {
        tracing::error!("no constraint can be checked, since a thread could not start: {error}");
    }
    sender
}

fn work_through(jobs: &Receiver<Job>) {
    if let Err(error) = give_way() {
        tracing::warn!("constraints are checked at the usual priority: {error}");
    }
    while let Ok(job) = jobs.recv() {
        // Whoever waits for a job that panics is told so by its channel.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

/// Lets the calling thread run only where a core is idle (`SCHED_IDLE`). A nice one would keep a core for the
/// rest of its turn, some milliseconds, while a forward pass waits for it.
#[cfg(target_os = "linux")]
fn give_way() -> std::io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: reads the parameters, which are valid; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Other systems have no priority of single threads that suits.
#[cfg(not(target_os = "linux"))]
fn give_way() -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_dropped_future_ends_its_check_and_those_behind_it_run() {
        let threads = CheckThreads::new();
        let (started, has_started) = oneshot::channel();
        let (ended, has_ended) = mpsc::channel();
        let endless = threads.run(0, move |cancel| {
            started.send(()).unwrap();
            while !cancel.is_cancelled() {
                thread::yield_now();
            }
            ended.send("running").unwrap();
        });
        let never = threads.run(0, |_| panic!("nobody waits for it"));
        tokio::select! {
            biased;
            _ = endless => unreachable!(),
            _ = never => unreachable!(),
            begun = has_started => begun.unwrap(),
        }
        // Both futures are gone.
        assert_eq!(threads.run(0, |_| 7).await, Some(7));
        assert_eq!(has_ended.recv(), Ok("running"));
    }

    #[tokio::test]
    async fn large_constraints_hold_up_no_small_one() {
        let threads = CheckThreads::new();
        let (release, held) = mpsc::channel::<()>();
        let large = threads.run(LARGE + 1, move |_| held.recv());
        let small = async {
            assert_eq!(threads.run(LARGE, |_| 7).await, Some(7));
            drop(release);
        };
        assert!(tokio::join!(large, small).0.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_panic_ends_one_check() {
        let threads = CheckThreads::new();
        assert_eq!(threads.run(0, |_| panic!("by the test")).await, None::<()>);
        assert_eq!(threads.run(0, |_| 7).await, Some(7));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn they_run_where_a_core_is_idle() {
        let threads = CheckThreads::new();
        for bytes in [0, LARGE + 1] {
            // SAFETY: takes an integer and touches no memory of ours.
            let policy = threads.run(bytes, |_| unsafe { libc::sched_getscheduler(0) });
            assert_eq!(policy.await, Some(libc::SCHED_IDLE));
        }
    }
}
