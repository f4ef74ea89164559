//! Requests of the engine's own before it is ready, so that no client's request is the slow first one.

use protocol::{
    EngineCoreReadyResponse, EngineCoreRequest, PoolingParams, RunnerType, SamplingParams, Shared,
    StructuredOutputsConstraint, StructuredOutputsParams,
};

use crate::core::request::Request;
use crate::engine::core::{EngineCore, EngineCoreError};

/// Tokens of the prompt: several, as a prefill's kernels are not those of a decode step.
const PROMPT_TOKENS: u32 = 8;
/// Tokens of each answer: one of the prefill, one of a decode step.
const OUTPUT_TOKENS: u32 = 2;
/// Steps after which warming up is given up. Two requests take two steps each.
const MAX_STEPS: usize = 16;

impl EngineCore {
    /// Answers a free request and one for a JSON object, or one for a vector where that is what the core makes, and
    /// forgets them. Every weight is read twice,
    /// threads and scratch memory are there afterwards, and so are the masks of JSON's first tokens.
    ///
    /// Does nothing where the model's context has no place for such requests.
    ///
    /// # Errors
    /// The core can't run a step.
    pub fn warm_up(&mut self, ready: &EngineCoreReadyResponse) -> Result<(), EngineCoreError> {
        let (max_model_len, vocab_size) = (ready.max_model_len, ready.vocab_size);
        if max_model_len < PROMPT_TOKENS + OUTPUT_TOKENS || vocab_size == 0 {
            return Ok(());
        }
        let json_object = StructuredOutputsParams::new(StructuredOutputsConstraint::JsonObject);
        // One after the other: a batch of two would hide what a single request needs.
        let kinds = match ready.pooler.runner {
            RunnerType::Generate => vec![(None, None), (Some(Shared::from(json_object)), None)],
            RunnerType::Pooling => vec![(None, Some(PoolingParams::default()))],
        };
        for (structured_outputs, pooling_params) in kinds {
            let request = EngineCoreRequest {
                request_id: "warm-up".to_owned(),
                prompt_token_ids: (0..PROMPT_TOKENS)
                    .map(|token_id| token_id % vocab_size)
                    .collect(),
                sampling_params: SamplingParams {
                    max_tokens: Some(OUTPUT_TOKENS),
                    ignore_eos: true,
                    structured_outputs,
                    ..SamplingParams::default()
                },
                pooling_params,
                ..EngineCoreRequest::default()
            };
            let hasher = self.block_hasher();
            self.add_request(Request::from_engine_core_request(request, &hasher));
            self.run_to_the_end()?;
        }
        self.scheduler.reset_prefix_cache();
        Ok(())
    }

    /// Steps until no request is left. What it brings is for nobody.
    fn run_to_the_end(&mut self) -> Result<(), EngineCoreError> {
        for _ in 0..MAX_STEPS {
            if !self.has_work() && !self.wait_for_grammar() {
                break;
            }
            self.step()?;
        }
        self.abort_all_requests();
        self.take_pending_outputs();
        Ok(())
    }
}
