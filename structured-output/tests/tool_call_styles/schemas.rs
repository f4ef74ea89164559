//! What a schema says of members and values that are written as tags: the same as of JSON.

use proptest::prelude::*;
use serde_json::{Value, json};
use structured_output::GrammarMatcher;

use super::{check, compiler, tag};

/// A member of the style that tells strings from all else.
fn member(name: &str, is_string: bool, value: &str) -> String {
    format!("<｜DSML｜parameter name=\"{name}\" string=\"{is_string}\">{value}</｜DSML｜parameter>")
}

/// Values that are tried, as strings and as JSON.
const TEXTS: [&str; 13] = [
    "", "a", "b", "ab", "ba", "abb", "ü", "1", "2.5", "12", "null", "true", "[]",
];

fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!({}),
        json!(true),
        json!(false),
        json!({"type": "string"}),
        json!({"type": ["string", "integer"]}),
        json!({"type": ["number", "null"], "minimum": 2}),
        json!({"minLength": 1, "x-order": 3}),
        json!({"maxLength": 1, "nullable": true}),
        json!({"pattern": "a"}),
        json!({"pattern": "^[ab]*$", "minimum": 2}),
        json!({"enum": ["a", "ab", 1, null]}),
        json!({"enum": ["a", "b", "ü"], "maxLength": 1}),
        json!({"const": "ab"}),
        json!({"const": [], "title": "none"}),
        json!({"format": "date"}),
        json!({"$ref": "#/$defs/short"}),
        json!({"$ref": "#/$defs/short", "pattern": "b"}),
    ]);
    leaf.prop_recursive(3, 10, 3, |inner| {
        let some = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            some.clone().prop_map(|all| json!({"allOf": all})),
            some.clone().prop_map(|any| json!({"anyOf": any})),
            some.clone()
                .prop_map(|one| json!({"oneOf": one, "description": "one"})),
            some.prop_map(|any| json!({"anyOf": any, "minLength": 1})),
            inner.clone().prop_map(|not| json!({"not": not})),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| json!({"if": a, "then": b, "else": c})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    /// A string is allowed as it stands where the `jsonschema` crate finds it valid, and other values where it finds
    /// them valid.
    #[test]
    fn values_are_those_that_are_valid(schema in schemas()) {
        let defs = json!({"short": {"maxLength": 2}});
        let whole = json!({
            "type": "object", "properties": {"p": schema}, "required": ["p"],
            "additionalProperties": false, "$defs": defs,
        });
        let source = tag(&whole.to_string(), r#""style": "deepseek_xml""#);
        let grammar = match compiler().compile_structural_tag(&source) {
            Ok(grammar) => Some(grammar),
            Err(error) => {
                let message = error.to_string();
                prop_assert!(message.contains("no value") || message.contains("no text"), "{}: {}", whole, message);
                None
            }
        };
        let oracle = jsonschema::draft202012::options()
            .should_validate_formats(true)
            .build(&whole)
            .unwrap();
        let takes = |text: &str| grammar.as_ref().is_some_and(|grammar| {
            let mut matcher = GrammarMatcher::new(grammar);
            let mut bytes = text.bytes().map(u32::from);
            bytes.all(|byte| matcher.accept_token(byte).unwrap()) && matcher.is_completed()
        });
        for text in TEXTS {
            let is_valid = oracle.is_valid(&json!({"p": text}));
            // Where other values are refused as a whole, so are strings: the schema is.
            if grammar.is_some() || !is_valid {
                prop_assert_eq!(takes(&member("p", true, text)), is_valid, "{}: {:?}", &whole, text);
            }
            let Ok(value) = serde_json::from_str::<Value>(text) else {
                continue;
            };
            let is_valid = oracle.is_valid(&json!({"p": value}));
            if grammar.is_some() || !is_valid {
                prop_assert_eq!(takes(&member("p", false, text)), is_valid, "{}: {}", &whole, text);
            }
        }
    }
}

fn texts(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

fn of(names: &str) -> String {
    let one = |name: char| format!("<parameter={name}>1</parameter>");
    names.chars().map(one).collect()
}

fn check_names(schema: &str, more: &str, accept: &[&str], reject: &[&str]) {
    let accept: Vec<String> = accept.iter().map(|names| of(names)).collect();
    let reject: Vec<String> = reject.iter().map(|names| of(names)).collect();
    let more = format!(r#""style": "qwen_xml"{more}"#);
    check(&tag(schema, &more), &texts(&accept), &texts(&reject));
}

#[test]
fn formats_hold_for_strings_as_they_stand() {
    let schema = r#"{"type": "object", "required": ["d"], "additionalProperties": false, "properties": {
        "d": {"type": "string", "format": "date", "description": "a day"},
        "h": {"type": "string", "format": "hostname", "maxLength": 5},
        "c": {"type": "string", "format": "colour", "x-widget": "picker"}}}"#;
    let of = |name: &str, value: &str| format!("<parameter={name}>{value}</parameter>");
    let day = of("d", "2024-02-29");
    let accept = [
        day.clone(),
        of("d", "\n2024-02-29\n"),
        day.clone() + &of("h", "a.org") + &of("c", "any \"text\""),
    ];
    let reject = [
        of("d", "2023-02-29"),
        of("d", "\"2024-02-29\""),
        day.clone() + &of("h", "-a"),
        day + &of("h", "abc.org"),
    ];
    check(
        &tag(schema, r#""style": "qwen_xml""#),
        &texts(&accept),
        &texts(&reject),
    );
}

#[test]
fn members_of_branches_come_together() {
    let integer = r#"{"type": "integer"}"#;
    let schema = format!(
        r##"{{"$ref": "#/$defs/base", "title": "t", "x-kind": 1, "nullable": false,
        "allOf": [{{"properties": {{"b": {integer}}}, "required": ["b"]}}, true],
        "$defs": {{"base": {{"type": "object", "properties": {{"a": {integer}}}}}}},
        "properties": {{"c": {integer}}}}}"##
    );
    // Those of the schema itself come first.
    check_names(
        &schema,
        "",
        &["b", "cb", "cab", "abx"],
        &["", "c", "ba", "bb"],
    );
    let only = r##"{"allOf": [{"$ref": "#/$defs/base"}], "$defs": {"base": {"type": "object",
        "properties": {"a": {"type": "integer"}}, "additionalProperties": false}}}"##;
    check_names(only, "", &["", "a"], &["aa", "b"]);
}

#[test]
fn each_branch_of_any_is_a_way() {
    let schema = r#"{"type": "object", "additionalProperties": false,
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}]}"#;
    check_names(schema, "", &["a", "ab", "abc", "bc"], &["", "b", "c", "cb"]);
    let any_order = r#", "any_order": true"#;
    check_names(
        schema,
        any_order,
        &["a", "ba", "cb", "cab"],
        &["", "b", "aa"],
    );
    let apart = r#"{"anyOf": [
        {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": false},
        {"type": "object", "properties": {"b": {"const": 1}}, "required": ["b"], "additionalProperties": false}]}"#;
    check_names(apart, "", &["a", "b"], &["", "ab"]);
}

#[test]
fn members_are_counted() {
    let schema = |bounds: &str| {
        format!(
            r#"{{"type": "object", {bounds}, "required": ["b"], "properties":
            {{"a": {{"type": "integer"}}, "b": {{"type": "integer"}}, "c": {{"type": "integer"}}}}}}"#
        )
    };
    let open = schema(r#""minProperties": 2, "maxProperties": 3"#);
    check_names(
        &open,
        "",
        &["ab", "abc", "bx", "bxy", "abx"],
        &["b", "abcx", "bxyz", "ac"],
    );
    let closed = schema(r#""minProperties": 2, "maxProperties": 2, "additionalProperties": false"#);
    check_names(&closed, "", &["ab", "bc"], &["b", "abc", "ac", ""]);
    let any_order = r#", "any_order": true"#;
    check_names(
        &closed,
        any_order,
        &["ab", "ba", "cb"],
        &["b", "abc", "ac", "aa"],
    );
    let one = schema(r#""maxProperties": 1"#);
    check_names(&one, "", &["b"], &["ab", "bx", ""]);
}
