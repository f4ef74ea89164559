//! Rules that are repeated, may be over within a token and begin there again, also with JSON among what they
//! may be: their masks against acceptance token by token, and what they cost.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
#[path = "reference/bytes_and_tokens.rs"]
mod bytes_and_tokens;
#[allow(dead_code, unreachable_pub)]
#[path = "reference/random_lark.rs"]
mod random_lark;

use bytes_and_tokens::{EOS, after, compiler_after_end, words_after_end};
use random_lark::Random;
use structured_output::{GrammarMatcher, MatcherError};

/// All bytes, words with what stands around them, parts of JSON, and runs of signs, words and lines.
fn vocabulary() -> Vec<Vec<u8>> {
    let arounds = [
        "@", "@ ", " @", "@ing", "@\n", "\n@", "@ @ @ @", "@\n\n", "\n@ \n@", "@)", "(@", "@é",
        "@ {\"", "\"@\"", "@\"}\n", "@,@,@", "@=@", "1@2",
    ];
    let mut vocab = words_after_end(b'a'..=b'j', &arounds);
    let json = [
        "{}",
        "{\"",
        "\"}",
        "{}{}",
        "{} {}",
        "}{",
        "[1",
        "1]",
        "[1][2]",
        "[[",
        "]]",
        "]\n[",
        "{}\na",
        "a{}",
        "\":",
        "\": 1",
        "1}",
        "12}\nab",
        "12",
        " 12",
        "[]",
        "[] []",
        "\"\"",
        "\"a\"\"b\"",
        "\"a\" b \"",
        "1.5",
        "5 5 5",
        "-1",
        "true",
        "truefalse",
        "null null",
        "{\"a\":1}",
        "{\"a\":1}{\"a\":1}",
    ];
    vocab.extend(json.map(Into::into));
    for length in 2..=64 {
        vocab.extend([b'*', b'_', b' ', b'-', b'\n', b'1'].map(|byte| vec![byte; length]));
        vocab.extend(
            ["* ", "a ", "\n ", "a\n", "_*", "{}", "1,"].map(|text| text.repeat(length).into()),
        );
    }
    vocab
}

/// Grammars with beginnings of texts.
const CASES: [(&str, &[&str]); 7] = [
    (
        "start: line+\nline: /[^\\n]{1,80}/ \"\\n\"? | %json {\"type\":\"object\",\"properties\":\
         {\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}",
        &[
            "",
            "hello",
            "a\nb",
            "{\"a\": 1}",
            "{\"b\"",
            "some words\nof",
        ],
    ),
    (
        "start: line+\nline: /[^\\n]{1,80}/ \"\\n\"? | %json {\"type\":\"object\"}",
        &["", "hello", "{\"a\"", "{}"],
    ),
    (
        "start: item+\nitem: /\\w{1,20}/ \" \"? | %json {\"type\":\"string\"}",
        &["", "hello", "a ", "\"", "\"a\"b"],
    ),
    (
        "start: r\nr: /.{0,10}/ r \")\" | %json {\"type\":\"array\",\"items\":{\"type\":\"number\"}}",
        &["", " **", "abc(", "[1", "ab[1]"],
    ),
    (
        "start: (item | \"(\" start \")\")+\nitem: /[\\w ]{1,12}/ \",\"? | %json {\"type\":\"number\"}",
        &["", "ab", "(1.5", "((a,b) 1"],
    ),
    (
        "start: a b a\na: (b | /[a-z]{1,9}/ \" \"?)+\nb: /[^a]{1,30}/ | %json {\"enum\":[1,12,\"a\"]}",
        &["", "a1", "a \"a\"", "  ab"],
    ),
    // No JSON.
    (
        "start: item+\nitem: /\\w{1,20}/ \" \"? | \"(\" start \")\" | \"*\" /./",
        &["", "hello", "(a ", "*", "((a b)*"],
    ),
];

/// What a mask allows is what is accepted.
#[track_caller]
fn check(matcher: &GrammarMatcher, vocab: &[Vec<u8>], step: usize, source: &str) -> Vec<u32> {
    let mask = matcher.next_token_mask().unwrap();
    let ids = (1..257).chain((257..vocab.len()).step_by(step));
    for id in ids {
        let Ok(accepted) = matcher.validate_tokens(&[id as u32]) else {
            continue;
        };
        let token = String::from_utf8_lossy(&vocab[id]);
        assert_eq!(
            mask.is_allowed(id as u32),
            accepted == 1,
            "{source}: {token:?}"
        );
    }
    mask.token_ids()
}

/// Each way to cut a token was walked by itself: these took more than 2,000,000 steps.
#[test]
fn masks_of_repeated_rules_take_few_steps() {
    let vocab = vocabulary();
    let compiler = compiler_after_end(&vocab, 120_000);
    for (source, texts) in CASES {
        let grammar = compiler.compile_lark(source).unwrap();
        for text in texts {
            let matcher = after(&grammar, source, text);
            if let Err(error) = matcher.next_token_mask() {
                panic!("{source}: {text:?}: {error}");
            }
            check(&matcher, &vocab, 1, source);
        }
    }
}

/// A rule that may be over anywhere, and begin with what it may end with.
fn random_rule(random: &mut Random, calls: &[&str]) -> String {
    let character = random.pick(&[
        "\\w",
        "[a-z]",
        "[^\\n]",
        ".",
        "[a-z ]",
        "[^*]",
        "[{}a-c\" ]",
        "[0-9,]",
    ]);
    let least = random.below(3);
    let most = least + 1 + random.below(24);
    let end = random.pick(&["\"\\n\"?", "\" \"?", "\",\"*", "\"\\n\"", "\"}\"?", ""]);
    let json = random.pick(&[
        "%json {\"type\":\"object\"}",
        "%json {\"type\":\"string\"}",
        "%json {\"type\":\"integer\"}",
        "%json {\"type\":\"array\",\"items\":{\"type\":\"number\"}}",
        "%json {\"enum\":[1,12,\"a\",[1],{}]}",
        "%json {\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
    ]);
    let word = format!("/{character}{{{least},{most}}}/ {end}");
    let call = random.pick(calls);
    match random.below(8) {
        0 => format!("{word} | \"(\" {call} \")\""),
        1 => format!("{word} {call}? | {json}"),
        2 => format!("{json} {end} | {word}"),
        3 => format!("({word} | {call})~1..3"),
        4 => format!("{word} | {call} \" \" {json}"),
        _ => format!("{word} | {json}"),
    }
}

fn random_grammar(random: &mut Random) -> String {
    let x = random_rule(random, &["y", "x", "start"]);
    let y = random_rule(random, &["y"]);
    let start = match random.below(5) {
        0 => "x y+",
        1 => "(x | y)+",
        2 => "x start \")\" | y",
        _ => "x+",
    };
    format!("start: {start}\nx: {x}\ny: {y}")
}

/// Masks of random grammars of such rules, at places of a text.
#[test]
fn masks_of_random_repeated_rules_are_exact() {
    let vocab = vocabulary();
    let compiler = compiler_after_end(&vocab, 2_000_000);
    let num_cases = std::env::var("FORMWORK_CASES").map_or(30, |cases| cases.parse().unwrap());
    let seeds: u64 = std::env::var("FORMWORK_SEED").map_or(0, |seed| seed.parse().unwrap());
    let (mut num_masks, mut num_failed) = (0, 0);
    for seed in seeds..seeds + num_cases {
        let mut random = Random::new(seed);
        let source = random_grammar(&mut random);
        let Ok(grammar) = compiler.compile_lark(&source) else {
            continue;
        };
        let mut matcher = GrammarMatcher::new(&grammar);
        for _ in 0..6 {
            if matcher.next_token_mask().is_err() {
                // After long runs a text may be read in too many ways.
                num_failed += 1;
                break;
            }
            let step = 1 + random.below(7);
            let mut ids = check(&matcher, &vocab, step, &source);
            num_masks += 1;
            ids.retain(|&id| id != EOS);
            // Rather those that are cut in many ways.
            let long = ids
                .iter()
                .copied()
                .filter(|&id| vocab[id as usize].len() > 2);
            let long: Vec<u32> = long.collect();
            let ids = if long.is_empty() || random.below(3) == 0 {
                ids
            } else {
                long
            };
            let Some(&id) = ids.get(random.below(ids.len())) else {
                break;
            };
            match matcher.accept_token(id) {
                Ok(is_accepted) => assert!(is_accepted, "{source}"),
                Err(MatcherError::StepsExhausted { .. }) => break,
                Err(error) => panic!("{source}: {error}"),
            }
        }
    }
    println!("{num_masks} masks, {num_failed} failed");
    assert!(num_masks > 100 && num_failed * 20 < num_cases);
}
