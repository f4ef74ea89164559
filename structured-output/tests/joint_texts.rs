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

/// Where the values of which several schemas speak are.
const PAYLOADS: [fn(Value) -> Value; 4] = [
    |text| text,
    |text| json!({"type": "array", "items": text}),
    |text| json!({"type": "object", "properties": {"v": text}, "required": ["v"]}),
    |text| json!({"properties": {"list": {"items": {"properties": {"v": text}}}}}),
];

/// A text within them.
const PLACES: [[&str; 2]; 4] = [
    ["", ""],
    ["[\"1.2.3.4\",", "]"],
    ["{\"v\":", "}"],
    ["{\"list\":[{\"v\":\"1.2.3.4\"},{\"v\":", "}]}"],
];

/// Tags of a few kinds, and a value of each. Some have values in common with the next one.
fn tags(number: usize, at: usize) -> (Value, String) {
    let schema = match number {
        0 => json!({"const": at}),
        1 => json!({"minimum": 10 * at, "exclusiveMaximum": 10 * at + 10, "type": "integer"}),
        2 => json!({"enum": [format!("t{at}"), format!("t{}", at + 1), at]}),
        3 => json!({"type": "string", "pattern": format!("^t{at}:")}),
        4 => json!({"const": [at]}),
        5 => json!({"type": "object", "properties": {"of": {"const": at}}, "required": ["of"]}),
        _ => match at {
            0 => json!({"type": "null"}),
            1 => json!({"type": "boolean"}),
            2 => json!({"type": "array"}),
            3 => json!({"type": "number"}),
            _ => json!({"const": format!("t{at}")}),
        },
    };
    let tag = match number {
        0 | 2 => at.to_string(),
        1 => (10 * at + 3).to_string(),
        3 => format!("\"t{at}:\""),
        4 => format!("[{at}]"),
        5 => format!("{{\"of\":{at}}}"),
        _ => match at {
            0 => "null".to_owned(),
            1 => "true".to_owned(),
            2 => "[]".to_owned(),
            3 => "1".to_owned(),
            _ => format!("\"t{at}\""),
        },
    };
    (schema, tag)
}

/// Tags of any kind, behind values at any depth.
#[test]
fn tags_of_any_kind_come_behind_values_at_any_depth() {
    let formats = [
        "ipv4",
        "date-time",
        "time",
        "date",
        "uri",
        "uuid",
        "ipv6",
        "hostname",
        "duration",
        "email",
    ];
    let texts = ["1.2.3.4", "2024-02-29", "a:b", "a.b", "::1"];
    // By format, which of the texts are such.
    let holds = |format: &str, text: &str| match format {
        "ipv4" => text == "1.2.3.4",
        "date" => text == "2024-02-29",
        "uri" => ["a:b"].contains(&text),
        "ipv6" => text == "::1",
        "hostname" => ["1.2.3.4", "2024-02-29", "a.b"].contains(&text),
        _ => false,
    };
    for ((payload, [before, after]), number) in PAYLOADS
        .iter()
        .zip(PLACES)
        .flat_map(|place| (0..7).map(move |number| (place, number)))
    {
        for combination in ["anyOf", "oneOf", "if"] {
            let branches = formats.iter().enumerate().map(|(at, format)| {
                let value = payload(json!({"type": "string", "format": format}));
                let tag = tags(number, at).0;
                match combination {
                    "if" => json!({
                        "if": {"properties": {"type": tag}},
                        "then": {"properties": {"value": value}},
                    }),
                    _ => json!({"properties": {"value": value, "type": tag}}),
                }
            });
            let branches: Vec<Value> = branches.collect();
            let combination = if combination == "if" {
                "allOf"
            } else {
                combination
            };
            let schema =
                json!({"type": "object", "required": ["value", "type"], combination: branches});
            let options = JsonSchemaOptions {
                property_order: PropertyOrder::Any,
                ..JsonSchemaOptions::default()
            };
            let grammar = byte_vocabulary::compiler(CompilerOptions::default())
                .compile_json_schema(&schema.to_string(), &options)
                .unwrap();
            let in_all = |text: &str, format: &str| {
                // The other texts beside it are IPv4's.
                holds(format, text) && (before.len() < 7 || holds(format, "1.2.3.4"))
            };
            for text in texts {
                for (at, format) in formats.iter().enumerate().step_by(3) {
                    let text_of = |text: &str| {
                        let tag = tags(number, at).1;
                        format!(r#"{{"value":{before}"{text}"{after},"type":{tag}}}"#)
                    };
                    assert_eq!(
                        takes(&grammar, &text_of(text)),
                        in_all(text, format),
                        "{schema} {text}"
                    );
                }
            }
        }
    }
}
