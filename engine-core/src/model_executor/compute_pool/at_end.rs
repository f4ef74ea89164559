//! What a thread does when it has no more tiles of a job.
//!
//! A tile may leave something in its thread for the next one, as registers' shapes that take longer to make
//! than to use. It must be gone when the job ends: the thread that calls is not the pool's own.

use std::cell::Cell;

thread_local! {
    static AT_END: Cell<AtEnd> = const { Cell::new(AtEnd::NoJob) };
}

/// Where a thread is, and what it does at the end.
#[derive(Clone, Copy)]
// Tiles alone ask for something, and other processors have none.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
enum AtEnd {
    /// In no job.
    NoJob,
    /// Nothing.
    Nothing,
    Call(fn()),
}

/// Has this thread call `function` when it has no more tiles of the job that it works on, also where one
/// panics. `false` is that it works on none, and nothing is called. A later function takes the place of an
/// earlier one.
#[cfg(any(target_arch = "x86_64", test))]
pub(crate) fn call_at_end(function: fn()) -> bool {
    let works = !matches!(AT_END.get(), AtEnd::NoJob);
    if works {
        AT_END.set(AtEnd::Call(function));
    }
    works
}

/// While it lives this thread works on a job.
pub(super) struct Working {
    /// Where the job was begun by a tile of another one.
    outer: AtEnd,
}

impl Working {
    pub(super) fn begin() -> Self {
        Self {
            outer: AT_END.replace(AtEnd::Nothing),
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let AtEnd::Call(function) = AT_END.replace(self.outer) {
            function();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ComputePool;
    use super::*;

    thread_local! {
        static CALLS: Cell<usize> = const { Cell::new(0) };
    }

    fn count() {
        CALLS.set(CALLS.get() + 1);
    }

    #[test]
    fn is_called_once_after_the_last_tile_of_a_thread() {
        for threads in [1, 3] {
            let pool = ComputePool::new(threads).unwrap();
            CALLS.set(0);
            assert!(!call_at_end(count), "no job");
            for jobs in 1..4 {
                let tile = |_, thread| {
                    assert!(call_at_end(count));
                    if thread == 0 {
                        assert_eq!(CALLS.get(), jobs - 1, "not before the last");
                    }
                };
                // So many that the caller takes one.
                pool.run(2000, &tile).unwrap();
                assert_eq!(CALLS.get(), jobs);
                assert!(!call_at_end(count), "none any more");
            }
            pool.run(2000, &|_, _| ()).unwrap();
            assert_eq!(CALLS.get(), 3, "nobody asked");
        }
    }

    #[test]
    fn is_called_where_a_tile_panics_and_at_each_end_of_nested_jobs() {
        let pool = ComputePool::new(1).unwrap();
        CALLS.set(0);
        let panics = |_, _| {
            call_at_end(count);
            panic!("asked to");
        };
        assert!(pool.run(3, &panics).is_err());
        assert_eq!(CALLS.get(), 1);
        let nests = |_, _| {
            call_at_end(count);
            let inner = |_, _| assert!(call_at_end(count));
            pool.run(2, &inner).unwrap();
        };
        pool.run(1, &nests).unwrap();
        assert_eq!(CALLS.get(), 3);
    }
}
