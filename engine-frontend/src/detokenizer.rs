//! Tokens to text, as they come, with stop strings: vLLM's `IncrementalDetokenizer`.

use std::sync::Arc;

use protocol::EngineCoreRequest;
use tokenizer::{DecodeStream, Tokenizer};

use crate::stop_strings::{StopSearch, StopStrings};
use crate::thinking_split::{Part, ThinkingSplit};

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
            Some(thinking) if thinking.is_text() => self.push_text(token_id),
            Some(thinking) => {
                thinking.push(token_id);
                self.write_settled();
            }
            None => self.write(token_id, Part::Content),
        }
    }

    /// Takes a token whose text decides what it belongs to, be that several parts.
    fn push_text(&mut self, token_id: u32) {
        let (Some(Decoder { tokenizer, stream }), Some(thinking)) =
            (&mut self.decoder, &mut self.thinking)
        else {
            return;
        };
        let mut text = String::new();
        stream.step(tokenizer, token_id, &mut text);
        text.chars().for_each(|char| thinking.push(char.into()));
        let is_thinking = thinking.is_before_answer();
        self.write_settled();
        if is_thinking {
            self.num_reasoning_tokens = u32::try_from(self.token_ids.len()).unwrap_or(u32::MAX);
        }
    }

    /// Writes what is settled since the last time.
    fn write_settled(&mut self) {
        let Some(thinking) = &mut self.thinking else {
            return;
        };
        let (is_text, settled) = (thinking.is_text(), thinking.take_settled());
        for &(unit, part) in &settled {
            match is_text {
                true => self.write_char(char::from_u32(unit).unwrap_or_default(), part),
                false => self.write(unit, part),
            }
        }
        if let Some(thinking) = &mut self.thinking {
            thinking.reuse(settled);
        }
    }

    fn write_char(&mut self, char: char, part: Part) {
        match part {
            Part::Reasoning => self.reasoning_text.push(char),
            Part::Content => self.output_text.push(char),
            Part::LineEnd => self.output_text.push('\n'),
            Part::Marker | Part::Behind => {}
        }
    }

    fn write(&mut self, token_id: u32, part: Part) {
        let is_answer = matches!(part, Part::Content | Part::Behind);
        self.num_reasoning_tokens += u32::from(!is_answer);
        if let Some(Decoder { tokenizer, stream }) = &mut self.decoder {
            let text = match part {
                Part::Reasoning => &mut self.reasoning_text,
                Part::Marker | Part::LineEnd | Part::Behind => &mut String::new(),
                Part::Content => &mut self.output_text,
            };
            stream.step(tokenizer, token_id, text);
            if part == Part::LineEnd {
                self.output_text.push('\n');
            }
        }
    }

    /// Writes what was held since it might have been a mark.
    fn settle_held(&mut self) {
        if let Some(thinking) = &mut self.thinking {
            thinking.finish();
            self.write_settled();
        }
    }

    /// A character whose end never came.
    fn finish_text(&mut self) {
        self.settle_held();
        let is_thinking = (self.thinking.as_ref()).is_some_and(ThinkingSplit::is_thinking);
        if let Some(decoder) = &mut self.decoder {
            decoder.stream.finish(match is_thinking {
                true => &mut self.reasoning_text,
                false => &mut self.output_text,
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
