//! One line of a batch: from its bytes to its result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::{FinishReason, RequestErrorCode};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::input::InputLine;
use super::line::{BatchRequestInput, BatchRequestOutput, BatchUrl};
use crate::error::{EngineDeadError, GenerateError, ValidationError};
use crate::openai::{
    ChatCompletionRequest, CompletionRequest, OpenAIServing, RequestContext, ServingError, Warnings,
};
use crate::pooling::{EmbeddingRequest, RerankRequest, ScoreRequest};
use crate::random::mix;

/// First and longest pause where the core's queue is full.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Lines with parts without effect that are told.
const MAX_WARNED_LINES: u64 = 10;

/// Attempts at a full queue before a line waits until it is the only one in the engine.
const ATTEMPTS_AMONG_OTHERS: u32 = 8;

/// Serves lines, with a bound on the answers that are generated at the same time: a line may ask
/// for many.
#[derive(Debug)]
pub(super) struct LineServing {
    serving: OpenAIServing,
    /// What requests without a seed get theirs from.
    seed: u64,
    max_sequences: u32,
    /// One permit per answer.
    sequences: Semaphore,
    /// Whether no other frontend fills the core's queue.
    owns_core: bool,
    /// True under `--strict-requests`.
    is_strict: bool,
    first_pause: Duration,
    /// Lines so far that have parts without effect.
    num_warned: AtomicU64,
}

impl LineServing {
    /// Serves lines with at most `max_sequences` answers in the engine, or those of one line where
    /// it asks for more. `owns_core` says that no other frontend uses the core.
    ///
    /// A request without a seed gets one from `seed` and its line number, so that another run of
    /// the batch, or a resumed one, gives the same answers.
    pub(super) fn new(
        serving: OpenAIServing,
        seed: u64,
        max_sequences: u32,
        owns_core: bool,
    ) -> Self {
        Self {
            serving,
            seed,
            max_sequences,
            sequences: Semaphore::new(max_sequences as usize),
            owns_core,
            is_strict: false,
            first_pause: FIRST_PAUSE,
            num_warned: AtomicU64::new(0),
        }
    }

    /// Refuses fields without effect.
    pub(super) fn strictly(mut self, is_strict: bool) -> Self {
        self.is_strict = is_strict;
        self
    }

    /// Serves one line. What is wrong with it becomes its result; a core that is gone does not.
    pub(super) async fn serve(
        &self,
        line: InputLine,
    ) -> Result<BatchRequestOutput, EngineDeadError> {
        let number = line.number;
        let parsed = BatchRequestInput::parse(&line);
        drop(line);
        let request = match parsed {
            Ok(request) => request,
            Err(bad) => return Ok(BatchRequestOutput::bad_line(number, bad)),
        };
        let context = RequestContext {
            request_id: format!("batch-{number}"),
            created: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            default_seed: Some(mix(self.seed, number)),
            trace_headers: Vec::new(),
            caller_salt: None,
            owner: 0,
            usage: Arc::default(),
        };
        let served = match ApiRequest::from_json(request.url, request.body, self.is_strict) {
            Ok(mut request) => {
                let mut skipped = Ok(());
                if let ApiRequest::ChatCompletion(chat) = &mut request {
                    let skip = self.serving.skip_tools(chat, &context).await;
                    skipped = skip.map(|warnings| chat.common.warnings.extend(warnings));
                    self.serving.warn_of_unread(chat);
                }
                self.warn(&request, number);
                match skipped {
                    Ok(()) => self.answer(&request, &context, number).await,
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error.into()),
        };
        let (status_code, body) = match served {
            Ok(body) => (200, body),
            Err(error) => {
                if let Some(dead) = core_is_gone(&error) {
                    return Err(dead);
                }
                let mut response = error.to_response();
                // As for a line that isn't a request: whoever reads the error has the line.
                response.error.message = format!("line {number}: {}", response.error.message);
                (response.error.code, to_json(&response))
            }
        };
        if has_aborted_choice(&body) {
            return Err(told_to_end());
        }
        Ok(BatchRequestOutput::response(
            number,
            request.custom_id,
            context.request_id,
            status_code,
            body,
        ))
    }

    /// Says what has no effect in a line, for the first lines that have such.
    fn warn(&self, request: &ApiRequest, number: u64) {
        let Some(warnings) = request.warnings().filter(|warnings| !warnings.is_empty()) else {
            return;
        };
        match self.num_warned.fetch_add(1, Ordering::Relaxed) {
            0..MAX_WARNED_LINES => {
                tracing::warn!("line {number}: {}", warnings.texts().join("; "));
            }
            MAX_WARNED_LINES => tracing::warn!(
                "more lines have parts without effect; with \"include_warnings\": true a line's answer names them"
            ),
            _ => {}
        }
    }

    /// Answers a request, and tries again while the core's queue is full. One that doesn't even
    /// find room alone never will.
    async fn answer(
        &self,
        request: &ApiRequest,
        context: &RequestContext,
        number: u64,
    ) -> Result<Value, ServingError> {
        let weight = u32::try_from(request.num_sequences()).unwrap_or(u32::MAX);
        let mut pause = self.first_pause;
        let mut attempt: u32 = 0;
        loop {
            let alone = attempt >= ATTEMPTS_AMONG_OTHERS;
            let permits = if alone { u32::MAX } else { weight };
            // Fails only where it is closed, which it never is.
            let permits = self.sequences.acquire_many(permits.min(self.max_sequences));
            let permits = permits.await.ok();
            match request.serve(&self.serving, context).await {
                Err(error) if queue_is_full(&error) && !(alone && self.owns_core) => {
                    if attempt == ATTEMPTS_AMONG_OTHERS {
                        tracing::warn!("line {number} waits for room in the core's queue: {error}");
                    }
                }
                served => return served,
            }
            drop(permits);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            attempt = attempt.saturating_add(1);
        }
    }
}

/// The body of a line, read once for all attempts.
#[derive(Debug)]
enum ApiRequest {
    Completion(CompletionRequest),
    ChatCompletion(ChatCompletionRequest),
    Embedding(EmbeddingRequest),
    Score(ScoreRequest),
    Rerank(RerankRequest),
}

impl ApiRequest {
    fn from_json(url: BatchUrl, body: Value, is_strict: bool) -> Result<Self, ValidationError> {
        let (request, stream) = match url {
            BatchUrl::Completions => {
                let request = match is_strict {
                    true => CompletionRequest::from_json_strict(body)?,
                    false => CompletionRequest::from_json(body)?,
                };
                let stream = request.common.stream;
                (Self::Completion(request), stream)
            }
            BatchUrl::ChatCompletions => {
                let request = match is_strict {
                    true => ChatCompletionRequest::from_json_strict(body)?,
                    false => ChatCompletionRequest::from_json(body)?,
                };
                let stream = request.common.stream;
                (Self::ChatCompletion(request), stream)
            }
            BatchUrl::Embeddings => (Self::Embedding(EmbeddingRequest::from_json(body)?), false),
            BatchUrl::Score => (Self::Score(ScoreRequest::from_json(body)?), false),
            BatchUrl::Rerank => (Self::Rerank(RerankRequest::from_json(body)?), false),
        };
        refuse_stream(stream)?;
        Ok(request)
    }

    /// What was found to have no effect, where that is looked for.
    fn warnings(&self) -> Option<&Warnings> {
        match self {
            Self::Completion(request) => Some(&request.common.warnings),
            Self::ChatCompletion(request) => Some(&request.common.warnings),
            Self::Embedding(_) | Self::Score(_) | Self::Rerank(_) => None,
        }
    }

    /// The answers that it asks for.
    fn num_sequences(&self) -> usize {
        match self {
            Self::Completion(request) => request.num_sequences(),
            Self::ChatCompletion(request) => request.common.n.unwrap_or(1) as usize,
            Self::Embedding(request) => request.input.len(),
            Self::Score(request) => request.text_2.texts.len(),
            Self::Rerank(request) => request.score.text_2.texts.len(),
        }
    }

    async fn serve(
        &self,
        serving: &OpenAIServing,
        context: &RequestContext,
    ) -> Result<Value, ServingError> {
        Ok(match self {
            Self::Completion(request) => {
                to_json(&serving.create_completion(request, context).await?)
            }
            Self::ChatCompletion(request) => {
                let request = request.clone();
                to_json(&serving.create_chat_completion(request, context).await?)
            }
            Self::Embedding(request) => {
                let mut request = request.clone();
                let prepared = serving.prepare_embeddings(&mut request, context).await?;
                to_json(
                    &serving
                        .create_embeddings(prepared, &request, context)
                        .await?,
                )
            }
            Self::Score(request) => {
                let prepared = serving.prepare_scores(request, context).await?;
                to_json(&serving.create_scores(prepared, request, context).await?)
            }
            Self::Rerank(request) => {
                let prepared = serving.prepare_scores(&request.score, context).await?;
                let request = request.clone();
                to_json(&serving.create_ranking(prepared, request, context).await?)
            }
        })
    }
}

fn refuse_stream(stream: bool) -> Result<(), ValidationError> {
    if stream {
        return Err(ValidationError::field(
            "stream",
            true,
            "a batch has no streams: leave stream out or set it to false",
        ));
    }
    Ok(())
}

fn queue_is_full(error: &ServingError) -> bool {
    matches!(
        error,
        ServingError::Generate(GenerateError::Request(error))
            if error.code == RequestErrorCode::QueueOverflow
    )
}

/// The core refuses or cuts off what it has while it ends; nobody but a signal, or another owner of
/// a shared core, makes it end during a batch.
fn told_to_end() -> EngineDeadError {
    EngineDeadError {
        reason: "it was told to end".to_owned(),
        exit_status: None,
    }
}

fn core_is_gone(error: &ServingError) -> Option<EngineDeadError> {
    match error {
        ServingError::Generate(GenerateError::EngineDead(dead)) => Some(dead.clone()),
        ServingError::Generate(GenerateError::Request(error))
            if error.code == RequestErrorCode::ShuttingDown =>
        {
            Some(told_to_end())
        }
        _ => None,
    }
}

/// Nothing but a core that ends aborts a batch's requests; their answers are cut off.
fn has_aborted_choice(body: &Value) -> bool {
    let choices = body.get("choices").and_then(Value::as_array);
    choices.into_iter().flatten().any(|choice| {
        choice.get("finish_reason").and_then(Value::as_str) == Some(FinishReason::Abort.as_str())
    })
}

/// Our own types always have a JSON form.
fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
