//! The regular expression syntax: what matches, what is refused and how that is said.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use structured_output::{
    CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo,
};

/// Token `b` is the byte `b`; 256 ends the text.
static COMPILER: LazyLock<GrammarCompiler> = LazyLock::new(|| {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.push(b"<eos>".to_vec());
    let info = TokenizerInfo::new(&vocab, 257, &[256], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
});

fn matches(pattern: &str, text: &str) -> bool {
    let grammar = match COMPILER.compile_regex(pattern) {
        Ok(grammar) => grammar,
        Err(CompileError::Unsatisfiable) => return false,
        Err(error) => panic!("{pattern}: {error}"),
    };
    takes(&grammar, text)
}

/// Whether a grammar accepts a text; its masks say the same at each byte.
fn takes(grammar: &CompiledGrammar, text: &str) -> bool {
    let mut matcher = GrammarMatcher::new(grammar);
    for byte in text.bytes().map(u32::from) {
        let allowed = matcher.next_token_mask().unwrap().is_allowed(byte);
        let accepted = matcher.accept_token(byte).unwrap();
        assert_eq!(allowed, accepted, "{text}");
        if !accepted {
            return false;
        }
    }
    matcher.is_completed()
}

/// Pattern, texts that match, texts that don't.
const CASES: &[(&str, &[&str], &[&str])] = &[
    ("", &[""], &["a"]),
    ("a|b|", &["a", "b", ""], &["ab"]),
    (
        "a{2}b{1,}c{,2}d{0,1}",
        &["aab", "aabbccd"],
        &["ab", "aabccc"],
    ),
    ("a{,}b", &["b", "aab"], &["a{,}b"]),
    ("a{1, 2}", &["a{1, 2}"], &["a", "aa"]),
    ("a{x}{", &["a{x}{"], &["a"]),
    ("a*?b+?c??", &["b", "aabbc"], &["a", "bcc"]),
    (".", &["a", "é", "😀", "\r"], &["\n", "", "ab"]),
    ("(?s).", &["\n"], &["\n\n"]),
    ("(?i)straße", &["STRAßE", "Straẞe", "straße"], &["strasse"]),
    ("(?i:a)b(?i)c(?-i)d", &["Abcd", "abCd"], &["aBcd", "abcD"]),
    ("[a-c]", &["a", "b", "c"], &["d", "ab"]),
    ("[^a-c]", &["d", "é", "\n"], &["a"]),
    ("[]a]", &["]", "a"], &["[]"]),
    ("[^]a]", &["b"], &["]"]),
    ("[a-]", &["a", "-"], &["b"]),
    (r"[\w-]", &["-", "ü", "_"], &["."]),
    (r"[\d\]\\]", &["5", "]", "\\", "٣"], &["a"]),
    (r"[\b]", &["\u{8}"], &["b"]),
    ("[[:digit:]x]", &["5", "x"], &["٣", ":"]),
    (r"\d\D\w\W\s\S", &["1a1. x"], &["aa1. x"]),
    (r"(?a)\d\w\s", &["1a "], &["٣a ", "1ü "]),
    (r"\x41\u0042\U00000043\x{1F600}", &["ABC😀"], &["ABC"]),
    (
        r"\t\n\r\f\v\a\0\.\/\-",
        &["\t\n\r\u{c}\u{b}\u{7}\0./-"],
        &[],
    ),
    // Octal, as Python reads it.
    (r"[\012]\012\0128", &["\n\n\n8"], &["1\n\n8", "\0\n\n8"]),
    (
        r"\08\1018\377[\0-\7\60]",
        &["\08A8ÿ0", "\08A8ÿ\x03"],
        &["\08A8ÿ8"],
    ),
    (r"\p{L}+", &["aßЖ"], &["1", "_"]),
    (r"\P{L}", &["1"], &["a"]),
    (r"\pN\p{Greek}", &["1α"], &["1a"]),
    ("(?P<year>a)(?<n>b)(?:c)(?#comment)d", &["abcd"], &[]),
    ("(?x) a b # comment\n c", &["abc"], &["a b c"]),
    ("^abc$", &["abc"], &["abcd"]),
    (r"\Aabc\z", &["abc"], &[]),
    ("(^a|b)c", &["ac", "bc"], &["c"]),
    ("x(^a|b)c", &["xbc"], &["xac", "ac"]),
    ("(a$|b)c?", &["a", "b", "bc"], &["ac"]),
    ("(?m)a$\\n^b", &["a\nb"], &["ab"]),
    ("(?:^a)?b", &["ab", "b"], &["aab"]),
    (r"\bfoo\b", &["foo"], &[]),
    (
        r".*\bfoo\b.*",
        &["foo", "a foo.", "foo-foo"],
        &["afoo", "foo1", "fo o"],
    ),
    (r"a\Bb\B", &[], &["ab"]),
    (r"a\Bb\b.*", &["ab", "ab.x"], &["abx"]),
    (r"\b\w*\b", &["a", "ab"], &["", "."]),
    (r"(?:\w+\b.?){2}", &["ab cd", "a.b"], &["ab", "abcd"]),
    (
        "(?=.*[0-9])(?=.*[a-z])[a-z0-9]{3}",
        &["a1b", "11a"],
        &["abc", "111", "a1"],
    ),
    ("(?!foo)[a-z]+", &["fo", "fob", "bar"], &["foo", "foobar"]),
    ("(?!foo$)[a-z]+", &["fo", "foobar"], &["foo"]),
    (r"(?!foo\b)[a-z ]+", &["foobar", "bar"], &["foo", "foo bar"]),
    ("[a-z]+(?<!foo)", &["fo", "foob"], &["foo", "barfoo"]),
    (
        "[a-z]+(?<=foo|ba)r",
        &["foor", "bar", "xxbar"],
        &["far", "oor"],
    ),
    ("(?<=a)b", &[], &["b", "ab"]),
    ("a(?=b)b(?<=b)c", &["abc"], &["ac"]),
    ("(?<!^)a|b", &["b"], &["a"]),
    (
        "(?:a(?!b)|b){2,3}",
        &["aa", "baa", "bba"],
        &["ab", "bab", "bbab"],
    ),
    // What is next to an assertion decides it, in repetitions too.
    ("(?:(?!b).)*b", &["b", "aéb"], &["", "a", "abab", "bb"]),
    ("(?:(?!b).)*c", &["c", "acc"], &["bc", "cb"]),
    ("(?:[a-z](?<!b))+", &["a", "ac"], &["", "ab", "ba"]),
    (
        r"(?:(?!ab|c)\w\w)*x",
        &["bax", "aabax", "x"],
        &["abx", "cax", "baabx"],
    ),
    (r"(?:\w\w(?<!ab)){2}", &["aaba"], &["aaab", "abaa"]),
    (r"(?:\w\b\W)*", &["a.b ", ""], &["ab.", "."]),
    (
        "<a>(?:(?!</a>).)*</a>",
        &["<a></a>", "<a>b</b></a>", "<a></</a>"],
        &["<a>", "<a></a></a>", "<a></a>x"],
    ),
    (
        r"(?:/\*(?:(?!\*/)[\s\S])*\*/|x)+",
        &["/**/", "x/*\n/**/x", "/***/", "/**//**/"],
        &["/*/", "/**/*/", "/**"],
    ),
    (
        "(?:(?!ééa).)+ééa{1,2}.*",
        &["xééa", "éééa", "xééaééa"],
        &["ééa", "xéa", "xééb"],
    ),
    (
        "(?:(?!aa|bb)[ab]){2,}(?:aa|bb)",
        &["abaa", "ababb"],
        &["aaa", "baa", "abbaa"],
    ),
    ("a{3,2147483647}", &["aaaa"], &["aa"]),
    ("(?:a{0,1000}b){0,1000}", &["", "aab", "babb"], &["a"]),
];

#[test]
fn what_matches() {
    for (pattern, good, bad) in CASES {
        for text in *good {
            assert!(matches(pattern, text), "{pattern} matches {text:?}");
        }
        for text in *bad {
            assert!(!matches(pattern, text), "{pattern} doesn't match {text:?}");
        }
    }
}

#[test]
fn errors_say_what_and_where() {
    let cases = [
        ("(a", "line 1, column 1: `(` without `)`"),
        (
            "a)",
            "line 1, column 2: `)` without `(`: escape it as `\\)`",
        ),
        ("[a", "line 1, column 1: `[` without `]`"),
        (
            "a\n é*+é",
            "line 2, column 2: this atomic group or possessive repetition",
        ),
        (
            "*a",
            "line 1, column 1: nothing to repeat before `*`: escape it as `\\*`",
        ),
        ("a|{2}", "line 1, column 3: nothing to repeat before `{`"),
        (r"(a)\1", "line 1, column 4: back-reference `\\1`"),
        (r"(?P<n>a)(?P=n)", "line 1, column 9: back-reference `(?P=`"),
        (r"\k<n>", "line 1, column 1: back-reference `\\k`"),
        (r"ab\q", "line 1, column 3: unknown escape `\\q`"),
        ("a\\", "line 1, column 2: a backslash ends the pattern"),
        ("[z-a]", "line 1, column 2: the range `z-a` runs backwards"),
        (
            r"[\d--x]",
            "line 1, column 2: a range can't begin with a class",
        ),
        (r"[a-\d]", "line 1, column 4: a range can't end in a class"),
        ("a{3,2}", "line 1, column 2: the counts {3,2} run backwards"),
        (
            "a{2147483648}",
            "line 1, column 2: the count `2147483648` is above 2147483647",
        ),
        (r"\xZZ", "line 1, column 1: not a code point"),
        (r"\x{110000}", "line 1, column 1: not a code point"),
        (
            r"\p{Nonsense}",
            "line 1, column 1: unknown Unicode property",
        ),
        ("(?q)", "line 1, column 3: `(?q` is not known"),
        ("(?<1>a)", "line 1, column 1: a group's name"),
        (
            r"\400",
            "line 1, column 1: the octal escape `\\400` is above",
        ),
        (r"a\1b", "line 1, column 2: back-reference `\\1`"),
        (r"a\181", "line 1, column 2: back-reference `\\1`"),
        (
            "x(?:(?!ab)[ab])*b",
            "line 1, column 2: a repetition that may not hold some text",
        ),
        ("(?:a(?=b))*", "line 1, column 1: an assertion"),
        (
            "a(?=bc)b(?<=ab)c",
            "line 1, column 9: this assertion looks over another one",
        ),
    ];
    for (pattern, expected) in cases {
        let error = COMPILER.compile_regex(pattern).unwrap_err();
        let message = error.to_string();
        let expected = format!("regex, {expected}");
        assert!(message.starts_with(&expected), "{pattern}: {message}");
    }
    for pattern in ["a^b", "[^\\s\\S]", "(?=a)b", "a$b"] {
        let outcome = COMPILER.compile_regex(pattern);
        assert_eq!(
            outcome.unwrap_err(),
            CompileError::Unsatisfiable,
            "{pattern}"
        );
    }
}

/// Pieces of patterns in the syntax that the `regex` crate knows too.
fn patterns() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        prop::sample::select(vec!["a", "b", "é", " ", r"\.", r"\n"]).prop_map(str::to_owned),
        prop::sample::select(vec![
            ".", "[ab]", "[^a]", r"\w", r"\W", r"\d", r"\s", r"\S", "(?i)A", r"\pL", "^", r"\z",
            r"\b", r"\B",
        ])
        .prop_map(str::to_owned),
    ];
    atom.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            4 => prop::collection::vec(inner.clone(), 1..4).prop_map(|items| items.concat()),
            2 => prop::collection::vec(inner.clone(), 1..3).prop_map(|i| format!("(?:{})", i.join("|"))),
            2 => (inner, prop::sample::select(vec!["*", "+?", "?", "{2}", "{1,3}", "{0,2}"]))
                .prop_map(|(inner, quantifier)| format!("(?:{inner}){quantifier}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    /// The `regex` crate decides, where the pattern is not refused.
    #[test]
    fn agrees_with_the_regex_crate(
        pattern in patterns(),
        texts in prop::collection::vec("[abAé1. \n]{0,4}", 8),
    ) {
        let oracle = regex::Regex::new(&format!(r"\A(?:{pattern})\z")).unwrap();
        let grammar = match COMPILER.compile_regex(&pattern) {
            Ok(grammar) => Some(grammar),
            Err(CompileError::Unsatisfiable) => None,
            // Assertions inside a loop.
            Err(CompileError::Regex { .. }) => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        for text in texts {
            let found = grammar.as_ref().is_some_and(|grammar| takes(grammar, &text));
            prop_assert_eq!(found, oracle.is_match(&text), "{} on {:?}", &pattern, &text);
        }
    }
}
