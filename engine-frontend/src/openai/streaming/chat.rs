//! The pieces of a chat completion.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokenizer::Tokenizer;

use super::{Head, Piece, Pieces};
use crate::openai::chat::ChatCompletionRequest;
use crate::openai::chunk::{
    ChatCompletionResponseStreamChoice, ChatCompletionStreamResponse, DeltaMessage,
};
use crate::openai::serving::{chat_logprobs, finish_reason, stop_reason};
use crate::openai::tool_call::{DeltaFunctionCall, DeltaToolCall, call_id};
use crate::openai::tool_format::Openings;
use crate::openai::tool_parser::{AnswerPart, ToolParser};
use crate::openai::trace::take_trace;
use crate::openai::usage::UsageInfo;
use crate::outputs::{CompletionOutput, RequestOutput};

/// The pieces of a chat completion.
#[derive(Debug)]
pub(super) struct ChatPieces {
    request: ChatCompletionRequest,
    head: Head,
    /// Whether the pieces with the roles have gone out.
    begun: bool,
    role: String,
    /// Where calls begin, if there may be any.
    openings: Option<Openings>,
    /// By answer, where there may be calls: its parser, and how many calls there were.
    tool_parsers: HashMap<u32, (ToolParser, u32)>,
    tokenizer: Arc<Tokenizer>,
}

impl ChatPieces {
    pub(super) fn new(
        head: Head,
        request: ChatCompletionRequest,
        openings: Option<Openings>,
        role: String,
        tokenizer: Arc<Tokenizer>,
    ) -> Self {
        Self {
            request,
            head,
            begun: false,
            openings,
            role,
            tool_parsers: HashMap::new(),
            tokenizer,
        }
    }

    fn piece(
        &mut self,
        choices: Vec<ChatCompletionResponseStreamChoice>,
        prompt_token_ids: Option<Vec<u32>>,
        usage: Option<UsageInfo>,
    ) -> Piece {
        Piece::new(ChatCompletionStreamResponse {
            id: self.head.id.clone(),
            object: "chat.completion.chunk".to_owned(),
            created: self.head.created,
            model: self.head.model.clone(),
            system_fingerprint: self.head.system_fingerprint.clone(),
            choices,
            prompt_token_ids,
            usage,
            warnings: self.head.warnings.take(),
        })
    }

    /// The first piece of each answer: its role.
    fn begin(&mut self, output: &RequestOutput, pieces: &mut VecDeque<Piece>) {
        for index in 0..self.head.n {
            let choice = ChatCompletionResponseStreamChoice {
                index,
                delta: DeltaMessage {
                    role: Some(self.role.clone()),
                    content: Some(String::new()),
                    ..DeltaMessage::default()
                },
                logprobs: None,
                finish_reason: None,
                stop_reason: None,
                structured_output_complete: None,
                structured_output_completed_by_budget: false,
                structured_output_repetition_closed: false,
                trace: None,
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

    /// What is new of an answer's text, and of its calls; whether there were any so far.
    fn split(
        &mut self,
        completion: &CompletionOutput,
    ) -> (Option<String>, Vec<DeltaToolCall>, bool) {
        let Some(openings) = &self.openings else {
            let silent = completion.text.is_empty()
                && (completion.finished() || completion.reasoning.is_some());
            return (
                (!silent).then(|| completion.text.clone()),
                Vec::new(),
                false,
            );
        };
        let (parser, num_calls) = self
            .tool_parsers
            .entry(completion.index)
            .or_insert_with(|| (ToolParser::new(openings.clone()), 0));
        let (mut content, mut deltas) = (None::<String>, Vec::<DeltaToolCall>::new());
        for part in parser.push(&completion.text, completion.finished()) {
            match part {
                AnswerPart::Content(text) => content.get_or_insert_default().push_str(&text),
                AnswerPart::Call { name, id } => {
                    deltas.push(begun_call(*num_calls, name, id));
                    *num_calls += 1;
                }
                AnswerPart::Arguments(text) => match deltas.last_mut() {
                    Some(delta) => delta
                        .function
                        .arguments
                        .get_or_insert_default()
                        .push_str(&text),
                    None => deltas.push(DeltaToolCall {
                        index: num_calls.saturating_sub(1),
                        id: None,
                        kind: None,
                        function: DeltaFunctionCall {
                            name: None,
                            arguments: Some(text),
                        },
                    }),
                },
            }
        }
        (content, deltas, parser.has_calls())
    }

    fn choice(&mut self, mut completion: CompletionOutput) -> ChatCompletionResponseStreamChoice {
        let (content, tool_calls, has_calls) = self.split(&completion);
        let reasoning = completion.reasoning.take();
        ChatCompletionResponseStreamChoice {
            index: completion.index,
            logprobs: chat_logprobs(&self.request, &mut completion),
            delta: DeltaMessage {
                role: None,
                content,
                reasoning_content: reasoning.filter(|_| self.request.include_reasoning),
                tool_calls,
            },
            finish_reason: finish_reason(&completion, &self.request.tool_choice, has_calls),
            stop_reason: completion.stop_reason.as_ref().map(stop_reason),
            structured_output_complete: completion.structured_output_complete,
            structured_output_completed_by_budget: completion.structured_output_completed_by_budget,
            structured_output_repetition_closed: completion.structured_output_repetition_closed,
            trace: take_trace(&self.tokenizer, &mut completion),
            token_ids: self
                .request
                .common
                .return_token_ids
                .then_some(completion.token_ids),
        }
    }
}

/// Whether a piece has nothing new of its answer.
fn says_nothing(choice: &ChatCompletionResponseStreamChoice) -> bool {
    let no_tokens =
        choice.logprobs.is_none() && choice.token_ids.is_none() && choice.trace.is_none();
    choice.delta == DeltaMessage::default() && choice.finish_reason.is_none() && no_tokens
}

/// The first piece of a call.
fn begun_call(index: u32, name: String, id: Option<String>) -> DeltaToolCall {
    DeltaToolCall {
        index,
        id: Some(call_id("call", id)),
        kind: Some("function".to_owned()),
        function: DeltaFunctionCall {
            name: Some(name),
            arguments: Some(String::new()),
        },
    }
}

impl Pieces for ChatPieces {
    fn add(&mut self, prompt: u32, output: RequestOutput, pieces: &mut VecDeque<Piece>) {
        self.head.count(prompt, &output);
        if !std::mem::replace(&mut self.begun, true) {
            self.begin(&output, pieces);
        }
        for completion in output.outputs {
            let choice = self.choice(completion);
            // A piece of what opens or closes a call says nothing.
            if self.openings.is_some() && says_nothing(&choice) && !self.head.continuous_usage {
                continue;
            }
            let usage = self.head.continuous_usage();
            pieces.push_back(self.piece(vec![choice], None, usage));
        }
    }

    fn end(&mut self, pieces: &mut VecDeque<Piece>) {
        if self.head.include_usage {
            let usage = self.head.usage();
            pieces.push_back(self.piece(Vec::new(), None, Some(usage)));
        }
    }
}
