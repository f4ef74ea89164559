//! A model that says how long it worked, so that the rest of a step can be told from it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine_core::model_executor::{Bitmask, CausalLm, ForwardInput, ModelError};

/// Time spent in a model since it was made. The worker's thread adds, the benchmark's reads.
#[derive(Debug, Default)]
pub(crate) struct ModelTimes {
    forward_nanos: AtomicU64,
    lm_head_nanos: AtomicU64,
}

impl ModelTimes {
    /// In the layers.
    pub(crate) fn forward(&self) -> Duration {
        Duration::from_nanos(self.forward_nanos.load(Ordering::Relaxed))
    }

    /// In the LM head.
    pub(crate) fn lm_head(&self) -> Duration {
        Duration::from_nanos(self.lm_head_nanos.load(Ordering::Relaxed))
    }
}

/// A model with a stopwatch.
pub(crate) struct TimedModel {
    pub(crate) model: Box<dyn CausalLm>,
    pub(crate) times: Arc<ModelTimes>,
}

fn timed<T>(nanos: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    nanos.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
    result
}

impl CausalLm for TimedModel {
    fn forward(&mut self, input: &ForwardInput<'_>) -> Result<(), ModelError> {
        timed(&self.times.forward_nanos, || self.model.forward(input))
    }

    fn compute_logits(&mut self, rows: Range<usize>, logits: &mut [f32]) -> Result<(), ModelError> {
        timed(&self.times.lm_head_nanos, || {
            self.model.compute_logits(rows, logits)
        })
    }

    fn compute_logits_of(
        &mut self,
        rows: &[usize],
        bitmasks: &[Option<Bitmask<'_>>],
        logits: &mut [f32],
    ) -> Result<(), ModelError> {
        timed(&self.times.lm_head_nanos, || {
            self.model.compute_logits_of(rows, bitmasks, logits)
        })
    }

    fn compute_argmax(
        &mut self,
        rows: &[usize],
        bitmasks: &[Option<Bitmask<'_>>],
        num_tokens: usize,
        token_ids: &mut Vec<Option<u32>>,
    ) -> Result<bool, ModelError> {
        timed(&self.times.lm_head_nanos, || {
            (self.model).compute_argmax(rows, bitmasks, num_tokens, token_ids)
        })
    }

    fn logits_maxima(&self) -> Option<&[f32]> {
        self.model.logits_maxima()
    }

    fn compute_logits_for(
        &mut self,
        few: &[(usize, &[u32])],
        logits: &mut [f32],
    ) -> Result<(), ModelError> {
        timed(&self.times.lm_head_nanos, || {
            self.model.compute_logits_for(few, logits)
        })
    }

    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn hidden_size(&self) -> usize {
        self.model.hidden_size()
    }
}
