//! The published tokenizers and the tiny checkpoints': bytes, round trips, special tokens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{CORPUS, loaded, named};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokenizer::Tokenizer;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::{NormalizedString, Normalizer};

/// What a tokenizer keeps of a text: Qwen normalises to NFC, Gemma can't tell `▁` from a space.
fn kept(name: &str, text: &str) -> String {
    if name.ends_with("qwen2_5") {
        let mut normalized = NormalizedString::from(text);
        NFC.normalize(&mut normalized).unwrap();
        normalized.get().to_owned()
    } else if name.ends_with("gemma2") {
        text.replace('▁', " ")
    } else {
        text.to_owned()
    }
}

fn bytes_of(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u8> {
    ids.iter()
        .flat_map(|&id| tokenizer.token_bytes(id).iter().copied())
        .collect()
}

#[test]
fn bytes_of_an_encoded_text_are_the_texts() {
    for loaded in loaded() {
        for text in CORPUS {
            let ids = loaded.tokenizer.encode(text, false).unwrap();
            let kept = kept(loaded.name, text);
            assert_eq!(
                bytes_of(&loaded.tokenizer, &ids),
                kept.as_bytes(),
                "{} {text:?}",
                loaded.name
            );
            assert_eq!(
                loaded.tokenizer.decode(&ids, false),
                kept,
                "{} {text:?}",
                loaded.name
            );
        }
    }
}

#[test]
fn bytes_of_any_encoded_text_are_the_texts() {
    let text = prop_oneof![
        any::<String>(),
        "[ \t\r\n]{0,20}[a-z'0-9 ]{0,20}",
        proptest::collection::vec(any::<char>(), 0..40).prop_map(String::from_iter),
        "(\\PC|[\u{0300}-\u{036f}]|[\u{1f3fb}-\u{1f3ff}]|\u{200d}){0,30}",
    ];
    for loaded in loaded() {
        let mut runner = TestRunner::default();
        runner
            .run(&text, |text| {
                let ids = loaded.tokenizer.encode(&text, false).unwrap();
                let kept = kept(loaded.name, &text);
                prop_assert_eq!(
                    bytes_of(&loaded.tokenizer, &ids),
                    kept.as_bytes(),
                    "{}",
                    loaded.name
                );
                prop_assert_eq!(loaded.tokenizer.decode(&ids, false), kept);
                Ok(())
            })
            .unwrap();
    }
}

/// A text that is cut where a word ends is encoded as its two parts are.
#[test]
fn texts_are_encoded_apart_where_words_end() {
    let part = r#"([a-zA-Z0-9]{1,4}|[ '"’,.:;{}\[\]()<>|_/=+-]{1,3}|[éßΣ中文]|\u{301}|\u{338}|[\r\n\t ]{1,3}|(?s:.)){0,5}"#;
    let last = r"[a-zA-Z0-9]|[éßΣ中文가ᄀक\u{958}\u{FB1D}ſ½²Ⅷ]|\p{L}|\p{N}";
    let next = r"[\x00-\x7f]|[\u{301}\u{338}\u{1161}\u{11a8}\u{37e}’。]|\p{P}|\p{N}|(?s:.)";
    let texts = (part, last, next, part);
    for loaded in loaded() {
        let tokenizer = &loaded.tokenizer;
        let is_word = loaded.name != "tokenizers/gemma2";
        assert_eq!(
            tokenizer.encodes_apart('a', '"'),
            is_word,
            "{}",
            loaded.name
        );
        TestRunner::new(ProptestConfig {
            cases: 4000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })
        .run(&texts, |(first, last, next, rest)| {
            let first_of = |text: &str| text.chars().next().unwrap();
            if tokenizer.encodes_apart(first_of(&last), first_of(&next)) {
                let (before, after) = (first + &last, next + &rest);
                let apart = [
                    tokenizer.encode(&before, false).unwrap(),
                    tokenizer.encode(&after, false).unwrap(),
                ];
                let together = tokenizer.encode(&(before.clone() + &after), false).unwrap();
                prop_assert_eq!(
                    together,
                    apart.concat(),
                    "{}: {:?} {:?}",
                    loaded.name,
                    before,
                    after
                );
            }
            Ok(())
        })
        .unwrap();
    }
}

/// Every single token writes what the library decodes it to, wherever that is text.
#[test]
fn every_token_writes_what_the_library_decodes() {
    for loaded in loaded() {
        let tokenizer = &loaded.tokenizer;
        let mut texts = 0;
        for id in 0..tokenizer.vocab_size() as u32 {
            let Ok(text) = std::str::from_utf8(tokenizer.token_bytes(id)) else {
                continue;
            };
            assert_eq!(
                loaded.reference.decode(&[id], false).unwrap(),
                text,
                "{} token {id}",
                loaded.name
            );
            texts += 1;
        }
        assert!(
            texts > tokenizer.vocab_size() * 8 / 10,
            "{}: {texts} tokens of text",
            loaded.name
        );
    }
}

#[test]
fn ids_and_tokens_are_the_librarys() {
    for loaded in loaded() {
        let tokenizer = &loaded.tokenizer;
        let max = *loaded.reference.get_vocab(true).values().max().unwrap();
        assert_eq!(tokenizer.vocab_size(), max as usize + 1, "{}", loaded.name);
        for id in (0..tokenizer.vocab_size() as u32).step_by(97) {
            let token = tokenizer.id_to_token(id);
            assert_eq!(token, loaded.reference.id_to_token(id));
            if let Some(token) = token {
                assert_eq!(
                    tokenizer.token_to_id(&token),
                    Some(id),
                    "{} {token:?}",
                    loaded.name
                );
            }
        }
        assert_eq!(tokenizer.token_bytes(max + 1), b"");
        assert_eq!(tokenizer.id_to_token(max + 1), None);
        for text in CORPUS {
            let expected = loaded.reference.encode(*text, true).unwrap();
            assert_eq!(tokenizer.encode(text, true).unwrap(), expected.get_ids());
        }
    }
}

#[test]
fn special_tokens_of_each() {
    // eos, bos, a control token, an ordinary added token
    let expected = [
        (
            "tokenizers/gpt2",
            Some(50256),
            Some(50256),
            Some(50256),
            None,
        ),
        (
            "tokenizers/llama3_1",
            Some(128009),
            Some(128000),
            Some(128006),
            None,
        ),
        (
            "tokenizers/qwen2_5",
            Some(151645),
            None,
            Some(151644),
            Some(151657),
        ),
        ("tokenizers/gemma2", Some(1), Some(2), Some(106), Some(4)),
        ("checkpoints/llama", Some(955), None, Some(954), Some(958)),
    ];
    for (name, eos, bos, control, ordinary) in expected {
        let Some(loaded) = named(name) else { return };
        let tokenizer = &loaded.tokenizer;
        assert_eq!(tokenizer.eos_token_id(), eos, "{name}");
        assert_eq!(tokenizer.bos_token_id(), bos, "{name}");
        assert_eq!(tokenizer.stop_token_ids(), eos.as_slice(), "{name}");
        if let Some(id) = control {
            assert!(tokenizer.is_special_token(id), "{name} {id}");
            let text = tokenizer.id_to_token(id).unwrap();
            assert_eq!(tokenizer.encode(&text, false).unwrap(), [id], "{name}");
            assert_eq!(tokenizer.decode(&[id], true), "");
            assert_eq!(tokenizer.decode(&[id], false), text);
        }
        if let Some(id) = ordinary {
            assert!(!tokenizer.is_special_token(id), "{name} {id}");
            let text = tokenizer.id_to_token(id).unwrap();
            assert_eq!(tokenizer.encode(&text, false).unwrap(), [id], "{name}");
            assert_eq!(tokenizer.decode(&[id], true), text);
        }
    }
}

#[test]
fn the_vocabulary_for_structured_output() {
    for loaded in loaded() {
        let tokenizer = &loaded.tokenizer;
        let width = tokenizer.vocab_size() + 100;
        let info = tokenizer.tokenizer_info(width).unwrap();
        assert_eq!(info.vocab_size(), width);
        assert_eq!(info.num_tokens(), tokenizer.vocab_size());
        assert_eq!(info.stop_token_ids(), tokenizer.stop_token_ids());
        assert_eq!(info.special_token_ids(), tokenizer.special_token_ids());
        for (id, bytes) in info.tokens() {
            assert_eq!(bytes, tokenizer.token_bytes(id));
        }
        let error = tokenizer
            .tokenizer_info(tokenizer.vocab_size() - 1)
            .unwrap_err();
        assert!(error.to_string().starts_with("vocab_size is "), "{error}");
    }
}

#[test]
fn fingerprints_are_equal_only_for_equal_files() {
    let mut seen = std::collections::HashSet::new();
    for loaded in loaded() {
        let fingerprint = loaded.tokenizer.fingerprint();
        assert_eq!(fingerprint.len(), 64);
        assert!(seen.insert(fingerprint), "{}", loaded.name);
        let json = std::fs::read(loaded.folder.join("tokenizer.json")).unwrap();
        assert_eq!(fingerprint, blake3::hash(&json).to_hex().as_str());
    }
}

/// Decoding anything, once as the library does it: equal wherever the library is consistent.
#[test]
fn any_ids_decode_as_in_the_library() {
    for loaded in loaded() {
        let tokenizer = &loaded.tokenizer;
        // The library writes one U+FFFD per byte of a run of byte tokens that is not UTF-8 as a
        // whole, even for the characters in it; byte by byte that would take back what was written.
        let has_byte_fallback = tokenizer.token_to_id("<0x00>").is_some();
        let ids = proptest::collection::vec(0..tokenizer.vocab_size() as u32, 0..20);
        let mut runner = TestRunner::default();
        runner
            .run(&(ids, any::<bool>()), |(ids, skip)| {
                let expected = String::from_utf8_lossy(&bytes_of(
                    tokenizer,
                    &ids.iter()
                        .copied()
                        .filter(|&id| !(skip && tokenizer.is_special_token(id)))
                        .collect::<Vec<_>>(),
                ))
                .into_owned();
                prop_assert_eq!(&tokenizer.decode(&ids, skip), &expected);
                if !has_byte_fallback || !expected.contains('\u{fffd}') {
                    prop_assert_eq!(loaded.reference.decode(&ids, skip).unwrap(), expected);
                }
                Ok(())
            })
            .unwrap();
    }
}
