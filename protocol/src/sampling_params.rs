//! How the next token of a request is chosen, and when the request ends.

use serde::{Deserialize, Serialize};

use crate::shared::Shared;
use crate::structured_output::StructuredOutputsParams;

/// Sampling parameters of one request, after validation by the frontend.
///
/// Field names, defaults and ranges are vLLM V1's. The frontend fills what depends on the model
/// (`eos_token_id`, `bad_words_token_ids`, `seed`, `max_tokens`) before the request travels.
///
/// What may be large is [`Shared`], so that a clone takes about half a kilobyte.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// Number of answers, `1..=16384`. The frontend splits `n > 1` into that many requests
    /// with `n = 1`, so the core only ever sees 1.
    pub n: u32,
    /// Added once to the logit of every token that the output holds, negated; `-2..=2`.
    pub presence_penalty: f32,
    /// Subtracted from a token's logit per occurrence in the output; `-2..=2`.
    pub frequency_penalty: f32,
    /// Divides (positive) or multiplies (negative) the logits of tokens in prompt and output;
    /// finite and above 0; 1 is off.
    pub repetition_penalty: f32,
    /// `0..=2`; below 1e-5 decoding is greedy.
    pub temperature: f32,
    /// Keep the smallest set of tokens whose probability reaches this; `(0, 1]`.
    pub top_p: f32,
    /// Keep this many most probable tokens; 0 is off.
    pub top_k: u32,
    /// Drop tokens less probable than this share of the most probable one; `0..=1`.
    pub min_p: f32,
    /// Seed of this request's noise. The frontend draws one where the caller gave none, so that
    /// a replay of the request gives the same tokens.
    pub seed: Option<u64>,
    /// Strings that end the request. Matched by the frontend on detokenized text.
    pub stop: Shared<[String]>,
    /// Token ids that end the request.
    pub stop_token_ids: Shared<[u32]>,
    /// End-of-text token, or `None` where `ignore_eos` is set or the model has none.
    pub eos_token_id: Option<u32>,
    /// Whether the end-of-text token is an ordinary token for this request.
    pub ignore_eos: bool,
    /// Most tokens to generate; `None` on the wire means up to the model's context.
    pub max_tokens: Option<u32>,
    /// Stop tokens are not sampled before this many tokens were generated.
    pub min_tokens: u32,
    /// Number of top logprobs per generated token; -1 is the whole vocabulary.
    pub logprobs: Option<i32>,
    /// Number of top logprobs per prompt token; -1 is the whole vocabulary.
    pub prompt_logprobs: Option<i32>,
    /// Report what each generated token was chosen from. Changes no token.
    pub include_trace: bool,
    /// Report the logprobs of exactly these ids (besides the sampled one), at most 128.
    pub logprob_token_ids: Option<Shared<[u32]>>,
    /// Report prompt logprobs of exactly these ids (besides the prompt's own).
    pub prompt_logprob_token_ids: Option<Shared<[u32]>>,
    /// First prompt position whose logprobs are reported.
    pub prompt_logprob_start: u32,
    /// Whether the frontend turns tokens into text.
    pub detokenize: bool,
    /// Whether control tokens are left out of the text.
    pub skip_special_tokens: bool,
    /// Whether a space separates adjacent added tokens in the text, where the tokenizer adds one.
    pub spaces_between_special_tokens: bool,
    /// Whether the text keeps the stop string (or stop token) that ended it.
    pub include_stop_str_in_output: bool,
    /// How much of the output each `RequestOutput` carries.
    pub output_kind: RequestOutputKind,
    /// Tokens between two streamed outputs; the first and the last are always sent.
    pub stream_interval: Option<u32>,
    /// Added to the logits of these ids; values within `-100..=100`.
    pub logit_bias: Shared<[(u32, f32)]>,
    /// Only these ids may be sampled. They ascend, each once.
    pub allowed_token_ids: Option<Shared<[u32]>>,
    /// Words that must not appear, as the caller gave them.
    pub bad_words: Shared<[String]>,
    /// `bad_words` as token sequences, with and without a leading space.
    pub bad_words_token_ids: Shared<[Vec<u32>]>,
    /// Most tokens of thinking before the end-of-thinking tokens are forced.
    pub thinking_token_budget: Option<u32>,
    /// The tokens that open and close thinking; present where a budget is, and where a constraint
    /// may have to wait for the end of thinking.
    pub thinking_tokens: Option<ThinkingTokens>,
    /// What the output must be; `None` is free text.
    pub structured_outputs: Option<Shared<StructuredOutputsParams>>,
    /// End the request when its output repeats itself.
    pub repetition_detection: Option<RepetitionDetection>,
    /// Compute the whole prompt even where a cached prefix exists.
    pub skip_reading_prefix_cache: bool,
    /// JSON object for extensions of the core, carried as a string; nothing of ours reads it.
    pub extra_args: Option<Shared<String>>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            n: 1,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            seed: None,
            stop: Shared::default(),
            stop_token_ids: Shared::default(),
            eos_token_id: None,
            ignore_eos: false,
            max_tokens: Some(16),
            min_tokens: 0,
            logprobs: None,
            prompt_logprobs: None,
            include_trace: false,
            logprob_token_ids: None,
            prompt_logprob_token_ids: None,
            prompt_logprob_start: 0,
            detokenize: true,
            skip_special_tokens: true,
            spaces_between_special_tokens: true,
            include_stop_str_in_output: false,
            output_kind: RequestOutputKind::Cumulative,
            stream_interval: None,
            logit_bias: Shared::default(),
            allowed_token_ids: None,
            bad_words: Shared::default(),
            bad_words_token_ids: Shared::default(),
            thinking_token_budget: None,
            thinking_tokens: None,
            structured_outputs: None,
            repetition_detection: None,
            skip_reading_prefix_cache: false,
            extra_args: None,
        }
    }
}

/// How much of the output each `RequestOutput` carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RequestOutputKind {
    /// Everything so far.
    #[default]
    Cumulative,
    /// What is new since the last one.
    Delta,
    /// One output, at the end.
    FinalOnly,
}

/// The token sequences around a model's thinking, such as `<think>` and `</think>`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThinkingTokens {
    /// Opens thinking.
    pub start_token_ids: Vec<u32>,
    /// Closes thinking; forced when the budget is spent.
    pub end_token_ids: Vec<u32>,
    /// Come between thinking and a constrained answer, such as the line ends of `</think>\n\n`: where the
    /// model was trained to write them, a constraint that begins at once keeps it from its answer. Part of
    /// neither.
    pub separator_token_ids: Vec<u32>,
}

/// When an output counts as repeating itself: its tail is the same pattern `min_count` times.
/// `max_pattern_size` 0 turns detection off, as in vLLM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepetitionDetection {
    /// Longest pattern looked for, in tokens.
    pub max_pattern_size: u32,
    /// Shortest pattern looked for, in tokens.
    pub min_pattern_size: u32,
    /// Occurrences in a row, at least 2.
    pub min_count: u32,
}

/// What "logprobs" are: before or after penalties and temperature, normalised or not.
/// All four come after the grammar mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogprobsMode {
    /// Log-softmax of the model's logits.
    #[default]
    RawLogprobs,
    /// The model's logits.
    RawLogits,
    /// Log-softmax after every processor and filter.
    ProcessedLogprobs,
    /// Logits after every processor and filter.
    ProcessedLogits,
}
