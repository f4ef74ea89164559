//! Inputs in the shape of what a target reads.

use super::schemas::{document, schema};
use crate::{Random, Target};

/// A text that is mostly well formed.
pub(crate) fn generate(target: Target, random: &mut Random) -> String {
    match target {
        Target::Ebnf => rules(random, &EBNF),
        Target::Lark => rules(random, &LARK),
        Target::StructuralTag => structural_tag(random),
        Target::Regex => regex(random, 3),
        Target::JsonSchema => document(random),
        _ => match random.below(6) {
            0 => rules(random, &EBNF),
            1 => rules(random, &LARK),
            2 => structural_tag(random),
            3 => document(random),
            4 => format!("^{}", regex(random, 3)),
            _ => plain_rules(random),
        },
    }
}

pub(crate) fn text(random: &mut Random, of: &[&str]) -> String {
    (*random.pick(of)).to_owned()
}

pub(crate) fn many(
    random: &mut Random,
    most: usize,
    separator: &str,
    one: impl Fn(&mut Random) -> String,
) -> String {
    let count = 1 + random.below(most);
    let all: Vec<String> = (0..count).map(|_| one(random)).collect();
    all.join(separator)
}

/// A dialect of grammars.
struct Dialect {
    arrow: &'static str,
    names: &'static [&'static str],
    /// Names of terminals, whose bodies hold nothing but terminals.
    terminals: &'static [&'static str],
    /// Definitions that the atoms need.
    prelude: &'static str,
    atoms: &'static [&'static str],
    /// Atoms of terminals.
    parts: &'static [&'static str],
    /// Whether expressions have `/…/`.
    has_regexes: bool,
    repeats: &'static [&'static str],
    extras: &'static [&'static str],
}

const EBNF: Dialect = Dialect {
    arrow: " ::= ",
    names: &["root", "a", "b", "c"],
    terminals: &[],
    prelude: "",
    parts: &[],
    atoms: &[
        "\"a\"",
        "\"ab\"",
        "\"\"",
        "\"b\"",
        "\"(\"",
        "[a-b]",
        "[^a]",
        "[0-9]",
        ".",
        "\"\\n\"",
        "\"\\x41\"",
        "\"é\"",
        "Token(1)",
        "ExcludeToken(1, 5)",
        "<[3]>",
        "!<[2]>",
        "<|x|>",
        "Substring(\"a b c\")",
        "Regex(\"a[0-9]{2}\")",
        "TagDispatch((\"<a>\", b), loop_after_dispatch=true)",
        "TagDispatch((\"ab\", b), (\"ba\", b), (\"éa\", b), excludes=(\"bb\",), loop_after_dispatch=true)",
        "[\\u0100-\\uffff]",
    ],
    has_regexes: false,
    repeats: &[
        "?",
        "*",
        "+",
        "{2}",
        "{0,3}",
        "{1,}",
        "{0}",
        "{3,70}",
        "{0,2147483647}",
    ],
    extras: &["# note\n", "\n", " "],
};

const LARK: Dialect = Dialect {
    arrow: ": ",
    names: &["start", "a", "b"],
    terminals: &["C", "D"],
    prelude: "%import common.NUMBER\n%import common.WORD\nlist{x}: x (\",\" x)*\n\
              C: \"c\"+\nD: /[ab]{1,3}/ | \"d\"\n",
    parts: &[
        "\"a\"",
        "\"ab\"",
        "\"A\"i",
        "/[ab]+/",
        "/a.c/s",
        "\"a\"..\"c\"",
        "~\"ab\"",
        "NUMBER",
        "%regex {\"substring_chars\": \"abc\"}",
    ],
    atoms: &[
        "\"a\"",
        "\"ab\"",
        "\"\"",
        "\"A\"i",
        "\"b\"",
        "\"(\"",
        "/[ab]+/",
        "/a.c/s",
        "/[0-9]{1,3}/",
        "\"a\"..\"c\"",
        "<|x|>",
        "<[1,3-8]>",
        "<[^1]>",
        "<[*]>",
        "%json {\"type\": \"integer\"}",
        "%json {\"enum\": [\"a\", 1]}",
        "/(?i)x|y/",
        "NUMBER",
        "WORD",
        "C",
        "D",
        "list{C}",
        "list{list{\"b\"}}",
        "[\"b\"]",
        "%regex {\"substring_chars\": \"abc\"}",
        "%lark {\nstart: \"q\"\n}",
    ],
    has_regexes: true,
    repeats: &["?", "*", "+", "~2", "~0..3", "{2}", "{1,}", "{,3}", "~70"],
    extras: &[
        "%ignore / +/\n",
        "%ignore C\n",
        "// note\n",
        "%llguidance {\"allow_initial_skip\": true}\n",
    ],
};

/// Rules that mostly compile: all names are defined, each rule ends, and what stands in terminals
/// only stands there.
fn rules(random: &mut Random, dialect: &Dialect) -> String {
    let mut grammar = dialect.prelude.to_owned();
    for name in dialect.names {
        if random.once_in(5) {
            grammar.push_str(&text(random, dialect.extras));
        }
        let is_lark = dialect.has_regexes;
        if is_lark && random.once_in(8) && *name != "start" {
            let attribute = *random.pick(&["[lazy]", "[suffix=\"b\"]", "[capture, lazy]"]);
            let body = terminal(random, dialect);
            grammar.push_str(&format!("{name}{attribute}: {body}\n"));
            continue;
        }
        let attributes = match is_lark && random.once_in(12) {
            true => random.pick(&["[capture]", ".2", "[max_tokens=3]"]),
            false => "",
        };
        let body = alternatives(random, dialect, 2);
        // Not every rule may lead back to itself.
        let end = text(random, &["\"a\"", "\"b\" \"a\"", "\"\""]);
        let ahead = match !is_lark && random.once_in(12) {
            true => " (=\"a\")",
            false => "",
        };
        grammar.push_str(&format!(
            "{name}{attributes}{}{body} | {end}{ahead}\n",
            dialect.arrow
        ));
    }
    for name in dialect.terminals {
        if random.once_in(2) {
            let body = terminal(random, dialect);
            grammar = grammar.replace(&format!("\n{name}: "), &format!("\n{name}: {body} | "));
        }
    }
    // Some are not well formed.
    if random.once_in(10) {
        grammar.push_str(&format!(
            "{}{}",
            random.pick(&["x", "a", "%declare X", "Y: start", "y: ~", "z: x &"]),
            dialect.arrow
        ));
    }
    grammar
}

/// The body of a terminal.
fn terminal(random: &mut Random, dialect: &Dialect) -> String {
    many(random, 2, " | ", |random| {
        many(random, 2, " & ", |random| {
            many(random, 3, " ", |random| {
                let part = text(random, dialect.parts);
                match random.once_in(4) {
                    true => part + *random.pick(dialect.repeats),
                    false => part,
                }
            })
        })
    })
}

fn alternatives(random: &mut Random, dialect: &Dialect, depth: usize) -> String {
    many(random, 3, " | ", |random| {
        many(random, 3, " ", |random| item(random, dialect, depth))
    })
}

fn item(random: &mut Random, dialect: &Dialect, depth: usize) -> String {
    let inner = match random.below(8) {
        0..=2 => text(random, dialect.names),
        3 if depth > 0 => format!("({})", alternatives(random, dialect, depth - 1)),
        4 if dialect.has_regexes => format!("/{}/", regex(random, 2)),
        _ => text(random, dialect.atoms),
    };
    match random.once_in(3) {
        true => inner + *random.pick(dialect.repeats),
        false => inner,
    }
}

/// Rules over two letters, with all the recursion that they can have.
fn plain_rules(random: &mut Random) -> String {
    let mut grammar = String::new();
    for name in ["root", "r", "s"] {
        let body = many(random, 3, " | ", |random| {
            many(random, 3, " ", |random| {
                text(
                    random,
                    &["root", "r", "s", "\"a\"", "\"b\"", "\"\"", "\"ab\"", "[ab]"],
                )
            })
        });
        grammar.push_str(&format!("{name} ::= {body}\n"));
    }
    grammar
}

pub(crate) fn regex(random: &mut Random, depth: usize) -> String {
    many(random, 3, "|", |random| {
        many(random, 4, "", |random| {
            let inner = match random.below(8) {
                0 if depth > 0 => format!("({})", regex(random, depth - 1)),
                1 if depth > 0 => format!("(?:{})", regex(random, depth - 1)),
                2 if depth > 0 => {
                    let look = random.pick(&["(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?<n>"]);
                    format!("{look}{})", regex(random, depth - 1))
                }
                _ => text(
                    random,
                    &[
                        "a", "b", "0", "é", ".", "[ab]", "[^a]", "[a-z0-9]", "\\d", "\\w", "\\s",
                        "\\S", "\\W", "^", "$", "\\b", "\\B", "\\n", "\\x41", "\\u00e9", "\\p{L}",
                        "[\\d_]", "\\(", " ", "日", "\\.",
                    ],
                ),
            };
            let repeat = ["?", "*", "+", "{2}", "{0,3}", "{1,}", "{5,90}", "*?", "{0}"];
            // What reads nothing isn't repeated.
            let reads = !["^", "$", "\\b", "\\B", "(?=", "(?!", "(?<=", "(?<!"]
                .iter()
                .any(|sign| inner.starts_with(sign));
            match reads && random.once_in(3) {
                true => inner + *random.pick(&repeat),
                false => inner,
            }
        })
    })
}

fn structural_tag(random: &mut Random) -> String {
    if random.once_in(6) {
        let schema = schema(random, 1);
        return format!(
            "{{\"type\": \"structural_tag\", \"structures\": [{{\"begin\": \"<f>\", \"schema\": {schema}, \"end\": \"</f>\"}}], \
             \"triggers\": [\"<f\"]}}"
        );
    }
    format!(
        "{{\"type\": \"structural_tag\", \"format\": {}}}",
        format(random, 3)
    )
}

fn format(random: &mut Random, depth: usize) -> String {
    let texts = ["a", "<a>", "<b>", "</a>", "<|x|>", "", "ab", "\\n"];
    let word = *random.pick(&texts);
    let n = random.below(4);
    if depth == 0 || random.once_in(4) {
        return match random.below(9) {
            0 | 1 => format!("{{\"type\": \"const_string\", \"value\": \"{word}\"}}"),
            2 => format!(
                "{{\"type\": \"json_schema\", \"json_schema\": {}}}",
                schema(random, 1)
            ),
            3 => format!("{{\"type\": \"any_text\", \"excludes\": [\"{word}\"]}}"),
            4 => "{\"type\": \"any_text\"}".to_owned(),
            5 => "{\"type\": \"regex\", \"pattern\": \"[ab]+\"}".to_owned(),
            6 => "{\"type\": \"grammar\", \"grammar\": \"root ::= \\\"a\\\" root | \\\"b\\\"\"}"
                .to_owned(),
            7 => format!("{{\"type\": \"token\", \"token\": {}}}", n * 90),
            _ => format!("{{\"type\": \"any_tokens\", \"exclude_tokens\": [{n}]}}"),
        };
    }
    let inner = format(random, depth - 1);
    let other = format(random, depth - 1);
    let tag = |begin: &str, inner: &str| {
        format!(
            "{{\"type\": \"tag\", \"begin\": \"{begin}\", \"content\": {inner}, \"end\": \"</a>\"}}"
        )
    };
    let flags = format!(
        "\"at_least_one\": {}, \"stop_after_first\": {}",
        random.once_in(2),
        random.once_in(2)
    );
    match random.below(9) {
        0 => format!("{{\"type\": \"sequence\", \"elements\": [{inner}, {other}]}}"),
        1 => format!("{{\"type\": \"or\", \"elements\": [{inner}, {other}]}}"),
        2 => {
            let kind = random.pick(&["optional", "plus", "star"]);
            format!("{{\"type\": \"{kind}\", \"content\": {inner}}}")
        }
        3 => format!(
            "{{\"type\": \"repeat\", \"min\": {n}, \"max\": {}, \"content\": {inner}}}",
            n + 2
        ),
        4 => tag(word, &inner),
        5 => format!(
            "{{\"type\": \"triggered_tags\", \"triggers\": [\"ab\", \"ba\", \"aab\", \"<a\"], \"tags\": [{}, {}, {}], \
             \"excludes\": [\"bb\"], {flags}}}",
            tag("ab", &inner),
            tag("ba", &other),
            tag("aab<", &inner)
        ),
        6 => format!(
            "{{\"type\": \"triggered_tags\", \"triggers\": [\"<a\", \"<|x|>\"], \"tags\": [{}, {}], {flags}}}",
            tag("<a>", &inner),
            tag("<|x|>b", &other)
        ),
        7 => format!(
            "{{\"type\": \"tags_with_separator\", \"tags\": [{}], \"separator\": \"{word}\", {flags}}}",
            tag("<a>", &inner)
        ),
        _ => format!(
            "{{\"type\": \"dispatch\", \"rules\": [[\"<a>\", {inner}], [\"<b>\", {other}]], \"loop\": true}}"
        ),
    }
}
