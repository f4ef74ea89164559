//! Masks where what may follow depends on a text: on the keys that an object has, on the items of
//! an array of distinct ones. Against acceptance byte by byte, which keeps those texts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use structured_output::{
    CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions, MaskRef,
    PropertyOrder, TokenizerInfo, Whitespace,
};

/// Tokens that end a key or an item and go on: close, begin the next one, or more.
const PIECES: &[&str] = &[
    "{\"",
    "[\"",
    "\":",
    "\":1,",
    "\":1,\"",
    "\":1,\"a",
    "\":1,\"a\":1",
    "\":1,\"a\":1,\"b\":1,\"",
    "\":1}",
    "\":1},{\"",
    "\":{\"",
    "\":[],\"b",
    "\":\"",
    "\",\"",
    "\",\"a",
    "\",\"a\"",
    "\",\"a\",\"b\"",
    "\",\"ab\"]",
    "\"]",
    "\"],\"",
    "\"],[\"",
    "\", \"",
    "\" ,",
    "a\"",
    "a\",",
    "b\",\"b",
    "ab",
    "ab\":",
    "1,1",
    "1,2",
    "1,",
    "1],",
    "1],[1",
    "e1001,1",
    "1E-1001],[",
    "e99999999999",
    "0,",
    ",1",
    ",[",
    ",\"",
    ", \"a",
    "},{",
    "}]",
    "]]",
    "],[",
    "],",
    "null,",
    ",{\"a\":",
    "2}",
    "\\n",
    "\n",
    // As long as a text of which something is left out, see `unread_text`.
    "abababababababababababababababababababab",
    "\":1,\"abababababababababababababababababababab",
    "\",\"abababababababababababababababababababab",
    "\",\"abababababababababababababababababababab\"",
];
const EOS: u32 = 256 + PIECES.len() as u32;

/// Byte tokens 0 to 255, then the pieces, then the stop token.
static COMPILER: LazyLock<GrammarCompiler> = LazyLock::new(|| {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.extend(PIECES.iter().map(|piece| piece.as_bytes().to_vec()));
    vocab.push(Vec::new());
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
});

const SCHEMAS: &[&str] = &[
    r#"{"type":"array","items":{"type":["string","array"]}}"#,
    r#"{"type":"object","additionalProperties":{"type":"string"}}"#,
    r#"{"uniqueItems":true,"type":"array"}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"type":"string"}}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"enum":["a","b","ab","abc"]}}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"enum":["a","b","ab","abc"]},"minItems":3}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"type":"string"},"minItems":2,"maxItems":3}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"type":"string","pattern":"^a?b{0,2}$"}}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"enum":[0,1,2,12]}}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"type":"number"}}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"type":["string","null","boolean"]},"contains":{"const":"ab"}}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"type":"array","items":{"enum":["a",1]},"uniqueItems":true}}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"type":"object","additionalProperties":{"type":"integer"}}}"#,
    r#"{"uniqueItems":true,"type":"array","prefixItems":[{"type":"string"},{"const":"a"}],"items":{"type":"integer"}}"#,
    r#"{"type":"array","not":{"uniqueItems":true},"items":{"type":["string","integer"]}}"#,
    r#"{"type":"array","items":{"type":"array","uniqueItems":true,"items":{"enum":["a","b"]}}}"#,
    r#"{"anyOf":[{"uniqueItems":true},{"maxItems":2}],"type":"array","items":{"enum":["a","b",1]}}"#,
    r#"{"type":"object","additionalProperties":{"type":"integer"}}"#,
    r#"{"type":"object","properties":{"a":{"const":1},"ab":{"type":"array"}}}"#,
    r#"{"type":"object","properties":{"a":{"const":1}},"required":["a"],"additionalProperties":{"const":1}}"#,
    r#"{"type":"object","minProperties":2,"maxProperties":3,"additionalProperties":{"const":1}}"#,
    r#"{"type":"object","minProperties":3,"propertyNames":{"enum":["a","b","ab","abababababababababababababababababababab"]}}"#,
    r#"{"type":"object","minProperties":2,"patternProperties":{"^(ab){20,21}$":{"const":1}},"additionalProperties":false}"#,
    r#"{"type":"object","minProperties":3,"patternProperties":{"^(ab){20}":{"type":"object"}},"additionalProperties":{"const":1}}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"type":"string","pattern":"^(ab){20,21}$"},"minItems":2}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"type":["object","string"],"additionalProperties":{"type":"integer"}},"minItems":3}"#,
    r#"{"uniqueItems":true,"type":"array","items":{"type":"array","items":{"type":"string"},"uniqueItems":true,"minItems":2}}"#,
    r#"{"type":"object","propertyNames":{"pattern":"^[ab]$"},"additionalProperties":{"const":1}}"#,
    r#"{"type":"object","propertyNames":{"enum":["a","b","c"]},"minProperties":2}"#,
    r#"{"type":"object","patternProperties":{"^a":{"const":1},"b$":{"type":["integer","string"]}},"additionalProperties":false}"#,
    r#"{"type":"object","patternProperties":{"^.$":{"const":1}},"minProperties":1,"additionalProperties":{"type":"object"}}"#,
    r#"{"type":"object","anyOf":[{"required":["a"]},{"additionalProperties":{"const":1}}]}"#,
    r#"{"type":"object","oneOf":[{"additionalProperties":{"const":1}},{"additionalProperties":{"type":"array"}}]}"#,
    r#"{"type":"object","not":{"additionalProperties":{"const":1}}}"#,
];

fn grammar(schema: &str, order: PropertyOrder, whitespace: Whitespace) -> CompiledGrammar {
    let options = JsonSchemaOptions {
        whitespace,
        property_order: order,
        ..Default::default()
    };
    COMPILER.compile_json_schema(schema, &options).unwrap()
}

/// The mask after a text, which is compared with what is accepted byte by byte.
fn compared(matcher: &GrammarMatcher, text: &[u8]) -> Result<MaskRef, TestCaseError> {
    let info = COMPILER.tokenizer_info();
    let mask = matcher.next_token_mask().unwrap();
    for token in 0..EOS {
        let bytes = info.token_bytes(token);
        let mut slow = matcher.fork();
        let by_bytes = bytes
            .iter()
            .all(|&byte| slow.accept_token(u32::from(byte)).unwrap());
        prop_assert_eq!(
            mask.is_allowed(token),
            by_bytes,
            "{:?} after {}",
            String::from_utf8_lossy(bytes),
            String::from_utf8_lossy(text)
        );
    }
    prop_assert_eq!(mask.is_allowed(EOS), matcher.is_completed());
    Ok(mask)
}

/// The bound on the tokens that complete a text: it is that of the texts after the tokens that
/// [`GrammarMatcher::next_token_mask_within`] allows, and of no others.
fn bounded(matcher: &GrammarMatcher, text: &[u8]) -> Result<(), TestCaseError> {
    let bound = matcher.min_tokens_to_complete().unwrap();
    // With less than all steps no token is left out.
    let mut whole = matcher.fork();
    whole.set_allowance(Some(1_999_999));
    let within = whole.next_token_mask_within(bound).unwrap();
    let mask = matcher.next_token_mask().unwrap();
    for token in mask.token_ids() {
        let mut after = matcher.fork();
        prop_assert!(after.accept_token(token).unwrap());
        prop_assert_eq!(
            within.is_allowed(token),
            after.min_tokens_to_complete().unwrap() < bound,
            "{:?} after {}",
            String::from_utf8_lossy(bytes_of(token)),
            String::from_utf8_lossy(text)
        );
    }
    let completing = matcher.next_token_mask_completing(bound).unwrap();
    prop_assert!(completing.num_allowed() > 0);
    let ids = completing.token_ids();
    prop_assert!(ids.iter().all(|&token| within.is_allowed(token)));
    Ok(())
}

fn bytes_of(token: u32) -> &'static [u8] {
    COMPILER.tokenizer_info().token_bytes(token)
}

/// Walks by the mask, and compares it at each place.
fn check(grammar: &CompiledGrammar, choices: &[usize]) -> Result<(), TestCaseError> {
    let mut matcher = GrammarMatcher::new(grammar);
    let mut text = Vec::new();
    for &choice in choices {
        let mask = compared(&matcher, &text)?;
        let ids = mask.token_ids();
        // Pieces are likelier than bytes, so that texts get somewhere.
        let pieces: Vec<u32> = ids
            .iter()
            .copied()
            .filter(|id| (256..EOS).contains(id))
            .collect();
        let from = match choice % 4 == 0 || pieces.is_empty() {
            true => ids,
            false => pieces,
        };
        let token = from[(choice / 4) % from.len()];
        if token == EOS {
            break;
        }
        prop_assert!(matcher.accept_token(token).unwrap());
        text.extend_from_slice(bytes_of(token));
    }
    match matcher.is_terminated() {
        true => Ok(()),
        false => bounded(&matcher, &text),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn masks_after_keys_and_items(
        which in 0..SCHEMAS.len(),
        order in prop::sample::select(vec![PropertyOrder::Any, PropertyOrder::Schema]),
        whitespace in prop::sample::select(vec![Whitespace::Usual, Whitespace::Flexible, Whitespace::Compact]),
        choices in prop::collection::vec(any::<usize>(), 1..16),
    ) {
        check(&grammar(SCHEMAS[which], order, whitespace), &choices)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Tokens lead where their bytes lead in a compiler that has met nothing else: what is known of a
    /// lexeme in one place is not taken for another where more depends on its text.
    #[test]
    fn tokens_lead_where_their_bytes_do(
        which in 0..SCHEMAS.len(),
        order in prop::sample::select(vec![PropertyOrder::Any, PropertyOrder::Schema]),
        whitespace in prop::sample::select(vec![Whitespace::Usual, Whitespace::Flexible, Whitespace::Compact]),
        choices in prop::collection::vec(any::<usize>(), 1..16),
    ) {
        let shared = grammar(SCHEMAS[which], order, whitespace);
        let mut matcher = GrammarMatcher::new(&shared);
        let mut tokens = Vec::new();
        for choice in choices {
            // Without its mask a place is known by less.
            let mask = match choice % 3 {
                0 => matcher.fork().next_token_mask().unwrap(),
                _ => matcher.next_token_mask().unwrap(),
            };
            let ids = mask.token_ids();
            let token = ids[(choice / 3) % ids.len()];
            if token == EOS {
                break;
            }
            tokens.push(token);
            prop_assert!(matcher.accept_token(token).unwrap());
        }
        let options = JsonSchemaOptions { whitespace, property_order: order, ..Default::default() };
        let info = Arc::clone(COMPILER.tokenizer_info());
        let fresh = GrammarCompiler::new(info, CompilerOptions::default());
        let fresh = fresh.compile_json_schema(SCHEMAS[which], &options).unwrap();
        let mut by_bytes = GrammarMatcher::new(&fresh);
        let mut unasked = GrammarMatcher::new(&shared);
        let mut text = Vec::new();
        for &token in &tokens {
            text.extend_from_slice(bytes_of(token));
            prop_assert!(unasked.accept_token(token).unwrap());
            for &byte in bytes_of(token) {
                prop_assert!(by_bytes.accept_token(u32::from(byte)).unwrap());
            }
            prop_assert_eq!(unasked.is_completed(), by_bytes.is_completed());
        }
        for other in [&matcher, &unasked] {
            let text = String::from_utf8_lossy(&text);
            prop_assert_eq!(
                other.next_token_mask().unwrap(),
                by_bytes.next_token_mask().unwrap(),
                "after {}",
                text
            );
            prop_assert_eq!(other.is_completed(), by_bytes.is_completed());
            let (bytes, tokens) = (other.min_bytes_to_complete(), other.min_tokens_to_complete());
            prop_assert_eq!(bytes, by_bytes.min_bytes_to_complete());
            prop_assert_eq!(tokens, by_bytes.min_tokens_to_complete());
        }
    }
}

/// A number that takes more digits than are written out is one value like others: what may not follow
/// it are its own digits, and no other number.
#[test]
fn numbers_of_any_exponent_are_told_apart() -> Result<(), TestCaseError> {
    let numbers = r#"{"uniqueItems":true,"type":"array","items":{"type":"number"}}"#;
    let lists = r#"{"uniqueItems":true,"type":"array","items":{"type":"array"}}"#;
    let large = format!("-12{}", "0".repeat(1400));
    let small = format!("0.{}12", "0".repeat(1400));
    let long = "7".repeat(1200);
    let cases = [
        (numbers, "[-1.2e1401", large.as_str(), false),
        (numbers, "[-1.2e1401", &large[..1402], true),
        (numbers, "[-1.2e1401", &large[1..], true),
        (numbers, "[12E-1402", &small, false),
        (numbers, "[12E-1402", "-0.5", true),
        (numbers, "[12E-1403", &small, true),
        (numbers, &format!("[{long}"), &long, false),
        (numbers, &format!("[{long}"), &long[1..], true),
        (numbers, "[1e99999999999", "1", true),
        (
            lists,
            "[[1e1001]",
            &format!("[1{}]", "0".repeat(1001)),
            false,
        ),
        (lists, "[[1e1001]", "[1e1001]", false),
        (lists, "[[1e1001]", "[1]", true),
        (lists, "[[1e1001]", "[]", true),
        (lists, "[[1e99999999999]", "[1e99999999999]", false),
    ];
    for (schema, first, second, is_allowed) in cases {
        // The states of so many digits are not to be kept beside those of other tests.
        let info = Arc::clone(COMPILER.tokenizer_info());
        let compiler = GrammarCompiler::new(info, CompilerOptions::default());
        let options = JsonSchemaOptions {
            whitespace: Whitespace::Compact,
            ..Default::default()
        };
        let grammar = compiler.compile_json_schema(schema, &options).unwrap();
        let mut matcher = GrammarMatcher::new(&grammar);
        for byte in first.bytes() {
            prop_assert!(matcher.accept_token(u32::from(byte)).unwrap());
        }
        compared(&matcher, first.as_bytes())?;
        let rest = format!(",{second}]");
        let accepted = rest
            .bytes()
            .all(|byte| matcher.accept_token(u32::from(byte)).unwrap());
        prop_assert_eq!(accepted, is_allowed, "{:.20} {:.20}", first, rest);
    }
    Ok(())
}

/// A bound on the length beside a pattern, from far away to the last character. The longest token
/// has 19 bytes: some lengths are out of its reach and some are not.
#[test]
fn a_length_beside_a_pattern() -> Result<(), TestCaseError> {
    let patterns = [
        "^(a+b)*ab{3}$",
        "^(?:\\\\S+\\\\s+){0,9}\\\\S+$",
        "^(ab|é){2,}(aé)?$",
    ];
    for (pattern, text) in patterns.iter().zip(["ab", "ab a", "abé"]) {
        for (min, max) in [(0, 40), (3, 33)] {
            let schema = format!(
                r#"{{"type":"string","pattern":"{pattern}","minLength":{min},"maxLength":{max}}}"#
            );
            let grammar = grammar(&schema, PropertyOrder::Any, Whitespace::Compact);
            let mut matcher = GrammarMatcher::new(&grammar);
            let mut so_far = Vec::new();
            for byte in "\"".bytes().chain(text.bytes().cycle()).take(60) {
                compared(&matcher, &so_far)?;
                if !matcher.accept_token(u32::from(byte)).unwrap() {
                    break;
                }
                so_far.push(byte);
            }
            assert!(so_far.len() > 20, "{schema}");
        }
    }
    Ok(())
}

/// A pattern that ends with any characters, or with so many, is no length.
#[test]
fn a_pattern_with_a_loose_end_beside_a_length() -> Result<(), TestCaseError> {
    for (pattern, max, text) in [
        ("\\\\d", 3, "\"ab"),
        ("a", 2, "\"b"),
        ("^b.{0,500}$", 60, "\"ba"),
        ("^b.{0,60}$", 500, "\"ba"),
    ] {
        let schema = format!(r#"{{"type":"string","pattern":"{pattern}","maxLength":{max}}}"#);
        let grammar = grammar(&schema, PropertyOrder::Any, Whitespace::Compact);
        let mut matcher = GrammarMatcher::new(&grammar);
        let mut so_far = Vec::new();
        for byte in text.bytes() {
            compared(&matcher, &so_far)?;
            assert!(matcher.accept_token(u32::from(byte)).unwrap(), "{schema}");
            so_far.push(byte);
        }
        compared(&matcher, &so_far)?;
    }
    Ok(())
}

/// Schema, text so far, tokens that are allowed, tokens that aren't.
type Case = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// What each rule for unknown texts says, and where it says nothing.
#[test]
fn tokens_across_the_end_of_a_key_or_an_item() {
    let cases: &[Case] = &[
        (
            r#"{"uniqueItems":true,"type":"array","items":{"type":"object","additionalProperties":{"type":"integer"}}}"#,
            "[{\"abababababababababababababababababababab\":1,\"a",
            &["\":1,\"", "\":1}"],
            &["\":1,\"a\":1"],
        ),
        (
            r#"{"uniqueItems":true,"type":"array","items":{"type":"string"}}"#,
            "[\"a",
            &["\",\"", "\"]", "\",\"a", "b\",\"b", "\",\"ab\"]"],
            &["\",\"a\"", "\"],\""],
        ),
        (
            r#"{"uniqueItems":true,"type":"array","items":{"enum":["a","b"]}}"#,
            "[\"b\",\"",
            &["a\""],
            &["a\",", "\"]", "\",\""],
        ),
        (
            r#"{"uniqueItems":true,"type":"array","items":{"type":"number"}}"#,
            "[0.0",
            &["1,1", "1,2", "1,"],
            &["1],", "\n"],
        ),
        (
            r#"{"type":"array","not":{"uniqueItems":true},"maxItems":2,"items":{"type":"string"}}"#,
            "[\"a",
            &["\",\"a", "\",\"a\""],
            &["\"]", "b\",\"b", "\",\"ab\"]"],
        ),
        (
            r#"{"type":"object","additionalProperties":{"const":1}}"#,
            "{\"a",
            &["\":1,\"a", "\":1,\"", "\":1}"],
            &["\":1,\"a\":1", "\":{\""],
        ),
        (
            r#"{"type":"object","propertyNames":{"enum":["a","b"]}}"#,
            "{\"a\":1,\"b",
            &["\":1}"],
            &["\":1,", "\":1,\""],
        ),
    ];
    for (schema, text, allowed, refused) in cases {
        let grammar = grammar(schema, PropertyOrder::Any, Whitespace::Compact);
        let mut matcher = GrammarMatcher::new(&grammar);
        let bytes: Vec<u32> = text.bytes().map(u32::from).collect();
        assert!(matcher.accept_tokens(&bytes).unwrap(), "{schema}: {text}");
        let mask = matcher.next_token_mask().unwrap();
        for (pieces, expected) in [(allowed, true), (refused, false)] {
            for piece in *pieces {
                let at = PIECES.iter().position(|known| known == piece).unwrap();
                assert_eq!(
                    mask.is_allowed(256 + at as u32),
                    expected,
                    "{schema}: {piece} after {text}"
                );
            }
        }
    }
}
