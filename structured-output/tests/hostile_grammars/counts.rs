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
