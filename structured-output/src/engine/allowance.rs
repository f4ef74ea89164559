//! How much of others' time and memory a matcher may take.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::RequestMemory;

/// No limit but that of each call.
const UNLIMITED: u64 = u64::MAX;

/// Steps and bytes that a matcher's calls may together still take.
pub(crate) struct Allowance {
    steps_left: AtomicU64,
    /// Steps that each of them may take, beside the engine's own limit.
    max_call_steps: u64,
    /// Bytes of states that they may together add, and of these still.
    max_bytes: usize,
    bytes_left: AtomicUsize,
    /// Whether the memory of any kind that a call holds while it runs is bounded by `bytes_left` too.
    counts_all_held: bool,
    /// What all matchers of a request take together, where that is bounded.
    request_memory: Option<RequestMemory>,
    /// Whether they wait for others at work in memory apart.
    is_patient: bool,
    /// The bound, if there is one, that a call met: what is counted, and how much of it there may be.
    beyond: OnceLock<(&'static str, u64)>,
}

impl Allowance {
    /// So many steps, for calls that wait where they have to.
    pub(crate) fn patient(steps: u64) -> Self {
        Self {
            steps_left: AtomicU64::new(steps),
            ..Self::default()
        }
    }

    /// With at most so many steps for each call.
    pub(crate) fn with_max_call_steps(self, max_call_steps: u64) -> Self {
        Self {
            max_call_steps,
            ..self
        }
    }

    /// With at most so many bytes of states for all calls together. The memory of any kind that a call holds while
    /// it runs is bounded by what is left of them.
    pub(crate) fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.grant_bytes(max_bytes);
        self.counts_all_held = true;
        self
    }

    /// Grants so many bytes of states from here on. What is left of the steps stays.
    pub(crate) fn grant_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
        self.bytes_left = AtomicUsize::new(max_bytes);
    }

    /// Takes its part in what the matchers of a request take together.
    pub(crate) fn set_request_memory(&mut self, memory: &RequestMemory) {
        self.request_memory = Some(memory.clone());
    }

    /// What the matchers of its request take together, where that is bounded.
    pub(crate) fn request_memory(&self) -> Option<&RequestMemory> {
        self.request_memory.as_ref()
    }

    /// Whether they have added as many bytes to memory that all share as they may.
    pub(super) fn is_request_beyond(&self, max_bytes: usize) -> bool {
        self.request_bytes_left(max_bytes) == 0
    }

    /// Bytes of states and of what can be computed again that they may still add to memory that all share, of so many.
    pub(super) fn request_bytes_left(&self, max_bytes: usize) -> usize {
        let added = self.request_memory().map(RequestMemory::shared_bytes);
        added.map_or(usize::MAX, |added| max_bytes.saturating_sub(added))
    }

    /// Takes note that a call has added some.
    pub(super) fn add_request_bytes(&self, bytes: usize) {
        if let Some(memory) = self.request_memory() {
            memory.add_shared_bytes(bytes);
        }
    }

    /// Bytes of any kind that a call may hold while it runs, beside the engine's own limit.
    pub(super) fn held_bytes_left(&self) -> usize {
        match self.counts_all_held {
            true => self.bytes_left(),
            false => usize::MAX,
        }
    }

    /// Bytes of states that were granted.
    pub(super) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Grants so many steps from here on, `None` for no limit but that of each call; for calls that wait for
    /// others at work in memory apart, or don't. What is left of the bytes stays.
    pub(crate) fn grant(&mut self, steps: Option<u64>, is_patient: bool) {
        self.steps_left = AtomicU64::new(steps.unwrap_or(UNLIMITED));
        self.is_patient = is_patient;
        self.beyond = OnceLock::new();
    }

    /// Steps that each call may take.
    pub(crate) fn max_call_steps(&self) -> u64 {
        self.max_call_steps
    }

    /// Bytes of states that calls may still add.
    pub(crate) fn bytes_left(&self) -> usize {
        self.bytes_left.load(Ordering::Relaxed)
    }

    /// Whether calls wait for others at work in memory apart.
    pub(crate) fn is_patient(&self) -> bool {
        self.is_patient
    }

    /// The steps that are left.
    pub(crate) fn left(&self) -> Option<u64> {
        let left = self.steps_left.load(Ordering::Relaxed);
        (left != UNLIMITED).then_some(left)
    }

    /// The bound that no limit raises and that a call met, if one did.
    pub(crate) fn beyond(&self) -> Option<(&'static str, u64)> {
        self.beyond.get().copied()
    }

    /// Takes note of such a bound.
    pub(super) fn note_beyond(&self, bound: (&'static str, u64)) {
        // The first is as good as another.
        let _ = self.beyond.set(bound);
    }

    /// Takes some steps.
    pub(super) fn spend(&self, steps: u64) {
        if let Some(left) = self.left() {
            self.steps_left
                .store(left.saturating_sub(steps), Ordering::Relaxed);
        }
    }

    /// Takes some bytes.
    pub(super) fn spend_bytes(&self, bytes: usize) {
        let left = self.bytes_left().saturating_sub(bytes);
        self.bytes_left.store(left, Ordering::Relaxed);
    }
}

impl Clone for Allowance {
    fn clone(&self) -> Self {
        Self {
            steps_left: AtomicU64::new(self.steps_left.load(Ordering::Relaxed)),
            max_call_steps: self.max_call_steps,
            max_bytes: self.max_bytes,
            bytes_left: AtomicUsize::new(self.bytes_left()),
            counts_all_held: self.counts_all_held,
            request_memory: self.request_memory.clone(),
            is_patient: self.is_patient,
            beyond: OnceLock::new(),
        }
    }
}

impl Default for Allowance {
    /// No limit but that of each call.
    fn default() -> Self {
        Self {
            steps_left: AtomicU64::new(UNLIMITED),
            max_call_steps: UNLIMITED,
            max_bytes: usize::MAX,
            bytes_left: AtomicUsize::new(usize::MAX),
            counts_all_held: false,
            request_memory: None,
            is_patient: true,
            beyond: OnceLock::new(),
        }
    }
}

impl std::fmt::Debug for Allowance {
    /// What is left isn't shown: a call that changes nothing else takes of it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allowance").finish_non_exhaustive()
    }
}
