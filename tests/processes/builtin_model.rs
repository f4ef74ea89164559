//! The built-in model through the engine: the README's first command, answer by answer.

use std::fs;
use std::process::Stdio;

use integration_tests::{formwork_batch, workspace};
use serde_json::Value;

#[test]
fn the_examples_answers_are_the_ones_that_the_weights_give() {
    let examples = workspace().join("builtin-model/examples");
    let expected = fs::read_to_string(examples.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let expected = expected.as_object().unwrap();
    assert!(expected.len() >= 9);

    // Both formats of the weights, and the folder as an ordinary checkpoint.
    let folder = workspace().join("builtin-model/model");
    let folder = folder.to_str().unwrap();
    for arguments in [
        &["--dtype", "float32"][..],
        &["--dtype", "bfloat16"],
        &["--dtype", "float32", "--backend", "candle"],
        &["--dtype", "float32", "--model", folder],
    ] {
        let requests = fs::read_to_string(examples.join("prompts.jsonl")).unwrap();
        let requests = requests.lines().map(|line| {
            let mut request: Value = serde_json::from_str(line).unwrap();
            request["body"]["return_token_ids"] = true.into();
            request["body"]["skip_special_tokens"] = false.into();
            request.to_string() + "\n"
        });
        let batch = tempfile::tempdir().unwrap();
        let input = batch.path().join("input.jsonl");
        fs::write(&input, requests.collect::<String>()).unwrap();
        let mut command = formwork_batch();
        command
            .arg("-i")
            .arg(&input)
            .args(["-o", "-"])
            .args(arguments);
        let output = command.stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success());

        let mut answered = 0;
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let result: Value = serde_json::from_str(line).unwrap();
            let name = result["custom_id"].as_str().unwrap();
            let expected = &expected[name];
            let body = &result["response"]["body"];
            let choice = &body["choices"][0];
            assert_eq!(
                body["prompt_token_ids"], expected["prompt_token_ids"],
                "{name}"
            );
            // The token that ends the answer is counted by the engine, not by the expectation.
            let mut token_ids = choice["token_ids"].as_array().unwrap().clone();
            let reason = match choice["finish_reason"].as_str().unwrap() {
                "tool_calls" => "stop",
                reason => reason,
            };
            assert_eq!(reason, expected["finish_reason"], "{name}");
            if reason == "stop" {
                token_ids.pop();
            }
            assert_eq!(
                Value::Array(token_ids),
                expected["token_ids"],
                "{name} {arguments:?}"
            );
            let call = &choice["message"]["tool_calls"][0]["function"];
            let call = call["name"].as_str().map(|function| {
                let arguments = call["arguments"].as_str().unwrap();
                let call = format!("{{\"name\": \"{function}\", \"arguments\": {arguments}}}");
                format!("<tool_call>\n{call}\n</tool_call>")
            });
            let content = choice["message"]["content"].as_str().unwrap_or_default();
            let content = call.as_deref().unwrap_or(content);
            let text = match choice["message"]["reasoning_content"].as_str() {
                Some(thought) => format!("<think>{thought}</think>{content}"),
                None => content.to_owned(),
            };
            assert_eq!(text, expected["text"].as_str().unwrap(), "{name}");
            answered += 1;
        }
        assert_eq!(answered, expected.len());
    }
}

/// The README's first command.
#[test]
fn the_examples_are_printed_with_calls_as_programmers_write_them() {
    let examples = workspace().join("builtin-model/examples/prompts.jsonl");
    let mut command = formwork_batch();
    let output = command.arg("-i").arg(&examples).output().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let call = "> What is the weather in Lisbon?\nget_weather({\"city\": \"Lisbon\"})\n";
    assert!(printed.contains(call), "{printed}");
    assert!(!printed.contains("tool_call"), "{printed}");
}

#[test]
fn plain_prompts_print_plain_answers() {
    let expected = workspace().join("builtin-model/examples/expected.json");
    let expected: Value = serde_json::from_str(&fs::read_to_string(expected).unwrap()).unwrap();
    let mut command = formwork_batch();
    command.args(["--temperature", "0", "--prompt"]);
    command.arg("Classify this sentiment: Formwork is wonderful!");
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    let answer = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answer.trim(), expected["sentiment"]["text"]);
}
