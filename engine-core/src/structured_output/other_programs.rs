//! Whether other programs use the processors that the engine computes on.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks: the system counts time by hundredths of a second.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// What was seen longer ago says nothing of now.
const LONGEST_BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Of the processors' time, in per cent. Two programs that spin beside two compute threads on two processors have
/// half of it; the frontend with a client that reads 256 streams has less than this.
const MUCH: u64 = 40;

/// Bytes of `/proc/stat` with the lines of 500 processors.
const STAT_BYTES: usize = 64 << 10;

/// Whether other programs use the processors so much that a thread which gives its own away waits long for the
/// next.
pub(super) struct OtherPrograms {
    /// `/proc/stat`, where there is one. Opened before the process confines itself.
    stat: Option<File>,
    /// The processors that this process may use.
    processors: Vec<usize>,
    last: Mutex<Option<(Instant, Times)>>,
    are_many: AtomicBool,
}

/// Time that was spent since the machine started, in hundredths of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    /// Of all processors that this process may use.
    all: u64,
    /// Of these, while any program ran there.
    busy: u64,
    /// By this process.
    own: u64,
}

impl OtherPrograms {
    /// Nothing is known yet, which is taken for much use.
    pub(super) fn new() -> Self {
        Self {
            stat: File::open("/proc/stat").ok(),
            processors: own_processors(),
            last: Mutex::default(),
            are_many: AtomicBool::new(true),
        }
    }

    /// Whether they use the processors much: as of the last tenth of a second in which somebody asked. Where nobody
    /// asked for a second, that is taken for true until the next look, and where the system doesn't tell for false.
    /// Takes some tens of nanoseconds, and every tenth of a second as long as it takes to read `/proc/stat`.
    pub(super) fn use_much(&self) -> bool {
        self.look(Instant::now());
        self.are_many.load(Ordering::Relaxed)
    }

    fn look(&self, now: Instant) {
        let Ok(mut last) = self.last.try_lock() else {
            return;
        };
        let since = last.map(|(at, _)| now.saturating_duration_since(at));
        if since.is_some_and(|since| since < BETWEEN_LOOKS) {
            return;
        }
        let Some(times) = self.times() else {
            self.are_many.store(false, Ordering::Relaxed);
            return;
        };
        let is_much = match *last {
            Some((_, before)) if since <= Some(LONGEST_BETWEEN_LOOKS) => {
                times.is_much_since(before)
            }
            _ => true,
        };
        self.are_many.store(is_much, Ordering::Relaxed);
        *last = Some((now, times));
    }

    fn times(&self) -> Option<Times> {
        let mut stat = vec![0; STAT_BYTES];
        let length = self.stat.as_ref()?.read_at(&mut stat, 0).ok()?;
        let stat = String::from_utf8_lossy(stat.get(..length)?);
        let (all, busy) = of_processors(&stat, &self.processors)?;
        let own = own_time()?;
        Some(Times { all, busy, own })
    }
}

impl Times {
    fn is_much_since(self, before: Self) -> bool {
        let all = self.all.saturating_sub(before.all);
        let busy = self.busy.saturating_sub(before.busy);
        let others = busy.saturating_sub(self.own.saturating_sub(before.own));
        others * 100 > all * MUCH
    }
}

/// The time of some processors, and that in which a program ran there, as `/proc/stat` has them: a line for each,
/// `cpu0 user nice system idle iowait irq softirq steal`, and times of guests that are part of these.
fn of_processors(stat: &str, processors: &[usize]) -> Option<(u64, u64)> {
    let mut sums = None;
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|name| name.strip_prefix("cpu"));
        let Some(Ok(number)) = number.map(str::parse::<usize>) else {
            continue;
        };
        if !processors.contains(&number) {
            continue;
        }
        let times: Vec<u64> = words.map_while(|word| word.parse().ok()).take(8).collect();
        let [user, nice, system, idle, iowait, rest @ ..] = times.as_slice() else {
            return None;
        };
        let busy = user + nice + system + rest.iter().sum::<u64>();
        let (all_before, busy_before) = sums.unwrap_or_default();
        sums = Some((all_before + busy + idle + iowait, busy_before + busy));
    }
    sums
}

/// Processor time of this process, in hundredths of a second.
fn own_time() -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to the time, which is valid.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    let hundredths =
        u64::try_from(time.tv_sec).ok()? * 100 + u64::try_from(time.tv_nsec).ok()? / 10_000_000;
    (result == 0).then_some(hundredths)
}

/// The processors that the calling thread may use.
#[cfg(target_os = "linux")]
fn own_processors() -> Vec<usize> {
    // SAFETY: a set is an array of bits; without any it is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes to the set, whose size it is told.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    let has = |&number: &usize| {
        // SAFETY: reads the set; the number is below its size.
        unsafe { libc::CPU_ISSET(number, &set) }
    };
    match result {
        0 => (0..libc::CPU_SETSIZE as usize).filter(has).collect(),
        _ => Vec::new(),
    }
}

/// Other systems have no `/proc/stat`.
#[cfg(not(target_os = "linux"))]
fn own_processors() -> Vec<usize> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::lock;

    const STAT: &str = "cpu  660 0 0 660 0 0 0 0 0 0\n\
                        cpu0 10 20 30 400 5 6 7 8 9 9\n\
                        cpu1 1 2 3 4 5\n\
                        cpu12 600 0 0 0 0 0 0 0 0 0\n\
                        intr 5 0 0\n";

    #[test]
    fn the_time_of_processors_is_read_by_number() {
        assert_eq!(of_processors(STAT, &[0]), Some((486, 81)));
        assert_eq!(of_processors(STAT, &[0, 1]), Some((486 + 15, 81 + 6)));
        assert_eq!(of_processors(STAT, &[12]), Some((600, 600)));
        for processors in [&[][..], &[2]] {
            assert_eq!(of_processors(STAT, processors), None);
        }
        assert_eq!(of_processors("cpu0 1 2", &[0]), None);
        assert_eq!(of_processors("", &[0]), None);
    }

    #[test]
    fn what_others_use_is_what_is_left_of_busy_time() {
        let before = Times {
            all: 1_000,
            busy: 500,
            own: 300,
        };
        let after = |busy, own| Times {
            all: before.all + 100,
            busy: before.busy + busy,
            own: before.own + own,
        };
        assert!(!after(100, 100).is_much_since(before));
        assert!(!after(100, 60).is_much_since(before));
        assert!(after(100, 59).is_much_since(before));
        assert!(!after(40, 0).is_much_since(before));
        assert!(after(41, 0).is_much_since(before));
        // The two clocks don't agree to the hundredth.
        assert!(!after(10, 12).is_much_since(before));
    }

    #[test]
    fn a_look_counts_for_a_tenth_of_a_second() {
        let programs = OtherPrograms::new();
        assert!(programs.are_many.load(Ordering::Relaxed));
        let is_told = programs.times().is_some();
        assert_eq!(is_told, cfg!(target_os = "linux"));
        let start = Instant::now();
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        let looked_at = || lock(&programs.last).map(|(at, _)| at);
        let is_much = || programs.are_many.load(Ordering::Relaxed);
        programs.look(start);
        // Nothing to compare it with.
        assert_eq!(is_much(), is_told);
        if !is_told {
            return;
        }
        programs.look(after(99));
        assert_eq!(looked_at(), Some(start));
        // All that was busy since, in no time at all, is this process's or none.
        programs.look(after(100));
        assert_eq!(looked_at(), Some(after(100)));
        programs.are_many.store(false, Ordering::Relaxed);
        programs.look(after(1_101));
        assert!(is_much(), "too long ago");
    }
}
