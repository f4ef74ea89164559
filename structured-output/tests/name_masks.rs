//! Masks around names, over a vocabulary large enough for what is prepared of it, against acceptance
//! token by token.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use structured_output::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

/// All bytes, and words with what stands around them in programs: more than 10,000 tokens.
fn vocabulary() -> Vec<Vec<u8>> {
    let mut vocab: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
    for a in b'a'..=b'z' {
        for b in b'a'..=b'z' {
            let word = [a, b];
            for around in [
                "_", "_ ", " _", "  _", "_(", "_ or", "_or_", "_1", "_A(", " _.", "_=", "\n_",
                "_))",
            ] {
                let (before, after) = around.split_once('_').unwrap();
                vocab.push([before.as_bytes(), &word, after.as_bytes()].concat());
            }
            vocab.push([&word[..], "é".as_bytes()].concat());
            vocab.push([" ".as_bytes(), &word, "ж".as_bytes(), b"+"].concat());
        }
    }
    let texts = [
        " or", " and ", " not(", "in", " in", ")+", ") or", " é", "éa", "日本", "·", "if", " if",
        "((",
    ];
    vocab.extend(texts.map(|text| text.as_bytes().to_vec()));
    vocab
}

/// Grammars with beginnings of texts, at each of which all tokens are tried.
const CASES: [(&str, &[&str]); 3] = [
    (
        r#"start: test
test: test "or" test | test "in" test | "not" test | NAME | NAME "(" [test] ")" | NAME "." NAME
NAME: /[^\W\d]\w*/ & ~/or|in|not|if/
%ignore /[ \t]+/"#,
        &[
            "", "a", "a ", "no", "not", "not a", "aé", "f(", "f(a)", "f(g(x", "a.", "a or b",
        ],
    ),
    (
        r#"start: sum
sum: sum "+" sum | NAME | NAME "(" sum ")"
NAME: /[a-z][a-z0-9_]*/
%ignore /[ \n]+/"#,
        &["", "a", "ab1_", "a ", "a +", "f(a", "f(g(a)"],
    ),
    (
        r#"start: "SELECT"i NAME ("," NAME)* ("IF"i NAME "=" NAME)?
NAME: /[a-zA-Z_][a-zA-Z0-9_]*/ & ~/(select|if)/i
%ignore /[ \t\n]+/
%ignore /--[^\n]*/"#,
        &[
            "",
            "SEL",
            "SELECT",
            "SELECT a",
            "select a ",
            "select a,",
            "select a--",
            "select a if",
            "select a if b",
        ],
    ),
];

#[test]
fn a_mask_allows_what_is_accepted() {
    let mut vocab = vocabulary();
    let stop = vocab.len() as u32;
    vocab.push(Vec::new());
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[stop], &[]).unwrap();
    let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
    for (grammar, beginnings) in CASES {
        let grammar = compiler.compile_lark(grammar).unwrap();
        for beginning in beginnings {
            let mut matcher = GrammarMatcher::new(&grammar);
            for byte in beginning.bytes() {
                assert!(
                    matcher.accept_token(u32::from(byte)).unwrap(),
                    "{beginning:?}"
                );
            }
            let mask = matcher.next_token_mask().unwrap();
            for id in 0..stop {
                let is_accepted = matcher.validate_tokens(&[id]).unwrap() == 1;
                let text = String::from_utf8_lossy(&vocab[id as usize]);
                assert_eq!(mask.is_allowed(id), is_accepted, "{beginning:?} {text:?}");
            }
        }
    }
}
