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

/// Schemas with a literal as a pattern.
fn patterns(length: usize) -> Vec<(&'static str, String)> {
    let text = text(length);
    vec![
        (
            "pattern",
            format!(r#"{{"type":"string","pattern":"^{text}$"}}"#),
        ),
        (
            "pattern with a length",
            format!(r#"{{"type":"string","pattern":"^{text}$","maxLength":99999}}"#),
        ),
        (
            "pattern of a name",
            format!(
                r#"{{"type":"object","patternProperties":{{"^{text}$":true}},"minProperties":1,
                    "additionalProperties":false}}"#
            ),
        ),
    ]
}

/// A schema with a least length: of these the grammar is the limit from some thousand characters on.
fn lengths(length: usize) -> Vec<(&'static str, String)> {
    vec![(
        "name by its length",
        format!(
            r#"{{"type":"object","propertyNames":{{"minLength":{}}},"minProperties":1}}"#,
            length / 4
        ),
    )]
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
    let all = |length| [schemas(length), patterns(length), lengths(length)].concat();
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

/// Which of two long items is left is found by writing them out, and that is paid for.
#[test]
fn distinct_literals_cost_steps_by_their_length() {
    let of_length = |length| schemas(length).remove(5);
    for length in [2_000, 8_000] {
        let (name, schema) = of_length(length);
        let [admission, _] = steps(&schema, name);
        assert!(admission > 2 * length as u64, "{length}: {admission} steps");
    }
}

/// In fewer steps than the default limit gives to one question.
#[test]
fn sixteen_thousand_characters_are_admitted() {
    for (name, schema) in [schemas(16_000), patterns(16_000)].concat() {
        let mut matcher = compile(&schema);
        matcher.set_allowance(Some(1_000_000));
        let needed = admit(&matcher, name);
        assert!(needed > 16_000 / 5, "{name}: {needed} tokens");
    }
}

/// Whether a pattern of the whole text accepts one.
fn matches(pattern: &str, text: &str) -> bool {
    let compiler = GrammarCompiler::new(info(), CompilerOptions::default());
    let grammar = compiler
        .compile_regex(pattern)
        .unwrap_or_else(|error| panic!("{}: {error}", &pattern[..20]));
    let mut matcher = GrammarMatcher::new(&grammar);
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    matcher.accept_tokens(&tokens).unwrap() && matcher.is_completed()
}

/// What stands between assertions may be as long as without them.
#[test]
fn assertions_beside_sixteen_thousand_characters_are_decided() {
    let text = text(16_000);
    assert!(matches(&format!("^{text}$"), &text));
    assert!(!matches(&format!("^{text}$"), &text[1..]));
    let words = format!(r"^(?:{text}\B|x)-\b{text}$");
    assert!(matches(&words, &format!("{text}-{text}")));
    assert!(!matches(&words, &format!("x{text}")));
    let ahead = format!("(?=.*z){text}[xyz]");
    assert!(matches(&ahead, &format!("{text}z")));
    assert!(!matches(&ahead, &format!("{text}y")));
}

/// Alternatives that are each between `^` and `$` are as good as one group between them.
#[test]
fn thousands_of_alternatives_between_assertions_are_one() {
    let each: Vec<String> = (0..3_000).map(|n| format!("^name{n}$")).collect();
    let pattern = each.join("|");
    for n in [0, 77, 2_999] {
        assert!(matches(&pattern, &format!("name{n}")));
    }
    for text in ["name", "name3000", "name77x", "xname77"] {
        assert!(!matches(&pattern, text), "{text}");
    }
}

/// What can't be told apart in time is refused with its own reason.
#[test]
fn too_many_cases_of_assertions_are_refused() {
    let compiler = GrammarCompiler::new(info(), CompilerOptions::default());
    let pattern = r"(?:\bx|\by(?=z))".repeat(20);
    let error = compiler.compile_regex(&pattern).unwrap_err().to_string();
    assert!(error.contains("more than 4096 parts"), "{error}");
}
