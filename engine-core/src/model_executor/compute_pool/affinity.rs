//! Which cores a thread may run on.

/// The cores that the calling thread may use, ascending; none where the system doesn't say.
#[cfg(target_os = "linux")]
pub(super) fn allowed_cores() -> Vec<usize> {
    // SAFETY: zeros are an empty set; the call writes no more than the set's size.
    let (result, set) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let result = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        (result, set)
    };
    if result != 0 {
        return Vec::new();
    }
    let most = 8 * size_of::<libc::cpu_set_t>();
    // SAFETY: the indices lie within the set.
    (0..most)
        .filter(|core| unsafe { libc::CPU_ISSET(*core, &set) })
        .collect()
}

/// Keeps the calling thread on a core. Where the system refuses, it stays free.
#[cfg(target_os = "linux")]
pub(super) fn stay_on(core: usize) {
    if core >= 8 * size_of::<libc::cpu_set_t>() {
        return;
    }
    // SAFETY: zeros are an empty set, and the core lies within it; the call only reads the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Not known here.
#[cfg(not(target_os = "linux"))]
pub(super) fn allowed_cores() -> Vec<usize> {
    Vec::new()
}

/// Nothing here.
#[cfg(not(target_os = "linux"))]
pub(super) fn stay_on(_core: usize) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_put() {
        let cores = allowed_cores();
        assert!(!cores.is_empty() && cores.is_sorted());
        for core in cores {
            let found = std::thread::spawn(move || {
                stay_on(core);
                allowed_cores()
            });
            assert_eq!(found.join().unwrap(), [core]);
        }
    }

    #[test]
    fn a_core_that_is_not_there_changes_nothing() {
        let before = allowed_cores();
        stay_on(usize::MAX);
        stay_on(8 * size_of::<libc::cpu_set_t>() - 1);
        assert_eq!(allowed_cores(), before);
    }
}
