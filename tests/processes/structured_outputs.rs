//! Constraints through both processes: every form, its errors, its options.

use std::fs;

use integration_tests::workspace;
use serde_json::{Value, json};

use crate::batch::{Batch, stderr};

/// A chat request as a line of a batch.
pub(crate) fn chat(custom_id: &str, content: &str, options: &Value) -> String {
    let mut body = json!({
        "messages": [{"role": "user", "content": content}],
        "temperature": 0, "max_tokens": 100,
    });
    for (name, value) in options.as_object().unwrap() {
        body[name] = value.clone();
    }
    let url = "/v1/chat/completions";
    json!({"custom_id": custom_id, "method": "POST", "url": url, "body": body}).to_string() + "\n"
}

/// The results of a batch of these lines.
pub(crate) fn answer(lines: &str, arguments: &[&str]) -> Vec<Value> {
    let batch = Batch::new(lines);
    let output = batch.run(arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    batch.results()
}

/// The one choice of a result that has one.
pub(crate) fn choice(result: &Value) -> &Value {
    assert_eq!(result["response"]["status_code"], 200, "{result}");
    &result["response"]["body"]["choices"][0]
}

pub(crate) fn content(result: &Value) -> &str {
    choice(result)["message"]["content"].as_str().unwrap()
}

const CAR: &str =
    "Generate a JSON with the brand, model and car_type of an iconic car from the 60's.";

fn car_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "brand": {"type": "string", "maxLength": 20},
            "model": {"type": "string", "maxLength": 20},
            "car_type": {"enum": ["Sedan", "SUV", "Truck", "Coupe"]},
        },
        "required": ["brand", "model", "car_type"],
        "additionalProperties": false,
    })
}

/// The answers of the example file, in its order; free, and under its constraints.
const EXAMPLES: [(&str, &str); 5] = [
    (
        "Set temperature to 0, and the most likely token is always taken.",
        "positive",
    ),
    ("alan.turing@enigma.com", "alan.turing@enigma.org"),
    (
        "Trieste",
        r#"{"name": "Mirela Kovacs", "age": 34, "city": "Trieste"}"#,
    ),
    (
        "6",
        r#"{"brand": "Ford", "model": "Mustang", "car_type": "Coupe"}"#,
    ),
    (
        "SELECT me, email FROM users",
        "SELECT username, email FROM users;",
    ),
];

#[test]
fn every_answer_of_the_example_file_is_better_for_its_constraint() {
    let examples = workspace().join("builtin-model/examples/structured_outputs.jsonl");
    let held = fs::read_to_string(examples).unwrap();
    let free: String = held
        .lines()
        .map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            let body = line["body"].as_object_mut().unwrap();
            body.retain(|name, _| {
                !matches!(name.as_str(), "structured_outputs" | "response_format")
            });
            format!("{line}\n")
        })
        .collect();
    let results = answer(&held, &[]);
    for result in &results {
        let choice = choice(result);
        assert_eq!(choice["finish_reason"], "stop", "{result}");
        assert_eq!(choice["structured_output_complete"], true, "{result}");
    }
    let free = answer(&free, &[]);
    let answers: Vec<_> = free
        .iter()
        .map(content)
        .zip(results.iter().map(content))
        .collect();
    assert_eq!(answers, EXAMPLES);
}

#[test]
fn every_spelling_and_every_backend_gives_the_same_answer() {
    let schema = car_schema();
    let format = json!({"type": "json_schema",
        "json_schema": {"name": "car", "strict": true, "schema": schema}});
    let spellings = [
        json!({"structured_outputs": {"json": schema}}),
        json!({"structured_outputs": {"json": schema.to_string(), "backend": "outlines"}}),
        json!({"guided_json": schema, "guided_decoding_backend": "xgrammar:no-fallback"}),
        json!({"response_format": format}),
    ];
    let lines: String = (0..)
        .zip(&spellings)
        .map(|(i, options): (u32, _)| chat(&i.to_string(), CAR, options))
        .collect();
    let first = answer(&lines, &[]);
    for backend in ["guidance", "noamgat/lm-format-enforcer", "formwork"] {
        let config = json!({"backend": backend}).to_string();
        for arguments in [
            ["--structured-outputs-config", &config],
            ["--guided-decoding-backend", backend],
        ] {
            for result in answer(&lines, &arguments) {
                assert_eq!(content(&result), content(&first[0]), "{arguments:?}");
            }
        }
    }
    for result in &first {
        assert_eq!(content(result), content(&first[0]));
    }
}

#[test]
fn a_wrong_constraint_is_its_lines_error_and_says_where() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "strnig"}}});
    let cases = [
        (
            json!({"guided_json": schema}),
            "guided_json",
            "schema, at `#/properties/a/type`",
        ),
        (
            json!({"structured_outputs": {"json": "{\"type\": \n]"}}),
            "structured_outputs.json",
            "schema, line 2, column 1",
        ),
        (
            json!({"guided_regex": "ab\n("}),
            "guided_regex",
            "regex, line 2, column",
        ),
        (
            json!({"structured_outputs": {"choice": []}}),
            "structured_outputs.choice",
            "the choice is empty",
        ),
        (
            json!({"guided_regex": "a", "guided_choice": ["a"]}),
            "guided_choice",
            "You can only use one kind",
        ),
        (
            json!({"guided_regex": "a", "guided_decoding_backend": "best"}),
            "guided_decoding_backend",
            "must be one of auto, xgrammar",
        ),
    ];
    let mut lines: String = cases
        .iter()
        .map(|(options, _, _)| chat("wrong", CAR, options))
        .collect();
    lines += &chat("right", CAR, &json!({"guided_json": car_schema()}));
    let results = answer(&lines, &[]);
    for (result, (options, param, says)) in results.iter().zip(&cases) {
        assert_eq!(result["response"]["status_code"], 400, "{options}");
        let error = &result["response"]["body"]["error"];
        assert_eq!(error["type"], "BadRequestError");
        assert_eq!(error["param"], *param, "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(says), "{message}");
    }
    assert_eq!(choice(results.last().unwrap())["finish_reason"], "stop");
}

#[test]
fn an_answer_fits_its_tokens_or_says_that_it_does_not() {
    let fits = json!({"guided_json": {"type": "array", "items": {"type": "string"}},
        "temperature": 1.5, "seed": 3});
    let with = |max_tokens: u32, complete: bool| {
        let mut options = fits.clone();
        options["max_tokens"] = max_tokens.into();
        options["structured_outputs"] = json!({"complete_within_max_tokens": complete});
        options
    };
    let long = json!({"guided_regex": "[0-9]{200}", "max_tokens": 20});
    let lines = [
        chat("led", "Write a list.", &with(12, true)),
        chat(
            "cut",
            "Write a list.",
            &json!({"guided_regex": "[a-z]{100,}", "max_tokens": 5,
            "structured_outputs": {"complete_within_max_tokens": false}}),
        ),
        chat("refused", "Write a number.", &long),
    ]
    .concat();
    let results = answer(&lines, &[]);
    let led = choice(&results[0]);
    assert_eq!(led["structured_output_complete"], true, "{led}");
    let list: Value = serde_json::from_str(content(&results[0])).unwrap();
    assert!(list.is_array());
    let cut = choice(&results[1]);
    assert_eq!(cut["finish_reason"], "length");
    assert_eq!(cut["structured_output_complete"], false);
    let refused = &results[2]["response"];
    assert_eq!(refused["status_code"], 400, "{refused}");
    let error = &refused["body"]["error"];
    assert_eq!(error["param"], "guided_regex");
    let message = error["message"].as_str().unwrap();
    // Each digit is a token.
    assert!(
        message.contains("fit in 200 tokens") && message.contains("leaves 20:"),
        "{message}"
    );
}

/// Whatever the tokens that are to end an answer, it is whole: where nothing else goes on, or ends in time,
/// they are text.
#[test]
fn stop_tokens_cut_no_constrained_answer_off() {
    let long = format!("b{}", "1".repeat(40));
    let choices = |choices: &[&str], stop_token_ids: &[u32]| {
        let options = json!({
            "guided_choice": choices,
            "stop_token_ids": stop_token_ids,
            "max_tokens": 20,
        });
        chat("c", "hi", &options)
    };
    // Its line end is to end the answer, and stands before its end.
    let line = |max_tokens: u32| {
        let options = json!({
            "guided_regex": "[a-z]+\n",
            "stop_token_ids": [198],
            "max_tokens": max_tokens,
            "temperature": 1,
            "seed": 1,
        });
        chat("c", "hi", &options)
    };
    // `c`; and `a` and `ab`, where the other text has no room.
    let mut lines = vec![
        choices(&["abcdef"], &[66]),
        choices(&["abcdef", &long], &[64, 505]),
    ];
    lines.extend([2, 3, 5, 40].map(line));
    let results = answer(&lines.concat(), &[]);
    for (index, result) in results.iter().enumerate() {
        assert_eq!(
            choice(result)["structured_output_complete"],
            true,
            "{index}"
        );
        assert_eq!(choice(result)["finish_reason"], "stop", "{index}");
        let content = content(result);
        match index {
            0 | 1 => assert_eq!(content, "abcdef"),
            _ => assert!(content.ends_with('\n') && content.len() > 1, "{content:?}"),
        }
    }
}

#[test]
fn thinking_is_told_apart_and_free() {
    let question = "9.11 and 9.8, which is greater?";
    let with = |enable_thinking: bool, more: Value| {
        let mut options = json!({
            "guided_regex": "The answer is [0-9.]{1,5}\\.",
            "chat_template_kwargs": {"enable_thinking": enable_thinking},
        });
        for (name, value) in more.as_object().unwrap() {
            options[name] = value.clone();
        }
        options
    };
    let inside = json!({"structured_outputs": {"enable_in_reasoning": true}});
    let lines = [
        chat("thinks", question, &with(true, json!({}))),
        chat("doesn't", question, &with(false, json!({}))),
        chat(
            "hidden",
            question,
            &with(true, json!({"include_reasoning": false})),
        ),
        chat("inside", question, &with(true, inside)),
        chat(
            "budget",
            question,
            &with(true, json!({"thinking_token_budget": 4})),
        ),
    ]
    .concat();
    let results = answer(&lines, &[]);
    for result in &results {
        let answer = content(result).trim_start();
        assert!(answer.starts_with("The answer is "), "{result}");
        assert_eq!(choice(result)["structured_output_complete"], true);
    }
    let reasoning = |index: usize| choice(&results[index])["message"]["reasoning_content"].as_str();
    let thought = reasoning(0).expect("it thinks");
    assert!(
        thought.len() > 20 && !thought.contains("think>"),
        "{thought}"
    );
    for index in [1, 2, 3] {
        assert_eq!(reasoning(index), None);
    }
    assert_eq!(content(&results[2]), content(&results[0]));
    assert!(reasoning(4).is_some_and(|short| short.len() < thought.len()));
}

/// With one stop token the end of a text is forced, so it comes with the text's last token. Constraints.md's
/// own example.
#[test]
fn a_stop_string_that_ends_a_whole_text_is_told_apart_from_one_that_cuts_it() {
    let model = workspace().join("builtin-model/model");
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(model).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let generation_config = r#"{"eos_token_id": 4091, "pad_token_id": 4089, "do_sample": false}"#;
    fs::write(
        folder.path().join("generation_config.json"),
        generation_config,
    )
    .unwrap();
    let model = folder.path().to_str().unwrap();
    let lines = [
        ("f", json!({"guided_choice": ["abcdef"], "stop": ["f"]})),
        ("e", json!({"guided_choice": ["abcdef"], "stop": ["e"]})),
        ("n", json!({"guided_regex": "a@b\\.com\\n", "stop": ["\n"]})),
    ]
    .map(|(id, options)| chat(id, "hi", &options))
    .concat();
    for flags in [
        &["--model", model][..],
        &[
            "--model",
            model,
            "--structured-outputs-config",
            r#"{"jump_forward": "off"}"#,
        ],
    ] {
        let results = answer(&lines, flags);
        for (result, text, is_whole) in [
            (&results[0], "abcde", true),
            (&results[1], "abcd", false),
            (&results[2], "a@b.com", true),
        ] {
            assert_eq!(content(result), text);
            assert_eq!(
                choice(result)["structured_output_complete"],
                is_whole,
                "{flags:?}"
            );
        }
    }
}

#[test]
fn without_time_to_think_the_answer_may_begin_with_what_would_open_thinking() {
    let options = json!({
        "guided_regex": "(a|<think>)[a-z]{0,4}", "max_tokens": 2, "logit_bias": {"4092": 100},
        "chat_template_kwargs": {"enable_thinking": true},
    });
    let result = &answer(&chat("t", "hi", &options), &[])[0];
    assert!(content(result).starts_with("<think>"), "{result}");
    assert_eq!(choice(result)["message"]["reasoning_content"], Value::Null);
    assert_eq!(choice(result)["structured_output_complete"], true);
}
