//! The pieces of a chat completion.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::{Head, Pieces, to_json};
use crate::openai::chat::ChatCompletionRequest;
use crate::openai::chunk::{
    ChatCompletionResponseStreamChoice, ChatCompletionStreamResponse, DeltaMessage,
};
use crate::openai::request::UsageInfo;
use crate::openai::serving::{chat_logprobs, finish_reason as finish_reason_of, stop_reason};
use crate::openai::tool_parser::ToolParser;
use crate::openai::tools::ToolChoice;
use crate::outputs::{CompletionOutput, RequestOutput};

/// The pieces of a chat completion.
#[derive(Debug)]
pub(super) struct ChatPieces {
    request: ChatCompletionRequest,
    head: Head,
    /// Whether the pieces with the roles have gone out.
    begun: bool,
    /// By answer, where these are calls.
    tool_parsers: HashMap<u32, ToolParser>,
}

impl ChatPieces {
    pub(super) fn new(head: Head, request: ChatCompletionRequest) -> Self {
        Self {
            request,
            head,
            begun: false,
            tool_parsers: HashMap::new(),
        }
    }

    fn piece(
        &self,
        choices: Vec<ChatCompletionResponseStreamChoice>,
        prompt_token_ids: Option<Vec<u32>>,
        usage: Option<UsageInfo>,
    ) -> String {
        to_json(&ChatCompletionStreamResponse {
            id: self.head.id.clone(),
            object: "chat.completion.chunk".to_owned(),
            created: self.head.created,
            model: self.head.model.clone(),
            choices,
            prompt_token_ids,
            usage,
        })
    }

    /// The first piece of each answer: its role.
    fn begin(&mut self, output: &RequestOutput, pieces: &mut VecDeque<String>) {
        for index in 0..self.head.n {
            let choice = ChatCompletionResponseStreamChoice {
                index,
                delta: DeltaMessage {
                    role: Some("assistant".to_owned()),
                    content: Some(String::new()),
                    ..DeltaMessage::default()
                },
                logprobs: None,
                finish_reason: None,
                stop_reason: None,
                structured_output_complete: None,
                token_ids: None,
            };
            let prompt_token_ids = (index == 0 && self.request.common.return_token_ids)
                .then(|| output.prompt_token_ids.to_vec());
            let usage = self
                .head
                .continuous_usage
                .then(|| UsageInfo::new(output.prompt_token_ids.len() as u64, 0));
            pieces.push_back(self.piece(vec![choice], prompt_token_ids, usage));
        }
    }

    fn choice(&mut self, completion: CompletionOutput) -> ChatCompletionResponseStreamChoice {
        let choice = &self.request.tool_choice;
        let finish_reason = completion.finish_reason;
        let finish_reason = finish_reason.map(|reason| finish_reason_of(reason, choice));
        let is_calls = *choice != ToolChoice::None;
        let tool_calls = match self.tool_parsers.entry(completion.index) {
            Entry::Occupied(mut parser) => parser.get_mut().push(&completion.text),
            Entry::Vacant(place) => match ToolParser::new(choice) {
                Some(parser) => place.insert(parser).push(&completion.text),
                None => Vec::new(),
            },
        };
        let reasoning_content = completion
            .reasoning
            .clone()
            .filter(|_| self.request.include_reasoning);
        // A last piece without text says only why, and one of thinking has no answer yet.
        let silent = is_calls
            || completion.text.is_empty()
                && (finish_reason.is_some() || completion.reasoning.is_some());
        ChatCompletionResponseStreamChoice {
            index: completion.index,
            logprobs: chat_logprobs(&self.request, &completion),
            delta: DeltaMessage {
                role: None,
                content: (!silent).then_some(completion.text),
                reasoning_content,
                tool_calls,
            },
            finish_reason,
            stop_reason: completion.stop_reason.as_ref().map(stop_reason),
            structured_output_complete: completion.structured_output_complete,
            token_ids: self
                .request
                .common
                .return_token_ids
                .then_some(completion.token_ids),
        }
    }
}

impl Pieces for ChatPieces {
    fn add(&mut self, prompt: u32, output: RequestOutput, pieces: &mut VecDeque<String>) {
        self.head.count(prompt, &output);
        if !std::mem::replace(&mut self.begun, true) {
            self.begin(&output, pieces);
        }
        for completion in output.outputs {
            let choice = self.choice(completion);
            pieces.push_back(self.piece(vec![choice], None, self.head.continuous_usage()));
        }
    }

    fn end(&mut self, pieces: &mut VecDeque<String>) {
        if self.head.include_usage {
            pieces.push_back(self.piece(Vec::new(), None, Some(self.head.usage())));
        }
    }
}
