//! The pieces of a completion.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokenizer::Tokenizer;

use super::{Head, Piece, Pieces};
use crate::openai::chunk::{CompletionResponseStreamChoice, CompletionStreamResponse};
use crate::openai::completion::CompletionRequest;
use crate::openai::echo::{prompt_text, text_and_logprobs};
use crate::openai::serving::stop_reason;
use crate::openai::trace::take_trace;
use crate::openai::usage::UsageInfo;
use crate::outputs::{CompletionOutput, RequestOutput};

/// The pieces of a completion.
#[derive(Debug)]
pub(super) struct CompletionPieces {
    request: CompletionRequest,
    head: Head,
    /// Where each answer's last token ended: offsets count from the answer's start.
    logprobs: HashMap<u32, u32>,
    /// Answers that have begun with their prompt, where `echo` asks for it.
    echoed: HashSet<u32>,
    tokenizer: Arc<Tokenizer>,
}

impl CompletionPieces {
    pub(super) fn new(head: Head, request: CompletionRequest, tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            request,
            head,
            logprobs: HashMap::new(),
            echoed: HashSet::new(),
            tokenizer,
        }
    }

    fn choice(
        &mut self,
        index: u32,
        output: &RequestOutput,
        mut completion: CompletionOutput,
        prompt_token_ids: Option<Vec<u32>>,
    ) -> CompletionResponseStreamChoice {
        let common = &self.request.common;
        let keep_answer = !self.request.echo_only();
        let echoes = self.request.echo && self.echoed.insert(index);
        let prompt = echoes.then(|| prompt_text(&self.tokenizer, output));
        let (text, mut logprobs) = text_and_logprobs(
            &self.request,
            &self.tokenizer,
            output,
            &mut completion,
            prompt,
        );
        if let Some(logprobs) = &mut logprobs {
            let offset = self.logprobs.entry(index).or_default();
            *offset = logprobs.shift_offsets(*offset);
        }
        let trace = take_trace(&self.tokenizer, &mut completion).filter(|_| keep_answer);
        let token_ids = if keep_answer {
            completion.token_ids
        } else {
            Vec::new()
        };
        CompletionResponseStreamChoice {
            index,
            text,
            logprobs,
            finish_reason: completion.finish_reason.map(|r| r.as_str().to_owned()),
            stop_reason: completion.stop_reason.as_ref().map(stop_reason),
            structured_output_complete: completion.structured_output_complete,
            structured_output_completed_by_budget: completion.structured_output_completed_by_budget,
            structured_output_repetition_closed: completion.structured_output_repetition_closed,
            trace,
            token_ids: common.return_token_ids.then_some(token_ids),
            prompt_token_ids,
        }
    }

    fn piece(
        &mut self,
        choices: Vec<CompletionResponseStreamChoice>,
        usage: Option<UsageInfo>,
    ) -> Piece {
        Piece::new(CompletionStreamResponse {
            id: self.head.id.clone(),
            object: "text_completion".to_owned(),
            created: self.head.created,
            model: self.head.model.clone(),
            system_fingerprint: self.head.system_fingerprint.clone(),
            choices,
            usage,
            warnings: self.head.warnings.take(),
        })
    }
}

impl Pieces for CompletionPieces {
    fn add(&mut self, prompt: u32, output: RequestOutput, pieces: &mut VecDeque<Piece>) {
        let first = self.head.count(prompt, &output);
        if self.request.echo_only() {
            self.head.completion_tokens = 0;
        }
        let mut output = output;
        for completion in std::mem::take(&mut output.outputs) {
            let prompt_token_ids = (first && self.request.common.return_token_ids)
                .then(|| output.prompt_token_ids.to_vec());
            let index = prompt * self.head.n + completion.index;
            let choice = self.choice(index, &output, completion, prompt_token_ids);
            let usage = self.head.continuous_usage();
            pieces.push_back(self.piece(vec![choice], usage));
        }
    }

    fn end(&mut self, pieces: &mut VecDeque<Piece>) {
        if self.head.include_usage {
            let usage = self.head.usage();
            pieces.push_back(self.piece(Vec::new(), Some(usage)));
        }
    }
}
