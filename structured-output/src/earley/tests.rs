//! The parser against a plain recogniser, and what grows with the length of a text.

#[path = "../../tests/reference/texts.rs"]
mod texts;

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::{Compilation, Parser, StateId};
use crate::grammar_syntax::{Grammar, SyntaxLimits, parse_ebnf};
use crate::lexical::{Fuel, Lexicon};
use crate::pushdown::Machine;

pub(super) const LIMITS: SyntaxLimits = SyntaxLimits {
    max_rules: 1000,
    max_nodes: 10_000,
    max_nesting: 100,
    max_repetition: i32::MAX as u32,
    max_trigger_overlaps: 1000,
    max_nested_grammars: 16,
    regex: crate::regex::RegexLimits {
        max_nodes: 10_000,
        max_nesting: 100,
        max_repetition: 10_000,
    },
};

pub(super) struct Compiled {
    pub(super) machine: Machine,
    pub(super) parser: Parser,
    /// `None` where the grammar is empty.
    pub(super) start: Option<StateId>,
}

/// All steps of compiling EBNF by the parser but the last.
fn prepared(source: &str) -> (Compilation, Machine, bool) {
    let mut grammar = Grammar::default();
    let root = parse_ebnf(source, "root", &LIMITS, &mut grammar).unwrap();
    let mut machine = Machine::new(Lexicon::new(Vec::new(), 16));
    let mut compilation = Compilation::new(grammar, root, |_| Default::default());
    let mut fuel = Fuel::new(10_000_000);
    let lexicon = &mut machine.lexicon;
    while compilation.lower(lexicon, 10).unwrap().is_none() {}
    compilation
        .build(Vec::new(), Vec::new(), &mut fuel)
        .unwrap();
    assert!(matches!(
        compilation.resolve_lazy(lexicon, 10, &mut fuel),
        Ok(true)
    ));
    while !compilation.weigh(lexicon, None, 10, &mut fuel).unwrap() {}
    let has_text = compilation.simplify(&mut fuel).unwrap().is_none();
    (compilation, machine, has_text)
}

/// Compiles EBNF by the parser, also what is regular.
pub(super) fn compile(source: &str) -> Compiled {
    let (compilation, mut machine, has_text) = prepared(source);
    let mut parser = Parser::new(4096);
    let mut fuel = Fuel::new(10_000_000);
    let start = has_text.then(|| {
        compilation
            .install(&mut machine, &mut parser, &mut fuel)
            .unwrap()
    });
    Compiled {
        machine,
        parser,
        start,
    }
}

impl Compiled {
    pub(super) fn after(&mut self, text: &[u8]) -> Option<StateId> {
        let mut state = self.start?;
        let mut fuel = Fuel::new(10_000_000);
        for &byte in text {
            state = self
                .parser
                .step(&mut self.machine, state, byte, &mut fuel)
                .unwrap()?;
        }
        Some(state)
    }

    fn accepts(&mut self, text: &[u8]) -> bool {
        let state = self.after(text);
        state.is_some_and(|state| self.parser.is_accepting(state))
    }
}

/// What may follow a place wherever its rule is called takes a look at its own grammar and no other.
#[test]
fn other_grammars_make_no_difference_for_what_may_follow_anywhere() {
    let source =
        "root ::= a \"x\" root | b\na ::= \"(\" a \")\" b | \"y\"\nb ::= \"<\" a b \">\" | \"z\"";
    let rules =
        (0..200).map(|rule| format!("r{rule} ::= \"(\" r{} \")\" | \"x\"\n", (rule + 7) % 200));
    let large = format!("root ::= r0\n{}", rules.collect::<String>());
    let mut steps = Vec::new();
    for others in [&[][..], &[large.as_str(), large.as_str()]] {
        let mut parser = Parser::new(4096);
        let mut install = |source: &str| {
            let (compilation, mut machine, _) = prepared(source);
            let mut fuel = Fuel::new(10_000_000);
            compilation
                .install(&mut machine, &mut parser, &mut fuel)
                .unwrap()
        };
        for other in others {
            install(other);
        }
        let state = install(source);
        install(source);
        let mut fuel = Fuel::new(10_000_000);
        for (_, node) in parser.followers(state) {
            parser.first_anywhere(node, &mut fuel).unwrap();
        }
        steps.push(fuel.left());
    }
    assert_eq!(steps[0], steps[1]);
}

/// A grammar that ends with its steps leaves no rule that is half there.
#[test]
fn rules_are_added_as_a_whole_or_not_at_all() {
    let source =
        "root ::= a \"x\" root | b\na ::= \"(\" a \")\" b | \"y\"\nb ::= \"<\" a b \">\" | \"z\"";
    let whole = compile(source).parser.program.next_node();
    let mut num_failed = 0;
    for steps in 0.. {
        let (compilation, mut machine, _) = prepared(source);
        let mut parser = Parser::new(4096);
        let made = compilation.install(&mut machine, &mut parser, &mut Fuel::new(steps));
        let num_nodes = parser.program.next_node();
        if made.is_ok() {
            assert_eq!(num_nodes, whole);
            break;
        }
        num_failed += 1;
        assert!(
            [0, whole].contains(&num_nodes),
            "{steps} steps: {num_nodes}"
        );
    }
    assert!(num_failed > whole);
}

#[test]
fn recursion_of_all_kinds() {
    let cases: [(&str, &[&str], &[&str]); 10] = [
        (
            "root ::= root \"a\" | \"b\"",
            &["b", "ba", "baa"],
            &["", "a", "ab"],
        ),
        (
            "root ::= \"a\" root | \"b\"",
            &["b", "ab", "aab"],
            &["", "a", "ba"],
        ),
        (
            "root ::= \"(\" root \")\" | \"\"",
            &["", "()", "(())"],
            &["(", ")", "(()"],
        ),
        (
            "root ::= root root | \"a\"",
            &["a", "aa", "aaaaa"],
            &["", "b"],
        ),
        ("root ::= root root | \"\"", &[""], &["a"]),
        (
            "root ::= a \"x\" | \"y\"\na ::= root \"z\" | b\nb ::= root | \"q\"",
            &["y", "qx", "yzx", "yx", "qxx", "qxzx"],
            &["q", "z", "yz", ""],
        ),
        (
            "root ::= n root \"x\" | \"y\"\nn ::= \"k\" | \"\"",
            &["y", "yx", "kyx", "kkyxx", "kyxx"],
            &["k", "ky", "kkyx", ""],
        ),
        (
            "root ::= (root \"a\"){2,3} | \"b\"",
            &["b", "baba", "bababa"],
            &["ba", "babababa", ""],
        ),
        (
            "root ::= e\ne ::= e \"+\" t | t\nt ::= t \"*\" f | f\nf ::= \"(\" e \")\" | [0-9]+",
            &["1", "1+2*3", "(1+2)*34", "((5))"],
            &["", "1+", "(1", "1)2", "+1"],
        ),
        (
            "root ::= [a-z]+ root \"!\" | [a-z]+",
            &["a", "ab", "ab!", "abc!!"],
            &["", "a!", "ab!!"],
        ),
    ];
    for (source, accept, reject) in cases {
        let mut compiled = compile(source);
        for text in accept {
            assert!(compiled.accepts(text.as_bytes()), "{source}: {text:?}");
        }
        for text in reject {
            assert!(!compiled.accepts(text.as_bytes()), "{source}: {text:?}");
        }
    }
}

#[test]
fn a_grammar_without_a_text_is_empty() {
    for source in [
        "root ::= root",
        "root ::= \"a\" root",
        "root ::= a \"x\"\na ::= root a",
    ] {
        assert!(compile(source).start.is_none(), "{source}");
    }
}

#[test]
fn many_repetitions_are_not_written_out() {
    let mut compiled = compile("root ::= (\"(\" root \")\"){3,2000000} | \"\"");
    assert!(compiled.accepts(b"()()()"));
    assert!(!compiled.accepts(b"()()"));
    let many: Vec<u8> = b"()".repeat(1000);
    assert!(compiled.accepts(&many));
    let mut compiled = compile("root ::= (\"(\" root \")\"){2,21} | \"x\"");
    for count in 0..40 {
        let text = b"(x)".repeat(count);
        assert_eq!(
            compiled.accepts(&text),
            (2..=21).contains(&count),
            "{count}"
        );
    }
}

#[test]
fn levels_of_precedence_are_one_loop() {
    let mut compiled = compile(
        r#"root ::= sum
        sum ::= sum ("+" | "-") product | product
        product ::= product ("*" | "/") power | power
        power ::= unary ("^" power)?
        unary ::= "-" unary | atom
        atom ::= [0-9]+ | "(" sum ")""#,
    );
    // More digits, any operator, the bracket; after the bracket the same with an end in its place.
    for (text, num_items) in [("(1", 3), ("(1)", 2), ("((1)", 2), ("(-1^(2*3)^4", 3)] {
        let state = compiled.after(text.as_bytes()).unwrap();
        let items = compiled.parser.items(state);
        assert_eq!(items.len(), num_items, "{text}: {items:?}");
    }
    // What may come after an operator is the same after each.
    let mut after = ["1+", "1-", "1*", "1/", "1^", "1+2^", "1*2^3/", "1--", "1^-"]
        .map(|text| compiled.after(text.as_bytes()).unwrap());
    after.sort_unstable();
    assert_eq!(after[0], after[after.len() - 1]);
    assert_ne!(compiled.after(b"(1+"), Some(after[0]));
    for (text, accepted) in [("-1+2*(3-4)^-5/6", true), ("1+", false), ("(1)2", false)] {
        assert_eq!(compiled.accepts(text.as_bytes()), accepted, "{text}");
    }
}

#[test]
fn rules_that_end_with_each_other_are_one_automaton() {
    let mut compiled = compile(
        r#"root ::= a
        a ::= "x" b | "y" c | "z"
        b ::= "x" c | "y" a | "(" a ")" b
        c ::= "w" a | "v" b | "u""#,
    );
    for text in [
        "z",
        "xyz",
        "xxu",
        "xxvyz",
        "ywyvyz",
        "x(xyz)yz",
        "x(yu)(z)yz",
    ] {
        assert!(compiled.accepts(text.as_bytes()), "{text}");
    }
    for text in ["", "x", "xz", "xyu", "x(xyz)", "x(xyz)z", "zz"] {
        assert!(!compiled.accepts(text.as_bytes()), "{text}");
    }
    // Back where it began, with the same before it.
    let start = compiled.start;
    for text in ["xyyw", "xxvyxxvy"] {
        assert_eq!(compiled.after(text.as_bytes()), start, "{text}");
    }
    let within = compiled.after(b"x(");
    assert_ne!(within, start);
    assert_eq!(compiled.after(b"x(xyywxxvy"), within);
    assert_eq!(compiled.after(b"x(xyyw)"), None);
}

#[test]
fn what_a_byte_costs_does_not_grow_with_the_text() {
    let grammars = [
        ("root ::= \"a\" root | \"\"", "a", ""),
        ("root ::= root \"a\" | \"\"", "a", ""),
        (
            "root ::= e\ne ::= e \"+\" f | f\nf ::= \"(\" e \")\" | [0-9]+",
            "12+(3+4)+",
            "1",
        ),
        (
            "root ::= \"[\" (root (\",\" root)*)? \"]\" | [0-9]+",
            "[[1,2],",
            "3",
        ),
        (
            "root ::= item | item \",\" root\nitem ::= [a-z]+ | \"(\" root \")\"",
            "ab,(c,d),",
            "e",
        ),
    ];
    for (source, unit, end) in grammars {
        let mut compiled = compile(source);
        let text = unit.repeat(100_000 / unit.len());
        let mut state = compiled.start.unwrap();
        let mut costs = Vec::new();
        for chunk in text.as_bytes().chunks(10_000) {
            let mut fuel = Fuel::new(10_000_000);
            for &byte in chunk {
                let next = compiled
                    .parser
                    .step(&mut compiled.machine, state, byte, &mut fuel);
                state = next.unwrap().unwrap();
            }
            costs.push(10_000_000 - fuel.left());
        }
        let (second, last) = (costs[1], costs[costs.len() - 2]);
        assert!(last <= second + second / 100, "{source}: {costs:?}");
        let per_byte = compiled.parser.memory_bytes() / 100_000;
        assert!(
            per_byte < 150,
            "{source}: {per_byte} bytes of memory per byte of text"
        );
        let mut fuel = Fuel::new(100_000);
        for &byte in end.as_bytes() {
            let next = compiled
                .parser
                .step(&mut compiled.machine, state, byte, &mut fuel);
            state = next.unwrap().unwrap();
        }
        assert!(source.contains('[') && unit.contains('[') || compiled.parser.is_accepting(state));
    }
}

/// Steps of each of some parts of a text, and the parser's memory after it.
fn costs(source: &str, text: &[u8], num_parts: usize) -> (Vec<u64>, usize) {
    let mut compiled = compile(source);
    let mut state = compiled.start.unwrap();
    let part = |part: &[u8]| {
        let mut fuel = Fuel::new(100_000_000);
        for &byte in part {
            let next = compiled
                .parser
                .step(&mut compiled.machine, state, byte, &mut fuel);
            state = next.unwrap().unwrap();
        }
        100_000_000 - fuel.left()
    };
    let costs = text.chunks(text.len() / num_parts).map(part).collect();
    (costs, compiled.parser.memory_bytes())
}

#[test]
fn texts_that_are_read_in_many_ways_cost_the_same_where_the_ways_mean_the_same() {
    let grammars = [
        ("root ::= root root | \"a\" | \"\"", "a"),
        ("root ::= s\ns ::= s s | s s s | \"a\" | \"\"", "a"),
        (
            "root ::= a*\na ::= b* \"\"\nb ::= \"(\" root \")\" | \"x\"*",
            "x",
        ),
        (
            "root ::= root \"+\" root | root \"*\" root | [0-9]+",
            "1+2*",
        ),
        (
            "root ::= ((\"(\" root \")\"){0,2147483647}){0,2147483647}",
            "()",
        ),
        ("root ::= ((\"(\" root \")\"){0,300}){0,900}", "()"),
        (
            "root ::= ((\"(\" root \")\" | \"x\")* (\"[\" root \"]\")*)*",
            "x[]",
        ),
        (
            "root ::= l*\nl ::= i | i l | \"(\" l \")\"\ni ::= \"a\" | \"b\" i",
            "aba",
        ),
    ];
    for (source, unit) in grammars {
        let text = unit.repeat(20_000 / unit.len());
        let (costs, _) = costs(source, text.as_bytes(), 10);
        let (second, last) = (costs[1], costs[9]);
        assert!(last <= second + second / 2, "{source}: {costs:?}");
    }
}

#[test]
fn texts_whose_middle_nobody_knows_cost_the_same_for_each_byte() {
    let grammars = [
        ("root ::= [ab] root [ab] | \"\"", "a"),
        ("root ::= \"(\" root \")\" | [(a]+", "("),
        ("root ::= \"i\" root | \"i\" root \"e\" root | \"x\"", "i"),
        ("root ::= a a\na ::= [ab] a [ab] | \"\"", "a"),
        ("root ::= ([a-z] | \"*\" root \"*\")*", "*"),
        (
            "root ::= t\nt ::= ([a-z] | b)*\nb ::= \"*\" t \"*\" | \"_\" t \"_\"",
            "*a_b",
        ),
        ("root ::= x root x | \"\"\nx ::= [a-z ]+", "a"),
        ("root ::= x root x root | x\nx ::= [a-z]+ | [a-z ]+", "a "),
    ];
    for (source, unit) in grammars {
        let text = unit.repeat(20_000 / unit.len());
        let (costs, bytes) = costs(source, text.as_bytes(), 10);
        let (second, last) = (costs[1], costs[9]);
        assert!(last <= second + second / 100, "{source}: {costs:?}");
        assert!(last < 100 * 2000, "{source}: {costs:?}");
        assert!(bytes < 700 * 20_000, "{source}: {bytes} bytes");
    }
}

#[test]
fn places_that_all_may_end_cost_a_step_each() {
    let source = "root ::= \"i\" root | \"i\" root \"e\" root | \"x\"";
    let text = format!("{}{}", "i".repeat(1000), "xe".repeat(500));
    let (costs, bytes) = costs(source, text.as_bytes(), 10);
    let most = costs.iter().max().unwrap() / (text.len() as u64 / 10);
    assert!(most < 2 * 1000, "{costs:?}");
    assert!(bytes < 8 << 20, "{bytes} bytes");
}

#[test]
fn what_makes_no_difference_leads_back_to_one_state() {
    let mut compiled = compile("root ::= t\nt ::= ([a-z] | b)*\nb ::= \"*\" t \"*\"");
    for stars in ["", "*", "**", "*******"] {
        let once = compiled.after(format!("{stars}a").as_bytes()).unwrap();
        for rest in ["b", "xyz", "abcdefghi"] {
            let text = format!("{stars}a{rest}");
            assert_eq!(compiled.after(text.as_bytes()), Some(once), "{text}");
        }
        // However the stars are shared out, their number tells what may come.
        let parted = format!("a{}b", stars.replace('*', "*c"));
        assert_eq!(compiled.after(parted.as_bytes()), Some(once), "{parted}");
    }
    // A letter or a star, a star that ends what began before, or the end.
    let before = compiled.parser.num_states();
    let state = compiled.after("*".repeat(1000).as_bytes()).unwrap();
    let items = compiled.parser.items(state);
    assert_eq!(items.len(), 3, "{items:?}");
    assert!(compiled.parser.num_states() <= before + 1000);
}

#[test]
fn sets_of_stacks_without_a_small_automaton_stay_as_they_are() {
    // After `aaa...mbbb...` nobody knows which of the letters after the `m` nest, nor in which way:
    // told apart by all that may follow, these would be two to the power of their number.
    let source = r#"root ::= s
        s ::= "a" s "x" | "a" s "y" | "m" t "x"
        t ::= "b" t "x" | "b" t "y" | "b" t | "n""#;
    let text = format!("{}m{}n", "a".repeat(400), "b".repeat(400));
    let (costs, bytes) = costs(source, text.as_bytes(), 8);
    let most = costs.iter().max().unwrap() / 100;
    assert!(most < 100_000, "{costs:?}");
    assert!(bytes < 40 << 20, "{bytes} bytes");
}

/// A grammar in normal form: rules are alternatives of symbols.
#[derive(Debug, Clone)]
struct Plain(Vec<Vec<Vec<Symbol>>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Symbol {
    Byte(u8),
    Rule(usize),
}

impl Plain {
    fn source(&self) -> String {
        let mut source = String::new();
        for (rule, alternatives) in self.0.iter().enumerate() {
            let name = |rule: usize| match rule {
                0 => "root".to_owned(),
                rule => format!("r{rule}"),
            };
            let alternatives: Vec<String> = alternatives
                .iter()
                .map(|items| {
                    if items.is_empty() {
                        return "\"\"".to_owned();
                    }
                    let items = items.iter().map(|item| match item {
                        Symbol::Byte(byte) => format!("\"{}\"", char::from(*byte)),
                        Symbol::Rule(rule) => name(*rule),
                    });
                    items.collect::<Vec<_>>().join(" ")
                })
                .collect();
            source += &format!("{} ::= {}\n", name(rule), alternatives.join(" | "));
        }
        source
    }

    /// Whether a rule reads a text, by trying all ways to split it: a fixed point over spans.
    fn spans(&self, text: &[u8]) -> BTreeMap<(usize, usize, usize), bool> {
        let mut known: BTreeMap<(usize, usize, usize), bool> = BTreeMap::new();
        loop {
            let before = known.len();
            for start in 0..=text.len() {
                for end in start..=text.len() {
                    for (rule, alternatives) in self.0.iter().enumerate() {
                        if known.contains_key(&(rule, start, end)) {
                            continue;
                        }
                        let fits = |items: &Vec<Symbol>| {
                            let mut ends = vec![start];
                            for item in items {
                                let mut next = Vec::new();
                                for &at in &ends {
                                    for to in at..=end {
                                        let reads = match *item {
                                            Symbol::Byte(b) => to == at + 1 && text[at] == b,
                                            Symbol::Rule(r) => known.contains_key(&(r, at, to)),
                                        };
                                        if reads && !next.contains(&to) {
                                            next.push(to);
                                        }
                                    }
                                }
                                ends = next;
                            }
                            ends.contains(&end)
                        };
                        if alternatives.iter().any(fits) {
                            known.insert((rule, start, end), true);
                        }
                    }
                }
            }
            if known.len() == before {
                return known;
            }
        }
    }
}

fn plain_grammars() -> impl Strategy<Value = Plain> {
    let symbol = prop_oneof![
        3 => prop::sample::select(vec![b'a', b'b']).prop_map(Symbol::Byte),
        4 => (0_usize..4).prop_map(Symbol::Rule),
    ];
    let items = prop::collection::vec(symbol, 0..4);
    let rule = prop::collection::vec(items, 1..4);
    prop::collection::vec(rule, 4).prop_map(Plain)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn random_grammars_are_recognised(plain in plain_grammars()) {
        let mut compiled = compile(&plain.source());
        let accepted: HashMap<Vec<u8>, bool> = texts::texts(6)
            .into_iter()
            .map(|text| {
                let expected = plain.spans(&text).contains_key(&(0, 0, text.len()));
                (text, expected)
            })
            .collect();
        for (text, &expected) in &accepted {
            prop_assert_eq!(compiled.accepts(text), expected, "{:?}", text);
            // What can be completed within the length that was tried must be live, and distances
            // must be those of the nearest text.
            let nearest = accepted
                .iter()
                .filter(|(longer, accepted)| **accepted && longer.starts_with(text))
                .map(|(longer, _)| longer.len() - text.len())
                .min();
            let state = compiled.after(text);
            if let Some(nearest) = nearest {
                let state = state.unwrap();
                let Compiled { machine, parser, .. } = &mut compiled;
                let distance = parser.distance(machine, state, &mut Fuel::new(100_000)).unwrap();
                prop_assert_eq!(distance as usize, nearest, "{:?}", text);
            } else if let Some(state) = state {
                let Compiled { machine, parser, .. } = &mut compiled;
                let distance = parser.distance(machine, state, &mut Fuel::new(100_000)).unwrap();
                prop_assert!(distance as usize + text.len() > 6 && distance < 1_000_000);
            }
        }
    }
}
