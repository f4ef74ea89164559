//! Grammars as data: a file in `grammars/` per grammar, beside it a file of cases with texts that are
//! accepted and texts that are not. With each of the latter stands how many of its bytes are accepted:
//! where the first is that is refused, or all of them where something is missing at the end.
//!
//! Each text is written in bytes, and in the longest tokens that fit, control tokens included: a tag
//! or a token's name stands for both. `tokens` holds cases where single tokens are named; what is no
//! token is written in bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use structured_output::{
    CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo,
};

/// Tokens after the 256 bytes. The first are words, then come added tokens that are text.
const WORDS: [&str; 22] = [
    "true",
    "false",
    "\": ",
    "\", \"",
    "SELECT ",
    " FROM ",
    "  ",
    "\n\n",
    "<tool",
    "_call>",
    "}}",
    "}\n</",
    "arguments",
    "function",
    "(x",
    "))",
    "1+",
    "\"}",
    "<think>",
    "</think>",
    "<tool_call>",
    "é",
];
const CONTROL: [&str; 14] = [
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "<|pad|>",
    "[ARGS]",
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
];
const STOP: [&str; 4] = ["<|eom_id|>", "<|eot_id|>", "<|call|>", "<|return|>"];

fn vocab() -> Vec<Vec<u8>> {
    let bytes = (0..=255).map(|byte| vec![byte]);
    let words = WORDS.iter().chain(&CONTROL).chain(&STOP);
    bytes
        .chain(words.map(|word| word.as_bytes().to_vec()))
        .collect()
}

fn compiler() -> GrammarCompiler {
    let vocab = vocab();
    let control = (256 + WORDS.len()) as u32;
    let stop = control + CONTROL.len() as u32;
    let control: Vec<u32> = (control..stop).collect();
    let stops: Vec<u32> = (stop..stop + STOP.len() as u32).collect();
    let info = TokenizerInfo::new(&vocab, vocab.len() + 9, &stops, &control).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grammars")
}

fn compile(compiler: &GrammarCompiler, path: &Path) -> Result<CompiledGrammar, CompileError> {
    let source = std::fs::read_to_string(path).unwrap();
    match path.extension().unwrap().to_str().unwrap() {
        "ebnf" | "gbnf" => compiler.compile_ebnf(&source, "root"),
        "lark" => compiler.compile_lark(&source),
        "json" => compiler.compile_structural_tag(&source),
        other => panic!("{other}"),
    }
}

/// All grammars, by name.
fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut grammars: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|kind| kind != "cases"))
        .collect();
    grammars.sort();
    assert!(grammars.len() >= 16);
    grammars
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn longest(text: &str, vocab: &[Vec<u8>]) -> Vec<u32> {
    let mut rest = text.as_bytes();
    let mut tokens = Vec::new();
    while !rest.is_empty() {
        let fits = (0..)
            .zip(vocab)
            .filter(|(_, token)| rest.starts_with(token));
        let (id, token) = fits.max_by_key(|(_, token)| token.len()).unwrap();
        tokens.push(id);
        rest = &rest[token.len()..];
    }
    tokens
}

/// Whether all tokens are accepted and the text may end, or has ended, after them. At each place the
/// mask must say what acceptance says.
fn accepts(matcher: &GrammarMatcher, tokens: &[u32], num_tokens: usize) -> bool {
    let mut matcher = matcher.fork();
    for (at, &token) in tokens.iter().enumerate() {
        let mask = matcher.next_token_mask().unwrap();
        if at < 40 || at % 16 == 0 {
            for id in 0..num_tokens as u32 {
                let accepted = matcher.fork().accept_token(id).unwrap();
                assert_eq!(
                    mask.is_allowed(id),
                    accepted,
                    "token {id} after {:?}",
                    &tokens[..at]
                );
            }
        }
        if !matcher.accept_token(token).unwrap() {
            return false;
        }
    }
    matcher.is_completed()
}

/// A case's text, and the first byte that is refused, or the length of a text that isn't over.
fn text_of(case: &serde_json::Value) -> (&str, Option<usize>) {
    match case {
        serde_json::Value::Array(pair) => {
            let at = pair[1].as_u64().unwrap();
            (pair[0].as_str().unwrap(), Some(at as usize))
        }
        text => (text.as_str().unwrap(), None),
    }
}

#[test]
fn cases() {
    let (vocab, compiler) = (vocab(), compiler());
    let mut wrong: Vec<String> = Vec::new();
    for path in files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let cases = std::fs::read_to_string(path.with_extension("cases")).unwrap();
        let cases: serde_json::Value = serde_json::from_str(&cases).unwrap();
        let grammar = compile(&compiler, &path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let matcher = GrammarMatcher::new(&grammar);
        for (kind, expected, least) in [("accept", true, 12), ("reject", false, 24)] {
            let texts = cases[kind].as_array().unwrap();
            let num_lists = cases["tokens"][kind].as_array().map_or(0, Vec::len);
            assert!(texts.len() + num_lists >= least, "{name}: few to {kind}");
            for case in texts {
                let (text, refused_at) = text_of(case);
                for tokens in [bytes(text), longest(text, &vocab)] {
                    if accepts(&matcher, &tokens, vocab.len()) != expected {
                        wrong.push(format!("{name}: not to {kind}: {text:?} as {tokens:?}"));
                    }
                }
                let num_accepted = matcher.validate_tokens(&bytes(text)).unwrap();
                if !expected && refused_at != Some(num_accepted) {
                    wrong.push(format!("{name}: {text:?} is refused at {num_accepted}"));
                }
            }
            let Some(lists) = cases["tokens"][kind].as_array() else {
                continue;
            };
            for list in lists {
                let mut tokens = Vec::new();
                for part in list.as_array().unwrap() {
                    let part = part.as_str().unwrap();
                    match (0..)
                        .zip(&vocab)
                        .find(|(_, token)| **token == part.as_bytes())
                    {
                        Some((id, _)) => tokens.push(id),
                        None => tokens.extend(bytes(part)),
                    }
                }
                if accepts(&matcher, &tokens, vocab.len()) != expected {
                    wrong.push(format!("{name}: not to {kind}: {list}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_bound_leads_to_an_end_from_everywhere() {
    let (vocab, compiler) = (vocab(), compiler());
    for path in files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let cases = std::fs::read_to_string(path.with_extension("cases")).unwrap();
        let cases: serde_json::Value = serde_json::from_str(&cases).unwrap();
        let grammar = compile(&compiler, &path).unwrap_or_else(|error| panic!("{name}: {error}"));
        for text in cases["accept"].as_array().unwrap() {
            let mut matcher = GrammarMatcher::new(&grammar);
            for token in longest(text.as_str().unwrap(), &vocab) {
                let mut ahead = matcher.fork();
                let mut left = ahead.min_tokens_to_complete().unwrap();
                while !ahead.is_terminated() {
                    let mask = ahead.next_token_mask_within(left).unwrap();
                    let all = ahead.next_token_mask().unwrap();
                    let ids = mask.token_ids();
                    assert!(!ids.is_empty(), "{name}: {text}");
                    assert!(ids.iter().all(|&id| all.is_allowed(id)));
                    assert!(ahead.accept_token(ids[ids.len() / 2]).unwrap());
                    left -= 1;
                }
                if matcher.is_terminated() {
                    break;
                }
                matcher.accept_token(token).unwrap();
            }
        }
    }
}

#[test]
fn the_select_statement_forces_a_sentence() {
    let compiler = compiler();
    let grammar = compile(&compiler, &folder().join("select.lark")).unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    assert_eq!(matcher.find_jump_forward_string().unwrap(), "SELECT ");
    for token in bytes("SELECT name FROM") {
        assert!(matcher.accept_token(token).unwrap());
    }
    assert_eq!(matcher.find_jump_forward_string().unwrap(), " ");
    assert!(matcher.accept_tokens(&bytes(" t")).unwrap());
    assert!(matcher.is_completed());
}

/// Tokens of several lexemes, which go on after brackets of different kinds are closed: the same ones
/// at each depth of nesting, with other contexts around them.
#[test]
fn tokens_reach_out_of_brackets_at_any_depth() {
    let letters = b"xo+.,()[]- ";
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    for &a in letters {
        for &b in letters {
            vocab.push(vec![a, b]);
            vocab.extend(letters.iter().map(|&c| vec![a, b, c]));
            vocab.push(vec![b')', b']', a, b]);
        }
    }
    let num_tokens = vocab.len();
    vocab.push(b"<eos>".to_vec());
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[num_tokens as u32], &[]).unwrap();
    let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
    let source = r#"start: sum
?sum: sum ("+" | "or") product | product
?product: product "." NAME | "-" product | atom
?atom: NAME | "(" [sum ("," sum)*] ")" | "[" sum ["--" sum] "]" | NAME "(" sum ")"
NAME: /[a-z]+/
%ignore / +/
"#;
    let grammar = compiler.compile_lark(source).unwrap();
    let matcher = GrammarMatcher::new(&grammar);
    for text in [
        "x+(x",
        "[x,",
        "[(x , [x--[x.x]]), x",
        "x or[x--(x(-x)",
        "((((x))",
        "((((x, x)), [x",
        "[[[[x]--x]",
        "x(x(x([x])",
    ] {
        accepts(&matcher, &bytes(text), num_tokens);
    }
}
