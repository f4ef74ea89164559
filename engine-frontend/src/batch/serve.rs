//! One line of a batch: from its bytes to its result.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::{FinishReason, RequestErrorCode};
use serde::Serialize;
use serde_json::Value;

use super::input::InputLine;
use super::line::{BatchRequestInput, BatchRequestOutput, BatchUrl};
use crate::error::{EngineDeadError, GenerateError, ValidationError};
use crate::openai::{
    ChatCompletionRequest, CompletionRequest, OpenAIServing, RequestContext, ServingError,
};
use crate::random::mix;

/// First and longest pause where the core's queue is full.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Serves one line. What is wrong with it becomes its result; a core that is gone does not.
///
/// A request without a seed gets one from `seed` and its line number, so that another run of the
/// batch, or a resumed one, gives the same answers.
pub(super) async fn serve_line(
    serving: Arc<OpenAIServing>,
    line: InputLine,
    seed: u64,
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
        default_seed: Some(mix(seed, number)),
    };
    let mut pause = FIRST_PAUSE;
    let served = loop {
        match serve(&serving, request.url, request.body.clone(), &context).await {
            Err(error) if queue_is_full(&error) => tokio::time::sleep(pause).await,
            served => break served,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    let (status_code, body) = match served {
        Ok(body) => (200, body),
        Err(error) => {
            if let Some(dead) = core_is_gone(&error) {
                return Err(dead);
            }
            let response = error.to_response();
            (response.error.code, to_json(&response))
        }
    };
    if has_aborted_choice(&body) {
        return Err(EngineDeadError {
            reason: "it is shutting down".to_owned(),
            exit_status: None,
        });
    }
    Ok(BatchRequestOutput::response(
        number,
        request.custom_id,
        context.request_id,
        status_code,
        body,
    ))
}

async fn serve(
    serving: &OpenAIServing,
    url: BatchUrl,
    body: Value,
    context: &RequestContext,
) -> Result<Value, ServingError> {
    match url {
        BatchUrl::Completions => {
            let request = CompletionRequest::from_json(body)?;
            refuse_stream(request.common.stream)?;
            Ok(to_json(
                &serving.create_completion(&request, context).await?,
            ))
        }
        BatchUrl::ChatCompletions => {
            let request = ChatCompletionRequest::from_json(body)?;
            refuse_stream(request.common.stream)?;
            Ok(to_json(
                &serving.create_chat_completion(&request, context).await?,
            ))
        }
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

fn core_is_gone(error: &ServingError) -> Option<EngineDeadError> {
    match error {
        ServingError::Generate(GenerateError::EngineDead(dead)) => Some(dead.clone()),
        ServingError::Generate(GenerateError::Request(error))
            if error.code == RequestErrorCode::ShuttingDown =>
        {
            Some(EngineDeadError {
                reason: error.message.clone(),
                exit_status: None,
            })
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
