//! Long keys and long items: what each further character costs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use structured_output::{
    CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher,
    JsonSchemaOptions, PropertyOrder, TokenizerInfo,
};

const STOP: u32 = 2_000;

/// Bytes, words, and tokens that end a key or an item and go on in all ways.
fn info() -> Arc<TokenizerInfo> {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let pieces = [
        "\":",
        "\":\"",
        "\":{\"",
        "\":[",
        "\":1,\"",
        "\":1,\"a",
        "\":1,\"a\":",
        "\":1}",
        "\":{},\"b\":1,\"",
        "\":\"\",\"",
        "\",\"",
        "\",\"a",
        "\",\"a\"",
        "\",\"a\",\"b\"",
        "\"]",
        "\"],\"",
        "\", \"",
        "a\",\"b",
        "a\":1,\"b",
        "\",1",
        "\",1,2",
        "\",{\"a",
        "\",null,",
    ];
    vocab.extend(pieces.iter().map(|piece| piece.as_bytes().to_vec()));
    let mut n = 0_usize;
    while vocab.len() < STOP as usize {
        let letters = (0..2 + n % 5).map(|at| b'a' + ((n * 7919) >> (4 * at)) as u8 % 26);
        vocab.push(letters.collect());
        n += 1;
    }
    vocab.push(Vec::new());
    Arc::new(TokenizerInfo::new(&vocab, vocab.len(), &[STOP], &[]).unwrap())
}

/// Steps of all calls, and bytes that were kept, for [`PART`] characters.
struct Costs {
    steps: u64,
    bytes: usize,
}

const PART: usize = 500;

/// Writes letters after a beginning, and asks what an engine asks at each token. Costs by parts.
fn costs(
    compile: impl Fn(&GrammarCompiler) -> Result<CompiledGrammar, CompileError>,
    beginning: &str,
    num_parts: usize,
) -> Vec<Costs> {
    const STEPS: u64 = 1 << 40;
    let options = CompilerOptions {
        cache_bytes: 1 << 30,
        ..CompilerOptions::default()
    };
    let compiler = GrammarCompiler::new(info(), options);
    let mut matcher = GrammarMatcher::new(&compile(&compiler).unwrap());
    for byte in beginning.bytes() {
        let is_allowed = matcher.accept_token(u32::from(byte)).unwrap();
        assert!(is_allowed, "{beginning}");
    }
    let mut seed = 1_u64;
    let mut found = Vec::new();
    for _ in 0..num_parts {
        let before = compiler.cache_bytes();
        matcher.set_allowance(Some(STEPS));
        let mut written = 0;
        while written < PART {
            matcher.next_token_mask().unwrap();
            matcher.min_bytes_to_complete().unwrap();
            matcher.min_tokens_to_complete().unwrap();
            matcher.has_forced_byte().unwrap();
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let words = u64::from(STOP) - 300;
            let token = 300 + ((seed >> 33) % words) as u32;
            assert!(matcher.accept_token(token).unwrap(), "{beginning}");
            written += compiler.tokenizer_info().token_bytes(token).len();
        }
        found.push(Costs {
            steps: STEPS - matcher.allowance().unwrap(),
            bytes: compiler.cache_bytes() - before,
        });
    }
    found
}

/// Schema, beginning.
const CASES: &[(&str, &str)] = &[
    (
        r#"{"type":"object","properties":{"a":{"type":"integer","minimum":3}},"required":["a"]}"#,
        "{\"a\":3,\"",
    ),
    (
        r#"{"type":"object","properties":{"a":{"type":"integer","minimum":3},"b":{"minLength":99}},
            "required":["a","b"],"patternProperties":{"c$":{"type":"string"}}}"#,
        "{\"a\":3,\"b\":0,\"",
    ),
    (
        r#"{"type":"object","additionalProperties":{"type":"integer"}}"#,
        "{\"a\":1,\"",
    ),
    (r#"{"type":"object","minProperties":4}"#, "{\"a\":1,\""),
    (
        r#"{"type":"object","minProperties":3,"additionalProperties":{"type":"string","minLength":9}}"#,
        "{\"",
    ),
    (
        r#"{"type":"object","patternProperties":{"^[a-z]{1,9999}$":{"type":"integer"}},
            "additionalProperties":false,"minProperties":3}"#,
        "{\"",
    ),
    (
        r#"{"type":"object","propertyNames":{"maxLength":9999},"minProperties":3}"#,
        "{\"",
    ),
    (
        r#"{"type":"object","unevaluatedProperties":{"type":"integer"},
            "anyOf":[{"properties":{"a":true}},{"minProperties":3}]}"#,
        "{\"",
    ),
    (r#"{"type":"array","uniqueItems":true}"#, "[1,\""),
    (
        r#"{"type":"array","uniqueItems":true,"items":{"type":"string"},"minItems":4}"#,
        "[\"",
    ),
    (
        r#"{"type":"array","uniqueItems":true,"items":{"type":"object"},"minItems":3}"#,
        "[{\"a\":\"",
    ),
    (
        r#"{"type":"array","uniqueItems":true,"items":{"type":"object"},"minItems":3}"#,
        "[{\"",
    ),
];

fn check(parts: &[Costs], name: &str) {
    let steps: Vec<u64> = parts.iter().map(|part| part.steps).collect();
    assert!(steps[5] < 2 * steps[1] + 1_000, "{name}: {steps:?} steps");
    let bytes: usize = parts.iter().map(|part| part.bytes).sum();
    assert!(bytes < 6 * PART * 10_000, "{name}: {bytes} bytes");
}

/// What a character of a long text costs doesn't grow with the text.
#[test]
fn a_character_of_a_long_text_costs_what_those_before_it_did() {
    for (schema, beginning) in CASES {
        for order in [PropertyOrder::Any, PropertyOrder::Schema] {
            let options = JsonSchemaOptions {
                property_order: order,
                ..JsonSchemaOptions::default()
            };
            let compile =
                |compiler: &GrammarCompiler| compiler.compile_json_schema(schema, &options);
            let parts = costs(compile, beginning, 6);
            check(&parts, schema);
        }
    }
}

/// So it is where the JSON is a part of a larger text, as in a tool call.
#[test]
fn a_character_of_a_long_key_in_a_tool_call_costs_what_those_before_it_did() {
    let schema = CASES[0].0;
    let tag = format!(
        r#"{{"format": {{"type": "tag", "begin": "<call>", "end": "</call>",
            "content": {{"type": "json_schema", "json_schema": {schema}}}}}}}"#
    );
    let compile = |compiler: &GrammarCompiler| compiler.compile_structural_tag(&tag);
    let parts = costs(compile, "<call>{\"a\":3,\"", 6);
    check(&parts, &tag);
}

/// Steps of the first mask after the beginning of an item that is to differ from those that must
/// follow it.
fn steps_of_comparing(length: usize) -> u64 {
    const STEPS: u64 = 1 << 40;
    let compiler = GrammarCompiler::new(info(), CompilerOptions::default());
    let schema = r#"{"type":"array","uniqueItems":true,"items":{"type":"string"},"minItems":4}"#;
    let grammar = compiler
        .compile_json_schema(schema, &JsonSchemaOptions::default())
        .unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    let text = b"[\""
        .iter()
        .chain(b"abcdefghij".iter().cycle().take(length));
    for &byte in text {
        assert!(matcher.accept_token(u32::from(byte)).unwrap());
    }
    matcher.set_allowance(Some(STEPS));
    matcher.next_token_mask().unwrap();
    STEPS - matcher.allowance().unwrap()
}

/// Reading a text to compare it with others is paid for, once.
#[test]
fn comparing_a_long_item_costs_steps_by_its_length() {
    let [short, long] = [2_000, 6_000].map(steps_of_comparing);
    let more = long - short;
    assert!((4_000..8_000).contains(&more), "{short} steps, {long}");
}
