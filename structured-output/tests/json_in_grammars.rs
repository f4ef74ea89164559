//! Masks of JSON within grammars, against acceptance token by token: tokens that end a value and go on.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;
use structured_output::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

/// Each mask is what each token by itself is, wherever the value may be over within a token.
#[test]
fn tokens_may_end_a_value_and_go_on() {
    let mut vocab: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
    let texts = [
        "\"}", "\"}<", "\"}</t", "}}", "}}</t>", "}]", "]}<", "}x", "}\n", "1<", "12", "12}",
        "1}<", "\":1}<", "1]5", "15", "55", "5<", "\"<", "\"5", "a\"}<", "}</t>a", "\",\"", "1.5<",
        "ull<", "null<", "1,1]<", "\"]<", "]5", "]]<", " <", "} <", "\"b\":", "b\":1}<", "\\\"}<",
    ];
    vocab.extend(texts.map(|text| text.as_bytes().to_vec()));
    vocab.push(b"<eos>".to_vec());
    let eos = vocab.len() as u32 - 1;
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[eos], &[eos]).unwrap();
    let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
    let cases = [
        (r#"{"type": "string"}"#, r#""a\"b""#),
        (r#"{"type": "integer"}"#, "15"),
        (r#"{"type": ["null", "number"]}"#, "1.5"),
        (
            r#"{"properties": {"a": {"type": "string"}}, "additionalProperties": false}"#,
            r#"{"a":"b"}"#,
        ),
        (
            r#"{"additionalProperties": {"type": "integer"}}"#,
            r#"{"a": 1, "b":1}"#,
        ),
        (
            r#"{"type": "array", "uniqueItems": true, "items": {"type": "integer"}}"#,
            "[1,15]",
        ),
        (
            r#"{"type": "array", "items": {"type": "array", "items": {"enum": [1, 15]}}}"#,
            "[[1, 15]]",
        ),
        ("true", r#"{"a": [{"b":null}]}"#),
    ];
    for (schema, value) in cases {
        for after in [
            "</t>",
            "5</t>",
            " x",
            "(x | \"<\" | /[ ]*/ \"</t>\")",
            "(/\\.\\S/)",
        ] {
            let after = match after.starts_with('(') {
                true => after.to_owned(),
                false => format!("\"{after}\""),
            };
            let lark = format!(
                "start: (\"x\" value {after} | value \"<a\" | value \"}}x\")+\nx: \"x\"\nvalue: %json {schema}\n"
            );
            let grammar = compiler.compile_lark(&lark).unwrap();
            for begin in ["", "x"] {
                let mut matcher = GrammarMatcher::new(&grammar);
                for &byte in format!("{begin}{value}").as_bytes() {
                    let mask = matcher.next_token_mask().unwrap();
                    for id in 0..=eos {
                        let is_accepted = matcher.fork().accept_token(id).unwrap();
                        assert_eq!(mask.is_allowed(id), is_accepted, "{lark}: {id}");
                    }
                    assert!(matcher.accept_token(u32::from(byte)).unwrap(), "{lark}");
                }
                let mask = matcher.next_token_mask().unwrap();
                for id in 0..=eos {
                    let is_accepted = matcher.fork().accept_token(id).unwrap();
                    assert_eq!(mask.is_allowed(id), is_accepted, "{lark}: {id}");
                }
            }
        }
    }
}

/// Values that end in all the ways that JSON has, among them those that a text which follows may go on
/// with as the value could.
const SCHEMAS: [&str; 22] = [
    r#"{"type": "integer"}"#,
    r#"{"type": "number"}"#,
    r#"{"type": ["null", "number"]}"#,
    r#"{"type": "integer", "minimum": 3}"#,
    r#"{"type": "number", "exclusiveMaximum": 12.5}"#,
    r#"{"multipleOf": 0.5}"#,
    r#"{"enum": [1, 12, 125, "a", "ab", null]}"#,
    r#"{"oneOf": [{"const": 1}, {"const": 12}, {"type": "string", "maxLength": 2}]}"#,
    r#"{"oneOf": [{"type": "integer"}, {"type": "number", "multipleOf": 2.5}]}"#,
    r#"{"anyOf": [{"type": "integer", "multipleOf": 5}, {"type": "number", "maximum": 3}]}"#,
    r#"{"type": "string"}"#,
    r#"{"type": "string", "pattern": "^a+$"}"#,
    r#"{"type": "string", "pattern": "5", "maxLength": 3}"#,
    r#"{"type": "array", "items": {"type": "integer"}}"#,
    r#"{"type": "array", "items": {"type": "number"}, "uniqueItems": true}"#,
    r#"{"type": "array", "prefixItems": [{"enum": [1, 15]}], "items": false}"#,
    r#"{"type": ["array", "integer"], "maxItems": 1}"#,
    r#"{"type": "object", "additionalProperties": {"type": "number"}}"#,
    r#"{"properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}"#,
    r#"{"oneOf": [{"required": ["a"]}, {"type": "object", "maxProperties": 1}]}"#,
    r#"{"type": "object", "patternProperties": {"^a": {"const": 5}}, "minProperties": 1}"#,
    "true",
];

/// What may follow.
const FOLLOWERS: [&str; 12] = [
    r"/\.\S/",
    r"/\.\S\W/",
    "/[0-9]+/",
    "/[eE][+-]?5/",
    "\"5\"",
    "/[ \\n]*x/",
    "/[\\]},\" ]+/",
    "\"<a\"",
    "\"}\" value",
    "/0*/ \"1\"",
    "value",
    "/[^x]*/ \"x\"",
];

/// Where both stand; `F` and `G` are followers.
const PLACES: [&str; 5] = [
    "value F",
    "(value F)+",
    "value F | value G",
    "/[^{1\"]*/ value (F | G \"<\")",
    "\"[\" start \"]\" F | value G",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("FORMWORK_CASES").map_or(120, |cases| cases.parse().unwrap())
    ))]

    /// At each place of random texts each mask is what each token by itself is, among them random
    /// strings of what values end with and go on with.
    #[test]
    fn random_values_may_end_within_tokens(
        schema in proptest::sample::select(&SCHEMAS[..]),
        followers in proptest::sample::select(&FOLLOWERS[..])
            .prop_flat_map(|f| (Just(f), proptest::sample::select(&FOLLOWERS[..]))),
        place in proptest::sample::select(&PLACES[..]),
        texts in proptest::collection::vec("[015.eE+\\-\"\\]},:a<x \\n{\\[\\\\]{2,5}", 1..60),
        choices in proptest::collection::vec(any::<u16>(), 12),
    ) {
        let mut vocab: Vec<Vec<u8>> = (0..=127_u8).map(|byte| vec![byte]).collect();
        vocab.extend((128..=255_u8).map(|byte| vec![byte]));
        vocab.extend(texts.into_iter().map(String::into_bytes));
        vocab.push(b"<eos>".to_vec());
        let eos = vocab.len() as u32 - 1;
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[eos], &[eos]).unwrap();
        let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
        let place = place.replace('F', followers.0).replace('G', followers.1);
        let lark = format!("start: {place}\nvalue: %json {schema}\n");
        let grammar = compiler.compile_lark(&lark).unwrap();
        let mut matcher = GrammarMatcher::new(&grammar);
        for choice in choices {
            let mask = matcher.next_token_mask().unwrap();
            let mut allowed = Vec::new();
            for id in 0..eos {
                let is_accepted = matcher.fork().accept_token(id).unwrap();
                prop_assert_eq!(mask.is_allowed(id), is_accepted, "{}: {:?}", &lark, &vocab[id as usize]);
                let is_rare = vocab[id as usize][0] >= 128 || vocab[id as usize] == b"\\";
                if is_accepted && !is_rare {
                    allowed.push(id);
                }
            }
            let Some(&next) = allowed.get(usize::from(choice) % allowed.len().max(1)) else {
                break;
            };
            // What values are made of comes more often than any letter.
            let telling = |id: &&u32| b"015.}],:\"<{[e".contains(&vocab[**id as usize][0]);
            let telling: Vec<u32> = allowed.iter().filter(telling).copied().collect();
            let next = match choice % 4 {
                0 => next,
                _ => telling.get(usize::from(choice) % telling.len().max(1)).copied().unwrap_or(next),
            };
            prop_assert!(matcher.accept_token(next).unwrap());
        }
    }
}

/// A token that ends a value and goes on where two rules begin with the value.
#[test]
fn a_token_may_end_a_value_that_two_rules_begin_with() {
    let mut vocab: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
    vocab.push(b"5.[".to_vec());
    vocab.push(b"<eos>".to_vec());
    let eos = vocab.len() as u32 - 1;
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[eos], &[eos]).unwrap();
    let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
    let lark =
        "start: value /\\.\\S/ | value /[^x]*/ \"x\"\nvalue: %json {\"type\": \"integer\"}\n";
    let grammar = compiler.compile_lark(lark).unwrap();
    let matcher = GrammarMatcher::new(&grammar);
    let mask = matcher.next_token_mask().unwrap();
    for id in 0..eos {
        let is_accepted = matcher.fork().accept_token(id).unwrap();
        assert_eq!(mask.is_allowed(id), is_accepted, "{:?}", vocab[id as usize]);
    }
}
