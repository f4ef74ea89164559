//! Structural tags.

use structured_output::GrammarMatcher;

use super::{THINK, TOOL, compiler};

#[test]
fn what_is_wrong_with_a_structural_tag_is_told_with_its_pointer() {
    let compiler = compiler();
    let cases = [
        ("{", "structural tag, at `#`: line 1, column 2: "),
        ("{}", "at `#`: the field `format` is missing"),
        // A field that is mistyped is named.
        (
            r#"{"fromat": {"type": "any_text"}}"#,
            "at `#`: the field `format` is missing; is `fromat` meant to be it?",
        ),
        (
            r#"{"format": {"type": "tag", "begn": "a", "content": {"type": "any_text"}, "end": "b"}}"#,
            "at `#/format`: the field `begin` is missing; is `begn` meant to be it?",
        ),
        (
            r#"{"format": {"type": "x"}}"#,
            "at `#/format/type`: `type` is `x`, which is no format: formats are `const_string`, `json_schema`, ",
        ),
        (
            r#"{"format": {"type": "regex", "pattern": "("}}"#,
            "at `#/format/pattern`: column 1",
        ),
        (
            r#"{"format": {"type": "const_string", "value": 1}}"#,
            "at `#/format/value`: `value` must be a string, not `1`",
        ),
        // A null where something must be is no field that is missing.
        (
            r#"{"format": {"type": "const_string", "value": null}}"#,
            "at `#/format/value`: `value` must be a string, not `null`",
        ),
        (
            r#"{"format": {"type": "sequence", "elements": null}}"#,
            "at `#/format/elements`: `elements` must be an array, not `null`",
        ),
        (
            r#"{"format": {"type": "star", "content": null}}"#,
            "at `#/format/content`: `null` is not an object",
        ),
        (
            r#"{"format": null}"#,
            "at `#/format`: `null` is not an object",
        ),
        (
            r#"{"format": {"type": "repeat", "min": 0, "max": -2, "content": {"type": "any_text"}}}"#,
            "at `#/format/max`: `max` must be a whole number from 0 to 2147483647, or -1 for no bound, not `-2`",
        ),
        (
            r#"{"format": {"type": "repeat", "min": -1, "max": 2, "content": {"type": "any_text"}}}"#,
            "at `#/format/min`: `min` must be a whole number from 0 to 2147483647, not `-1`",
        ),
        (
            r#"{"format": {"type": "token_triggered_tags", "trigger_tokens": [66], "tags": [{"begin":
            {"type": "token", "token": 65}, "content": {"type": "any_text"}, "end": ""}]}}"#,
            "at `#/format/tags/0/begin`: `begin` is the token `65` and must be one of `trigger_tokens`",
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
            "structural tag, at `#/format/json_schema/type`: ",
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
            "at `#/format/tags/0/begin`: `begin` is `<b>` and must start with one of the triggers: `<a>`",
        ),
        (
            r#"{"structures": [{"begin": "<a", "schema": {}, "end": ""}], "triggers": ["x"]}"#,
            "at `#/structures/0/begin`: `begin` is `<a` and must start with one of the triggers: `x`",
        ),
        (
            r#"{"structures": [{"begin": "<a", "schema": {"type": 1}, "end": ""}], "triggers": ["<a"]}"#,
            "at `#/structures/0/schema/type`: ",
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
            "at `#/format/token`: the vocabulary has no token `<none>`",
        ),
        (
            r#"{"format": {"type": "token", "token": 258}}"#,
            "at `#/format/token`: token 258 ends the text",
        ),
        (
            r#"{"format": {"type": "repeat", "min": 3, "max": 2, "content": {"type": "any_text"}}}"#,
            "at `#/format/max`: `max` is less than `min`",
        ),
        (
            r#"{"format": {"type": "triggered_tags", "triggers": ["<a", "<b", "<a>"], "tags":
            [{"begin": "<a>", "content": {"type": "any_text"}, "end": ""}]}}"#,
            "at `#/format/tags/0/begin`: `begin` is `<a>` and must start with one of the triggers only, \
             not with each of `<a`, `<a>`",
        ),
        (
            r#"{"format": {"type": "triggered_tags", "triggers": [], "tags":
            [{"begin": "<b>", "content": {"type": "any_text"}, "end": ""}]}}"#,
            "at `#/format/triggers`: `triggers` must hold at least one string",
        ),
        (
            r#"{"format": {"type": "triggered_tags", "triggers": [""], "tags": []}}"#,
            "at `#/format/triggers/0`: `triggers` holds strings that are not empty",
        ),
        (
            r#"{"format": {"type": "triggered_tags", "triggers": ["<a>"], "tags": []}}"#,
            "at `#/format/tags`: `tags` must hold at least one tag",
        ),
        (
            r#"{"format": {"type": "or", "elements": []}}"#,
            "at `#/format/elements`: `elements` must hold at least one format",
        ),
        (
            r#"{"format": {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": []}}"#,
            "at `#/format/end`: `end` must hold at least one string",
        ),
        (
            r#"{"format": {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": ["a", 1]}}"#,
            "at `#/format/end/1`: `end` holds strings, not `1`",
        ),
        (
            r#"{"format": {"type": "tag", "begin": ["a"], "content": {"type": "any_text"}, "end": ""}}"#,
            "at `#/format/begin`: `begin` must be a string or a token (`{\"type\": \"token\", \"token\": …}`), not an array",
        ),
        (
            r#"{"format": {"type": "json_schema", "json_schema": true, "excludes": [""]}}"#,
            "at `#/format/excludes/0`: `excludes` holds strings that are not empty",
        ),
        (
            r##"{"format": {"type": "json_schema", "json_schema": {"$schema": "http://json-schema.org/draft-07/schema#",
                "$ref": "#/definitions/a", "definitions": {"a": {}}}, "excludes": ["a"]}}"##,
            "at `#/format/excludes`: `excludes` is not supported where `$ref` stands alone",
        ),
        (
            r#"{"format": {"type": "json_schema", "json_schema": {"type": "object"}, "style": "qwen_xml", "excludes": ["a"]}}"#,
            "excludes",
        ),
        (
            r#"{"format": {"type": "any_text", "excludes": ["a", ""]}}"#,
            "at `#/format/excludes/1`: `excludes` holds strings that are not empty",
        ),
        (
            r#"{"format": {"type": "dispatch", "rules": []}}"#,
            "at `#/format/rules`: `rules` must hold at least one pair of a trigger and a format",
        ),
        (
            r#"{"format": {"type": "token_dispatch", "rules": []}}"#,
            "at `#/format/rules`: `rules` must hold at least one pair",
        ),
        (
            r#"{"format": {"type": "dispatch", "rules": [["", {"type": "any_text"}]]}}"#,
            "at `#/format/rules/0/0`: a trigger is not empty",
        ),
        (
            r#"{"format": {"type": "token_triggered_tags", "trigger_tokens": [], "tags": []}}"#,
            "at `#/format/trigger_tokens`: `trigger_tokens` must hold at least one token",
        ),
        // A token's own place, wherever it stands.
        (
            r#"{"format": {"type": "any_tokens", "exclude_tokens": [65, 999]}}"#,
            "at `#/format/exclude_tokens/1`: token 999 is beyond the vocabulary: ids go from 0 to ",
        ),
        (
            r#"{"format": {"type": "token_dispatch", "rules": [["<none>", {"type": "any_text"}]]}}"#,
            "at `#/format/rules/0/0`: the vocabulary has no token `<none>`",
        ),
        (
            r#"{"format": {"type": "plus", "content": {"type": "tag", "begin": {"type": "token", "token": 999},
            "content": {"type": "any_text"}, "end": {"type": "token", "token": 1000}}}}"#,
            "at `#/format/content/begin/token`: token 999 is beyond the vocabulary",
        ),
        (
            r#"{"format": {"type": "token_triggered_tags", "trigger_tokens": ["<none>"], "tags": [{"begin":
            {"type": "token", "token": 65}, "content": {"type": "any_text"}, "end": ""}]}}"#,
            "at `#/format/trigger_tokens/0`: the vocabulary has no token `<none>`",
        ),
        // A schema's error is told by one pointer, into the schema.
        (
            r##"{"format": {"type": "sequence", "elements": [{"type": "const_string", "value": "a"}, {"type": "tag",
            "begin": "a", "content": {"type": "json_schema", "json_schema": {"$ref": "#/$defs/a~1b", "$defs":
            {"a/b": {"properties": {"c": {"minLength": "x"}}}}}}, "end": "b"}]}}"##,
            "at `#/format/elements/1/content/json_schema/$defs/a~1b/properties/c/minLength`: ",
        ),
        (
            r#"{"format": {"type": "json_schema", "style": "qwen_xml", "json_schema": {"type": "object", "properties":
            {"a": {"type": "object", "properties": {"b": {"type": "integer", "minimum": "x"}}}}}}}"#,
            "at `#/format/json_schema/properties/a/properties/b/minimum`: ",
        ),
        (
            r##"{"format": {"type": "json_schema", "style": "qwen_xml", "json_schema": {"type": "object", "properties":
            {"a": {"type": "array", "items": {"$ref": "#/$defs/b"}}}, "$defs": {"b": {"minimum": "x"}}}}}"##,
            "at `#/format/json_schema/$defs/b/minimum`: ",
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
fn strings_and_keys_of_json_hold_no_mark() {
    let accepts = |schema: &str, text: &str| {
        let source = format!(
            r#"{{"format": {{"type": "json_schema", "json_schema": {schema}, "excludes": ["</t>", "a.b", "é"]}}}}"#
        );
        let grammar = compiler().compile_structural_tag(&source).unwrap();
        let mut matcher = GrammarMatcher::new(&grammar);
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        matcher.accept_tokens(&tokens).unwrap() && matcher.is_completed()
    };
    let closed = r#"{"type": "object", "properties": {"a": true}, "unevaluatedProperties": false}"#;
    let old = r##"{"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "definitions": {"excludes": {}},
        "allOf": [{"additionalProperties": {"$ref": "#/definitions/excludes"}}]}"##;
    for (schema, text, expected) in [
        ("true", r#""</s>""#, true),
        ("true", r#""x</t>""#, false),
        ("true", r#""x<\/t>y""#, false),
        ("true", r#"["acb", {"a": ["a.b"]}]"#, false),
        ("true", r#"["acb", {"a.b": 1}]"#, false),
        ("true", r#"["acb", {"a.c": [1.5, null, "e"]}]"#, true),
        ("true", r#"{"x": {"é": 1}}"#, false),
        (
            r#"{"enum": ["a.b", "a-b", ["a.b"], ["c"]]}"#,
            r#""a.b""#,
            false,
        ),
        (
            r#"{"enum": ["a.b", "a-b", ["a.b"], ["c"]]}"#,
            r#""a-b""#,
            true,
        ),
        (
            r#"{"enum": ["a.b", "a-b", ["a.b"], ["c"]]}"#,
            r#"["a.b"]"#,
            false,
        ),
        (
            r#"{"type": "string", "pattern": "^a.b$"}"#,
            r#""a.b""#,
            false,
        ),
        (
            r#"{"type": "string", "pattern": "^a.b$"}"#,
            r#""axb""#,
            true,
        ),
        // It evaluates no member.
        (closed, r#"{"a": "x"}"#, true),
        (closed, r#"{"b": "x"}"#, false),
        (closed, r#"{"a": "é"}"#, false),
        (old, r#"{"b": ["x"]}"#, true),
        (old, r#"{"b": ["é"]}"#, false),
        (old, r#"{"é": 1}"#, false),
        (
            r##"{"$ref": "#/$defs/list", "$defs": {"list": {"items": {"$ref": "#/$defs/list"}, "type": ["array", "string"]}}}"##,
            r#"[["x"], []]"#,
            true,
        ),
        (
            r##"{"$ref": "#/$defs/list", "$defs": {"list": {"items": {"$ref": "#/$defs/list"}, "type": ["array", "string"]}}}"##,
            r#"[["é"], []]"#,
            false,
        ),
    ] {
        assert_eq!(accepts(schema, text), expected, "{schema} {text}");
    }
}
