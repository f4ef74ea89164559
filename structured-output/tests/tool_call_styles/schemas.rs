//! What a schema says of members and values that are written as tags: the same as of JSON.

use proptest::prelude::*;
use serde_json::{Value, json};
use structured_output::GrammarMatcher;

use super::{check, compiler, tag};

/// A member of the style that tells strings from all else.
fn member(name: &str, is_string: bool, value: &str) -> String {
    format!("<｜DSML｜parameter name=\"{name}\" string=\"{is_string}\">{value}</｜DSML｜parameter>")
}

/// Values that are tried, as strings and as JSON.
const TEXTS: [&str; 13] = [
    "", "a", "b", "ab", "ba", "abb", "ü", "1", "2.5", "12", "null", "true", "[]",
];

fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!({}),
        json!(true),
        json!(false),
        json!({"type": "string"}),
        json!({"type": ["string", "integer"]}),
        json!({"type": ["number", "null"], "minimum": 2}),
        json!({"minLength": 1, "x-order": 3}),
        json!({"maxLength": 1, "nullable": true}),
        json!({"pattern": "a"}),
        json!({"pattern": "^[ab]*$", "minimum": 2}),
        json!({"enum": ["a", "ab", 1, null]}),
        json!({"enum": ["a", "b", "ü"], "maxLength": 1}),
        json!({"const": "ab"}),
        json!({"const": [], "title": "none"}),
        json!({"format": "date"}),
        json!({"$ref": "#/$defs/short"}),
        json!({"$ref": "#/$defs/short", "pattern": "b"}),
    ]);
    leaf.prop_recursive(3, 10, 3, |inner| {
        let some = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            some.clone().prop_map(|all| json!({"allOf": all})),
            some.clone().prop_map(|any| json!({"anyOf": any})),
            some.clone()
                .prop_map(|one| json!({"oneOf": one, "description": "one"})),
            some.prop_map(|any| json!({"anyOf": any, "minLength": 1})),
            inner.clone().prop_map(|not| json!({"not": not})),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| json!({"if": a, "then": b, "else": c})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    /// A string is allowed as it stands where the `jsonschema` crate finds it valid, and other values where it finds
    /// them valid.
    #[test]
    fn values_are_those_that_are_valid(schema in schemas()) {
        let defs = json!({"short": {"maxLength": 2}});
        let whole = json!({
            "type": "object", "properties": {"p": schema}, "required": ["p"],
            "additionalProperties": false, "$defs": defs,
        });
        let source = tag(&whole.to_string(), r#""style": "deepseek_xml""#);
        let grammar = match compiler().compile_structural_tag(&source) {
            Ok(grammar) => Some(grammar),
            Err(error) => {
                let message = error.to_string();
                prop_assert!(message.contains("no value") || message.contains("no text"), "{}: {}", whole, message);
                None
            }
        };
        let oracle = jsonschema::draft202012::options()
            .should_validate_formats(true)
            .build(&whole)
            .unwrap();
        let takes = |text: &str| grammar.as_ref().is_some_and(|grammar| {
            let mut matcher = GrammarMatcher::new(grammar);
            let mut bytes = text.bytes().map(u32::from);
            bytes.all(|byte| matcher.accept_token(byte).unwrap()) && matcher.is_completed()
        });
        for text in TEXTS {
            let is_valid = oracle.is_valid(&json!({"p": text}));
            // Where other values are refused as a whole, so are strings: the schema is.
            if grammar.is_some() || !is_valid {
                prop_assert_eq!(takes(&member("p", true, text)), is_valid, "{}: {:?}", &whole, text);
            }
            let Ok(value) = serde_json::from_str::<Value>(text) else {
                continue;
            };
            let is_valid = oracle.is_valid(&json!({"p": value}));
            if grammar.is_some() || !is_valid {
                prop_assert_eq!(takes(&member("p", false, text)), is_valid, "{}: {}", &whole, text);
            }
        }
    }
}

fn texts(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

fn of(names: &str) -> String {
    let one = |name: char| format!("<parameter={name}>1</parameter>");
    names.chars().map(one).collect()
}

fn check_names(schema: &str, more: &str, accept: &[&str], reject: &[&str]) {
    let accept: Vec<String> = accept.iter().map(|names| of(names)).collect();
    let reject: Vec<String> = reject.iter().map(|names| of(names)).collect();
    let more = format!(r#""style": "qwen_xml"{more}"#);
    check(&tag(schema, &more), &texts(&accept), &texts(&reject));
}

/// Whoever reads a tag takes what ends a name for its end where the name is not a longer one of the schema's.
#[test]
fn a_name_that_a_tag_of_another_one_begins_with_is_none_of_the_others() {
    let one = r#"{"type": "object", "properties": {"a>b": {"type": "integer"}}, "additionalProperties": {"type": "string"}}"#;
    let style = r#""style": "qwen_xml""#;
    check(
        &tag(one, style),
        &[
            "<parameter=a>b>1</parameter>",
            "<parameter=aa>b>1</parameter>",
        ],
        &["<parameter=a>b</parameter>", "<parameter=a>1</parameter>"],
    );
    let end = r#"{"type": "object", "properties": {"a\"": {"type": "integer"}, "a": {"type": "integer"}}}"#;
    check(
        &tag(end, r#""style": "minimax_xml""#),
        &[
            "<parameter name=\"a\"\">1</parameter>",
            "<parameter name=\"a\">1</parameter>",
        ],
        &[],
    );
    for (schema, expected) in [
        (
            r#"{"type": "object", "properties": {"at": {}, "at>": {}}}"#,
            "properties/at>`: a tag of the member `at>` reads as one of `at` and a value",
        ),
        (
            r#"{"type": "object", "anyOf": [{"properties": {"at": {}}, "required": ["at"]}, {"properties": {"at>": {}}}]}"#,
            "a tag of the member `at>` reads as one of `at` and a value",
        ),
    ] {
        let error = compiler()
            .compile_structural_tag(&tag(schema, style))
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn formats_hold_for_strings_as_they_stand() {
    let schema = r#"{"type": "object", "required": ["d"], "additionalProperties": false, "properties": {
        "d": {"type": "string", "format": "date", "description": "a day"},
        "h": {"type": "string", "format": "hostname", "maxLength": 5},
        "c": {"type": "string", "format": "colour", "x-widget": "picker"}}}"#;
    let of = |name: &str, value: &str| format!("<parameter={name}>{value}</parameter>");
    let day = of("d", "2024-02-29");
    let accept = [
        day.clone(),
        of("d", "\n2024-02-29\n"),
        day.clone() + &of("h", "a.org") + &of("c", "any \"text\""),
    ];
    let reject = [
        of("d", "2023-02-29"),
        of("d", "\"2024-02-29\""),
        day.clone() + &of("h", "-a"),
        day + &of("h", "abc.org"),
    ];
    check(
        &tag(schema, r#""style": "qwen_xml""#),
        &texts(&accept),
        &texts(&reject),
    );
}

#[test]
fn members_of_branches_come_together() {
    let integer = r#"{"type": "integer"}"#;
    let schema = format!(
        r##"{{"$ref": "#/$defs/base", "title": "t", "x-kind": 1, "nullable": false,
        "allOf": [{{"properties": {{"b": {integer}}}, "required": ["b"]}}, true],
        "$defs": {{"base": {{"type": "object", "properties": {{"a": {integer}}}}}}},
        "properties": {{"c": {integer}}}}}"##
    );
    // Those of the schema itself come first.
    check_names(
        &schema,
        "",
        &["b", "cb", "cab", "abx"],
        &["", "c", "ba", "bb"],
    );
    let only = r##"{"allOf": [{"$ref": "#/$defs/base"}], "$defs": {"base": {"type": "object",
        "properties": {"a": {"type": "integer"}}, "additionalProperties": false}}}"##;
    check_names(only, "", &["", "a"], &["aa", "b"]);
}

#[test]
fn each_branch_of_any_is_a_way() {
    let schema = r#"{"type": "object", "additionalProperties": false,
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}]}"#;
    check_names(schema, "", &["a", "ab", "abc", "bc"], &["", "b", "c", "cb"]);
    let any_order = r#", "any_order": true"#;
    check_names(
        schema,
        any_order,
        &["a", "ba", "cb", "cab"],
        &["", "b", "aa"],
    );
    let apart = r#"{"anyOf": [
        {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": false},
        {"type": "object", "properties": {"b": {"const": 1}}, "required": ["b"], "additionalProperties": false}]}"#;
    check_names(apart, "", &["a", "b"], &["", "ab"]);
}

#[test]
fn members_are_counted() {
    let schema = |bounds: &str| {
        format!(
            r#"{{"type": "object", {bounds}, "required": ["b"], "properties":
            {{"a": {{"type": "integer"}}, "b": {{"type": "integer"}}, "c": {{"type": "integer"}}}}}}"#
        )
    };
    let open = schema(r#""minProperties": 2, "maxProperties": 3"#);
    check_names(
        &open,
        "",
        &["ab", "abc", "bx", "bxy", "abx"],
        &["b", "abcx", "bxyz", "ac"],
    );
    let closed = schema(r#""minProperties": 2, "maxProperties": 2, "additionalProperties": false"#);
    check_names(&closed, "", &["ab", "bc"], &["b", "abc", "ac", ""]);
    let any_order = r#", "any_order": true"#;
    check_names(
        &closed,
        any_order,
        &["ab", "ba", "cb"],
        &["b", "abc", "ac", "aa"],
    );
    let one = schema(r#""maxProperties": 1"#);
    check_names(&one, "", &["b"], &["ab", "bx", ""]);
}

#[test]
fn a_member_tells_branches_apart() {
    let branch = |kind: &str, name: &str| {
        format!(
            r#"{{"properties": {{"a": {{"const": {kind}}}, "{name}": {{"type": "integer"}}}}, "required": ["a"],
            "additionalProperties": false}}"#
        )
    };
    let schema = format!(
        r#"{{"type": "object", "oneOf": [{}, {}, {}]}}"#,
        branch("1", "b"),
        branch("2", "c"),
        branch("\"1\"", "d")
    );
    let of = |name: &str, value: &str| format!("<parameter={name}>{value}</parameter>");
    let one = |value: &str, name: &str| of("a", value) + &of(name, "7");
    // A string's text and a number's are the same in this style.
    let accept = [of("a", "2"), one("1", "b"), one("2", "c"), one("1", "d")];
    let reject = [of("b", "7"), one("2", "b"), one("1", "c"), one("3", "b")];
    check(
        &tag(&schema, r#""style": "qwen_xml""#),
        &texts(&accept),
        &texts(&reject),
    );
}

#[test]
fn members_that_need_or_exclude_each_other() {
    let schema = |more: &str| {
        format!(
            r#"{{"type": "object", "properties": {{"a": {{"type": "integer"}}, "b": {{"type": "integer"}},
            "c": {{"type": "integer"}}}}, "additionalProperties": false, {more}}}"#
        )
    };
    let sets = ["", "a", "b", "c", "ab", "ac", "bc", "abc"];
    for (more, accept) in [
        (
            r#""oneOf": [{"required": ["a"]}, {"required": ["b"]}]"#,
            &["a", "b", "ac", "bc"][..],
        ),
        (
            r#""oneOf": [{"required": ["a", "b"]}, {"required": ["c"]}]"#,
            &["c", "ab", "ac", "bc"],
        ),
        (r#""not": {"required": ["a"]}"#, &["", "b", "c", "bc"]),
        (
            r#""not": {"type": "object", "required": ["a", "b"]}"#,
            &["", "a", "b", "c", "ac", "bc"],
        ),
        (
            r#""dependentRequired": {"a": ["b", "c"], "c": ["b"]}"#,
            &["", "b", "bc", "abc"],
        ),
        (
            r#""anyOf": [{"required": ["a"]}, {"required": ["b"]}], "not": {"required": ["c"]}"#,
            &["a", "b", "ab"],
        ),
    ] {
        let schema = schema(more);
        let validator = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
        let object = |set: &str| -> serde_json::Value {
            set.chars()
                .map(|name| (name.to_string(), json!(7)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let valid: Vec<&str> = sets
            .into_iter()
            .filter(|set| validator.is_valid(&object(set)))
            .collect();
        assert_eq!(valid, accept, "{more}");
        let reject: Vec<&str> = sets
            .into_iter()
            .filter(|set| !accept.contains(set))
            .collect();
        check_names(&schema, "", accept, &reject);
    }
    // Each branch has a member that the others don't allow.
    let branch = |name: &str| {
        format!(
            r#"{{"properties": {{"{name}": {{"type": "integer"}}}}, "required": ["{name}"], "additionalProperties": false}}"#
        )
    };
    let schema = format!(
        r#"{{"type": "object", "oneOf": [{}, {}]}}"#,
        branch("a"),
        branch("b")
    );
    check_names(&schema, "", &["a", "b"], &["", "ab"]);
}

#[test]
fn names_match_patterns() {
    let schema = r#"{"type": "object", "properties": {"x1": {"maximum": 5}, "y": {"type": "boolean"}},
        "patternProperties": {"^x": {"type": "integer"}, "[0-9]$": {"minimum": 3}},
        "additionalProperties": {"type": "null"}}"#;
    let of = |name: &str, value: &str| format!("<parameter={name}>{value}</parameter>");
    let accept = [
        of("x1", "4"),
        of("xa", "1"),
        of("x-a", "1"),
        of("x9", "3"),
        of("é9", "3.5"),
        of("z", "null"),
        of("x1", "3") + &of("y", "true") + &of("x2", "9") + &of("z", "null"),
    ];
    let reject = [
        of("x1", "6"),
        of("x1", "2"),
        of("xa", "1.5"),
        of("x9", "2"),
        of("x9", "3.5"),
        of("z", "1"),
        of("z-a", "null"),
        of("x<", "1"),
    ];
    check(
        &tag(schema, r#""style": "qwen_xml""#),
        &texts(&accept),
        &texts(&reject),
    );
    let only = r#"{"type": "object", "patternProperties": {"^a$": {"type": "integer"}, "^a": false},
        "additionalProperties": false}"#;
    check_names(only, "", &[""], &["a", "b"]);
}

#[test]
fn white_space_is_counted() {
    let schema = r#"{"type": "object", "properties": {"a": {"type": "array"}}, "additionalProperties": false}"#;
    let text = |before: &str, around: &str, inside: &str| {
        format!("{before}<parameter=a>{around}[{inside}1]</parameter>")
    };
    for (max, accept, reject) in [
        (
            0,
            vec![("", "", "")],
            vec![(" ", "", ""), ("", " ", ""), ("", "", " ")],
        ),
        (
            2,
            vec![("\n\n", "\t ", " \n"), ("", "", "")],
            vec![("\n\n\n", "", ""), ("", "   ", ""), ("", "", "   ")],
        ),
        (
            -1,
            vec![("\n\n\n\n", "    ", "\n\n\n")],
            vec![("x", "", "")],
        ),
    ] {
        let written = |list: Vec<(&str, &str, &str)>| -> Vec<String> {
            list.into_iter().map(|(b, a, i)| text(b, a, i)).collect()
        };
        let more = format!(r#""style": "qwen_xml", "max_whitespace_cnt": {max}"#);
        check(
            &tag(schema, &more),
            &texts(&written(accept)),
            &texts(&written(reject)),
        );
        let json = |space: usize| format!("{{\"a\":{}[]}}", " ".repeat(space));
        let (accept, reject) = match max {
            -1 => (vec![json(0), json(9)], vec![]),
            max => (vec![json(max as usize)], vec![json(max as usize + 1)]),
        };
        let more = format!(r#""max_whitespace_cnt": {max}"#);
        check(&tag(schema, &more), &texts(&accept), &texts(&reject));
    }
}
