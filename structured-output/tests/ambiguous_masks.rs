//! Masks of small ambiguous grammars over a vocabulary of realistic size: what they cost, and against
//! acceptance token by token.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use structured_output::{CompilerOptions, GrammarCompiler, GrammarMatcher, Limits, TokenizerInfo};

const EOS: u32 = 0;

/// All bytes, words with what stands around them in marked-up text, and runs of marks: more than
/// 12,000 tokens.
fn vocabulary() -> Vec<Vec<u8>> {
    let mut vocab = vec![b"<eos>".to_vec()];
    vocab.extend((0..=255_u8).map(|byte| vec![byte]));
    for a in b'a'..=b'z' {
        for b in b'a'..=b'z' {
            for around in [
                "@", "@ ", " @", "@e", "@ing", "*@", "@*", " *@*", "**@", "@_", "_@*", "@é", "@ @",
                "@,", " @.", "@1", "A@", "@*@*",
            ] {
                let word = String::from_utf8(vec![a, b]).unwrap();
                vocab.push(around.replace('@', &word).into_bytes());
            }
        }
    }
    for length in 2..=96 {
        vocab.extend([b'*', b'_', b' ', b'-'].map(|byte| vec![byte; length]));
        vocab.push(b"*_".repeat(length));
        vocab.push(b"* ".repeat(length));
    }
    vocab
}

/// Grammars, each with beginnings of texts.
const CASES: [(&str, &[&str]); 6] = [
    (
        "start: t\nt: (/[a-z]/ | b)*\nb: \"*\" t \"*\"",
        &["", "hello", "*", "a*b", "**c*", "*****"],
    ),
    (
        "start: t\nt: (/[a-z]/ | b)*\nb: \"*\" t \"*\" | \"_\" t \"_\"",
        &["", "hello", "*a", "*_", "_a*b_", "__**_"],
    ),
    (
        "start: x start x | \"\"\nx: /[a-z ]+/",
        &["", "hello", "a b c ", "two words and more"],
    ),
    (
        "start: x start x start | x\nx: /\\w+/ | /[a-z ]+/",
        &["", "hello", "A", "a 1", "a b c D"],
    ),
    (
        "start: (\"(\" start \")\" | \"*\" start | /[a-z*]/ | \"*\" start \"*\")+",
        &["", "a", "*", "(*", "(**)*"],
    ),
    // The second alternative has no text, though it goes on by every byte but one.
    (
        "start: a \"x\" start | \"y\"\na: /(?: )|(?:[^9]*&\\B\\pL)/",
        &["", " ", " x"],
    ),
];

/// At the beginning and after each text: the mask, within so many steps.
#[test]
fn masks_of_ambiguous_grammars_take_few_steps_and_are_exact() {
    let vocab = vocabulary();
    assert!(vocab.len() > 12_000);
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[]).unwrap();
    let options = CompilerOptions {
        limits: Limits {
            max_mask_steps: 150_000,
            ..Limits::default()
        },
        ..CompilerOptions::default()
    };
    let compiler = GrammarCompiler::new(Arc::new(info), options);
    for (source, texts) in CASES {
        let grammar = compiler.compile_lark(source).unwrap();
        for text in texts {
            let mut matcher = GrammarMatcher::new(&grammar);
            let bytes: Vec<u32> = text.bytes().map(|byte| u32::from(byte) + 1).collect();
            assert!(matcher.accept_tokens(&bytes).unwrap(), "{source}: {text:?}");
            let mask = matcher.next_token_mask();
            let mask = mask.unwrap_or_else(|error| panic!("{source}: {text:?}: {error}"));
            for (id, token) in (0..).zip(&vocab).skip(1) {
                let is_accepted = matcher.validate_tokens(&[id]).unwrap() == 1;
                let token = String::from_utf8_lossy(token);
                assert_eq!(
                    mask.is_allowed(id),
                    is_accepted,
                    "{source}: {text:?} {token:?}"
                );
            }
        }
    }
}
