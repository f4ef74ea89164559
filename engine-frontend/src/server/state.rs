//! What all handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::api_keys::ApiKeys;
use super::args::{ServeArgs, ServerArgs};
use super::audit_log::AuditLog;
use super::body::BodyParser;
use crate::metrics::PrometheusStatLogger;
use crate::openai::OpenAIServing;
use crate::supervisor::SupervisedCore;

/// Bytes that bodies and what is made of them may take at the same time, in the largest of them.
/// While it is parsed, a body takes many times its bytes: see [`BodyParser`].
const MAX_BODIES_AT_ONCE: u64 = 8;

/// The largest body counts as so much at least: a limit on bodies is none on requests in flight.
const MIN_LARGEST_BODY: u64 = 32 << 20;

/// What all handlers share.
#[derive(Debug)]
pub(super) struct AppState {
    pub(super) serving: OpenAIServing,
    pub(super) core: Arc<SupervisedCore>,
    pub(super) metrics: Arc<PrometheusStatLogger>,
    pub(super) args: ServerArgs,
    /// For requests that bring none of their own.
    pub(super) default_seed: Option<u64>,
    pub(super) keys: ApiKeys,
    pub(super) audit_log: Option<AuditLog>,
    /// Whether `/pause` stopped the engine, and `/resume` didn't come yet.
    pub(super) is_paused: AtomicBool,
    /// Unix time in seconds.
    pub(super) started: u64,
    pub(super) load: Load,
    pub(super) body_budget: Budget,
    pub(super) body_parser: BodyParser,
    /// Whether the server ends: it finishes what it began, and takes no new work.
    pub(super) draining: AtomicBool,
}

impl AppState {
    pub(super) fn new(
        serving: OpenAIServing,
        core: Arc<SupervisedCore>,
        metrics: Arc<PrometheusStatLogger>,
        args: &ServeArgs,
        keys: ApiKeys,
        audit_log: Option<AuditLog>,
    ) -> Self {
        let default_seed = args.engine.seed;
        let args = args.server.clone();
        Self {
            keys,
            audit_log,
            is_paused: AtomicBool::new(false),
            started: unix_time(),
            load: Load::default(),
            body_budget: Budget::new(
                args.max_request_body_size.max(MIN_LARGEST_BODY) * MAX_BODIES_AT_ONCE,
            ),
            body_parser: BodyParser::default(),
            draining: AtomicBool::new(false),
            serving,
            core,
            metrics,
            args,
            default_seed,
        }
    }
}

impl AppState {
    /// Counts a core that was started in the place of one that died. It is not paused.
    pub(super) fn note_restart(&self) {
        self.metrics.record_restart();
        if self.is_paused.swap(false, Ordering::Relaxed) {
            tracing::warn!("the core that was paused is gone; the one in its place is not paused");
        }
    }
}

/// Unix time in seconds.
pub(super) fn unix_time() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// Requests in flight.
#[derive(Debug, Default, Clone)]
pub(super) struct Load(Arc<AtomicUsize>);

impl Load {
    /// One more, until the guard is dropped.
    pub(super) fn enter(&self) -> LoadGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        LoadGuard(self.clone())
    }

    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// See [`Load::enter`].
#[derive(Debug)]
pub(super) struct LoadGuard(Load);

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An amount that is shared out and given back.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    left: Arc<AtomicU64>,
    /// Most that a share [grows to](Share::grow_to).
    max_share: u64,
}

impl Budget {
    /// A budget of which [`MAX_BODIES_AT_ONCE`] shares of any size can be had.
    pub(super) fn new(amount: u64) -> Self {
        Self {
            left: Arc::new(AtomicU64::new(amount)),
            max_share: amount / MAX_BODIES_AT_ONCE,
        }
    }

    /// A share of nothing yet.
    pub(super) fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            amount: 0,
        }
    }
}

/// A part of a [`Budget`], given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Budget,
    amount: u64,
}

impl Share {
    /// Takes more; `false`, and nothing taken, where not so much is left.
    pub(super) fn grow(&mut self, by: u64) -> bool {
        let taken = self
            .budget
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(by)
            });
        if taken.is_ok() {
            self.amount += by;
        }
        taken.is_ok()
    }

    /// Takes more until it has so much, or as much as one share may have; as [`grow`](Self::grow) does.
    pub(super) fn grow_to(&mut self, amount: u64) -> bool {
        let wanted = amount.min(self.budget.max_share);
        self.grow(wanted.saturating_sub(self.amount))
    }

    /// What all shares of its budget may have together.
    pub(super) fn budget_size(&self) -> u64 {
        self.budget.max_share * MAX_BODIES_AT_ONCE
    }

    #[cfg(test)]
    pub(super) fn amount(&self) -> u64 {
        self.amount
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_overdrawn_and_comes_back() {
        let budget = Budget::new(10);
        let (mut a, mut b) = (budget.share(), budget.share());
        assert!(a.grow(6));
        assert!(!b.grow(5));
        assert!(b.grow(4));
        assert!(!a.grow(1));
        drop(b);
        assert!(a.grow(4));
    }
}
