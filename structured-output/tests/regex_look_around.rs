//! Look-around against a slow matcher that follows its definition, on all short texts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use structured_output::{
    CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher,
    JsonSchemaOptions, TokenizerInfo,
};

/// What texts are made of: characters of one byte and of two.
const LETTERS: [char; 3] = ['a', 'b', 'é'];

const MAX_CHARS: usize = 6;

/// Token `b` is the byte `b`; 256 ends the text.
static COMPILER: LazyLock<GrammarCompiler> = LazyLock::new(|| {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.push(b"<eos>".to_vec());
    let info = TokenizerInfo::new(&vocab, 257, &[256], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
});

/// A pattern.
#[derive(Debug, Clone)]
enum Re {
    Chars(Vec<char>),
    Concat(Vec<Re>),
    Either(Vec<Re>),
    Repeat(Box<Re>, usize, Option<usize>),
    Start,
    End,
    /// `\b`, or `\B`.
    Boundary {
        negated: bool,
    },
    Look {
        ahead: bool,
        negated: bool,
        inner: Box<Re>,
    },
}

impl Re {
    fn pattern(&self) -> String {
        let joined = |items: &[Re], between: &str| {
            let items: Vec<String> = items.iter().map(Re::pattern).collect();
            items.join(between)
        };
        match self {
            Re::Chars(chars) if chars.len() == 1 => chars[0].to_string(),
            Re::Chars(chars) => format!("[{}]", chars.iter().collect::<String>()),
            Re::Concat(items) => joined(items, ""),
            Re::Either(items) => format!("(?:{})", joined(items, "|")),
            Re::Repeat(inner, min, max) => {
                let max = max.map_or(String::new(), |max| max.to_string());
                format!("(?:{}){{{min},{max}}}", inner.pattern())
            }
            Re::Start => "^".to_owned(),
            Re::End => "$".to_owned(),
            Re::Boundary { negated } => if *negated { "\\B" } else { "\\b" }.to_owned(),
            Re::Look {
                ahead,
                negated,
                inner,
            } => {
                let behind = if *ahead { "" } else { "<" };
                let sign = if *negated { '!' } else { '=' };
                format!("(?{behind}{sign}{})", inner.pattern())
            }
        }
    }

    /// Where a match that starts at a place may end; `words` are word characters.
    fn ends(&self, text: &[char], at: usize, words: &[char]) -> BTreeSet<usize> {
        let after = |re: &Re, starts: &BTreeSet<usize>| -> BTreeSet<usize> {
            let ends = starts.iter().flat_map(|&at| re.ends(text, at, words));
            ends.collect()
        };
        let here = BTreeSet::from([at]);
        let here_if = |holds: bool| match holds {
            true => BTreeSet::from([at]),
            false => BTreeSet::new(),
        };
        match self {
            Re::Chars(chars) => match text.get(at) {
                Some(char) if chars.contains(char) => BTreeSet::from([at + 1]),
                _ => BTreeSet::new(),
            },
            Re::Concat(items) => items.iter().fold(here, |starts, re| after(re, &starts)),
            Re::Either(items) => {
                let ends = items.iter().flat_map(|re| re.ends(text, at, words));
                ends.collect()
            }
            Re::Repeat(inner, min, max) => {
                let mut ends = here;
                for _ in 0..*min {
                    ends = after(inner, &ends);
                }
                // More times than the text has characters reach no further.
                for _ in 0..max.map_or(text.len() + 1, |max| max - min) {
                    let more = after(inner, &ends);
                    ends.extend(more);
                }
                ends
            }
            Re::Start => here_if(at == 0),
            Re::End => here_if(at == text.len()),
            Re::Boundary { negated } => {
                let is_word = |at: Option<usize>| {
                    at.and_then(|at| text.get(at))
                        .is_some_and(|char| words.contains(char))
                };
                here_if((is_word(at.checked_sub(1)) != is_word(Some(at))) != *negated)
            }
            Re::Look {
                ahead,
                negated,
                inner,
            } => {
                let found = if *ahead {
                    !inner.ends(text, at, words).is_empty()
                } else {
                    (0..=at).any(|start| inner.ends(text, start, words).contains(&at))
                };
                here_if(found != *negated)
            }
        }
    }
}

fn chars() -> impl Strategy<Value = Re> {
    prop::sample::subsequence(LETTERS.to_vec(), 1..=3).prop_map(Re::Chars)
}

/// A few characters, one after the other.
fn word(max: usize) -> impl Strategy<Value = Re> {
    let letter = prop_oneof![
        4 => prop::sample::select(&LETTERS[..]).prop_map(|letter| Re::Chars(vec![letter])),
        1 => chars(),
    ];
    prop::collection::vec(letter, 1..=max).prop_map(Re::Concat)
}

fn look(negated: impl Strategy<Value = bool>) -> impl Strategy<Value = Re> {
    let inner = prop_oneof![
        3 => word(3),
        1 => prop::collection::vec(word(2), 2).prop_map(Re::Either),
    ];
    (any::<bool>(), negated, inner).prop_map(|(ahead, negated, inner)| Re::Look {
        ahead,
        negated,
        inner: Box::new(inner),
    })
}

fn anchor() -> impl Strategy<Value = Re> {
    prop_oneof![
        2 => Just(Re::Start),
        2 => Just(Re::End),
        2 => Just(Re::Boundary { negated: false }),
        1 => Just(Re::Boundary { negated: true }),
    ]
}

/// A look-ahead with anchors between its parts.
fn look_at_anchors() -> impl Strategy<Value = Re> {
    let part = prop_oneof![2 => patterns_without_look(), 2 => anchor()];
    let inner = prop::collection::vec(part, 1..5).prop_map(Re::Concat);
    let inner = prop_oneof![
        3 => inner.clone(),
        1 => prop::collection::vec(inner, 2).prop_map(Re::Either),
    ];
    (any::<bool>(), inner).prop_map(|(negated, inner)| Re::Look {
        ahead: true,
        negated,
        inner: Box::new(inner),
    })
}

/// Look-ahead at the start, and look-behind at the end.
fn looked_at_from_both_ends() -> impl Strategy<Value = Re> {
    let start = prop_oneof![1 => Just(Re::Start), 3 => look_at_anchors()];
    let end = prop_oneof![
        1 => Just(Re::End),
        3 => (any::<bool>(), word(3)).prop_map(|(negated, inner)| Re::Look {
            ahead: false,
            negated,
            inner: Box::new(inner),
        }),
    ];
    let parts = (
        prop::collection::vec(start, 1..4),
        prop::collection::vec(patterns_without_look(), 1..3),
        prop::collection::vec(end, 0..3),
    );
    parts.prop_map(|(mut start, body, end)| {
        start.extend(body);
        start.extend(end);
        Re::Concat(start)
    })
}

fn counts() -> impl Strategy<Value = (usize, Option<usize>)> {
    (0_usize..3, prop::option::weighted(0.3, 0_usize..2))
        .prop_map(|(min, more)| (min, more.map(|more| min + more)))
}

/// Patterns of all kinds, with look-around anywhere.
fn patterns() -> impl Strategy<Value = Re> {
    let atom = prop_oneof![
        4 => chars(),
        2 => word(2),
        4 => look(any::<bool>()),
        1 => anchor(),
        2 => look_at_anchors(),
    ];
    atom.prop_recursive(3, 10, 3, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 1..4).prop_map(Re::Concat),
            1 => prop::collection::vec(inner.clone(), 2..3).prop_map(Re::Either),
            2 => (inner, counts())
                .prop_map(|(inner, (min, max))| Re::Repeat(Box::new(inner), min, max)),
        ]
    })
}

/// `(?:(?!A)x){min,}A` between other text, perhaps all of it again and again.
fn tempered() -> impl Strategy<Value = Re> {
    let parts = (
        word(3),
        chars(),
        0_usize..3,
        word(2),
        patterns_without_look(),
        any::<bool>(),
    );
    parts.prop_map(|(end, x, min, before, after, again)| {
        let refused = Re::Look {
            ahead: true,
            negated: true,
            inner: Box::new(end.clone()),
        };
        let times = Re::Repeat(Box::new(Re::Concat(vec![refused, x])), min, None);
        let whole = Re::Concat(vec![before, times, end, after]);
        if again {
            Re::Repeat(Box::new(whole), 0, None)
        } else {
            whole
        }
    })
}

fn patterns_without_look() -> impl Strategy<Value = Re> {
    prop_oneof![
        word(2),
        (chars(), counts()).prop_map(|(x, (min, max))| Re::Repeat(Box::new(x), min, max)),
    ]
}

/// Compares on all texts of a few letters; false where the pattern was refused.
fn check(re: &Re) -> Result<bool, TestCaseError> {
    let pattern = re.pattern();
    let schema = serde_json::json!({ "type": "string", "pattern": format!("^(?:{pattern})$") });
    let outcomes = [
        (COMPILER.compile_regex(&pattern), "", &LETTERS[..]),
        (
            COMPILER.compile_json_schema(&schema.to_string(), &JsonSchemaOptions::default()),
            "\"",
            // ECMA-262's are ASCII.
            &LETTERS[..2],
        ),
    ];
    for (outcome, quote, words) in outcomes {
        let grammar = match outcome {
            Ok(grammar) => Some(grammar),
            Err(CompileError::Unsatisfiable | CompileError::NoValue { .. }) => None,
            Err(CompileError::Regex { .. } | CompileError::JsonSchema { .. }) => return Ok(false),
            Err(error) => return Err(TestCaseError::fail(format!("{pattern}: {error}"))),
        };
        let mut pending = vec![(
            String::new(),
            grammar.as_ref().and_then(|grammar| started(grammar, quote)),
        )];
        while let Some((text, matcher)) = pending.pop() {
            let chars: Vec<char> = text.chars().collect();
            let expected = re.ends(&chars, 0, words).contains(&chars.len());
            let found = matcher.as_ref().is_some_and(|matcher| {
                after(matcher, quote).is_some_and(|matcher| matcher.is_completed())
            });
            prop_assert_eq!(found, expected, "{} on {:?}", &pattern, &text);
            if chars.len() < MAX_CHARS {
                for letter in LETTERS {
                    let next = matcher
                        .as_ref()
                        .and_then(|matcher| after(matcher, letter.encode_utf8(&mut [0; 4])));
                    pending.push((format!("{text}{letter}"), next));
                }
            }
        }
    }
    Ok(true)
}

fn started(grammar: &CompiledGrammar, text: &str) -> Option<GrammarMatcher> {
    after(&GrammarMatcher::new(grammar), text)
}

/// A fork after a text, where that is accepted.
fn after(matcher: &GrammarMatcher, text: &str) -> Option<GrammarMatcher> {
    let mut fork = matcher.fork();
    text.bytes()
        .all(|byte| fork.accept_token(u32::from(byte)).unwrap())
        .then_some(fork)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// What is not refused is what it says.
    #[test]
    fn look_around_is_what_it_says(re in patterns()) {
        check(&re)?;
    }

    /// Look-around at the ends is never refused.
    #[test]
    fn the_ends_are_looked_at_whatever_is_there(re in looked_at_from_both_ends()) {
        prop_assert!(check(&re)?, "{} is refused", re.pattern());
    }

    /// A repetition up to a text is never refused.
    #[test]
    fn a_text_ends_a_repetition_without_it(re in tempered()) {
        prop_assert!(check(&re)?, "{} is refused", re.pattern());
    }
}

/// Repetitions up to a text: pattern, texts that match, texts that don't.
const EXAMPLES: &[(&str, &[&str], &[&str])] = &[
    ("(?:(?!b).)*b", &["b", "aaéb"], &["a", "bb", "abab"]),
    ("(?:(?!b).)*c", &["c", "aac"], &["bc", "cb"]),
    (
        "<a>(?:(?!</a>).)*</a>",
        &["<a></a>", "<a><b></b></a>", "<a></</a>"],
        &["<a>", "<a></a></a>", "<a></a>a"],
    ),
    (
        r"/\*(?:(?!\*/)[\s\S])*\*/",
        &["/**/", "/***/", "/* a */"],
        &["/*/", "/**/*/"],
    ),
];

#[test]
fn repetitions_up_to_a_text_in_every_kind_of_grammar() {
    for (pattern, good, bad) in EXAMPLES {
        let schema = serde_json::json!({ "pattern": format!("^{pattern}$"), "type": "string" });
        let schema = schema.to_string();
        let lark = format!("start: /{}/", pattern.replace('/', r"\/"));
        let grammars = [
            (COMPILER.compile_regex(pattern), ""),
            (COMPILER.compile_grammar(&lark), ""),
            (
                COMPILER.compile_json_schema(&schema, &JsonSchemaOptions::default()),
                "\"",
            ),
        ];
        for (grammar, quote) in grammars {
            let grammar = grammar.unwrap();
            let takes = |text: &str| {
                started(&grammar, &format!("{quote}{text}{quote}"))
                    .is_some_and(|matcher| matcher.is_completed())
            };
            assert!(good.iter().all(|text| takes(text)), "{pattern}");
            assert!(!bad.iter().any(|text| takes(text)), "{pattern}");
        }
    }
}

/// Patterns of real schemas that look around within a look-ahead, or from both ends.
const LOOKED_AT: &[(&str, &[&str], &[&str])] = &[
    // pydantic's decimals.
    (
        r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",
        &["0", "-1.5", "+007", ".5", "12."],
        &["", "-", ".", "+.", "1-", "1.2.3"],
    ),
    (r"(?!^\d+$)^.+$", &["a", "1a"], &["", "1", "12"]),
    (
        r"^(?=^[a-z]+$).{3,6}$",
        &["abc", "abcdef"],
        &["ab", "abcdefg", "ab1"],
    ),
    (
        r"^(?=.*\bfoo\b).*$",
        &["foo", "a foo b", "foo-"],
        &["", "food", "afoo", "foo_"],
    ),
    (
        r"^(?!.*\.\.).+(?<!\.lock)$",
        &["a", "a.b", "lock"],
        &["", "a..b", "a.lock"],
    ),
    (
        r"^(?=^[a-z][a-z0-9]*(-[a-z0-9]+)*$).{1,9}$",
        &["a", "a-b", "abc-1-def"],
        &["", "-a", "a-", "a--b", "abcdefghij"],
    ),
    (
        r"(?!^(\d+\.)+\d+$)(^[a-z0-9.]{3,}$)",
        &["abc", "1.2.a", "123"],
        &["1.2", "127.0.0.1", "ab"],
    ),
];

#[test]
fn look_ahead_looks_around_itself() {
    for (pattern, good, bad) in LOOKED_AT {
        let schema = serde_json::json!({ "pattern": pattern, "type": "string" });
        let schema = schema.to_string();
        let grammars = [
            (COMPILER.compile_regex(pattern), ""),
            (
                COMPILER.compile_json_schema(&schema, &JsonSchemaOptions::default()),
                "\"",
            ),
        ];
        for (grammar, quote) in grammars {
            let grammar = grammar.unwrap_or_else(|error| panic!("{pattern}: {error}"));
            let takes = |text: &str| {
                started(&grammar, &format!("{quote}{text}{quote}"))
                    .is_some_and(|matcher| matcher.is_completed())
            };
            for text in *good {
                assert!(takes(text), "{pattern} on {text}");
            }
            for text in *bad {
                assert!(!takes(text), "{pattern} on {text}");
            }
        }
    }
}
