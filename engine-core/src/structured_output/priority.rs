//! How far the compile threads stand behind all others.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use structured_output::Pause;

use super::other_programs::OtherPrograms;

/// How much nicer the thread of short turns is than the model's threads, which have the niceness of the process.
pub(super) const SHORT_NICENESS: i32 = 5;

/// How much nicer all other compile threads are.
pub(super) const COMPILE_NICENESS: i32 = 8;

/// How long a thread works before it offers its processor, where other programs use the processors.
const BETWEEN_OFFERS: Duration = Duration::from_millis(1);

/// Makes the calling thread so much nicer than its process: what running requests wait for gets less than they do, but
/// soon.
///
/// None runs on idle processors alone (`SCHED_IDLE`). Beside programs that use all of them such a thread has a
/// thousandth of one, and what it holds meanwhile, running requests wait for.
#[cfg(target_os = "linux")]
pub(super) fn lower_priority(more: i32) -> std::io::Result<()> {
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
pub(super) fn lower_priority(_more: i32) -> std::io::Result<()> {
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
        let lowered = |more, process_niceness| {
            let lowered = std::thread::spawn(move || {
                // SAFETY: takes three integers, touches no memory of ours.
                let set = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, process_niceness) };
                assert_eq!(set, 0);
                lower_priority(more).unwrap();
                priority()
            });
            lowered.join().unwrap()
        };
        let (policy, niceness) = before;
        for more in [SHORT_NICENESS, COMPILE_NICENESS] {
            let expected = (policy, (niceness + more).min(19));
            assert_eq!(lowered(more, niceness), expected);
            assert_eq!(lowered(more, 17), (policy, 19));
        }
        // This thread's is as it was.
        assert_eq!(priority(), before);
    }
}
