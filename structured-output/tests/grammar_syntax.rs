//! What the front ends accept, and what they say of the rest.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use structured_output::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

const THINK: u32 = 256;
const TOOL: u32 = 257;
const STOP: u32 = 258;

fn compiler() -> GrammarCompiler {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.extend([&b"<think>"[..], b"<|tool|>", b"<|end|>"].map(<[u8]>::to_vec));
    let info = TokenizerInfo::new(&vocab, vocab.len() + 5, &[STOP], &[TOOL]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
}

fn message(source: &str) -> String {
    compiler().compile_grammar(source).unwrap_err().to_string()
}

fn accepts(source: &str, text: &str) -> bool {
    let grammar = compiler().compile_grammar(source);
    let grammar = grammar.unwrap_or_else(|error| panic!("{source}: {error}"));
    let mut matcher = GrammarMatcher::new(&grammar);
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    matcher.accept_tokens(&tokens).unwrap() && matcher.is_completed()
}

/// Whether the tokens are accepted one after the other, and the text may end or has ended.
fn accepts_tokens(source: &str, tokens: &[u32]) -> bool {
    let grammar = compiler().compile_grammar(source);
    let grammar = grammar.unwrap_or_else(|error| panic!("{source}: {error}"));
    let mut matcher = GrammarMatcher::new(&grammar);
    for &token in tokens {
        assert_eq!(
            matcher.next_token_mask().unwrap().is_allowed(token),
            matcher.fork().accept_token(token).unwrap()
        );
        if !matcher.accept_token(token).unwrap() {
            return false;
        }
    }
    matcher.is_completed()
}

#[test]
fn ebnf_is_read_as_written() {
    let cases: [(&str, &[&str], &[&str]); 13] = [
        (
            r#"root ::= "a" | ( ) | b
b ::= [b-d]{2}"#,
            &["a", "", "bd"],
            &["b", "e"],
        ),
        (
            r#"root ::= "\x41\u00e9\U0001f600\n\"\\\/\e" "#,
            &["Aé😀\n\"\\/\x1b"],
            &["A"],
        ),
        (
            r#"root ::= [^\]\-a] [^] ."#,
            &["bxé", "^\n\n"],
            &["a12", "]12", "-12"],
        ),
        ("root ::= \"a\" # \"b\"\n # ::=\n \"c\"", &["ac"], &["a"]),
        (
            "root::=a-b a.b a_b\na-b::=\"1\"\na.b::=\"2\"\r\na_b::=\"3\"",
            &["123"],
            &["12"],
        ),
        (
            "root ::= \"a\"{2,} \"b\"{3} \"c\"{1,2} \"d\"?",
            &["aabbbc", "aaabbbccd"],
            &["abbbc"],
        ),
        ("root ::= | \"x\"", &["", "x"], &["xx"]),
        (
            r#"root ::= Regex("a.\\d+") Regex("x.", flags="i") "#,
            &["a\n12Xy"],
            &["a1X\n", "aXx"],
        ),
        (
            r#"root ::= Substring("ab", "c", "de") "!""#,
            &["!", "abc!", "cde!"],
            &["a!", "abde!"],
        ),
        (
            r#"root ::= TagDispatch(("<t>", t), excludes=("%%",)) "%%"
t ::= "1" | "(" t ")""#,
            &["%%", "a<t>1b%%", "<t>((1))<t>1%%"],
            &["<t>%%", "a", "%%a%%"],
        ),
        (
            r#"root ::= TagDispatch(("<t>", t), loop_after_dispatch=false)
t ::= "1" | "(" t ")""#,
            &["", "a<t>1", "<t"],
            &["<t>1b", "<t>"],
        ),
        (
            "root[lazy] ::= [a-z]+ \"ab\"",
            &["xab", "aab"],
            &["ab", "xabab"],
        ),
        // A look-ahead is no part of the language, even where what it says isn't so.
        (
            "root ::= a \"b\" (=(root | [x-z]){2}) # a hint\na ::= \"a\"* | \"c\" (=\"d\" | none)\nnone ::= \"n\"",
            &["b", "aab", "cb"],
            &["", "cd", "cdb", "bx", "cnb"],
        ),
    ];
    for (source, accept, reject) in cases {
        for text in accept {
            assert!(accepts(source, text), "{source}: {text:?}");
        }
        for text in reject {
            assert!(!accepts(source, text), "{source}: {text:?}");
        }
    }
}

#[test]
fn what_is_wrong_with_ebnf_is_told_with_its_place() {
    let cases = [
        (
            "root ::= (=\"a\")",
            "line 1, column 10: a look-ahead `(=` stands at the end of a rule",
        ),
        (
            "root ::= (\"a\" (=\"b\"))",
            "line 1, column 15: a look-ahead `(=` stands at the end of a rule",
        ),
        (
            "root ::= \"a\" (=\"b\" (=\"c\"))",
            "line 1, column 20: a look-ahead `(=` stands at the end of a rule",
        ),
        (
            "root ::= \"a\" (=)",
            "line 1, column 14: the look-ahead `(=` is empty",
        ),
        (
            "root ::= \"a\" (=\"b\") | \"c\"",
            "line 1, column 21: expected the rule's end after its look-ahead",
        ),
        (
            "root ::= \"a\" (=\"b\"",
            "line 1, column 14: `(` without `)`",
        ),
        (
            "root ::= \"a\" (=other)",
            "line 1, column 16: rule `other` is not defined",
        ),
        (
            "root ::= \"a\n\"",
            "line 1, column 10: this string has no end on its line",
        ),
        (
            "root ::= [a",
            "line 1, column 10: `[` without `]` on its line",
        ),
        (
            "root ::= [z-a]",
            "line 1, column 11: the range `z-a` runs backwards",
        ),
        (
            "root ::= \"\\q\"",
            "line 1, column 11: unknown escape `\\q`",
        ),
        ("root ::= [\\d]", "line 1, column 11: unknown escape `\\d`"),
        (
            "root ::= \"\\u00\"",
            "line 1, column 13: expected 4 hexadecimal digits, found `00`",
        ),
        (
            "root ::= \"\\ud800\"",
            "line 1, column 13: `d800` is no code point",
        ),
        (
            "root ::= \"\\x41B\"",
            "line 1, column 11: `\\x41B` is one character in XGrammar's EBNF and two digits",
        ),
        (
            "root ::= \"a\"++",
            "line 1, column 14: nothing to repeat before `+`",
        ),
        (
            "root ::= \"a\"{,4}",
            "line 1, column 14: a repetition needs its lower bound",
        ),
        (
            "root ::= \"a\"{4,2}",
            "line 1, column 13: the counts 4 to 2 run backwards",
        ),
        ("root ::= (\"a\"", "line 1, column 10: `(` without `)`"),
        ("root ::= \"a\")", "line 1, column 13: `)` without `(`"),
        (
            "root ::= \"a\"\nroot ::= \"b\"",
            "line 2, column 1: rule `root` is defined twice",
        ),
        (
            "root ::= \"a\" b ::= \"c\"",
            "line 1, column 14: rule `b` must begin on a line of its own",
        ),
        (
            "root = \"a\" ::=",
            "line 1, column 6: expected `::=` after the name `root`, found `=`",
        ),
        (
            "root ::= \"\\x1F600\"",
            "two digits with text after them in GBNF: write `\\U0001F600`, or `\\u001F` and",
        ),
        (
            "root[max_chars=3] ::= [a]*",
            "line 1, column 6: rule option `max_chars` is not supported",
        ),
        (
            "root[max_tokens=3] ::= \"a\"",
            "line 1, column 1: `max_tokens` needs a rule that is any number of characters",
        ),
        (
            "root ::= ..",
            "line 1, column 10: rule `..` is not defined: any character is `.` with a blank",
        ),
        (
            "start: NAME \"::=\"",
            "line 1, column 6: expected `::=` after the name `start`, found `:` (a grammar with \
             `::=` in a line is read as EBNF",
        ),
        (
            "root ::= Regex(\"(\")",
            "line 1, column 16: `(` without `)`",
        ),
        (
            "root ::= Regex(\"a\", flags=\"m\")",
            "line 1, column 21: flag `m` is not known",
        ),
        (
            "root ::= Token()",
            "line 1, column 10: `Token` needs at least one token id",
        ),
        (
            "root ::= Token(\"a\")",
            "line 1, column 16: `\"a\"` is not expected here",
        ),
        (
            "root ::= Token(9999)",
            "line 1, column 10: token 9999 is beyond the vocabulary",
        ),
        (
            "root ::= Token(258)",
            "line 1, column 10: token 258 ends the text",
        ),
        (
            "root ::= TagDispatch((\"\", root))",
            "a trigger or an excluded string is empty",
        ),
        (
            "root ::= <|none|>",
            "line 1, column 10: the vocabulary has no token `<|none|>`",
        ),
        (
            "root[lazy] ::= \"a\" root",
            "line 1, column 1: `lazy` needs regular operands",
        ),
    ];
    for (source, expected) in cases {
        let message = message(source);
        assert!(message.contains(expected), "{source}: {message}");
        assert!(message.starts_with("grammar, line "), "{message}");
    }
}

#[test]
fn templates_are_rules_with_their_arguments() {
    let separated = r#"start: "[" _separated{item, ","} "]" _separated{"x", ";"} _separated{"x" , ";"}
_separated{x, sep}: x (sep x)*
?item: NAME | pair{NAME, _separated{NUMBER, "+"}}
pair{a, b}: a ":" b
NAME: /[a-z]+/
NUMBER: /[0-9]+/
%ignore " "
"#;
    for text in ["[a]xx", "[a, b]x;xx", "[ab:1+2 , c : 3]x ; x x"] {
        assert!(accepts(separated, text), "{text}");
    }
    for text in ["[]xx", "[a,]xx", "[a]x", "[a:b]xx", "[1]xx", "[a]x,xx"] {
        assert!(!accepts(separated, text), "{text}");
    }
    // Templates may use themselves, and be used before they are defined, within `%lark` too.
    let recursive = r#"start: list{"a"} %lark {
  start: list{/[0-9]/}
  list{x}: x | "(" list{x} ")"
}
list{x}: x | list{x} "," x
"#;
    assert!(accepts(recursive, "a,a,a((1))"));
    assert!(!accepts(recursive, "a,(a)1"));
    assert!(!accepts(recursive, "a((1)"));
    // A parameter hides a rule of its name.
    assert!(accepts("start: a{\"x\"} b\na{b}: b\nb: \"y\"", "xy"));
}

#[test]
fn priorities_change_no_language() {
    let source = "start.2: a | B\na.-1: \"x\"\nB.10: /x|y/";
    for text in ["x", "y"] {
        assert!(accepts(source, text));
    }
    assert!(accepts("start: p{\"x\"}\np{t}.3: t t", "xx"));
}

#[test]
fn what_is_wrong_with_lark_is_told_with_its_place() {
    let cases = [
        (
            "start.x: \"a\"",
            "line 1, column 7: expected a priority after `.`",
        ),
        (
            "start: a{\"x\"}",
            "line 1, column 8: template `a` is not defined",
        ),
        (
            "start: a{\"x\", B}\na{t}: t\nB: \"b\"",
            "line 1, column 8: template `a` has 1 parameters, not 2",
        ),
        (
            "start: a\na{t}: t",
            "line 1, column 8: template `a` needs arguments: `a{…}`",
        ),
        (
            "start: a{\"x\"}\na{t}: t{t}",
            "line 2, column 7: parameter `t` has no parameters itself",
        ),
        (
            "start: a{\"x\"}\na{t}: t\na: \"y\"",
            "line 3, column 1: `a` is defined twice",
        ),
        (
            "start: a{\"x\"}\na{t, t}: t",
            "line 2, column 6: parameter `t` stands twice",
        ),
        (
            "start: a{\"x\"}\na{T}: T",
            "line 2, column 3: parameter `T` is written in capitals",
        ),
        (
            "start: A{\"x\"}\nA{t}: t",
            "line 2, column 2: terminals have no parameters",
        ),
        (
            "start: A\nA: a{\"x\"}\na{t}: t",
            "line 2, column 4: a template can't be part of a terminal",
        ),
        (
            "start: a{\"x\"}\na{t}: t b",
            "line 2, column 9: rule `b` is not defined",
        ),
        (
            "start: a{\"x\" \"y\"}\na{t}: t",
            "line 1, column 14: expected `,` or `}` among arguments, found `\\\"`",
        ),
        (
            "start::_: \"a\"",
            "line 1, column 6: rules with a parameter (`::`) are not supported",
        ),
        (
            "start: A\nA: b\nb: \"x\"",
            "line 2, column 4: rule `b` can't be part of a terminal",
        ),
        (
            "start: A\nA: \"x\" A",
            "line 2, column 1: terminal `A` leads back to itself",
        ),
        (
            "start: A & B",
            "line 1, column 10: `&` stands in terminals only",
        ),
        (
            "start: ~A",
            "line 1, column 8: `~` stands in terminals only",
        ),
        (
            "start: A\nA: <think>",
            "line 2, column 4: a token can't be part of a terminal",
        ),
        (
            "start: A\nA: %json {}",
            "line 2, column 4: JSON can't be part of a terminal",
        ),
        (
            "start: 'a'",
            "line 1, column 8: strings stand in double quotes",
        ),
        (
            "start: @other",
            "line 1, column 8: a grammar named by `@` is not supported",
        ),
        (
            "start: \"a\"..\"\"",
            "line 1, column 8: a range goes from one character to a later one",
        ),
        (
            "start: /a/g",
            "line 1, column 11: flag `g` is not supported",
        ),
        ("start: /a(/", "line 1, column 10: `(` without `)`"),
        ("start: /(a)\\1/", "column 12: back-reference"),
        (
            "start: \"a\" -> b \"c\"",
            "line 1, column 17: a name given by `->` ends an alternative",
        ),
        (
            "start[stop=\"x\"]: /a/",
            "line 1, column 7: attribute `stop` is not supported",
        ),
        (
            "%import other.A\nstart: A",
            "line 1, column 9: only terminals of `common`",
        ),
        (
            "%import common.NONE\nstart: NONE",
            "line 1, column 16: `common` has no terminal `NONE`",
        ),
        (
            "%declare A\nstart: A",
            "line 1, column 1: `%declare` is not supported here",
        ),
        (
            "%grammar_options {\"x\": 1}\nstart: \"a\"",
            "option `x` is not supported",
        ),
        ("start: %json {\"a\" 1}", "line 1, column 19: "),
        (
            "start: %json {\"type\": \"x\"}",
            "line 1, column 8: schema, at `#/type`: ",
        ),
        (
            "start: %regex {\"x\": 1}",
            "line 1, column 15: `%regex` is an object with one of",
        ),
        (
            "start: <[5-3]>",
            "line 1, column 10: the range 5-3 runs backwards",
        ),
        (
            "start: (\"a\"\n",
            "line 1, column 8: `(` without its closing bracket",
        ),
        (
            "start: \"a\" )",
            "line 1, column 12: `)` without its opening bracket",
        ),
        (
            "start: * \"a\"",
            "line 1, column 8: nothing to repeat before `*`",
        ),
        (
            "start: \"a\"~3..2",
            "line 1, column 11: the counts 3 to 2 run backwards",
        ),
        ("start: %lark { start: \"a\"", "`%lark {` without `}`"),
    ];
    for (source, expected) in cases {
        let message = message(source);
        assert!(message.contains(expected), "{source}: {message}");
    }
}

#[test]
fn tokens_are_accepted_where_they_are_named() {
    let byte = |text: &str| -> Vec<u32> { text.bytes().map(u32::from).collect() };
    // A token that is text, and its text.
    assert!(accepts_tokens("start: <think> \"x\"", &[THINK, 120]));
    assert!(accepts_tokens("start: <think> \"x\"", &byte("<think>x")));
    assert!(accepts_tokens("start: /.*/", &[THINK]));
    // A control token, and its text.
    assert!(accepts_tokens(
        "start: <|tool|> \"x\" start | \"y\"",
        &[TOOL, 120, 121]
    ));
    assert!(accepts_tokens(
        "start: <|tool|> \"x\" start | \"y\"",
        &byte("<|tool|>xy")
    ));
    assert!(!accepts_tokens("start: /.*/", &[TOOL]));
    // By its id: the token alone.
    assert!(accepts_tokens("root ::= Token(257) \"x\"", &[TOOL, 120]));
    assert!(!accepts_tokens(
        "root ::= Token(257) \"x\"",
        &byte("<|tool|>x")
    ));
    assert!(accepts_tokens("root ::= <[120]> | \"xy\"", &[120]));
    // A letter that is named, and written: both go on.
    assert!(accepts_tokens(
        "root ::= <[120]> \"1\" | \"x2\"",
        &[120, 49]
    ));
    assert!(accepts_tokens(
        "root ::= <[120]> \"1\" | \"x2\"",
        &[120, 50]
    ));
    // All others are text.
    assert!(accepts_tokens(
        "root ::= ExcludeToken(120) !<[121]>",
        &[THINK, 120]
    ));
    for token in [120, TOOL, STOP] {
        assert!(!accepts_tokens("root ::= ExcludeToken(120)", &[token]));
    }
    assert!(accepts_tokens("start: <[*]> <[97-99,257]>", &[0, TOOL]));
    // A stop token ends the text where it is named and may be the last.
    let stop = "start: \"a\" start | <|end|>";
    assert!(accepts_tokens(stop, &[97, STOP]));
    assert!(accepts_tokens(stop, &byte("a<|end|>")));
    assert!(!accepts_tokens(
        "start: \"a\" start <|end|> | \"b\"",
        &[97, STOP]
    ));
    assert!(!accepts_tokens(
        "start: <|end|> \"b\" | \"(\" start \")\"",
        &[STOP]
    ));
}

#[test]
fn a_forced_token_counts_for_the_bound() {
    let compiler = compiler();
    let grammar = compiler
        .compile_ebnf("root ::= \"ab\" Token(257) root | \"c\"", "root")
        .unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    assert_eq!(matcher.min_tokens_to_complete().unwrap(), 2);
    assert!(matcher.accept_token(97).unwrap());
    assert_eq!(matcher.find_jump_forward_string().unwrap(), "b");
    assert_eq!(matcher.forced_tokens().unwrap(), [98, TOOL]);
    assert_eq!(matcher.min_tokens_to_complete().unwrap(), 4);
    assert_eq!(matcher.next_token_mask_within(4).unwrap().token_ids(), [98]);
    assert!(matcher.accept_tokens(&[98, TOOL]).unwrap());
    assert_eq!(matcher.next_token_mask_within(2).unwrap().token_ids(), [99]);
    assert_eq!(matcher.next_token_mask().unwrap().token_ids(), [97, 99]);
}

#[test]
fn what_is_wrong_with_a_structural_tag_is_told_with_its_pointer() {
    let compiler = compiler();
    let cases = [
        ("{", "structural tag, at `#`: line 1, column 2: "),
        ("{}", "at `#`: the field `format` is missing"),
        (
            r#"{"format": {"type": "x"}}"#,
            "at `#/format/type`: `type` is `x`, which is no format",
        ),
        (
            r#"{"format": {"type": "regex", "pattern": "("}}"#,
            "at `#/format/pattern`: column 1",
        ),
        (
            r#"{"format": {"type": "const_string", "value": 1}}"#,
            "at `#/format/value`: `value` must be a string",
        ),
        (
            r#"{"format": {"type": "any_text", "x": 1}}"#,
            "at `#/format/x`: the field `x` is not known here",
        ),
        (
            r#"{"format": {"type": "any_text", "max_tokens": -1}}"#,
            "at `#/format/max_tokens`",
        ),
        (
            r#"{"format": {"type": "sequence", "elements": [{"type": "grammar", "grammar": "root ::= a"}]}}"#,
            "at `#/format/elements/0/grammar`: line 1, column 10: rule `a` is not defined",
        ),
        (
            r#"{"format": {"type": "json_schema", "json_schema": {"type": "x"}}}"#,
            "at `#/format`: schema, at `#/type`",
        ),
        (
            r#"{"format": {"type": "json_schema", "json_schema": {}, "style": "x_xml"}}"#,
            "at `#/format/style`: `style` is the string `x_xml`: supported are `json`, `qwen_xml`",
        ),
        (
            r#"{"format": {"type": "plus", "content": {"type": "grammar", "grammar":
            "root ::= \"a\" b\nb ::= b \"x\""}}}"#,
            "at `#/format/content/grammar`: line 2, column 1: no text matches this rule",
        ),
        (
            r#"{"format": {"type": "grammar", "grammar": "start: \"a\"\n| \"b\" %json {\"type\": 1}"}}"#,
            "at `#/format/grammar`: line 2, column 7: schema, at `#/type`",
        ),
        (
            r#"{"format": {"type": "sequence", "elements": [{"type": "regex", "pattern": "[^\\s\\S]"}]}}"#,
            "at `#/format`: no text matches this rule",
        ),
        (
            r#"{"format": {"type": "triggered_tags", "triggers": ["<a>"], "tags":
            [{"begin": "<b>", "content": {"type": "any_text"}, "end": ""}]}}"#,
            "at `#/format/tags/0/begin`: `begin` must start with exactly one of the triggers",
        ),
        (
            r#"{"structures": [{"begin": "<a", "schema": {}, "end": ""}], "triggers": ["x"]}"#,
            "at `#/structures/0/begin`: `begin` must start with exactly one of the triggers",
        ),
        (
            r#"{"structures": [{"begin": "<a", "schema": {"type": 1}, "end": ""}], "triggers": ["<a"]}"#,
            "at `#/structures/0/schema`",
        ),
        (
            r#"{"structures": [], "triggers": []}"#,
            "at `#/structures`: `structures` must hold at least one structure",
        ),
        (
            r#"{"format": {"type": "dispatch", "rules": [["<a>", {"type": "regex", "pattern": "x"}]], "excludes": ["a"]}}"#,
            "at `#/format`: no tag could begin with the trigger `<a>`, which holds `a`, and that may not occur",
        ),
        (
            r#"{"format": {"type": "token", "token": "<none>"}}"#,
            "at `#/format`: the vocabulary has no token `<none>`",
        ),
        (
            r#"{"format": {"type": "token", "token": 258}}"#,
            "at `#/format`: token 258 ends the text",
        ),
        (
            r#"{"format": {"type": "repeat", "min": 3, "max": 2, "content": {"type": "any_text"}}}"#,
            "at `#/format/max`: `max` is less than `min`",
        ),
    ];
    for (source, expected) in cases {
        let message = compiler
            .compile_structural_tag(source)
            .unwrap_err()
            .to_string();
        assert!(message.contains(expected), "{source}: {message}");
    }
}

#[test]
fn structural_tags_say_what_their_formats_say() {
    let compiler = compiler();
    let text = r#"{"type": "any_text"}"#;
    let digits = r#"{"type": "regex", "pattern": "[0-9]+"}"#;
    let cases: [(String, &[&str], &[&str]); 14] = [
        (
            format!(
                r#"{{"type": "tag", "begin": "<a>", "content": {text}, "end": ["</a>", "<b/>"]}}"#
            ),
            &["<a></a>", "<a>x</b<b/>"],
            &["<a>", "<a></a></a>", "x<a></a>"],
        ),
        // The text before the end doesn't hold it, but may end with what the end begins with.
        (
            format!(r#"{{"type": "tag", "begin": "", "content": {text}, "end": "aa"}}"#),
            &["aa", "baa", "aaa", "baaa"],
            &["aaaa", "baab", "a"],
        ),
        // Each of a tag's ends ends it, those that another is a part of too.
        (
            format!(r#"{{"type": "tag", "begin": "<", "content": {text}, "end": [">", ">\n", "x>y"]}}"#),
            &["<a>", "<a>\n", "<ax>y", "<x>"],
            &["<a>\n\n", "<a", "<a>b>"],
        ),
        // What is excluded from the text may be a part of what ends it.
        (
            r#"{"type": "tag", "begin": "<t>", "content": {"type": "any_text", "excludes": ["<"]}, "end": "</t>"}"#.into(),
            &["<t>x</t>", "<t></t>"],
            &["<t>x<</t>", "<t>x</t></t>"],
        ),
        // Of triggers of which one holds another either may be meant.
        (
            r#"{"type": "dispatch", "rules": [["<t", {"type": "const_string", "value": "1"}],
            ["<tool>", {"type": "const_string", "value": "2"}], ["o", {"type": "const_string", "value": "3"}]]}"#.into(),
            &["<t1", "a<tool>2b", "o3<t1", "<tool>2o3"],
            &["<tool>1", "<t", "<to3", "o"],
        ),
        (
            r#"{"type": "any_text", "excludes": ["ab"], "max_chars": 3}"#.into(),
            &["", "aéa"],
            &["ab", "xxxx", "xab"],
        ),
        (
            format!(r#"{{"type": "repeat", "min": 1, "max": -1, "content": {digits}}}"#),
            &["1", "123"],
            &["", "a"],
        ),
        (
            format!(
                r#"{{"type": "sequence", "elements": [{{"type": "optional", "content": {digits}}},
            {{"type": "plus", "content": {{"type": "const_string", "value": "x"}}}}, {{"type": "star",
            "content": {{"type": "or", "elements": [{digits}, {{"type": "const_string", "value": "-"}}]}}}}]}}"#
            ),
            &["x", "12xx--3-"],
            &["", "12", "x1x"],
        ),
        (
            format!(
                r#"{{"type": "triggered_tags", "triggers": ["<"], "at_least_one": true, "stop_after_first": true,
            "tags": [{{"begin": "<a>", "content": {digits}, "end": "!"}}, {{"begin": "<b>", "content": {digits}, "end": "?"}}]}}"#
            ),
            &["<a>1!", "<b>22?"],
            &["", "x<a>1!", "<a>1?", "<a>1!<a>1!"],
        ),
        (
            format!(
                r#"{{"type": "tags_with_separator", "separator": ";", "tags": [
            {{"begin": "(", "content": {digits}, "end": ")"}}]}}"#
            ),
            &["", "(1)", "(1);(2)"],
            &["(1);", "(1)(2)"],
        ),
        (
            format!(
                r#"{{"type": "dispatch", "rules": [["ab", {digits}], ["bc", {text}]], "loop": false}}"#
            ),
            &["", "xab1", "abab1".get(2..).unwrap(), "bbcabc"],
            &["ab", "abc", "xab1x"],
        ),
        (
            r#"{"type": "sequence", "elements": [{"type": "token", "token": "a"}, {"type": "token",
            "token": "<think>"}]}"#.into(),
            &["a<think>"],
            &["b<think>", "a"],
        ),
        (
            r#"{"type": "json_schema", "any_order": true, "json_schema": {"properties": {"a": {"type":
            "integer"}, "b": {"type": "null"}}, "required": ["a"], "type": "object",
            "additionalProperties": false}}"#.into(),
            &[r#"{"b":null,"a":1}"#, r#"{"a":1,"b":null}"#, r#"{"a":1}"#],
            &[r#"{"b":null}"#, r#"{"a":1,"a":1}"#],
        ),
        (
            r#"{"type": "grammar", "grammar": "start: \"(\" start \")\" | \"x\""}"#.into(),
            &["x", "((x))"],
            &["(x"],
        ),
    ];
    for (format, accept, reject) in cases {
        let source = format!(r#"{{"type": "structural_tag", "format": {format}}}"#);
        let grammar = compiler.compile_structural_tag(&source);
        let grammar = grammar.unwrap_or_else(|error| panic!("{source}: {error}"));
        let matcher = GrammarMatcher::new(&grammar);
        let is_accepted = |text: &str| {
            let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
            let mut matcher = matcher.fork();
            matcher.accept_tokens(&tokens).unwrap() && matcher.is_completed()
        };
        for text in accept {
            assert!(is_accepted(text), "{format}: {text:?}");
        }
        for text in reject {
            assert!(!is_accepted(text), "{format}: {text:?}");
        }
    }
}

#[test]
fn token_formats_go_by_tokens() {
    let compiler = compiler();
    let source = r#"{"format": {"type": "token_triggered_tags", "trigger_tokens": ["<|tool|>"],
        "tags": [{"begin": {"type": "token", "token": "<|tool|>"},
            "content": {"type": "json_schema", "json_schema": {"type": "integer"}},
            "end": {"type": "token", "token": 120}}], "exclude_tokens": [121]}}"#;
    let grammar = compiler.compile_structural_tag(source).unwrap();
    let matcher = GrammarMatcher::new(&grammar);
    let is_accepted = |tokens: &[u32]| {
        let mut matcher = matcher.fork();
        matcher.accept_tokens(tokens).unwrap() && matcher.is_completed()
    };
    assert!(is_accepted(&[]) && is_accepted(&[97, 98, THINK]));
    assert!(is_accepted(&[97, TOOL, 49, 50, 120, 97]));
    assert!(!is_accepted(&[121]) && !is_accepted(&[TOOL]) && !is_accepted(&[TOOL, 49]));
    assert!(!is_accepted(&[TOOL, 120]));
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_grammar() {
    assert!(accepts("\u{feff}root ::= \"a\"", "a"));
    assert!(accepts("\u{feff}start: \"a\"", "a"));
    assert!(message("\u{feff}root ::= b").contains("line 1, column 10: rule `b`"));
    let tag = "\u{feff}{\"format\": {\"type\": \"any_text\"}}";
    assert!(compiler().compile_structural_tag(tag).is_ok());
}

#[test]
fn schemas_may_be_true_or_false() {
    assert!(accepts("start: \"a\" %json true", "a[1]"));
    assert!(message("start: \"a\" %json false").contains("line 1, column"));
}

#[test]
fn what_xgrammar_prints_is_read_back() {
    let source = "root ::= c{0, -1} rest\nc ::= [ab]\nrest[max_tokens=2] ::= [^]*";
    assert!(accepts(source, "abba"));
    assert!(accepts(source, "abcd"));
    assert!(!accepts(source, "abcde"));
    let source = "root ::= ExcludeToken() ExcludeToken(97)";
    assert!(accepts(source, "ab"));
    assert!(!accepts(source, "aa"));
    // A rule may have a macro's name.
    let source = "root ::= Token (\",\" Token)*\nToken ::= [a-z]+";
    assert!(accepts(source, "ab,c"));
}

#[test]
fn what_changes_no_text_is_read() {
    let source = "%grammar_options {\"allow_invalid_utf8\": false}\nstart: a b c\na[capture]: \"a\"\n\
                  b[capture=\"x\", lazy]: /b+/\nc[temperature=0.7]: \"c\"";
    assert!(accepts(source, "abc"));
    let wrong = |attribute: &str| message(&format!("start: a\na[{attribute}]: \"a\""));
    for attribute in [
        "capture=1",
        "temperature=\"a\"",
        "temperature=",
        "stop=\"a\"",
    ] {
        let expected = match attribute {
            "stop=\"a\"" => "line 2, column 3: attribute `stop` is not supported",
            _ => "`capture` has a name in quotes, `temperature` a number",
        };
        assert!(wrong(attribute).contains(expected), "{}", wrong(attribute));
    }
    let message = message("start: a\na[lazy]: /b/ <|tool|>");
    assert!(
        message.contains("line 2, column 14: a token can't be part of a `lazy` rule"),
        "{message}"
    );
}

#[test]
fn options_of_a_peer_within_a_schema_are_refused() {
    let message = message("start: \"a\" %json {\"x-guidance\": {}, \"type\": \"null\"}");
    assert!(
        message.contains("line 1, column 18: `x-guidance` is not supported"),
        "{message}"
    );
    // Where it is a name of something else it means nothing.
    let named = "start: %json {\"type\": \"object\", \"properties\": {\"x-guidance\": {\"type\": \"null\"}}}";
    assert!(accepts(named, "{\"x-guidance\": null}"));
}

#[test]
fn a_bound_on_text_widens_no_language() {
    let tag = |content: &str, end: &str| {
        format!(
            "{{\"type\": \"structural_tag\", \"format\": {{\"type\": \"tag\", \"begin\": \"(\", \
             \"content\": {{\"type\": \"any_text\"{content}}}, \"end\": {end}}}}}"
        )
    };
    let accepts = |source: &str, text: &str| {
        let grammar = compiler().compile_structural_tag(source).unwrap();
        let mut matcher = GrammarMatcher::new(&grammar);
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        matcher.accept_tokens(&tokens).unwrap() && matcher.is_completed()
    };
    for bound in [
        "",
        ", \"max_chars\": 4",
        ", \"excludes\": [], \"max_chars\": 4",
    ] {
        let source = tag(bound, "\"aa\"");
        for (text, expected) in [
            ("(aa", true),
            ("(baa", true),
            ("(aaa", true),
            ("(abaa", true),
            ("(baaa", true),
            ("(aaaa", false),
        ] {
            assert_eq!(accepts(&source, text), expected, "{source} {text}");
        }
        // Any of several ends.
        let source = tag(bound, "[\"abc\", \"b\", \"cd\"]");
        for (text, expected) in [
            ("(ab", true),
            ("(abc", true),
            ("(abcd", false),
            ("(xcd", true),
            ("(xcb", true),
        ] {
            assert_eq!(accepts(&source, text), expected, "{source} {text}");
        }
    }
    assert!(!accepts(&tag(", \"max_chars\": 4", "\"aa\""), "(bcbcbaa"));
    assert!(accepts(&tag(", \"max_tokens\": 4", "\"ab\""), "(cccab"));
    assert!(!accepts(&tag(", \"max_tokens\": 4", "\"ab\""), "(cccccab"));
    assert!(accepts(&tag(", \"max_tokens\": 4", "\"aa\""), "(aaa"));
}

#[test]
fn a_token_is_the_same_by_name_and_by_id() {
    let tags = |trigger: &str, begin: &str| {
        format!(
            "{{\"type\": \"structural_tag\", \"format\": {{\"type\": \"token_triggered_tags\", \
             \"trigger_tokens\": [{trigger}], \"tags\": [{{\"begin\": {{\"type\": \"token\", \
             \"token\": {begin}}}, \"content\": {{\"type\": \"const_string\", \"value\": \"x\"}}, \
             \"end\": \";\"}}]}}}}"
        )
    };
    for (trigger, begin) in [
        ("65", "\"A\""),
        ("\"A\"", "65"),
        ("65", "65"),
        ("66, \"A\"", "\"A\""),
    ] {
        let grammar = compiler()
            .compile_structural_tag(&tags(trigger, begin))
            .unwrap();
        let mut matcher = GrammarMatcher::new(&grammar);
        assert!(matcher.accept_tokens(&[97, 65, 120]).unwrap());
        assert!(!matcher.accept_token(65).unwrap());
    }
    let error = compiler()
        .compile_structural_tag(&tags("\"B\"", "65"))
        .unwrap_err();
    let expected = "`tags/0/begin` must be one of the trigger tokens";
    assert!(error.to_string().contains(expected), "{error}");
}
