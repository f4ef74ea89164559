//! Long literals: what is asked of them costs a few steps a byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use structured_output::{
    CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions, TokenizerInfo,
};

const STOP: u32 = 260;

/// Bytes, and some words of [`text`].
fn info() -> Arc<TokenizerInfo> {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let words = ["the ", "quick", " brown", "{\""];
    vocab.extend(words.iter().map(|word| word.as_bytes().to_vec()));
    vocab.push(Vec::new());
    Arc::new(TokenizerInfo::new(&vocab, vocab.len(), &[STOP], &[]).unwrap())
}

fn text(length: usize) -> String {
    "the quick brown fox "
        .chars()
        .cycle()
        .take(length)
        .collect()
}

/// Schemas with a literal of some length in them.
fn schemas(length: usize) -> Vec<(&'static str, String)> {
    let text = text(length);
    vec![
        ("const", format!(r#"{{"const":"{text}"}}"#)),
        (
            "const of a property",
            format!(
                r#"{{"type":"object","properties":{{"a":{{"const":"{text}"}}}},"required":["a"]}}"#
            ),
        ),
        (
            "required name",
            format!(
                r#"{{"type":"object","properties":{{"{text}":{{"type":"integer"}}}},
                    "required":["{text}"]}}"#
            ),
        ),
        ("enum", format!(r#"{{"enum":["{text}a","{text}bc"]}}"#)),
        (
            "names",
            format!(
                r#"{{"type":"object","additionalProperties":false,"minProperties":2,"properties":
                    {{"{text}a":{{"type":"integer"}},"{text}bc":{{"type":"null"}}}}}}"#
            ),
        ),
        (
            "distinct items",
            format!(
                r#"{{"type":"array","minItems":2,"uniqueItems":true,
                    "items":{{"enum":["{text}a","{text}bc"]}}}}"#
            ),
        ),
    ]
}

/// Schemas with a literal as a pattern, and with a least length: of these the grammar is the limit
/// from some thousand characters on.
fn patterns(length: usize) -> Vec<(&'static str, String)> {
    let text = text(length);
    vec![
        (
            "pattern",
            format!(r#"{{"type":"string","pattern":"^{text}$"}}"#),
        ),
        (
            "pattern with a length",
            format!(r#"{{"type":"string","pattern":"^{text}$","maxLength":9999}}"#),
        ),
        (
            "name by its length",
            format!(
                r#"{{"type":"object","propertyNames":{{"minLength":{}}},"minProperties":1}}"#,
                length / 4
            ),
        ),
    ]
}

fn compile(schema: &str) -> GrammarMatcher {
    let compiler = GrammarCompiler::new(info(), CompilerOptions::default());
    let options = JsonSchemaOptions::default();
    let grammar = compiler.compile_json_schema(schema, &options).unwrap();
    GrammarMatcher::new(&grammar)
}

/// Asks what an engine asks at admission.
fn admit(matcher: &GrammarMatcher, name: &str) -> u32 {
    assert!(matcher.check_opening().is_ok(), "{name}");
    assert!(matcher.min_tokens_bound().is_ok(), "{name}");
    assert!(matcher.min_bytes_to_complete().is_ok(), "{name}");
    assert!(matcher.find_jump_forward_string().is_ok(), "{name}");
    assert!(matcher.next_token_mask().is_ok(), "{name}");
    let needed = matcher.min_tokens_to_complete();
    needed.unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn some_token(matcher: &GrammarMatcher, num_tokens: u32) -> u32 {
    let mask = matcher.next_token_mask_completing(num_tokens).unwrap();
    let mut row = [0; (STOP as usize).div_ceil(32)];
    mask.write_to(&mut row);
    let allows = |id: &u32| row[*id as usize / 32] >> (id % 32) & 1 == 1;
    (0..=STOP).rev().find(allows).unwrap()
}

/// Steps of the admission, and of the shortest text with what is asked at each token.
fn steps(schema: &str, name: &str) -> [u64; 2] {
    const STEPS: u64 = 1 << 40;
    let mut matcher = compile(schema);
    matcher.set_allowance(Some(STEPS));
    let mut needed = admit(&matcher, name);
    let admission = STEPS - matcher.allowance().unwrap();
    while needed > 0 {
        matcher.next_token_mask().unwrap();
        matcher.min_bytes_to_complete().unwrap();
        matcher.has_forced_byte().unwrap();
        let token = some_token(&matcher, needed);
        assert!(matcher.accept_token(token).unwrap(), "{name}");
        let left = matcher.min_tokens_to_complete().unwrap();
        assert!(left < needed, "{name}: {left} tokens after {needed}");
        needed = left;
    }
    [admission, STEPS - matcher.allowance().unwrap() - admission]
}

#[test]
fn a_literal_of_twice_the_length_costs_twice_the_steps() {
    let all = |length| [schemas(length), patterns(length)].concat();
    for ((name, short), (_, long)) in all(2_000).into_iter().zip(all(4_000)) {
        let (short, long) = (steps(&short, name), steps(&long, name));
        for (of_short, of_long) in short.into_iter().zip(long) {
            assert!(
                of_long * 2 < of_short * 5 + 1_000,
                "{name}: {short:?} steps, {long:?}"
            );
            assert!(of_long < 4_000 * 200, "{name}: {long:?} steps");
        }
    }
}

/// In fewer steps than the default limit gives to one question.
#[test]
fn sixteen_thousand_characters_are_admitted() {
    for (name, schema) in schemas(16_000) {
        let mut matcher = compile(&schema);
        matcher.set_allowance(Some(1_000_000));
        let needed = admit(&matcher, name);
        assert!(needed > 16_000 / 5, "{name}: {needed} tokens");
    }
}
