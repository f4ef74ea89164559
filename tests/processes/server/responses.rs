//! `/v1/responses`.

use serde_json::{Value, json};

use super::client::Answer;
use super::support::{Server, events};

const PATH: &str = "/v1/responses";

/// The events of a stream, whose numbers go up by one.
fn numbered_events(answer: &Answer) -> Vec<Value> {
    let events = events(answer);
    for (i, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], i, "{event}");
    }
    events
}

#[test]
fn a_stream_ends_with_the_whole_answer() {
    let server = Server::shared();
    let mut body = json!({
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "2 + 3?"}]}],
        "chat_template_kwargs": {"enable_thinking": true}, "temperature": 0,
        "request_id": "mine", "max_output_tokens": 200,
    });
    let whole = server.post(PATH, &body).json();
    assert_eq!(whole["id"], "resp_mine");
    assert_eq!(whole["object"], "response");
    body["stream"] = json!(true);
    let events = numbered_events(&server.post(PATH, &body));
    let last = &events.last().unwrap()["response"];
    for field in ["id", "status", "output", "usage", "incomplete_details"] {
        assert_eq!(last[field], whole[field], "{field}");
    }
    let thinking = whole["output"][0]["type"] == "reasoning";
    let counted = &whole["usage"]["output_tokens_details"]["reasoning_tokens"];
    assert_eq!(thinking, counted.as_u64().unwrap() > 0, "{whole}");
    for (index, item) in whole["output"].as_array().unwrap().iter().enumerate() {
        let deltas = events.iter().filter(|event| {
            let kind = event["type"].as_str().unwrap();
            kind.ends_with(".delta") && event["output_index"] == index
        });
        let deltas: String = deltas.filter_map(|event| event["delta"].as_str()).collect();
        assert_eq!(item["content"][0]["text"], deltas);
    }
}

/// The texts of the tokens in a list of logprobs, each with so many rivals.
fn tokens(list: &Value, num_rivals: usize) -> String {
    let entries = list.as_array().unwrap().iter();
    let text = |entry: &Value| {
        assert_eq!(entry["top_logprobs"].as_array().unwrap().len(), num_rivals);
        entry["token"].as_str().unwrap().to_owned()
    };
    entries.map(text).collect()
}

#[test]
fn logprobs_come_with_the_pieces_and_at_the_end() {
    let server = Server::shared();
    let mut body = json!({
        "input": "Say something.", "temperature": 0, "max_output_tokens": 12,
        "include": ["message.output_text.logprobs"], "top_logprobs": 3,
    });
    let part = |response: &Value| response["output"][0]["content"][0].clone();
    let whole = part(&server.post(PATH, &body).json());
    let text = whole["text"].as_str().unwrap();
    assert!(tokens(&whole["logprobs"], 3).starts_with(text), "{whole}");
    body["stream"] = json!(true);
    let events = numbered_events(&server.post(PATH, &body));
    let deltas = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta");
    let deltas: String = deltas.map(|event| tokens(&event["logprobs"], 3)).collect();
    assert!(deltas.starts_with(text), "{deltas}");
    assert_eq!(part(&events.last().unwrap()["response"]), whole);
}

#[test]
fn wrong_fields_have_their_own_names() {
    let server = Server::shared();
    for (field, value, param) in [
        ("input", json!(null), "input"),
        ("input", json!([]), "input"),
        ("input", json!([1]), "input[0]"),
        (
            "input",
            json!([{"type": "item_reference"}]),
            "input[0].type",
        ),
        (
            "input",
            json!([{"role": "x", "content": ""}]),
            "input[0].role",
        ),
        (
            "input",
            json!([{"role": "user", "content": [{"type": "input_image"}]}]),
            "input[0].content[0]",
        ),
        ("max_output_tokens", json!(-1), "max_output_tokens"),
        (
            "text",
            json!({"format": {"type": "xml"}}),
            "text.format.type",
        ),
        (
            "text",
            json!({"format": {"type": "json_schema", "schema": {"type": "strin"}}}),
            "text.format.schema",
        ),
        ("text", json!({"verbosity": "loud"}), "text.verbosity"),
        ("tools", json!([{"type": "file_search"}]), "tools[0].type"),
        ("store", json!("yes"), "store"),
        ("background", json!(true), "background"),
        ("previous_response_id", json!("x"), "previous_response_id"),
        ("conversation", json!("x"), "conversation"),
        ("prompt", json!({"id": "x"}), "prompt"),
        ("truncation", json!("auto"), "truncation"),
        ("include", json!(["everything"]), "include"),
        ("reasoning", json!({"summary": "long"}), "reasoning.summary"),
        ("messages", json!([]), "messages"),
        (
            "response_format",
            json!({"type": "text"}),
            "response_format",
        ),
        ("max_tokens", json!(1), "max_tokens"),
        ("n", json!(2), "n"),
        ("grammar", json!("x"), "grammar"),
        ("temprature", json!(1), "temprature"),
    ] {
        let mut body = json!({"input": "Hi", "max_output_tokens": 2});
        body[field] = value;
        let error = server.post(PATH, &body).error();
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!(400), &json!(param)),
            "{body}"
        );
    }
}
