//! How much a key may ask for: requests and tokens a minute, and requests at the same time. Each answer to a
//! request counts as one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What sums of floating-point numbers may be off by: a millionth of a request.
const ROUNDING: f64 = 1e-6;

/// A key's limits; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct KeyLimits {
    pub(super) requests_per_minute: Option<u32>,
    pub(super) tokens_per_minute: Option<u32>,
    pub(super) max_concurrent_requests: Option<u32>,
}

/// What a key has taken of its limits. Its size is fixed, whatever is asked.
#[derive(Debug, Default)]
pub(super) struct KeyUsage(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    requests: Bucket,
    tokens: Bucket,
    in_flight: u32,
}

/// Why a request must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The limit's name, as the file of keys has it.
    pub(super) limit: &'static str,
    /// Its value.
    pub(super) value: u32,
    /// Seconds after which the request may come again; at least 1.
    pub(super) retry_after: u64,
}

impl KeyUsage {
    /// Counts answers that begin `now`, all or none; at least 1. [`Self::end`] must follow, unless they are
    /// refused.
    pub(super) fn begin(
        &self,
        limits: &KeyLimits,
        num_answers: u32,
        now: Instant,
    ) -> Result<(), Refusal> {
        let mut taken = self.taken();
        if let Some(value) = limits.max_concurrent_requests
            && taken.in_flight.saturating_add(num_answers) > value
        {
            return Err(Refusal {
                limit: "max_concurrent_requests",
                value,
                retry_after: 1,
            });
        }
        if let Some(value) = limits.requests_per_minute {
            let room = taken.requests.wait(value, f64::from(num_answers), now);
            room.map_err(|retry_after| Refusal {
                limit: "requests_per_minute",
                value,
                retry_after,
            })?;
        }
        if let Some(value) = limits.tokens_per_minute {
            // How many a request takes is known at its end.
            let room = taken.tokens.wait(value, 0.0, now);
            room.map_err(|retry_after| Refusal {
                limit: "tokens_per_minute",
                value,
                retry_after,
            })?;
        }
        taken.in_flight = taken.in_flight.saturating_add(num_answers);
        if limits.requests_per_minute.is_some() {
            taken.requests.spent += f64::from(num_answers);
        }
        Ok(())
    }

    /// Takes back answers that were counted and are refused after all.
    pub(super) fn take_back(&self, num_answers: u32) {
        let mut taken = self.taken();
        taken.in_flight = taken.in_flight.saturating_sub(num_answers);
        taken.requests.spent = (taken.requests.spent - f64::from(num_answers)).max(0.0);
    }

    /// Counts the end of a request with as many answers that took `tokens`, prompt and answers together.
    pub(super) fn end(&self, limits: &KeyLimits, num_answers: u32, tokens: u64, now: Instant) {
        let mut taken = self.taken();
        taken.in_flight = taken.in_flight.saturating_sub(num_answers);
        if let Some(value) = limits.tokens_per_minute {
            taken.tokens.refill(value, now);
            taken.tokens.spent += f64::from(u32::try_from(tokens).unwrap_or(u32::MAX));
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Numbers are never half-written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token bucket that holds a minute's worth, told by what was spent of it. More may be spent than it
/// holds: that is a debt, which time pays.
#[derive(Debug, Default)]
struct Bucket {
    spent: f64,
    /// When `spent` was true; `None` before the first use.
    at: Option<Instant>,
}

impl Bucket {
    /// Gives back what time has paid at `per_minute`.
    fn refill(&mut self, per_minute: u32, now: Instant) {
        if let Some(at) = self.at {
            let seconds = now.saturating_duration_since(at).as_secs_f64();
            self.spent = (self.spent - seconds * f64::from(per_minute) / 60.0).max(0.0);
        }
        self.at = Some(now);
    }

    /// Seconds until `amount` can be had, rounded up, where it can't be had at once. Of an amount of 0
    /// any room will do.
    fn wait(&mut self, per_minute: u32, amount: f64, now: Instant) -> Result<(), u64> {
        self.refill(per_minute, now);
        let limit = f64::from(per_minute);
        let lacking = self.spent + amount - limit;
        let is_room = match amount {
            0.0 => lacking < -ROUNDING,
            _ => lacking < ROUNDING,
        };
        if is_room {
            return Ok(());
        }
        let seconds = (lacking * 60.0 / limit - ROUNDING).ceil().max(1.0);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at least 1, and `as` saturates"
        )]
        let seconds = seconds as u64;
        Err(seconds)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refused(limit: &'static str, value: u32, retry_after: u64) -> Result<(), Refusal> {
        Err(Refusal {
            limit,
            value,
            retry_after,
        })
    }

    #[test]
    fn requests_come_back_with_time() {
        let limits = KeyLimits {
            requests_per_minute: Some(3),
            ..KeyLimits::default()
        };
        let usage = KeyUsage::default();
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(usage.begin(&limits, 1, start), Ok(()));
        }
        let wait = |seconds| refused("requests_per_minute", 3, seconds);
        assert_eq!(usage.begin(&limits, 1, start), wait(20));
        // What was refused was not counted.
        assert_eq!(usage.begin(&limits, 1, start), wait(20));
        let later = start + Duration::from_secs(19);
        assert_eq!(usage.begin(&limits, 1, later), wait(1));
        let later = start + Duration::from_secs(20);
        assert_eq!(usage.begin(&limits, 1, later), Ok(()));
        assert_eq!(usage.begin(&limits, 1, later), wait(20));
        // A long rest saves no more than a minute's worth.
        let later = start + Duration::from_secs(3600);
        for _ in 0..3 {
            assert_eq!(usage.begin(&limits, 1, later), Ok(()));
        }
        assert_eq!(usage.begin(&limits, 1, later), wait(20));
    }

    #[test]
    fn tokens_are_counted_after_the_fact_and_debts_are_paid() {
        let limits = KeyLimits {
            tokens_per_minute: Some(60),
            ..KeyLimits::default()
        };
        let usage = KeyUsage::default();
        let start = Instant::now();
        assert_eq!(usage.begin(&limits, 1, start), Ok(()));
        usage.end(&limits, 1, 59, start);
        // One is left, so that any request may begin.
        assert_eq!(usage.begin(&limits, 1, start), Ok(()));
        usage.end(&limits, 1, 91, start);
        let wait = |seconds| refused("tokens_per_minute", 60, seconds);
        assert_eq!(usage.begin(&limits, 1, start), wait(90));
        let later = start + Duration::from_secs(89);
        assert_eq!(usage.begin(&limits, 1, later), wait(1));
        let later = start + Duration::from_secs(91);
        assert_eq!(usage.begin(&limits, 1, later), Ok(()));
    }

    #[test]
    fn requests_at_the_same_time_end_one_by_one() {
        let limits = KeyLimits {
            max_concurrent_requests: Some(2),
            ..KeyLimits::default()
        };
        let usage = KeyUsage::default();
        let now = Instant::now();
        assert_eq!(usage.begin(&limits, 1, now), Ok(()));
        assert_eq!(usage.begin(&limits, 1, now), Ok(()));
        assert_eq!(
            usage.begin(&limits, 1, now),
            refused("max_concurrent_requests", 2, 1)
        );
        usage.end(&limits, 1, 1_000_000, now);
        assert_eq!(usage.begin(&limits, 1, now), Ok(()));
    }

    #[test]
    fn answers_count_all_or_none() {
        let limits = KeyLimits {
            requests_per_minute: Some(6),
            max_concurrent_requests: Some(4),
            ..KeyLimits::default()
        };
        let usage = KeyUsage::default();
        let now = Instant::now();
        assert_eq!(usage.begin(&limits, 1, now), Ok(()));
        let too_many = refused("max_concurrent_requests", 4, 1);
        assert_eq!(usage.begin(&limits, 4, now), too_many);
        assert_eq!(usage.begin(&limits, u32::MAX, now), too_many);
        assert_eq!(usage.begin(&limits, 3, now), Ok(()));
        assert_eq!(usage.begin(&limits, 1, now), too_many);
        usage.end(&limits, 4, 0, now);
        // Four of the minute's six are spent.
        assert_eq!(
            usage.begin(&limits, 3, now),
            refused("requests_per_minute", 6, 10)
        );
        assert_eq!(usage.begin(&limits, 2, now), Ok(()));
    }

    #[test]
    fn without_limits_nothing_waits() {
        let usage = KeyUsage::default();
        let now = Instant::now();
        for _ in 0..10_000 {
            assert_eq!(usage.begin(&KeyLimits::default(), 1, now), Ok(()));
            usage.end(&KeyLimits::default(), 1, u64::MAX, now);
        }
    }
}
