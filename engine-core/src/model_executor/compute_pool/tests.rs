use std::sync::atomic::AtomicU32;

use super::*;

#[test]
fn every_tile_runs_once_at_any_thread_count() {
    for num_threads in 1..=5 {
        let pool = ComputePool::new(num_threads).unwrap();
        for num_tiles in [0, 1, 2, 3, 17, 1000] {
            let counts: Vec<AtomicU32> = (0..num_tiles).map(|_| AtomicU32::new(0)).collect();
            pool.run(num_tiles, &|index, thread| {
                assert!(thread < num_threads);
                counts[index].fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
            assert!(
                counts
                    .iter()
                    .all(|count| count.load(Ordering::Relaxed) == 1)
            );
        }
    }
}

#[test]
fn shares_follow_one_another() {
    for num_threads in 1..6 {
        let pool = ComputePool::new(num_threads).unwrap();
        for num_tiles in (0..40).chain([usize::MAX]) {
            let first = |index| pool.shared.first_of_share(index, num_tiles);
            assert_eq!((first(0), first(num_threads)), (0, num_tiles));
            assert!((0..num_threads).all(|index| first(index) <= first(index + 1)));
        }
    }
}

#[test]
fn a_slow_threads_tiles_are_taken_by_the_others() {
    let pool = ComputePool::new(2).unwrap();
    for slow in [0, 4, 5, 9] {
        let done = AtomicU32::new(0);
        pool.run(10, &|index, _| {
            // Until all others are done, those of its own share too.
            while index == slow && done.load(Ordering::SeqCst) < 9 {
                std::thread::yield_now();
            }
            done.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
        assert_eq!(done.into_inner(), 10);
    }
}

#[test]
fn many_short_jobs_in_a_row() {
    let pool = ComputePool::new(3).unwrap();
    let sum = AtomicU64::new(0);
    for _ in 0..20_000 {
        pool.run(4, &|index, _| {
            sum.fetch_add(index as u64, Ordering::Relaxed);
        })
        .unwrap();
    }
    assert_eq!(sum.load(Ordering::Relaxed), 20_000 * 6);
}

#[test]
fn parked_workers_wake_for_a_job_that_needs_all_threads() {
    let pool = ComputePool::new(3).unwrap();
    for _ in 0..20 {
        while !pool
            .shared
            .parked
            .iter()
            .all(|parked| parked.load(Ordering::SeqCst))
        {
            std::thread::yield_now();
        }
        // Each tile waits for the others: with a sleeper left out this would not end.
        let barrier = std::sync::Barrier::new(3);
        pool.run(3, &|_, _| {
            barrier.wait();
        })
        .unwrap();
    }
}

#[test]
fn a_panic_is_an_error_and_the_pool_goes_on() {
    for num_threads in [1, 3] {
        let pool = ComputePool::new(num_threads).unwrap();
        let error = pool.run(100, &|index, _| assert!(index != 57, "tile {index} broke"));
        let message = error.unwrap_err().to_string();
        assert!(message.contains("tile 57 broke"), "{message}");
        pool.run(10, &|_, _| {}).unwrap();
    }
}

/// A panic payload whose `Drop` panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_payload_that_panics_when_dropped_is_an_error_like_others() {
    let pool = ComputePool::new(3).unwrap();
    for _ in 0..20 {
        let barrier = std::sync::Barrier::new(3);
        let error = pool.run(3, &|_, _| {
            // All three threads are inside when they panic.
            barrier.wait();
            std::panic::panic_any(Bomb);
        });
        assert!(matches!(error, Err(PoolError::Panicked { .. })));
        let counts: [AtomicU32; 9] = Default::default();
        pool.run(9, &|index, _| {
            counts[index].fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        assert!(counts.into_iter().all(|count| count.into_inner() == 1));
    }
}

#[test]
fn an_unwinding_caller_waits_for_the_workers() {
    // A pool without workers: the test's thread stands in for one.
    let pool = ComputePool::new(1).unwrap();
    let shared = &*pool.shared;
    let caller = std::thread::current();
    let (inside, left) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while shared.gate.load(Ordering::SeqCst) & OPEN == 0 {
                std::thread::yield_now();
            }
            shared.gate.fetch_add(1, Ordering::SeqCst);
            inside.store(true, Ordering::SeqCst);
            while shared.gate.load(Ordering::SeqCst) & OPEN != 0 {
                std::thread::yield_now();
            }
            left.store(true, Ordering::SeqCst);
            shared.gate.fetch_sub(1, Ordering::SeqCst);
            caller.unpark();
        });
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _open_gate = OpenGate::open(shared, 1);
            while !inside.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            panic!("the caller");
        }));
        assert!(unwound.is_err());
        assert!(left.load(Ordering::SeqCst), "a worker was still inside");
    });
}

#[test]
fn a_nested_job_runs_on_its_own_thread() {
    let pool = ComputePool::new(2).unwrap();
    let count = AtomicU32::new(0);
    pool.run(4, &|_, _| {
        pool.run(5, &|_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    })
    .unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 20);
}

#[cfg(target_os = "linux")]
#[test]
fn workers_are_pinned_where_there_is_a_core_for_each_thread() {
    let cores = super::affinity::allowed_cores();
    let may_use = std::thread::available_parallelism().unwrap().get();
    for num_threads in [cores.len(), cores.len() + 1, 1] {
        let pool = ComputePool::pinned(num_threads).unwrap();
        let seen: Mutex<Vec<Vec<usize>>> = Mutex::new(vec![Vec::new(); num_threads]);
        let arrived = AtomicUsize::new(0);
        // Every thread waits in its first tile until all are there, so that each takes one.
        pool.run(num_threads, &|_, thread| {
            seen.lock().unwrap()[thread] = super::affinity::allowed_cores();
            arrived.fetch_add(1, Ordering::SeqCst);
            while arrived.load(Ordering::SeqCst) < num_threads {
                std::thread::yield_now();
            }
        })
        .unwrap();
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen[0], cores, "the caller is free");
        for (thread, found) in seen.iter().enumerate().skip(1) {
            if num_threads == cores.len() && may_use >= num_threads {
                assert_eq!(*found, [cores[thread]]);
            } else {
                assert_eq!(*found, cores);
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn processes_share_out_the_cores() {
    let cores = super::affinity::allowed_cores();
    let may_use = std::thread::available_parallelism().unwrap().get();
    for count in 1..=cores.len() + 1 {
        let share = cores.len() / count;
        let mut taken = Vec::new();
        for index in 0..count {
            let pool = ComputePool::pinned_in_share(share.max(1), index, count).unwrap();
            let bound = share > 0 && may_use / count >= share;
            let first = pool.callers_core;
            assert_eq!(
                first,
                bound.then(|| cores[index * share]),
                "{index} of {count}"
            );
            taken.extend(first);
        }
        assert!(taken.is_sorted_by(|one, other| one < other), "{taken:?}");
    }
    // None beyond the last, and none where the share isn't taken as a whole.
    for (num_threads, index, count) in [(1, usize::MAX, 2), (2, 1, cores.len()), (1, 0, 0)] {
        if num_threads == cores.len() {
            continue;
        }
        let pool = ComputePool::pinned_in_share(num_threads, index, count).unwrap();
        assert_eq!(pool.callers_core, None, "{num_threads} {index} {count}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_caller_takes_the_core_that_is_left() {
    let cores = super::affinity::allowed_cores();
    let may_use = std::thread::available_parallelism().unwrap().get();
    for (pool, bound) in [
        (
            ComputePool::pinned(cores.len()).unwrap(),
            may_use >= cores.len(),
        ),
        (ComputePool::pinned(cores.len() + 1).unwrap(), false),
        (ComputePool::new(cores.len()).unwrap(), false),
    ] {
        let found = std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                pool.bind_caller();
                super::affinity::allowed_cores()
            });
            caller.join().unwrap()
        });
        assert_eq!(found, if bound { &cores[..1] } else { &cores[..] });
        // And within a pass its workers look for longer before they park.
        let longer = {
            let _awake = pool.keep_awake();
            pool.shared.spins_before_park()
        };
        let expected = if bound {
            super::SPINS_WITHIN_PASS
        } else {
            super::SPINS_BEFORE_PARK
        };
        assert_eq!(longer, expected);
        assert_eq!(pool.shared.spins_before_park(), super::SPINS_BEFORE_PARK);
    }
}
