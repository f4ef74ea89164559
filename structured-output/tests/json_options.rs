//! Options of JSON Schema, by the texts that they allow.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::{Arc, LazyLock};

use structured_output::{
    CompileError, CompilerOptions, Draft, GrammarCompiler, GrammarMatcher, JsonSchemaOptions,
    Limits, PropertyOrder, TokenizerInfo, Whitespace,
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
    for (pattern, message) in [
        (
            r"\s*",
            "`\\s*` matches more than JSON white space (space, tab, line ends)",
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
            matches!(
                error,
                CompileError::InvalidOption {
                    option: "separators",
                    ..
                }
            ),
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
            max: 50
        }
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
