//! Files of a model that ask for more than their share, or that are no files of the model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use tokenizer::{Tokenizer, TokenizerError};

/// A byte-level BPE with one field replaced.
fn with(field: &str, value: Value) -> Value {
    let mut json = json!({
        "version": "1.0",
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                          "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                    "use_regex": true},
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "bc": 3}, "merges": [["b", "c"]]},
    });
    json[field] = value;
    json
}

fn load(json: &Value) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_bytes(&[("tokenizer.json", json.to_string().as_bytes())])
}

fn refusal(field: &str, value: Value) -> String {
    load(&with(field, value)).unwrap_err().to_string()
}

fn sequence(normalizers: &[Value]) -> Value {
    json!({"type": "Sequence", "normalizers": normalizers})
}

fn replace(pattern: Value, content: &str) -> Value {
    json!({"type": "Replace", "pattern": pattern, "content": content})
}

/// A charsmap of this trie and these texts.
fn precompiled(declared: u32, units: &[u32], texts: &[u8]) -> Value {
    let mut bytes = declared.to_le_bytes().to_vec();
    bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    bytes.extend(texts);
    json!({"type": "Precompiled", "precompiled_charsmap": base64::encode(bytes)})
}

/// A trie of two blocks in which `a` leads to the text at `value`.
fn trie(value: u32) -> Vec<u32> {
    let mut units = vec![0; 512];
    units[0] = 256 << 10;
    units[257] = value;
    units[256 ^ 97] = 97 | 1 << 8 | (((256 ^ 97) ^ 257) << 10);
    units
}

#[test]
fn a_charsmap_is_checked_before_the_library_believes_it() {
    let tokenizer = load(&with("normalizer", precompiled(2048, &trie(0), b"bc\0"))).unwrap();
    assert_eq!(tokenizer.encode("aab", false).unwrap(), [3, 3, 1]);

    let start = "tokenizer.json: normalizer.precompiled_charsmap";
    let end = "is not supported; supported: SentencePiece's format";
    // 20 bytes that ask for 8.6 GB.
    let huge = precompiled(u32::MAX, &[0; 4], b"");
    assert_eq!(
        refusal("normalizer", huge.clone()),
        format!("{start} \"a trie that is longer than the charsmap\" {end}")
    );
    assert!(refusal("normalizer", sequence(&[sequence(&[huge])])).starts_with(start));
    for (charsmap, what) in [
        (
            precompiled(2048, &trie(4), b"bc\0"),
            "a trie that leads out of itself",
        ),
        (
            precompiled(2048, &trie(1), "é\0".as_bytes()),
            "a trie that leads out of itself",
        ),
        (precompiled(4, &[0], b""), "a trie that leads out of itself"),
        (precompiled(0, &[], b""), "a trie that leads out of itself"),
        (
            precompiled(2048, &trie(0), b"\xff"),
            "texts that are not UTF-8",
        ),
    ] {
        assert_eq!(
            refusal("normalizer", charsmap),
            format!("{start} {what:?} {end}")
        );
    }
    for text in ["AA", "??", ""] {
        let charsmap = json!({"type": "Precompiled", "precompiled_charsmap": text});
        assert!(refusal("normalizer", charsmap).starts_with(start));
    }
    let long = "b".repeat(100) + "\0";
    assert_eq!(
        refusal("normalizer", precompiled(2048, &trie(0), long.as_bytes())),
        "tokenizer.json: normalizer \"a sequence that may make 100 bytes of one\" is not supported; \
         supported: normalizers that make at most 64 bytes of one"
    );
}

#[test]
fn normalizers_that_multiply_a_text_are_refused() {
    let grow = |normalizers: &[Value]| load(&with("normalizer", sequence(normalizers)));
    let text = |from: &str, to: &str| replace(json!({"String": from}), to);
    let regex = |from: &str, to: &str| replace(json!({"Regex": from}), to);
    // What published tokenizers have.
    let metaspace = [json!({"type": "Prepend", "prepend": "▁"}), text(" ", "▁")];
    grow(&metaspace).unwrap();
    grow(&[json!({"type": "NFKC"}), text(" ", "▁")]).unwrap();
    grow(&[
        json!({"type": "NFC"}),
        regex(r"\s+", " "),
        json!({"type": "Lowercase"}),
    ])
    .unwrap();
    grow(&[regex("``", "\""), regex("''", "\""), regex(" {2,}", " ")]).unwrap();
    grow(&[text("aa", "bb"), text("bbbb", "cccc")]).unwrap();

    let nine = text("a", "aaaaaaaaa");
    for (normalizers, growth) in [
        (vec![nine.clone(); 5], 59_049),
        (vec![text("a", &"a".repeat(65))], 65),
        (vec![text("", &"a".repeat(64))], 65),
        (vec![regex("a*", &"a".repeat(64))], 65),
        (vec![regex("(?=a)", &"a".repeat(64))], 65),
        (vec![regex("aa|aaa", &"a".repeat(130))], 65),
        (
            vec![json!({"type": "Prepend", "prepend": "a".repeat(64)})],
            65,
        ),
        (vec![json!({"type": "NFKD"}); 2], 121),
        (
            vec![sequence(&[nine.clone(), nine.clone()]), nine.clone()],
            729,
        ),
    ] {
        let Err(error) = grow(&normalizers) else {
            panic!("{growth} is not refused");
        };
        assert_eq!(
            error.to_string(),
            format!(
                "tokenizer.json: normalizer \"a sequence that may make {growth} bytes of one\" is \
                 not supported; supported: normalizers that make at most 64 bytes of one"
            )
        );
    }
}

#[test]
fn steps_without_a_type_are_counted_by_their_members() {
    let replace = json!({"type": "Replace", "pattern": {"Regex": "."}, "content": "a".repeat(60)});
    let mut untyped = replace.clone();
    untyped.as_object_mut().unwrap().remove("type");
    let lists = [
        json!({"normalizers": [replace, replace]}),
        json!({"type": "Unknown", "normalizers": [replace, replace]}),
        json!({"type": "Sequence", "normalizers": [untyped, untyped]}),
        json!({"type": "Strip", "normalizers": [replace, untyped]}),
    ];
    for normalizer in lists {
        let error = refusal("normalizer", normalizer);
        assert!(error.contains("may make 3600 bytes of one"), "{error}");
    }
    let error = refusal("normalizer", json!([[replace, replace]]));
    assert!(error.ends_with("supported: objects"), "{error}");
}

#[test]
fn long_lists_are_refused() {
    let supported = |field: &str, value: Value| {
        let error = refusal(field, value);
        error.rsplit_once("; supported: ").unwrap().1.to_owned()
    };
    assert_eq!(
        supported("normalizer", sequence(&vec![json!({"type": "Strip"}); 100])),
        "at most 32 steps"
    );
    let step = json!({"type": "Digits", "individual_digits": true});
    assert_eq!(
        supported(
            "pre_tokenizer",
            json!({"type": "Sequence", "pretokenizers": vec![step; 100]})
        ),
        "at most 32 steps"
    );
    let split = json!({"type": "Split", "pattern": {"Regex": "a".repeat(5000)},
                       "behavior": "Isolated", "invert": false});
    assert_eq!(
        supported("pre_tokenizer", split),
        "patterns and contents of at most 4,096 bytes"
    );
    let token = |id: usize| {
        json!({"id": id, "content": format!("<{id}>"), "special": true, "single_word": false,
               "lstrip": false, "rstrip": false, "normalized": false})
    };
    assert_eq!(
        supported("added_tokens", (4..70_000).map(token).collect()),
        "at most 65,536 tokens"
    );
    let template = |single: Value, ids: usize| {
        json!({"type": "TemplateProcessing", "single": single, "pair": [],
               "special_tokens": {"a": {"id": "a", "ids": vec![0; ids], "tokens": vec!["a"; ids]}}})
    };
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let special = json!({"SpecialToken": {"id": "a", "type_id": 0}});
    for (processor, what) in [
        (
            template(json!([text, text]), 1),
            "at most 16 pieces, and each text once",
        ),
        (
            template(json!("$A a $A"), 1),
            "at most 16 pieces, and each text once",
        ),
        (
            template(json!(vec![special; 17]), 1),
            "at most 16 pieces, and each text once",
        ),
        (template(json!([text]), 257), "at most 256 ids"),
    ] {
        assert_eq!(supported("post_processor", processor.clone()), what);
        let nested = json!({"type": "Sequence", "processors": [processor]});
        assert_eq!(supported("post_processor", nested), what);
    }
}

/// Before the library reads them, which takes a hundred times their bytes.
#[test]
fn merges_and_long_parts_are_counted_first() {
    let model = |merges: usize| json!({"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "bc": 3}, "merges": vec![["b", "c"]; merges]});
    assert!(load(&with("model", model(16))).is_ok());
    assert_eq!(
        refusal("model", model(17)),
        "tokenizer.json: model.merges \"17 merges\" is not supported; supported: at most 1,000,000 merges, and four for \
         each token of the vocabulary"
    );
    let long = replace(json!({"String": "a"}), &"b".repeat(5 << 20));
    let said = refusal("normalizer", long);
    assert!(
        said.contains("a part of 5242") && said.contains("at most 4194304 are supported"),
        "{said}"
    );
}

#[test]
fn parts_of_many_values_are_refused_wherever_they_stand() {
    let nest: Value = serde_json::from_str(&("[".repeat(90) + &"]".repeat(90))).unwrap();
    let nests = Value::from(vec![nest; 100]);
    let model = json!({"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "bc": 3}, "merges": [["b", "c"]], "x": nests});
    for (field, value) in [
        ("model", model),
        ("pre_tokenizer", json!({"type": "ByteLevel", "x": nests})),
        ("post_processor", json!({"type": "ByteLevel", "x": nests})),
        ("decoder", json!({"type": "ByteLevel", "x": nests})),
        ("normalizer", json!({"type": "NFC", "x": nests})),
    ] {
        let said = refusal(field, value);
        assert!(
            said.contains("values: at most 8192 are supported"),
            "{said}"
        );
    }
}

#[test]
fn far_off_ids_make_no_table() {
    let model = json!({"type": "BPE", "vocab": {"a": 0, "b": 4_000_000_000_u32}, "merges": []});
    assert_eq!(
        refusal("model", model),
        "tokenizer.json: token id 4000000000 is far beyond its 2 tokens"
    );
}

#[test]
fn a_backtracking_pattern_gives_up() {
    // Exponential where nothing stops it; the library's engine stops after a million steps.
    let split = json!({"type": "Split", "pattern": {"Regex": "(?=(a|aa)+$)b|a"},
                       "behavior": "Isolated", "invert": false});
    let tokenizer = load(&with("pre_tokenizer", split)).unwrap();
    drop(tokenizer.encode(&("a".repeat(40) + "!"), false));
}

fn error_of(folder: &Path) -> String {
    let error = Tokenizer::from_files(folder).unwrap_err().to_string();
    error.replace(folder.to_str().unwrap(), "MODEL")
}

#[test]
fn files_outside_of_the_folder_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let json = with("normalizer", Value::Null).to_string();
    std::fs::write(folder.path().join("tokenizer.json"), json).unwrap();
    Tokenizer::from_files(folder.path()).unwrap();
    for file in [
        "chat_template.jinja",
        "tokenizer_config.json",
        "generation_config.json",
    ] {
        let link = folder.path().join(file);
        symlink("/proc/self/environ", &link).unwrap();
        assert_eq!(
            error_of(folder.path()),
            format!(
                "MODEL/{file} is a link to /proc/{}/environ, outside of the model's folder: a file \
                 must lie in the folder, or in the blobs of the same repository of the Hugging Face \
                 Hub's cache",
                std::process::id()
            )
        );
        std::fs::remove_file(&link).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &link, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(
            error_of(folder.path()),
            format!("MODEL/{file} is a pipe, not a regular file")
        );
        std::fs::remove_file(&link).unwrap();
        let large = std::fs::File::create(&link).unwrap();
        large.set_len((16 << 20) + 1).unwrap();
        assert_eq!(
            error_of(folder.path()),
            format!("MODEL/{file} has 16777217 bytes; at most 16777216 are read of such a file")
        );
        std::fs::remove_file(&link).unwrap();
    }
}
