//! The priority of the compile threads.

/// How much nicer than the model's threads, which have that of the process: beside one of these on its core a
/// compile thread gets an eighth.
#[cfg(target_os = "linux")]
const NICENESS: libc::c_int = 8;

/// Puts the calling thread behind the process's others.
///
/// All compile threads have the same priority, as each waits for what another one holds: the memory that
/// requests share. None has a policy under which a busy machine leaves it no processor at all (`SCHED_IDLE`):
/// it would keep what it holds, and a program that only spins, of anybody's, would stop every request with a
/// grammar for as long as it runs. Nor can such a thread be lifted while it holds something: leaving that policy
/// takes a privilege.
///
/// A nice thread that is at work gives way to one that wakes on its core only after some milliseconds, and all
/// compute threads of a forward pass wait for the last: so it offers its processor after each slice of work, of
/// about a millisecond (`GrammarMatcher::let_others_pass`).
#[cfg(target_os = "linux")]
pub(super) fn lower_priority() -> std::io::Result<()> {
    // SAFETY: takes two integers, touches no memory of ours.
    let of_process = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let nice = (of_process + NICENESS).min(19);
    // SAFETY: takes three integers, touches no memory of ours. On Linux, who 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Other systems have no priority of single threads that suits.
#[cfg(not(target_os = "linux"))]
pub(super) fn lower_priority() -> std::io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The policy and the niceness of the calling thread.
    fn priority() -> (libc::c_int, libc::c_int) {
        // SAFETY: both take integers, touch no memory of ours.
        unsafe {
            (
                libc::sched_getscheduler(0),
                libc::getpriority(libc::PRIO_PROCESS, 0),
            )
        }
    }

    #[test]
    fn a_compile_thread_comes_after_others_but_always_gets_a_part() {
        let before = priority();
        let lowered_from = |process_niceness| {
            let lowered = std::thread::spawn(move || {
                // SAFETY: takes three integers, touches no memory of ours.
                let set = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, process_niceness) };
                assert_eq!(set, 0);
                lower_priority().unwrap();
                priority()
            });
            lowered.join().unwrap()
        };
        // Under the policy of all, whatever the thread is for.
        let (policy, niceness) = before;
        assert_eq!(lowered_from(niceness), (policy, (niceness + 8).min(19)));
        assert_eq!(lowered_from(17), (policy, 19));
        // This thread's is as it was.
        assert_eq!(priority(), before);
    }
}
