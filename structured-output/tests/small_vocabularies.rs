//! Masks over vocabularies of all bytes and a few longer tokens, against acceptance byte by byte.
//!
//! In a large vocabulary a place that is overlooked mostly has other tokens that lead to the same walk.
//! With one to twenty tokens of several bytes, cut from texts of the grammar itself so that they cross
//! the borders of what it is made of, a single token decides whether anything is walked at all.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "reference/bytes_and_tokens.rs"]
mod bytes_and_tokens;
#[allow(unreachable_pub, dead_code)]
#[path = "reference/random_lark.rs"]
mod random_lark;

use bytes_and_tokens::compiler;
use random_lark::Random;
use std::sync::Arc;

use structured_output::{
    CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo,
};

const SCHEMAS: [&str; 16] = [
    r#"{"type": "integer"}"#,
    r#"{"type": "number"}"#,
    r#"{"type": "integer", "minimum": 3, "maximum": 120}"#,
    r#"{"type": "number", "multipleOf": 0.5}"#,
    r#"{"enum": [1, 12, 125, 1.5, "a", "ab", null, true]}"#,
    r#"{"enum": ["a", "ab", "b c"]}"#,
    r#"{"type": ["null", "integer"]}"#,
    r#"{"type": "string"}"#,
    r#"{"type": "string", "maxLength": 2}"#,
    r#"{"type": "string", "pattern": "^[ab]+5?$"}"#,
    r#"{"type": "array", "items": {"type": "integer"}, "maxItems": 2}"#,
    r#"{"type": "array", "items": {"enum": [1, 15, 5]}, "uniqueItems": true}"#,
    r#"{"properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}"#,
    r#"{"type": "object", "additionalProperties": {"type": "number"}, "maxProperties": 2}"#,
    r#"{"oneOf": [{"type": "integer"}, {"type": "number", "multipleOf": 2.5}]}"#,
    r#"{"oneOf": [{"const": 1}, {"const": 12}, {"type": "array", "maxItems": 1}]}"#,
];

/// Steps that a mask may take.
const MAX_MASK_STEPS: u64 = 200_000;

/// Regular expressions, many of which may end where they may go on.
const REGEXES: [&str; 22] = [
    "[a-z]+",
    "[ab]*",
    "(.|\\n)*",
    "[^\"]*",
    "[0-9]+",
    "[0-9]+(\\.[0-9]+)?",
    "\\.\\S",
    "[a-z ]{1,4}",
    "a{2,3}",
    "(ab|abc|b)",
    "[ \\n]*",
    "\"[^\"]*\"",
    "(a[0-9]?){1,3}",
    "-?5",
    "[eE][+-]?[0-9]",
    "[\\]}, ]+",
    "\\w+",
    "(ab)*",
    "(?:(?!ab).)*ab",
    "[^<]+",
    "(a|b)*a[ab]",
    "1.{0,2}",
];

const STRINGS: [&str; 14] = [
    "a", "ab", "b", "", "5", ".", "<", "<a>", "}", "\\\"", ",", " ", "1", "abc",
];

/// A Lark grammar of a few rules and terminals.
fn lark(random: &mut Random) -> String {
    let rules = ["start", "x", "y"];
    let rules = &rules[..1 + random.below(3)];
    let mut lines = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let body = lark_alternatives(random, rules, 2);
        let attribute = match at > 0 && random.below(10) == 0 {
            true => random.pick(&["[lazy]", "[suffix=\"b\"]", "[suffix=\"<a\"]"]),
            false => "",
        };
        let body = match attribute {
            "" => body,
            "[lazy]" => format!(
                "/{}/ \"{}\"",
                random.pick(&REGEXES),
                random.pick(&["b", "<a", "5"])
            ),
            _ => format!("/{}/", random.pick(&REGEXES)),
        };
        let end = random.pick(&["", "", " | \"\"", " | T1", " | J1"]);
        let end = if attribute.is_empty() { end } else { "" };
        lines.push(format!("{rule}{attribute}: {body}{end}"));
    }
    lines.push(format!("T1: /{}/", random.pick(&REGEXES)));
    let second = match random.below(4) {
        0 => format!(
            "T2: /{}/ & ~/{}/",
            random.pick(&REGEXES),
            random.pick(&["ab?", "(if|a)", "5.*", "[^a]"])
        ),
        1 => format!(
            "T2: /{}/ | \"{}\"",
            random.pick(&REGEXES),
            random.pick(&STRINGS)
        ),
        _ => format!("T2: /{}/", random.pick(&REGEXES)),
    };
    lines.push(second);
    lines.push(format!("j1: %json {}", random.pick(&SCHEMAS)));
    if random.below(6) == 0 {
        lines.push("%ignore / /".to_owned());
    }
    lines.join("\n").replace("J1", "j1")
}

fn lark_alternatives(random: &mut Random, rules: &[&str], depth: u32) -> String {
    let ways: Vec<String> = (0..1 + random.below(3))
        .map(|_| {
            let parts: Vec<String> = (0..1 + random.below(3))
                .map(|_| lark_item(random, rules, depth))
                .collect();
            parts.join(" ")
        })
        .collect();
    ways.join(" | ")
}

fn lark_item(random: &mut Random, rules: &[&str], depth: u32) -> String {
    let inner = match random.below(9) {
        0 | 1 => "j1".to_owned(),
        2 => "T1".to_owned(),
        3 => "T2".to_owned(),
        4 => rules[random.below(rules.len())].to_owned(),
        5 if depth > 0 => format!("({})", lark_alternatives(random, rules, depth - 1)),
        6 => format!("/{}/", random.pick(&REGEXES)),
        _ => format!("\"{}\"", random.pick(&STRINGS)),
    };
    let count = match random.below(4) {
        0 => random.pick(&["?", "*", "+", "~2", "~0..2", "~1..3"]),
        _ => "",
    };
    inner + count
}

/// The same in EBNF, with free text and triggers.
fn ebnf(random: &mut Random) -> String {
    let rules = ["root", "x", "y"];
    let mut lines = Vec::new();
    for rule in rules {
        let ways: Vec<String> = (0..1 + random.below(3))
            .map(|_| {
                let parts: Vec<String> = (0..1 + random.below(3))
                    .map(|_| ebnf_item(random))
                    .collect();
                parts.join(" ")
            })
            .collect();
        lines.push(format!(
            "{rule} ::= {} | {}",
            ways.join(" | "),
            random.pick(&["\"a\"", "\"\"", "[0-9]"])
        ));
    }
    lines.join("\n")
}

fn ebnf_item(random: &mut Random) -> String {
    let atoms = [
        "x",
        "y",
        "root",
        "[a-b]",
        "[^a]*",
        "[0-9]+",
        "\"ab\"",
        "\"<\"",
        "[ab]{1,3}",
        "Regex(\"a[0-9]{0,2}\")",
        "TagDispatch((\"<a>\", x), (\"<b\", y), loop_after_dispatch=true)",
        "TagDispatch((\"ab\", y), loop_after_dispatch=false)",
        "TagDispatch((\"ab\", y), (\"ba\", x), (\"aab\", root), loop_after_dispatch=true)",
        "TagDispatch((\"b5\", x), (\"5.b\", y), (\"5b\", x), excludes=(\"<b\",), loop_after_dispatch=true)",
        "Substring(\"abcab5\")",
        "\"aab\"",
        "[^\\n]{0,4}",
    ];
    random.pick(&atoms).to_owned() + random.pick(&["", "", "", "?", "*", "+", "{2}", "{0,3}"])
}

/// Regular expressions one after the other, some with a look-ahead before them.
fn regex(random: &mut Random) -> String {
    let parts: Vec<String> = (0..1 + random.below(3))
        .map(|_| {
            let ahead = match random.below(3) {
                0 => {
                    let texts = ["a", "[0-9]", "ab?", "5.", "[ab]{2}", "a*<"];
                    format!("(?!{})", random.pick(&texts))
                }
                _ => String::new(),
            };
            format!("(?:{ahead}{})", random.pick(&REGEXES))
        })
        .collect();
    format!(
        "{}{}",
        parts.concat(),
        random.pick(&["", "<", "(?:<|5)*", "\\.5?"])
    )
}

/// A structural tag.
fn structural_tag(random: &mut Random) -> String {
    format!(
        "{{\"type\": \"structural_tag\", \"format\": {}}}",
        format_of(random, 3)
    )
}

fn format_of(random: &mut Random, depth: u32) -> String {
    let schema = random.pick(&SCHEMAS);
    let content = |random: &mut Random| format_of(random, depth - 1);
    match random.below(if depth == 0 { 4 } else { 12 }) {
        0 => format!("{{\"type\": \"json_schema\", \"json_schema\": {schema}}}"),
        1 => format!(
            "{{\"type\": \"const_string\", \"value\": \"{}\"}}",
            random.pick(&["a", "5", "<a>", "ab", "}", ".5"])
        ),
        2 => {
            let pattern = serde_json::Value::from(random.pick(&REGEXES));
            format!("{{\"type\": \"regex\", \"pattern\": {pattern}}}")
        }
        3 => random
            .pick(&[
                r#"{"type": "any_text"}"#,
                r#"{"type": "any_text", "excludes": ["ab", "<"]}"#,
                r#"{"type": "any_text", "max_chars": 3}"#,
            ])
            .to_owned(),
        4 | 5 => {
            let elements: Vec<String> = (0..1 + random.below(3)).map(|_| content(random)).collect();
            format!(
                "{{\"type\": \"sequence\", \"elements\": [{}]}}",
                elements.join(", ")
            )
        }
        6 => format!(
            "{{\"type\": \"or\", \"elements\": [{}, {}]}}",
            content(random),
            content(random)
        ),
        7 => {
            let kind = random.pick(&["optional", "plus", "star"]);
            format!("{{\"type\": \"{kind}\", \"content\": {}}}", content(random))
        }
        8 | 9 => tag(random, depth),
        10 => {
            // Of the last ones many overlap.
            let begins: Vec<&str> = match random.below(3) {
                0 => vec!["ab", "ba", "aab", "5a", "b5"],
                1 => vec!["<a", "a<", "<<", "}", "5}5"],
                _ => vec![random.pick(&["<", "<a", "ab"])],
            };
            let begins: Vec<&str> = match begins.len() {
                1 => begins,
                all => (0..2 + random.below(all - 1))
                    .map(|at| begins[at])
                    .collect(),
            };
            let mut tags = Vec::new();
            for &begin in &begins {
                for _ in 0..1 + random.below(2) {
                    tags.push(tag_from(random, begin, depth));
                }
            }
            let begins = begins.join("\", \"");
            let more = random.pick(&[
                "",
                ", \"at_least_one\": true",
                ", \"stop_after_first\": true",
                ", \"excludes\": [\"55\"]",
            ]);
            format!(
                "{{\"type\": \"triggered_tags\", \"triggers\": [\"{begins}\"], \"tags\": [{}]{more}}}",
                tags.join(", ")
            )
        }
        _ => format!(
            "{{\"type\": \"tags_with_separator\", \"separator\": \"{}\", \"tags\": [{}]}}",
            random.pick(&[",", "5", ".5"]),
            tag(random, depth)
        ),
    }
}

fn tag(random: &mut Random, depth: u32) -> String {
    let begin = random.pick(&["<a>", "a", "1", "", "ab"]);
    tag_from(random, begin, depth)
}

fn tag_from(random: &mut Random, begin: &str, depth: u32) -> String {
    let more = random.pick(&["", "b", ">"]);
    let end = random.pick(&[
        "\"</a>\"",
        "\"5\"",
        "\".5\"",
        "[\"a\", \"ab\"]",
        "\"}\"",
        "\"\"",
    ]);
    let content = format_of(random, depth - 1);
    format!(
        "{{\"type\": \"tag\", \"begin\": \"{begin}{more}\", \"content\": {content}, \"end\": {end}}}"
    )
}

/// A grammar's kind and source.
#[derive(Debug)]
enum Source {
    Lark(String),
    Ebnf(String),
    Tag(String),
    Regex(String),
}

impl Source {
    fn random(random: &mut Random) -> Self {
        match random.below(7) {
            6 => Self::Regex(regex(random)),
            0 => Self::Ebnf(ebnf(random)),
            1 | 2 => Self::Tag(structural_tag(random)),
            _ => Self::Lark(lark(random)),
        }
    }

    fn compile(&self, compiler: &GrammarCompiler) -> Result<CompiledGrammar, CompileError> {
        match self {
            Self::Lark(source) => compiler.compile_lark(source),
            Self::Ebnf(source) => compiler.compile_ebnf(source, "root"),
            Self::Tag(source) => compiler.compile_structural_tag(source),
            Self::Regex(source) => compiler.compile_regex(source),
        }
    }
}

/// A text that the grammar begins with, and bytes that it could have gone on with at its places.
fn random_text(grammar: &CompiledGrammar, random: &mut Random) -> Option<Vec<u8>> {
    const TELLING: &[u8] = b"aab15.}],:\"<> e{[/5c";
    let mut matcher = GrammarMatcher::new(grammar);
    let mut text = Vec::new();
    for _ in 0..4 + random.below(12) {
        let mask = matcher.next_token_mask().ok()?;
        let telling: Vec<u8> = TELLING
            .iter()
            .copied()
            .filter(|&byte| mask.is_allowed(u32::from(byte)))
            .collect();
        let byte = match telling.is_empty() || random.below(12) == 0 {
            true => {
                let all: Vec<u32> = (0..256).filter(|&id| mask.is_allowed(id)).collect();
                match all.get(random.below(all.len())) {
                    Some(&byte) => byte as u8,
                    None => break,
                }
            }
            false => telling[random.below(telling.len())],
        };
        if !matcher.accept_token(u32::from(byte)).ok()? {
            panic!("a byte of the mask is refused");
        }
        text.push(byte);
    }
    Some(text)
}

/// Parts of texts, some with another byte in them or at their end.
fn random_tokens(texts: &[Vec<u8>], random: &mut Random) -> Vec<Vec<u8>> {
    let mut tokens = Vec::new();
    let most = [1, 3, 20][random.below(3)];
    for _ in 0..1 + random.below(most) {
        let text = &texts[random.below(texts.len())];
        let start = random.below(text.len());
        let length = 2 + random.below(5);
        let mut token = text[start..(start + length).min(text.len())].to_vec();
        match random.below(4) {
            0 => token.push(b"ab15.}<\", "[random.below(10)]),
            1 => {
                let at = random.below(token.len());
                if let Some(byte) = token.get_mut(at) {
                    *byte = b"ab15.}<\", "[random.below(10)];
                }
            }
            _ => {}
        }
        if token.len() > 1 {
            tokens.push(token);
        }
    }
    tokens
}

/// Checks a grammar over a vocabulary made for it; the number of masks compared.
fn check(source: &Source, bytes: &GrammarCompiler, random: &mut Random) -> usize {
    let Ok(grammar) = source.compile(bytes) else {
        return 0;
    };
    let texts: Vec<Vec<u8>> = (0..3)
        .filter_map(|_| random_text(&grammar, random))
        .filter(|text| !text.is_empty())
        .collect();
    if texts.is_empty() {
        return 0;
    }
    let mut num_masks = 0;
    let tokens = random_tokens(&texts, random);
    let compiler = compiler(&tokens, MAX_MASK_STEPS);
    let Ok(grammar) = source.compile(&compiler) else {
        return 0;
    };
    for text in &texts {
        let mut matcher = GrammarMatcher::new(&grammar);
        for at in 0..=text.len() {
            let Ok(mask) = matcher.next_token_mask() else {
                break;
            };
            num_masks += 1;
            let some_bytes = (0..12)
                .map(|_| random.below(256) as u32)
                .collect::<Vec<_>>();
            for (id, token) in (256_u32..).zip(&tokens) {
                let written: Vec<u32> = token.iter().map(|&byte| u32::from(byte)).collect();
                let Ok(accepted) = matcher.validate_tokens(&written) else {
                    continue;
                };
                assert_eq!(
                    mask.is_allowed(id),
                    accepted == written.len(),
                    "{source:?}\n after {:?} the token {:?} of {:?}",
                    String::from_utf8_lossy(&text[..at]),
                    String::from_utf8_lossy(token),
                    tokens
                        .iter()
                        .map(|token| String::from_utf8_lossy(token))
                        .collect::<Vec<_>>(),
                );
            }
            for id in some_bytes {
                let Ok(accepted) = matcher.validate_tokens(&[id]) else {
                    continue;
                };
                assert_eq!(
                    mask.is_allowed(id),
                    accepted == 1,
                    "{source:?}\n after {text:?} at {at} byte {id}"
                );
            }
            let Some(&next) = text.get(at) else { break };
            if !matches!(matcher.accept_token(u32::from(next)), Ok(true)) {
                break;
            }
        }
    }
    num_masks
}

/// Masks say of each token what its bytes say, one after the other.
#[test]
fn single_tokens_of_a_grammar_s_own_texts_are_allowed() {
    let cases = std::env::var("FORMWORK_CASES").map_or(300, |cases| cases.parse().unwrap());
    let first = std::env::var("FORMWORK_SEED").map_or(0, |seed| seed.parse().unwrap());
    let bytes = compiler(&[], MAX_MASK_STEPS);
    let mut num_masks = 0;
    for seed in first..first + cases {
        let mut random = Random::new(seed);
        let source = Source::random(&mut random);
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(&source, &bytes, &mut random)
        }));
        match checked {
            Ok(masks) => num_masks += masks,
            Err(_) => panic!("seed {seed}"),
        }
    }
    assert!(num_masks as u64 > cases, "{num_masks} masks");
}

/// Where a language less some texts may be over before a token begins, what follows it may begin with the
/// token, unless the empty text is one of those left out.
#[test]
fn what_follows_a_text_that_is_left_out_is_not_allowed() {
    let tokens = [&b"<5"[..], b"5<", b"45", b"5<4"].map(<[u8]>::to_vec);
    let compiler = compiler(&tokens, MAX_MASK_STEPS);
    let lark = "start: T \"<\" /[0-9]*/\nT: /[0-9]+/ & ~/[^a]/";
    let grammars = [
        compiler.compile_lark(lark),
        compiler.compile_regex("(?![0-9]<)[0-9]+<[0-9]*"),
        compiler.compile_lark("start: (T | T \"a\") \"<\" /[0-9]*/\nT: /([0-9]+<)?/ & ~/45</"),
    ];
    for grammar in grammars {
        let grammar = grammar.unwrap();
        for text in ["", "5", "45", "4", "45<", "54<"] {
            let mut matcher = GrammarMatcher::new(&grammar);
            let ids: Vec<u32> = text.bytes().map(u32::from).collect();
            if !matcher.accept_tokens(&ids).unwrap() {
                continue;
            }
            let mask = matcher.next_token_mask().unwrap();
            for (id, token) in (0..=255_u8)
                .map(|byte| vec![byte])
                .chain(tokens.clone())
                .enumerate()
            {
                let written: Vec<u32> = token.iter().map(|&byte| u32::from(byte)).collect();
                let accepted = matcher.validate_tokens(&written).unwrap() == written.len();
                assert_eq!(
                    mask.is_allowed(id as u32),
                    accepted,
                    "after {text:?} {token:?}"
                );
            }
        }
    }
}

/// Each beginning of a key is a state of its own, and with few tokens there is no simple way to tell that one can go on.
#[test]
fn json_objects_of_few_signs() {
    let tokens = |signs: &[&str]| -> Vec<Vec<u8>> {
        signs.iter().map(|sign| sign.as_bytes().to_vec()).collect()
    };
    let allowed = |signs: &[&str], text: &str| -> Option<Vec<String>> {
        let mut vocab = tokens(signs);
        let stop = vocab.len() as u32;
        vocab.push(Vec::new());
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[stop], &[]).unwrap();
        let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
        let grammar = compiler.compile_builtin_json().ok()?;
        let mut matcher = GrammarMatcher::new(&grammar);
        if !matcher.accept_bytes(text.as_bytes()).unwrap() {
            return Some(vec!["refused".to_owned()]);
        }
        let mask = matcher.next_token_mask().unwrap();
        let ids = mask.token_ids().into_iter().map(|id| id as usize);
        Some(
            ids.map(|id| signs.get(id).copied().unwrap_or("end").to_owned())
                .collect(),
        )
    };
    let signs = ["{", "\"", "a", "b", "c", "}", ":", "1", ",", "[", "]"];
    for text in ["{\"abc", "{\"a", "{\"abcabcabcabc", "{\"abc\":[1,{\"a"] {
        let all: Vec<String> = signs.map(str::to_owned).into();
        assert_eq!(allowed(&signs, text), Some(all), "{text}");
    }
    assert_eq!(allowed(&signs, "{\"abc\":").unwrap(), ["{", "\"", "1", "["]);
    // A key that is there already doesn't come again, but goes on.
    let two = ["{", "\"", "a", "}", ":", ","];
    assert_eq!(
        allowed(&two, "{\"a\":\"\",\"a").unwrap(),
        ["{", "a", "}", ":", ","]
    );
    // Without a colon there is no member, without a bracket no object, without a quote no key.
    assert_eq!(allowed(&["{", "\"", "a", "}", "1"], "{").unwrap(), ["}"]);
    assert_eq!(allowed(&["{", "\"", "a", ":", "1"], "{"), None);
    assert_eq!(allowed(&["{", "}", "a", ":", "1"], "{").unwrap(), ["}"]);
    // Tokens of several signs may lead over a key's end.
    let words = ["{\"abc", "\":", "1", "}", "\":1}"];
    assert_eq!(
        allowed(&words, "{\"abc").unwrap(),
        ["\":", "1", "}", "\":1}"]
    );
    assert_eq!(allowed(&words, "{\"abc\":").unwrap(), ["{\"abc", "1"]);
}
