//! Members of which several schemas say different texts, before what tells them apart: whole documents are
//! served within the steps that a call may take.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod byte_vocabulary;

use serde_json::{Value, json};
use structured_output::{
    CompiledGrammar, CompilerOptions, GrammarMatcher, JsonSchemaOptions, PropertyOrder,
};

/// Objects of which several schemas say different texts of a `value`, with a tag that tells them apart.
fn tagged(texts: &[Value]) -> Vec<Value> {
    let branches = texts.iter().enumerate().map(|(at, text)| {
        let properties = json!({"value": text, "type": {"const": format!("t{at}")}});
        json!({"type": "object", "properties": properties, "required": ["value", "type"]})
    });
    branches.collect()
}

/// What a text must be in each of some countries.
fn postal_codes(begin: &str, end: &str) -> Value {
    let patterns = [
        "[0-9]{5}(-[0-9]{4})?",
        "[A-Z][0-9][A-Z] [0-9][A-Z][0-9]",
        "[0-9]{4}[A-Z]{2}",
        "[0-9]{3}-[0-9]{4}",
        "[A-Z]{1,2}[0-9R][0-9A-Z]? [0-9][A-Z]{2}",
        "\\d{2}-\\d{3}",
        "[0-9]{3} ?[0-9]{2}",
        "AD\\d{3}",
    ];
    let conditions = patterns.iter().enumerate().map(|(at, pattern)| {
        json!({
            "if": {"properties": {"type": {"const": format!("t{at}")}}},
            "then": {"properties": {"value": {"pattern": format!("{begin}{pattern}{end}")}}},
        })
    });
    json!({
        "type": "object",
        "properties": {"value": {"type": "string"}, "type": {"type": "string"}},
        "required": ["value", "type"],
        "allOf": conditions.collect::<Vec<_>>(),
    })
}

/// Whether a grammar takes a text, with a mask at each byte.
fn takes(grammar: &CompiledGrammar, text: &str) -> bool {
    let mut matcher = GrammarMatcher::new(grammar);
    for byte in text.bytes().map(u32::from) {
        let is_allowed = matcher.next_token_mask().unwrap().is_allowed(byte);
        assert_eq!(matcher.accept_token(byte).unwrap(), is_allowed, "{text}");
        if !is_allowed {
            return false;
        }
    }
    matcher.next_token_mask().unwrap();
    matcher.is_completed()
}

/// A member that stands before what tells the schemas apart that speak of it.
#[test]
fn texts_of_which_several_schemas_speak_are_served() {
    let formats = ["date-time", "email", "uri", "hostname"];
    let formats = formats.map(|format| json!({"type": "string", "format": format}));
    let formats = tagged(&formats);
    let sizes: Vec<Value> = (1..=200)
        .map(|length| json!({"type": "string", "maxLength": length}))
        .collect();
    let found: Vec<Value> = (0..12)
        .map(|at| json!({"pattern": format!("[a-z]+{at}\\d{{4}}|x{at}+y")}))
        .collect();
    let cases = [
        (
            json!({"anyOf": formats}),
            &["b.example t3", "a@b.example t1", "a:b@c t2"][..],
            &["b.example t1", "a@b.example t2"][..],
        ),
        (
            json!({"oneOf": formats}),
            &["b.example t3", "a:b@c t2"],
            &["b.example t1", "b.example t4"],
        ),
        (
            json!({"allOf": [{"properties": {"id": {"type": "integer"}}}, {"anyOf": formats}]}),
            &["2024-02-29T00:00:00Z t0"],
            &["2023-02-29T00:00:00Z t0"],
        ),
        (
            postal_codes("", ""),
            &["a12345 t0", "a12345 t6", "- other"],
            &["a12345 t3", "- t7"],
        ),
        (
            postal_codes("^", "$"),
            &["12345 t0", "12345 t6", "- other"],
            &["a12345 t0", "- t7"],
        ),
        (
            json!({"oneOf": tagged(&sizes)}),
            &["abc t2", "abc t150", " t0"],
            &["abc t1", "abc t200"],
        ),
        (
            json!({"anyOf": tagged(&found)}),
            &["ax3y t3", "aa71234 t7"],
            &["ax3y t7"],
        ),
    ];
    for (schema, valid, invalid) in cases {
        for property_order in [PropertyOrder::Schema, PropertyOrder::Any] {
            let options = JsonSchemaOptions {
                property_order,
                ..JsonSchemaOptions::default()
            };
            let grammar = byte_vocabulary::compiler(CompilerOptions::default())
                .compile_json_schema(&schema.to_string(), &options)
                .unwrap();
            for (texts, is_valid) in [(valid, true), (invalid, false)] {
                for text in texts {
                    let (value, tag) = text.split_once(' ').unwrap();
                    let text = format!(r#"{{"value":"{value}","type":"{tag}"}}"#);
                    assert_eq!(takes(&grammar, &text), is_valid, "{text}");
                }
            }
        }
    }
}
