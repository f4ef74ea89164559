//! Sampling parameters: read from JSON by the reader of `/inference/v1/generate`, which knows vLLM's names, checks each
//! value and refuses an unknown field.

use std::time::Instant;

use engine_frontend::openai::{ChatCompletionRequest, DefaultSamplingParams, TokenGenerateRequest};
use engine_frontend::{
    GenerateRequest, ModelLimits, Prompt, RequestOutputKind, ValidationError, verify,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::validation_error;

/// Limits of no model: what is checked under these is wrong for each.
const NO_LIMITS: ModelLimits = ModelLimits {
    max_model_len: u32::MAX,
    vocab_size: u32::MAX,
    max_logprobs: -1,
};

/// Sampling parameters that were read.
#[pyclass(frozen, module = "formwork._engine")]
pub(crate) struct Params {
    /// A request with these, and no prompt yet.
    template: GenerateRequest,
    warnings: Vec<String>,
}

#[pymethods]
impl Params {
    /// Reads parameters from a JSON object with vLLM's names. Beside it stands what that object doesn't have:
    /// `output_kind` is that of `RequestOutputKind`, 0, 1 or 2. Raises `ValidationError` about the first field that is
    /// wrong whatever the model is.
    #[new]
    #[pyo3(signature = (json, *, detokenize, output_kind, truncate_prompt_tokens))]
    fn new(
        py: Python<'_>,
        json: &str,
        detokenize: bool,
        output_kind: u8,
        truncate_prompt_tokens: Option<i64>,
    ) -> PyResult<Self> {
        let output_kind = match output_kind {
            0 => RequestOutputKind::Cumulative,
            1 => RequestOutputKind::Delta,
            2 => RequestOutputKind::FinalOnly,
            other => {
                let message = format!("output_kind must be 0, 1 or 2, got {other}");
                return Err(PyValueError::new_err(message));
            }
        };
        let mut read =
            Self::read(json, output_kind).map_err(|error| validation_error(py, &error))?;
        read.template.sampling_params.detokenize = detokenize;
        read.template.truncate_prompt_tokens = truncate_prompt_tokens;
        let verified = verify(&mut read.template.sampling_params.clone(), &NO_LIMITS);
        verified.map_err(|error| validation_error(py, &error))?;
        Ok(read)
    }

    /// Parameters that have no effect, as sentences.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

impl Params {
    fn read(json: &str, output_kind: RequestOutputKind) -> Result<Self, ValidationError> {
        let sampling = parse("sampling_params", json)?;
        let body = json!({"token_ids": [0], "sampling_params": sampling});
        let mut read = TokenGenerateRequest::from_json(body)?;
        let mut template = read.take_generate_request("", &DefaultSamplingParams::default());
        // The route's own, of which this prompt may be none.
        template.prompt_field = None;
        let params = &mut template.sampling_params;
        params.output_kind = output_kind;
        Ok(Self {
            template,
            warnings: read.common.warnings.texts(),
        })
    }

    /// The request for one prompt, which arrives now. `seed` is for parameters without one.
    pub(crate) fn request(
        &self,
        request_id: String,
        prompt: Prompt,
        priority: i64,
        seed: Option<u64>,
    ) -> GenerateRequest {
        let mut request = GenerateRequest {
            request_id,
            add_special_tokens: !matches!(prompt, Prompt::Chat(_)),
            prompt,
            priority,
            arrival: Instant::now(),
            ..self.template.clone()
        };
        let params = &mut request.sampling_params;
        params.seed = params.seed.or(seed);
        request
    }
}

/// A conversation as a prompt: `messages` and options of the template, read as `/v1/chat/completions` reads them.
///
/// # Errors
/// The first field that is wrong, by name.
pub(crate) fn chat_prompt(json: &str) -> Result<Prompt, ValidationError> {
    let body = parse("messages", json)?;
    Ok(ChatCompletionRequest::from_json(body)?.take_prompt())
}

fn parse(field: &str, json: &str) -> Result<Value, ValidationError> {
    serde_json::from_str(json)
        .map_err(|error| ValidationError::about(field, format!("{field}: {error}")))
}
