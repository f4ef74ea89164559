//! What forced text is encoded to, and how often.

use std::path::PathBuf;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::lock::lock;

fn encode_after(tokenizer: &Arc<Tokenizer>, token_ids: &[u32], text: &str) -> Option<Vec<u32>> {
    let encoder = TextEncoder::new(Arc::clone(tokenizer));
    let encoded = encoder.encode_after(token_ids, text);
    let encoded = encoded.map(|(_, forced)| forced);
    assert_eq!(encoded, plainly(tokenizer, token_ids, text));
    encoded
}

fn builtin() -> Arc<Tokenizer> {
    Arc::new(Tokenizer::from_bytes(builtin_model::FILES).unwrap())
}

#[test]
fn forced_text_is_encoded_with_what_stands_before_it() {
    let tokenizer = builtin();
    let text = "<|im_start|>assistant\n{\"name\": \"Sam\"";
    let whole = tokenizer
        .encode(&format!("{text}, \"age\": "), false)
        .unwrap();
    let before = tokenizer.encode(text, false).unwrap();
    let after = encode_after(&tokenizer, &before, ", \"age\": ");
    match whole.starts_with(&before) {
        true => assert_eq!(after.as_deref(), whole.get(before.len()..)),
        false => assert_eq!(after, None),
    }
    // Nothing before it but control tokens.
    let start = tokenizer.encode("<|im_start|>", false).unwrap();
    assert_eq!(
        encode_after(&tokenizer, &start, "{\"name\""),
        Some(tokenizer.encode("{\"name\"", false).unwrap())
    );
}

#[test]
fn tokens_that_stand_are_never_changed() {
    let tokenizer = builtin();
    // Where the tokenizer would write one token, two stand: a further letter would merge.
    let one = tokenizer.encode("name", false).unwrap();
    assert_eq!(one.len(), 1);
    let letters: Vec<u32> = "nam"
        .chars()
        .flat_map(|letter| tokenizer.encode(&letter.to_string(), false).unwrap())
        .collect();
    assert_eq!(letters.len(), 3);
    assert_eq!(encode_after(&tokenizer, &letters, "e"), None);
}

#[test]
fn a_context_that_begins_within_a_word_is_left_out() {
    let tokenizer = builtin();
    // As no tokenizer writes it: `name` by letters, then a colon as it is after any word.
    let mut token_ids: Vec<u32> = "name"
        .chars()
        .flat_map(|letter| tokenizer.encode(&letter.to_string(), false).unwrap())
        .collect();
    let quote = tokenizer.encode("e\"", false).unwrap();
    assert_eq!(quote.len(), 2);
    token_ids.push(quote[1]);
    let rest = tokenizer.encode("\": [{", false).unwrap();
    let expected = match rest.starts_with(&quote[1..]) {
        true => Some(rest[1..].to_vec()),
        false => None,
    };
    assert_eq!(encode_after(&tokenizer, &token_ids, ": [{"), expected);
}

/// The same as [`TextEncoder::encode_after`], with all that stands before and nothing remembered.
fn plainly(tokenizer: &Tokenizer, token_ids: &[u32], text: &str) -> Option<Vec<u32>> {
    let first = token_ids.len().saturating_sub(MAX_CONTEXT_TOKENS);
    let recent = &token_ids[first..];
    let is_control = |id: &u32| tokenizer.is_special_token(*id);
    let start = recent.iter().rposition(is_control).map_or(0, |at| at + 1);
    let recent = &recent[start..];
    for skipped in 0..recent.len().max(1) {
        let context = &recent[skipped..];
        let bytes: Vec<u8> = context
            .iter()
            .flat_map(|&id| tokenizer.token_bytes(id))
            .copied()
            .collect();
        let Ok(before) = String::from_utf8(bytes) else {
            continue;
        };
        let together = tokenizer.encode(&(before.clone() + text), false).unwrap();
        if let Some(forced) = together.strip_prefix(context) {
            return Some(forced.to_vec());
        }
        if tokenizer.encode(&before, false).unwrap() == context {
            return None;
        }
    }
    None
}

/// The built-in tokenizer, and those that there is test data for.
fn tokenizers() -> Vec<Arc<Tokenizer>> {
    let shared = match std::env::var_os("FORMWORK_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
    };
    let published =
        ["gpt2", "llama3_1", "qwen2_5", "gemma2"].map(|name| shared.join("tokenizers").join(name));
    let published = published.iter().filter(|folder| folder.is_dir());
    let published = published.map(|folder| Arc::new(Tokenizer::from_files(folder).unwrap()));
    [builtin()].into_iter().chain(published).collect()
}

/// What stands before a text: any tokens, or those of a text.
#[derive(Debug, Clone)]
enum Before {
    Any(Vec<u32>),
    Written(String),
    /// The tokens of one text after those of another, as a model may write them.
    Apart(String, String),
}

#[test]
fn what_stands_before_a_word_end_changes_nothing() {
    const TEXT: &str = r#"([a-z0-9]{0,3}|[ '"’,.:;{}\[\]()<>|_/-]{0,3}|[éß中文\u{301}]|\n ){0,4}"#;
    let text = || TEXT.prop_map(|text: String| text);
    let before = prop_oneof![
        proptest::collection::vec(any::<u32>(), 0..8).prop_map(Before::Any),
        text().prop_map(Before::Written),
        (text(), text()).prop_map(|(first, second)| Before::Apart(first, second)),
    ];
    let after = prop_oneof![
        Just("\"".to_owned()),
        Just("\", \"name\": \"".to_owned()),
        Just(", \"age\": ".to_owned()),
        Just("}, {\"".to_owned()),
        "[a-z]{1,3}\"",
        text().prop_filter("some text", |text| !text.is_empty()),
    ];
    for tokenizer in tokenizers() {
        let encoder = TextEncoder::new(Arc::clone(&tokenizer));
        let vocab_size = tokenizer.vocab_size() as u32;
        TestRunner::new(ProptestConfig {
            cases: 3000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })
        .run(&(before.clone(), after.clone()), |(before, after)| {
            let encode = |text: &str| tokenizer.encode(text, false).unwrap();
            let before: Vec<u32> = match before {
                Before::Any(ids) => ids.into_iter().map(|id| id % vocab_size).collect(),
                Before::Written(text) => encode(&text),
                Before::Apart(first, second) => [encode(&first), encode(&second)].concat(),
            };
            let found = encoder.encode_after(&before, &after);
            prop_assert_eq!(
                found.map(|(_, forced)| forced),
                plainly(&tokenizer, &before, &after)
            );
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn a_key_after_any_content_is_encoded_once() {
    let tokenizer = builtin();
    let encoder = TextEncoder::new(Arc::clone(&tokenizer));
    let num_encoded = || lock(&encoder.encoded).tokens.len();
    let prompt = tokenizer.encode("{\"name\": \"", false).unwrap();
    let mut first = None;
    let mut num_found = 0;
    for content in ["Sam", "Ada Lovelace", "a b c 1", "x, y and z", "7", "Q"] {
        for text in [", \"age\": ", "}", "age\": "] {
            let mut before = prompt.clone();
            before.extend(tokenizer.encode(content, false).unwrap());
            before.extend(tokenizer.encode("\"", false).unwrap());
            num_found += usize::from(encoder.encode_after(&before, text).is_some());
        }
        assert_eq!(
            num_encoded(),
            *first.get_or_insert_with(num_encoded),
            "{content}"
        );
    }
    assert!(num_found > 0);
}

#[test]
fn what_is_remembered_is_bounded() {
    let encoder = TextEncoder::new(builtin());
    for number in 0..40 {
        let text = format!("{number} {}", "é".repeat(100_000));
        assert!(encoder.encode(text).is_some());
        assert!(lock(&encoder.encoded).num_bytes <= MAX_REMEMBERED_BYTES);
    }
    assert!(lock(&encoder.encoded).tokens.len() < 40);
}

/// Who finds another at what is remembered does without.
#[test]
fn nobody_waits_for_what_is_remembered() {
    let tokenizer = builtin();
    let encoder = TextEncoder::new(Arc::clone(&tokenizer));
    let name = {
        let _encoded = lock(&encoder.encoded);
        let _stays = lock(&encoder.stays);
        (
            encoder.encode("name".to_owned()),
            encoder.stays_before(&[5, 6], 7),
        )
    };
    assert!(lock(&encoder.encoded).tokens.is_empty());
    let again = (
        encoder.encode("name".to_owned()),
        encoder.stays_before(&[5, 6], 7),
    );
    assert_eq!(name, again);
    assert_eq!(lock(&encoder.encoded).tokens.len(), 1);
}
