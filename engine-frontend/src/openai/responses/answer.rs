//! The answer of `/v1/responses`, put together piece by piece with an event for each step. A whole
//! answer is what the last event carries.

use protocol::FinishReason;
use serde_json::{Map, Value, json};

use super::namespaces::Namespaces;
use crate::openai::ErrorInfo;
use crate::openai::streaming::Piece;
use crate::openai::tool_call::call_id;
use crate::openai::tool_format::Openings;
use crate::openai::tool_parser::{AnswerPart, ToolParser};
use crate::outputs::CompletionOutput;

/// What is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Message,
    Call,
}

impl Kind {
    /// The field that holds an item's text, and the events that tell of it.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Reasoning => (
                "text",
                "response.reasoning_text.delta",
                "response.reasoning_text.done",
            ),
            Self::Message => (
                "text",
                "response.output_text.delta",
                "response.output_text.done",
            ),
            Self::Call => (
                "arguments",
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
            ),
        }
    }
}

/// The item that is being written.
#[derive(Debug)]
struct Open {
    kind: Kind,
    item: Map<String, Value>,
    text: String,
    logprobs: Vec<Value>,
}

/// Tokens of an answer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
    pub(super) reasoning: u64,
}

/// An answer in the making.
#[derive(Debug)]
pub(super) struct Answer {
    /// The response without its output, status and usage.
    head: Map<String, Value>,
    id: String,
    parser: Option<ToolParser>,
    include_reasoning: bool,
    namespaces: Namespaces,
    output: Vec<Value>,
    open: Option<Open>,
    num_events: u64,
    usage: Usage,
    created: bool,
    /// Fields of the finished response that say what is unusual of its structured output.
    unusual: Vec<&'static str>,
}

impl Answer {
    /// An answer of which nothing has come. `id` is the request's, without prefix; `head` what the
    /// response says of the request.
    pub(super) fn new(
        id: String,
        head: Map<String, Value>,
        openings: Option<Openings>,
        include_reasoning: bool,
        namespaces: Namespaces,
    ) -> Self {
        Self {
            parser: openings.map(ToolParser::new),
            head,
            id,
            include_reasoning,
            namespaces,
            output: Vec::new(),
            open: None,
            num_events: 0,
            usage: Usage::default(),
            created: false,
            unusual: Vec::new(),
        }
    }

    /// Takes what is new of the answer; `logprobs` are those of its tokens.
    pub(super) fn push(
        &mut self,
        completion: CompletionOutput,
        logprobs: Option<Value>,
        events: &mut Vec<Piece>,
    ) {
        self.begin(events);
        self.usage.output += completion.token_ids.len() as u64;
        self.usage.reasoning = u64::from(completion.num_reasoning_tokens);
        if let Some(text) = completion.reasoning.filter(|_| self.include_reasoning) {
            self.text(Kind::Reasoning, &text, events);
        }
        let finished = completion.finish_reason.is_some();
        let parts = match &mut self.parser {
            Some(parser) => parser.push(&completion.text, finished),
            None if completion.text.is_empty() => Vec::new(),
            None => vec![AnswerPart::Content(completion.text)],
        };
        let mut logprobs = logprobs.and_then(|logprobs| match logprobs {
            Value::Array(logprobs) => Some(logprobs),
            _ => None,
        });
        for part in parts {
            match part {
                AnswerPart::Content(text) => {
                    self.open(Kind::Message, events);
                    if let (Some(open), Some(logprobs)) = (&mut self.open, logprobs.take()) {
                        open.logprobs.extend(logprobs);
                    }
                    self.text(Kind::Message, &text, events);
                }
                AnswerPart::Call { name, id } => {
                    self.close("completed", events);
                    self.open_call(&name, call_id("call", id), events);
                }
                AnswerPart::Arguments(text) => self.text(Kind::Call, &text, events),
            }
        }
        if let Some(reason) = completion.finish_reason {
            self.unusual = [
                (
                    "structured_output_completed_by_budget",
                    completion.structured_output_completed_by_budget,
                ),
                (
                    "structured_output_repetition_closed",
                    completion.structured_output_repetition_closed,
                ),
            ]
            .into_iter()
            .filter_map(|(field, is_so)| is_so.then_some(field))
            .collect();
            self.finish(reason, completion.structured_output_complete, events);
        }
    }

    /// Tokens of the prompt, and of these from the prefix cache.
    pub(super) fn set_input(&mut self, tokens: u64, cached: u64) {
        self.usage.input = tokens;
        self.usage.cached = cached;
    }

    /// The response as it is now.
    pub(super) fn response(&self, status: &str) -> Value {
        let mut response = self.head.clone();
        response.insert("status".to_owned(), status.into());
        response.insert("output".to_owned(), self.output.clone().into());
        response.insert("error".to_owned(), Value::Null);
        let incomplete = match status {
            "incomplete" => json!({"reason": "max_output_tokens"}),
            _ => Value::Null,
        };
        response.insert("incomplete_details".to_owned(), incomplete);
        let usage = self.usage;
        let usage = json!({
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        });
        let usage = if status == "in_progress" {
            Value::Null
        } else {
            usage
        };
        response.insert("usage".to_owned(), usage);
        for field in &self.unusual {
            response.insert((*field).to_owned(), true.into());
        }
        response.into()
    }

    /// The event for an error in the middle of the answer: the error of other routes, its code as a text and
    /// its kind left out.
    pub(super) fn error(&mut self, error: &ErrorInfo) -> Piece {
        let mut fields = json!(error);
        if let Some(fields) = fields.as_object_mut() {
            fields.remove("type");
            fields.insert("code".to_owned(), error.code.to_string().into());
        }
        self.event("error", fields)
    }

    fn event(&mut self, name: &'static str, fields: Value) -> Piece {
        let mut event = Map::new();
        event.insert("type".to_owned(), name.into());
        event.insert("sequence_number".to_owned(), self.num_events.into());
        self.num_events += 1;
        if let Value::Object(fields) = fields {
            event.extend(fields);
        }
        Piece {
            event: Some(name),
            data: Value::Object(event).to_string(),
        }
    }

    fn begin(&mut self, events: &mut Vec<Piece>) {
        if std::mem::replace(&mut self.created, true) {
            return;
        }
        for name in ["response.created", "response.in_progress"] {
            let response = self.response("in_progress");
            events.push(self.event(name, json!({"response": response})));
        }
    }

    /// Where the open item is.
    fn place(&self) -> Map<String, Value> {
        let mut place = Map::new();
        let Some(open) = &self.open else { return place };
        let id = open.item.get("id").cloned().unwrap_or_default();
        place.insert("item_id".to_owned(), id);
        place.insert("output_index".to_owned(), self.output.len().into());
        if open.kind != Kind::Call {
            place.insert("content_index".to_owned(), 0.into());
        }
        place
    }

    /// Begins an item, unless one of this kind is open.
    fn open(&mut self, kind: Kind, events: &mut Vec<Piece>) {
        if self.open.as_ref().is_some_and(|open| open.kind == kind) {
            return;
        }
        self.close("completed", events);
        let number = self.output.len();
        let item = match kind {
            Kind::Reasoning => json!({
                "id": format!("rs_{}_{number}", self.id), "type": "reasoning", "summary": [],
                "content": [], "status": "in_progress",
            }),
            _ => json!({
                "id": format!("msg_{}_{number}", self.id), "type": "message", "role": "assistant",
                "content": [], "status": "in_progress",
            }),
        };
        self.add(kind, item, events);
        let part = self.part();
        let mut fields = self.place();
        fields.insert("part".to_owned(), part);
        events.push(self.event("response.content_part.added", fields.into()));
    }

    fn open_call(&mut self, name: &str, id: String, events: &mut Vec<Piece>) {
        let mut item = json!({
            "id": format!("fc_{}_{}", self.id, self.output.len()), "type": "function_call",
            "call_id": id, "arguments": "", "status": "in_progress",
        });
        if let Value::Object(item) = &mut item {
            item.extend(self.namespaces.call_fields(name));
        }
        self.add(Kind::Call, item, events);
    }

    fn add(&mut self, kind: Kind, item: Value, events: &mut Vec<Piece>) {
        let fields = json!({"output_index": self.output.len(), "item": item});
        self.open = Some(Open {
            kind,
            item: item.as_object().cloned().unwrap_or_default(),
            text: String::new(),
            logprobs: Vec::new(),
        });
        events.push(self.event("response.output_item.added", fields));
    }

    /// The content of the open item.
    fn part(&self) -> Value {
        match &self.open {
            Some(open) if open.kind == Kind::Reasoning => {
                json!({"type": "reasoning_text", "text": open.text})
            }
            Some(open) => json!({
                "type": "output_text", "text": open.text, "annotations": [],
                "logprobs": open.logprobs,
            }),
            None => Value::Null,
        }
    }

    /// More text of an item of this kind.
    fn text(&mut self, kind: Kind, text: &str, events: &mut Vec<Piece>) {
        if kind != Kind::Call {
            self.open(kind, events);
        }
        let Some(open) = &mut self.open else { return };
        open.text.push_str(text);
        let mut fields = self.place();
        fields.insert("delta".to_owned(), text.into());
        if kind == Kind::Message {
            fields.insert("logprobs".to_owned(), json!([]));
        }
        let (_, delta, _) = kind.names();
        events.push(self.event(delta, fields.into()));
    }

    /// Ends the open item.
    fn close(&mut self, status: &str, events: &mut Vec<Piece>) {
        let (place, part) = (self.place(), self.part());
        let Some(mut open) = self.open.take() else {
            return;
        };
        let (name, _, done) = open.kind.names();
        let mut fields = place.clone();
        fields.insert(name.to_owned(), open.text.as_str().into());
        match open.kind {
            Kind::Message => {
                fields.insert("logprobs".to_owned(), open.logprobs.clone().into());
            }
            Kind::Call => {
                let function = open.item.get("name").cloned().unwrap_or_default();
                fields.insert("name".to_owned(), function);
            }
            Kind::Reasoning => {}
        }
        events.push(self.event(done, fields.into()));
        if open.kind == Kind::Call {
            open.item.insert(name.to_owned(), open.text.into());
        } else {
            let mut fields = place;
            fields.insert("part".to_owned(), part.clone());
            events.push(self.event("response.content_part.done", fields.into()));
            open.item.insert("content".to_owned(), json!([part]));
        }
        open.item.insert("status".to_owned(), status.into());
        let item = Value::Object(open.item);
        let fields = json!({"output_index": self.output.len(), "item": item});
        events.push(self.event("response.output_item.done", fields));
        self.output.push(item);
    }

    fn finish(&mut self, reason: FinishReason, complete: Option<bool>, events: &mut Vec<Piece>) {
        let cut = reason != FinishReason::Stop || complete == Some(false);
        self.close(if cut { "incomplete" } else { "completed" }, events);
        let status = status(reason);
        let name = match status {
            "completed" => "response.completed",
            "incomplete" => "response.incomplete",
            _ => "response.failed",
        };
        let response = self.last_response(reason);
        events.push(self.event(name, json!({"response": response})));
    }

    /// The response when the answer is complete.
    pub(super) fn last_response(&self, reason: FinishReason) -> Value {
        let mut response = self.response(status(reason));
        if status(reason) == "failed" {
            let message = format!("the answer ended early: {}", reason.as_str());
            let error = json!({"code": "server_error", "message": message});
            if let Some(response) = response.as_object_mut() {
                response.insert("error".to_owned(), error);
            }
        }
        response
    }
}

/// A response's status. Repetition ends an answer as a stop string does.
fn status(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::Repetition => "completed",
        FinishReason::Length => "incomplete",
        FinishReason::Abort | FinishReason::Error => "failed",
    }
}

#[cfg(test)]
mod tests {
    use protocol::GrammarLimit;

    use super::*;
    use crate::error::ErrorDetails;
    use crate::openai::ErrorResponse;

    #[test]
    fn an_error_in_the_middle_has_the_data_that_other_routes_have() {
        let namespaces = Namespaces::default();
        let mut answer = Answer::new("1".to_owned(), Map::new(), None, true, namespaces);
        let mut error = ErrorResponse::new(400, "too much", Some("structured_outputs".to_owned()));
        let told = |piece: Piece| -> Value { serde_json::from_str(&piece.data).unwrap() };
        assert_eq!(
            told(answer.error(&error.error)),
            json!({
                "type": "error", "sequence_number": 0, "code": "400", "message": "too much",
                "param": "structured_outputs",
            })
        );
        let limit = GrammarLimit {
            name: "max_mask_steps".to_owned(),
            value: 7,
        };
        *error.error.details = ErrorDetails {
            location: None,
            limit: Some(limit),
        };
        assert_eq!(
            told(answer.error(&error.error))["limit"],
            json!({"name": "max_mask_steps", "value": 7})
        );
    }
}
