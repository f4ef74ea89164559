//! The priorities of the compile threads.

use super::turn::Duty;

/// How much nicer than the model's threads, which have that of the process, those are that find answers.
#[cfg(target_os = "linux")]
const ANSWER_NICENESS: libc::c_int = 5;

/// Puts the calling thread behind others of the machine, as far as its duty lets it wait.
///
/// What running requests wait for gets less than they do, but soon. All else runs where a core is idle:
/// such a thread (`SCHED_IDLE`) gives way in the moment in which another wakes on its core. A nice one
/// doesn't: it keeps the core for the rest of its turn, some milliseconds, and since all compute threads of
/// a forward pass wait for the last, that made steps a half longer whatever the niceness. Whoever works in
/// memory that requests share may so hold it while all cores compute; a step that needs it then waits, which
/// makes cores idle.
#[cfg(target_os = "linux")]
pub(super) fn lower_priority(duty: Duty) -> std::io::Result<()> {
    let nice = match duty {
        Duty::Answer => {
            // SAFETY: takes two integers, touches no memory of ours.
            let of_process = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            (of_process + ANSWER_NICENESS).min(19)
        }
        Duty::Begin | Duty::Compile | Duty::Apart => {
            let parameters = libc::sched_param { sched_priority: 0 };
            // SAFETY: reads the parameters, which are valid; 0 is the calling thread.
            match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } {
                0 => return Ok(()),
                // Where the policy is not to be had, the least priority of the usual one.
                _ => 19,
            }
        }
    };
    // SAFETY: takes three integers, touches no memory of ours. On Linux, who 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Other systems have no priority of single threads that suits.
#[cfg(not(target_os = "linux"))]
pub(super) fn lower_priority(_duty: Duty) -> std::io::Result<()> {
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
    fn a_compile_thread_yields_to_all_others() {
        let before = priority();
        let of_duty = |duty, process_niceness| {
            let lowered = std::thread::spawn(move || {
                // SAFETY: takes three integers, touches no memory of ours.
                let set = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, process_niceness) };
                assert_eq!(set, 0);
                lower_priority(duty).unwrap();
                priority()
            });
            lowered.join().unwrap()
        };
        let niceness = before.1;
        let of_answer = of_duty(Duty::Answer, niceness);
        assert_eq!(of_answer, (before.0, (niceness + 5).min(19)));
        assert_eq!(of_duty(Duty::Answer, 17), (before.0, 19));
        for duty in [Duty::Begin, Duty::Compile, Duty::Apart] {
            assert_eq!(of_duty(duty, niceness).0, libc::SCHED_IDLE);
        }
        // This thread's is as it was.
        assert_eq!(priority(), before);
    }
}
