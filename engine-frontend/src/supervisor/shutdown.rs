//! The end: what is in flight may finish, with another core where one dies meanwhile.

use std::time::{Duration, Instant};

use super::SupervisedCore;
use crate::engine_core_client::{EngineDeadError, within_a_year};

/// How often it is looked whether everything is finished.
const POLL: Duration = Duration::from_millis(20);

impl SupervisedCore {
    /// Returns when all is to end.
    pub(super) async fn over(&self) {
        while !self.state().is_over() {
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until nothing is in flight, or `seconds` are over, and ends the core.
    ///
    /// The core is told only then: one that knows refuses what it is sent, so that nothing could be
    /// replayed to the one after it.
    ///
    /// # Errors
    /// The core is gone for good, or had to be killed because it didn't end.
    pub(super) async fn end_within(&self, seconds: f64) -> Result<(), EngineDeadError> {
        let end = Instant::now() + Duration::from_secs_f64(within_a_year(seconds));
        self.state().end = Some(end);
        let client = loop {
            {
                let mut state = self.state();
                if let Some(dead) = &state.gone {
                    return Err(dead.clone());
                }
                let now = Instant::now();
                if state.in_flight.is_empty() || now >= end {
                    // Nobody needs another one.
                    state.end = Some(now);
                    break state.client.clone();
                }
            }
            tokio::time::sleep(POLL.min(end.saturating_duration_since(Instant::now()))).await;
        };
        match client {
            Some(client) => client.shutdown(0.0).await,
            None => Ok(()),
        }
    }
}
