//! Grammars with rules against a plain recogniser: random grammars with left recursion, nullable
//! cycles and ambiguity, over small vocabularies that may not even have all letters as tokens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "reference/texts.rs"]
mod texts;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use structured_output::{
    CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher, MatcherError,
    TokenizerInfo,
};

/// As many rules are random. Those after them are languages that are written as such, see [`LANGUAGES`].
const NUM_RULES: usize = 3;

/// Any number of some texts, as EBNF and Lark write that; the texts, and whether there may be none.
type Language = (&'static str, &'static str, &'static [&'static str], bool);

const LANGUAGES: [Language; 6] = [
    ("[ab]+", "/[ab]+/", &["a", "b"], false),
    ("[ab]*", "/[ab]*/", &["a", "b"], true),
    ("\"a\"+", "/a+/", &["a"], false),
    ("\"b\"*", "/b*/", &["b"], true),
    ("(\"ab\")*", "/(ab)*/", &["ab"], true),
    ("(\"ab\" | \"a\")+", "/(ab|a)+/", &["ab", "a"], false),
];

/// A grammar as alternatives of symbols per rule; rule 0 is the start.
#[derive(Debug, Clone)]
struct Plain(Vec<Vec<Vec<Symbol>>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Symbol {
    Byte(u8),
    Rule(usize),
}

/// An item of Earley's: rule, alternative, symbols read, where it began.
type Item = (usize, usize, usize, usize);

impl Plain {
    fn ebnf(&self) -> String {
        self.written(|language| language.0)
    }

    /// The same with languages as they are written by `language`.
    fn written(&self, language: impl Fn(&Language) -> &'static str) -> String {
        let name = |rule: usize| match rule {
            0 => "root".to_owned(),
            NUM_RULES.. => language(&LANGUAGES[rule - NUM_RULES]).to_owned(),
            rule => format!("r{rule}"),
        };
        let symbol = |symbol: &Symbol| match symbol {
            Symbol::Byte(byte) => format!("\"{}\"", char::from(*byte)),
            Symbol::Rule(rule) => name(*rule),
        };
        let alternative = |items: &Vec<Symbol>| match items[..] {
            [] => "\"\"".to_owned(),
            _ => items.iter().map(symbol).collect::<Vec<_>>().join(" "),
        };
        let rule = |(rule, alternatives): (usize, &Vec<Vec<Symbol>>)| {
            let alternatives: Vec<String> = alternatives.iter().map(alternative).collect();
            format!("{} ::= {}\n", name(rule), alternatives.join(" | "))
        };
        self.0
            .iter()
            .take(NUM_RULES)
            .enumerate()
            .map(rule)
            .collect()
    }

    /// The same in Lark.
    fn lark(&self) -> String {
        let source = self.written(|language| language.1);
        source.replace("root", "start").replace(" ::=", ":")
    }

    /// With the languages as rules.
    fn with_languages(mut self) -> Self {
        for (at, (_, _, parts, has_empty)) in LANGUAGES.iter().enumerate() {
            let own = Symbol::Rule(NUM_RULES + at);
            let mut ways = vec![Vec::new(); usize::from(*has_empty)];
            for part in *parts {
                let part: Vec<Symbol> = part.bytes().map(Symbol::Byte).collect();
                ways.push([&part[..], &[own]].concat());
                ways.push(part);
            }
            self.0.push(ways);
        }
        self
    }

    /// Without what can't be completed.
    fn productive(&self) -> Self {
        let mut good: BTreeSet<usize> = BTreeSet::new();
        let completes = |good: &BTreeSet<usize>, items: &Vec<Symbol>| {
            items.iter().all(|item| match item {
                Symbol::Byte(_) => true,
                Symbol::Rule(rule) => good.contains(rule),
            })
        };
        loop {
            let more: BTreeSet<usize> = (0..self.0.len())
                .filter(|&rule| self.0[rule].iter().any(|items| completes(&good, items)))
                .collect();
            if more == good {
                break;
            }
            good = more;
        }
        let keep = |alternatives: &Vec<Vec<Symbol>>| {
            let kept = alternatives.iter().filter(|items| completes(&good, items));
            kept.cloned().collect()
        };
        Self(self.0.iter().map(keep).collect())
    }

    /// Earley's sets after a text, each closed by repeating all steps until nothing is new.
    fn sets(&self, text: &[u8]) -> Vec<BTreeSet<Item>> {
        let mut sets: Vec<BTreeSet<Item>> = Vec::new();
        for position in 0..=text.len() {
            let mut set: BTreeSet<Item> = match position {
                0 => (0..self.0[0].len()).map(|alt| (0, alt, 0, 0)).collect(),
                _ => sets[position - 1]
                    .iter()
                    .filter(|&&(rule, alt, dot, _)| {
                        self.0[rule][alt].get(dot) == Some(&Symbol::Byte(text[position - 1]))
                    })
                    .map(|&(rule, alt, dot, origin)| (rule, alt, dot + 1, origin))
                    .collect(),
            };
            loop {
                let mut more = set.clone();
                for &(rule, alt, dot, origin) in &set {
                    match self.0[rule][alt].get(dot) {
                        Some(&Symbol::Rule(called)) => {
                            more.extend(
                                (0..self.0[called].len()).map(|a| (called, a, 0, position)),
                            );
                        }
                        Some(Symbol::Byte(_)) => {}
                        None => {
                            let callers = if origin == position {
                                &set
                            } else {
                                &sets[origin]
                            };
                            more.extend(callers.iter().filter_map(|&(r, a, d, o)| {
                                let waits = self.0[r][a].get(d) == Some(&Symbol::Rule(rule));
                                waits.then_some((r, a, d + 1, o))
                            }));
                        }
                    }
                }
                if more == set {
                    break;
                }
                set = more;
            }
            sets.push(set);
        }
        sets
    }

    fn accepts(&self, text: &[u8]) -> bool {
        let sets = self.sets(text);
        let is_end = |&(rule, alt, dot, origin): &Item| {
            rule == 0 && origin == 0 && dot == self.0[rule][alt].len()
        };
        sets.last().unwrap().iter().any(is_end)
    }

    /// Whether a text can be completed; the grammar must be productive.
    fn begins(&self, text: &[u8]) -> bool {
        !self.sets(text).last().unwrap().is_empty()
    }
}

fn plain_grammars() -> impl Strategy<Value = Plain> {
    let symbol = prop_oneof![
        3 => prop::sample::select(vec![b'a', b'b']).prop_map(Symbol::Byte),
        4 => (0_usize..3).prop_map(Symbol::Rule),
    ];
    let items = prop::collection::vec(symbol, 0..4);
    let rule = prop::collection::vec(items, 1..4);
    prop::collection::vec(rule, 3).prop_map(Plain)
}

/// Grammars of which most can be read in many ways: languages that hold each other, among rules.
fn grammars_with_languages() -> impl Strategy<Value = Plain> {
    let symbol = prop_oneof![
        2 => prop::sample::select(vec![b'a', b'b']).prop_map(Symbol::Byte),
        4 => (0_usize..NUM_RULES).prop_map(Symbol::Rule),
        3 => (NUM_RULES..NUM_RULES + LANGUAGES.len()).prop_map(Symbol::Rule),
    ];
    let items = prop::collection::vec(symbol, 0..4);
    let rule = prop::collection::vec(items, 1..4);
    prop::collection::vec(rule, NUM_RULES).prop_map(|rules| Plain(rules).with_languages())
}

const EOS: u32 = 0;

/// Tokens over some letters, with all bytes or just with these letters as tokens. `<eos>` is the
/// first.
fn vocabularies(letters: &'static [u8], all: bool) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let token = prop::collection::vec(prop::sample::select(letters), 1..4);
    prop::collection::vec(token, 1..6).prop_map(move |tokens| {
        let mut vocab = vec![b"<eos>".to_vec()];
        match all {
            true => vocab.extend((0..=255).map(|byte| vec![byte])),
            false => vocab.extend(letters.iter().map(|&byte| vec![byte])),
        }
        vocab.extend(tokens);
        vocab
    })
}

fn compiler(vocab: &[Vec<u8>]) -> GrammarCompiler {
    let info = TokenizerInfo::new(vocab, vocab.len() + 3, &[EOS], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
}

/// All ways to write a text by tokens.
fn tokenizations(text: &[u8], vocab: &[Vec<u8>]) -> Vec<Vec<u32>> {
    if text.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (id, token) in (0..).zip(vocab).skip(1) {
        if let Some(rest) = text.strip_prefix(&token[..]) {
            for mut tail in tokenizations(rest, vocab) {
                tail.insert(0, id);
                all.push(tail);
            }
        }
    }
    all
}

/// Follows the bound to the end: the text. `None` where the states run out that the searches for an end go
/// through by tokens: where a grammar with few tokens can be read in ever more ways, each is another.
fn finished(mut matcher: GrammarMatcher, vocab: &[Vec<u8>], mut text: Vec<u8>) -> Option<Vec<u8>> {
    let of_states = |error: MatcherError| {
        let is_of_states = matches!(error, MatcherError::StatesExhausted { .. });
        assert!(is_of_states, "{error}");
    };
    let mut left = matcher.min_tokens_to_complete().map_err(of_states).ok()?;
    while !matcher.is_terminated() {
        assert!(left > 0, "the bound is too low after {text:?}");
        let mask = matcher.next_token_mask_within(left);
        let mask = mask.map_err(of_states).ok()?;
        let ids = mask.token_ids();
        let id = *ids.first().expect("a mask within the bound is not empty");
        assert!(matcher.accept_token(id).unwrap());
        if id != EOS {
            text.extend_from_slice(&vocab[id as usize]);
        }
        left -= 1;
    }
    Some(text)
}

/// The properties at one place, which `text` led to. False where the grammar's states have run out meanwhile.
fn check_place(
    matcher: &GrammarMatcher,
    plain: &Plain,
    vocab: &[Vec<u8>],
    text: &[u8],
    all: bool,
) -> bool {
    let before = format!("{matcher:?}");
    let mask = matcher.next_token_mask().unwrap();
    let again = matcher.next_token_mask().unwrap();
    assert!(mask.is_same(&again));
    assert_eq!(format!("{matcher:?}"), before, "a mask changes nothing");
    assert!(mask.num_allowed() > 0, "after {text:?}");
    assert_eq!(
        mask.is_allowed(EOS),
        plain.accepts(text),
        "the end after {text:?}"
    );
    assert_eq!(matcher.is_completed(), plain.accepts(text));
    let forced = matcher.find_jump_forward_string().unwrap();
    let mut seen: BTreeSet<&[u8]> = BTreeSet::new();
    for (id, token) in (0..).zip(vocab).skip(1) {
        let next = [text, token].concat();
        let mut fork = matcher.fork();
        let accepted = fork.accept_token(id).unwrap();
        assert_eq!(accepted, mask.is_allowed(id), "{token:?} after {text:?}");
        if all {
            let is_ab = token.iter().all(|byte| b"ab".contains(byte));
            assert_eq!(
                accepted,
                is_ab && plain.begins(&next),
                "{token:?} after {text:?}"
            );
        }
        if accepted && seen.insert(token) {
            let shared = forced.len().min(token.len());
            assert_eq!(
                &token[..shared],
                &forced.as_bytes()[..shared],
                "forced after {text:?}"
            );
            let Some(whole) = finished(fork.fork(), vocab, next) else {
                return false;
            };
            assert!(plain.accepts(&whole), "{whole:?} is no sentence");
        }
        if accepted {
            fork.rollback(1).unwrap();
            assert!(fork.next_token_mask().unwrap() == mask);
        }
    }
    for id in vocab.len() as u32..vocab.len() as u32 + 40 {
        assert!(!mask.is_allowed(id));
    }
    true
}

fn check(plain: &Plain, vocab: &[Vec<u8>], all: bool, choices: &[usize]) {
    let compiled = compiler(vocab).compile_ebnf(&plain.ebnf(), "root");
    check_compiled(compiled, plain, vocab, all, choices);
}

fn check_compiled(
    compiled: Result<CompiledGrammar, CompileError>,
    plain: &Plain,
    vocab: &[Vec<u8>],
    all: bool,
    choices: &[usize],
) {
    let productive = plain.productive();
    let sentences: Vec<Vec<u8>> = texts::texts(5)
        .into_iter()
        .filter(|t| plain.accepts(t))
        .collect();
    let grammar = match compiled {
        Ok(grammar) => grammar,
        Err(CompileError::NotWritable) => {
            assert!(
                sentences
                    .iter()
                    .all(|text| tokenizations(text, vocab).is_empty())
            );
            return;
        }
        Err(CompileError::Grammar { message, .. }) => {
            assert_eq!(message, "no text matches this rule");
            assert!(productive.0[0].is_empty());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let matcher = GrammarMatcher::new(&grammar);
    for sentence in &sentences {
        for tokens in tokenizations(sentence, vocab).iter().take(20) {
            let mut matcher = matcher.fork();
            for &token in tokens {
                assert!(matcher.next_token_mask().unwrap().is_allowed(token));
                assert!(matcher.accept_token(token).unwrap());
            }
            assert!(matcher.accept_token(EOS).unwrap(), "{sentence:?}");
        }
    }
    let mut matcher = matcher;
    let mut text = Vec::new();
    for &choice in choices {
        if !check_place(&matcher, &productive, vocab, &text, all) {
            return;
        }
        let ids = matcher.next_token_mask().unwrap().token_ids();
        let id = ids[choice % ids.len()];
        if id == EOS {
            break;
        }
        assert!(matcher.accept_token(id).unwrap());
        text.extend_from_slice(&vocab[id as usize]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn masks_are_exact(
        plain in plain_grammars(),
        vocab in vocabularies(b"ab", false),
        choices in prop::collection::vec(0_usize..1000, 1..6),
    ) {
        check(&plain, &vocab, true, &choices);
    }

    #[test]
    fn letters_that_no_token_writes_are_left_out(
        plain in plain_grammars(),
        vocab in vocabularies(b"bc", false),
        choices in prop::collection::vec(0_usize..1000, 1..6),
    ) {
        check(&plain, &vocab, false, &choices);
    }

    #[test]
    fn both_languages_say_the_same(plain in plain_grammars()) {
        let vocab: Vec<Vec<u8>> = [b"<eos>".to_vec(), b"a".to_vec(), b"b".to_vec()].into();
        let compiler = compiler(&vocab);
        let ebnf = compiler.compile_grammar(&plain.ebnf());
        let lark = compiler.compile_grammar(&plain.lark());
        match (ebnf, lark) {
            (Ok(ebnf), Ok(lark)) => {
                for text in texts::texts(6) {
                    let tokens: Vec<u32> = text.iter().map(|b| u32::from(b - b'a' + 1)).collect();
                    let mut a = GrammarMatcher::new(&ebnf);
                    let mut b = GrammarMatcher::new(&lark);
                    prop_assert_eq!(a.accept_tokens(&tokens), b.accept_tokens(&tokens));
                    prop_assert_eq!(a.is_completed(), b.is_completed());
                }
            }
            (ebnf, lark) => prop_assert_eq!(ebnf, lark),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn masks_of_languages_within_each_other_are_exact(
        plain in grammars_with_languages(),
        vocab in vocabularies(b"ab", false),
        choices in prop::collection::vec(0_usize..1000, 1..6),
        is_lark: bool,
    ) {
        match is_lark {
            true => {
                let compiled = compiler(&vocab).compile_lark(&plain.lark());
                check_compiled(compiled, &plain, &vocab, true, &choices);
            }
            false => check(&plain, &vocab, true, &choices),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]
    #[test]
    fn masks_are_exact_with_all_bytes(
        plain in plain_grammars(),
        vocab in vocabularies(b"ab", true),
        choices in prop::collection::vec(0_usize..1000, 1..5),
    ) {
        check(&plain, &vocab, true, &choices);
    }
}

#[test]
fn completion_is_searched_by_tokens_where_a_byte_is_no_token() {
    let vocab = [&b"<eos>"[..], b"a", b"bb"].map(<[u8]>::to_vec);
    let compiler = compiler(&vocab);
    let nested = compiler
        .compile_ebnf("root ::= \"a\" root \"b\" | \"ab\"", "root")
        .unwrap();
    let mut matcher = GrammarMatcher::new(&nested);
    let mut allowed = |tokens: &[u32]| {
        matcher.reset();
        assert!(matcher.accept_tokens(tokens).unwrap());
        matcher.next_token_mask().unwrap().token_ids()
    };
    assert_eq!(allowed(&[]), [1]);
    // Three need a fourth.
    assert_eq!(allowed(&[1, 1, 1]), [1]);
    assert_eq!(allowed(&[1, 1]), [1, 2]);
    assert_eq!(allowed(&[1, 1, 2]), [EOS]);
    assert_eq!(
        compiler.compile_ebnf("root ::= \"cb\" root | \"c\"", "root"),
        Err(CompileError::NotWritable)
    );
}
