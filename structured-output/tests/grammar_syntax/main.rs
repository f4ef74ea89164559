//! What the front ends accept, and what they say of the rest.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ebnf;
mod lark;
mod structural_tags;
mod tokens;

use std::sync::Arc;

use structured_output::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

const THINK: u32 = 256;
const TOOL: u32 = 257;
const STOP: u32 = 258;

fn compiler() -> GrammarCompiler {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.extend([&b"<think>"[..], b"<|tool|>", b"<|end|>"].map(<[u8]>::to_vec));
    let info = TokenizerInfo::new(&vocab, vocab.len() + 5, &[STOP], &[TOOL]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
}

fn message(source: &str) -> String {
    compiler().compile_grammar(source).unwrap_err().to_string()
}

fn accepts(source: &str, text: &str) -> bool {
    let grammar = compiler().compile_grammar(source);
    let grammar = grammar.unwrap_or_else(|error| panic!("{source}: {error}"));
    let mut matcher = GrammarMatcher::new(&grammar);
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    matcher.accept_tokens(&tokens).unwrap() && matcher.is_completed()
}

/// Whether the tokens are accepted one after the other, and the text may end or has ended.
fn accepts_tokens(source: &str, tokens: &[u32]) -> bool {
    let grammar = compiler().compile_grammar(source);
    let grammar = grammar.unwrap_or_else(|error| panic!("{source}: {error}"));
    let mut matcher = GrammarMatcher::new(&grammar);
    for &token in tokens {
        assert_eq!(
            matcher.next_token_mask().unwrap().is_allowed(token),
            matcher.fork().accept_token(token).unwrap()
        );
        if !matcher.accept_token(token).unwrap() {
            return false;
        }
    }
    matcher.is_completed()
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_grammar() {
    assert!(accepts("\u{feff}root ::= \"a\"", "a"));
    assert!(accepts("\u{feff}start: \"a\"", "a"));
    assert!(message("\u{feff}root ::= b").contains("line 1, column 10: rule `b`"));
    let tag = "\u{feff}{\"format\": {\"type\": \"any_text\"}}";
    assert!(compiler().compile_structural_tag(tag).is_ok());
}
