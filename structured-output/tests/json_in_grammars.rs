//! Masks of JSON within grammars, against acceptance token by token: tokens that end a value and go on.
#![allow(clippy::unwrap_used)]

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
