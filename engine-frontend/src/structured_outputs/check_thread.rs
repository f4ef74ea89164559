//! Where constraints are checked: on a thread that nobody waits for but those whose turn it is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use structured_output::CancelFlag;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::cancel_on_drop::CancelOnDrop;

type Job = Box<dyn FnOnce() + Send>;

/// How much nicer than the rest of the process: on a core with a forward pass it gets a tenth.
#[cfg(target_os = "linux")]
const NICENESS: libc::c_int = 10;

/// One thread that checks one constraint at a time. Requests don't wait for it: while it is busy, constraints
/// go to the core unchecked. There they wait in one queue, in which the short passes by what takes
/// long, are bounded and counted, and are refused in the same words. So a crowd is held up here by nothing.
#[derive(Debug)]
pub(crate) struct CheckThread {
    /// `None` where the system had no thread.
    jobs: Option<Sender<Job>>,
    /// One permit: for who has the thread's time.
    turns: Arc<Semaphore>,
}

/// The thread's time for one check. Dropped, it is another's.
#[derive(Debug)]
pub(crate) struct CheckTurn {
    jobs: Sender<Job>,
    ends: OwnedSemaphorePermit,
}

impl CheckThread {
    /// Starts it. It ends with this.
    pub(crate) fn new() -> Self {
        let (sender, jobs) = channel();
        let thread = thread::Builder::new().name("constraints".to_owned());
        let started = thread.spawn(move || work_through(&jobs));
        if let Err(error) = &started {
            tracing::error!(
                "constraints are checked by the core alone, since a thread could not start: {error}"
            );
        }
        Self {
            jobs: started.is_ok().then_some(sender),
            turns: Arc::new(Semaphore::new(1)),
        }
    }

    /// The thread's time, where it is free.
    pub(crate) fn try_turn(&self) -> Option<CheckTurn> {
        let ends = Arc::clone(&self.turns).try_acquire_owned().ok()?;
        let jobs = self.jobs.clone()?;
        Some(CheckTurn { jobs, ends })
    }

    /// The thread's time, once those who asked before have had it. `None` where there is no thread.
    pub(crate) async fn turn(&self) -> Option<CheckTurn> {
        let jobs = self.jobs.clone()?;
        let ends = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        Some(CheckTurn { jobs, ends })
    }
}

impl CheckTurn {
    /// Runs `work` on the thread. A future that is dropped sets its flag. `None` where it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(&CancelFlag) -> T + Send + 'static,
    ) -> Option<T> {
        let cancel = CancelOnDrop::new();
        let flag = cancel.flag();
        let (result, receiver) = oneshot::channel();
        let ends = self.ends;
        let job = move || {
            if !flag.is_cancelled() {
                let done = work(&flag);
                // Before the answer: who has it may have the next turn.
                drop(ends);
                // An error means that nobody waits any more.
                let _ = result.send(done);
            }
        };
        self.jobs.send(Box::new(job)).ok()?;
        receiver.await.ok()
    }
}

fn work_through(jobs: &Receiver<Job>) {
    if let Err(error) = lower_priority() {
        tracing::warn!("constraints are checked at the usual priority: {error}");
    }
    while let Ok(job) = jobs.recv() {
        // Whoever waits for a job that panics is told so by its channel.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

/// Puts the calling thread behind the running requests' steps, but not behind all else: where it ran on
/// idle cores only (`SCHED_IDLE`), others would leave it none.
#[cfg(target_os = "linux")]
fn lower_priority() -> std::io::Result<()> {
    // SAFETY: both take integers and touch no memory of ours. On Linux, who 0 is the calling thread.
    let set = unsafe {
        let of_process = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, (of_process + NICENESS).min(19))
    };
    match set {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Other systems have no priority of single threads that suits.
#[cfg(not(target_os = "linux"))]
fn lower_priority() -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn nobody_waits_while_another_is_checked() {
        let thread = CheckThread::new();
        let (release, held) = mpsc::channel::<()>();
        let turn = thread.try_turn().unwrap();
        // From the moment in which it has the turn.
        assert!(thread.try_turn().is_none());
        let first = turn.run(move |_| held.recv().is_err());
        let others = async {
            for _ in 0..1000 {
                assert!(thread.try_turn().is_none());
            }
            drop(release);
        };
        assert_eq!(tokio::join!(first, others).0, Some(true));
        // Whoever has an answer may ask again.
        for number in 0..100 {
            let turn = thread.try_turn().unwrap();
            assert_eq!(turn.run(move |_| number).await, Some(number));
        }
        drop(thread.try_turn().unwrap());
        assert!(thread.try_turn().is_some());
    }

    #[tokio::test]
    async fn a_dropped_future_ends_its_check_and_its_turn() {
        let thread = CheckThread::new();
        let (started, has_started) = oneshot::channel();
        let (ended, has_ended) = mpsc::channel();
        let endless = thread.try_turn().unwrap().run(move |cancel| {
            started.send(()).unwrap();
            while !cancel.is_cancelled() {
                thread::yield_now();
            }
            ended.send("running").unwrap();
        });
        tokio::select! {
            biased;
            _ = endless => unreachable!(),
            begun = has_started => begun.unwrap(),
        }
        // The future is gone.
        assert_eq!(has_ended.recv(), Ok("running"));
        let turn = loop {
            if let Some(turn) = thread.try_turn() {
                break turn;
            }
            thread::yield_now();
        };
        // One that is never asked does nothing.
        drop(turn.run(|_| panic!("nobody waits for it")));
        assert_eq!(thread.try_turn().unwrap().run(|_| 7).await, Some(7));
    }

    #[tokio::test]
    async fn who_waits_has_its_turn() {
        let thread = CheckThread::new();
        let first = thread.turn().await.unwrap();
        let waits = async { thread.turn().await.unwrap().run(|_| 2).await };
        let runs = async { first.run(|_| 1).await };
        assert_eq!(tokio::join!(waits, runs), (Some(2), Some(1)));
    }

    #[tokio::test]
    async fn a_panic_ends_one_check() {
        let thread = CheckThread::new();
        let panics = thread.try_turn().unwrap().run(|_| panic!("by the test"));
        assert_eq!(panics.await, None::<()>);
        let turn = loop {
            if let Some(turn) = thread.try_turn() {
                break turn;
            }
            thread::yield_now();
        };
        assert_eq!(turn.run(|_| 7).await, Some(7));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn it_is_nicer_but_runs_where_others_do() {
        let thread = CheckThread::new();
        // SAFETY: both take integers and touch no memory of ours.
        let priority = || unsafe {
            let policy = libc::sched_getscheduler(0);
            (policy, libc::getpriority(libc::PRIO_PROCESS, 0))
        };
        let (policy, niceness) = priority();
        let of_thread = thread.try_turn().unwrap().run(move |_| priority());
        let expected = (policy, (niceness + NICENESS).min(19));
        assert_eq!(of_thread.await, Some(expected));
    }
}
