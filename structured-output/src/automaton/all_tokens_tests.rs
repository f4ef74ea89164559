//! Walks of all tokens against acceptance token by token, with fuel that ends anywhere.

#[allow(dead_code, unreachable_pub)]
#[path = "../../tests/reference/random_lark.rs"]
mod random_lark;

use std::sync::Arc;

use random_lark::{Random, random_lark};

use super::all_tokens::Wanted;
use super::{GrammarState, TokenAutomaton};
use crate::earley::{Lexeme, StateId};
use crate::lexical::Fuel;
use crate::mask::set_bits;
use crate::pushdown::EMPTY_STACK;
use crate::{CompileBudget, CompilerOptions, GrammarCompiler, Limits, TokenizerInfo};

const EOS: u32 = 0;
/// What one token may take to be accepted.
const ACCEPT_STEPS: u64 = 100_000;

/// All bytes, and words of what random grammars are made of.
fn vocabulary() -> Vec<Vec<u8>> {
    let mut vocab = vec![b"<eos>".to_vec()];
    vocab.extend((0..=255_u8).map(|byte| vec![byte]));
    let words = [
        "  ", "    ", "\n\n", " \n", "ab", "aa", "aab", "abab", "ba", "aaaaaaaa", "((", "))", "()",
        "(a", "a)", " a", "a ", " ab ", "*a", "*a*", "**", "***", "* *", "if", " if", "if(", "ifa",
        "12", "007", "1.", "1,", "\":", "\"\"", "a\"", "é", "日本", "\n ", "a\n", "aé", "é*",
    ];
    vocab.extend(words.map(Into::into));
    vocab.extend([b"\xc3".to_vec(), b"\xa9 ".to_vec(), b"<tool>".to_vec()]);
    vocab
}

/// EBNF in which tokens of a text are counted.
fn counted_ebnf(random: &mut Random) -> String {
    let roots = [
        "x c root | \"a\"",
        "c x c",
        "(x | c)* \"a\"",
        "c root c | x",
        "root c x | c",
    ];
    let root = roots[random.below(roots.len())];
    let parts = [
        "[ab]+",
        "\"a\" c",
        "\"*\" root \"*\"",
        "\"a\" | \"ab\" x",
        "root \" \" | c",
    ];
    let part = parts[random.below(parts.len())];
    let max = 1 + random.below(3);
    let text = ["[^]*", "[ab ]*", "[a*]*"][random.below(3)];
    format!("root ::= {root}\nx ::= {part} | \"b\"\nc[max_tokens={max}] ::= {text}")
}

/// A random grammar, in which some parts may be JSON or tokens, and which may be all there is to the text
/// or stand within it; one in eight in EBNF.
fn source(random: &mut Random) -> String {
    if random.below(8) == 0 {
        return counted_ebnf(random);
    }
    let mut source = random_lark(random);
    for (part, rule) in [
        ("\"*\"", "json: %json {\"type\": \"integer\"}"),
        ("\"*\"", "json: %json {\"enum\": [\"a\", [1, 2], \"a*\"]}"),
        ("\"(\"", "named: <tool>"),
        ("\")\"", "named: <[258-262]>"),
    ] {
        let name = rule.split([':', '[']).next().unwrap();
        if source.contains(part) && !source.contains(name) && random.below(4) == 0 {
            source = format!("{}\n{rule}", source.replace(part, name));
        }
    }
    match random.below(3) {
        0 => source.replace("start", "s") + "\nstart: s \"ab\" s | s \" \"",
        _ => source,
    }
}

fn options() -> CompilerOptions {
    CompilerOptions {
        budget: CompileBudget {
            max_steps: 300_000,
            ..CompileBudget::default()
        },
        limits: Limits {
            max_items: 200,
            ..Limits::default()
        },
        ..CompilerOptions::default()
    }
}

fn is_set(words: &[u32], id: u32) -> bool {
    words[id as usize / 32] >> (id % 32) & 1 == 1
}

/// What was found to hold at a place.
#[derive(Default)]
struct Checked {
    num_masks: usize,
    /// Of them those for which one way was not enough.
    num_without_contexts: usize,
    num_out_of_fuel: usize,
    /// Those at which JSON, a name and text of counted tokens may come.
    num_odd: [usize; 3],
}

/// The walks of a state, each by itself and all together with few steps and with many.
fn check(
    automaton: &mut TokenAutomaton,
    state: StateId,
    vocab: &[Vec<u8>],
    few: u64,
    checked: &mut Checked,
    source: &str,
) -> Vec<u32> {
    let index = Arc::clone(&automaton.index);
    let trie = index.byte_trie();
    let num_words = index.text_tokens().len();
    let text_of = |id: u32| String::from_utf8_lossy(&vocab[id as usize]).into_owned();

    let mut walked = Vec::new();
    for steps in [few, 20_000_000] {
        let mut words = vec![0; num_words];
        match automaton.walk_state(state, &mut words, &mut Fuel::new(steps)) {
            Ok(()) => walked.push(words),
            Err(_) => checked.num_out_of_fuel += 1,
        }
    }
    // Items by themselves up to so many steps, then such a walk of those that are no JSON.
    for steps in [few, 20_000_000] {
        let mut fuel = Fuel::new(20_000_000);
        match automaton.mask_of_items(state, steps, &mut fuel) {
            Ok(words) => walked.push(words),
            Err(_) => checked.num_out_of_fuel += 1,
        }
    }
    checked.num_masks += walked.len();
    for item in automaton.grammars.parser.items(state) {
        let kind = match item.lexeme {
            Lexeme::Text(text) if text.stack != EMPTY_STACK => 0,
            Lexeme::Token(_) => 1,
            Lexeme::Counted(..) => 2,
            _ => continue,
        };
        checked.num_odd[kind] += 1;
    }

    // By text alone, since walks see no names.
    let mut narrow = vec![0; num_words];
    automaton.grammars.memo.swap_steps();
    let others = automaton.walk_narrowed(trie, state, &mut narrow, &mut Fuel::new(few));
    automaton.grammars.memo.swap_steps();
    checked.num_without_contexts += usize::from(others == Ok(true));
    let mut loose = vec![0; num_words];
    let mut found = Vec::new();
    let wanted = Wanted::with(trie, &vec![0; num_words], false);
    let is_loose_whole = automaton
        .walk_loosely(trie, state, &wanted, &mut found, &mut Fuel::new(1_000_000))
        .is_ok();
    for tokens in found {
        set_bits(&mut loose, trie.ids(tokens));
    }

    let mut accepted = Vec::new();
    for id in 1..vocab.len() as u32 {
        let mut fuel = Fuel::new(ACCEPT_STEPS);
        let Ok(after) = automaton.parser_advance(state, id, &mut fuel) else {
            continue;
        };
        for words in &walked {
            assert_eq!(
                is_set(words, id),
                after.is_some(),
                "{source}\n{:?}",
                text_of(id)
            );
        }
        let mut written = Some(state);
        for &byte in index.info().token_bytes(id) {
            let Some(at) = written else { break };
            written = automaton
                .parser_step(at, byte, &mut Fuel::new(ACCEPT_STEPS))
                .unwrap();
        }
        assert!(
            !is_set(&narrow, id) || written.is_some(),
            "{source}\n{:?}",
            text_of(id)
        );
        if is_loose_whole && index.is_text_token(id) {
            assert!(
                is_set(&loose, id) || written.is_none(),
                "{source}\n{:?}",
                text_of(id)
            );
        }
        if others == Ok(false) && index.is_text_token(id) {
            assert_eq!(
                is_set(&narrow, id),
                written.is_some(),
                "{source}\n{:?}",
                text_of(id)
            );
        }
        if after.is_some() {
            accepted.push(id);
        }
    }
    accepted
}

/// What one way to read a text allows is allowed, what no context allows isn't, and so they tell with the
/// walk of all ways together; whatever is unfinished, and whatever grammars were there before.
#[test]
fn walks_of_all_tokens_are_exact() {
    let cases: u64 = std::env::var("FORMWORK_CASES").map_or(300, |cases| cases.parse().unwrap());
    let seeds: u64 = std::env::var("FORMWORK_SEED").map_or(0, |seed| seed.parse().unwrap());
    let vocab = vocabulary();
    let control = vocab.len() as u32 - 1;
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[control]).unwrap();
    let info = Arc::new(info);
    let mut checked = Checked::default();
    let mut compiler = GrammarCompiler::new(Arc::clone(&info), options());
    for seed in seeds..seeds + cases {
        if seed % 16 == 0 {
            compiler = GrammarCompiler::new(Arc::clone(&info), options());
        }
        let mut random = Random::new(seed);
        let source = source(&mut random);
        let grammar = match source.starts_with("root ::=") {
            true => compiler.compile_ebnf(&source, "root"),
            false => compiler.compile_lark(&source),
        };
        let Ok(grammar) = grammar else { continue };
        let GrammarState::Parser(mut state) = grammar.root() else {
            continue;
        };
        let mut automaton = grammar.engine().lock();
        for _ in 0..3 {
            let few = 50 << random.below(16);
            let accepted = check(&mut automaton, state, &vocab, few, &mut checked, &source);
            let Some(&id) = accepted.get(random.below(accepted.len())) else {
                break;
            };
            let mut fuel = Fuel::new(ACCEPT_STEPS);
            match automaton.parser_advance(state, id, &mut fuel) {
                Ok(Some(next)) => state = next,
                _ => break,
            }
        }
    }
    println!(
        "{} masks, {} out of fuel, {} places with more than one way, {:?} odd items",
        checked.num_masks, checked.num_out_of_fuel, checked.num_without_contexts, checked.num_odd
    );
    assert!(checked.num_masks as u64 > cases && checked.num_without_contexts as u64 > cases / 10);
    assert!(checked.num_odd.iter().all(|&odd| odd > 0));
}
