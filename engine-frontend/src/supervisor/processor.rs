//! Whether a core that says nothing gets any processor.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// The part of a silence that counts however long threads waited for a processor: a core that hangs is
/// noticed in the end, whatever else its threads and the machine do.
const LEAST_PART: u32 = 20;

/// How long each thread of a process has been ready to run, and others ran in its place. Empty where the
/// system doesn't tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProcessorWaits(HashMap<u32, Duration>);

impl ProcessorWaits {
    /// Those of a process up to now.
    pub(super) fn of(process_id: u32) -> Self {
        let Ok(threads) = fs::read_dir(format!("/proc/{process_id}/task")) else {
            return Self::default();
        };
        let wait = |thread: std::io::Result<fs::DirEntry>| {
            let thread = thread.ok()?;
            let thread_id = thread.file_name().to_str()?.parse().ok()?;
            let schedstat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            Some((thread_id, waited(&schedstat)?))
        };
        Self(threads.filter_map(wait).collect())
    }

    /// How long the thread that waited the longest did since then. What a core does next may hang on any of
    /// its threads.
    pub(super) fn since(&self, before: &Self) -> Duration {
        let waited = self.0.iter().map(|(thread_id, waited)| {
            waited.saturating_sub(before.0.get(thread_id).copied().unwrap_or_default())
        });
        waited.max().unwrap_or_default()
    }
}

/// The second number of `/proc/PID/task/TID/schedstat`: nanoseconds on a queue for a processor.
fn waited(schedstat: &str) -> Option<Duration> {
    let nanoseconds = schedstat.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// How much of a silence a core that works would have used to show a sign of life: all of it but what it
/// waited for a processor. One that hangs sleeps, is stopped or computes without end; it waits for none.
pub(super) fn idle_silence(silence: Duration, waited: Duration) -> Duration {
    silence.saturating_sub(waited).max(silence / LEAST_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn waits(of_threads: &[(u32, u32)]) -> ProcessorWaits {
        let waits = of_threads.iter();
        ProcessorWaits(waits.map(|&(id, seconds)| (id, SECOND * seconds)).collect())
    }

    #[test]
    fn a_core_without_a_processor_is_no_core_that_hangs() {
        let before = waits(&[(1, 5), (2, 7)]);
        // Stopped, asleep for good, or alone on its processor.
        assert_eq!(before.since(&before), Duration::ZERO);
        assert_eq!(idle_silence(SECOND * 61, Duration::ZERO), SECOND * 61);
        // One thread had a second of sixty-one, another that it waits for all it wanted.
        let starved = waits(&[(1, 65), (2, 7), (3, 2)]).since(&before);
        assert_eq!(starved, SECOND * 60);
        assert_eq!(idle_silence(SECOND * 61, starved), SECOND * 61 / 20);
        // Half of it: it is given twice as long.
        assert_eq!(idle_silence(SECOND * 60, SECOND * 30), SECOND * 30);
        // A thread that came meanwhile waited in this time; one that went says nothing.
        assert_eq!(waits(&[(4, 3)]).since(&before), SECOND * 3);
        // More than there was can't be.
        assert_eq!(idle_silence(SECOND * 20, SECOND * 30), SECOND);
        // Where the system doesn't tell, all of it counts.
        assert_eq!(waits(&[]).since(&waits(&[])), Duration::ZERO);
    }

    #[test]
    fn the_systems_numbers_are_read() {
        assert_eq!(
            waited("752755 80270 3\n"),
            Some(Duration::from_nanos(80_270))
        );
        for broken in ["", "752755", "752755 - 3"] {
            assert_eq!(waited(broken), None);
        }
        let own = ProcessorWaits::of(std::process::id());
        let is_told = fs::exists("/proc/self/schedstat").unwrap_or(false);
        assert_eq!(!own.0.is_empty(), is_told);
        assert_eq!(ProcessorWaits::of(u32::MAX), ProcessorWaits::default());
    }
}
