//! Tokenizers from GGUF metadata against the `tokenizer.json` that the metadata was made from.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "../../gguf/tests/writer/mod.rs"]
mod writer;

use std::collections::HashMap;

use common::{CORPUS, Loaded, loaded, named};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use tokenizer::{ChatTemplateRequest, TemplateMessage, Tokenizer};
use writer::GgufWriter;

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// The name that llama.cpp's converter gives to a tokenizer's way of cutting words.
fn pre_tokenizer(name: &str) -> &'static str {
    match name {
        "tokenizers/llama3_1" => "llama-bpe",
        "tokenizers/qwen2_5" => "qwen2",
        _ => "gpt-2",
    }
}

/// What llama.cpp's converter writes for a `tokenizer.json`, with `padding` unused ids at the end.
fn converted(loaded: &Loaded, padding: usize) -> GgufWriter {
    let read = |file: &str| -> Option<Value> {
        let text = std::fs::read(loaded.folder.join(file)).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    };
    let json = read("tokenizer.json").unwrap();
    let model = &json["model"];
    let sentence_piece = model["byte_fallback"] == true;
    let num_tokens = loaded.tokenizer.vocab_size() + padding;
    let mut tokens: Vec<String> = (0..num_tokens).map(|id| format!("[PAD{id}]")).collect();
    let mut types = vec![UNUSED; num_tokens];
    let mut scores = vec![-10_000.0; num_tokens];
    for (token, id) in model["vocab"].as_object().unwrap() {
        let id = id.as_u64().unwrap() as usize;
        types[id] = match token.strip_prefix("<0x") {
            Some(_) if sentence_piece && token.len() == 6 => BYTE,
            _ => NORMAL,
        };
        scores[id] = -(id as f32);
        tokens[id].clone_from(token);
    }
    for added in json["added_tokens"].as_array().unwrap() {
        let id = added["id"].as_u64().unwrap() as usize;
        let content = added["content"].as_str().unwrap();
        let special = added["special"] == true;
        types[id] = match (special, content) {
            (true, "<unk>") => UNKNOWN,
            (true, _) => CONTROL,
            (false, _) => USER_DEFINED,
        };
        scores[id] = -1000.0;
        tokens[id] = if special {
            content.to_owned()
        } else {
            content.replace('▁', " ")
        };
    }
    let mut writer = GgufWriter::new("llama");
    writer
        .str(
            "tokenizer.ggml.model",
            if sentence_piece { "llama" } else { "gpt2" },
        )
        .strings("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &types);
    if sentence_piece {
        writer
            .str("tokenizer.ggml.pre", "default")
            .f32s("tokenizer.ggml.scores", &scores)
            .bool("tokenizer.ggml.add_space_prefix", false);
    } else {
        let merges = model["merges"].as_array().unwrap().iter();
        let merges = merges.map(|merge| match merge {
            Value::String(merge) => merge.clone(),
            pair => format!(
                "{} {}",
                pair[0].as_str().unwrap(),
                pair[1].as_str().unwrap()
            ),
        });
        let merges: Vec<String> = merges.collect();
        writer
            .str("tokenizer.ggml.pre", pre_tokenizer(loaded.name))
            .strings("tokenizer.ggml.merges", &merges);
    }
    for (name, id) in [
        ("bos", loaded.tokenizer.bos_token_id()),
        ("eos", loaded.tokenizer.eos_token_id()),
    ] {
        if let Some(id) = id {
            writer.u32(&format!("tokenizer.ggml.{name}_token_id"), id);
        }
    }
    let config = read("tokenizer_config.json").unwrap();
    if loaded.name == "tokenizers/gpt2" {
        writer.bool("tokenizer.ggml.add_bos_token", false);
    }
    if let Some(template) = config["chat_template"].as_str() {
        writer.str("tokenizer.chat_template", template);
    }
    writer
}

fn load(writer: &GgufWriter) -> Result<Tokenizer, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    writer.write(&path).unwrap();
    Tokenizer::from_files(&path).map_err(|error| {
        let message = error.to_string();
        let place = format!("{}: ", path.display());
        message.strip_prefix(&place).unwrap_or(&message).to_owned()
    })
}

#[test]
fn texts_are_encoded_as_by_the_publishers_file() {
    let texts = prop_oneof![
        any::<String>(),
        "[ \t\r\n]{0,20}[a-zA-Z'0-9 ]{0,20}",
        proptest::collection::vec(any::<char>(), 0..40).prop_map(String::from_iter),
        "(\\PC|[\u{0300}-\u{036f}]|[\u{1f3fb}-\u{1f3ff}]|\u{200d}){0,30}",
    ];
    for loaded in loaded() {
        let tokenizer = load(&converted(loaded, 17)).unwrap();
        for text in CORPUS {
            for special in [false, true] {
                assert_eq!(
                    tokenizer.encode(text, special).unwrap(),
                    loaded.tokenizer.encode(text, special).unwrap(),
                    "{} {text:?}",
                    loaded.name
                );
            }
        }
        let config = Config {
            cases: 150,
            ..Config::default()
        };
        TestRunner::new(config)
            .run(&texts, |text| {
                let found = tokenizer.encode(&text, true).unwrap();
                prop_assert_eq!(
                    &found,
                    &loaded.tokenizer.encode(&text, true).unwrap(),
                    "{}",
                    loaded.name
                );
                prop_assert_eq!(
                    tokenizer.decode(&found, true),
                    loaded.tokenizer.decode(&found, true)
                );
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn tokens_write_what_they_write_in_the_publishers_file() {
    for loaded in loaded() {
        let tokenizer = load(&converted(loaded, 17)).unwrap();
        assert_eq!(
            tokenizer.vocab_size(),
            loaded.tokenizer.vocab_size(),
            "{}",
            loaded.name
        );
        for id in 0..tokenizer.vocab_size() as u32 {
            let expected = loaded.tokenizer.token_bytes(id);
            assert_eq!(tokenizer.token_bytes(id), expected, "{} {id}", loaded.name);
        }
        assert_eq!(
            tokenizer.special_token_ids(),
            loaded.tokenizer.special_token_ids()
        );
        assert_eq!(tokenizer.bos_token_id(), loaded.tokenizer.bos_token_id());
        assert_eq!(tokenizer.eos_token_id(), loaded.tokenizer.eos_token_id());
        for id in loaded.tokenizer.stop_token_ids() {
            assert!(
                tokenizer.stop_token_ids().contains(id),
                "{} {id}",
                loaded.name
            );
        }
        tokenizer
            .tokenizer_info(tokenizer.vocab_size() + 17)
            .unwrap();
        assert_eq!(
            tokenizer.fingerprint(),
            load(&converted(loaded, 17)).unwrap().fingerprint()
        );
    }
}

#[test]
fn all_tokens_that_end_an_answer_are_found() {
    let expected: HashMap<&str, &[u32]> = HashMap::from([
        ("tokenizers/llama3_1", &[128_001, 128_009][..]),
        ("tokenizers/qwen2_5", &[151_643, 151_645][..]),
        ("tokenizers/gemma2", &[1, 107][..]),
        ("tokenizers/gpt2", &[50_256][..]),
    ]);
    for (name, expected) in expected {
        let Some(loaded) = named(name) else { return };
        let mut writer = converted(loaded, 0);
        assert_eq!(load(&writer).unwrap().stop_token_ids(), expected, "{name}");
        // Named ones as well.
        writer.u32("tokenizer.ggml.eot_token_id", 50);
        assert!(
            load(&writer).unwrap().stop_token_ids().contains(&50),
            "{name}"
        );
    }
}

/// A SentencePiece vocabulary as Llama 2's: a space before the text, scores, byte fallback.
fn sentence_piece() -> GgufWriter {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    let mut types = vec![UNKNOWN, CONTROL, CONTROL];
    types.resize(259, BYTE);
    let mut scores = vec![0.0; 259];
    // The lower the score, the later it is merged; ids don't matter.
    let pieces = [
        ("▁", -50.0),
        ("a", -51.0),
        ("b", -52.0),
        ("c", -53.0),
        ("▁a", -9.0),
        ("ab", -3.0),
        ("bc", -2.0),
        ("abc", -4.0),
        ("▁abc", -8.0),
        ("▁▁", -1.0),
    ];
    for (piece, score) in pieces {
        tokens.push(piece.to_owned());
        types.push(NORMAL);
        scores.push(score);
    }
    tokens.push("<end of turn>".to_owned());
    types.push(USER_DEFINED);
    scores.push(-1000.0);
    let mut writer = GgufWriter::new("llama");
    writer
        .str("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &types)
        .f32s("tokenizer.ggml.scores", &scores)
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .u32("tokenizer.ggml.unknown_token_id", 0);
    writer
}

#[test]
fn a_sentence_piece_vocabulary_merges_by_score() {
    let mut writer = sentence_piece();
    let tokenizer = load(&writer).unwrap();
    let encode = |text: &str| {
        let ids = tokenizer.encode(text, true).unwrap();
        let tokens = ids.iter().map(|id| tokenizer.id_to_token(*id).unwrap());
        tokens.collect::<Vec<_>>().join(" ")
    };
    // bc first, then abc, then ▁abc.
    assert_eq!(encode("abc"), "<s> ▁abc");
    assert_eq!(encode("ab"), "<s> ▁ ab");
    assert_eq!(encode("a"), "<s> ▁a");
    assert_eq!(encode("  a"), "<s> ▁▁ ▁a");
    assert_eq!(encode("ä"), "<s> ▁ <0xC3> <0xA4>");
    assert_eq!(
        encode("c<0x41>"),
        "<s> ▁ c <0x3C> <0x30> <0x78> <0x34> <0x31> <0x3E>"
    );
    for text in ["abc", "", " a  b", "ä\n\u{0}", "日本"] {
        let ids = tokenizer.encode(text, false).unwrap();
        assert_eq!(tokenizer.decode(&ids, true), text);
    }

    let tokenizer = load(writer.bool("tokenizer.ggml.add_space_prefix", false)).unwrap();
    assert_eq!(tokenizer.encode("abc", false).unwrap(), [266]);
    let tokenizer = load(
        writer
            .bool("tokenizer.ggml.add_bos_token", false)
            .bool("tokenizer.ggml.add_eos_token", true),
    )
    .unwrap();
    assert_eq!(tokenizer.encode("abc", true).unwrap(), [266, 2]);
}

#[test]
fn chat_templates_and_sampling_defaults() {
    let chat = |tokenizer: &Tokenizer| {
        let message = serde_json::json!({"role": "user", "content": "hi"});
        tokenizer.apply_chat_template(&ChatTemplateRequest {
            messages: &TemplateMessage::list(vec![message])?,
            ..ChatTemplateRequest::default()
        })
    };
    let mut writer = sentence_piece();
    assert!(chat(&load(&writer).unwrap()).is_err());
    writer.str(
        "tokenizer.chat_template",
        "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
    );
    assert_eq!(chat(&load(&writer).unwrap()).unwrap(), "<s>hi</s>");
    writer
        .strings("tokenizer.chat_templates", &["tool_use", "default"])
        .str("tokenizer.chat_template.tool_use", "tools")
        .f32("general.sampling.temp", 0.5)
        .f32("general.sampling.top_p", 0.25)
        .entry("general.sampling.top_k", 5, &20_i32.to_le_bytes());
    let tokenizer = load(&writer).unwrap();
    assert_eq!(chat(&tokenizer).unwrap(), "<s>hi</s>");
    let config = tokenizer.generation_config();
    assert_eq!(
        (config.temperature, config.top_p, config.top_k, config.min_p),
        (Some(0.5), Some(0.25), Some(20), None)
    );
}

#[test]
fn a_tokenizer_json_in_the_file_is_the_tokenizer() {
    let Some(loaded) = named("checkpoints/llama") else {
        return;
    };
    let json = std::fs::read_to_string(loaded.folder.join("tokenizer.json")).unwrap();
    // Without it the name would be refused.
    let mut writer = GgufWriter::new("llama");
    writer
        .str("tokenizer.ggml.model", "other")
        .strings("tokenizer.ggml.tokens", &["unused"]);
    let tokenizer = load(writer.str("tokenizer.huggingface.json", &json)).unwrap();
    assert_eq!(tokenizer.fingerprint(), loaded.tokenizer.fingerprint());
}

/// The error of a file with these entries.
fn error_with(change: impl FnOnce(&mut GgufWriter)) -> String {
    let mut writer = GgufWriter::new("llama");
    change(&mut writer);
    load(&writer).err().unwrap()
}

#[test]
fn what_cannot_be_used_is_named() {
    assert_eq!(
        error_with(|_| {}),
        "the metadata lacks tokenizer.ggml.tokens (an array of strings is needed)"
    );
    let error = error_with(|writer| {
        writer.strings("tokenizer.ggml.tokens", &["a"]);
    });
    assert_eq!(
        error,
        "the metadata lacks tokenizer.ggml.model (a string is needed)"
    );
    let error = error_with(|writer| {
        writer
            .str("tokenizer.ggml.model", "bert")
            .strings("tokenizer.ggml.tokens", &["a"]);
    });
    assert!(
        error.starts_with("metadata tokenizer.ggml.model: \"bert\" must be \"gpt2\""),
        "{error}"
    );
    let byte_level = |change: fn(&mut GgufWriter)| {
        error_with(|writer| {
            writer
                .str("tokenizer.ggml.model", "gpt2")
                .strings("tokenizer.ggml.tokens", &["a", "b", "ab"]);
            change(writer);
        })
    };
    assert_eq!(
        byte_level(|_| {}),
        "the metadata lacks tokenizer.ggml.merges (an array of strings is needed)"
    );
    let error = byte_level(|writer| {
        writer.str("tokenizer.ggml.pre", "whale");
    });
    assert!(
        error.starts_with("metadata tokenizer.ggml.pre: \"whale\" must be default, gpt-2"),
        "{error}"
    );
    let error = byte_level(|writer| {
        writer.strings("tokenizer.ggml.merges", &["ab"]);
    });
    assert!(
        error.contains("tokenizer.ggml.merges") && error.contains("\"ab\" is none"),
        "{error}"
    );
    // Neither left nor right may be unknown, nor what they join to.
    for merge in ["zzz a", "a zzz", "b a"] {
        let error = error_with(|writer| {
            writer
                .str("tokenizer.ggml.model", "gpt2")
                .strings("tokenizer.ggml.tokens", &["a", "b", "ab"])
                .strings("tokenizer.ggml.merges", &["a b", merge]);
        });
        assert_eq!(
            error,
            format!(
                "metadata tokenizer.ggml.merges: an array of 2 strings must be pairs of tokens that \
                 join to a token; {merge:?} is none"
            )
        );
    }
    let error = byte_level(|writer| {
        writer
            .strings("tokenizer.ggml.merges", &["a b"])
            .f32("general.sampling.top_p", f32::NAN);
    });
    assert_eq!(
        error,
        "metadata general.sampling.top_p: NaN must be a finite number"
    );
    let error = byte_level(|writer| {
        writer.i32s("tokenizer.ggml.token_type", &[1]);
    });
    assert!(
        error.contains("token_type") && error.contains("as long as"),
        "{error}"
    );
    let error = byte_level(|writer| {
        writer
            .strings("tokenizer.ggml.merges", &["a b"])
            .u32("tokenizer.ggml.eos_token_id", 3);
    });
    assert!(
        error.contains("eos_token_id: 3 must be the id of one of the 3 tokens"),
        "{error}"
    );
    let error = error_with(|writer| {
        writer
            .str("tokenizer.ggml.model", "llama")
            .strings("tokenizer.ggml.tokens", &["a", "a"]);
    });
    assert!(error.contains("0 and 1 are both \"a\""), "{error}");
    let llama = |change: fn(&mut GgufWriter)| {
        error_with(|writer| {
            writer.str("tokenizer.ggml.model", "llama");
            change(writer);
        })
    };
    let error = llama(|writer| {
        writer.strings("tokenizer.ggml.tokens", &["a"]);
    });
    assert_eq!(
        error,
        "the metadata lacks tokenizer.ggml.scores (an array of numbers is needed)"
    );
    let error = llama(|writer| {
        writer
            .strings("tokenizer.ggml.tokens", &["a"])
            .f32s("tokenizer.ggml.scores", &[]);
    });
    assert!(error.contains("one per token (1)"), "{error}");
    let error = llama(|writer| {
        writer
            .strings("tokenizer.ggml.tokens", &["a".repeat(1025)])
            .f32s("tokenizer.ggml.scores", &[0.0]);
    });
    assert!(error.contains("at most 1024 bytes"), "{error}");
}
