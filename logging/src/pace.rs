//! How often something may be said.

use std::time::{Duration, Instant};

/// Lets something be said at most once in each interval, and not in the first.
#[derive(Debug)]
pub struct Pace {
    interval: Duration,
    last: Instant,
}

impl Pace {
    /// A pace whose first interval begins at `now`.
    pub fn new(interval: Duration, now: Instant) -> Self {
        Self {
            interval,
            last: now,
        }
    }

    /// True if an interval is over at `now`. The next one begins then.
    pub fn take_turn(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.last) >= self.interval;
        if is_due {
            self.last = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interval_has_one_turn() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::new(Duration::from_secs(5), start);
        let turns: Vec<u64> = (0..20).filter(|s| pace.take_turn(at(*s))).collect();
        assert_eq!(turns, [5, 10, 15]);
        // A long silence is one turn.
        assert!(pace.take_turn(at(100)));
        assert!(!pace.take_turn(at(104)));
        // A clock that another thread read earlier.
        assert!(!pace.take_turn(at(90)));
    }
}
