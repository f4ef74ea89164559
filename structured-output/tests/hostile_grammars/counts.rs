//! Counts within counts: a byte costs the same wherever it is.

use structured_output::{CompiledGrammar, GrammarMatcher, JsonSchemaOptions};

use super::compiler;

/// Steps of the masks before, and of accepting, each of some bytes; `None` where one is refused.
fn steps(grammar: &CompiledGrammar, text: &[u8]) -> Option<Vec<u64>> {
    const MANY: u64 = 1 << 40;
    let mut matcher = GrammarMatcher::new(grammar);
    let mut all = Vec::with_capacity(text.len());
    for &byte in text {
        matcher.set_allowance(Some(MANY));
        matcher.next_token_mask().unwrap();
        let is_accepted = matcher.accept_token(u32::from(byte)).unwrap();
        all.push(MANY - matcher.allowance()?);
        if !is_accepted {
            return None;
        }
    }
    Some(all)
}

#[test]
fn of_patterns() {
    for (pattern, unit) in [
        ("((a{1,50}){1,50}){1,50}", "a"),
        ("((a{1,50},?){1,50};?){1,50}", "a"),
        ("((a{1,50},?){1,50};?){1,50}", "aa,"),
        ("(((a{1,50},?){1,50};?){1,50}!?){1,50}", "a"),
        ("((a{1,50}b?){1,50}c?){1,50}", "aab"),
        (r"((\w{1,50},?){1,50};?){1,50}", "ab,"),
        ("((a|bb){1,50}(,|a)?){1,50}", "a"),
        ("((a{0,50}b{0,50}){0,50}c?){0,50}", "ab"),
        ("((a?){50}){50}", "a"),
        ("(((a?b?){50}c?){50}d?){50}", "ab"),
    ] {
        let grammar = compiler().compile_regex(pattern).unwrap();
        let text = unit.repeat(2_000 / unit.len());
        let Some(steps) = steps(&grammar, text.as_bytes()) else {
            panic!("{pattern} refuses its text");
        };
        let sums: Vec<u64> = steps.chunks(400).map(|chunk| chunk.iter().sum()).collect();
        let most = steps.iter().max().unwrap();
        println!("{pattern} {unit}: {sums:?}, at most {most}");
        assert!(*most < 2_000, "{pattern}: {most} steps for a byte");
        assert!(sums[4] < 2 * sums[1].max(400), "{pattern}: {sums:?}");
    }
}

/// Words that may be shared out among repetitions in many ways, since no sign tells them apart.
#[test]
fn of_words() {
    for (grammar, unit) in [
        (
            "start: (a b c)~0..100000\na: /[a-z]+/\nb: /[a-z]+/\nc: /[a-z]+/\n%ignore \" \"",
            "abc",
        ),
        (
            "start: (a b c)~50000..100000\na: /[a-z]+/\nb: /[a-z ]+/\nc: /[a-z]+/\n%ignore \" \"",
            "abc",
        ),
        (
            "root ::= (a b c){0,100000}\na ::= \"a\"{0,1000}\nb ::= \"b\"{0,1000}\nc ::= \"c\"{0,1000}",
            "b",
        ),
        (
            "root ::= (a b c){0,100000}\na ::= \"a\"{1,1000}\nb ::= \"a\"{1,1000}\nc ::= \"a\"{1,1000}",
            "a",
        ),
    ] {
        let grammar = compiler().compile_grammar(grammar).unwrap();
        let text = unit.repeat(6_000 / unit.len());
        let steps = steps(&grammar, text.as_bytes()).unwrap();
        let sums: Vec<u64> = steps
            .chunks(1_200)
            .map(|chunk| chunk.iter().sum())
            .collect();
        println!("{unit}: {sums:?}");
        assert!(sums.iter().sum::<u64>() < 4_000_000, "{unit}: {sums:?}");
        assert!(sums[4] < 2 * sums[1].max(1_000), "{unit}: {sums:?}");
    }
}

/// Letters between and around counts are counted as the text has them, also where alternatives become one.
#[test]
fn of_words_mean_what_they_say() {
    let grammar = "start: T~40..50 \"!\"\nT: /[ab]{1,2}/ / ?/ /[bc]{0,3}/";
    let grammar = compiler().compile_grammar(grammar).unwrap();
    let accepts = |text: &str| {
        let mut matcher = GrammarMatcher::new(&grammar);
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        matcher.accept_tokens(&tokens).unwrap() && matcher.is_completed()
    };
    for (unit, least, most) in [
        ("a", 40, 100),
        ("b", 40, 250),
        ("a c", 40, 50),
        ("bb", 20, 125),
    ] {
        for (times, expected) in [
            (least - 1, false),
            (least, true),
            (most, true),
            (most + 1, false),
        ] {
            let text = format!("{}!", unit.repeat(times));
            assert_eq!(accepts(&text), expected, "{unit} {times} times");
        }
    }
}

/// Counts within counts that text without a sign may be shared out among, with something between that has to come.
#[test]
fn of_nested_rules() {
    for (grammar, unit, len) in [
        (
            "root ::= ((t \",\" | t){0,30} t \";\"?){1,30}\nt ::= ([a-z] [a-z0-9]?){1,7}",
            "a",
            150,
        ),
        (
            "root ::= ((t [ab]){0,21} t){1,21}\nt ::= ([abc] [ab]?){0,7}",
            "a",
            150,
        ),
        (
            "start: ((T T /[ab]/)~0..21 T)~1..21\nT: /([abc][ab]?){0,7}/",
            "a",
            100,
        ),
        (
            "start: ((T /[ab]/)~0..21 T \"ab\"?)~1..21\nT: /([abc][ab]?){0,7}/",
            "a",
            150,
        ),
        (
            r"start: /((([a-z]{2,50},?){2,50};?){2,50}\.?){2,50}/",
            "abccc",
            1_500,
        ),
    ] {
        let grammar = compiler().compile_grammar(grammar).unwrap();
        let text = unit.repeat(len / unit.len());
        let Some(steps) = steps(&grammar, text.as_bytes()) else {
            panic!("{unit} is refused");
        };
        let sums: Vec<u64> = steps
            .chunks(len / 5)
            .map(|chunk| chunk.iter().sum())
            .collect();
        println!("{unit}: {sums:?}, at most {}", steps.iter().max().unwrap());
        assert!(*steps.iter().max().unwrap() < 1_000_000, "{sums:?}");
    }
}

#[test]
fn of_items() {
    let mut schema = r#"{"type":"integer"}"#.to_owned();
    for _ in 0..3 {
        schema = format!(r#"{{"type":"array","minItems":1,"maxItems":50,"items":{schema}}}"#);
    }
    let grammar = compiler()
        .compile_json_schema(&schema, &JsonSchemaOptions::default())
        .unwrap();
    let row = format!("[{}]", vec!["1"; 40].join(","));
    let rows = format!("[{}]", vec![row; 40].join(","));
    let text = format!("[{}]", vec![rows; 3].join(","));
    let steps = steps(&grammar, text.as_bytes()).unwrap();
    let sums: Vec<u64> = steps.chunks(1000).map(|chunk| chunk.iter().sum()).collect();
    println!("items: {sums:?}");
}
