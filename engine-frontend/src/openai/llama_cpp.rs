//! Fields that clients of llama.cpp's server send to its OpenAI routes.
//!
//! Its constraints (`grammar`, `json_schema`) are read with the others; here is the rest: what has
//! another name, and samplers that only pass where they are off.

use serde_json::Value;

use super::fields::Fields;
use crate::error::ValidationError;

/// Fields that may only say that they are off, and those that have no meaning then.
const OFF: [(&str, f64, &[&str]); 9] = [
    ("repeat_penalty", 1.0, &[]),
    ("typical_p", 1.0, &[]),
    ("top_n_sigma", -1.0, &[]),
    ("mirostat", 0.0, &["mirostat_tau", "mirostat_eta"]),
    ("dynatemp_range", 0.0, &["dynatemp_exponent"]),
    ("xtc_probability", 0.0, &["xtc_threshold"]),
    (
        "dry_multiplier",
        0.0,
        &[
            "dry_base",
            "dry_allowed_length",
            "dry_penalty_last_n",
            "dry_sequence_breakers",
        ],
    ),
    ("n_probs", 0.0, &["min_keep"]),
    ("t_max_predict_ms", 0.0, &[]),
];

/// Additions to the answer, which must be off too.
const FLAGS: [&str; 3] = [
    "timings_per_token",
    "post_sampling_probs",
    "return_progress",
];

/// What to send instead; of the others there is nothing.
const INSTEAD: [(&str, &str); 3] = [
    (
        "repeat_penalty",
        "use repetition_penalty, which looks at all tokens",
    ),
    ("n_probs", "use logprobs"),
    ("t_max_predict_ms", "use max_tokens"),
];

/// Takes these fields out of a request.
///
/// # Errors
/// One of them asks for what this engine hasn't got.
pub(super) fn take(fields: &mut Fields) -> Result<(), ValidationError> {
    for (name, off, details) in OFF {
        let is_off = |value: &Value| value.as_f64() == Some(off);
        fields.refuse_unless(name, instead_of(name), is_off)?;
        for name in details {
            fields.take_value(name);
        }
    }
    for name in FLAGS {
        fields.refuse_unless(name, "leave it out", |value| value == false)?;
    }
    let instead = "thinking is told apart wherever the model thinks, unless the server was started with \
                   --reasoning-parser none";
    fields.refuse_unless("reasoning_format", instead, |value| {
        value == "auto" || value == "deepseek"
    })
}

/// The last tokens that a penalty looks at; here it looks at all of them.
const REPEAT_LAST_N: &str = "repeat_last_n";

/// Takes `repeat_last_n`, which means nothing without a penalty; -1 is all tokens.
///
/// # Errors
/// There is a penalty, which would look at other tokens.
pub(super) fn take_repeat_last_n(
    fields: &mut Fields,
    has_penalty: bool,
) -> Result<(), ValidationError> {
    let instead = "penalties look at all tokens, as with -1; leave it out";
    fields.refuse_unless(REPEAT_LAST_N, instead, |value| !has_penalty || value == -1)
}

/// The other name of `max_tokens`.
pub(super) const N_PREDICT: &str = "n_predict";

/// Takes `n_predict`; -1 is no limit.
///
/// # Errors
/// It is no number of tokens, or `max_tokens` is there too.
pub(super) fn take_n_predict(
    fields: &mut Fields,
    max_tokens: Option<u32>,
) -> Result<Option<u32>, ValidationError> {
    const FIELD: &str = N_PREDICT;
    let Some(value) = fields.take::<i64>(FIELD)? else {
        return Ok(None);
    };
    if max_tokens.is_some() {
        let message = format!("{FIELD} and max_tokens are one field: give one of them");
        return Err(ValidationError::field(FIELD, value, message));
    }
    match u32::try_from(value) {
        Ok(limit) if limit > 0 => Ok(Some(limit)),
        _ if value == -1 => Ok(None),
        _ => {
            let message = format!("{FIELD} must be a number of tokens, or -1 for no limit");
            Err(ValidationError::field(FIELD, value, message))
        }
    }
}

fn instead_of(name: &str) -> &'static str {
    let hint = INSTEAD.iter().find(|(hinted, _)| *hinted == name);
    hint.map_or("use temperature, top_p, top_k or min_p", |(_, instead)| {
        *instead
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn body(fields: &[(&str, Value)]) -> Fields {
        let map: Map<String, Value> = fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        Fields::new(map.into()).unwrap()
    }

    #[test]
    fn what_is_off_passes_with_its_details() {
        let mut fields = body(&[
            ("cache_prompt", json!(true)),
            ("id_slot", json!(-1)),
            ("repeat_penalty", json!(1.0)),
            ("repeat_last_n", json!(64)),
            ("mirostat", json!(0)),
            ("mirostat_tau", json!(5.0)),
            ("dry_multiplier", json!(0.0)),
            ("dry_sequence_breakers", json!(["\n"])),
            ("timings_per_token", json!(false)),
            ("reasoning_format", json!("auto")),
        ]);
        take(&mut fields).unwrap();
        take_repeat_last_n(&mut fields, false).unwrap();
        fields.finish().unwrap();
    }

    #[test]
    fn the_page_has_the_table() {
        let page = include_str!("../../../docs/ignored-fields.md");
        for (name, off, details) in OFF {
            let details: Vec<String> = details.iter().map(|name| format!("`{name}`")).collect();
            let line = format!("| `{name}` | `{off}` | {} |", details.join(", "));
            assert!(page.contains(&line), "{line}");
        }
    }

    #[test]
    fn a_penalty_looks_at_all_tokens() {
        let take = |n: i64| take_repeat_last_n(&mut body(&[(REPEAT_LAST_N, json!(n))]), true);
        assert_eq!(take(-1), Ok(()));
        let error = take(64).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some(REPEAT_LAST_N));
    }

    #[test]
    fn what_is_on_is_refused_by_name() {
        for (name, value) in [
            ("repeat_penalty", json!(1.1)),
            ("n_probs", json!(5)),
            ("mirostat", json!(2)),
            ("top_n_sigma", json!(0)),
            ("timings_per_token", json!(true)),
            ("reasoning_format", json!("none")),
        ] {
            let error = take(&mut body(&[(name, value)])).unwrap_err();
            assert_eq!(error.parameter.as_deref(), Some(name));
            let says = format!("{name} is not supported: ");
            assert!(error.message.starts_with(&says), "{error}");
            let hint = INSTEAD.iter().find(|(hinted, _)| *hinted == name);
            assert!(hint.is_none_or(|(_, instead)| error.message.ends_with(instead)));
        }
    }

    #[test]
    fn n_predict_is_max_tokens() {
        let take = |value: i64, max| take_n_predict(&mut body(&[("n_predict", json!(value))]), max);
        assert_eq!(take(5, None), Ok(Some(5)));
        assert_eq!(take(-1, None), Ok(None));
        assert_eq!(take_n_predict(&mut body(&[]), Some(7)), Ok(None));
        for (value, max) in [(0, None), (-2, None), (1 << 40, None), (5, Some(5))] {
            let error = take(value, max).unwrap_err();
            assert_eq!(error.parameter.as_deref(), Some("n_predict"));
        }
    }
}
