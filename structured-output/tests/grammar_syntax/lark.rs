//! Lark.

use super::{accepts, message};

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
            "start[stop_capture=\"x\"]: /a/",
            "line 1, column 7: attribute `stop_capture` is not supported, since nothing reports it",
        ),
        (
            "start[stop=\"\"]: /a/",
            "line 1, column 7: an empty `stop` is not supported",
        ),
        (
            "start[lazy, stop=\"x\", suffix=\"x\"]: /a/",
            "line 1, column 23: a rule has one `suffix` or `stop`",
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
            "line 1, column 15: `%regex` is an object with one of `substring_chunks` (strings), \
             `substring_words` and `substring_chars` (a string), not `{\"x\": 1}`",
        ),
        (
            "start: %regex true",
            "line 1, column 15: expected a JSON object after `%regex`, found ",
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
fn schemas_may_be_true_or_false() {
    assert!(accepts("start: \"a\" %json true", "a[1]"));
    assert!(message("start: \"a\" %json false").contains("line 1, column"));
}

#[test]
fn what_is_asked_for_is_given_or_refused() {
    let source =
        "%grammar_options {\"allow_invalid_utf8\": false}\nstart: a b\na: \"a\"\nb[lazy]: /b+/";
    assert!(accepts(source, "ab"));
    let wrong = |attribute: &str| message(&format!("start: a\na[{attribute}]: \"a\""));
    for (attribute, expected) in [
        (
            "capture",
            "line 2, column 3: attribute `capture` is not supported, since nothing reports it",
        ),
        (
            "lazy, capture=\"x\"",
            "line 2, column 9: attribute `capture`",
        ),
        (
            "temperature=0.7",
            "line 2, column 3: attribute `temperature`",
        ),
        ("max_chars", "line 2, column 12: expected `=` and a number"),
        (
            "max_chars=1, max_chars=2",
            "line 2, column 16: a rule has one `max_chars`",
        ),
        (
            "max_tokens=0",
            "line 2, column 14: `max_tokens` must be at least 1",
        ),
        (
            "max_tokens=2",
            "line 2, column 3: `max_tokens` needs text that may end anywhere",
        ),
        (
            "lazy, max_tokens=2",
            "line 2, column 9: `max_tokens` is for rules without `lazy`",
        ),
        (
            "every",
            "line 2, column 3: attribute `every` is not supported",
        ),
    ] {
        assert!(wrong(attribute).contains(expected), "{}", wrong(attribute));
    }
    let beside = message("start: a b\na[max_tokens=2]: /(.|\\n)*/\nb[lazy]: /b+/");
    assert!(
        beside.contains(
            "line 2, column 3: text with `max_tokens` stands where a `lazy` terminal may begin"
        ),
        "{beside}"
    );
    let token = message("start: a\na[max_chars=2]: /b/ <|tool|>");
    assert!(
        token.contains("line 2, column 21: a token can't be part of a rule with `max_chars"),
        "{token}"
    );
    let message = message("start: a\na[lazy]: /b/ <|tool|>");
    assert!(
        message.contains("line 2, column 14: a token can't be part of a `lazy` rule"),
        "{message}"
    );
}

#[test]
fn json_is_written_by_the_options_of_its_schema() {
    let source = |options: &str| {
        format!(
            "start: \"a\" %json {{\"x-guidance\": {options}, \"type\": \"object\", \"properties\": {{\"k\": {{\"type\": \"null\"}}}}}}"
        )
    };
    for (options, accept, reject) in [
        ("{}", "a{ \"k\" : null }", "a{  \"k\": null}"),
        (
            r#"{"whitespace_flexible": false, "coerce_one_of": false}"#,
            r#"a{"k":null}"#,
            r#"a{"k": null}"#,
        ),
        (
            r#"{"whitespace_flexible": false, "key_separator": ": "}"#,
            r#"a{"k": null}"#,
            r#"a{"k":null}"#,
        ),
        (
            r#"{"whitespace_pattern": " {0,2}"}"#,
            r#"a{  "k"  :null}"#,
            r#"a{   "k":null}"#,
        ),
    ] {
        let source = source(options);
        assert!(accepts(&source, accept), "{options} {accept}");
        assert!(!accepts(&source, reject), "{options} {reject}");
    }
    for (options, expected) in [
        ("[]", "line 1, column 18: `x-guidance` must be an object"),
        (
            r#"{"lenient": true}"#,
            "line 1, column 18: `x-guidance` has `lenient`",
        ),
        (
            r#"{"item_separator": 1}"#,
            "line 1, column 18: `x-guidance` has `item_separator`",
        ),
    ] {
        let message = message(&source(options));
        assert!(message.contains(expected), "{message}");
    }
    // Where it is a name of something else it means nothing.
    let named = "start: %json {\"type\": \"object\", \"properties\": {\"x-guidance\": {\"type\": \"null\"}}}";
    assert!(accepts(named, "{\"x-guidance\": null}"));
}

/// `"…"i` is `/…/i`, and both fold case as Unicode's simple folding does: llguidance's are the same, and so
/// is Python's `re.I`, but that it also takes `i` for `İ` and `ı`.
#[test]
fn strings_and_expressions_fold_case_alike() {
    for (letter, same, others) in [
        ("s", "sSſ", "ßz"),
        ("K", "kK\u{212a}", "κ"),
        ("i", "iI", "İı"),
        ("é", "éÉ", "e"),
        ("ß", "ßẞ", "sS"),
        ("σ", "σςΣ", "s"),
        ("1-", "", "1"),
    ] {
        for source in [
            format!("start: \"{letter}\"i"),
            format!("start: /{letter}/i"),
            format!("start: A\nA: \"{letter}\"i"),
            format!("root ::= Regex(\"{letter}\", flags=\"i\")"),
        ] {
            assert!(accepts(&source, letter), "{source}");
            for text in same.chars().map(String::from) {
                assert!(accepts(&source, &text), "{source}: {text}");
            }
            for text in others.chars().map(String::from) {
                assert!(!accepts(&source, &text), "{source}: {text}");
            }
        }
    }
    assert!(accepts("start: \"ask.\"i", "aſ\u{212a}."));
    assert!(!accepts("start: \"ask.\"i", "asks"));
}

#[test]
fn texts_have_a_bound() {
    let source = "start: a \"]\"\na[max_chars=3]: /[a-zé]+/ \"-\"?";
    for (text, expected) in [
        ("a]", true),
        ("éé-]", true),
        ("ééé]", true),
        ("abc-]", false),
        ("]", false),
    ] {
        assert_eq!(accepts(source, text), expected, "{text}");
    }
    // The text, without the mark that ends it.
    let source = "start: a \"]\"\na[max_chars=2, stop=\";\"]: /[a-z]*/";
    for (text, expected) in [(";]", true), ("ab;]", true), ("abc;]", false)] {
        assert_eq!(accepts(source, text), expected, "{text}");
    }
    let terminal = "start: A \"]\"\nA[max_chars=2]: /[a-z]*/";
    assert!(accepts(terminal, "ab]") && !accepts(terminal, "abc]"));
    // Each token here is a byte.
    let source = "start: a \"]\" a\na[max_tokens=3]: /[^\\]]*/\n%ignore / /";
    for (text, expected) in [
        ("]", true),
        ("abc]abc", true),
        ("abcd]", false),
        ("abc] abcd", false),
        ("éa]", true),
    ] {
        assert_eq!(accepts(source, text), expected, "{text}");
    }
}

#[test]
fn what_is_ignored_may_come_once() {
    let source = "%llguidance {\"ignore_once\": true}\nstart: \"a\" \"b\"\n%ignore / {1,2}/";
    for (text, expected) in [
        ("ab", true),
        ("a  b", true),
        ("a   b", false),
        ("a b  ", true),
    ] {
        assert_eq!(accepts(source, text), expected, "{text}");
    }
}
