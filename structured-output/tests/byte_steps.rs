//! Text accepted byte by byte, and stop tokens in place of the vocabulary's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use structured_output::{
    CancelFlag, CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions, TokenizerInfo,
};

/// The 256 bytes, two words, two stop tokens.
fn compiler() -> GrammarCompiler {
    let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
    let words = ["true", "{\"a\"", "<eos>", "<eot>"].map(|word| word.as_bytes().to_vec());
    let vocab: Vec<Vec<u8>> = bytes.chain(words).collect();
    let info = TokenizerInfo::new(&vocab, 260, &[258, 259], &[258, 259]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
}

#[test]
fn bytes_lead_where_their_tokens_lead() {
    let compiler = compiler();
    let schema =
        r#"{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}"#;
    for grammar in [
        compiler
            .compile_json_schema(schema, &JsonSchemaOptions::default())
            .unwrap(),
        compiler
            .compile_ebnf(r#"root ::= "{\"a\":\"" [^"]* "\"}""#, "root")
            .unwrap(),
        compiler.compile_regex(r#"\{"a":"[^"]*"\}"#).unwrap(),
    ] {
        let text = r#"{"a":"é"}"#;
        let mut by_bytes = GrammarMatcher::new(&grammar);
        let mut by_tokens = GrammarMatcher::new(&grammar);
        assert!(by_bytes.accept_bytes(text.as_bytes()).unwrap());
        for byte in text.bytes() {
            assert!(by_tokens.accept_token(byte.into()).unwrap());
        }
        assert!(by_bytes.is_completed());
        assert_eq!(
            by_bytes.next_token_mask().unwrap(),
            by_tokens.next_token_mask().unwrap()
        );
        assert_eq!(by_bytes.num_accepted_tokens(), text.len());
        by_bytes.rollback(3).unwrap();
        by_tokens.rollback(3).unwrap();
        assert_eq!(
            by_bytes.next_token_mask().unwrap(),
            by_tokens.next_token_mask().unwrap()
        );
    }
}

#[test]
fn bytes_that_do_not_fit_change_nothing() {
    let compiler = compiler();
    let grammar = compiler.compile_regex("true|false").unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    assert!(!matcher.accept_bytes(b"trux").unwrap());
    assert_eq!(matcher.num_accepted_tokens(), 0);
    assert!(matcher.accept_bytes(b"").unwrap());
    assert!(matcher.accept_bytes(b"tr").unwrap());
    assert!(matcher.accept_bytes(b"ue").unwrap());
    assert!(matcher.accept_token(258).unwrap());
    assert!(!matcher.accept_bytes(b"e").unwrap());
    assert!(matcher.accept_bytes(b"").unwrap());
}

#[test]
fn bytes_that_no_token_completes_are_refused() {
    let vocab = ["ab", "a", "<eos>"].map(|word| word.as_bytes().to_vec());
    let info = TokenizerInfo::new(&vocab, 3, &[2], &[2]).unwrap();
    let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
    let grammar = compiler.compile_regex("(ab)+").unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    // Only `ab` as a whole writes a b.
    assert!(!matcher.accept_bytes(b"a").unwrap());
    assert!(matcher.accept_bytes(b"ab").unwrap());
    assert_eq!(matcher.next_token_mask().unwrap().token_ids(), [0, 2]);
}

#[test]
fn a_renewed_matcher_keeps_its_bytes() {
    let compiler = compiler();
    let grammar = compiler.compile_regex("(true|false)+").unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    assert!(matcher.accept_bytes(b"fal").unwrap());
    compiler.renew(&mut matcher, &CancelFlag::new()).unwrap();
    assert_eq!(matcher.num_accepted_tokens(), 3);
    assert!(matcher.accept_bytes(b"se").unwrap());
    assert!(matcher.is_completed());
}

#[test]
fn own_stop_tokens_take_the_place_of_the_vocabularys() {
    let compiler = compiler();
    let grammar = compiler.compile_regex("a?").unwrap();
    let allowed = |stop_token_ids: &[u32]| {
        let matcher = GrammarMatcher::with_only_stop_tokens(&grammar, stop_token_ids);
        matcher.next_token_mask().unwrap().token_ids()
    };
    assert_eq!(allowed(&[259]), [97, 259]);
    assert_eq!(allowed(&[256]), [97, 256]);
    assert_eq!(allowed(&[256, 258]), [97, 256, 258]);
    assert_eq!(allowed(&[]), [97, 258, 259]);
    assert_eq!(allowed(&[1000]), [97, 258, 259]);
    let mut matcher = GrammarMatcher::with_only_stop_tokens(&grammar, &[259]);
    assert!(!matcher.accept_token(258).unwrap());
    assert!(matcher.accept_token(97).unwrap());
    assert!(!matcher.accept_token(258).unwrap());
    assert!(matcher.accept_token(259).unwrap());
    assert!(matcher.is_terminated());
    assert_eq!(matcher.next_token_mask().unwrap().token_ids(), [259]);
    assert!(!matcher.accept_token(258).unwrap());
}
