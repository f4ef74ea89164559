//! The worked example of Outlines (Willard and Louf 2023, "Efficient Guided Generation for Large
//! Language Models"), which calls (state, token) look-ups its index.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use structured_output::{
    CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo, allocate_token_bitmask,
};

/// Bits of the tokens `A`, `.`, `42`, `.2`, `1`, and of the stop token.
fn mask(matcher: &GrammarMatcher) -> [u32; 6] {
    let mut row = allocate_token_bitmask(1, 6);
    assert!(matcher.fill_next_token_bitmask(&mut row).unwrap());
    std::array::from_fn(|token| row[0] >> token & 1)
}

#[test]
fn floating_point_numbers() {
    let vocab = ["A", ".", "42", ".2", "1", ""].map(|token| token.as_bytes().to_vec());
    let info = TokenizerInfo::new(&vocab, 6, &[5], &[]).unwrap();
    let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
    let grammar = compiler.compile_regex(r"([0-9]*)?\.?[0-9]*").unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    assert_eq!(mask(&matcher), [0, 1, 1, 1, 1, 1]);

    assert!(matcher.accept_token(3).unwrap());
    assert_eq!(mask(&matcher), [0, 0, 1, 0, 1, 1], "after .2");
    matcher.rollback(1).unwrap();
    assert!(matcher.accept_token(4).unwrap());
    assert_eq!(mask(&matcher), [0, 1, 1, 1, 1, 1], "after 1");

    // The digits after the point lead back to the same state, whose mask is a look-up.
    assert!(matcher.accept_tokens(&[3, 2]).unwrap());
    let after_two = matcher.next_token_mask().unwrap();
    assert!(matcher.accept_token(4).unwrap());
    assert!(matcher.next_token_mask().unwrap().is_same(&after_two));
}
