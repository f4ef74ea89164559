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
