//! An answer, put together output by output, with an event for each step where it is streamed.

#[cfg(test)]
mod tests;

use protocol::{FinishReason, RequestError, RequestErrorCode, StopReason};
use serde_json::value::{RawValue, to_raw_value};

use super::protocol::{
    AnthropicContentBlock, AnthropicDelta, AnthropicEnd, AnthropicMessagesResponse,
    AnthropicStreamEvent,
};
use crate::error::GenerateError;
use crate::openai::{AnswerPart, Openings, Piece, ServingError, ToolParser, call_id};
use crate::outputs::{CompletionOutput, RequestOutput};

/// What a content block is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
    ToolUse { id: String, name: String },
}

impl Kind {
    /// A block of this kind with this text; `None` of a call whose input was cut off: nobody is to run it.
    fn block(self, text: String, signature: String) -> Option<AnthropicContentBlock> {
        Some(match self {
            Self::Thinking => AnthropicContentBlock::Thinking {
                thinking: text,
                signature,
            },
            Self::Text => AnthropicContentBlock::Text { text },
            Self::ToolUse { id, name } => AnthropicContentBlock::ToolUse {
                id,
                name,
                input: RawValue::from_string(text).ok()?,
            },
        })
    }

    fn delta<'a>(&self, text: &'a str) -> AnthropicDelta<'a> {
        match self {
            Self::Thinking => AnthropicDelta::ThinkingDelta { thinking: text },
            Self::Text => AnthropicDelta::TextDelta { text },
            Self::ToolUse { .. } => AnthropicDelta::InputJsonDelta { partial_json: text },
        }
    }
}

/// An answer in the making.
#[derive(Debug)]
pub(super) struct Answer {
    response: AnthropicMessagesResponse,
    parser: Option<ToolParser>,
    omits_thinking: bool,
    tells_cached_tokens: bool,
    /// The block that is being written, and its text so far.
    open: Option<(Kind, String)>,
    has_calls: bool,
    has_begun: bool,
    /// Why the answer ended early.
    failed: Option<FinishReason>,
    /// `None` where nobody wants them.
    events: Option<Vec<Piece>>,
}

impl Answer {
    /// An answer of which nothing has come. `response` has what is known before; `openings` tell where calls begin.
    pub(super) fn new(
        response: AnthropicMessagesResponse,
        openings: Option<Openings>,
        omits_thinking: bool,
    ) -> Self {
        Self {
            response,
            parser: openings.map(ToolParser::new),
            omits_thinking,
            tells_cached_tokens: false,
            open: None,
            has_calls: false,
            has_begun: false,
            failed: None,
            events: None,
        }
    }

    /// The same with the tokens from the prefix cache in its usage, if they are `told`.
    pub(super) fn with_cached_tokens(mut self, told: bool) -> Self {
        self.tells_cached_tokens = told;
        self
    }

    /// The same with events.
    pub(super) fn in_events(mut self) -> Self {
        self.events = Some(Vec::new());
        self
    }

    /// Takes what is new.
    pub(super) fn push(&mut self, output: RequestOutput) {
        let usage = &mut self.response.usage;
        let prompt = output.prompt_token_ids.len() as u64;
        if self.tells_cached_tokens {
            let cached = u64::from(output.num_cached_tokens).min(prompt);
            usage.cache_read_input_tokens = usage.cache_read_input_tokens.max(cached);
        }
        usage.input_tokens = prompt - usage.cache_read_input_tokens.min(prompt);
        self.begin();
        for completion in output.outputs {
            self.push_completion(completion);
        }
    }

    /// The events so far that nobody has taken.
    pub(super) fn take_events(&mut self) -> Vec<Piece> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Why the answer has no end that this API could tell: the engine gave it up.
    pub(super) fn failure(&self) -> Option<ServingError> {
        let message = format!("the answer ended early: {}", self.failed?.as_str());
        let error = RequestError::new(RequestErrorCode::InternalError, message);
        Some(GenerateError::Request(error).into())
    }

    /// The whole answer.
    ///
    /// # Errors
    /// The engine gave it up.
    pub(super) fn into_response(self) -> Result<AnthropicMessagesResponse, ServingError> {
        match self.failure() {
            Some(error) => Err(error),
            None => Ok(self.response),
        }
    }

    fn push_completion(&mut self, completion: CompletionOutput) {
        let usage = &mut self.response.usage;
        usage.output_tokens += completion.token_ids.len() as u64;
        usage.output_tokens_details.thinking_tokens = completion.num_reasoning_tokens.into();
        if let Some(text) = &completion.reasoning {
            self.write(Kind::Thinking, text);
        }
        let finished = completion.finished();
        let parts = match &mut self.parser {
            Some(parser) => parser.push(&completion.text, finished),
            None => vec![AnswerPart::Content(completion.text.clone())],
        };
        for part in parts {
            match part {
                AnswerPart::Content(text) => self.write(Kind::Text, &text),
                AnswerPart::Call { name, id } => self.begin_call(name, id),
                AnswerPart::Arguments(text) => self.write_on(&text),
            }
        }
        if let Some(reason) = completion.finish_reason {
            self.finish(reason, &completion);
        }
    }

    fn send(events: &mut Option<Vec<Piece>>, event: &AnthropicStreamEvent<'_>) {
        if let Some(events) = events {
            // As text: it borrows from the answer.
            events.push(Piece::named(event.name(), to_raw_value(event).ok()));
        }
    }

    fn begin(&mut self) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let message = &self.response;
        Self::send(
            &mut self.events,
            &AnthropicStreamEvent::MessageStart { message },
        );
        Self::send(&mut self.events, &AnthropicStreamEvent::Ping);
    }

    /// More text of a block of this kind, which begins if none is open.
    fn write(&mut self, kind: Kind, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.open.as_ref().is_none_or(|(open, _)| *open != kind) {
            self.open(kind);
        }
        self.write_on(text);
    }

    fn begin_call(&mut self, name: String, id: Option<String>) {
        self.has_calls = true;
        self.open(Kind::ToolUse {
            id: call_id("toolu", id),
            name,
        });
    }

    fn open(&mut self, kind: Kind) {
        self.close();
        let text = match kind {
            Kind::ToolUse { .. } => "{}".to_owned(),
            Kind::Thinking | Kind::Text => String::new(),
        };
        if self.events.is_some()
            && let Some(content_block) = &kind.clone().block(text, String::new())
        {
            let event = AnthropicStreamEvent::ContentBlockStart {
                index: self.response.content.len(),
                content_block,
            };
            Self::send(&mut self.events, &event);
        }
        self.open = Some((kind, String::new()));
    }

    /// More text of the open block.
    fn write_on(&mut self, text: &str) {
        let Some((kind, whole)) = &mut self.open else {
            return;
        };
        whole.push_str(text);
        let is_told = !self.omits_thinking || *kind != Kind::Thinking;
        if is_told && !text.is_empty() {
            let event = AnthropicStreamEvent::ContentBlockDelta {
                index: self.response.content.len(),
                delta: kind.delta(text),
            };
            Self::send(&mut self.events, &event);
        }
    }

    /// Ends the open block.
    fn close(&mut self) {
        let Some((kind, mut text)) = self.open.take() else {
            return;
        };
        let index = self.response.content.len();
        let mut signature = String::new();
        if kind == Kind::Thinking {
            signature = blake3::hash(text.as_bytes()).to_hex().to_string();
            let event = AnthropicStreamEvent::ContentBlockDelta {
                index,
                delta: AnthropicDelta::SignatureDelta {
                    signature: &signature,
                },
            };
            Self::send(&mut self.events, &event);
            if self.omits_thinking {
                text = String::new();
            }
        }
        Self::send(
            &mut self.events,
            &AnthropicStreamEvent::ContentBlockStop { index },
        );
        self.response.content.extend(kind.block(text, signature));
    }

    fn finish(&mut self, reason: FinishReason, completion: &CompletionOutput) {
        self.close();
        let is_whole = completion.structured_output_complete != Some(false);
        // Its input is valid, and not what the model would have written: nobody is to run it.
        let is_call_cut = self.has_calls && completion.structured_output_completed_by_budget;
        let content = &mut self.response.content;
        if is_call_cut {
            content.pop_if(|last| matches!(last, AnthropicContentBlock::ToolUse { .. }));
        }
        let (stop_reason, stop_sequence) = match (reason, &completion.stop_reason) {
            (FinishReason::Abort | FinishReason::Error, _) => {
                self.failed = Some(reason);
                return;
            }
            (FinishReason::Length, _) => ("max_tokens", None),
            (FinishReason::Stop, Some(StopReason::String(stop))) => {
                ("stop_sequence", Some(stop.clone()))
            }
            _ if is_call_cut => ("max_tokens", None),
            _ if self.has_calls && is_whole => ("tool_use", None),
            (FinishReason::Stop | FinishReason::Repetition, _) => ("end_turn", None),
        };
        self.response.end = AnthropicEnd {
            stop_reason: Some(stop_reason),
            stop_sequence,
            structured_output_complete: (!is_whole).then_some(false),
            structured_output_completed_by_budget: completion.structured_output_completed_by_budget,
            structured_output_repetition_closed: completion.structured_output_repetition_closed,
        };
        let event = AnthropicStreamEvent::MessageDelta {
            delta: &self.response.end,
            usage: self.response.usage,
        };
        Self::send(&mut self.events, &event);
        Self::send(&mut self.events, &AnthropicStreamEvent::MessageStop);
    }
}
