//! The priorities of the compile threads.

use super::turn::Duty;

/// Puts the calling thread behind others of the machine, as far as its duty lets it wait.
///
/// Who works in memory that running requests wait for has a tenth of a core where none is idle: were it
/// less, these would wait for long where it holds that. What is done apart, for which nobody waits, is left
/// to idle cores, and gets hardly any time (1.5 % of a core) where there are none.
#[cfg(target_os = "linux")]
pub(super) fn lower_priority(duty: Duty) -> std::io::Result<()> {
    // SAFETY: takes two integers, touches no memory of ours. On Linux, who 0 is the calling thread.
    let others = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let own = others.saturating_add(more_niceness(duty)).min(MOST_NICE);
    // SAFETY: the same with three.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, own) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The nicest that a thread can be.
#[cfg(target_os = "linux")]
const MOST_NICE: libc::c_int = 19;

/// How much nicer a thread is than the others of the process.
#[cfg(target_os = "linux")]
fn more_niceness(duty: Duty) -> libc::c_int {
    match duty {
        Duty::Answer => 5,
        Duty::Begin | Duty::Compile => 10,
        Duty::Apart => MOST_NICE,
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

    #[test]
    fn a_compile_thread_yields_to_all_others() {
        let nice = || {
            // SAFETY: takes two integers, touches no memory of ours.
            unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
        };
        let before = nice();
        let of_duty = |duty| {
            let lowered = std::thread::spawn(move || {
                lower_priority(duty).unwrap();
                nice()
            });
            lowered.join().unwrap()
        };
        let (answer, compile) = (of_duty(Duty::Answer), of_duty(Duty::Compile));
        assert!(
            before < answer && answer < compile,
            "{before} {answer} {compile}"
        );
        assert_eq!(of_duty(Duty::Apart), 19);
        // This thread's is as it was.
        assert_eq!(nice(), before);
    }
}
