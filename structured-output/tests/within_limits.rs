//! Constraints that have very many states, of which a text meets few: they keep to the default limits.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod byte_vocabulary;

use structured_output::{
    CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher,
    JsonSchemaOptions,
};

fn compiler() -> GrammarCompiler {
    byte_vocabulary::compiler(CompilerOptions::default())
}

fn schema(schema: &str) -> Result<CompiledGrammar, CompileError> {
    compiler().compile_json_schema(schema, &JsonSchemaOptions::default())
}

/// Whether a text is accepted to its end; each byte is in the mask before it if and only if it is
/// accepted. No call may take more than `max_steps`.
fn accepts(grammar: &CompiledGrammar, text: &str, max_steps: u64) -> bool {
    let mut matcher = GrammarMatcher::new(grammar);
    for byte in text.bytes().map(u32::from) {
        matcher.set_allowance(Some(max_steps));
        let is_allowed = matcher.next_token_mask().unwrap().is_allowed(byte);
        matcher.set_allowance(Some(max_steps));
        assert_eq!(matcher.accept_token(byte).unwrap(), is_allowed, "{text}");
        if !is_allowed {
            return false;
        }
    }
    matcher.is_completed()
}

fn listed(values: impl Iterator<Item = usize>) -> String {
    let values: Vec<String> = values.map(|n| format!("\"value{n}\"")).collect();
    format!("[{}]", values.join(", "))
}

#[test]
fn distinct_items_of_a_list() {
    for count in [20, 90] {
        for min in [count, count - 1, count / 2] {
            let grammar = schema(&format!(
                r#"{{"type": "array", "uniqueItems": true, "minItems": {min}, "items": {{"enum": {}}}}}"#,
                listed(0..count)
            ))
            .unwrap();
            let order = |n: usize| n * 7 % count;
            let accepts = |text: String| accepts(&grammar, &text, 20_000);
            assert!(accepts(listed((0..count).map(order))));
            assert!(accepts(listed((0..min).map(order))));
            assert!(!accepts(listed((0..min - 1).map(order))));
            assert!(!accepts(listed((0..min).map(order).chain([order(3)]))));
            assert!(!accepts(listed((0..=count).map(order))));
        }
        let too_many = format!(
            r#"{{"type": "array", "uniqueItems": true, "minItems": {}, "items": {{"enum": {}}}}}"#,
            count + 1,
            listed(0..count)
        );
        assert!(matches!(
            schema(&too_many),
            Err(CompileError::NoValue { .. })
        ));
    }
}

#[test]
fn distinct_items_of_a_list_beside_others() {
    let grammar = schema(
        r#"{"type": "array", "uniqueItems": true, "minItems": 5, "maxItems": 6,
            "prefixItems": [{"enum": ["a", "z", 1]}],
            "items": {"enum": ["a", "b", "c", null, true]}}"#,
    )
    .unwrap();
    for (text, expected) in [
        (r#"["z", "a", "b", "c", null, true]"#, true),
        (r#"["a", "b", "c", null, true]"#, true),
        (r#"["a", "b", "c", null, "a"]"#, false),
        (r#"["a", "b", "c", null]"#, false),
        (r#"[1, true, "b", "c", null]"#, true),
        (r#"["z", "a", "b", "c", null, true, "a"]"#, false),
    ] {
        assert_eq!(accepts(&grammar, text, 100_000), expected, "{text}");
    }
}

/// `[0, 1, ...]`, each item written so.
fn items(count: usize, written: impl Fn(usize) -> String) -> String {
    let items: Vec<String> = (0..count).map(written).collect();
    format!("[{}]", items.join(","))
}

/// Whether there are enough values is counted, however many must come.
#[test]
fn many_distinct_items_that_must_come() {
    type Written = fn(usize) -> String;
    let cases: [(&str, usize, Written, u64); 9] = [
        (
            r#""items": {"type": "integer"}"#,
            70,
            |n| n.to_string(),
            1_000,
        ),
        (
            r#""items": {"type": "integer"}"#,
            600,
            |n| n.to_string(),
            6_000,
        ),
        (r#""maxItems": 5000"#, 80, |n| format!("\"{n}\""), 2_000),
        (
            r#""items": {"type": "string", "maxLength": 4}"#,
            150,
            |n| format!("\"s{n}\""),
            2_000,
        ),
        (
            r#""items": {"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 49.5}"#,
            100,
            |n| format!("{}.{}", n / 2, n % 2 * 5),
            20_000,
        ),
        (
            r#""items": {"type": "integer"}, "contains": {"const": 3}"#,
            120,
            |n| n.to_string(),
            2_000,
        ),
        (
            r#""prefixItems": [{"enum": [0, 1]}, {"enum": [1, 2]}, {"enum": [0, 2]}],
               "items": {"type": "integer"}"#,
            120,
            |n| n.to_string(),
            2_000,
        ),
        (
            r#""items": {"type": "object", "properties": {"id": {"type": "integer"}},
                "required": ["id"]}"#,
            40,
            |n| format!("{{\"id\":{n}}}"),
            100_000,
        ),
        (
            r#""items": {"type": "object", "properties": {"id": {"type": "integer", "minimum": 0},
                "name": {"type": "string"}}, "required": ["id", "name"],
                "additionalProperties": false}"#,
            40,
            |n| format!("{{\"id\":{n},\"name\":\"a\"}}"),
            100_000,
        ),
    ];
    for (keywords, count, written, max_steps) in cases {
        let grammar = schema(&format!(
            r#"{{"type": "array", "uniqueItems": true, "minItems": {count}, {keywords}}}"#
        ))
        .unwrap();
        let accepts = |text: &str| accepts(&grammar, text, max_steps);
        assert!(accepts(&items(count, written)), "{keywords}");
        assert!(!accepts(&items(count - 1, written)), "{keywords}");
        let repeated = |n: usize| written(n.saturating_sub(usize::from(n + 1 == count)));
        assert!(!accepts(&items(count, repeated)), "{keywords}");
    }
}

/// Values count, not spellings; of the last ones that are left all must come.
#[test]
fn few_values_for_the_distinct_items_that_must_come() {
    let cases: [(&str, &[&str]); 6] = [
        (r#"{"enum": [1, 1.0, 2, 2.00, 30, 3e1]}"#, &["1", "2", "30"]),
        (
            r#"{"type": "number", "multipleOf": 0.5, "minimum": -1, "exclusiveMaximum": 1}"#,
            &["-1", "-0.5", "0", "0.5"],
        ),
        (
            r#"{"enum": ["a/b", "a\/b", "\n", "\u000a", "\u001f", "\u001F"]}"#,
            &[r#""a/b""#, r#""\n""#, r#""\u001f""#],
        ),
        (
            r#"{"type": "string", "pattern": "^[ab]?$"}"#,
            &["\"\"", "\"a\"", "\"b\""],
        ),
        (
            r#"{"type": ["boolean", "null"]}"#,
            &["true", "null", "false"],
        ),
        (
            r#"{"enum": [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}, {"a": 2}, [1], [1.0]]}"#,
            &[r#"{"a": 1, "b": 2}"#, r#"{"a":2}"#, "[1]"],
        ),
    ];
    for (items, values) in cases {
        let of = |min: usize| {
            schema(&format!(
                r#"{{"type": "array", "uniqueItems": true, "minItems": {min}, "items": {items}}}"#
            ))
        };
        let grammar = of(values.len()).unwrap();
        let all = format!("[{}]", values.join(","));
        assert!(accepts(&grammar, &all, 100_000), "{all}");
        let less = format!("[{}]", values[1..].join(","));
        assert!(!accepts(&grammar, &less, 100_000), "{less}");
        let twice = format!("[{0},{0}]", values[0]);
        assert!(!accepts(&grammar, &twice, 100_000), "{twice}");
        assert!(
            matches!(of(values.len() + 1), Err(CompileError::NoValue { .. })),
            "{items}"
        );
    }
}

#[test]
fn one_of_many_overlapping_patterns_of_one_name() {
    let patterns = [
        "^[a-c]+x", "b{2,}", "c.d$", "^..e", "f[0-9]+", "^(g|h)*$", "i.*j", "^.{3,9}$", "k\\\\d$",
        "[lm]{3}", "^n", "o$",
    ];
    for required in ["", r#", "required": ["a"]"#] {
        let branches = patterns.map(|pattern| {
            format!(
                r#"{{"type": "object",
                     "properties": {{"a": {{"type": "string", "pattern": "{pattern}"}}}}{required}}}"#
            )
        });
        let grammar = schema(&format!(r#"{{"oneOf": [{}]}}"#, branches.join(", "))).unwrap();
        for (value, expected) in [
            ("aaaxqqqqqqqqqq", true),
            // Two patterns, none, one that others end in, none.
            ("aaax", false),
            ("qq", false),
            ("qqqo", false),
            ("qqqqqqqqqo", true),
            ("qqq", true),
            ("qqqqqqqqqq", false),
            ("", true),
            ("ghghghghghgh", true),
        ] {
            let text = format!(r#"{{"b": 1, "a": "{value}"}}"#);
            let grammar_text = format!(r#"{{"a": "{value}", "b": 1}}"#);
            assert!(!accepts(&grammar, &text, 1_000_000), "{text}");
            assert_eq!(
                accepts(&grammar, &grammar_text, 1_000_000),
                expected,
                "{value}"
            );
        }
        // Without the property all branches hold, or none.
        assert!(!accepts(&grammar, "{}", 1_000_000));
    }
}

#[test]
fn many_look_aheads() {
    for count in [11, 20] {
        let conditions: String = (b'a'..b'a' + count)
            .map(|letter| format!("(?=.*{})", char::from(letter)))
            .collect();
        let whole: String = (b'a'..b'a' + count).rev().map(char::from).collect();
        let regex = compiler()
            .compile_regex(&format!("{conditions}.*"))
            .unwrap();
        let string = schema(&format!(
            r#"{{"type": "string", "pattern": "^{conditions}.{{8,}}$"}}"#
        ))
        .unwrap();
        for (text, expected) in [
            (whole.clone(), true),
            (format!("-{whole}{whole}-"), true),
            (whole[1..].to_owned(), false),
            (whole.replace('c', "-"), false),
        ] {
            assert_eq!(accepts(&regex, &text, 1_000_000), expected, "{text}");
            assert_eq!(
                accepts(&string, &format!("\"{text}\""), 1_000_000),
                expected
            );
        }
    }
}

/// A pattern that one text matches tells branches apart as a constant does.
#[test]
fn branches_by_patterns_of_one_text() {
    const STEPS: u64 = 1 << 40;
    let steps = |count: usize| {
        let branches: Vec<String> = (0..count)
            .map(|n| {
                format!(
                    r#"{{"type": "object", "required": ["type"], "additionalProperties": false,
                         "properties": {{"type": {{"type": "string", "pattern": "^Kind{n}$"}},
                                         "at{n}": {{"type": "integer"}}}}}}"#
                )
            })
            .collect();
        let grammar = schema(&format!(r#"{{"oneOf": [{}]}}"#, branches.join(", "))).unwrap();
        let last = count - 1;
        let text = |n: usize| format!(r#"{{"type": "Kind{n}", "at{last}": 1}}"#);
        assert!(accepts(&grammar, &text(last), 1_000_000));
        assert!(!accepts(&grammar, &text(0), 1_000_000));
        let mut matcher = GrammarMatcher::new(
            &schema(&format!(r#"{{"oneOf": [{}]}}"#, branches.join(", "))).unwrap(),
        );
        matcher.set_allowance(Some(STEPS));
        for byte in text(last).bytes() {
            assert!(matcher.accept_token(u32::from(byte)).unwrap());
        }
        STEPS - matcher.allowance().unwrap()
    };
    // Each pair is compared: with n³ it would be sixty-four times.
    let (few, many) = (steps(10), steps(40));
    assert!(many < 24 * few, "{few} and {many} steps");
}

/// Enumerations of about 200 KB, of strings and numbers that have their beginning in common or nothing.
#[test]
fn long_enumerations_are_served() {
    let at_random = |n: usize| (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let words = |n: usize| format!("\"{:x}\"", at_random(n));
    let urls = |n: usize| {
        format!(
            "\"https://example.com/products/{:x}/{n}\"",
            at_random(n) % 0xFFFF_FFFF
        )
    };
    let names = |n: usize| format!("\"city-{n:05}, {:x}\"", at_random(n));
    let integers = |n: usize| (at_random(n) % 10_000_000_000).to_string();
    let prices = |n: usize| format!("{}.{:02}", at_random(n) % 1_000_000, n % 99 + 1);
    let all: [(usize, &dyn Fn(usize) -> String); 5] = [
        (20_000, &words),
        (5_000, &urls),
        (10_000, &names),
        (20_000, &integers),
        (20_000, &prices),
    ];
    for (count, value) in all {
        let values: Vec<String> = (0..count).map(value).collect();
        let source = format!("{{\"enum\": [{}]}}", values.join(","));
        let grammar = schema(&source).unwrap();
        for (at, text) in values.iter().enumerate().step_by(count / 10) {
            assert!(accepts(&grammar, text, 200_000), "{text}");
            let other = match text.strip_suffix('"') {
                Some(text) => format!("{text}!\""),
                None => format!("{}1", value(count + at)),
            };
            assert!(!accepts(&grammar, &other, 200_000), "{other}");
        }
    }
}

/// Objects and lists that a constant tells apart: each with all others would be the square of their number.
#[test]
fn thousands_of_values_that_a_constant_tells_apart_are_served() {
    let enumeration = |value: &dyn Fn(usize) -> String| {
        let values: Vec<String> = (0..2_000).map(value).collect();
        format!("{{\"enum\": [{}]}}", values.join(","))
    };
    let branches = |value: &dyn Fn(usize) -> String| {
        let branches: Vec<String> = (0..1_000).map(value).collect();
        format!("{{\"anyOf\": [{}]}}", branches.join(","))
    };
    let cases = [
        (
            enumeration(&|n| format!("{{\"id\":{n}}}")),
            r#"{"id":1999}"#,
            r#"{"id":2000}"#,
        ),
        (
            enumeration(&|n| format!("{{\"id\":{n},\"name\":\"w{}\"}}", n % 7)),
            r#"{"id":15,"name":"w1"}"#,
            r#"{"id":15,"name":"w2"}"#,
        ),
        (
            enumeration(&|n| format!("[{n}.5,{}]", n / 2)),
            "[7.50,3]",
            "[7.5,4]",
        ),
        (
            branches(&|n| {
                format!(
                    "{{\"properties\":{{\"code\":{{\"const\":{n}}},\"text\":{{\"maxLength\":{}}}}},\"required\":[\"code\",\"text\"]}}",
                    n % 4
                )
            }),
            r#"{"code":7.0,"text":"abc"}"#,
            r#"{"code":8,"text":"a"}"#,
        ),
    ];
    for (source, right, wrong) in cases {
        let grammar = schema(&source).unwrap();
        assert!(accepts(&grammar, right, 2_000_000), "{right}");
        assert!(!accepts(&grammar, wrong, 2_000_000), "{wrong}");
    }
}
