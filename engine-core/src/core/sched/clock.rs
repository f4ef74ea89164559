//! The engine's clock.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Monotonic seconds since some moment of the core's start. Cheap to clone; clones agree.
#[derive(Clone)]
pub struct EngineClock(Arc<dyn Fn() -> f64 + Send + Sync>);

impl EngineClock {
    /// Seconds since this call.
    pub fn start() -> Self {
        let start = Instant::now();
        Self::from_fn(move || start.elapsed().as_secs_f64())
    }

    /// A clock that shows what `now` says, such as a test's.
    pub fn from_fn(now: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time in seconds.
    pub fn now(&self) -> f64 {
        (self.0)()
    }
}

impl fmt::Debug for EngineClock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("EngineClock")
            .field(&self.now())
            .finish()
    }
}
