//! Attempts at one request, and the pauses between them.

use std::time::Duration;

use ureq::http::header::RETRY_AFTER;
use ureq::http::{HeaderMap, StatusCode};

use crate::limits::LONGEST_PAUSE;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RequestError {
    pub(crate) why: String,
    /// True if the same request may succeed a moment later.
    pub(crate) is_transient: bool,
    /// Status of a server that is busy.
    pub(crate) busy: Option<StatusCode>,
    /// Time after which the server wants to be asked again.
    pub(crate) retry_after: Option<Duration>,
}

impl RequestError {
    /// An error that another attempt may not meet.
    pub(crate) fn transient(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            is_transient: true,
            ..Self::default()
        }
    }

    /// The error that a busy server's status is. `None` for every other status.
    pub(crate) fn of_busy(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let is_busy = status.is_server_error() || matches!(status.as_u16(), 408 | 429);
        is_busy.then(|| Self {
            busy: Some(status),
            retry_after: retry_after(headers),
            ..Self::transient(format!("the server answers {status}"))
        })
    }
}

impl From<ureq::Error> for RequestError {
    fn from(error: ureq::Error) -> Self {
        use ureq::Error::{BodyStalled, HostNotFound, Io, Protocol, Timeout};
        let is_transient = matches!(
            error,
            Io(_) | Timeout(_) | Protocol(_) | BodyStalled | HostNotFound
        );
        Self {
            why: error.to_string(),
            is_transient,
            ..Self::default()
        }
    }
}

/// Seconds of the header `Retry-After`, or of the Hub's `RateLimit: "api";r=0;t=55`.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let limit = || {
        let parts = text("ratelimit")?.split(';');
        parts
            .map(str::trim)
            .find_map(|part| part.strip_prefix("t="))
    };
    let seconds = text(RETRY_AFTER.as_str()).or_else(limit)?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// Attempts that are left. Each failure is told in the log.
#[derive(Debug)]
pub(crate) struct Retry {
    most: u32,
    first_pause: Duration,
    failures: u32,
}

impl Retry {
    /// As many attempts as `most`.
    pub(crate) fn new(most: u32, first_pause: Duration) -> Self {
        Self {
            most,
            first_pause,
            failures: 0,
        }
    }

    /// Attempts that have failed.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Begins to count anew: the last attempt has brought something.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Counts a failure, and waits until the next attempt may begin. False if there is none.
    pub(crate) fn wait(&mut self, what: &str, error: &RequestError) -> bool {
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures += 1;
        let asked = error.retry_after.unwrap_or_default();
        if !error.is_transient || self.failures >= self.most || asked > LONGEST_PAUSE {
            return false;
        }
        let pause = self.first_pause.saturating_mul(doubled);
        let pause = pause.min(LONGEST_PAUSE).max(asked);
        tracing::warn!(
            "{what}: {}; trying again in {} s",
            error.why,
            pause.as_secs()
        );
        std::thread::sleep(pause);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_server_says_when_to_come_again() {
        for (name, value, seconds) in [
            ("retry-after", "7", Some(7)),
            ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("ratelimit", "\"api\";r=0;t=55", Some(55)),
            ("x", "7", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            let error = RequestError::of_busy(StatusCode::TOO_MANY_REQUESTS, &headers).unwrap();
            assert_eq!(
                error.retry_after,
                seconds.map(Duration::from_secs),
                "{value}"
            );
        }
        let none = HeaderMap::new();
        assert_eq!(RequestError::of_busy(StatusCode::FORBIDDEN, &none), None);
    }

    #[test]
    fn attempts_end_at_their_number_and_where_they_can_not_help() {
        let mut retry = Retry::new(3, Duration::ZERO);
        let cut = RequestError::transient("cut");
        assert!(retry.wait("f", &cut) && retry.wait("f", &cut) && !retry.wait("f", &cut));
        retry.reset();
        assert!(!retry.wait("f", &RequestError::default()));
        retry.reset();
        let later = RequestError {
            retry_after: Some(LONGEST_PAUSE * 2),
            ..cut
        };
        assert!(!retry.wait("f", &later));
    }
}
