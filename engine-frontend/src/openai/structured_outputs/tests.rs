use serde_json::json;

use super::*;
use StructuredOutputsConstraint::{Choice, Grammar, Json, JsonObject, Regex, StructuralTag};

fn read(body: Value) -> Result<Option<RequestConstraint>, ValidationError> {
    let mut fields = Fields::new(body)?;
    let taken = take(&mut fields)?;
    fields.finish()?;
    match taken.settings {
        Some(settings) => Err(settings.without_constraint()),
        None => Ok(taken.constraint),
    }
}

fn refused(body: Value) -> ValidationError {
    read(body).unwrap_err()
}

#[test]
fn every_spelling_of_every_constraint() {
    let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
    let text = r#"{"type":"object","properties":{"b":{},"a":{}}}"#;
    let tag = json!({"type": "structural_tag", "format": {"type": "any_text"}});
    let legacy = json!({"type": "structural_tag", "structures": [], "triggers": ["<f"]});
    let format = |schema: &Value| {
        json!({"type": "json_schema",
            "json_schema": {"name": "n", "strict": false, "schema": schema}})
    };
    for (field, body, expected) in [
        (
            "structured_outputs.json",
            json!({"structured_outputs": {"json": schema, "regex": null}}),
            Json(text.to_owned()),
        ),
        (
            "structured_outputs.json",
            json!({"structured_outputs": {"json": text}}),
            Json(text.to_owned()),
        ),
        (
            "guided_json",
            json!({"guided_json": schema}),
            Json(text.to_owned()),
        ),
        (
            "guided_json",
            json!({"guided_json": true}),
            Json("true".to_owned()),
        ),
        (
            "response_format.json_schema.schema",
            json!({"response_format": format(&schema)}),
            Json(text.to_owned()),
        ),
        (
            "structured_outputs.json_object",
            json!({"structured_outputs": {"json_object": true}}),
            JsonObject,
        ),
        (
            "guided_json_object",
            json!({"guided_json_object": true}),
            JsonObject,
        ),
        (
            "response_format",
            json!({"response_format": {"type": "json_object"}}),
            JsonObject,
        ),
        (
            "structured_outputs.regex",
            json!({"structured_outputs": {"regex": "a+"}}),
            Regex("a+".to_owned()),
        ),
        (
            "guided_regex",
            json!({"guided_regex": "a+"}),
            Regex("a+".to_owned()),
        ),
        (
            "structured_outputs.choice",
            json!({"structured_outputs": {"choice": ["a"]}}),
            Choice(vec!["a".to_owned()]),
        ),
        (
            "guided_choice",
            json!({"guided_choice": ["a"]}),
            Choice(vec!["a".to_owned()]),
        ),
        (
            "structured_outputs.grammar",
            json!({"structured_outputs": {"grammar": "root ::= \"a\""}}),
            Grammar("root ::= \"a\"".to_owned()),
        ),
        (
            "guided_grammar",
            json!({"guided_grammar": "start: A"}),
            Grammar("start: A".to_owned()),
        ),
        (
            "grammar",
            json!({"grammar": "root ::= \"a\""}),
            Grammar("root ::= \"a\"".to_owned()),
        ),
        (
            "response_format.schema",
            json!({"response_format": {"type": "json_object", "schema": schema}}),
            Json(text.to_owned()),
        ),
        (
            "response_format.schema",
            json!({"response_format": {"type": "json_schema", "schema": schema}}),
            Json(text.to_owned()),
        ),
        (
            "structured_outputs.structural_tag",
            json!({"structured_outputs": {"structural_tag": tag}}),
            StructuralTag(tag.to_string()),
        ),
        (
            "response_format",
            json!({"response_format": tag}),
            StructuralTag(tag.to_string()),
        ),
        (
            "response_format",
            json!({"response_format": legacy}),
            StructuralTag(legacy.to_string()),
        ),
    ] {
        let read = read(body.clone()).unwrap().unwrap();
        assert_eq!(read.field, field, "{body}");
        assert_eq!(
            read.params,
            StructuredOutputsParams::new(expected).into(),
            "{body}"
        );
    }
}

#[test]
fn free_text() {
    for body in [
        json!({}),
        json!({"response_format": {"type": "text"}}),
        json!({"guided_json": null, "structured_outputs": null}),
    ] {
        assert_eq!(read(body.clone()), Ok(None), "{body}");
    }
}

#[test]
fn options_come_with_their_constraint() {
    let read = read(json!({
        "response_format": {"type": "json_schema", "json_schema": {"schema": {}}},
        "structured_outputs": {
            "disable_any_whitespace": true, "disable_additional_properties": true,
            "property_order": "any", "complete_within_max_tokens": false,
            "enable_in_reasoning": true, "backend": "mlc-ai/xgrammar:no-fallback",
        },
    }));
    let params = read.unwrap().unwrap().params;
    assert_eq!(params.whitespace, Whitespace::Compact);
    assert_eq!(params.property_order, PropertyOrder::Any);
    assert!(params.disable_additional_properties && params.enable_in_reasoning);
    assert!(!params.complete_within_max_tokens);
}

#[test]
fn white_space_by_pattern() {
    let whitespace = |pattern: &str| {
        let body = json!({"guided_json": {}, "guided_whitespace_pattern": pattern});
        read(body).unwrap().unwrap().params.whitespace.clone()
    };
    assert_eq!(
        whitespace("[ \n]?"),
        Whitespace::Pattern("[ \n]?".to_owned())
    );
    assert_eq!(whitespace(""), Whitespace::Compact);
}

#[test]
fn white_space_by_name() {
    let with = |name: Value| json!({"structured_outputs": {"json": {}, "whitespace": name}});
    for (name, expected) in [
        ("usual", Whitespace::Usual),
        ("flexible", Whitespace::Flexible),
        ("spaced", Whitespace::Spaced),
        ("compact", Whitespace::Compact),
    ] {
        let constraint = read(with(json!(name))).unwrap().unwrap();
        assert_eq!(constraint.params.whitespace, expected);
        let field = constraint.whitespace_field.as_deref();
        assert_eq!(field, Some("structured_outputs.whitespace"));
    }
    for wrong in [json!("wide"), json!(1)] {
        let error = refused(with(wrong));
        let field = error.parameter.as_deref();
        assert_eq!(field, Some("structured_outputs.whitespace"));
    }
}

#[test]
fn exactly_one_constraint() {
    let error = refused(json!({"guided_regex": "a", "response_format": {"type": "json_object"}}));
    assert_eq!(
        error.message,
        "You can only use one kind of structured outputs constraint but multiple are specified: \
         response_format, guided_regex"
    );
    assert_eq!(error.parameter.as_deref(), Some("guided_regex"));
    let error = refused(json!({"structured_outputs": {}}));
    assert!(
        error.message.starts_with("You must use one kind"),
        "{error}"
    );
    assert_eq!(error.parameter.as_deref(), Some("structured_outputs"));
    for (option, value) in [
        ("guided_whitespace_pattern", " ?"),
        ("guided_decoding_backend", "xgrammar:no-fallback"),
    ] {
        let error = refused(json!({(option): value}));
        assert_eq!(error.parameter.as_deref(), Some(option));
        // Nothing is wrong with the value.
        assert_eq!(error.value, None);
    }
}

#[test]
fn what_is_wrong_is_named() {
    let structured = |name: &str, value: Value| json!({"structured_outputs": {(name): value}});
    for (field, body) in [
        ("structured_outputs", json!({"structured_outputs": "json"})),
        ("structured_outputs.json", structured("json", json!(5))),
        ("structured_outputs.json", structured("json", json!([]))),
        ("structured_outputs.regex", structured("regex", json!({}))),
        (
            "structured_outputs.choice",
            structured("choice", json!("a")),
        ),
        (
            "structured_outputs.choice",
            structured("choice", json!(["a", 1])),
        ),
        (
            "structured_outputs.json_object",
            structured("json_object", json!(false)),
        ),
        (
            "structured_outputs.structural_tag",
            structured("structural_tag", json!([])),
        ),
        ("structured_outputs.ebnf", structured("ebnf", json!("x"))),
        (
            "structured_outputs.backend",
            json!({"structured_outputs": {"regex": "a", "backend": "best"}}),
        ),
        (
            "structured_outputs.property_order",
            json!({"structured_outputs": {"json": {}, "property_order": "sorted"}}),
        ),
        (
            "structured_outputs.disable_any_whitespace",
            json!({"structured_outputs": {"regex": "a", "disable_any_whitespace": true}}),
        ),
        (
            "structured_outputs.disable_additional_properties",
            json!({"structured_outputs":
                {"json_object": true, "disable_additional_properties": true}}),
        ),
        (
            "guided_whitespace_pattern",
            json!({"guided_choice": ["a"], "guided_whitespace_pattern": " "}),
        ),
        (
            "guided_whitespace_pattern",
            json!({"structured_outputs": {"json": {}, "disable_any_whitespace": true},
                "guided_whitespace_pattern": " "}),
        ),
        (
            "guided_decoding_backend",
            json!({"guided_decoding_backend": "best"}),
        ),
        ("guided_yaml", json!({"guided_yaml": "x"})),
        ("response_format", json!({"response_format": "json_object"})),
        ("response_format.type", json!({"response_format": {}})),
        (
            "response_format.type",
            json!({"response_format": {"type": "xml"}}),
        ),
        (
            "response_format.schema",
            json!({"response_format": {"type": "json_object", "schema": 5}}),
        ),
        (
            "response_format.schema",
            json!({"response_format": {"type": "text", "schema": {}}}),
        ),
        (
            "response_format.json_schema",
            json!({"response_format":
                {"type": "json_schema", "schema": {}, "json_schema": {"schema": {}}}}),
        ),
        ("json_schema", json!({"json_schema": 5})),
        ("grammar", json!({"grammar": 5})),
        ("grammar", json!({"grammar": ""})),
        ("guided_grammar", json!({"guided_grammar": " \n"})),
        (
            "grammar",
            json!({"json_schema": {}, "grammar": "root ::= \"a\""}),
        ),
        (
            "response_format.json_schema",
            json!({"response_format": {"type": "json_schema"}}),
        ),
        (
            "response_format.json_schema.schema",
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}),
        ),
        (
            "response_format.json_schema.strict",
            json!({"response_format":
                {"type": "json_schema", "json_schema": {"schema": {}, "strict": "yes"}}}),
        ),
        (
            "response_format.json_schema.schma",
            json!({"response_format": {"type": "json_schema", "json_schema": {"schma": {}}}}),
        ),
    ] {
        let error = refused(body.clone());
        assert_eq!(error.parameter.as_deref(), Some(field), "{body}: {error}");
    }
}
