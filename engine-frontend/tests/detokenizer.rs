//! The incremental detokenizer: exact cases on a small vocabulary, properties on the shared
//! tokenizers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::Arc;

use engine_frontend::detokenizer::{IncrementalDetokenizer, StopStringMatch};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use protocol::{EngineCoreRequest, SamplingParams};
use tokenizer::Tokenizer;

/// Byte-level: the letters a to e, a space, the three bytes of `你` (E4 BD A0), some words, a
/// control token `<eos>` and an ordinary added token `<x>`.
const BYTE_LEVEL: &str = r#"{
    "model": {"type": "BPE", "merges": [], "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4,
        "Ġ": 5, "ä": 6, "½": 7, "ł": 8, "abc": 9, "Ġab": 10}},
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "added_tokens": [
        {"id": 11, "content": "<eos>", "special": true, "single_word": false, "lstrip": false,
         "rstrip": false, "normalized": false},
        {"id": 12, "content": "<x>", "special": false, "single_word": false, "lstrip": false,
         "rstrip": false, "normalized": false}]
}"#;
const EOS: u32 = 11;

/// SentencePiece-style, as Llama 2 has it: `▁` for a space, one of which is dropped at a text's
/// start, and byte tokens.
const METASPACE: &str = r#"{
    "model": {"type": "BPE", "merges": [], "byte_fallback": true,
        "vocab": {"▁Hi": 0, "▁you": 1, "!": 2, "<0xE4>": 3, "<0xBD>": 4, "<0xA0>": 5}},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
}"#;

fn load(tokenizer_json: &str) -> Arc<Tokenizer> {
    Arc::new(Tokenizer::from_bytes(&[("tokenizer.json", tokenizer_json.as_bytes())]).unwrap())
}

fn request(prompt: &[u32], sampling_params: SamplingParams) -> EngineCoreRequest {
    EngineCoreRequest {
        prompt_token_ids: prompt.into(),
        sampling_params,
        ..EngineCoreRequest::default()
    }
}

fn stops(stop: &[&str]) -> SamplingParams {
    SamplingParams {
        stop: stop.iter().map(|&s| s.to_owned()).collect(),
        ..SamplingParams::default()
    }
}

fn detokenizer(params: SamplingParams) -> IncrementalDetokenizer {
    IncrementalDetokenizer::new(&load(BYTE_LEVEL), &request(&[0], params))
}

fn matched(stop_string: &str, num_new_tokens: usize) -> Option<StopStringMatch> {
    Some(StopStringMatch {
        stop_string: stop_string.to_owned(),
        num_new_tokens,
    })
}

#[test]
fn a_split_character_is_held_back_until_it_is_complete() {
    let mut detokenizer = detokenizer(SamplingParams::default());
    let mut deltas = Vec::new();
    for token_id in [0, 6, 7, 8, 1] {
        assert_eq!(detokenizer.update(&[token_id], false), None);
        deltas.push(detokenizer.get_next_output_text(false, true));
    }
    assert_eq!(deltas, ["a", "", "", "你", "b"]);
    assert_eq!(detokenizer.get_next_output_text(true, false), "a你b");
}

#[test]
fn bytes_that_are_no_character_become_replacement_characters() {
    let mut detokenizer = detokenizer(SamplingParams::default());
    // A continuation byte alone, then a start that another character cuts off.
    detokenizer.update(&[8, 6, 7, 0], false);
    assert_eq!(
        detokenizer.get_next_output_text(false, true),
        "\u{fffd}\u{fffd}a"
    );
    // A start whose end never comes.
    detokenizer.update(&[6], false);
    assert_eq!(detokenizer.get_next_output_text(false, true), "");
    assert_eq!(detokenizer.get_next_output_text(true, true), "\u{fffd}");
    assert_eq!(detokenizer.get_next_output_text(true, true), "");
    assert_eq!(detokenizer.output_text(), "\u{fffd}\u{fffd}a\u{fffd}");
}

#[test]
fn the_first_word_after_a_prompt_keeps_its_space() {
    let tokenizer = load(METASPACE);
    let text_after = |prompt: &[u32]| {
        let request = request(prompt, SamplingParams::default());
        let mut detokenizer = IncrementalDetokenizer::new(&tokenizer, &request);
        detokenizer.update(&[1, 2], false);
        detokenizer.get_next_output_text(true, false)
    };
    assert_eq!(tokenizer.decode(&[0, 1, 2], false), "Hi you!");
    assert_eq!(text_after(&[0]), " you!");
    assert_eq!(text_after(&[]), "you!");
}

#[test]
fn a_character_that_the_prompt_left_unfinished_is_written_whole() {
    for json in [BYTE_LEVEL, METASPACE] {
        let tokenizer = load(json);
        let bytes: Vec<u32> = (0..tokenizer.vocab_size() as u32)
            .filter(|&id| matches!(tokenizer.token_bytes(id), [0xe4 | 0xbd | 0xa0]))
            .collect();
        let request = request(&bytes[..2], SamplingParams::default());
        let mut detokenizer = IncrementalDetokenizer::new(&tokenizer, &request);
        detokenizer.update(&bytes[2..], false);
        assert_eq!(detokenizer.output_text(), "你");
    }
}

#[test]
fn a_stop_string_over_several_tokens() {
    let mut detokenizer = detokenizer(stops(&["abcd"]));
    // Three characters are held back.
    for (token_ids, delta) in [(&[4, 4, 4, 4, 0][..], "ee"), (&[1], "e"), (&[2], "e")] {
        assert_eq!(detokenizer.update(token_ids, false), None);
        assert_eq!(detokenizer.get_next_output_text(false, true), delta);
    }
    // What comes after the stop string is dropped.
    assert_eq!(detokenizer.update(&[3, 4, 4], false), matched("abcd", 1));
    assert_eq!(detokenizer.get_next_output_text(true, true), "");
    assert_eq!(detokenizer.get_next_output_text(true, false), "eeee");
    assert_eq!(detokenizer.output_token_ids(), [4, 4, 4, 4, 0, 1, 2, 3]);
}

#[test]
fn the_stop_string_can_be_kept() {
    let mut detokenizer = detokenizer(SamplingParams {
        include_stop_str_in_output: true,
        ..stops(&["b"])
    });
    assert_eq!(detokenizer.update(&[4], false), None);
    // Nothing is held back, since nothing can be taken back.
    assert_eq!(detokenizer.get_next_output_text(false, true), "e");
    assert_eq!(detokenizer.update(&[9, 4], false), matched("b", 1));
    assert_eq!(detokenizer.get_next_output_text(true, true), "ab");
    assert_eq!(detokenizer.output_text(), "eab");
}

#[test]
fn the_stop_string_that_is_complete_first_wins() {
    // " abc" in one token: of "abc" and "b", "b" ends first.
    assert_eq!(
        detokenizer(stops(&["abc", "b"])).update(&[5, 9], false),
        matched("b", 2)
    );
    // Both end at the same place: the first in the list.
    assert_eq!(
        detokenizer(stops(&["c", "bc"])).update(&[9], false),
        matched("c", 1)
    );
    assert_eq!(
        detokenizer(stops(&["bc", "c"])).update(&[9], false),
        matched("bc", 1)
    );
}

#[test]
fn no_stop_string_within_min_tokens() {
    let params = SamplingParams {
        min_tokens: 2,
        ..stops(&["ab"])
    };
    let mut detokenizer = detokenizer(params);
    assert_eq!(detokenizer.update(&[9], false), None);
    assert_eq!(detokenizer.update(&[0], false), None);
    // It began within them, and ends after.
    assert_eq!(detokenizer.update(&[1], false), matched("ab", 1));
    assert_eq!(detokenizer.output_text(), "abc");
}

#[test]
fn a_stop_token_is_no_text_unless_asked_for() {
    let run = |include, skip| {
        let mut detokenizer = detokenizer(SamplingParams {
            include_stop_str_in_output: include,
            skip_special_tokens: skip,
            ..SamplingParams::default()
        });
        assert_eq!(detokenizer.update(&[0, EOS], true), None);
        assert_eq!(detokenizer.output_token_ids(), [0, EOS]);
        detokenizer.get_next_output_text(true, false)
    };
    assert_eq!(run(false, true), "a");
    assert_eq!(run(false, false), "a");
    assert_eq!(run(true, true), "a");
    assert_eq!(run(true, false), "a<eos>");
}

#[test]
fn control_tokens_are_skipped_and_added_tokens_are_text() {
    let run = |skip_special_tokens| {
        let mut detokenizer = detokenizer(SamplingParams {
            skip_special_tokens,
            ..SamplingParams::default()
        });
        detokenizer.update(&[12, EOS, 12, 0], false);
        detokenizer.get_next_output_text(true, false)
    };
    assert_eq!(run(true), "<x><x>a");
    assert_eq!(run(false), "<x><eos><x>a");
}

#[test]
fn without_detokenization_only_tokens_are_kept() {
    let mut detokenizer = detokenizer(SamplingParams {
        detokenize: false,
        ..SamplingParams::default()
    });
    assert_eq!(detokenizer.update(&[0, 1], false), None);
    assert_eq!(detokenizer.get_next_output_text(true, false), "");
    assert_eq!(detokenizer.output_token_ids(), [0, 1]);
    assert_eq!(detokenizer.num_output_tokens(), 2);
}

#[test]
fn resumed_tokens_are_text_but_no_delta() {
    let resumed = EngineCoreRequest {
        output_token_ids: vec![4, 4, 0],
        ..request(&[0], stops(&["ab"]))
    };
    let mut detokenizer = IncrementalDetokenizer::new(&load(BYTE_LEVEL), &resumed);
    assert_eq!(detokenizer.output_text(), "eea");
    // "ee" was given out before; the "a" was held back then.
    assert_eq!(detokenizer.get_next_output_text(false, true), "");
    assert_eq!(detokenizer.update(&[2], false), None);
    assert_eq!(detokenizer.get_next_output_text(true, true), "ac");
    // A stop string may have begun in the resumed part.
    let mut detokenizer = IncrementalDetokenizer::new(&load(BYTE_LEVEL), &resumed);
    assert_eq!(detokenizer.update(&[1], false), matched("ab", 1));
    assert_eq!(detokenizer.get_next_output_text(true, false), "ee");
}

/// Random tokens in random steps, and stop strings over the letters that they write.
fn steps() -> impl Strategy<Value = (Vec<Vec<u32>>, Vec<String>, usize, bool)> {
    (
        proptest::collection::vec(proptest::collection::vec(0_u32..13, 0..4), 0..12),
        proptest::collection::vec("[a-c 你]{1,3}", 0..3),
        0_usize..4,
        any::<bool>(),
    )
}

proptest! {
    /// Against a plain search in the growing text, token by token from the start each time.
    #[test]
    fn stop_strings_are_found_as_by_plain_search((steps, stop, min_tokens, include) in steps()) {
        let tokenizer = load(BYTE_LEVEL);
        let params = SamplingParams {
            stop: stop.clone().into(),
            min_tokens: min_tokens as u32,
            include_stop_str_in_output: include,
            ..SamplingParams::default()
        };

        let all: Vec<u32> = steps.concat();
        // The text after each number of tokens, whole characters only.
        let text_of = |count: usize| {
            let ids: Vec<u32> = all[..count].iter().copied().filter(|&id| id != EOS).collect();
            let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).to_vec()).collect();
            match std::str::from_utf8(&bytes) {
                Err(error) if error.error_len().is_none() => bytes[..error.valid_up_to()].to_vec(),
                _ => match (1..=2.min(bytes.len())).find(|&n| {
                    matches!(bytes[bytes.len() - n..], [0xe4] | [0xe4, 0xbd])
                }) {
                    Some(n) => bytes[..bytes.len() - n].to_vec(),
                    None => bytes,
                },
            }
        };
        let text_of = |count| String::from_utf8_lossy(&text_of(count)).into_owned();
        let mut expected = None;
        'tokens: for count in min_tokens + 1..=all.len() {
            let (before, text) = (text_of(count - 1), text_of(count));
            for end in before.len() + 1..=text.len() {
                for candidate in &stop {
                    let start = end.checked_sub(candidate.len());
                    if start.and_then(|start| text.get(start..end)) == Some(candidate) {
                        let kept = if include { end } else { end - candidate.len() };
                        expected = Some((candidate.clone(), text[..kept].to_owned(), count));
                        break 'tokens;
                    }
                }
            }
        }

        let mut detokenizer = IncrementalDetokenizer::new(&tokenizer, &request(&[0], params));
        let mut streamed = String::new();
        let mut found = None;
        for step in &steps {
            found = detokenizer.update(step, false);
            streamed += &detokenizer.get_next_output_text(found.is_some(), true);
            if found.is_some() {
                break;
            }
        }
        streamed += &detokenizer.get_next_output_text(true, true);
        prop_assert_eq!(&streamed, detokenizer.output_text());
        match expected {
            Some((stop_string, text, count)) => {
                prop_assert_eq!(found.map(|found| found.stop_string), Some(stop_string));
                prop_assert_eq!(streamed, text);
                prop_assert_eq!(detokenizer.output_token_ids(), &all[..count]);
            }
            None => {
                prop_assert_eq!(found, None);
                prop_assert_eq!(streamed, tokenizer.decode(&all, true));
            }
        }
    }
}

/// See the `tokenizer` package's tests: `FORMWORK_SHARED`, or `shared` beside the workspace.
fn shared() -> Option<PathBuf> {
    let folder = match std::env::var_os("FORMWORK_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
    };
    if folder.is_dir() {
        return Some(folder);
    }
    let note = format!("no test data at {}", folder.display());
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{note}");
    eprintln!("skipped: {note}");
    None
}

/// For any ids, the joined deltas are what the `tokenizers` library decodes after the prompt.
#[test]
fn deltas_joined_are_the_decoded_text() {
    let Some(shared) = shared() else { return };
    for name in [
        "tokenizers/gpt2",
        "tokenizers/llama3_1",
        "tokenizers/qwen2_5",
        "tokenizers/gemma2",
        "checkpoints/llama",
    ] {
        let folder = shared.join(name);
        let tokenizer = Arc::new(Tokenizer::from_files(&folder).unwrap());
        let library = tokenizers::Tokenizer::from_file(folder.join("tokenizer.json")).unwrap();
        // The library writes a run of byte tokens that is not UTF-8 as a whole as U+FFFD only,
        // the characters in it too; there our own decoding of all ids is the reference.
        let has_byte_fallback = tokenizer.token_to_id("<0x00>").is_some();
        let prompt = tokenizer.encode("Hello there,", true).unwrap();
        let vocab_size = tokenizer.vocab_size() as u32;
        let byte_tokens: Vec<u32> = (0..vocab_size)
            .filter(|&id| std::str::from_utf8(tokenizer.token_bytes(id)).is_err())
            .collect();
        let token = prop_oneof![0..vocab_size, proptest::sample::select(byte_tokens)];
        let texts = "\\PC{0,12}".prop_map(|text| tokenizer.encode(&text, false).unwrap());
        let ids = prop_oneof![proptest::collection::vec(token, 0..24), texts];
        let mut runner = TestRunner::new(Config::with_cases(300));
        runner
            .run(
                &(ids, any::<bool>(), 1_usize..5),
                |(ids, skip_special_tokens, step)| {
                    let params = SamplingParams {
                        skip_special_tokens,
                        ..SamplingParams::default()
                    };
                    let mut detokenizer =
                        IncrementalDetokenizer::new(&tokenizer, &request(&prompt, params));
                    let mut joined = String::new();
                    for chunk in ids.chunks(step) {
                        prop_assert_eq!(detokenizer.update(chunk, false), None);
                        joined += &detokenizer.get_next_output_text(false, true);
                        prop_assert_eq!(&joined, &detokenizer.get_next_output_text(false, false));
                    }
                    joined += &detokenizer.get_next_output_text(true, true);
                    prop_assert_eq!(&joined, detokenizer.output_text());

                    let all = [prompt.as_slice(), &ids].concat();
                    let decoded_prompt = tokenizer.decode(&prompt, skip_special_tokens);
                    let decoded = tokenizer.decode(&all, skip_special_tokens);
                    prop_assert_eq!(decoded.strip_prefix(&decoded_prompt), Some(joined.as_str()));
                    if !has_byte_fallback || !decoded.contains('\u{fffd}') {
                        prop_assert_eq!(
                            library.decode(&all, skip_special_tokens).unwrap(),
                            decoded
                        );
                    }
                    Ok(())
                },
            )
            .unwrap();
    }
}
