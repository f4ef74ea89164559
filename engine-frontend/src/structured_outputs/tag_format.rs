//! Constraints as parts of structural tags: beside tools, and behind thinking that plain text marks.

use protocol::{StructuredOutputsConstraint, StructuredOutputsParams};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::reasoning::ThinkingMarkers;
use crate::error::ValidationError;
use crate::json_problem::json_problem;

/// A structural tag of which the format alone is read, as text: as values, schemas would take many times the memory.
#[derive(Deserialize)]
struct StructuralTag {
    #[serde(default)]
    format: Option<Box<RawValue>>,
}

/// A constraint as a format of structural tags. `field` is what its request calls it; `beside` says where it stands, for
/// errors.
///
/// # Errors
/// It has options that formats don't have, or is a structural tag of the older form.
pub(crate) fn tag_format(
    params: &StructuredOutputsParams,
    field: &str,
    beside: &str,
) -> Result<Box<RawValue>, ValidationError> {
    use StructuredOutputsConstraint as Constraint;
    let plain = StructuredOutputsParams {
        constraint: Constraint::JsonObject,
        complete_within_max_tokens: params.complete_within_max_tokens,
        enable_in_reasoning: params.enable_in_reasoning,
        ..StructuredOutputsParams::new(Constraint::JsonObject)
    };
    let has_options = params.whitespace != plain.whitespace
        || params.property_order != plain.property_order
        || params.disable_additional_properties;
    if has_options {
        let message = format!(
            "options for white space, properties' order and additional properties are not available {beside}"
        );
        return Err(ValidationError::about(field, message));
    }
    let wrong = |text: &str, error: serde_json::Error| {
        let message = format!("{field}: {}", json_problem(&error));
        ValidationError::field(field, text, message)
    };
    let format = match &params.constraint {
        Constraint::Json(schema) => {
            let schema: &RawValue =
                serde_json::from_str(schema).map_err(|error| wrong(schema, error))?;
            RawValue::from_string(format!(
                r#"{{"type":"json_schema","json_schema":{schema}}}"#
            ))
        }
        Constraint::JsonObject => {
            to_raw_value(&json!({"type": "json_schema", "json_schema": {"type": "object"}}))
        }
        Constraint::Regex(pattern) => to_raw_value(&json!({"type": "regex", "pattern": pattern})),
        Constraint::Grammar(grammar) => {
            to_raw_value(&json!({"type": "grammar", "grammar": grammar}))
        }
        Constraint::Choice(choices) => {
            let texts = choices.iter();
            let texts = texts.map(|text| json!({"type": "const_string", "value": text}));
            to_raw_value(&json!({"type": "or", "elements": texts.collect::<Vec<_>>()}))
        }
        Constraint::StructuralTag(tag) => {
            let read: StructuralTag =
                serde_json::from_str(tag).map_err(|error| wrong(tag, error))?;
            let format = read.format.filter(|format| format.get() != "null");
            return format.ok_or_else(|| {
                let message = format!("a structural tag {beside} must have a format");
                ValidationError::field(field, tag, message)
            });
        }
    };
    format.map_err(|error| ValidationError::about(field, error.to_string()))
}

/// Where the answer stands in a tag of [`behind_thinking`]: a JSON pointer.
pub(crate) const PLACE_BEHIND_THINKING: &str = "/format/elements/1";

/// A constraint on an answer together with the thinking before it, which plain text marks: the thinking is any text
/// without what closes it. `is_open` says whether the prompt has opened thinking, which the output may do otherwise.
/// Without thinking no header comes.
///
/// So a token may end what closes thinking and begin the answer, as in any grammar.
///
/// # Errors
/// Those of [`tag_format`].
pub(crate) fn behind_thinking(
    params: &StructuredOutputsParams,
    markers: &ThinkingMarkers,
    is_open: bool,
    field: &str,
) -> Result<StructuredOutputsParams, ValidationError> {
    const BESIDE: &str = "behind thinking that plain text marks";
    let answer = tag_format(params, field, BESIDE)?;
    let const_string = |text: &str| json!({"type": "const_string", "value": text});
    let ends: Vec<&str> = markers.ends().collect();
    let any_text =
        json!({"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": ends});
    let mut thinking = vec![any_text];
    if !markers.answer.is_empty() {
        thinking.push(const_string(&markers.answer));
    }
    if !is_open {
        let starts: Vec<_> = markers.starts().map(const_string).collect();
        thinking.insert(0, json!({"type": "or", "elements": starts}));
    }
    let mut thinking = json!({"type": "sequence", "elements": thinking});
    if !is_open {
        thinking = json!({"type": "optional", "content": thinking});
    }
    let tag = format!(
        r#"{{"type":"structural_tag","format":{{"type":"sequence","elements":[{thinking},{answer}]}}}}"#
    );
    Ok(StructuredOutputsParams {
        complete_within_max_tokens: params.complete_within_max_tokens,
        enable_in_reasoning: params.enable_in_reasoning,
        ..StructuredOutputsParams::new(StructuredOutputsConstraint::StructuralTag(tag))
    })
}

#[cfg(test)]
mod tests;
