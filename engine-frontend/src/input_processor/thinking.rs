//! A request's settings for the model's thinking: the markers, where a constraint begins, the token budget.

use std::sync::{Arc, OnceLock};

use protocol::{SamplingParams, Shared, StructuredOutputsParams};

use super::{CallersFields, InputProcessor};
use crate::error::{ValidationError, cut_short};
use crate::structured_outputs::{
    self, AnswerKind, PLACE_BEHIND_THINKING, Reasoning, ThinkingMarkers,
};

/// What a constraint becomes behind thinking that plain text marks: where the prompt has opened it, and where the output
/// may. The requests of a list share it.
#[derive(Debug, Default)]
pub(super) struct BehindThinking([OnceLock<Result<Constraint, ValidationError>>; 2]);

/// A constraint, and what its caller calls its parts.
type Constraint = (Shared<StructuredOutputsParams>, Arc<CallersFields>);

impl InputProcessor {
    /// The model's reasoning by these markers. A model without those that nobody has to name doesn't think.
    pub(super) fn reasoning_by(
        &self,
        markers: &ThinkingMarkers,
    ) -> Result<Option<Reasoning>, ValidationError> {
        let ThinkingMarkers { start, end, .. } = markers;
        let wrong = |message: &str| {
            let message = format!("thinking_markers: {message}");
            Err(ValidationError::field("thinking_markers", start, message))
        };
        if start.is_empty() || end.is_empty() {
            return wrong("`start` and `end` must not be empty");
        }
        if !markers.preamble.is_empty() && markers.answer.is_empty() {
            return wrong("`preamble` needs `answer`, the header that tells an answer from it");
        }
        if !markers.other_spellings.is_empty() && !markers.text {
            return wrong("`other_spellings` needs `text`: tokens are spelled in one way");
        }
        if start == end {
            let message =
                format!("thinking_markers: `start` and `end` must differ, got {start:?} for both");
            return Err(ValidationError::field("thinking_markers", start, message));
        }
        let reasoning = Reasoning::new(&self.tokenizer, markers);
        if reasoning.is_none() && *markers != ThinkingMarkers::default() {
            let must = match markers.text {
                true => "with `text` must have no control token of this model in them",
                false => {
                    "must be tokens of this model's vocabulary, or begin with a control token of it (plain text needs \
                     `\"text\": true`)"
                }
            };
            let channels = [&markers.answer, &markers.answer_end, &markers.preamble];
            let texts = [start, end].into_iter().chain(channels);
            let given: Vec<String> = texts
                .filter(|text| !text.is_empty())
                .map(|text| format!("{:?}", cut_short(text)))
                .collect();
            let message = format!("thinking_markers {must}, got {}", given.join(", "));
            return Err(ValidationError::field("thinking_markers", start, message));
        }
        Ok(reasoning)
    }

    /// True if the model's thinking is told apart.
    pub(crate) fn thinks(&self) -> bool {
        self.reasoning.is_some()
    }

    /// True if its thinking can be held to a budget: it stands between tokens.
    pub(crate) fn takes_thinking_budget(&self) -> bool {
        let reasoning = self.reasoning.as_ref();
        reasoning.is_some_and(|reasoning| reasoning.text_markers().is_none())
    }

    /// Where plain text marks thinking, puts the thinking before the answer into the constraint: what tokens write the
    /// marks can't be known ahead. The tokens around other models' thinking are followed by the core.
    pub(super) fn put_behind_thinking(
        &self,
        (constraint, callers_fields): (
            &mut Option<Shared<StructuredOutputsParams>>,
            &mut Option<Arc<CallersFields>>,
        ),
        reasoning_ended: Option<bool>,
        behind_thinking: &BehindThinking,
    ) -> Result<(), ValidationError> {
        let reasoning = self.reasoning.as_ref();
        let markers = reasoning.and_then(Reasoning::text_markers);
        let (Some(markers), Some(params), Some(fields)) = (markers, constraint, callers_fields)
        else {
            return Ok(());
        };
        let is_open = reasoning_ended == Some(false);
        let [undecided, open] = &behind_thinking.0;
        let known = match is_open {
            true => open,
            false => undecided,
        };
        let (whole, places) = known
            .get_or_init(|| {
                let whole = structured_outputs::behind_thinking(
                    params,
                    markers,
                    is_open,
                    &fields.constraint,
                )?;
                Ok((whole.into(), Arc::new(fields.within(PLACE_BEHIND_THINKING))))
            })
            .clone()?;
        (*params, *fields) = (whole, places);
        Ok(())
    }

    /// Fills what the core needs to know of the model's thinking. Returns whether a constraint
    /// holds from the first token.
    pub(super) fn complete_thinking(
        &self,
        params: &mut SamplingParams,
        reasoning_ended: Option<bool>,
        answer: AnswerKind,
    ) -> Result<bool, ValidationError> {
        let reasoning = self.reasoning.as_ref();
        let mut thinking_tokens = reasoning.and_then(Reasoning::thinking_tokens);
        if let Some(tokens) = &mut thinking_tokens
            && answer == AnswerKind::WithHeader
        {
            tokens.separator_token_ids.clear();
        }
        if let Some(budget) = params.thinking_token_budget {
            if thinking_tokens.is_none() {
                let message = "thinking_token_budget needs a model whose tokenizer has tokens around thinking, \
                               such as <think> and </think>; leave it out";
                return Err(ValidationError::field(
                    "thinking_token_budget",
                    budget,
                    message,
                ));
            }
            params.thinking_tokens = thinking_tokens.clone();
        }
        let Some(constraint) = &params.structured_outputs else {
            return Ok(false);
        };
        let from_the_start = constraint.enable_in_reasoning || reasoning_ended == Some(true);
        if !from_the_start {
            params.thinking_tokens = thinking_tokens;
        }
        Ok(from_the_start)
    }
}
