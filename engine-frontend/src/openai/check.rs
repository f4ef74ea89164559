//! `/formwork/v1/check`: what a constraint says, without a model.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use structured_output::{CancelFlag, CompileError};

use super::error::ServingError;
use super::fields::Fields;
use super::serving::OpenAIServing;
use super::structured_outputs::{self, ConstraintSettings, RequestConstraint};
use super::tool_choice::{ToolChoice, take_tool_choice};
use super::tools::{self, take_tools};
use super::warnings::Warnings;
use crate::error::{ErrorLocation, ValidationError};
use crate::input_processor::{CallersFields, ConstraintPart};
use crate::structured_outputs::{ReportError, TextFit, refused};

/// Longest text that is held against a constraint, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// A request for `/formwork/v1/check`.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckRequest {
    /// The model asked for.
    pub model: Option<String>,
    /// The constraint.
    constraint: Option<RequestConstraint>,
    settings: Option<ConstraintSettings>,
    tools: Option<Vec<Value>>,
    tool_choice: ToolChoice,
    parallel_tool_calls: bool,
    /// An answer, or its beginning.
    text: Option<String>,
    warnings: Warnings,
}

impl CheckRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The first field that is missing, unknown or wrong, by name; no constraint at all.
    pub fn from_json(body: Value) -> Result<Self, ValidationError> {
        let mut fields = Fields::new(body)?;
        let taken = structured_outputs::take(&mut fields)?;
        let tools = take_tools(&mut fields)?;
        let tool_choice = take_tool_choice(&mut fields, tools.as_deref())?;
        let request = Self {
            model: fields.take("model")?,
            constraint: taken.constraint,
            settings: taken.settings,
            tools,
            tool_choice,
            parallel_tool_calls: fields.take("parallel_tool_calls")?.unwrap_or(true),
            text: fields.take("text")?,
            warnings: fields.finish()?,
        };
        request.verify()?;
        Ok(request)
    }

    fn verify(&self) -> Result<(), ValidationError> {
        if self.constraint.is_none() && self.tool_choice == ToolChoice::None {
            if let Some(settings) = &self.settings {
                return Err(settings.without_constraint());
            }
            let message = "there is no constraint to check: give structured_outputs, response_format, a \
                           guided_* field, or tools that may be called";
            return Err(ValidationError::about("structured_outputs", message));
        }
        let bytes = self.text.as_ref().map_or(0, String::len);
        if bytes > MAX_TEXT_BYTES {
            let message = format!("text must be at most {MAX_TEXT_BYTES} bytes long, got {bytes}");
            return Err(ValidationError::field("text", bytes, message));
        }
        Ok(())
    }
}

/// The answer to a [`CheckRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckResponse {
    /// True if answers can be held to the constraint.
    pub enforced: bool,
    /// What it is: `json`, `json_object`, `regex`, `choice`, `grammar`, `structural_tag` or `tools`.
    pub kind: String,
    /// Parts of it that have no effect.
    pub warnings: Vec<String>,
    /// Why it is refused, or why no more was found out.
    pub error: Option<CheckError>,
    /// Keywords of its schemas that are enforced.
    pub keywords: Vec<String>,
    /// States of its automaton over single bytes.
    pub num_states: usize,
    /// Bytes that these take.
    pub bytes: usize,
    /// Milliseconds that it took to compile.
    pub compile_ms: f64,
    /// A shortest text.
    pub shortest: Option<String>,
    /// Some text.
    pub sample: Option<String>,
    /// How far the request's text fits.
    pub text: Option<TextFit>,
}

/// Why a constraint is refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckError {
    /// For people.
    pub message: String,
    /// The JSON pointer to the part at fault, in a schema or a structural tag.
    pub pointer: Option<String>,
    /// Its line, in a pattern, a grammar or a schema that is no JSON; from 1.
    pub line: Option<u64>,
    /// Its column in characters, from 1.
    pub column: Option<u64>,
}

impl OpenAIServing {
    /// Finds out what a constraint says. One that is refused is an answer too.
    ///
    /// # Errors
    /// The request names another model, or tools that can't be called as it wants.
    pub async fn check(&self, request: CheckRequest) -> Result<CheckResponse, ServingError> {
        self.check_model(request.model.as_deref())?;
        let size = tools::bytes_to_read(request.tools.as_deref(), request.constraint.as_ref());
        let format = self.tool_call_format();
        let mut request = request;
        let put_together = move |_: &CancelFlag| {
            let tools = tools::constraint(
                &request.tool_choice,
                request.tools.as_deref().unwrap_or_default(),
                request.parallel_tool_calls,
                format,
                request.constraint.as_ref(),
            );
            // They take more memory than their constraint, which is compiled next.
            request.tools = None;
            (request, tools)
        };
        let (request, tools) = self.engine().run_by_size(size, put_together).await?;
        let tools = tools?;
        let has_tools = tools.is_some();
        let constraint = tools.map(|tools| tools.constraint).or(request.constraint);
        let Some(constraint) = constraint else {
            let message = "tools without a tool_choice put no constraint on answers";
            return Err(ValidationError::about("tool_choice", message).into());
        };
        let kind = match constraint.params.constraint.specification().0 {
            _ if has_tools => "tools",
            "json_schema" => "json",
            kind => kind,
        };
        let mut response = CheckResponse {
            enforced: false,
            kind: kind.to_owned(),
            warnings: request.warnings.texts(),
            error: None,
            keywords: Vec::new(),
            num_states: 0,
            bytes: 0,
            compile_ms: 0.0,
            shortest: None,
            sample: None,
            text: None,
        };
        let params = constraint.params.clone();
        let (keywords, report) = self.engine().report(params, request.text).await?;
        match report {
            Ok(report) => {
                response.enforced = true;
                response.keywords = keywords;
                response.num_states = report.num_states;
                response.bytes = report.num_bytes;
                // To the microsecond.
                response.compile_ms = (report.compile_time.as_secs_f64() * 1e6).round() / 1e3;
                response.shortest = Some(report.shortest);
                response.sample = Some(report.sample);
                response.text = report.text;
            }
            Err(error) => response.error = Some(check_error(&constraint, &error)),
        }
        Ok(response)
    }
}

/// The error in the words of whoever sent the constraint.
fn check_error(constraint: &RequestConstraint, error: &ReportError) -> CheckError {
    let error = match error {
        ReportError::Compile(error) => error,
        ReportError::Matcher(error) => {
            return CheckError {
                message: format!("texts under it take too long to find for a check: {error}"),
                ..CheckError::default()
            };
        }
    };
    if let CompileError::LimitExceeded { limit, .. } = error
        && matches!(
            *limit,
            "max_states" | "max_bytes" | "max_steps" | "max_mask_bytes" | "cache_bytes"
        )
    {
        return CheckError {
            message: format!(
                "it is too large to be checked here ({limit}); requests with it may be served all the same, \
                 since the engine has more room for them"
            ),
            ..CheckError::default()
        };
    }
    let fields = CallersFields {
        constraint: constraint.field.clone(),
        places: constraint
            .parts
            .iter()
            .map(ConstraintPart::named_place)
            .collect(),
        max_tokens: String::new(),
        whitespace_pattern: constraint.whitespace_field.clone().unwrap_or_default(),
    };
    let error = fields.translate(&refused(error));
    let found = CheckError {
        message: error.message,
        ..CheckError::default()
    };
    match error.details.and_then(|details| details.location) {
        Some(ErrorLocation::Pointer { pointer }) => CheckError {
            pointer: Some(pointer),
            ..found
        },
        Some(ErrorLocation::LineColumn { line, column }) => CheckError {
            line: Some(line),
            column: Some(column),
            ..found
        },
        None => found,
    }
}
