//! How far the compile threads stand behind all others.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use structured_output::Pause;

use super::other_programs::OtherPrograms;
use super::turn::Duty;

/// How much nicer than the model's threads, which have that of the process, those are that find answers.
#[cfg(target_os = "linux")]
const ANSWER_NICENESS: libc::c_int = 5;

/// The same of all other compile threads.
#[cfg(target_os = "linux")]
const COMPILE_NICENESS: libc::c_int = 8;

/// How long a thread works before it offers its processor, where other programs use the processors.
const BETWEEN_OFFERS: Duration = Duration::from_millis(1);

/// Puts the calling thread behind others of the machine, as far as its duty lets it wait: what running requests wait
/// for gets less than they do, but soon.
///
/// None runs on idle processors alone (`SCHED_IDLE`). Beside programs that use all of them such a thread has a
/// thousandth of one, and what it holds meanwhile, running requests wait for.
#[cfg(target_os = "linux")]
pub(super) fn lower_priority(duty: Duty) -> std::io::Result<()> {
    let more = match duty {
        Duty::Answer => ANSWER_NICENESS,
        Duty::Begin | Duty::Compile | Duty::Apart => COMPILE_NICENESS,
    };
    // SAFETY: both take integers, touch no memory of ours. On Linux, who 0 is the calling thread.
    let set = unsafe {
        let of_process = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, (of_process + more).min(19))
    };
    match set {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Other systems have no priority of single threads that suits.
#[cfg(not(target_os = "linux"))]
pub(super) fn lower_priority(_duty: Duty) -> std::io::Result<()> {
    Ok(())
}

/// What a compile thread does after each slice of its work: it offers its processor to others. A thread that is merely
/// nice keeps its processor for the rest of its turn, some milliseconds, when another wakes there, and all
/// compute threads of a forward pass wait for the last.
///
/// Beside programs that use all processors each offer costs the rest of a turn of theirs, and a compilation makes a
/// thousand: there it is made once a millisecond.
pub(super) fn offer_processor() -> Pause {
    let others = Arc::new(OtherPrograms::new());
    Pause::new(move || {
        thread_local! {
            static LAST_OFFER: Cell<Option<Instant>> = const { Cell::new(None) };
        }
        let is_recent = |at: Instant| at.elapsed() < BETWEEN_OFFERS;
        if others.use_much() && LAST_OFFER.get().is_some_and(is_recent) {
            return;
        }
        std::thread::yield_now();
        LAST_OFFER.set(Some(Instant::now()));
    })
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
    fn a_compile_thread_stands_behind_all_others() {
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
        let (policy, niceness) = before;
        let of_answer = of_duty(Duty::Answer, niceness);
        assert_eq!(of_answer, (policy, (niceness + 5).min(19)));
        assert_eq!(of_duty(Duty::Answer, 17), (policy, 19));
        for duty in [Duty::Begin, Duty::Compile, Duty::Apart] {
            assert_eq!(of_duty(duty, niceness), (policy, (niceness + 8).min(19)));
        }
        // This thread's is as it was.
        assert_eq!(priority(), before);
    }
}
