//! `/v1/embeddings`, as OpenAI and vLLM have it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::MAX_INPUTS;
use crate::error::{ValidationError, cut_short};
use crate::json_problem::number_text;
use crate::openai::{Fields, UsageInfo, check_names};

/// A request for embeddings.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingRequest {
    /// The model asked for.
    pub model: Option<String>,
    /// What to embed, at least one.
    pub input: Vec<EmbeddingInput>,
    /// Whether `input` was a list of these, for errors.
    pub is_list: bool,
    /// How the numbers are written.
    pub encoding_format: EncodingFormat,
    /// Numbers of each embedding that are kept.
    pub dimensions: Option<u32>,
    /// Whether embeddings have length 1; as the model says where absent.
    pub use_activation: Option<bool>,
    /// What the request says of its prompts beside their texts.
    pub prompts: PromptOptions,
}

/// What requests for embeddings and scores say of their prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptOptions {
    /// Most tokens of a text; what is longer is cut. -1 is the model's context.
    pub truncate_prompt_tokens: Option<i64>,
    /// Whether the tokenizer adds its special tokens.
    pub add_special_tokens: bool,
    /// The caller's id.
    pub request_id: Option<String>,
    /// Lower runs earlier, under the priority policy.
    pub priority: i64,
    /// Requests with different salts share no cached prefix.
    pub cache_salt: Option<String>,
}

/// One text or its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbeddingInput {
    /// A text.
    Text(String),
    /// Tokens, as they are.
    TokenIds(Vec<u32>),
}

/// How an embedding's numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EncodingFormat {
    /// A list of numbers.
    #[default]
    Float,
    /// Base64 of 32-bit floats, the least byte first.
    Base64,
}

impl PromptOptions {
    pub(super) fn take(fields: &mut Fields) -> Result<Self, ValidationError> {
        let truncate_prompt_tokens = fields.take::<i64>("truncate_prompt_tokens")?;
        if let Some(keep) = truncate_prompt_tokens
            && keep != -1
            && keep < 1
        {
            let message =
                "truncate_prompt_tokens must be at least 1, or -1 for the model's context";
            return Err(ValidationError::field(
                "truncate_prompt_tokens",
                keep,
                message,
            ));
        }
        let instead = "what is too long is cut at its end; leave it out";
        fields.refuse_unless("truncation_side", instead, |side| side == "right")?;
        let options = Self {
            truncate_prompt_tokens,
            add_special_tokens: fields.take("add_special_tokens")?.unwrap_or(true),
            request_id: fields.take("request_id")?,
            priority: fields.take("priority")?.unwrap_or(0),
            cache_salt: fields.take("cache_salt")?,
        };
        check_names(options.request_id.as_deref(), options.cache_salt.as_deref())?;
        Ok(options)
    }
}

impl EmbeddingRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown or wrong, by name; of a list's element with its index.
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        let mut fields = Fields::new(body)?;
        let model = fields.take("model")?;
        let instead = "send the text itself as input";
        fields.refuse_unless("messages", instead, |_| false)?;
        let instead = "numbers are 32-bit floats, the least byte first";
        fields.refuse_unless("embed_dtype", instead, |value| value == "float32")?;
        fields.refuse_unless("endianness", instead, |value| {
            value == "native" || value == "little"
        })?;
        let (input, is_list) = match fields.take_value("input") {
            None => return Err(crate::openai::missing("input")),
            Some(value) => read_input(value)?,
        };
        let encoding_format = match fields.take::<String>("encoding_format")?.as_deref() {
            None | Some("float") => EncodingFormat::Float,
            Some("base64") => EncodingFormat::Base64,
            Some(other) => {
                let message = format!(
                    "encoding_format must be \"float\" or \"base64\", got {:?}",
                    cut_short(other)
                );
                return Err(ValidationError::field("encoding_format", other, message));
            }
        };
        let dimensions = fields.take::<u32>("dimensions")?;
        if dimensions == Some(0) {
            let message = "dimensions must be at least 1";
            return Err(ValidationError::field("dimensions", 0, message));
        }
        let use_activation = take_activation(&mut fields, "normalize")?;
        let prompts = PromptOptions::take(&mut fields)?;
        fields.finish()?;
        Ok(Self {
            model,
            input,
            is_list,
            encoding_format,
            dimensions,
            use_activation,
            prompts,
        })
    }

    /// What the caller calls an input.
    pub(super) fn field(&self, index: usize) -> String {
        match self.is_list {
            true => format!("input[{index}]"),
            false => "input".to_owned(),
        }
    }

    /// About how many bytes there are to read.
    pub(super) fn num_bytes(&self) -> usize {
        let inputs = self.input.iter().map(|input| match input {
            EmbeddingInput::Text(text) => text.len(),
            EmbeddingInput::TokenIds(ids) => size_of_val(ids.as_slice()),
        });
        inputs.sum()
    }
}

/// Takes `use_activation`, or the older name that it has in a route.
pub(super) fn take_activation(
    fields: &mut Fields,
    older: &'static str,
) -> Result<Option<bool>, ValidationError> {
    let use_activation = fields.take("use_activation")?;
    match (use_activation, fields.take::<bool>(older)?) {
        (Some(_), Some(_)) => {
            let message =
                format!("use_activation and {older} are both given: leave out one of the two");
            Err(ValidationError::about(older, message))
        }
        (use_activation, older) => Ok(use_activation.or(older)),
    }
}

/// A text, a list of texts, tokens, or a list of lists of tokens; and whether it is a list of inputs.
fn read_input(value: Value) -> Result<(Vec<EmbeddingInput>, bool), ValidationError> {
    let elements = match value {
        Value::String(text) => return Ok((vec![EmbeddingInput::Text(text)], false)),
        Value::Array(elements) => elements,
        other => return Err(wrong_input("input", &other)),
    };
    match elements.first() {
        None => {
            let message = "input must hold at least one text";
            return Err(ValidationError::field("input", "[]", message));
        }
        Some(Value::Number(_)) => {
            let ids = read_token_ids("input", &elements)?;
            return Ok((vec![EmbeddingInput::TokenIds(ids)], false));
        }
        Some(_) => {}
    }
    check_count("input", elements.len())?;
    let read = |(i, element): (usize, Value)| match element {
        Value::String(text) => Ok(EmbeddingInput::Text(text)),
        Value::Array(ids) if !ids.is_empty() => {
            read_token_ids(&format!("input[{i}]"), &ids).map(EmbeddingInput::TokenIds)
        }
        other => Err(wrong_input(&format!("input[{i}]"), &other)),
    };
    let inputs: Result<_, _> = elements.into_iter().enumerate().map(read).collect();
    Ok((inputs?, true))
}

/// Refuses more texts than one request may have.
pub(super) fn check_count(field: &str, count: usize) -> Result<(), ValidationError> {
    if count <= MAX_INPUTS {
        return Ok(());
    }
    let message = format!("{field} must hold at most {MAX_INPUTS} texts, got {count}");
    Err(ValidationError::field(field, count, message))
}

fn read_token_ids(field: &str, ids: &[Value]) -> Result<Vec<u32>, ValidationError> {
    let id_of = |(i, value): (usize, &Value)| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| {
            let field = format!("{field}[{i}]");
            let value = cut_short(&number_text(value));
            let message = format!("{field} must be a token id, a whole number from 0, got {value}");
            ValidationError::field(field, value, message)
        })
    };
    ids.iter().enumerate().map(id_of).collect()
}

fn wrong_input(field: &str, value: &Value) -> ValidationError {
    let message = format!(
        "{field} must be a text or token ids, got {}",
        cut_short(&value.to_string())
    );
    ValidationError::field(field, value, message)
}

/// The answer to an [`EmbeddingRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmbeddingResponse {
    /// `embd-...`.
    pub id: String,
    /// `list`.
    pub object: String,
    /// Unix time in seconds.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// An embedding for each input, in their order.
    pub data: Vec<EmbeddingResponseData>,
    /// Tokens taken.
    pub usage: UsageInfo,
}

/// One embedding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmbeddingResponseData {
    /// Which input.
    pub index: u32,
    /// `embedding`.
    pub object: String,
    /// Its numbers.
    pub embedding: Embedding,
}

/// An embedding as it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Embedding {
    /// As numbers.
    Float(Vec<f32>),
    /// As base64 of 32-bit floats, the least byte first.
    Base64(String),
}

impl Embedding {
    /// A vector in a format.
    pub(super) fn new(vector: Vec<f32>, format: EncodingFormat) -> Self {
        match format {
            EncodingFormat::Float => Self::Float(vector),
            EncodingFormat::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|v| v.to_le_bytes()).collect();
                Self::Base64(base64::encode(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_form_of_input_is_read() {
        let read = |input: Value| EmbeddingRequest::from_json(json!({"input": input})).unwrap();
        let text = |text: &str| EmbeddingInput::Text(text.to_owned());
        assert_eq!(read(json!("a")).input, [text("a")]);
        assert_eq!(read(json!(["a", "b"])).input, [text("a"), text("b")]);
        let ids = EmbeddingInput::TokenIds(vec![1, 2]);
        assert_eq!(read(json!([1, 2])).input, std::slice::from_ref(&ids));
        assert_eq!(read(json!([[1, 2], "a"])).input, [ids, text("a")]);
        assert_eq!(read(json!("a")).field(0), "input");
        assert_eq!(read(json!(["a"])).field(0), "input[0]");
    }

    #[test]
    fn every_error_names_its_field() {
        for (body, parameter, part) in [
            (json!({}), "input", "missing"),
            (json!({"input": []}), "input", "at least one"),
            (json!({"input": 1}), "input", "got 1"),
            (json!({"input": ["a", {}]}), "input[1]", "got {}"),
            (json!({"input": ["a", []]}), "input[1]", "got []"),
            (json!({"input": [1, -2]}), "input[1]", "got -2"),
            (json!({"input": [[1], [1.5]]}), "input[1][0]", "got 1.5"),
            (json!({"input": vec!["a"; 2049]}), "input", "at most 2048"),
            (
                json!({"input": "a", "encoding_format": "hex"}),
                "encoding_format",
                "\"hex\"",
            ),
            (
                json!({"input": "a", "dimensions": 0}),
                "dimensions",
                "at least 1",
            ),
            (
                json!({"input": "a", "truncate_prompt_tokens": 0}),
                "truncate_prompt_tokens",
                "at least 1",
            ),
            (json!({"input": "a", "messages": []}), "messages", "input"),
            (
                json!({"input": "a", "use_activation": true, "normalize": true}),
                "normalize",
                "both given",
            ),
            (
                json!({"input": "a", "dimension": 5}),
                "dimension",
                "`dimensions`",
            ),
        ] {
            let error = EmbeddingRequest::from_json(body.clone()).unwrap_err();
            assert_eq!(error.parameter.as_deref(), Some(parameter), "{body}");
            assert!(error.to_string().contains(part), "{error}");
        }
        let body = json!({"input": "a", "user": "u", "model": "m", "encoding_format": "base64"});
        let request = EmbeddingRequest::from_json(body).unwrap();
        assert_eq!(request.encoding_format, EncodingFormat::Base64);
    }

    #[test]
    fn base64_holds_little_endian_floats() {
        let embedding = Embedding::new(vec![1.0, -2.5], EncodingFormat::Base64);
        assert_eq!(serde_json::to_value(embedding).unwrap(), "AACAPwAAIMA=");
        let embedding = Embedding::new(vec![0.1, 1e-9], EncodingFormat::Float);
        assert_eq!(serde_json::to_string(&embedding).unwrap(), "[0.1,1e-9]");
    }
}
