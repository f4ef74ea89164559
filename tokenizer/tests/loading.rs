//! What loading reads and refuses, on small tokenizers made here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use tokenizer::{DecodeStream, GenerationConfig, Tokenizer, TokenizerError};

/// A SentencePiece-style BPE as Llama 2 has it: encoding puts a `▁` before the text, decoding
/// drops one space at its start, bytes without a token are `<0xNN>`.
fn llama2_style() -> Value {
    let mut vocab = json!({"<unk>": 0, "<s>": 1, "</s>": 2});
    for byte in 0..=255_u8 {
        vocab[format!("<0x{byte:02X}>")] = json!(3 + u32::from(byte));
    }
    for (index, token) in ["▁", "H", "i", "Hi", "▁Hi", "▁▁", "é"].iter().enumerate() {
        vocab[*token] = json!(259 + index);
    }
    let added = |id: u32, content: &str| {
        json!({"id": id, "content": content, "special": true, "single_word": false,
               "lstrip": false, "rstrip": false, "normalized": false})
    };
    json!({
        "version": "1.0",
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": vocab, "merges": [["H", "i"], ["▁", "Hi"], ["▁", "▁"]]},
    })
}

fn load(tokenizer_json: &Value) -> Result<Tokenizer, TokenizerError> {
    load_with(tokenizer_json, &[])
}

fn load_with(tokenizer_json: &Value, others: &[(&str, &str)]) -> Result<Tokenizer, TokenizerError> {
    let tokenizer_json = tokenizer_json.to_string();
    let mut files = vec![("tokenizer.json", tokenizer_json.as_bytes())];
    files.extend(others.iter().map(|(name, text)| (*name, text.as_bytes())));
    Tokenizer::from_bytes(&files)
}

#[test]
fn a_prepended_space_is_dropped_again() {
    let tokenizer = load(&llama2_style()).unwrap();
    let reference: tokenizers::Tokenizer = serde_json::from_value(llama2_style()).unwrap();
    for text in [
        "Hi",
        " Hi",
        "  Hi Hi",
        "é!",
        "你好 Hi",
        "Hi\n\tHi ",
        "",
        " ",
    ] {
        let ids = tokenizer.encode(text, false).unwrap();
        assert_eq!(ids, reference.encode(text, false).unwrap().get_ids());
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|&id| tokenizer.token_bytes(id).to_vec())
            .collect();
        // The normaliser leaves an empty text as it is.
        let space = if text.is_empty() { "" } else { " " };
        assert_eq!(bytes, format!("{space}{text}").as_bytes(), "{text:?}");
        assert_eq!(tokenizer.decode(&ids, false), text);
        assert_eq!(reference.decode(&ids, false).unwrap(), text);
    }
    assert_eq!(tokenizer.encode("Hi", true).unwrap(), [1, 263]);
    assert_eq!(tokenizer.decode(&[1, 263], true), "Hi");
    assert_eq!(tokenizer.decode(&[1, 263], false), "<s> Hi");
}

#[test]
fn after_a_prompt_the_space_stays() {
    let tokenizer = load(&llama2_style()).unwrap();
    let text_after = |prompt: &[u32]| {
        let mut stream = DecodeStream::after_prompt(&tokenizer, prompt, true);
        let mut text = String::new();
        stream.step(&tokenizer, 263, &mut text);
        stream.finish(&mut text);
        text
    };
    assert_eq!(text_after(&[1, 263]), " Hi");
    // Only control tokens before: the text starts here.
    assert_eq!(text_after(&[1]), "Hi");
}

#[test]
fn configuration_beside_it() {
    let tokenizer = load_with(
        &llama2_style(),
        &[
            ("tokenizer_config.json", r#"{"bos_token": {"content": "<s>", "special": true}, "eos_token": "</s>"}"#),
            (
                "generation_config.json",
                r#"{"eos_token_id": [2, 0], "temperature": 0.5, "top_p": 0.25, "top_k": -1, "min_p": 0.125,
                    "repetition_penalty": 1.5, "max_new_tokens": 99, "do_sample": true}"#,
            ),
        ],
    )
    .unwrap();
    assert_eq!(tokenizer.bos_token_id(), Some(1));
    assert_eq!(tokenizer.eos_token_id(), Some(2));
    assert_eq!(tokenizer.stop_token_ids(), [0, 2]);
    assert_eq!(
        *tokenizer.generation_config(),
        GenerationConfig {
            eos_token_ids: vec![2, 0],
            temperature: Some(0.5),
            top_p: Some(0.25),
            top_k: Some(-1),
            min_p: Some(0.125),
            repetition_penalty: Some(1.5),
            max_new_tokens: Some(99),
        }
    );

    let bare = load(&llama2_style()).unwrap();
    assert_eq!((bare.bos_token_id(), bare.eos_token_id()), (None, None));
    assert_eq!(*bare.generation_config(), GenerationConfig::default());
    assert_eq!(
        bare.tokenizer_info(300).unwrap_err().to_string(),
        "stop_token_ids is empty: name at least one token that ends the text"
    );
    // Configuration is not part of what the ids mean.
    assert_eq!(bare.fingerprint(), tokenizer.fingerprint());

    let one = load_with(
        &llama2_style(),
        &[("generation_config.json", r#"{"eos_token_id": 2}"#)],
    )
    .unwrap();
    assert_eq!(one.eos_token_id(), Some(2));
}

#[test]
fn settings_of_a_training_run_are_ignored() {
    let mut json = llama2_style();
    json["truncation"] =
        json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    json["padding"] = json!({"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "<unk>"});
    assert_eq!(
        load(&json).unwrap().encode("Hi Hi Hi", false).unwrap(),
        [263, 263, 263]
    );
}

#[test]
fn a_token_has_at_most_64_kib() {
    let mut json = llama2_style();
    json["model"]["vocab"]["a".repeat(1 << 16)] = json!(268);
    assert!(load(&json).is_ok());
    json["model"]["vocab"]["b".repeat((1 << 16) + 1)] = json!(269);
    let error = load(&json).unwrap_err().to_string();
    assert!(
        error.contains("model.vocab") && error.contains("a token of 65537 bytes"),
        "{error}"
    );
}

#[test]
fn ids_without_a_token_write_nothing() {
    let mut json = llama2_style();
    json["model"]["vocab"]["far"] = json!(400);
    let tokenizer = load(&json).unwrap();
    assert_eq!(tokenizer.vocab_size(), 401);
    assert_eq!(tokenizer.token_bytes(399), b"");
    assert_eq!(tokenizer.token_bytes(400), b"far");
    assert_eq!(tokenizer.id_to_token(399), None);
    assert_eq!(tokenizer.decode(&[399, 400, u32::MAX], false), "far");

    json["model"]["vocab"]["farther"] = json!(4_000_000_000_u32);
    assert_eq!(
        load(&json).unwrap_err().to_string(),
        "tokenizer.json: token id 4000000000 is far beyond its 268 tokens"
    );
}

#[test]
fn a_folder_and_memory_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("tokenizer.json"),
        llama2_style().to_string(),
    )
    .unwrap();
    std::fs::write(folder.path().join("chat_template.jinja"), "x").unwrap();
    let tokenizer = Tokenizer::from_files(folder.path()).unwrap();
    assert_eq!(
        tokenizer.fingerprint(),
        load(&llama2_style()).unwrap().fingerprint()
    );
    assert_eq!(tokenizer.chat_templates().names().count(), 1);
}

#[test]
fn a_missing_or_broken_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let error = |path: &std::path::Path| Tokenizer::from_files(path).unwrap_err().to_string();
    assert_eq!(
        error(&path.join("nowhere")),
        format!(
            "{} is not a folder: a tokenizer is a folder with a tokenizer.json, or a GGUF file",
            path.join("nowhere").display()
        )
    );
    assert_eq!(
        error(path),
        format!("tokenizer.json is missing in {}", path.display())
    );
    assert_eq!(
        Tokenizer::from_bytes(&[("a.json", b"")])
            .unwrap_err()
            .to_string(),
        "tokenizer.json is missing in the 1 given files [\"a.json\"]"
    );

    let broken = |text: &str| {
        let files: &[(&str, &[u8])] = &[("tokenizer.json", text.as_bytes())];
        Tokenizer::from_bytes(files).unwrap_err().to_string()
    };
    assert_eq!(
        broken("{\n  \"model\": }"),
        "tokenizer.json, line 2, column 12: expected value"
    );
    assert_eq!(
        broken("{\"version\": \"1.0\"}"),
        "tokenizer.json, line 1, column 18: missing field `model`"
    );
    let all = llama2_style().to_string();
    assert!(broken(&all[..all.len() / 2]).starts_with("tokenizer.json, line 1, column "));

    let beside = |name: &str, text: &str| {
        load_with(&llama2_style(), &[(name, text)])
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        beside(
            "tokenizer_config.json",
            "{\n\n\"eos_token\": \"</s>\"\n\"x\""
        ),
        "tokenizer_config.json, line 4, column 1: expected `,` or `}`"
    );
    assert_eq!(
        beside("tokenizer_config.json", r#"{"eos_token": "<end>"}"#),
        "tokenizer_config.json: eos_token is \"<end>\", which is no token of tokenizer.json"
    );
    assert_eq!(
        beside("generation_config.json", r#"{"eos_token_id": [2, 266]}"#),
        "generation_config.json: eos_token_id is 266, but the tokenizer's ids go from 0 to 265"
    );
    assert!(
        beside("generation_config.json", r#"{"top_p": "high"}"#).starts_with(
            "generation_config.json, line 1, column 16: invalid type: string \"high\", expected f32"
        )
    );
    let json = llama2_style().to_string();
    let files: &[(&str, &[u8])] = &[
        ("tokenizer.json", json.as_bytes()),
        ("chat_template.jinja", b"ab\xff"),
    ];
    assert_eq!(
        Tokenizer::from_bytes(files).unwrap_err().to_string(),
        "chat_template.jinja is not UTF-8: first wrong byte at 2"
    );
}

#[test]
fn an_unsupported_kind_is_refused_by_name() {
    let refused = |path: &str, value: Value| {
        let mut json = llama2_style();
        *json.pointer_mut(path).unwrap() = value;
        load(&json).unwrap_err().to_string()
    };
    for model in ["WordLevel", "Other"] {
        assert_eq!(
            refused("/model/type", json!(model)),
            format!(
                "tokenizer.json: model.type {model:?} is not supported; supported: BPE, Unigram or WordPiece"
            )
        );
    }
    for (decoder, named) in [
        (
            json!({"type": "WordPiece", "prefix": "@@", "cleanup": true}),
            "WordPiece",
        ),
        (json!({"type": "CTC"}), "CTC"),
        (
            json!({"type": "Strip", "content": " ", "start": 0, "stop": 1}),
            "Strip",
        ),
        (
            json!({"type": "Replace", "pattern": {"Regex": "▁"}, "content": " "}),
            "Replace",
        ),
        (Value::Null, "none"),
        (
            json!({"type": "Sequence", "decoders": [{"type": "Later"}]}),
            "Later",
        ),
    ] {
        let error = refused("/decoder", decoder);
        let start = format!(
            "tokenizer.json: decoder {named:?} is not supported; supported: ByteLevel, WordPiece, or"
        );
        assert!(error.starts_with(&start), "{error}");
    }
    let mut json = llama2_style();
    json["model"]["end_of_word_suffix"] = json!("</w>");
    assert_eq!(
        load(&json).unwrap_err().to_string(),
        "tokenizer.json: model.end_of_word_suffix \"</w>\" is not supported; supported: none"
    );
    // What the library itself refuses.
    let error = refused("/model/merges", json!([["H", "nothing"]]));
    assert!(error.starts_with("tokenizer.json: "), "{error}");
}

#[test]
fn two_texts_of_a_word_piece_have_types() {
    let tokens = ["[UNK]", "[CLS]", "[SEP]", "a", "cat", "##s", "."];
    let vocab: serde_json::Map<String, Value> = (tokens.iter().enumerate())
        .map(|(id, token)| ((*token).to_owned(), json!(id)))
        .collect();
    let special = |token: &str, id: u32| json!({"id": token, "ids": [id], "tokens": [token]});
    let text = |id: &str, type_id: u32| json!({"Sequence": {"id": id, "type_id": type_id}});
    let mark = |id: &str, type_id: u32| json!({"SpecialToken": {"id": id, "type_id": type_id}});
    let json = json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": null, "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing",
            "single": [mark("[CLS]", 0), text("A", 0), mark("[SEP]", 0)],
            "pair": [mark("[CLS]", 0), text("A", 0), mark("[SEP]", 0), text("B", 1), mark("[SEP]", 1)],
            "special_tokens": {"[CLS]": special("[CLS]", 1), "[SEP]": special("[SEP]", 2)}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab},
    });
    let tokenizer = load(&json).unwrap();
    let ids = |text: &str| tokenizer.encode(text, true).unwrap();
    // Nothing is cut, whatever the file says.
    assert_eq!(ids("A cats."), [1, 3, 4, 5, 6, 2]);
    assert_eq!(tokenizer.normalized_len("\u{ac01}A").unwrap(), 10);
    let plain = tokenizer.encode("A cats.", false).unwrap();
    assert_eq!(tokenizer.with_special_tokens(&plain), Some(ids("A cats.")));
    assert_eq!(tokenizer.with_special_tokens(&[]), Some(vec![1, 2]));
    let (pair, second) = tokenizer.encode_pair("cats", "a cat", true, None).unwrap();
    assert_eq!(pair, [1, 4, 5, 2, 3, 4, 2]);
    assert_eq!(second, Some(4));
    let (pair, second) = tokenizer.encode_pair("cats", "a cat", false, None).unwrap();
    assert_eq!((&pair[..], second), (&[4, 5, 3, 4][..], Some(2)));
    // What is too long is cut as the library cuts it, and every special token stays.
    let mut library = tokenizers::Tokenizer::from_bytes(json.to_string()).unwrap();
    for (first, second, max_length) in (0..6_usize)
        .flat_map(|first| (0..6_usize).map(move |second| (first, second)))
        .flat_map(|(first, second)| (3..15_usize).map(move |most| (first, second, most)))
    {
        library
            .with_truncation(Some(tokenizers::TruncationParams {
                max_length,
                ..Default::default()
            }))
            .unwrap();
        let (a, b) = ("a ".repeat(first), "cat ".repeat(second));
        let expected = library.encode((&*a, &*b), true).unwrap();
        let (pair, place) = tokenizer
            .encode_pair(&a, &b, true, Some(max_length))
            .unwrap();
        assert_eq!(pair, expected.get_ids(), "{first} {second} {max_length}");
        let types = expected.get_type_ids();
        assert_eq!(place, types.iter().position(|&id| id == 1));
    }
    let (pair, _) = tokenizer.encode_pair("a", "cat", true, Some(1)).unwrap();
    assert_eq!(pair, [1, 2, 2]);
    assert_eq!(tokenizer.decode(&[3, 4, 5], false), "a cats");
}

#[test]
fn what_the_library_panics_on_is_an_error() {
    // A sequence of post-processors is not looked into before a text is encoded.
    let mut json = llama2_style();
    json["post_processor"]["special_tokens"] = json!({});
    json["post_processor"] =
        json!({"type": "Sequence", "processors": [json["post_processor"].clone()]});
    let tokenizer = load(&json).unwrap();
    let error = tokenizer.encode("Hi", true).unwrap_err();
    assert!(matches!(error, TokenizerError::Encode { .. }), "{error}");
    assert!(error.to_string().contains("panicked"), "{error}");
}

#[test]
fn one_tokenizer_serves_all_threads() {
    fn shared_between_threads<T: Send + Sync>(_: &T) {}
    shared_between_threads(&load(&llama2_style()).unwrap());
}
