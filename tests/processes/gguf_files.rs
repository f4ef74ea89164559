//! Models in GGUF files through both processes.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use integration_tests::{formwork_batch, workspace};
use serde_json::Value;

use crate::converter::{convert, floats};
use crate::writer::GgufWriter;

/// The built-in model with its tokenizer, in bfloat16. No name stands for the way in which its
/// tokenizer cuts words, so its `tokenizer.json` goes along.
pub(crate) fn built_in_model() -> GgufWriter {
    let folder = workspace().join("builtin-model/model");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let json: Value = serde_json::from_str(&read("tokenizer.json")).unwrap();
    let config: Value = serde_json::from_str(&read("tokenizer_config.json")).unwrap();
    let mut tokens = vec![String::new(); 4096];
    let mut types = vec![1; 4096];
    for (token, id) in json["model"]["vocab"].as_object().unwrap() {
        tokens[id.as_u64().unwrap() as usize].clone_from(token);
    }
    for added in json["added_tokens"].as_array().unwrap() {
        let id = added["id"].as_u64().unwrap() as usize;
        added["content"]
            .as_str()
            .unwrap()
            .clone_into(&mut tokens[id]);
        types[id] = if added["special"] == true { 3 } else { 4 };
    }
    let mut writer = convert(&folder, &floats(30));
    writer
        .str("tokenizer.ggml.model", "gpt2")
        .strings("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &types)
        .u32("tokenizer.ggml.eos_token_id", 4091)
        .str("tokenizer.huggingface.json", &read("tokenizer.json"))
        .str(
            "tokenizer.chat_template",
            config["chat_template"].as_str().unwrap(),
        );
    writer
}

fn run(arguments: &[&str], model: Option<&Path>) -> Output {
    let mut command = formwork_batch();
    command.args(arguments).stderr(Stdio::piped());
    if let Some(model) = model {
        command.arg("--model").arg(model);
    }
    command.output().unwrap()
}

#[test]
fn a_file_gives_the_answers_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("built-in.gguf");
    built_in_model().write(&file).unwrap();
    for arguments in [
        &[
            "--temperature",
            "0",
            "--prompt",
            "Generate a JSON with the brand and model of a car.",
        ][..],
        &[
            "--temperature",
            "0",
            "--max-tokens",
            "60",
            "--prompt",
            "Hello, who are you?",
        ],
        &[
            "--dtype",
            "float32",
            "--temperature",
            "0",
            "--prompt",
            "Classify this sentiment: bad!",
        ],
    ] {
        let expected = run(arguments, None);
        assert!(expected.status.success());
        let found = run(arguments, Some(&file));
        let errors = String::from_utf8_lossy(&found.stderr);
        assert!(found.status.success(), "{errors}");
        assert_eq!(
            String::from_utf8(found.stdout).unwrap(),
            String::from_utf8(expected.stdout).unwrap(),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_file_answers_within_a_schema() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("built-in.gguf");
    built_in_model().write(&file).unwrap();
    let request = serde_json::json!({
        "custom_id": "1", "method": "POST", "url": "/v1/chat/completions",
        "body": {
            "messages": [{"role": "user", "content": "Name a car."}],
            "temperature": 0,
            "response_format": {"type": "json_schema", "json_schema": {"name": "car", "schema": {
                "type": "object", "properties": {"doors": {"enum": [3, 5]}}, "required": ["doors"],
                "additionalProperties": false}}},
        },
    });
    let input = folder.path().join("input.jsonl");
    fs::write(&input, format!("{request}\n")).unwrap();
    let output = run(&["-i", input.to_str().unwrap(), "-o", "-"], Some(&file));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let body = &answer["response"]["body"];
    let content = body["choices"][0]["message"]["content"].as_str().unwrap();
    let content: Value = serde_json::from_str(content).unwrap();
    // `5.0` is 5.
    let doors = content["doors"].as_f64();
    assert!(doors == Some(3.0) || doors == Some(5.0), "{content}");
}

#[test]
fn files_that_cannot_be_served_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.gguf");
    let error = || {
        let output = run(&["--prompt", "x"], Some(&file));
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    fs::write(&file, "PK").unwrap();
    let message = error();
    assert!(message.contains("not a GGUF file"), "{message}");
    let bytes = built_in_model().bytes();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let message = error();
    assert!(message.contains("the file ends at byte"), "{message}");
    // Without a tokenizer.
    convert(&workspace().join("builtin-model/model"), &floats(30))
        .write(&file)
        .unwrap();
    let message = error();
    assert!(message.contains("tokenizer.ggml.tokens"), "{message}");
}
