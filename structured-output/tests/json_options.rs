//! Options of JSON Schema, by the texts that they allow.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::{Arc, LazyLock};

use structured_output::{
    CompileError, CompilerOptions, Draft, Format, GrammarCompiler, GrammarMatcher,
    JsonSchemaOptions, Limits, MatcherError, PropertyOrder, TokenizerInfo, Whitespace,
};

/// Byte tokens, then the stop token.
static COMPILER: LazyLock<GrammarCompiler> = LazyLock::new(|| {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.push(Vec::new());
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[256], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
});

#[track_caller]
fn check(options: &JsonSchemaOptions, schema: &str, good: &[&str], bad: &[&str]) {
    let grammar = COMPILER.compile_json_schema(schema, options).unwrap();
    let accepts = |text: &str| {
        let mut matcher = GrammarMatcher::new(&grammar);
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        matcher.accept_tokens(&tokens).unwrap() && matcher.is_completed()
    };
    for text in good {
        assert!(accepts(text), "{options:?} should allow {text:?}");
    }
    for text in bad {
        assert!(!accepts(text), "{options:?} should not allow {text:?}");
    }
}

#[track_caller]
fn refused(options: &JsonSchemaOptions) -> CompileError {
    COMPILER.compile_json_schema("{}", options).unwrap_err()
}

#[test]
fn white_space_by_a_pattern() {
    let options = |pattern: &str| JsonSchemaOptions {
        whitespace_pattern: Some(pattern.to_owned()),
        ..JsonSchemaOptions::default()
    };
    check(
        &options(r"[ \n]?"),
        "{}",
        &["{\"a\":1}", "{ \"a\" : [1 ,\n2]\n}", " []"],
        &["{  }", "[\t]"],
    );
    check(&options(""), "{}", &["[1,2]"], &["[1, 2]"]);
    // Of white space the part that is JSON's.
    check(
        &options(r"\s*"),
        "{}",
        &["[1,2]", "\r\n [ 1\t,  2 ]\n"],
        &["[1,\u{b}2]", "[1,\u{a0}2]"],
    );
    check(
        &options(r"\s{2}|(?!\s)"),
        "{}",
        &["[  ]", "[]"],
        &["[ ]", "[\u{c} ]"],
    );
    for (pattern, message) in [
        (
            "[ x]*",
            "`[ x]*` matches something else than JSON white space (space, tab, line ends)",
        ),
        (
            r"\v",
            "`\\v` matches something else than JSON white space (space, tab, line ends)",
        ),
        ("[ ", ""),
    ] {
        let CompileError::InvalidOption {
            option,
            message: said,
        } = refused(&options(pattern))
        else {
            panic!("{pattern}");
        };
        assert_eq!(option, "whitespace_pattern");
        assert!(message.is_empty() || said == message, "{said}");
    }
}

#[test]
fn an_empty_list_of_what_must_hold_asks_for_nothing() {
    let options = JsonSchemaOptions::default();
    check(
        &options,
        r#"{"allOf": [], "type": "null"}"#,
        &["null"],
        &["1"],
    );
    check(
        &options,
        r#"{"not": {"not": {"allOf": []}}}"#,
        &["null"],
        &[],
    );
    let error = COMPILER.compile_json_schema(r#"{"anyOf": []}"#, &options);
    assert!(error.unwrap_err().to_string().contains("`#/anyOf`"));
}

#[test]
fn separators_as_python_takes_them() {
    let options = |item: &str, key: &str| JsonSchemaOptions {
        whitespace: Whitespace::Compact,
        separators: Some((item.to_owned(), key.to_owned())),
        ..JsonSchemaOptions::default()
    };
    check(
        &options(", ", " : "),
        "{}",
        &["{\"a\" : [1, 2]}", "[]"],
        &["{\"a\":1}", "[1,2]", "[1 , 2]", "[ ]"],
    );
    for (item, key) in [(";", ":"), (",", "=>"), (", x", ":"), (",,", ":")] {
        let error = refused(&options(item, key));
        assert!(
            matches!(&error, CompileError::InvalidOption { option, .. } if option == "separators"),
            "{error}"
        );
    }
}

#[test]
fn the_order_of_properties() {
    let schema = r#"{"properties":{"b":{"type":"null"},"a":{"type":"null"}},"required":["x"]}"#;
    let order = |property_order| JsonSchemaOptions {
        whitespace: Whitespace::Compact,
        property_order,
        ..JsonSchemaOptions::default()
    };
    let first = r#"{"b":null,"a":null,"x":1}"#;
    let other = r#"{"x":1,"a":null,"b":null}"#;
    check(&order(PropertyOrder::Schema), schema, &[first], &[other]);
    check(
        &order(PropertyOrder::Any),
        schema,
        &[first, other],
        &[r#"{"a":null}"#],
    );
}

#[test]
fn documents_and_limits() {
    let mut options = JsonSchemaOptions {
        documents: [("http://a/b".to_owned(), r#"{"type":"null"}"#.to_owned())].into(),
        ..JsonSchemaOptions::default()
    };
    let schema = r#"{"items":{"$ref":"http://a/b"}}"#;
    check(&options, schema, &["[null]"], &["[1]"]);
    // The documents are part of what is compiled.
    options
        .documents
        .insert("http://a/b".into(), r#"{"type":"number"}"#.into());
    check(&options, schema, &["[1]"], &["[null]"]);
    options.limits = Some(Limits {
        max_source_bytes: 50,
        ..Limits::default()
    });
    assert_eq!(
        COMPILER.compile_json_schema(schema, &options).unwrap_err(),
        CompileError::LimitExceeded {
            limit: "max_source_bytes",
            max: 50,
            place: None,
        }
    );
}

#[test]
fn the_steps_of_a_schema_are_its_own() {
    let schema = r#"{"properties":{"abc":{"type":"string","pattern":"u.*v"}}}"#;
    let at_most = |max_mask_steps: u64| {
        let options = JsonSchemaOptions {
            limits: Some(Limits {
                max_mask_steps,
                ..Limits::default()
            }),
            ..JsonSchemaOptions::default()
        };
        let grammar = COMPILER.compile_json_schema(schema, &options).unwrap();
        let mut matcher = GrammarMatcher::new(&grammar);
        // It stays where the matcher gets another allowance.
        matcher.set_allowance(Some(1_000_000));
        let tokens: Vec<u32> = r#"{"abc":"u1v"}"#.bytes().map(u32::from).collect();
        matcher.accept_tokens(&tokens)
    };
    assert_eq!(at_most(1), Err(MatcherError::StepsExhausted { max: 1 }));
    assert_eq!(at_most(100_000), Ok(true));
    // The compiler's own limit holds beside it.
    assert_eq!(at_most(u64::MAX), Ok(true));
}

#[test]
fn options_are_read_by_their_names() {
    let text = r#"{
        "whitespace": "spaced",
        "whitespace_pattern": " ?",
        "indent": 3,
        "trimmed": true,
        "separators": [",", ": "],
        "property_order": "any",
        "format": "annotate",
        "draft": "2019-09",
        "strict": true,
        "documents": {"http://a/b": {"type": "null"}, "http://a/c": "true"},
        "limits": {
            "max_source_bytes": 1, "max_nesting": 2, "max_regex_nodes": 3, "max_repetition": 4,
            "max_choices": 5, "max_rules": 6, "max_grammar_nodes": 7, "max_items": 8,
            "max_schema_nodes": 9, "max_enum_entries": 10, "max_mask_steps": 11,
            "max_trigger_overlaps": 12, "max_nested_grammars": 13
        }
    }"#;
    let documents = [("http://a/b", r#"{"type":"null"}"#), ("http://a/c", "true")];
    let expected = JsonSchemaOptions {
        whitespace: Whitespace::Spaced,
        whitespace_pattern: Some(" ?".to_owned()),
        indent: Some(3),
        trimmed: true,
        separators: Some((",".to_owned(), ": ".to_owned())),
        property_order: PropertyOrder::Any,
        format: Format::Annotate,
        draft: Draft::Draft2019_09,
        strict: true,
        documents: documents
            .map(|(uri, text)| (uri.to_owned(), text.to_owned()))
            .into(),
        limits: Some(Limits {
            max_source_bytes: 1,
            max_nesting: 2,
            max_regex_nodes: 3,
            max_repetition: 4,
            max_choices: 5,
            max_rules: 6,
            max_grammar_nodes: 7,
            max_items: 8,
            max_schema_nodes: 9,
            max_enum_entries: 10,
            max_mask_steps: 11,
            max_trigger_overlaps: 12,
            max_nested_grammars: 13,
        }),
    };
    assert_eq!(JsonSchemaOptions::from_json(text), Ok(expected));
    assert_eq!(
        JsonSchemaOptions::from_json("{}"),
        Ok(JsonSchemaOptions::default())
    );
}

#[test]
fn a_wrong_option_is_named() {
    let names = "whitespace, whitespace_pattern, indent, trimmed, separators, property_order, format, draft, strict, \
                 documents, limits";
    for (text, expected) in [
        (
            r#"{"strict": 1}"#,
            "option `strict`: expected true or false, not `1`".to_owned(),
        ),
        (
            r#"{"draft": "3"}"#,
            "option `draft`: expected one of auto, 4, 6, 7, 2019-09, 2020-12, not `\"3\"`"
                .to_owned(),
        ),
        (
            r#"{"whitespace": "wide"}"#,
            "option `whitespace`: expected one of usual, flexible, spaced, compact, not `\"wide\"`"
                .to_owned(),
        ),
        (
            r#"{"separators": [","]}"#,
            "option `separators`: expected a list of two strings, not `[\",\"]`".to_owned(),
        ),
        (
            r#"{"wide": 1}"#,
            format!("option `wide`: there is no such option; there are {names}"),
        ),
        (
            r#"{"limits": {"max_nesting": -3}}"#,
            "option `limits.max_nesting`: expected a whole number from 0, not `-3`".to_owned(),
        ),
        (
            r#"{"limits": {"max_repetition": 4294967296}}"#,
            "option `limits.max_repetition`: expected a whole number from 0 to 4294967295, not \
             `4294967296`"
                .to_owned(),
        ),
    ] {
        let error = JsonSchemaOptions::from_json(text).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let error = JsonSchemaOptions::from_json("{").unwrap_err();
    assert!(matches!(error, CompileError::JsonSyntax { .. }), "{error}");
    let error = JsonSchemaOptions::from_json("[]").unwrap_err();
    assert_eq!(
        error.to_string(),
        "option `options`: expected an object, not `[]`"
    );
    let limit = JsonSchemaOptions::from_json(r#"{"limits": {"max_depth": 3}}"#).unwrap_err();
    assert!(
        limit
            .to_string()
            .starts_with("option `limits.max_depth`: there is no such limit")
    );
}

#[test]
fn an_integer_of_draft_4_has_no_fraction() {
    let with_draft = |draft| JsonSchemaOptions {
        draft,
        ..JsonSchemaOptions::default()
    };
    let schema = r#"{"type": "integer"}"#;
    check(
        &with_draft(Draft::Draft4),
        schema,
        &["5", "-5", "0"],
        &["5.0", "5.5"],
    );
    check(
        &with_draft(Draft::Draft6),
        schema,
        &["5", "-5", "5.0"],
        &["5.5"],
    );
    let by_uri = r#"{"$schema": "http://json-schema.org/draft-04/schema#",
        "type": ["integer", "string"], "minimum": 3}"#;
    check(
        &JsonSchemaOptions::default(),
        by_uri,
        &["3", r#""a""#],
        &["3.0", "2", "3.5"],
    );
}

#[test]
fn each_item_on_a_line_of_its_own() {
    let options = |indent: u32| JsonSchemaOptions {
        indent: Some(indent),
        ..JsonSchemaOptions::default()
    };
    let pretty = "{\n  \"a\": [\n    1,\n    {},\n    [\n      \"x\",\n      {\n        \"y\": null\n      }\n    ]\n  ],\n  \"b\": []\n}";
    check(
        &options(2),
        "{}",
        &[pretty, "[]", "{}", "7", "[\n  1\n]"],
        &[
            "[\n]",
            "[1]",
            "[\n  1]",
            "[\n 1\n]",
            "{\"a\": 1}",
            "{\n  \"a\":1\n}",
            "[\n  [\n  1\n  ]\n]",
            " []",
            "[]\n",
        ],
    );
    check(
        &options(0),
        "{}",
        &["[\n1,\n{\n\"a\": []\n}\n]"],
        &["[\n 1\n]", "[1]"],
    );
    // Named and counted members, values that differ, ways that a later member tells apart.
    let schema = r#"{"type": "object", "properties": {"kind": {"enum": ["a", "b"]},
        "set": {"type": "array", "uniqueItems": true, "items": {"type": ["integer", "array"]}, "maxItems": 2}},
        "required": ["kind"], "maxProperties": 2, "additionalProperties": false,
        "if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["set"]}}"#;
    check(
        &options(1),
        schema,
        &[
            "{\n \"kind\": \"b\"\n}",
            "{\n \"kind\": \"a\",\n \"set\": []\n}",
            "{\n \"kind\": \"a\",\n \"set\": [\n  1,\n  2\n ]\n}",
            "{\n \"kind\": \"a\",\n \"set\": [\n  [\n   1\n  ],\n  1\n ]\n}",
        ],
        &[
            "{\n \"kind\": \"a\"\n}",
            "{\n \"kind\": \"a\",\n \"set\": [\n  1,\n  1\n ]\n}",
            "{\n \"kind\": \"a\",\n \"set\": [\n  [\n   1\n  ],\n  [\n   1\n  ]\n ]\n}",
            "{\n \"kind\": \"a\",\n  \"set\": []\n}",
        ],
    );
    let separated = JsonSchemaOptions {
        separators: Some((", ".into(), ":".into())),
        ..options(1)
    };
    check(
        &separated,
        "{}",
        &["[\n 1, \n 2\n]", "{\n \"a\":1\n}"],
        &["[\n 1,\n 2\n]", "{\n \"a\": 1\n}"],
    );
    let error = refused(&options(17)).to_string();
    assert!(
        error.contains("`indent`") && error.contains("0 to 16"),
        "{error}"
    );
    let both = JsonSchemaOptions {
        whitespace: Whitespace::Flexible,
        ..options(2)
    };
    assert!(
        refused(&both)
            .to_string()
            .contains("says what white space there is")
    );
    let read = JsonSchemaOptions::from_json(r#"{"indent": 2, "trimmed": true}"#).unwrap();
    let expected = JsonSchemaOptions {
        trimmed: true,
        ..options(2)
    };
    assert_eq!(read, expected);
    let wrong = JsonSchemaOptions::from_json(r#"{"indent": -1}"#).unwrap_err();
    assert!(
        wrong.to_string().contains("a whole number from 0"),
        "{wrong}"
    );
}

#[test]
fn no_white_space_around_the_text() {
    let options = JsonSchemaOptions {
        whitespace: Whitespace::Flexible,
        trimmed: true,
        ..JsonSchemaOptions::default()
    };
    check(&options, "{}", &["[ 1 , 2 ]", "{ }"], &[" []", "[]\n"]);
}
