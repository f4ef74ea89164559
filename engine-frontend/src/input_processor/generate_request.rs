//! What a caller asks for, before anything is checked.

use protocol::{SamplingParams, StructuredOutputsConstraint};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
                let lists = [
                    Some(&chat.messages),
                    chat.tools.as_ref(),
                    chat.documents.as_ref(),
                ];
                lists.into_iter().flatten().flatten().map(num_bytes).sum()
            }
        }
    }
}

/// How long a constraint's text is.
fn constraint_bytes(constraint: &StructuredOutputsConstraint) -> usize {
    use StructuredOutputsConstraint as Constraint;
    match constraint {
        Constraint::JsonObject => 0,
        Constraint::Choice(choice) => choice.iter().map(String::len).sum(),
        Constraint::Json(text)
        | Constraint::Regex(text)
        | Constraint::Grammar(text)
        | Constraint::StructuralTag(text) => text.len(),
    }
}

/// About how long a value's text is. Values are as deep as a request's body may be.
fn num_bytes(value: &Value) -> usize {
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

/// What a chat template sees.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChatPrompt {
    /// Objects with `role` and `content`.
    pub messages: Vec<Value>,
    /// Functions that the model may call.
    pub tools: Option<Vec<Value>>,
    /// Documents to answer from.
    pub documents: Option<Vec<Value>>,
    /// Whether the template opens the assistant's turn.
    pub add_generation_prompt: bool,
    /// Whether the answer continues the last message.
    pub continue_final_message: bool,
    /// Further variables of the template.
    pub chat_template_kwargs: Map<String, Value>,
    /// A template instead of the model's.
    pub chat_template: Option<String>,
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
    /// Distributed-tracing headers.
    pub trace_headers: Vec<(String, String)>,
    /// Whether the model's thinking is told apart from its answer, where the model thinks.
    pub separate_reasoning: bool,
    /// What the caller calls the field that has the constraint, for errors.
    pub constraint_field: Option<String>,
    /// What the constraint was put together from, by the caller's names for these parts. Where the
    /// whole is refused, the part at fault is named instead.
    pub constraint_parts: Vec<(String, StructuredOutputsConstraint)>,
    /// What the caller calls the field that has the constraint's white space.
    pub whitespace_field: Option<String>,
}

impl GenerateRequest {
    /// A request with everything optional at its default: text prompts get the begin-of-text
    /// token, rendered templates bring their own.
    pub fn new(request_id: String, prompt: Prompt, sampling_params: SamplingParams) -> Self {
        Self {
            request_id,
            add_special_tokens: !matches!(prompt, Prompt::Chat(_)),
            prompt,
            sampling_params,
            truncate_prompt_tokens: None,
            truncation_side: TruncationSide::default(),
            priority: 0,
            cache_salt: None,
            trace_headers: Vec::new(),
            separate_reasoning: false,
            constraint_field: None,
            constraint_parts: Vec::new(),
            whitespace_field: None,
        }
    }

    /// About how many bytes there are to read: the work that it makes before it can be sent.
    pub(crate) fn num_bytes(&self) -> usize {
        let constraint = self.sampling_params.structured_outputs.as_ref();
        let constraint = constraint.map_or(0, |params| constraint_bytes(&params.constraint));
        self.prompt.num_bytes() + constraint
    }
}
