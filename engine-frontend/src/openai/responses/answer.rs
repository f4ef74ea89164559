//! The answer of `/v1/responses`, put together piece by piece with an event for each step. A whole
//! answer is what the last event carries.

use std::collections::VecDeque;
use std::sync::Arc;

use protocol::FinishReason;
use serde_json::{Map, Value, json};

use super::event::{Delta, EventData, ResponseStreamEvent};
use super::namespaces::Namespaces;
use super::response::{
    IN_PROGRESS, ItemKind, ItemLogProbs, ResponseOutputItem, ResponseUsage, ResponsesResponse, Told,
};
use crate::openai::ErrorInfo;
use crate::openai::logprobs::ChatCompletionLogProbs;
use crate::openai::streaming::Piece;
use crate::openai::tool_call::call_id;
use crate::openai::tool_format::Openings;
use crate::openai::tool_parser::{AnswerPart, ToolParser};
use crate::outputs::{CompletionOutput, RequestOutput};

/// The events that tell of more of an item's text, and of all of it.
fn text_events(kind: &ItemKind) -> (&'static str, &'static str) {
    match kind {
        ItemKind::Reasoning => (
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
        ),
        ItemKind::Message => ("response.output_text.delta", "response.output_text.done"),
        ItemKind::FunctionCall { .. } => (
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
        ),
    }
}

/// An answer in the making.
#[derive(Debug)]
pub(super) struct Answer {
    told: Arc<Told>,
    id: String,
    parser: Option<ToolParser>,
    include_reasoning: bool,
    namespaces: Namespaces,
    output: Vec<Arc<ResponseOutputItem>>,
    open: Option<ResponseOutputItem>,
    /// Logprobs of tokens whose text has not come yet.
    logprobs: ItemLogProbs,
    num_events: u64,
    usage: ResponseUsage,
    created: bool,
    /// Fields of the finished response that say what is unusual of its structured output.
    unusual: Vec<&'static str>,
}

impl Answer {
    /// An answer of which nothing has come. `id` is the request's, without prefix; `told` what the
    /// response says of the request.
    pub(super) fn new(
        id: String,
        told: Told,
        openings: Option<Openings>,
        include_reasoning: bool,
        namespaces: Namespaces,
    ) -> Self {
        Self {
            parser: openings.map(ToolParser::new),
            told: Arc::new(told),
            id,
            include_reasoning,
            namespaces,
            output: Vec::new(),
            open: None,
            logprobs: Vec::new(),
            num_events: 0,
            usage: ResponseUsage::default(),
            created: false,
            unusual: Vec::new(),
        }
    }

    /// Takes what is new of the answer; `logprobs` are those of its tokens.
    pub(super) fn push(
        &mut self,
        completion: CompletionOutput,
        logprobs: Option<ChatCompletionLogProbs>,
        events: &mut VecDeque<Piece>,
    ) {
        self.begin(events);
        self.usage.output += completion.token_ids.len() as u64;
        self.usage.reasoning = u64::from(completion.num_reasoning_tokens);
        self.logprobs.extend(logprobs.map(Arc::new));
        let finished = completion.finish_reason.is_some();
        let parts = match &mut self.parser {
            Some(parser) => parser.push(&completion.text, finished),
            None if completion.text.is_empty() => Vec::new(),
            None => vec![AnswerPart::Content(completion.text)],
        };
        if let Some(text) = completion.reasoning {
            if self.include_reasoning {
                self.text(ItemKind::Reasoning, &text, events);
            }
            if parts.is_empty() {
                self.logprobs.clear();
            }
        }
        for part in parts {
            match part {
                AnswerPart::Content(text) => self.text(ItemKind::Message, &text, events),
                AnswerPart::Call { name, id } => {
                    self.close("completed", events);
                    // The tokens that open a call are in no message, and so are their logprobs.
                    self.logprobs.clear();
                    self.open_call(&name, call_id("call", id), events);
                }
                AnswerPart::Arguments(text) => self.more(&text, events),
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

    /// Counts the tokens of the prompt, and those of them that came from the prefix cache where that is told.
    pub(super) fn set_input(&mut self, output: &RequestOutput, tells_cached_tokens: bool) {
        self.usage.input = output.prompt_token_ids.len() as u64;
        self.usage.cached = match tells_cached_tokens {
            true => u64::from(output.num_cached_tokens),
            false => 0,
        };
    }

    /// The response as it is now.
    pub(super) fn response(&self, status: &'static str) -> ResponsesResponse {
        ResponsesResponse {
            told: Arc::clone(&self.told),
            status,
            output: self.output.clone(),
            error: None,
            usage: self.usage,
            unusual: self.unusual.clone(),
        }
    }

    /// The response when the answer is complete.
    pub(super) fn last_response(&self, reason: FinishReason) -> ResponsesResponse {
        let mut response = self.response(status(reason));
        if response.status == "failed" {
            let message = format!("the answer ended early: {}", reason.as_str());
            response.error = Some(message);
        }
        response
    }

    /// The event for an error in the middle of the answer: the error of other routes, its code as a text and
    /// its kind left out.
    pub(super) fn error(&mut self, error: &ErrorInfo) -> Piece {
        let mut fields = match json!(error) {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        fields.remove("type");
        fields.insert("code".to_owned(), error.code.to_string().into());
        self.event("error", EventData::Error(fields))
    }

    fn event(&mut self, name: &'static str, data: EventData) -> Piece {
        let sequence_number = self.num_events;
        self.num_events += 1;
        let event = ResponseStreamEvent {
            name,
            sequence_number,
            data,
        };
        Piece::named(name, event)
    }

    fn begin(&mut self, events: &mut VecDeque<Piece>) {
        if std::mem::replace(&mut self.created, true) {
            return;
        }
        for name in ["response.created", "response.in_progress"] {
            let response = self.response(IN_PROGRESS);
            events.push_back(self.event(name, EventData::Response(response)));
        }
    }

    /// Begins an item, unless one of this kind is open.
    fn open(&mut self, kind: ItemKind, events: &mut VecDeque<Piece>) {
        if self.open.as_ref().is_some_and(|open| open.kind == kind) {
            return;
        }
        self.close("completed", events);
        let prefix = match kind {
            ItemKind::Reasoning => "rs",
            _ => "msg",
        };
        let item = self.add(prefix, kind, events);
        let part = EventData::Part(item, self.output.len());
        events.push_back(self.event("response.content_part.added", part));
    }

    fn open_call(&mut self, name: &str, call_id: String, events: &mut VecDeque<Piece>) {
        let names = self.namespaces.call_fields(name);
        self.add("fc", ItemKind::FunctionCall { call_id, names }, events);
    }

    /// Adds an item to the output; returns it as it begins.
    fn add(
        &mut self,
        prefix: &str,
        kind: ItemKind,
        events: &mut VecDeque<Piece>,
    ) -> Arc<ResponseOutputItem> {
        let output_index = self.output.len();
        let item = ResponseOutputItem {
            id: format!("{prefix}_{}_{output_index}", self.id),
            kind,
            text: String::new(),
            logprobs: Vec::new(),
            status: IN_PROGRESS,
        };
        let begun = Arc::new(item.clone());
        self.open = Some(item);
        let added = EventData::Item(Arc::clone(&begun), output_index);
        events.push_back(self.event("response.output_item.added", added));
        begun
    }

    /// More text of an item of this kind, which begins if none is open.
    fn text(&mut self, kind: ItemKind, text: &str, events: &mut VecDeque<Piece>) {
        self.open(kind, events);
        self.more(text, events);
    }

    /// More text of the open item.
    fn more(&mut self, text: &str, events: &mut VecDeque<Piece>) {
        let output_index = self.output.len();
        let logprobs = std::mem::take(&mut self.logprobs);
        let Some(open) = &mut self.open else { return };
        open.text.push_str(text);
        let is_message = open.kind == ItemKind::Message;
        if is_message {
            open.logprobs.extend_from_slice(&logprobs);
        }
        let delta = Delta {
            item_id: open.id.clone(),
            output_index,
            content_index: open.kind.content_index(),
            text: text.to_owned(),
            logprobs: is_message.then_some(logprobs),
        };
        let (name, _) = text_events(&open.kind);
        events.push_back(self.event(name, EventData::Delta(delta)));
    }

    /// Ends the open item.
    fn close(&mut self, status: &'static str, events: &mut VecDeque<Piece>) {
        let Some(mut item) = self.open.take() else {
            return;
        };
        item.status = status;
        let item = Arc::new(item);
        let output_index = self.output.len();
        let (_, name) = text_events(&item.kind);
        let done = EventData::Done(Arc::clone(&item), output_index);
        events.push_back(self.event(name, done));
        if item.kind.content_index().is_some() {
            let part = EventData::Part(Arc::clone(&item), output_index);
            events.push_back(self.event("response.content_part.done", part));
        }
        let done = EventData::Item(Arc::clone(&item), output_index);
        events.push_back(self.event("response.output_item.done", done));
        self.output.push(item);
    }

    fn finish(
        &mut self,
        reason: FinishReason,
        complete: Option<bool>,
        events: &mut VecDeque<Piece>,
    ) {
        if let Some(open) = &mut self.open
            && open.kind == ItemKind::Message
        {
            // Of tokens without a text, such as the one that ends the answer.
            open.logprobs.append(&mut self.logprobs);
        }
        let cut = reason != FinishReason::Stop || complete == Some(false);
        self.close(if cut { "incomplete" } else { "completed" }, events);
        let name = match status(reason) {
            "completed" => "response.completed",
            "incomplete" => "response.incomplete",
            _ => "response.failed",
        };
        let response = self.last_response(reason);
        events.push_back(self.event(name, EventData::Response(response)));
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
    use crate::logprobs::Logprob;
    use crate::openai::ErrorResponse;

    #[test]
    fn an_error_in_the_middle_has_the_data_that_other_routes_have() {
        let namespaces = Namespaces::default();
        let mut answer = Answer::new("1".to_owned(), Told::default(), None, true, namespaces);
        let mut error = ErrorResponse::new(400, "too much", Some("structured_outputs".to_owned()));
        let told = |piece: Piece| piece.to_value();
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

    fn completion(text: &str, ids: &[u32], end: Option<FinishReason>) -> CompletionOutput {
        CompletionOutput {
            text: text.to_owned(),
            token_ids: ids.to_vec(),
            finish_reason: end,
            ..CompletionOutput::default()
        }
    }

    fn logprobs(ids: &[u32]) -> ChatCompletionLogProbs {
        let position = |id: &u32| {
            vec![Logprob {
                token_id: *id,
                logprob: -0.5,
                rank: None,
                bytes: [*id as u8].into(),
            }]
        };
        ChatCompletionLogProbs::new(ids.iter().map(position).collect(), 1, false)
    }

    #[test]
    fn pieces_and_the_end_have_the_logprobs_of_all_tokens() {
        let mut answer = Answer::new(
            "1".to_owned(),
            Told::default(),
            None,
            true,
            Namespaces::default(),
        );
        let mut events = VecDeque::new();
        // The first token is a part of a character, the last has no text.
        let end = Some(FinishReason::Stop);
        for (text, ids, end) in [
            ("", &[97][..], None),
            ("x", &[98, 99], None),
            ("y", &[100], None),
            ("", &[101], end),
        ] {
            answer.push(completion(text, ids, end), Some(logprobs(ids)), &mut events);
        }
        let events: Vec<Value> = events.iter().map(Piece::to_value).collect();
        let tokens = |list: &Value| -> String {
            let list = list.as_array().unwrap().iter();
            list.map(|entry| entry["token"].as_str().unwrap()).collect()
        };
        let of_kind = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
        let deltas = of_kind("response.output_text.delta").map(|event| tokens(&event["logprobs"]));
        assert_eq!(deltas.collect::<Vec<_>>(), ["abc", "d"]);
        for (kind, place) in [
            ("response.output_text.done", "/logprobs"),
            ("response.content_part.done", "/part/logprobs"),
            ("response.output_item.done", "/item/content/0/logprobs"),
            (
                "response.completed",
                "/response/output/0/content/0/logprobs",
            ),
        ] {
            let lists: Vec<_> = of_kind(kind)
                .map(|event| tokens(event.pointer(place).unwrap()))
                .collect();
            assert_eq!(lists, ["abcde"], "{kind}");
        }
        let whole = serde_json::to_value(answer.last_response(FinishReason::Stop)).unwrap();
        assert_eq!(whole, events.last().unwrap()["response"]);
    }

    #[test]
    fn events_share_what_may_be_large() {
        let mut told = Told::default();
        told.tell("tools", &json!([1, 2]));
        let mut answer = Answer::new("1".to_owned(), told, None, true, Namespaces::default());
        let mut events = VecDeque::new();
        let end = Some(FinishReason::Length);
        answer.push(
            completion("ab", &[97, 98], end),
            Some(logprobs(&[97, 98])),
            &mut events,
        );
        // The three events of the whole response, and the answer's own.
        assert_eq!(Arc::strong_count(&answer.told), 4);
        // The item's in three events, in the last response and in the answer.
        let [item] = &answer.output[..] else {
            panic!("one item")
        };
        assert_eq!(Arc::strong_count(item), 5);
        let [piece] = &item.logprobs[..] else {
            panic!("one piece")
        };
        assert_eq!(Arc::strong_count(piece), 2);
    }
}
