//! A pattern that is a whole constraint against Python's `re`, whose verdicts `python.py` wrote down.

use std::sync::Arc;

use serde_json::Value;
use structured_output::{
    CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo,
};

fn verdicts() -> Value {
    serde_json::from_str(include_str!("python.json")).unwrap()
}

/// Token `b` is the byte `b`; 256 ends the text.
fn compiler() -> GrammarCompiler {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.push(b"<eos>".to_vec());
    let info = TokenizerInfo::new(&vocab, 257, &[256], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
}

fn takes(grammar: &CompiledGrammar, text: &str) -> bool {
    let mut matcher = GrammarMatcher::new(grammar);
    let mut bytes = text.bytes().map(u32::from);
    bytes.all(|byte| matcher.accept_token(byte).unwrap()) && matcher.is_completed()
}

fn texts(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap();
    list.iter().map(|text| text.as_str().unwrap()).collect()
}

/// Compares the patterns of a list; those that are refused.
fn refused<'a>(compiler: &GrammarCompiler, list: &'a Value, texts: &[&str]) -> Vec<&'a str> {
    let mut refused = Vec::new();
    for case in list.as_array().unwrap() {
        let pattern = case[0].as_str().unwrap();
        let good = case[1].as_array().unwrap();
        let grammar = match compiler.compile_regex(pattern) {
            Ok(grammar) => Some(grammar),
            Err(CompileError::Unsatisfiable) => None,
            Err(CompileError::Regex { .. }) => {
                refused.push(pattern);
                continue;
            }
            Err(error) => panic!("{pattern}: {error}"),
        };
        for (at, text) in texts.iter().enumerate() {
            let expected = good.contains(&at.into());
            let found = grammar.as_ref().is_some_and(|grammar| takes(grammar, text));
            assert_eq!(found, expected, "{pattern} on {text:?}");
        }
    }
    refused
}

#[test]
fn classes_are_read_as_python_reads_them() {
    let verdicts = verdicts();
    let none = refused(
        &compiler(),
        &verdicts["of_signs"],
        &texts(&verdicts["signs"]),
    );
    assert_eq!(none, [""; 0]);
}

/// What is refused: atomic groups and possessive repetitions where Python matches less by them, or where one character
/// doesn't say that it doesn't; and assertions in repetitions.
#[test]
fn what_matches_as_a_whole_is_what_python_matches() {
    let verdicts = verdicts();
    let texts = texts(&verdicts["short"]);
    let expected = [
        "(?:a$\\n?)*",
        "(?m:^a$\\n)*b?",
        "a*+a",
        "a?+a",
        "a{1,2}+a",
        "[ab]*+b",
        "(?>ab|a)b",
        "(?>a|ab)b",
        "(?>a|b|)a",
        "(?>|a)b",
        "(?>a*?)b",
        "(?>(?:ab)*)a",
        "(?:a*+b?)*+",
        "(?:a++|b)*",
        "(?>a+b*)b",
        "(?=(?>a|ab)b)[ab]*",
        "a*+(?=b)[ab]*",
        "(?>a(?=b)|b)*",
        "(?>$|a)\\n",
    ];
    let refused = refused(&compiler(), &verdicts["of_short"], &texts);
    assert_eq!(refused, expected);
}

#[test]
fn random_patterns_match_as_in_python() {
    let verdicts = verdicts();
    let texts = texts(&verdicts["short"]);
    let refused = refused(&compiler(), &verdicts["random"], &texts);
    let all = verdicts["random"].as_array().unwrap().len();
    let is_plain = |pattern: &&&str| {
        let nothing_tried_again = ["(?>", "*+", "++", "?+", "}+"];
        !nothing_tried_again
            .iter()
            .any(|sign| pattern.contains(sign))
    };
    let plain = refused.iter().filter(is_plain).count();
    assert!(refused.len() * 2 < all && plain * 20 < all, "{refused:?}");
}
