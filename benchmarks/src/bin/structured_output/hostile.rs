//! Grammars made to take long.

use protocol::{StructuredOutputsConstraint, StructuredOutputsParams};

/// How many of [`constraints`] are let in, mostly, and take long at each token.
pub(crate) const NUM_RUNNING: usize = 4;
/// How many of them take long before that.
pub(crate) const NUM_COMPILING: usize = 2;

/// A set of them, another for each number. Of those that run none has to be complete: then how long
/// they are is not asked beforehand.
pub(crate) fn constraints(number: usize) -> Vec<StructuredOutputsParams> {
    let regex = |pattern: String| StructuredOutputsConstraint::Regex(pattern);
    let json = |schema: String| StructuredOutputsConstraint::Json(schema);
    let open_ended = |constraint| StructuredOutputsParams {
        complete_within_max_tokens: false,
        ..StructuredOutputsParams::new(constraint)
    };
    let look_aheads = |num: u8| -> String {
        (b'a'..)
            .take(usize::from(num))
            .map(char::from)
            .map(|letter| format!("(?=.*[{letter}-z]{{2,30}}.*{letter}{number})"))
            .collect()
    };
    vec![
        open_ended(regex(format!("(.{{0,5000}}x){{200}}{number}"))),
        open_ended(json(one_of(200, number))),
        open_ended(json(distinct_items(3000, 0, number))),
        open_ended(regex(format!("{}[a-z0-9 ]{{9,900}}", look_aheads(4)))),
        StructuredOutputsParams::new(regex(format!("{}.*", look_aheads(11)))),
        StructuredOutputsParams::new(json(distinct_items(3000, 20, number))),
    ]
}

/// One of many objects with patterns, which overlap.
fn one_of(num_branches: usize, number: usize) -> String {
    let branches: Vec<String> = (0..num_branches)
        .map(|branch| {
            format!(
                r#"{{"type": "object", "required": ["b"], "properties": {{
                    "k{branch}": {{"pattern": "^[a-{}]{{1,{}}}x{branch}$"}},
                    "b": {{"pattern": "^(a|b{branch}|{number})*c$"}}}}}}"#,
                char::from(b'b' + (branch % 20) as u8),
                3 + branch % 17,
            )
        })
        .collect();
    format!(r#"{{"oneOf": [{}]}}"#, branches.join(", "))
}

/// Distinct items out of many values.
fn distinct_items(num_values: usize, min_items: usize, number: usize) -> String {
    let values: Vec<String> = (0..num_values)
        .map(|value| format!("\"value{value}-{number}\""))
        .collect();
    format!(
        r#"{{"type": "array", "uniqueItems": true, "minItems": {min_items}, "items": {{"enum": [{}]}}}}"#,
        values.join(", ")
    )
}
