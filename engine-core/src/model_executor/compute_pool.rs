//! The compute pool: one per process, its threads persistent.
//!
//! Work comes as a job of numbered tiles. Each thread has a share of them that follow one another, so that
//! it reads on where it stopped, and takes them one by one; one whose share is done takes what is left of the
//! others', so that a thread that the system has slowed down delays a job by a tile at most. The calling
//! thread takes part. Between
//! jobs the workers spin for some microseconds, since the next layer's job is near, and then park:
//! an idle pool uses no CPU.
//!
//! Where there is a core for each thread, each worker stays on one ([`ComputePool::pinned`]), and the
//! thread that calls on the one that is left ([`ComputePool::bind_caller`]). There the workers don't
//! park within a forward pass either ([`ComputePool::keep_awake`]): whoever wakes on a core on which a
//! compile thread runs waits for it, though that thread gives way to all others, since many systems
//! look for that no sooner than at their next tick.
//!
//! A worker joins a job by raising a count in `gate`; the caller closes the gate when no tile is
//! left and waits for that count alone, never for workers that are still asleep.

mod affinity;
mod at_end;

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};

use thiserror::Error;

use at_end::Working;
#[cfg(target_arch = "x86_64")]
pub(crate) use at_end::call_at_end;

use crate::lock::lock;
use crate::panic_message::panic_message;

/// An error of the pool or of the work given to it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A tile panicked. The pool stays usable.
    #[error("a compute thread panicked: {message}")]
    Panicked {
        /// What the panic said.
        message: String,
    },
    /// A thread could not be started.
    #[error("compute thread {index} could not be started: {source}")]
    Spawn {
        /// Which one.
        index: usize,
        /// Why.
        source: std::io::Error,
    },
}

/// How often a thread looks before it parks: some 20 to 60 microseconds.
const SPINS_BEFORE_PARK: u32 = 1_000;

/// The same within a forward pass, on cores of their own: half a millisecond to one. The next job is
/// nearer than that, but for another process that has taken the caller's core.
const SPINS_WITHIN_PASS: u32 = 20_000;

/// Lowest bit of the job's number in `gate`; below it stand `OPEN` and the count of workers inside.
const JOB_SHIFT: u32 = 32;
const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;

type Job<'a> = dyn Fn(usize, usize) + Sync + 'a;

struct Shared {
    /// Number of the job, whether it may be joined, how many workers are inside.
    gate: AtomicU64,
    /// The job's function, valid while the gate is open or a worker is inside.
    job: Mutex<Option<JobPointer>>,
    num_tiles: AtomicUsize,
    /// Of each thread, the caller's first.
    shares: Vec<Share>,
    panic_message: Mutex<Option<String>>,
    stop: AtomicBool,
    /// Whether a forward pass is under way and each thread has a core.
    awake: AtomicBool,
    parked: Vec<AtomicBool>,
    /// The thread that waits for the last worker to leave.
    caller: Mutex<Option<Thread>>,
}

/// The next of a thread's tiles, in a line of the cache of its own: others look at it at the end only.
#[repr(align(64))]
struct Share(AtomicUsize);

#[derive(Clone, Copy)]
struct JobPointer(*const Job<'static>);

// SAFETY: the pointee is `Sync`, and `ComputePool::run` keeps it alive while workers use it.
unsafe impl Send for JobPointer {}

/// Persistent threads that share the tiles of one job at a time.
pub struct ComputePool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// The core that no worker stays on, where the workers stay on theirs.
    callers_core: Option<usize>,
    /// Held during a job.
    running: Mutex<()>,
}

impl ComputePool {
    /// A pool of `num_threads` threads, the caller of [`Self::run`] being one of them.
    ///
    /// # Errors
    /// [`PoolError::Spawn`] where the system refuses a thread.
    pub fn new(num_threads: usize) -> Result<Self, PoolError> {
        Self::on_cores(num_threads, &[])
    }

    /// The same with each worker on a core of its own, where this process may use exactly as many
    /// cores as there are threads. Otherwise no thread is bound: with fewer threads the choice of
    /// cores could be that of another process too, with more, or where a control group gives less
    /// time than cores, some threads would wait for the same core while another rests.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn pinned(num_threads: usize) -> Result<Self, PoolError> {
        Self::pinned_in_share(num_threads, 0, 1)
    }

    /// The same for one of several processes that share out the cores: share `index` of `count` equal ones,
    /// in the order of the cores' numbers. What is left of them nobody is bound to.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn pinned_in_share(
        num_threads: usize,
        index: usize,
        count: usize,
    ) -> Result<Self, PoolError> {
        let cores = affinity::allowed_cores();
        // This is less than the cores where a control group says so.
        let time = std::thread::available_parallelism().map_or(1, NonZero::get);
        let share = cores.len() / count.max(1);
        let first = index.saturating_mul(share);
        match cores.get(first..first.saturating_add(share)) {
            Some(cores) if share == num_threads && time / count.max(1) >= num_threads => {
                Self::on_cores(num_threads, cores)
            }
            _ => Self::on_cores(num_threads, &[]),
        }
    }

    /// Worker `i` stays on `cores[i + 1]`, where there is such a core.
    fn on_cores(num_threads: usize, cores: &[usize]) -> Result<Self, PoolError> {
        let num_workers = num_threads.saturating_sub(1);
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            job: Mutex::new(None),
            num_tiles: AtomicUsize::new(0),
            shares: (0..=num_workers)
                .map(|_| Share(AtomicUsize::new(0)))
                .collect(),
            panic_message: Mutex::new(None),
            stop: AtomicBool::new(false),
            awake: AtomicBool::new(false),
            parked: (0..num_workers).map(|_| AtomicBool::new(false)).collect(),
            caller: Mutex::new(None),
        });
        let mut pool = Self {
            shared,
            workers: Vec::new(),
            callers_core: cores.first().copied(),
            running: Mutex::new(()),
        };
        for index in 0..num_workers {
            let (shared, core) = (Arc::clone(&pool.shared), cores.get(index + 1).copied());
            let worker = std::thread::Builder::new()
                .name(format!("compute-{}", index + 1))
                .spawn(move || {
                    if let Some(core) = core {
                        affinity::stay_on(core);
                    }
                    shared.work(index);
                })
                .map_err(|source| PoolError::Spawn {
                    index: index + 1,
                    source,
                })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Threads that a job may run on, the caller included.
    pub fn num_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Keeps the calling thread on the core that is left, where each worker stays on one of its own:
    /// for the thread that will call [`Self::run`] from now on. Left to the system it often lands on
    /// a worker's core, while a thread of less priority has the one that was left.
    pub fn bind_caller(&self) {
        if let Some(core) = self.callers_core {
            affinity::stay_on(core);
        }
    }

    /// Keeps the workers from parking between two jobs until the guard is dropped, where each has a
    /// core of its own. One that gets no job for a millisecond parks all the same.
    pub fn keep_awake(&self) -> KeepAwake<'_> {
        let awake = self.callers_core.is_some();
        self.shared.awake.store(awake, Ordering::Relaxed);
        KeepAwake(&self.shared)
    }

    /// Calls `tile(index, thread)` once for every `index` in `0..num_tiles`, on any thread
    /// (`thread < num_threads`), and returns when all are done. A call from inside a tile runs its
    /// tiles on the thread it came from.
    ///
    /// # Errors
    /// [`PoolError::Panicked`] where a tile panicked; other tiles may then be left out.
    pub fn run(
        &self,
        num_tiles: usize,
        tile: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<(), PoolError> {
        let guard = match self.running.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        };
        if self.workers.is_empty() || num_tiles <= 1 || guard.is_none() {
            return catch_unwind(AssertUnwindSafe(|| {
                let _working = Working::begin();
                // Thread 0's scratch memory is the caller's also here: a nested call has none of
                // its own, which is why kernels never nest.
                (0..num_tiles).for_each(|index| tile(index, 0));
            }))
            .map_err(|payload| PoolError::Panicked {
                message: panic_message(payload),
            });
        }
        self.run_shared(num_tiles, tile)
    }

    fn run_shared(&self, num_tiles: usize, tile: &Job<'_>) -> Result<(), PoolError> {
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. The pointer is used by threads that are inside the
        // gate, and this function leaves, by return or by unwinding, only after `OpenGate` is
        // dropped: then the gate is closed and nobody is inside.
        let job: *const Job<'static> = unsafe {
            std::mem::transmute::<*const Job<'_>, *const Job<'static>>(std::ptr::from_ref(tile))
        };
        *lock(&shared.job) = Some(JobPointer(job));
        *lock(&shared.caller) = Some(std::thread::current());
        shared.num_tiles.store(num_tiles, Ordering::Relaxed);
        for (index, share) in shared.shares.iter().enumerate() {
            let first = shared.first_of_share(index, num_tiles);
            share.0.store(first, Ordering::Relaxed);
        }
        let number = (shared.gate.load(Ordering::Relaxed) >> JOB_SHIFT).wrapping_add(1);
        let open_gate = OpenGate::open(shared, number);
        // No more sleepers are woken than there are tiles for.
        for (index, parked) in shared.parked.iter().enumerate().take(num_tiles - 1) {
            if parked.swap(false, Ordering::SeqCst) {
                self.workers[index].thread().unpark();
            }
        }
        shared.take_tiles(JobPointer(job), 0);
        drop(open_gate);
        match lock(&shared.panic_message).take() {
            Some(message) => Err(PoolError::Panicked { message }),
            None => Ok(()),
        }
    }
}

/// While it lives workers wait for their next job without parking: see [`ComputePool::keep_awake`].
#[must_use = "workers park when it is dropped"]
pub struct KeepAwake<'a>(&'a Shared);

impl Drop for KeepAwake<'_> {
    fn drop(&mut self) {
        self.0.awake.store(false, Ordering::Relaxed);
    }
}

/// A job that may be joined. Its end closes the gate and waits until all workers have left.
struct OpenGate<'a>(&'a Shared);

impl<'a> OpenGate<'a> {
    fn open(shared: &'a Shared, number: u64) -> Self {
        shared
            .gate
            .store((number << JOB_SHIFT) | OPEN, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for OpenGate<'_> {
    fn drop(&mut self) {
        self.0.gate.fetch_and(!OPEN, Ordering::SeqCst);
        let mut spins = 0;
        while self.0.gate.load(Ordering::Acquire) & INSIDE != 0 {
            spins += 1;
            if spins < self.0.spins_before_park() {
                std::hint::spin_loop();
            } else {
                // The last worker to leave unparks this thread.
                std::thread::park();
            }
        }
    }
}

impl Drop for ComputePool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of tiles; its own end carries no news.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn spins_before_park(&self) -> u32 {
        if self.awake.load(Ordering::Relaxed) {
            SPINS_WITHIN_PASS
        } else {
            SPINS_BEFORE_PARK
        }
    }

    /// A worker's life.
    fn work(&self, index: usize) {
        let mut last_job = 0;
        while let Some(job) = self.wait_for_job(index, last_job) {
            last_job = job;
            let pointer = *lock(&self.job);
            if let Some(pointer) = pointer {
                self.take_tiles(pointer, index + 1);
            }
            let before = self.gate.fetch_sub(1, Ordering::AcqRel);
            if before & (OPEN | INSIDE) == 1
                && let Some(caller) = lock(&self.caller).as_ref()
            {
                caller.unpark();
            }
        }
    }

    /// Waits for a job newer than `last_job` and joins it; `None` when the pool ends.
    fn wait_for_job(&self, index: usize, last_job: u64) -> Option<u64> {
        let mut spins = 0;
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
            let gate = self.gate.load(Ordering::SeqCst);
            if gate & OPEN != 0 && gate >> JOB_SHIFT != last_job {
                let joined = self.gate.compare_exchange_weak(
                    gate,
                    gate + 1,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if joined.is_ok() {
                    self.parked[index].store(false, Ordering::SeqCst);
                    return Some(gate >> JOB_SHIFT);
                }
                continue;
            }
            spins += 1;
            if spins < self.spins_before_park() {
                std::hint::spin_loop();
            } else if !self.parked[index].swap(true, Ordering::SeqCst) {
                // Announced; the loop looks once more before it sleeps, so that a job opened
                // before the announcement is seen here and one opened after it unparks.
            } else {
                std::thread::park();
            }
        }
    }

    /// The first of `num_tiles` tiles that is in share `index`, or the number of tiles.
    fn first_of_share(&self, index: usize, num_tiles: usize) -> usize {
        // Wide enough for any numbers of tiles and threads.
        (num_tiles as u128 * index as u128 / self.shares.len() as u128) as usize
    }

    fn take_tiles(&self, job: JobPointer, thread: usize) {
        let num_tiles = self.num_tiles.load(Ordering::Relaxed);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _working = Working::begin();
            // SAFETY: this thread is inside the gate (or is the caller), so the job is alive.
            let tile = unsafe { &*job.0 };
            // Its own share, then the others'.
            for index in (thread..self.shares.len()).chain(0..thread) {
                let end = self.first_of_share(index + 1, num_tiles);
                loop {
                    let next = self.shares[index].0.fetch_add(1, Ordering::Relaxed);
                    if next >= end {
                        break;
                    }
                    tile(next, thread);
                }
            }
        }));
        if let Err(payload) = outcome {
            // The other threads find no tile left and finish early.
            for share in &self.shares {
                share.0.store(num_tiles, Ordering::Relaxed);
            }
            *lock(&self.panic_message) = Some(panic_message(payload));
        }
    }
}

#[cfg(test)]
mod tests;
