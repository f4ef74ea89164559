//! What serde finds wrong with JSON, in the words of those who write it.

use serde_json::Value;

use crate::error::cut_short;

/// Says what is wrong in JSON's words where serde has those of a Rust type; the line, which is
/// always the first, is left out.
pub(crate) fn json_problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let at = format!(" at line {} column {}", error.line(), error.column());
    let problem = text.strip_suffix(&at).unwrap_or(&text);
    match type_problem(problem) {
        Some(problem) => problem,
        None if problem.len() < text.len() => {
            let problem = match problem {
                "expected ident" => "expected null, true or false",
                // serde_json's own limit.
                "recursion limit exceeded" => "values are nested deeper than 128",
                problem => problem,
            };
            format!("{problem} at column {}", error.column())
        }
        None => problem.replacen("unknown variant", "unknown value", 1),
    }
}

/// A value as it was sent, where it is a whole number that 64 bits don't hold: every digit, up to where
/// digits would be many (10^21).
pub(crate) fn number_text(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if value.is_f64() => whole_text(number).unwrap_or_else(|| value.to_string()),
        _ => value.to_string(),
    }
}

/// The digits of a whole number from 2^63 to 10^21.
fn whole_text(number: f64) -> Option<String> {
    let is_long = (9_223_372_036_854_775_808.0..1e21).contains(&number.abs());
    is_long.then(|| format!("{number:.0}"))
}

/// `invalid type: string "x", expected u32` and the like.
fn type_problem(problem: &str) -> Option<String> {
    let found = problem.strip_prefix("invalid ")?;
    let (kind, found) = found.split_once(' ')?;
    let (found, expected) = found.rsplit_once(", expected ")?;
    let expected = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 up",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        expected if expected.starts_with("struct ") => "an object",
        expected => expected,
    };
    let found = match found {
        "map" => "an object",
        "sequence" => "a list",
        // Of a list that stands for a struct.
        _ if kind == "length" => "a list",
        found => match found.split_once('`') {
            // "integer `-1`"
            Some((kind, value)) if !kind.contains('"') => value.trim_end_matches('`'),
            _ => found.strip_prefix("string ").unwrap_or(found),
        },
    };
    let whole = found.contains('e').then(|| found.parse().ok()).flatten();
    let found = whole
        .and_then(whole_text)
        .unwrap_or_else(|| cut_short(found));
    Some(format!("expected {expected}, got {found}"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Map, Value, json};

    use super::*;

    fn problem<T: DeserializeOwned>(value: Value) -> String {
        json_problem(&serde_json::from_value::<T>(value).err().unwrap())
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Pair {
        #[serde(rename = "a")]
        _a: u32,
        #[serde(rename = "b")]
        _b: u32,
    }

    #[test]
    fn types_are_those_of_json() {
        let whole = "expected a whole number from 0 to 4294967295, got";
        for (got, wanted) in [
            (problem::<u32>(json!("two")), format!("{whole} \"two\"")),
            (problem::<u32>(json!("a`b")), format!("{whole} \"a`b\"")),
            (problem::<u32>(json!(-1)), format!("{whole} -1")),
            (problem::<u32>(json!(1.5)), format!("{whole} 1.5")),
            (
                problem::<u32>(json!(2_f64.powi(64))),
                format!("{whole} 18446744073709551616"),
            ),
            (
                problem::<Vec<u32>>(json!([1, true])),
                format!("{whole} true"),
            ),
            (
                problem::<u64>(json!(-1)),
                "expected a whole number from 0 up, got -1".to_owned(),
            ),
            (
                problem::<f32>(json!({})),
                "expected a number, got an object".to_owned(),
            ),
            (
                problem::<bool>(json!([])),
                "expected true or false, got a list".to_owned(),
            ),
            (
                problem::<Vec<u32>>(json!({})),
                "expected a list, got an object".to_owned(),
            ),
            (
                problem::<Pair>(json!("x")),
                "expected an object, got \"x\"".to_owned(),
            ),
            (
                problem::<Pair>(json!([])),
                "expected an object, got a list".to_owned(),
            ),
            (
                problem::<Pair>(json!({"a": 1})),
                "missing field `b`".to_owned(),
            ),
        ] {
            assert_eq!(got, wanted);
        }
    }

    #[test]
    fn texts_have_columns_and_no_line() {
        let problem = |text| {
            let error = serde_json::from_str::<Map<String, Value>>(text).unwrap_err();
            json_problem(&error)
        };
        assert_eq!(problem("[]"), "expected an object, got a list");
        assert_eq!(
            problem("not json"),
            "expected null, true or false at column 2"
        );
        assert_eq!(problem("hello"), "expected value at column 1");
        assert_eq!(problem("{"), "EOF while parsing an object at column 1");
    }
}
