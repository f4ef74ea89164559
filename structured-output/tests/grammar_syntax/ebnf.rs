//! EBNF and GBNF.

use super::{accepts, message};

#[test]
fn ebnf_is_read_as_written() {
    let cases: [(&str, &[&str], &[&str]); 20] = [
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
        // As llama.cpp has them: dots in a row, a line end in a string or class, and an escaped hyphen.
        (
            "root ::= ... \"x\" ..? b\nb ::= \"!\"",
            &["abcx1!", "abcx12!"],
            &["abx1!", "abcx!"],
        ),
        (
            "root ::= \"a\nb\" [^\n]",
            &["a\nbc"],
            &["a\\nbc", "a\nb\n", "ab"],
        ),
        (r#"root ::= "\-a" "#, &["-a"], &["\\-a"]),
        (
            "root ::= \"a\"{2}{1,2} \"b\"?+",
            &["aa", "aaaa", "aabb"],
            &["a", "aaa", "aaaaaa"],
        ),
        ("root ::= \"a\"**", &["", "aaa"], &["b"]),
        (
            r#"root ::= Regex("a.\\d+") Regex("x.", flags="i") "#,
            &["a\n12Xy"],
            &["a1X\n", "aXx"],
        ),
        // As XGrammar has it: texts that stand in JSON as they are.
        (
            r#"root ::= "<" Regex("a\"b|c\\\\d|x[^y]z|/|\\n", json_string=true) ">""#,
            &["<xaz>", "<x/z>", "<x\u{7f}z>", "<xéz>", "</>"],
            &[
                "<a\"b>",
                "<a\\\"b>",
                "<c\\d>",
                "<x\"z>",
                "<x\\\"z>",
                "<\n>",
                "<\\n>",
                "<x\u{1}z>",
            ],
        ),
        (
            r#"root ::= Regex(".*", json_string=false)"#,
            &["", "\"\n"],
            &[],
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
            "root ::= \"a\nb ::= c",
            "line 1, column 10: this string has no end",
        ),
        ("root ::= [a", "line 1, column 10: `[` without `]`"),
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
            "root ::= \"a\" | ++",
            "line 1, column 16: nothing to repeat before `+`",
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
            "root ::= ..a",
            "line 1, column 10: rule `..a` is not defined: any character is `.` with a blank",
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
fn repetitions_of_repetitions_are_as_deep_as_groups_may_be() {
    let deep = format!("root ::= \"a\"{}", "*".repeat(500));
    assert!(accepts(&deep, "aa"));
    let deeper = format!("root ::= \"a\"{}", "*".repeat(1_000_000));
    let message = message(&deeper);
    assert!(message.contains("`max_nesting`"), "{message}");
}
