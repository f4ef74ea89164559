//! What a caller asks for, before anything is checked.

use std::time::Instant;

use protocol::{
    PoolingParams, SamplingParams, ScoredPosition, Shared, StructuredOutputsConstraint,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokenizer::{TemplateValue, TemplateVariables};

use crate::error::ValidationError;
use crate::tokenizer_threads::LARGE;

/// What the model is asked to continue.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// Text.
    Text(String),
    /// Token ids.
    TokenIds(Vec<u32>),
    /// A conversation for the model's chat template.
    Chat(ChatPrompt),
}

impl Prompt {
    /// About how many bytes there are to read: the work that it makes.
    pub(crate) fn num_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::TokenIds(token_ids) => size_of_val(token_ids.as_slice()),
            Self::Chat(chat) => {
                let lists = [&chat.tools, &chat.documents].into_iter().flatten();
                let bytes = chat.messages.iter().map(num_bytes).sum::<usize>()
                    + lists.map(TemplateValue::num_bytes).sum::<usize>()
                    + chat.chat_template_kwargs.num_bytes();
                match &chat.chat_template {
                    // The request's own program may take all the time of a rendering: large work
                    // leaves a thread to the small.
                    Some(_) => LARGE.saturating_add(1).max(bytes),
                    None => bytes,
                }
            }
        }
    }
}

/// About how long a value's text is. Values are as deep as a request's body may be.
pub(crate) fn num_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(num_bytes).sum::<usize>() + items.len(),
        Value::Object(map) => {
            let entries = map.iter();
            entries
                .map(|(key, value)| key.len() + num_bytes(value))
                .sum()
        }
        _ => size_of::<u32>(),
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(token_ids: Vec<u32>) -> Self {
        Self::TokenIds(token_ids)
    }
}

/// What a chat template sees. The conversations of one request share all but their messages: a clone of the rest
/// costs no memory.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChatPrompt {
    /// Objects with `role` and `content`.
    pub messages: Vec<Value>,
    /// A list of functions that the model may call.
    pub tools: Option<TemplateValue>,
    /// A list of documents to answer from.
    pub documents: Option<TemplateValue>,
    /// Whether the template opens the assistant's turn.
    pub add_generation_prompt: bool,
    /// Whether the answer continues the last message.
    pub continue_final_message: bool,
    /// Further variables of the template.
    pub chat_template_kwargs: Shared<TemplateVariables>,
    /// A template instead of the model's.
    pub chat_template: Option<Shared<String>>,
}

/// Which end of a prompt that is too long stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TruncationSide {
    /// Cut at the left: the last tokens stay.
    #[default]
    Left,
    /// Cut at the right: the first tokens stay.
    Right,
}

/// A request for text.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// The caller's id; need not be unique.
    pub request_id: String,
    /// What to continue.
    pub prompt: Prompt,
    /// How.
    pub sampling_params: SamplingParams,
    /// When it came: the time to its first token begins here.
    pub arrival: Instant,
    /// Whether the tokenizer adds its begin-of-text token to text.
    pub add_special_tokens: bool,
    /// Keep this many tokens of a longer prompt; -1 is as many as leave room for the answer.
    pub truncate_prompt_tokens: Option<i64>,
    /// Which of them.
    pub truncation_side: TruncationSide,
    /// Lower runs earlier, under the priority policy.
    pub priority: i64,
    /// Requests with different salts share no cached prefix.
    pub cache_salt: Option<String>,
    /// The client that asked: where requests wait, clients take turns.
    pub owner: u64,
    /// Distributed-tracing headers.
    pub trace_headers: Shared<[(String, String)]>,
    /// Whether the model's thinking is told apart from its answer, where the model thinks.
    pub separate_reasoning: bool,
    /// Whether the pieces of a streamed answer are kept until its end, which repeats them.
    pub keeps_answer: bool,
    /// True if the constraint has what the model's format writes before an answer and before calls, so that nothing
    /// else comes between thinking and these.
    pub constraint_has_header: bool,
    /// What the caller calls the field that has the constraint, for errors.
    pub constraint_field: Option<String>,
    /// What the constraint was put together from. Where the whole is refused, the part at fault is
    /// named instead.
    pub constraint_parts: Vec<ConstraintPart>,
    /// What the caller calls the field that has the constraint's white space.
    pub whitespace_field: Option<String>,
    /// What the caller calls the limit of the answer's tokens, where it isn't `max_tokens`.
    pub max_tokens_field: Option<String>,
    /// What the caller calls the prompt in errors, where it is one of several conversations or a list of tokens of
    /// another name.
    pub prompt_field: Option<String>,
    /// Where probabilities of chosen tokens are asked for; nothing is generated then. For prompts of token ids.
    pub scored_positions: Shared<[ScoredPosition]>,
    /// Where a vector of the prompt is asked for; nothing is generated then.
    pub pooling_params: Option<PoolingParams>,
}

/// A part of a constraint that was put together from several fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstraintPart {
    /// What the caller calls it.
    pub field: String,
    /// It alone.
    pub constraint: StructuredOutputsConstraint,
    /// Where it stands in the whole, a structural tag: a JSON pointer.
    pub place: String,
}

impl ConstraintPart {
    /// Its field and its place.
    pub(crate) fn named_place(&self) -> (String, String) {
        (self.field.clone(), self.place.clone())
    }
}

/// An error of a request with `name` in place of `max_tokens`, which the caller calls so.
pub(super) fn with_max_tokens_field(mut error: ValidationError, name: &str) -> ValidationError {
    const FIELD: &str = "max_tokens";
    error.message = replace_name(&error.message, FIELD, name);
    if error.parameter.as_deref() == Some(FIELD) {
        error.parameter = Some(name.to_owned());
    }
    error
}

/// An error about a request's prompt, which the caller calls `name`; of a conversation, `messages[2].role` becomes
/// `name[2].role`. Errors about other fields stay.
pub(super) fn with_prompt_field(mut error: ValidationError, name: &str) -> ValidationError {
    const OF_CONVERSATION: &str = "messages";
    let Some(field) = error.parameter.as_deref() else {
        return error;
    };
    if let Some(place) = field.strip_prefix(OF_CONVERSATION)
        && place.starts_with('[')
    {
        let own = format!("{name}{place}");
        error.message = error.message.replace(field, &own);
        error.parameter = Some(own);
    } else if [OF_CONVERSATION, "prompt", "input_tokens"].contains(&field) {
        error.message = format!("{name}: {}", error.message);
        error.parameter = Some(name.to_owned());
    }
    error
}

/// A text with another name in place of `name`, where that isn't part of a longer one, or of a path.
pub(crate) fn replace_name(text: &str, name: &str, other: &str) -> String {
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '/';
    let is_extension = |after: &str| {
        let extension = after.strip_prefix('.');
        extension.is_some_and(|extension| extension.starts_with(goes_on))
    };
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(name) {
        replaced.push_str(before);
        let is_whole =
            !replaced.ends_with(goes_on) && !after.starts_with(goes_on) && !is_extension(after);
        replaced.push_str(if is_whole { other } else { name });
        rest = after;
    }
    replaced + rest
}

impl GenerateRequest {
    /// True if nothing is generated: the prompt may fill the context.
    pub(crate) fn is_prompt_only(&self) -> bool {
        self.pooling_params.is_some() || !self.scored_positions.is_empty()
    }

    /// About how many bytes there are to read: the prompt's, and the parameters' that may be many.
    pub(crate) fn num_bytes(&self) -> usize {
        let params = &self.sampling_params;
        let allowed = params.allowed_token_ids.as_deref().unwrap_or_default();
        let constraint = params.structured_outputs.as_ref();
        let sources = constraint.map_or(&[][..], |c| c.constraint.specification().1);
        self.prompt.num_bytes()
            + size_of_val(allowed)
            + size_of_val(&*params.logit_bias)
            + sources.iter().map(String::len).sum::<usize>()
    }

    /// A request that arrives now, with everything optional at its default: text prompts get the begin-of-text
    /// token, rendered templates bring their own.
    pub fn new(request_id: String, prompt: Prompt, sampling_params: SamplingParams) -> Self {
        Self {
            request_id,
            add_special_tokens: !matches!(prompt, Prompt::Chat(_)),
            prompt,
            sampling_params,
            arrival: Instant::now(),
            truncate_prompt_tokens: None,
            truncation_side: TruncationSide::default(),
            priority: 0,
            cache_salt: None,
            owner: 0,
            trace_headers: Shared::default(),
            separate_reasoning: false,
            keeps_answer: false,
            constraint_has_header: false,
            constraint_field: None,
            constraint_parts: Vec::new(),
            whitespace_field: None,
            max_tokens_field: None,
            prompt_field: None,
            scored_positions: Shared::default(),
            pooling_params: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_told_by_the_callers_name() {
        let named = |field: &str, message: &str| {
            let error = with_prompt_field(ValidationError::about(field, message), "messages[7]");
            (error.parameter.unwrap(), error.message)
        };
        let own = |field: &str, message: &str| (field.to_owned(), message.to_owned());
        assert_eq!(
            named("messages[1].content", "messages[1].content: x"),
            own("messages[7][1].content", "messages[7][1].content: x")
        );
        for field in ["messages", "prompt", "input_tokens"] {
            assert_eq!(named(field, "x"), own("messages[7]", "messages[7]: x"));
        }
        assert_eq!(named("max_tokens", "x"), own("max_tokens", "x"));
    }
}
