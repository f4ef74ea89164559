//! Tokens to text, as they come, with stop strings: vLLM's `IncrementalDetokenizer`.

use std::sync::Arc;

use protocol::EngineCoreRequest;
use tokenizer::{DecodeStream, Tokenizer};

use crate::stop_strings::{StopSearch, StopStrings};

/// The text of one request's output, built token by token.
///
/// The text is what [`Tokenizer::decode`] gives for all output tokens after the prompt: a
/// character spread over several tokens appears once it is complete, bytes that can't become a
/// character appear as U+FFFD. Memory: the output's ids and text.
///
/// `spaces_between_special_tokens` changes nothing: the supported tokenizers write added tokens
/// as their text, with no space between them.
#[derive(Debug, Clone)]
pub struct IncrementalDetokenizer {
    /// `None` where the request wants no text.
    decoder: Option<Decoder>,
    token_ids: Vec<u32>,
    output_text: String,
    /// `None` where thinking is text like any other.
    thinking: Option<ThinkingSplit>,
    reasoning_text: String,
    num_reasoning_tokens: u32,
    stop: Arc<StopStrings>,
    search: StopSearch,
    include_stop_str_in_output: bool,
    min_tokens: usize,
    /// Characters held back while the request runs: they may yet be part of a stop string.
    stop_buffer_length: usize,
    /// Bytes of `output_text` that deltas have given out.
    last_output_text_offset: usize,
    /// Bytes of `reasoning_text` that deltas have given out.
    last_reasoning_text_offset: usize,
}

#[derive(Debug, Clone)]
struct Decoder {
    tokenizer: Arc<Tokenizer>,
    stream: DecodeStream,
}

/// Tells a model's thinking from its answer, token by token. What opens and closes thinking may be several tokens
/// each: the first of them are held until it is known whether the others follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinkingSplit {
    /// Open thinking. Where the output may begin with them, they are its first tokens.
    start_token_ids: Arc<[u32]>,
    /// Close thinking.
    end_token_ids: Arc<[u32]>,
    /// Whether thinking has ended; `None` where it may yet begin.
    pub ended: Option<bool>,
    /// Tokens that the engine puts between thinking and the answer, see
    /// [`ThinkingTokens::separator_token_ids`](protocol::ThinkingTokens::separator_token_ids); those before
    /// `num_separating` have come.
    separator_token_ids: Arc<[u32]>,
    /// How many tokens of the separator have come; all of them where none is to come.
    num_separating: usize,
    /// True if the model itself writes the separator, before answers without thinking too.
    has_header: bool,
    /// False once the output has begun in another way than by opening thinking.
    may_open: bool,
    /// Tokens that may belong to what opens or closes thinking.
    held: Vec<u32>,
    /// Tokens of which it is known since the last call what they belong to.
    settled: Vec<(u32, Part)>,
}

/// What a token belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Reasoning,
    /// One of the tokens around thinking.
    Marker,
    Content,
}

impl ThinkingSplit {
    /// The split of an output. `ended` says whether thinking has ended before it, `None` that it may yet begin;
    /// `separator_token_ids` come between thinking and the answer.
    pub fn new(
        start_token_ids: Arc<[u32]>,
        end_token_ids: Arc<[u32]>,
        ended: Option<bool>,
        separator_token_ids: Arc<[u32]>,
    ) -> Self {
        let num_separating = match ended {
            Some(true) => separator_token_ids.len(),
            _ => 0,
        };
        Self {
            start_token_ids,
            end_token_ids,
            ended,
            separator_token_ids,
            num_separating,
            has_header: false,
            may_open: ended != Some(true),
            held: Vec::new(),
            settled: Vec::new(),
        }
    }

    /// The split where the separator is a header that the model itself writes, before answers without thinking too.
    #[must_use]
    pub fn with_header(self) -> Self {
        Self {
            has_header: true,
            num_separating: 0,
            ..self
        }
    }

    /// The tokens that come between thinking and the answer.
    pub fn separator_token_ids(&self) -> &[u32] {
        &self.separator_token_ids
    }

    /// How many of them have come; all where none is to come.
    pub fn num_separating(&self) -> usize {
        self.num_separating
    }

    /// Takes the output's next token, and settles those of which it decides.
    fn push(&mut self, token_id: u32) {
        self.settled.clear();
        if self.ended == Some(true) {
            return self.answer_token(token_id);
        }
        self.held.push(token_id);
        if self.may_open {
            if self.start_token_ids.starts_with(&self.held) {
                if self.held.len() == self.start_token_ids.len() {
                    self.settle(self.held.len(), Part::Marker);
                    self.ended = Some(false);
                    self.may_open = false;
                }
                return;
            }
            self.may_open = false;
            if self.ended.is_none() {
                self.ended = Some(true);
                if self.has_header {
                    for token_id in std::mem::take(&mut self.held) {
                        self.answer_token(token_id);
                    }
                    return;
                }
                self.num_separating = self.separator_token_ids.len();
                return self.settle(self.held.len(), Part::Content);
            }
        }
        // What can't be a part of the end any more is thinking.
        let at = self.end_token_ids_begin();
        self.settle(at, Part::Reasoning);
        if !self.held.is_empty() && self.held.len() == self.end_token_ids.len() {
            self.settle(self.held.len(), Part::Marker);
            self.ended = Some(true);
        }
    }

    /// Where the held tokens may go on to be the end of thinking, or are it.
    fn end_token_ids_begin(&self) -> usize {
        let is_begun = |at: &usize| {
            self.held
                .get(*at..)
                .is_some_and(|rest| self.end_token_ids.starts_with(rest))
        };
        (0..self.held.len())
            .find(is_begun)
            .unwrap_or(self.held.len())
    }

    fn answer_token(&mut self, token_id: u32) {
        let part = match self.separator_token_ids.get(self.num_separating) {
            Some(separating) if *separating == token_id => {
                self.num_separating += 1;
                Part::Marker
            }
            _ => {
                self.num_separating = self.separator_token_ids.len();
                Part::Content
            }
        };
        self.settled.push((token_id, part));
    }

    fn settle(&mut self, number: usize, part: Part) {
        let tokens = self.held.drain(..number);
        self.settled.extend(tokens.map(|token_id| (token_id, part)));
    }

    /// Settles what is held at the end of an output.
    fn finish(&mut self) {
        self.settled.clear();
        let part = match self.ended {
            Some(false) => Part::Reasoning,
            _ => Part::Content,
        };
        self.settle(self.held.len(), part);
    }
}

/// A stop string that ended a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopStringMatch {
    /// Which of the request's stop strings.
    pub stop_string: String,
    /// How many of the new tokens belong to the output; the rest came after the stop string and
    /// are dropped.
    pub num_new_tokens: usize,
}

impl IncrementalDetokenizer {
    /// The detokenizer of a new request. Tokens in `output_token_ids` count as output that was
    /// given out before: they are part of the text, but of no delta.
    pub fn new(tokenizer: &Arc<Tokenizer>, request: &EngineCoreRequest) -> Self {
        let stop = Arc::new(StopStrings::new(&request.sampling_params.stop));
        Self::with_thinking(tokenizer, request, None, stop)
    }

    /// The same for a request whose thinking is told apart: it is no part of the text, and stop
    /// strings aren't looked for in it. `stop` are the request's.
    pub fn with_thinking(
        tokenizer: &Arc<Tokenizer>,
        request: &EngineCoreRequest,
        thinking: Option<ThinkingSplit>,
        stop: Arc<StopStrings>,
    ) -> Self {
        let params = &request.sampling_params;
        let decoder = params.detokenize.then(|| Decoder {
            tokenizer: Arc::clone(tokenizer),
            stream: DecodeStream::after_prompt(
                tokenizer,
                &request.prompt_token_ids,
                params.skip_special_tokens,
            ),
        });
        let mut detokenizer = Self {
            decoder,
            token_ids: Vec::new(),
            output_text: String::new(),
            thinking,
            reasoning_text: String::new(),
            num_reasoning_tokens: 0,
            search: StopSearch::default(),
            include_stop_str_in_output: params.include_stop_str_in_output,
            min_tokens: params.min_tokens as usize,
            stop_buffer_length: if params.include_stop_str_in_output {
                0
            } else {
                stop.longest_chars().saturating_sub(1)
            },
            last_output_text_offset: 0,
            last_reasoning_text_offset: 0,
            stop,
        };
        for &token_id in &request.output_token_ids {
            detokenizer.push(token_id);
        }
        detokenizer.last_output_text_offset = detokenizer.released_len(false);
        detokenizer.last_reasoning_text_offset = detokenizer.reasoning_text.len();
        detokenizer
    }

    /// From here on all is text, also a token that would open thinking.
    pub fn leave_out_thinking(&mut self) {
        self.settle_held();
        self.thinking = None;
    }

    /// Takes the tokens of one step; returns the stop string that they complete, if any. The text
    /// then ends before it, or with it where `include_stop_str_in_output` is set.
    ///
    /// `stop_terminated` says that the last token is a stop token that ended the request: it
    /// counts as output, and is text only where `include_stop_str_in_output` is set.
    ///
    /// Of several stop strings the one that is complete first wins; of those that end at the
    /// same place, the first in the request's list. One that ends within the first `min_tokens`
    /// tokens doesn't count.
    pub fn update(
        &mut self,
        new_token_ids: &[u32],
        stop_terminated: bool,
    ) -> Option<StopStringMatch> {
        let (text_token_ids, silent_token_id) = match new_token_ids.split_last() {
            Some((last, rest)) if stop_terminated && !self.include_stop_str_in_output => {
                (rest, Some(*last))
            }
            _ => (new_token_ids, None),
        };
        for (index, &token_id) in text_token_ids.iter().enumerate() {
            let new_text_start = self.output_text.len();
            self.push(token_id);
            if self.token_ids.len() <= self.min_tokens {
                continue;
            }
            let found = self
                .stop
                .find(&mut self.search, &self.output_text, new_text_start);
            let Some((stop, range)) = found else {
                continue;
            };
            let stop_string = stop.to_owned();
            self.output_text
                .truncate(if self.include_stop_str_in_output {
                    range.end
                } else {
                    range.start
                });
            // What was held back came after the stop string.
            if let Some(decoder) = &mut self.decoder {
                decoder.stream.finish(&mut String::new());
            }
            return Some(StopStringMatch {
                stop_string,
                num_new_tokens: index + 1,
            });
        }
        self.token_ids.extend(silent_token_id);
        None
    }

    /// The text to give out now: with `delta` what is new since the last call, else all of it.
    ///
    /// Until the request is finished, as many characters are held back as could be the start of
    /// a stop string. With `finished`, everything is given out, and a character whose end never
    /// came becomes U+FFFD.
    pub fn get_next_output_text(&mut self, finished: bool, delta: bool) -> String {
        if finished {
            self.finish_text();
        }
        let end = self.released_len(finished);
        let start = if delta {
            let start = self.last_output_text_offset;
            self.last_output_text_offset = start.max(end);
            start
        } else {
            0
        };
        self.output_text
            .get(start..end)
            .unwrap_or_default()
            .to_owned()
    }

    /// The thinking to give out now, as [`Self::get_next_output_text`] gives out the text; to be
    /// called after it. `None` where there is none.
    pub fn get_next_reasoning_text(&mut self, delta: bool) -> Option<String> {
        let start = if delta {
            std::mem::replace(
                &mut self.last_reasoning_text_offset,
                self.reasoning_text.len(),
            )
        } else {
            0
        };
        let text = self.reasoning_text.get(start..).unwrap_or_default();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// All text so far, nothing held back but incomplete characters.
    pub fn output_text(&self) -> &str {
        &self.output_text
    }

    /// All output tokens so far.
    pub fn output_token_ids(&self) -> &[u32] {
        &self.token_ids
    }

    /// How many output tokens there are.
    pub fn num_output_tokens(&self) -> usize {
        self.token_ids.len()
    }

    /// How many output tokens were thinking, the tokens around it included.
    pub fn num_reasoning_tokens(&self) -> u32 {
        self.num_reasoning_tokens
    }

    fn push(&mut self, token_id: u32) {
        self.token_ids.push(token_id);
        match &mut self.thinking {
            Some(thinking) => {
                thinking.push(token_id);
                self.write_settled();
            }
            None => self.write(token_id, Part::Content),
        }
    }

    /// Writes the tokens of which it is known now what they belong to.
    fn write_settled(&mut self) {
        let Some(thinking) = &mut self.thinking else {
            return;
        };
        let mut settled = std::mem::take(&mut thinking.settled);
        for &(token_id, part) in &settled {
            self.write(token_id, part);
        }
        // Its memory is for the next.
        settled.clear();
        if let Some(thinking) = &mut self.thinking {
            thinking.settled = settled;
        }
    }

    fn write(&mut self, token_id: u32, part: Part) {
        self.num_reasoning_tokens += u32::from(part != Part::Content);
        if let Some(Decoder { tokenizer, stream }) = &mut self.decoder {
            let text = match part {
                Part::Reasoning => &mut self.reasoning_text,
                Part::Marker => &mut String::new(),
                Part::Content => &mut self.output_text,
            };
            stream.step(tokenizer, token_id, text);
        }
    }

    /// Writes the tokens that were held since they might have opened or closed thinking.
    fn settle_held(&mut self) {
        if let Some(thinking) = &mut self.thinking {
            thinking.finish();
            self.write_settled();
        }
    }

    /// A character whose end never came.
    fn finish_text(&mut self) {
        self.settle_held();
        let is_thinking = self
            .thinking
            .as_ref()
            .is_some_and(|t| t.ended == Some(false));
        if let Some(decoder) = &mut self.decoder {
            decoder.stream.finish(if is_thinking {
                &mut self.reasoning_text
            } else {
                &mut self.output_text
            });
        }
    }

    /// Bytes of the text that may be given out.
    fn released_len(&self, finished: bool) -> usize {
        if finished || self.stop_buffer_length == 0 {
            return self.output_text.len();
        }
        self.output_text
            .char_indices()
            .rev()
            .nth(self.stop_buffer_length - 1)
            .map_or(0, |(index, _)| index)
    }
}
