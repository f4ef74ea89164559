//! Free text with triggers that overlap, which one automaton of all of them reads: texts against a slow
//! reference, masks against acceptance byte by byte, completion against itself, and what many triggers cost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "reference/bytes_and_tokens.rs"]
mod bytes_and_tokens;
#[path = "reference/dispatch.rs"]
mod dispatch;
#[allow(unreachable_pub, dead_code)]
#[path = "reference/random_lark.rs"]
mod random_lark;

use std::sync::Arc;

use bytes_and_tokens::compiler;
use dispatch::Dispatch;
use random_lark::Random;
use structured_output::{
    CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo,
};

/// Letters of triggers: few, so that they overlap, some of several bytes.
const LETTERS: [&[&str]; 3] = [&["a", "b"], &["a", "b", "<"], &["a", "é", "è", "€"]];

fn word(random: &mut Random, letters: &[&str], longest: usize) -> String {
    let length = 1 + random.below(longest);
    let letters = (0..length).map(|_| letters[random.below(letters.len())]);
    letters.collect()
}

impl Dispatch {
    fn random(random: &mut Random, letters: &[&str]) -> Self {
        let most = [3, 6, 24][random.below(3)];
        let longest = 2 + random.below(4);
        let mut triggers: Vec<String> = (0..2 + random.below(most))
            .map(|_| word(random, letters, longest))
            .collect();
        triggers.sort_unstable();
        triggers.dedup();
        let excludes: Vec<String> = (0..random.below(3))
            .map(|_| word(random, letters, 4))
            .filter(|text| !triggers.iter().any(|trigger| trigger.contains(text)))
            .collect();
        let tags = triggers.into_iter().map(|trigger| {
            let contents = (0..1 + random.below(2)).map(|_| match random.below(4) {
                0 => "a5;".to_owned(),
                1 => "55555555".to_owned(),
                2 => String::new(),
                _ => word(random, letters, 3),
            });
            (trigger, contents.collect())
        });
        Self {
            tags: tags.collect(),
            excludes,
            is_loop: random.below(4) > 0,
        }
    }

    fn structural_tag(&self) -> String {
        let rules = self.tags.iter().map(|(trigger, contents)| {
            let contents = contents.iter().map(|text| match text.as_str() {
                "" => serde_json::json!({"type": "sequence", "elements": []}),
                text => serde_json::json!({"type": "const_string", "value": text}),
            });
            let contents: Vec<_> = contents.collect();
            serde_json::json!([trigger, {"type": "or", "elements": contents}])
        });
        let rules: Vec<_> = rules.collect();
        let format = serde_json::json!({
            "type": "dispatch", "rules": rules, "loop": self.is_loop, "excludes": self.excludes,
        });
        serde_json::json!({"type": "structural_tag", "format": format}).to_string()
    }
}

/// Letters, words and contents in a row, some cut short.
fn random_text(random: &mut Random, dispatch: &Dispatch, letters: &[&str]) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..1 + random.below(6) {
        let (trigger, contents) = &dispatch.tags[random.below(dispatch.tags.len())];
        match random.below(6) {
            0 => text.extend_from_slice(word(random, letters, 3).as_bytes()),
            1 => text.extend_from_slice(b"x"),
            2 => text.extend_from_slice(&trigger.as_bytes()[..random.below(trigger.len())]),
            _ => {
                text.extend_from_slice(trigger.as_bytes());
                text.extend_from_slice(contents[random.below(contents.len())].as_bytes());
            }
        }
    }
    text
}

fn check_texts(dispatch: &Dispatch, grammar: &CompiledGrammar, texts: &[Vec<u8>]) {
    for text in texts {
        let mut matcher = GrammarMatcher::new(grammar);
        let ids: Vec<u32> = text.iter().map(|&byte| u32::from(byte)).collect();
        let accepted = matcher.accept_tokens(&ids).unwrap() && matcher.is_completed();
        let shown = String::from_utf8_lossy(text);
        assert_eq!(accepted, dispatch.accepts(text), "{shown:?} {dispatch:?}");
    }
}

fn check_masks(source: &str, grammar: &CompiledGrammar, tokens: &[Vec<u8>], text: &[u8]) {
    let mut matcher = GrammarMatcher::new(grammar);
    for at in 0..=text.len() {
        let mask = matcher.next_token_mask().unwrap();
        let bytes = (0..256_u32).filter(|byte| byte % 7 == at as u32 % 7 || *byte < 128);
        for id in bytes {
            let accepted = matcher.validate_tokens(&[id]).unwrap() == 1;
            assert_eq!(
                mask.is_allowed(id),
                accepted,
                "{source} {:?} {id}",
                &text[..at]
            );
        }
        for (id, token) in (256_u32..).zip(tokens) {
            let written: Vec<u32> = token.iter().map(|&byte| u32::from(byte)).collect();
            let accepted = matcher.validate_tokens(&written).unwrap() == written.len();
            let (before, token) = (&text[..at], String::from_utf8_lossy(token));
            let before = String::from_utf8_lossy(before);
            assert_eq!(
                mask.is_allowed(id),
                accepted,
                "{source}\n{before:?} {token:?}"
            );
        }
        let Some(&next) = text.get(at) else { break };
        if !matcher.accept_token(u32::from(next)).unwrap() {
            break;
        }
    }
}

/// The bound falls by one with each token that it allows, down to the end.
fn check_completion(source: &str, grammar: &CompiledGrammar, eos: u32, text: &[u8]) {
    let mut matcher = GrammarMatcher::new(grammar);
    for &byte in text {
        if !matcher.accept_token(u32::from(byte)).unwrap() {
            break;
        }
    }
    while !matcher.is_terminated() {
        let left = matcher.min_tokens_to_complete().unwrap();
        let mask = matcher.next_token_mask_completing(left).unwrap();
        let token = (0..=eos).find(|&id| mask.is_allowed(id));
        let token = token.unwrap_or_else(|| panic!("{source}\n after {text:?}: {left}"));
        assert!(matcher.accept_token(token).unwrap());
        if !matcher.is_terminated() {
            let after = matcher.min_tokens_to_complete().unwrap();
            assert!(
                after < left,
                "{source}\n after {text:?}: {left} and {after}"
            );
        }
    }
}

#[test]
fn triggers_that_overlap_mean_the_first() {
    let cases = std::env::var("FORMWORK_CASES").map_or(250, |cases| cases.parse().unwrap());
    let first = std::env::var("FORMWORK_SEED").map_or(0, |seed| seed.parse().unwrap());
    for seed in first..first + cases {
        let mut random = Random::new(seed);
        let letters = LETTERS[random.below(LETTERS.len())];
        let dispatch = Dispatch::random(&mut random, letters);
        let texts: Vec<Vec<u8>> = (0..8)
            .map(|_| random_text(&mut random, &dispatch, letters))
            .collect();
        let tokens: Vec<Vec<u8>> = (0..30)
            .map(|_| {
                let text = random_text(&mut random, &dispatch, letters);
                let start = random.below(text.len().max(1)).min(text.len());
                let length = 2 + random.below(9);
                text[start..(start + length).min(text.len())].to_vec()
            })
            .filter(|token| token.len() > 1)
            .collect();
        let source = dispatch.structural_tag();
        let compiler = compiler(&tokens, 2_000_000);
        let grammar = compiler.compile_structural_tag(&source).unwrap();
        let checked = std::panic::catch_unwind(|| {
            check_texts(&dispatch, &grammar, &texts);
            for text in &texts {
                check_masks(&source, &grammar, &tokens, text);
                check_completion(&source, &grammar, 256 + tokens.len() as u32, text);
            }
        });
        assert!(checked.is_ok(), "seed {seed}");
    }
}

/// Where a vocabulary lacks bytes no text has them, and nothing leads to where they would be needed: from each
/// place on tokens write an end.
#[test]
fn triggers_that_cannot_be_written_lead_nowhere() {
    let cases = std::env::var("FORMWORK_CASES").map_or(400, |cases| cases.parse().unwrap());
    for seed in 0..cases {
        let mut random = Random::new(seed);
        let letters = LETTERS[random.below(LETTERS.len())];
        let dispatch = Dispatch::random(&mut random, letters);
        let mut bytes: Vec<u8> = b"ab<x5;\xc3\xa9\xa8\xe2\x82\xac".to_vec();
        for _ in 0..1 + random.below(3) {
            bytes.remove(random.below(bytes.len()));
        }
        let mut vocab: Vec<Vec<u8>> = bytes.iter().map(|&byte| vec![byte]).collect();
        vocab.push(b"<eos>".to_vec());
        let eos = vocab.len() as u32 - 1;
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[eos], &[eos]).unwrap();
        let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
        let source = dispatch.structural_tag();
        let Ok(grammar) = compiler.compile_structural_tag(&source) else {
            continue;
        };
        for _ in 0..6 {
            let text = random_text(&mut random, &dispatch, letters);
            let id = |byte: &u8| bytes.iter().position(|known| known == byte);
            let Some(ids) = text.iter().map(id).collect::<Option<Vec<usize>>>() else {
                continue;
            };
            let ids: Vec<u32> = ids.into_iter().map(|id| id as u32).collect();
            let mut matcher = GrammarMatcher::new(&grammar);
            let mut num_accepted = 0;
            for &id in &ids {
                let is_allowed = matcher.next_token_mask().unwrap().is_allowed(id);
                let accepted = matcher.accept_token(id).unwrap();
                assert_eq!(is_allowed, accepted, "seed {seed}");
                if !accepted {
                    break;
                }
                num_accepted += 1;
                let left = matcher.min_tokens_to_complete().unwrap();
                let mut rest = matcher.fork();
                for _ in 0..left {
                    let bound = rest.min_tokens_to_complete().unwrap();
                    let mask = rest.next_token_mask_within(bound).unwrap();
                    let token = (0..=eos).find(|&id| mask.is_allowed(id));
                    let token = token.unwrap_or_else(|| panic!("seed {seed} {source} {text:?}"));
                    assert!(rest.accept_token(token).unwrap());
                }
                assert!(rest.is_terminated(), "seed {seed} {source} {text:?}");
            }
            let accepted = num_accepted == ids.len() && matcher.is_completed();
            assert_eq!(
                accepted,
                dispatch.accepts(&text),
                "seed {seed} {source} {text:?}"
            );
        }
    }
}

/// Thousands of triggers are as many places in one automaton, whatever they have in common: no call takes
/// more than a step for each token of a large vocabulary.
#[test]
fn many_triggers_cost_little() {
    let mut random = Random::new(1);
    let letters: Vec<&str> = "a b c d e f g h i j".split(' ').collect();
    let all: Vec<&str> = "a b c d e f g h i j k l m n o p q r s t u v w x y z"
        .split(' ')
        .collect();
    let mut tokens: Vec<Vec<u8>> = (0..40_000)
        .map(|at| {
            let letters = if at % 2 == 0 { &letters } else { &all };
            let word = word(&mut random, letters, 9);
            let space = if at % 3 == 0 { " " } else { "" };
            format!("{space}{word}").into_bytes()
        })
        .collect();
    tokens.sort_unstable();
    tokens.dedup();
    let compiler = compiler(&tokens, 40_000);
    let mut triggers: Vec<String> = (0..3_000)
        .map(|_| {
            format!(
                "{}{}",
                word(&mut random, &letters, 5),
                word(&mut random, &letters, 3)
            )
        })
        .filter(|trigger| trigger.len() >= 4)
        .collect();
    triggers.sort_unstable();
    // No trigger begins with another one.
    triggers.dedup_by(|trigger, before| trigger.starts_with(before.as_str()));
    let of_structures: Vec<_> = triggers
        .iter()
        .map(|trigger| {
            let schema = serde_json::json!({"type": "object"});
            serde_json::json!({"begin": format!("{trigger}("), "schema": schema, "end": ")"})
        })
        .collect();
    let source = serde_json::json!({
        "type": "structural_tag", "structures": of_structures, "triggers": triggers,
    });
    let grammar = compiler
        .compile_structural_tag(&source.to_string())
        .unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    let called = &triggers[1_234];
    let text = format!(
        "cabbage {}x {called}({{\"a\": 1}}) bad {called}",
        &triggers[7][..3]
    );
    for byte in text.bytes() {
        let mask = matcher.next_token_mask().unwrap();
        assert!(mask.is_allowed(u32::from(byte)), "{byte}");
        assert!(matcher.accept_token(u32::from(byte)).unwrap());
    }
    assert!(!matcher.is_completed());
}
