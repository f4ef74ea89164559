//! Grammars against the sets of texts that they mean, found the slow way: every short text over a few
//! letters is tried.
//!
//! Operators (classes, counts, `&`, `~`, `%ignore`, recursion), dispatch, and lazy terminals. The
//! reference knows texts and sets of them, no automata.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "reference/dispatch.rs"]
mod dispatch;
#[path = "reference/languages.rs"]
mod languages;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use dispatch::Dispatch;
use languages::{Expr, Grammar, Texts, texts};
use proptest::prelude::*;
use structured_output::{
    CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo,
};

const VOCAB: [&[u8]; 7] = [b"<eos>", b"a", b"b", b"c", b"ab", b"cc", b"bca"];

fn compiler() -> GrammarCompiler {
    let vocab = VOCAB.map(<[u8]>::to_vec);
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[0], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
}

/// A text in single bytes, and in the longest tokens that fit.
fn tokenizations(text: &[u8]) -> [Vec<u32>; 2] {
    let longest = |mut rest: &[u8], max: usize| {
        let mut tokens = Vec::new();
        while !rest.is_empty() {
            let fits = (1..VOCAB.len())
                .filter(|&id| VOCAB[id].len() <= max && rest.starts_with(VOCAB[id]));
            let id = fits.max_by_key(|&id| VOCAB[id].len()).unwrap();
            tokens.push(id as u32);
            rest = &rest[VOCAB[id].len()..];
        }
        tokens
    };
    [longest(text, 1), longest(text, 9)]
}

/// Checks that a grammar accepts these texts, and of all up to a length no others; that masks allow
/// what is accepted; and that no text is begun that can't be ended.
fn check(grammar: &CompiledGrammar, source: &str, expected: impl Fn(&[u8]) -> bool, max: usize) {
    let matcher = GrammarMatcher::new(grammar);
    for text in texts(max) {
        let expected = expected(&text);
        for tokens in tokenizations(&text) {
            let mut matcher = matcher.fork();
            let mut accepted = true;
            for token in tokens {
                let mask = matcher.next_token_mask().unwrap();
                assert!(mask.num_allowed() > 0);
                accepted = matcher.accept_token(token).unwrap();
                assert_eq!(accepted, mask.is_allowed(token));
                if !accepted {
                    break;
                }
            }
            let accepted = accepted && matcher.is_completed();
            let text = String::from_utf8_lossy(&text);
            assert_eq!(accepted, expected, "{text:?} in\n{source}");
        }
    }
}

/// An expression over letters, over `names` rules or terminals, and with `&` and `~` or without.
fn exprs(rules: usize, terminals: usize, is_terminal: bool) -> impl Strategy<Value = Expr> {
    let mut leaves = vec![
        prop::sample::select(vec!["", "a", "b", "ab", "ca"])
            .prop_map(Expr::literal)
            .boxed(),
        prop::sample::select(vec!["a", "ab", "bc", "abc"])
            .prop_map(Expr::class)
            .boxed(),
    ];
    if rules > 0 {
        leaves.push((0..rules).prop_map(Expr::Rule).boxed());
    }
    if terminals > 0 {
        leaves.push((0..terminals).prop_map(Expr::Terminal).boxed());
    }
    let leaf = prop::strategy::Union::new(leaves);
    leaf.prop_recursive(3, 12, 3, move |inner| {
        let list = prop::collection::vec(inner.clone(), 2..4);
        let counts = prop::sample::select(vec![(0, Some(1)), (0, None), (1, None), (2, Some(2)), (0, Some(2)), (1, Some(3)), (2, None), (0, Some(0))]);
        let plain = prop_oneof![
            3 => list.clone().prop_map(Expr::Concat),
            2 => list.clone().prop_map(Expr::Alternate),
            2 => (inner.clone(), counts).prop_map(|(inner, (min, max))| Expr::Repeat(Box::new(inner), min, max)),
        ];
        match is_terminal {
            true => prop_oneof![
                4 => plain,
                1 => list.prop_map(Expr::And),
                1 => inner.prop_map(|inner| Expr::Not(Box::new(inner))),
            ].boxed(),
            false => plain.boxed(),
        }
    })
}

fn grammars(num_terminals: usize) -> impl Strategy<Value = Grammar> {
    let terminals: Vec<_> = (0..num_terminals)
        .map(|known| exprs(0, known, true))
        .collect();
    let rules = prop::collection::vec(exprs(3, num_terminals, false), 3);
    (terminals, rules, any::<bool>()).prop_map(move |(terminals, rules, ignores)| Grammar {
        terminals,
        rules,
        ignores: ignores && num_terminals > 0,
    })
}

const MAX_TEXT: usize = 4;

/// Compiles a grammar and compares; where no text matches, the set has to be empty.
fn compare(source: &str, expected: &Texts) {
    match compiler().compile_grammar(source) {
        Ok(grammar) => check(&grammar, source, |text| expected.contains(text), MAX_TEXT),
        Err(CompileError::Grammar { message, .. }) => {
            assert_eq!(message, "no text matches this rule", "{source}");
            assert!(expected.is_empty(), "{source}");
        }
        // What it accepts has letters that no token writes.
        Err(CompileError::NotWritable) => assert!(expected.is_empty(), "{source}"),
        Err(error) => panic!("{error} in\n{source}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn lark_means_its_set_of_texts(grammar in grammars(3)) {
        compare(&grammar.lark(), &grammar.texts(MAX_TEXT));
    }

    #[test]
    fn ebnf_means_its_set_of_texts(grammar in grammars(0)) {
        compare(&grammar.ebnf(), &grammar.texts(MAX_TEXT));
    }
}

impl Dispatch {
    fn ebnf(&self) -> String {
        let mut source = "root ::= TagDispatch(".to_owned();
        for (at, (trigger, _)) in self.tags.iter().enumerate() {
            write!(source, "(\"{trigger}\", t{at}), ").unwrap();
        }
        let excludes: Vec<String> = self
            .excludes
            .iter()
            .map(|text| format!("\"{text}\""))
            .collect();
        if !excludes.is_empty() {
            write!(source, "excludes=({},), ", excludes.join(", ")).unwrap();
        }
        writeln!(source, "loop_after_dispatch={})", self.is_loop).unwrap();
        for (at, (_, texts)) in self.tags.iter().enumerate() {
            let texts: Vec<String> = texts.iter().map(|text| format!("\"{text}\"")).collect();
            writeln!(source, "t{at} ::= {}", texts.join(" | ")).unwrap();
        }
        source
    }

    /// Whether a trigger holds what may not occur.
    fn is_refused(&self) -> bool {
        let mut triggers = self.tags.iter().map(|tag| &tag.0);
        triggers.any(|trigger| self.excludes.iter().any(|text| trigger.contains(text)))
    }
}

fn dispatches() -> impl Strategy<Value = Dispatch> {
    let one_of =
        |words: &[&'static str]| prop::sample::select(words.to_vec()).prop_map(String::from);
    let words = || one_of(&["a", "ab", "ba", "aa", "abc", "bc", "cb", "aba"]);
    let contents = prop::collection::vec(one_of(&["", "a", "b", "ca", "ab"]), 1..3);
    let tags = prop::collection::vec((words(), contents), 1..4);
    let excludes = prop::collection::vec(words(), 0..3);
    (tags, excludes, any::<bool>()).prop_map(|(tags, excludes, is_loop)| Dispatch {
        tags,
        excludes,
        is_loop,
    })
}

/// A terminal of the lazy grammars, with an expression for its texts.
struct Terminal {
    name: &'static str,
    definition: &'static str,
    expr: fn() -> Expr,
}

fn any_then(end: &'static str) -> Expr {
    let any = Expr::Repeat(Box::new(Expr::class("abc")), 0, None);
    Expr::Concat(vec![any, Expr::literal(end)])
}

fn some_then(class: &'static str, min: u32, end: &'static str) -> Expr {
    let some = Expr::Repeat(Box::new(Expr::class(class)), min, None);
    Expr::Concat(vec![some, Expr::literal(end)])
}

const LAZY: usize = 5;

/// The first [`LAZY`] of them are lazy.
const TERMINALS: [Terminal; 11] = [
    Terminal {
        name: "l0",
        definition: "l0[lazy]: TEXT \"ab\"",
        expr: || any_then("ab"),
    },
    Terminal {
        name: "l1",
        definition: "l1[suffix=\"c\"]: TEXT",
        expr: || any_then("c"),
    },
    Terminal {
        name: "l2",
        definition: "l2[lazy]: /[abc]*bb/",
        expr: || any_then("bb"),
    },
    Terminal {
        name: "l3",
        definition: "l3[lazy]: /a*b/",
        expr: || some_then("a", 0, "b"),
    },
    Terminal {
        name: "L4",
        definition: "L4[lazy]: /[ab]+c/",
        expr: || some_then("ab", 1, "c"),
    },
    Terminal {
        name: "TEXT",
        definition: "TEXT: /[abc]*/",
        expr: || any_then(""),
    },
    Terminal {
        name: "A",
        definition: "A: \"a\"+",
        expr: || some_then("a", 1, ""),
    },
    Terminal {
        name: "AB",
        definition: "AB: /[ab]+/",
        expr: || some_then("ab", 1, ""),
    },
    Terminal {
        name: "\"ab\"",
        definition: "",
        expr: || Expr::literal("ab"),
    },
    Terminal {
        name: "\"c\"",
        definition: "",
        expr: || Expr::literal("c"),
    },
    Terminal {
        name: "/b?/",
        definition: "",
        expr: || Expr::Repeat(Box::new(Expr::literal("b")), 0, Some(1)),
    },
];

/// A place in a grammar with lazy terminals: what is still to be read, last first.
type Stack = Vec<Expr>;

/// Lexers as llguidance has them, followed by hand: at a place all terminals that may begin there are
/// known, each of the stacks says how it goes on after one of them.
struct Lexer {
    languages: Vec<Texts>,
    /// Beginnings of the lazy ones.
    beginnings: Vec<Texts>,
}

impl Lexer {
    fn new() -> Self {
        let empty = Grammar {
            terminals: Vec::new(),
            rules: Vec::new(),
            ignores: false,
        };
        // Two more letters than texts have are enough to end each of them.
        let language = |terminal: &Terminal| empty.texts_of(&(terminal.expr)(), &[], MAX_TEXT + 2);
        let languages: Vec<Texts> = TERMINALS.iter().map(language).collect();
        let beginnings = |texts: &Texts| {
            let all = texts
                .iter()
                .flat_map(|text| (1..=text.len()).map(|end| text[..end].to_vec()));
            all.collect()
        };
        Self {
            beginnings: languages[..LAZY].iter().map(beginnings).collect(),
            languages,
        }
    }

    /// All stacks that read nothing further lead to: each ends with a terminal, or is empty.
    fn closed(&self, stacks: Vec<Stack>) -> BTreeSet<Stack> {
        let mut seen: BTreeSet<Stack> = BTreeSet::new();
        let mut pending = stacks;
        while let Some(stack) = pending.pop() {
            if !seen.insert(stack.clone()) {
                continue;
            }
            let mut rest = stack;
            match rest.pop() {
                Some(Expr::Terminal(id)) if self.languages[id].contains(&b""[..]) => {
                    pending.push(rest);
                }
                None | Some(Expr::Terminal(_)) => {}
                Some(Expr::Concat(items)) => {
                    rest.extend(items.into_iter().rev());
                    pending.push(rest);
                }
                Some(Expr::Alternate(ways)) => {
                    pending.extend(ways.into_iter().map(|way| [&rest[..], &[way]].concat()));
                }
                Some(Expr::Repeat(inner, min, max)) => {
                    if min == 0 {
                        pending.push(rest.clone());
                    }
                    if max != Some(0) {
                        let fewer = max.map(|max| max - 1);
                        rest.push(Expr::Repeat(inner.clone(), min.saturating_sub(1), fewer));
                        rest.push(*inner);
                        pending.push(rest);
                    }
                }
                Some(other) => panic!("{other:?} is not in these grammars"),
            }
        }
        seen
    }

    fn accepts(&self, stacks: Vec<Stack>, text: &[u8]) -> bool {
        let stacks = self.closed(stacks);
        if text.is_empty() {
            return stacks.contains(&Vec::new());
        }
        let first = |stack: &Stack| match stack.last() {
            Some(Expr::Terminal(id)) => Some(*id),
            _ => None,
        };
        let open: BTreeSet<usize> = stacks.iter().filter_map(first).collect();
        let lazy: Vec<usize> = open.iter().copied().filter(|&id| id < LAZY).collect();
        let ends_lazily = |read: &[u8]| lazy.iter().any(|&id| self.languages[id].contains(read));
        let goes_on = |read: &[u8]| lazy.iter().any(|&id| self.beginnings[id].contains(read));
        for end in 1..=text.len() {
            let read = &text[..end];
            for &id in &open {
                let is_over = id >= LAZY && ends_lazily(read)
                    || id >= LAZY && text.len() > end && goes_on(&text[..=end]);
                if is_over || !self.languages[id].contains(read) {
                    continue;
                }
                let next = stacks.iter().filter(|stack| first(stack) == Some(id));
                let next = next
                    .map(|stack| stack[..stack.len() - 1].to_vec())
                    .collect();
                if self.accepts(next, &text[end..]) {
                    return true;
                }
            }
            if ends_lazily(read) {
                return false;
            }
        }
        false
    }
}

fn lazy_exprs() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        2 => (0..LAZY).prop_map(Expr::Terminal),
        3 => (LAZY..TERMINALS.len()).prop_map(Expr::Terminal),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 2..4);
        let counts = prop::sample::select(vec![(0, Some(1)), (0, None), (1, None), (0, Some(2)), (2, Some(2))]);
        prop_oneof![
            3 => list.clone().prop_map(Expr::Concat),
            2 => list.prop_map(Expr::Alternate),
            2 => (inner, counts).prop_map(|(inner, (min, max))| Expr::Repeat(Box::new(inner), min, max)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn a_dispatch_goes_by_the_trigger_that_begins_first(dispatch in dispatches()) {
        let source = dispatch.ebnf();
        let grammar = compiler().compile_ebnf(&source, "root");
        if dispatch.is_refused() {
            let message = grammar.unwrap_err().to_string();
            prop_assert!(message.contains("no tag could begin with the trigger"), "{}", message);
            return Ok(());
        }
        let grammar = grammar.unwrap();
        check(&grammar, &source, |text| dispatch.accepts(text), MAX_TEXT + 1);
    }

    #[test]
    fn lazy_terminals_end_what_stands_beside_them(expr in lazy_exprs(), in_rule in any::<bool>()) {
        let names = |id: usize| TERMINALS[id].name.to_owned();
        let body = expr.written(&names);
        let mut source = match in_rule {
            true => format!("start: all\nall: {body}\n"),
            false => format!("start: {body}\n"),
        };
        for terminal in TERMINALS.iter().filter(|terminal| !terminal.definition.is_empty()) {
            writeln!(source, "{}", terminal.definition).unwrap();
        }
        let lexer = Lexer::new();
        let accepts = |text: &[u8]| lexer.accepts(vec![vec![expr.clone()]], text);
        match compiler().compile_lark(&source) {
            Ok(grammar) => check(&grammar, &source, accepts, MAX_TEXT),
            Err(error) => {
                // What can't be told exactly, or what nothing can follow, is refused.
                let message = error.to_string();
                let is_empty = ["no text matches", "tokens writes a text that matches"].iter().any(|known| message.contains(known));
                let is_known = ["what has to follow this", "what follows this terminal"].iter().any(|known| message.contains(known));
                prop_assert!(is_known || is_empty, "{} in\n{}", message, source);
                if is_empty {
                    prop_assert!(!texts(MAX_TEXT).iter().any(|text| accepts(text)));
                }
            }
        }
    }
}
