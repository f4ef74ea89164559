//! Thinking that a server tells apart by other marks than the model's own.

use serde_json::{Value, json};

use super::support::{Server, chat, formwork};

const CHAT: &str = "/v1/chat/completions";

/// A server that tells thinking apart by these markers, with these flags besides.
fn server(markers: &Value, flags: &[&str]) -> Server {
    let config = json!({"thinking_markers": markers}).to_string();
    let config = ["--structured-outputs-config", &config];
    Server::start(&[&config, flags].concat())
}

/// The command fails with these markers, and says this.
fn refused(markers: &Value, says: &str) {
    let config = json!({"thinking_markers": markers}).to_string();
    let mut command = formwork();
    command.args(["serve", "--port", "0", "--structured-outputs-config"]);
    let output = command.arg(&config).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(says), "{said}");
}

/// The thinking and the content of a stream.
fn streamed(server: &Server, body: &Value) -> (String, String) {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let (mut thought, mut text) = (String::new(), String::new());
    for event in server.post(CHAT, &body).events() {
        let delta = &event["choices"][0]["delta"];
        text.push_str(delta["content"].as_str().unwrap_or_default());
        thought.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
    }
    (thought, text)
}

/// A model that writes answers into a channel: its header comes before each, and is no part of any.
#[test]
fn a_header_of_answers_is_written_and_not_told() {
    let markers = json!({"start": "<think>", "end": "</think>", "answer": "<|im_start|>final\n"});
    let server = server(&markers, &[]);
    let header = json!({"prompt": "<|im_start|>final\n", "add_special_tokens": false});
    let header = server.post("/tokenize", &header).json()["tokens"].take();
    let header = header.as_array().unwrap();
    let mut body = chat("Is this good? I love it.", 400);
    body["structured_outputs"] = json!({"choice": ["positive", "negative"]});
    body["chat_template_kwargs"] = json!({"enable_thinking": true});
    body["return_token_ids"] = json!(true);
    let whole = server.post(CHAT, &body).json()["choices"][0].take();
    let message = &whole["message"];
    let content = message["content"].as_str().unwrap();
    assert!(["positive", "negative"].contains(&content), "{whole}");
    assert!(message["reasoning_content"].is_string(), "{whole}");
    let token_ids = whole["token_ids"].as_array().unwrap();
    let has_header = token_ids.windows(header.len()).any(|ids| ids == header);
    assert!(header.len() > 1 && has_header, "{header:?} {token_ids:?}");
    let thought = message["reasoning_content"].as_str().unwrap();
    assert_eq!(
        streamed(&server, &body),
        (thought.to_owned(), content.to_owned())
    );
    // No token of it has this beginning.
    refused(
        &json!({"start": "<think>", "end": "</think>", "answer": "final"}),
        "\"final\"",
    );
}

/// The built-in model never writes these marks, but where the mask leaves it nothing else.
const PLAIN_START: &str = "Let me think:";
const PLAIN_END: &str = "So my answer is:";

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                        {% if add_generation_prompt %}<|im_start|>assistant\n";

#[test]
fn a_constraint_begins_behind_a_mark_of_plain_text() {
    let markers = json!({"start": PLAIN_START, "end": PLAIN_END, "text": true});
    let opened = format!("{TEMPLATE}{PLAIN_START}{{% endif %}}");
    let server = server(&markers, &["--chat-template", &opened]);
    let mut body = chat("What is 2 + 3?", 40);
    body["return_token_ids"] = json!(true);
    let constraints = [
        ("guided_regex", json!("[0-9]{1,3}")),
        ("guided_choice", json!(["positive", "negative"])),
        (
            "guided_json",
            json!({
                "type": "object", "properties": {"sum": {"enum": [4, 5]}}, "required": ["sum"],
                "additionalProperties": false,
            }),
        ),
    ];
    for (field, constraint) in constraints {
        for max_tokens in [20, 40, 41, 43] {
            let mut body = body.clone();
            body[field] = constraint.clone();
            body["max_tokens"] = json!(max_tokens);
            let whole = server.post(CHAT, &body).json();
            let choice = &whole["choices"][0];
            let content = choice["message"]["content"].as_str().unwrap();
            let is_valid = match field {
                "guided_regex" => content.parse::<u32>().is_ok_and(|n| n < 1000),
                "guided_choice" => ["positive", "negative"].contains(&content),
                _ => [4, 5]
                    .map(|n| json!({"sum": n}))
                    .contains(&serde_json::from_str(content).unwrap()),
            };
            assert!(is_valid, "{whole}");
            assert_eq!(choice["structured_output_complete"], true, "{whole}");
            let thought = choice["message"]["reasoning_content"]
                .as_str()
                .unwrap_or_default();
            let written = server.post("/detokenize", &json!({"tokens": choice["token_ids"]}));
            let written = written.json()["prompt"].as_str().unwrap().to_owned();
            let expected = format!("{thought}{PLAIN_END}{content}");
            assert!(written.starts_with(&expected), "{written:?} {expected:?}");
            let details = &whole["usage"]["completion_tokens_details"]["reasoning_tokens"];
            let num_tokens = choice["token_ids"].as_array().unwrap().len() as u64;
            assert!(
                (1..num_tokens).contains(&details.as_u64().unwrap()),
                "{whole}"
            );
            let both = (thought.to_owned(), content.to_owned());
            assert_eq!(streamed(&server, &body), both, "{whole}");
        }
    }
    // What can't be a part of the whole is refused by its name, and before a budget of tokens that nobody counts.
    let mut spaced = body.clone();
    spaced["guided_json"] = json!({"type": "object"});
    spaced["guided_whitespace_pattern"] = json!(" ?");
    let answer = server.post(CHAT, &spaced);
    assert_eq!(
        (answer.status, answer.json()["error"]["param"].take()),
        (400, json!("guided_json"))
    );
    let mut budget = body.clone();
    budget["thinking_token_budget"] = json!(5);
    let answer = server.post(CHAT, &budget);
    let param = answer.json()["error"]["param"].take();
    assert_eq!(
        (answer.status, param),
        (400, json!("thinking_token_budget"))
    );
    // An effort that other models are held to by a budget is no mistake, and told.
    let mut effort = body;
    effort["reasoning_effort"] = json!("low");
    effort["include_warnings"] = json!(true);
    let answer = server.post(CHAT, &effort).json();
    let told =
        "reasoning_effort bounds no tokens of thinking, which this model marks by plain text";
    let warnings = answer["warnings"].as_array().unwrap();
    assert!(warnings.contains(&json!(told)), "{answer}");
}

#[test]
fn the_model_may_think_between_marks_of_plain_text_or_not() {
    let markers = json!({"start": PLAIN_START, "end": PLAIN_END, "text": true});
    // The template knows the mark, and leaves it to the model.
    let template = format!("{TEMPLATE}{{% endif %}}{{# {PLAIN_START} #}}");
    let server = server(&markers, &["--chat-template", &template]);
    let mut body = chat("What is 2 + 3?", 60);
    body["guided_regex"] = json!("[0-9]{1,3}");
    let token = |text: &str| {
        let body = json!({"prompt": text, "add_special_tokens": false});
        server.post("/tokenize", &body).json()["tokens"][0].take()
    };
    let (first, digit) = (token(PLAIN_START), token("7"));
    for (wanted, thinks) in [(first, true), (digit, false)] {
        body["logit_bias"] = json!({wanted.to_string(): 100});
        let whole = server.post(CHAT, &body).json();
        let message = &whole["choices"][0]["message"];
        let content = message["content"].as_str().unwrap();
        assert!(content.parse::<u32>().is_ok_and(|n| n < 1000), "{whole}");
        assert_eq!(message["reasoning_content"].is_string(), thinks, "{whole}");
        let thought = message["reasoning_content"].as_str().unwrap_or_default();
        assert_eq!(
            streamed(&server, &body),
            (thought.to_owned(), content.to_owned())
        );
    }
    refused(
        &json!({"start": "<|im_start|>a", "end": "b", "text": true}),
        "must have no control token",
    );
    refused(
        &json!({"start": PLAIN_START, "end": PLAIN_END}),
        "\"text\": true",
    );
    refused(
        &json!({"start": "<think>", "end": "</think>", "preamble": "<|im_start|>x"}),
        "`preamble` needs `answer`",
    );
}
