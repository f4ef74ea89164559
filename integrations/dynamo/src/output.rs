//! The engine's outputs as Dynamo's.

use std::sync::Arc;

use dynamo_backend_common::{
    AsyncEngineContext, BackendError, CompletionUsage, DynamoError, ErrorType, FinishReason,
    LLMEngineOutput, LLMEngineOutputExt, PromptTokensDetails, StopReason, TopLogprob, usage,
};
use engine_frontend::{CompletionOutput, Logprob, PositionLogprobs, RequestOutput, RequestStream};
use futures::stream::{self, BoxStream};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::error::{error, of_generate};

/// What stands for a probability of 0, as in the OpenAI API: JSON has no infinity.
const MIN_LOGPROB: f64 = -9999.0;

/// What an answer's outputs are made with.
#[derive(Debug)]
pub struct Answer {
    /// See [`EngineRequest::num_logprobs`](crate::request::EngineRequest::num_logprobs).
    pub num_logprobs: Option<u32>,
    /// Goes into the last output's `engine_data`.
    pub warnings: Vec<String>,
    num_prompt_tokens: u32,
    num_cached_tokens: u32,
    num_tokens: u32,
}

impl Answer {
    /// Of a prompt of so many tokens.
    pub fn new(num_prompt_tokens: usize, num_logprobs: Option<u32>, warnings: Vec<String>) -> Self {
        Self {
            num_logprobs,
            warnings,
            num_prompt_tokens: u32::try_from(num_prompt_tokens).unwrap_or(u32::MAX),
            num_cached_tokens: 0,
            num_tokens: 0,
        }
    }

    /// The stream of an answer that ends when `context` is stopped, whether anybody reads it or not: a task of its
    /// own looks. Of a reader that lags the outputs merge.
    pub fn stream(
        self,
        outputs: RequestStream,
        context: Arc<dyn AsyncEngineContext>,
    ) -> BoxStream<'static, Result<LLMEngineOutput, DynamoError>> {
        let (sender, mut receiver) = mpsc::channel(1);
        tokio::spawn(self.forward(outputs, context, sender));
        Box::pin(stream::poll_fn(move |task| receiver.poll_recv(task)))
    }

    async fn forward(
        mut self,
        mut outputs: RequestStream,
        context: Arc<dyn AsyncEngineContext>,
        sender: mpsc::Sender<Result<LLMEngineOutput, DynamoError>>,
    ) {
        loop {
            let next = tokio::select! {
                biased;
                () = cancelled(&*context) => break,
                () = sender.closed() => return,
                next = outputs.next() => next,
            };
            let permit = tokio::select! {
                biased;
                () = cancelled(&*context) => break,
                permit = sender.reserve() => permit,
            };
            // Nobody reads any more: what is dropped here is aborted.
            let Ok(permit) = permit else { return };
            let next = self.next(next);
            let is_last = next
                .as_ref()
                .map_or(true, |output| output.finish_reason.is_some());
            permit.send(next);
            if is_last {
                return;
            }
        }
        // Ends the request in the engine, before anybody reads that it ended.
        drop(outputs);
        let _ = sender.send(Ok(self.cancelled())).await;
    }

    /// The output of a request that was stopped from outside.
    pub fn cancelled(&self) -> LLMEngineOutput {
        LLMEngineOutput::cancelled().with_usage(self.usage())
    }

    fn next(
        &mut self,
        next: Option<Result<RequestOutput, engine_frontend::GenerateError>>,
    ) -> Result<LLMEngineOutput, DynamoError> {
        let lost = || {
            let error_type = ErrorType::Backend(BackendError::StreamIncomplete);
            error(error_type, "the engine's stream ended before the answer")
        };
        let mut output = next
            .ok_or_else(lost)?
            .map_err(|problem| of_generate(&problem))?;
        self.num_cached_tokens = self.num_cached_tokens.max(output.num_cached_tokens);
        let prompt_logprobs = output.prompt_logprobs.take();
        let completion = output.outputs.pop();
        let mut told = match completion {
            Some(completion) => self.of_completion(completion),
            None => LLMEngineOutput::default(),
        };
        if let Some(positions) = prompt_logprobs {
            let data = told.engine_data.get_or_insert_with(|| json!({}));
            if let Some(data) = data.as_object_mut() {
                data.insert("prompt_logprobs".to_owned(), prompt_logprobs_of(&positions));
            }
        }
        Ok(told)
    }

    fn of_completion(&mut self, completion: CompletionOutput) -> LLMEngineOutput {
        self.num_tokens = self
            .num_tokens
            .saturating_add(length(&completion.token_ids));
        let mut told = LLMEngineOutput {
            index: Some(0),
            ..LLMEngineOutput::default()
        };
        if let (Some(positions), Some(top)) = (&completion.logprobs, self.num_logprobs) {
            let chosen = positions
                .iter()
                .map(|position| position.first().map_or(MIN_LOGPROB, number));
            told.log_probs = Some(chosen.collect());
            told.top_logprobs = Some(
                positions
                    .iter()
                    .map(|position| top_of(position, top))
                    .collect(),
            );
            told.cum_log_probs = completion.cumulative_logprob;
        }
        if let Some(reason) = completion.finish_reason {
            told.finish_reason = Some(finish_reason(reason));
            told.stop_reason = completion.stop_reason.as_ref().map(stop_reason);
            told.completion_usage = Some(self.usage());
            told.engine_data = self.engine_data(&completion);
        }
        told.token_ids = completion.token_ids;
        told
    }

    /// What a client may want to know of a constrained answer, and of options without effect.
    fn engine_data(&mut self, completion: &CompletionOutput) -> Option<Value> {
        let mut data = Map::new();
        if let Some(is_complete) = completion.structured_output_complete {
            data.insert("structured_output_complete".to_owned(), json!(is_complete));
        }
        for (name, flag) in [
            (
                "structured_output_completed_by_budget",
                completion.structured_output_completed_by_budget,
            ),
            (
                "structured_output_repetition_closed",
                completion.structured_output_repetition_closed,
            ),
        ] {
            if flag {
                data.insert(name.to_owned(), json!(true));
            }
        }
        if !self.warnings.is_empty() {
            data.insert(
                "warnings".to_owned(),
                json!(std::mem::take(&mut self.warnings)),
            );
        }
        (!data.is_empty()).then_some(Value::Object(data))
    }

    fn usage(&self) -> CompletionUsage {
        CompletionUsage {
            prompt_tokens_details: Some(PromptTokensDetails {
                cached_tokens: Some(self.num_cached_tokens),
                ..PromptTokensDetails::default()
            }),
            ..usage(self.num_prompt_tokens, self.num_tokens)
        }
    }
}

/// Resolves when a request is stopped or killed.
pub async fn cancelled(context: &dyn AsyncEngineContext) {
    tokio::select! {
        () = context.stopped() => {}
        () = context.killed() => {}
    }
}

fn length(ids: &[u32]) -> u32 {
    u32::try_from(ids.len()).unwrap_or(u32::MAX)
}

fn number(logprob: &Logprob) -> f64 {
    match logprob.logprob.is_nan() {
        true => MIN_LOGPROB,
        false => f64::from(logprob.logprob).max(MIN_LOGPROB),
    }
}

/// The so many most probable tokens, best first. The chosen one stands first in a position, and among these only if it
/// is one of them.
fn top_of(position: &PositionLogprobs, top: u32) -> Vec<TopLogprob> {
    let is_top = |logprob: &&Logprob| logprob.rank.is_some_and(|rank| rank <= top);
    let mut best: Vec<TopLogprob> = position
        .iter()
        .filter(is_top)
        .map(|logprob| TopLogprob {
            rank: logprob.rank.unwrap_or_default(),
            token_id: logprob.token_id,
            token: Some(logprob.decoded_token().into_owned()),
            logprob: number(logprob),
            bytes: Some(logprob.bytes.to_vec()),
        })
        .collect();
    best.sort_by_key(|logprob| logprob.rank);
    best
}

/// Dynamo's `PromptLogprobs`: per position a map from the token's id.
fn prompt_logprobs_of(positions: &[Option<PositionLogprobs>]) -> Value {
    let of_token = |logprob: &Logprob| {
        let entry = json!({
            "logprob": number(logprob),
            "rank": logprob.rank,
            "decoded_token": logprob.decoded_token(),
        });
        (logprob.token_id.to_string(), entry)
    };
    let of_position = |position: &Option<PositionLogprobs>| match position {
        Some(position) => Value::Object(position.iter().map(of_token).collect()),
        None => Value::Null,
    };
    Value::Array(positions.iter().map(of_position).collect())
}

fn finish_reason(reason: engine_frontend::FinishReason) -> FinishReason {
    use engine_frontend::FinishReason as Own;
    match reason {
        Own::Stop | Own::Repetition => FinishReason::Stop,
        Own::Length => FinishReason::Length,
        Own::Abort => FinishReason::Cancelled,
        Own::Error => FinishReason::Error("the engine core failed on the request".to_owned()),
    }
}

fn stop_reason(reason: &engine_frontend::StopReason) -> StopReason {
    match reason {
        engine_frontend::StopReason::TokenId(id) => StopReason::Int(i64::from(*id)),
        engine_frontend::StopReason::String(text) => StopReason::String(text.clone()),
    }
}
