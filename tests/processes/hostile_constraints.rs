//! Constraints that no engine can enforce.

use std::fmt::Write;

use protocol::StructuredOutputsConstraint::{self, Choice, Grammar, Json, Regex, StructuralTag};

/// Constraints that can't be enforced, and why.
pub(crate) fn hostile() -> Vec<(&'static str, StructuredOutputsConstraint)> {
    let mut deep = String::new();
    for _ in 0..5000 {
        deep.push_str(r#"{"properties": {"a": "#);
    }
    deep.push_str("{}");
    for _ in 0..5000 {
        deep.push_str("}}");
    }
    let mut many = String::from(r#"{"properties": {"#);
    for index in 0..200_000 {
        let _ = write!(many, r#""p{index}": {{"type": "string"}},"#);
    }
    many.push_str(r#""z": {}}}"#);
    let text = str::to_owned;
    vec![
        ("no JSON", Json(text("{"))),
        ("empty text", Json(String::new())),
        ("deep", Json(deep)),
        ("large", Json(many)),
        ("empty enum", Json(text(r#"{"enum": []}"#))),
        (
            "contradiction",
            Json(text(
                r#"{"type": "string", "minLength": 9, "maxLength": 2}"#,
            )),
        ),
        ("a reference to itself", Json(text(r##"{"$ref": "#"}"##))),
        (
            "an array without end",
            Json(text(
                r##"{"type": "array", "minItems": 1, "items": {"$ref": "#"}}"##,
            )),
        ),
        (
            "a reference to nothing",
            Json(text(r##"{"$ref": "#/$defs/a"}"##)),
        ),
        (
            "a reference elsewhere",
            Json(text(r#"{"$ref": "http://localhost/a"}"#)),
        ),
        ("no type", Json(text(r#"{"type": "strnig"}"#))),
        ("no regex", Regex(text("("))),
        ("a million letters", Regex(text("(a{1000}){1000}"))),
        ("no root", Grammar(text("start ::= \"a\""))),
        ("no start", Grammar(text("root: \"a\""))),
        (
            "a sentence without end",
            Grammar(text("root ::= \"a\" root")),
        ),
        (
            "no tag",
            StructuralTag(text(r#"{"type": "structural_tag"}"#)),
        ),
        ("a back-reference", Regex(text(r"(a)\1"))),
        ("groups", Regex("(".repeat(100_000) + &")".repeat(100_000))),
        ("no text", Regex(text("[^\\x00-\\U0010FFFF]"))),
        ("nothing to choose from", Choice(Vec::new())),
        ("too long", Choice(vec!["a".repeat(2 << 20)])),
    ]
}
