//! The pieces of an answer as token ids.

use std::collections::VecDeque;

use super::{Head, Piece, Pieces};
use crate::openai::token_in_token_out::{
    TokenGenerateChoice, TokenGenerateRequest, TokenGenerateStreamResponse,
};
use crate::openai::usage::UsageInfo;
use crate::outputs::RequestOutput;

/// The pieces of an answer as token ids.
#[derive(Debug)]
pub(super) struct TokenPieces {
    request: TokenGenerateRequest,
    head: Head,
}

impl TokenPieces {
    pub(super) fn new(head: Head, request: TokenGenerateRequest) -> Self {
        Self { request, head }
    }

    fn piece(
        &self,
        choices: Vec<TokenGenerateChoice>,
        prompt_token_ids: Option<Vec<u32>>,
        usage: Option<UsageInfo>,
    ) -> Piece {
        Piece::new(TokenGenerateStreamResponse {
            request_id: self.head.id.clone(),
            choices,
            usage,
            prompt_token_ids,
        })
    }
}

impl Pieces for TokenPieces {
    fn add(&mut self, prompt: u32, output: RequestOutput, pieces: &mut VecDeque<Piece>) {
        let is_first = self.head.count(prompt, &output);
        let mut prompt_token_ids = (is_first && self.request.common.return_token_ids)
            .then(|| output.prompt_token_ids.to_vec());
        for completion in output.outputs {
            let choice = TokenGenerateChoice::new(&self.request, completion);
            let usage = self.head.continuous_usage();
            pieces.push_back(self.piece(vec![choice], prompt_token_ids.take(), usage));
        }
    }

    fn end(&mut self, pieces: &mut VecDeque<Piece>) {
        if self.head.include_usage {
            let usage = self.head.usage();
            pieces.push_back(self.piece(Vec::new(), None, Some(usage)));
        }
    }
}
