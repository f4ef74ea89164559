//! What masks cost as a text grows.

use std::sync::Arc;

use crate::lexical::{Fuel, Stop};
use crate::{CompilerOptions, GrammarCompiler, TokenizerInfo};

const EOS: u32 = 256;

fn compiler() -> GrammarCompiler {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.push(b"<eos>".to_vec());
    vocab.extend(["[[", "],", "]]", ",[", "ab", "12", "+1", "(c", "),", " a"].map(Into::into));
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
}

/// Steps and memory don't grow with what was read before, masks included, where a grammar is not
/// ambiguous: right and left recursion, lists in lists, and what only nests. To 100,000 bytes.
#[test]
fn masks_cost_the_same_however_long_the_text_is() {
    const STEPS: u64 = 100_000_000;
    let grammars = [
        ("root ::= \"ab\" root | \"c\"", "ab", 0),
        ("root ::= root \"ab\" | \"ab\"", "ab", 0),
        (
            "root ::= sum\nsum ::= sum \"+\" n | n\nn ::= [0-9]+",
            "1+1+12+",
            0,
        ),
        (
            "root ::= item | item \",\" root\nitem ::= [a-z]+ | \"(\" root \")\"",
            "ab,(c,d),",
            0,
        ),
        // A frame is kept for each bracket that is open.
        ("root ::= \"[\" root \"]\" | [0-9]+", "[", 700),
        (
            "root ::= \"[\" (root (\",\" root)*)? \"]\" | [0-9]+",
            "[[1,2],",
            250,
        ),
    ];
    for (source, unit, bytes_per_byte) in grammars {
        let compiler = compiler();
        let grammar = compiler.compile_ebnf(source, "root").unwrap();
        let mut automaton = grammar.engine().lock();
        let before = automaton.state_bytes() + automaton.cache_bytes();
        let mut state = grammar.root();
        let text = unit.repeat(100_000 / unit.len());
        let mut costs = Vec::new();
        for chunk in text.as_bytes().chunks(10_000) {
            let mut fuel = Fuel::new(STEPS);
            for &byte in chunk {
                let mask = automaton.next_tokens(state, &mut fuel).unwrap();
                assert!(mask.is_allowed(u32::from(byte)), "{source}");
                let next = automaton.after_token(state, u32::from(byte), &mut fuel);
                state = next.unwrap().unwrap();
            }
            costs.push(STEPS - fuel.left());
        }
        let (second, last) = (costs[1], costs[costs.len() - 2]);
        assert!(last <= second + second / 100, "{source}: {costs:?}");
        let memory = automaton.state_bytes() + automaton.cache_bytes() - before;
        assert!(
            memory <= (64 << 10) + bytes_per_byte * text.len(),
            "{source}: {memory} bytes for {} of text",
            text.len()
        );
    }
}

/// A mask at a place of which only what is around it is new makes no state of the parser but for what
/// follows the rule.
#[test]
fn what_a_rule_allows_is_known_wherever_it_is_called() {
    let source = r#"root ::= "(" e ";)" | "[" e ";]" | "<" e ";)!"
        e ::= t ("+" t)*
        t ::= [a-z]+ | "{" e "}""#;
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.push(b"<eos>".to_vec());
    vocab.extend(["b+", "b+{", "+a+", "b;", "+a;", "+a;)", "+a;]", "+a;)!"].map(Into::into));
    let num_bytes = 257;
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[]).unwrap();
    let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
    let grammar = compiler.compile_ebnf(source, "root").unwrap();
    let mut automaton = grammar.engine().lock();
    let mut fuel = Fuel::new(1_000_000);
    let mut made = Vec::new();
    for (open, longer) in [
        (b'(', vec![0, 1, 2, 3, 4, 5]),
        (b'[', vec![0, 1, 2, 3, 4, 6]),
        (b'<', vec![0, 1, 2, 3, 4, 5, 7]),
    ] {
        let mut state = grammar.root();
        for byte in [open, b'a'] {
            let next = automaton.after_token(state, u32::from(byte), &mut fuel);
            state = next.unwrap().unwrap();
        }
        let before = automaton.parser().0.num_states();
        let mask = automaton.next_tokens(state, &mut fuel).unwrap();
        made.push(automaton.parser().0.num_states() - before);
        for token in 0..vocab.len() as u32 - num_bytes {
            let is_allowed = mask.is_allowed(num_bytes + token);
            assert_eq!(is_allowed, longer.contains(&token), "{open} {token}");
        }
    }
    // The lexeme that follows, after its first and its second byte.
    assert!(
        made[0] > 6 && made[1..].iter().all(|&made| made <= 3),
        "{made:?}"
    );
}

/// Where steps have no end, only memory can be lacking, and whoever asked is told so: a matcher then goes on in other
/// memory, which no number of steps would let it do. However little there is, and whatever part of the work it was.
#[test]
fn a_lack_of_memory_is_told_whatever_part_of_the_work_met_it() {
    const STEPS: u64 = u64::MAX / 16;
    let schemas = [
        (
            r#"{"type": "array", "uniqueItems": true, "minItems": 3}"#,
            "[\"ab\",",
        ),
        (r#"{"type": "object", "minProperties": 3}"#, "{\"a"),
        (
            r#"{"properties": {"ab": {"type": "integer"}}, "required": ["ab"], "minProperties": 2}"#,
            "{\"",
        ),
    ];
    let grammars = [
        (
            "root ::= \"(\" root \")\" | [a-z]+ | \"[\" list\nlist ::= root (\",\" root)* \"]\"",
            "[[ab",
        ),
        ("root ::= root root | \"a\" | \"ab\" | \"b\"", "aab"),
    ];
    let of_schemas = schemas.map(|(source, text)| (source, text, true));
    let of_grammars = grammars.map(|(source, text)| (source, text, false));
    let mut num_lacks = 0;
    for (source, text, is_schema) in of_schemas.into_iter().chain(of_grammars) {
        for may_leave_out in [false, true] {
            let mut more = 0;
            loop {
                let compiler = compiler();
                let grammar = match is_schema {
                    true => compiler.compile_json_schema(source, &Default::default()),
                    false => compiler.compile_ebnf(source, "root"),
                };
                let grammar = grammar.unwrap();
                let mut automaton = grammar.engine().lock();
                let mut fuel = Fuel::new(STEPS);
                let mut state = grammar.root();
                for byte in text.bytes() {
                    let next = automaton.after_token(state, u32::from(byte), &mut fuel);
                    state = next.unwrap().unwrap();
                }
                fuel.limit_bytes(automaton.state_bytes() + more);
                let needed = automaton.tokens_to_end(state, &mut fuel);
                let mask = needed.and_then(|needed| {
                    automaton.next_tokens_within(state, needed + 2, may_leave_out, &mut fuel)
                });
                let mask = mask.and_then(|_| automaton.next_tokens(state, &mut fuel));
                match mask {
                    Ok(_) => break,
                    Err(stop) => assert!(matches!(stop, Stop::Bytes(_)), "{source}: {more} bytes"),
                }
                num_lacks += 1;
                more += 16 + more / 64;
            }
        }
    }
    assert!(num_lacks > 20, "{num_lacks}");
}
