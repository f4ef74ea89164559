//! `/inference/v1/generate`: token ids in, token ids out.

use std::net::Shutdown;

use serde_json::{Value, json};

use super::client::{Answer, start};
use super::support::{Server, eventually};

const PATH: &str = "/inference/v1/generate";
const COMPLETIONS: &str = "/v1/completions";

fn ids(value: &Value) -> Vec<u64> {
    let ids = value.as_array().unwrap_or_else(|| panic!("{value}"));
    ids.iter().map(|id| id.as_u64().unwrap()).collect()
}

/// The tokens of a conversation, as the chat template has them.
fn prompt(server: &Server, question: &str) -> Vec<u64> {
    let body = json!({"messages": [{"role": "user", "content": question}]});
    ids(&server.post("/tokenize", &body).json()["tokens"])
}

fn text(server: &Server, token_ids: &[u64]) -> String {
    let answer = server
        .post("/detokenize", &json!({"tokens": token_ids}))
        .json();
    answer["prompt"].as_str().unwrap().to_owned()
}

fn request(token_ids: &[u64], sampling: &Value) -> Value {
    json!({"token_ids": token_ids, "sampling_params": sampling})
}

/// The same request for the route that tells text.
fn completion(token_ids: &[u64], sampling: &Value) -> Value {
    let mut body = sampling.clone();
    body["prompt"] = json!(token_ids);
    body["return_token_ids"] = json!(true);
    body["return_tokens_as_token_ids"] = json!(true);
    body
}

#[test]
fn answers_are_those_of_completions() {
    let server = Server::shared();
    let prompt = prompt(server, "What is Formwork?");
    for sampling in [
        json!({"temperature": 0, "max_tokens": 24}),
        json!({"temperature": 0.8, "seed": 7, "top_p": 0.9, "max_tokens": 24, "n": 3}),
        json!({"temperature": 0, "max_tokens": 30, "min_tokens": 30, "repetition_penalty": 1.2}),
        json!({"temperature": 0, "max_tokens": 24, "stop": ["e"]}),
        json!({"temperature": 0, "max_tokens": 24, "structured_outputs": {"choice": ["yes", "no"]}}),
        json!({"temperature": 1, "seed": 3, "max_tokens": 40, "structured_outputs": {"json": {"type": "object"}}}),
        json!({"temperature": 0, "max_tokens": 8, "logprobs": 3, "prompt_logprobs": 1}),
    ] {
        let told = server.post(PATH, &request(&prompt, &sampling)).json();
        let other = server
            .post(COMPLETIONS, &completion(&prompt, &sampling))
            .json();
        let choices = told["choices"]
            .as_array()
            .unwrap_or_else(|| panic!("{told}"));
        let others = other["choices"].as_array().unwrap();
        assert_eq!(choices.len(), others.len());
        for (choice, other) in choices.iter().zip(others) {
            for field in [
                "index",
                "token_ids",
                "finish_reason",
                "stop_reason",
                "structured_output_complete",
            ] {
                assert_eq!(choice[field], other[field], "{sampling}: {field}");
            }
            let Some(logprobs) = choice["logprobs"]["content"].as_array() else {
                assert_eq!(other["logprobs"], Value::Null);
                continue;
            };
            assert_eq!(logprobs.len(), ids(&choice["token_ids"]).len());
            for (i, entry) in logprobs.iter().enumerate() {
                assert_eq!(entry["token_id"], choice["token_ids"][i]);
                assert_eq!(entry["logprob"], other["logprobs"]["token_logprobs"][i]);
                assert_eq!(entry["rank"], 1);
                let top = entry["top_logprobs"].as_array().unwrap();
                assert_eq!((top.len(), &top[0]["token_id"]), (3, &entry["token_id"]));
                for rival in top {
                    let name = format!("token_id:{}", rival["token_id"]);
                    assert_eq!(rival["logprob"], other["logprobs"]["top_logprobs"][i][name]);
                }
            }
        }
        assert_eq!(told["usage"], other["usage"]);
        assert_eq!(told["prompt_logprobs"], others[0]["prompt_logprobs"]);
        assert!(
            told["request_id"]
                .as_str()
                .unwrap()
                .starts_with("generate-tokens-")
        );
        assert_eq!(told["model"], "formwork-builtin");
    }
}

#[test]
fn without_a_limit_an_answer_is_as_long_as_a_conversations() {
    let server = Server::shared();
    let question = "Tell me about stone.";
    let told = server.post(
        PATH,
        &request(&prompt(server, question), &json!({"temperature": 0})),
    );
    let chat = json!({
        "messages": [{"role": "user", "content": question}], "temperature": 0, "return_token_ids": true,
    });
    let chat = server.post("/v1/chat/completions", &chat).json();
    let told = told.json();
    assert_eq!(
        told["choices"][0]["token_ids"],
        chat["choices"][0]["token_ids"]
    );
    assert_eq!(told["choices"][0]["finish_reason"], "stop");
}

#[test]
fn a_constraint_holds() {
    let server = Server::shared();
    let schema = json!({
        "type": "object", "required": ["name", "age"], "additionalProperties": false,
        "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    });
    let prompt = prompt(server, "Describe a person.");
    for seed in 0..8 {
        let sampling = json!({
            "structured_outputs": {"json": schema}, "temperature": 1, "seed": seed, "max_tokens": 60,
        });
        let told = server.post(PATH, &request(&prompt, &sampling)).json();
        let choice = &told["choices"][0];
        assert_eq!(choice["structured_output_complete"], true, "{choice}");
        // The last one may be an end token.
        let text = text(server, &ids(&choice["token_ids"]));
        let value: Value = serde_json::from_str(text.trim_end_matches("<|im_end|>")).unwrap();
        assert!(
            value["age"].is_number() && value["name"].is_string(),
            "{value}"
        );
    }
}

#[test]
fn stop_tokens_end_an_answer_and_allowed_ones_are_all_it_has() {
    let server = Server::shared();
    let prompt = prompt(server, "What is Formwork?");
    let greedy = json!({"temperature": 0, "max_tokens": 12});
    let whole = server.post(PATH, &request(&prompt, &greedy)).json();
    let whole = ids(&whole["choices"][0]["token_ids"]);
    let stop = whole[4];
    let first = whole.iter().position(|id| *id == stop).unwrap();
    let sampling = json!({"temperature": 0, "max_tokens": 12, "stop_token_ids": [stop]});
    let told = server.post(PATH, &request(&prompt, &sampling)).json();
    let choice = &told["choices"][0];
    assert_eq!(ids(&choice["token_ids"]), whole[..=first]);
    assert_eq!(
        (&choice["finish_reason"], &choice["stop_reason"]),
        (&json!("stop"), &json!(stop))
    );
    let sampling = json!({"max_tokens": 12, "allowed_token_ids": [50, 60], "ignore_eos": true});
    let told = server.post(PATH, &request(&prompt, &sampling)).json();
    let told = ids(&told["choices"][0]["token_ids"]);
    assert!(
        told.len() == 12 && told.iter().all(|id| [50, 60].contains(id)),
        "{told:?}"
    );
}

/// The token ids of a streamed answer by index, and its last finish reason.
fn streamed(answer: &Answer, index: u64) -> (Vec<u64>, Value) {
    let mut all = Vec::new();
    let mut reason = Value::Null;
    for event in answer.events() {
        assert!(event["request_id"].is_string(), "{event}");
        for choice in event["choices"].as_array().unwrap() {
            if choice["index"] == index {
                all.extend(ids(&choice["token_ids"]));
                reason = choice["finish_reason"].clone();
            }
        }
    }
    (all, reason)
}

#[test]
fn a_stream_brings_the_same_tokens() {
    let server = Server::shared();
    let prompt = prompt(server, "Tell me about water.");
    for sampling in [
        json!({"temperature": 0, "max_tokens": 20, "logprobs": 1}),
        json!({"temperature": 0.9, "seed": 5, "n": 2, "max_tokens": 20}),
        json!({"temperature": 0, "max_tokens": 20, "structured_outputs": {"regex": "[a-z ]{10,20}"}}),
    ] {
        let mut body = request(&prompt, &sampling);
        body["return_token_ids"] = json!(true);
        let whole = server.post(PATH, &body).json();
        assert_eq!(ids(&whole["prompt_token_ids"]), prompt);
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        let stream = server.post(PATH, &body);
        for choice in whole["choices"].as_array().unwrap() {
            let (tokens, reason) = streamed(&stream, choice["index"].as_u64().unwrap());
            assert_eq!(tokens, ids(&choice["token_ids"]), "{sampling}");
            assert_eq!(reason, choice["finish_reason"]);
        }
        let events = stream.events();
        assert_eq!(ids(&events[0]["prompt_token_ids"]), prompt);
        let last = events.last().unwrap();
        assert_eq!(
            (&last["choices"], &last["usage"]),
            (&json!([]), &whole["usage"])
        );
        let one = &events[0]["choices"][0]["logprobs"];
        assert_eq!(one.is_null(), sampling.get("logprobs").is_none(), "{one}");
    }
}

#[test]
fn what_is_wrong_is_told_where_it_stands() {
    let server = Server::shared();
    let many: Vec<u64> = vec![1; 5000];
    for (token_ids, sampling, field, says) in [
        (
            json!([1, 2, 99_999, 99_998]),
            json!({}),
            "token_ids[2]",
            "99999",
        ),
        (json!([1, -2]), json!({}), "token_ids[1]", "-2"),
        (json!([]), json!({}), "token_ids", "at least one"),
        (
            json!(many),
            json!({}),
            "token_ids",
            "maximum context length",
        ),
        (
            json!([1]),
            json!({"top_p": 0}),
            "sampling_params.top_p",
            "greater than 0",
        ),
        (
            json!([1]),
            json!({"n": 20_000}),
            "sampling_params.n",
            "16384",
        ),
        (
            json!([1]),
            json!({"n": 5000}),
            "sampling_params.n",
            "max_num_queued_reqs",
        ),
        (
            json!([1]),
            json!({"stop_token_ids": [99_999]}),
            "sampling_params.stop_token_ids",
            "99999",
        ),
        (
            json!([1]),
            json!({"allowed_token_ids": []}),
            "sampling_params.allowed_token_ids",
            "[]",
        ),
        (
            json!([1]),
            json!({"logprobs": 21}),
            "sampling_params.logprobs",
            "20",
        ),
        (
            json!([1]),
            json!({"max_tokens": 2, "min_tokens": 3}),
            "sampling_params.min_tokens",
            "got 3",
        ),
        (
            json!([1]),
            json!({"priority": 1}),
            "sampling_params.priority",
            "unknown field",
        ),
        (
            json!([1]),
            json!({"structured_outputs": {"json": {"not": {"pattern": "("}}}}),
            "sampling_params.structured_outputs.json",
            "sampling_params.structured_outputs.json",
        ),
        (
            json!([1]),
            json!({"structured_outputs": {"regex": "a{20}"}, "max_tokens": 2}),
            "sampling_params.structured_outputs.regex",
            "sampling_params.max_tokens",
        ),
    ] {
        for stream in [false, true] {
            let body =
                json!({"token_ids": token_ids, "sampling_params": sampling, "stream": stream});
            let answer = server.post(PATH, &body);
            assert_eq!(answer.status, 400, "{answer:?}");
            let error = answer.error();
            let message = error["message"].as_str().unwrap();
            assert_eq!(error["param"], field, "{message}");
            assert!(message.contains(says) && message.len() < 1000, "{message}");
            assert!(!message.contains("truncate"), "{message}");
        }
    }
    let mut body = request(&[1], &json!({}));
    body["model"] = json!("other");
    assert_eq!(server.post(PATH, &body).status, 404);
    assert_eq!(server.get(PATH).status, 405);
}

#[test]
fn a_key_is_asked_for_whatever_routes_are_open() {
    for flags in [
        &["--api-key", "one"][..],
        &["--api-key", "one", "--open-routes"],
    ] {
        let server = Server::start(flags);
        let ask = |headers: &str| {
            let headers = format!("Content-Type: application/json\r\n{headers}");
            let body = request(&[1, 2, 3], &json!({"max_tokens": 2})).to_string();
            start(&server.address, "POST", PATH, &headers, body.as_bytes()).finish()
        };
        assert_eq!(ask("").status, 401);
        assert_eq!(ask("Authorization: Bearer two\r\n").status, 401);
        assert_eq!(ask("Authorization: Bearer one\r\n").status, 200);
    }
}

#[test]
fn a_client_that_leaves_ends_its_request() {
    let server = Server::start(&[]);
    for stream in [true, false] {
        let sampling = json!({"max_tokens": 1900, "ignore_eos": true, "temperature": 1, "n": 4});
        let mut body = request(&[1, 2, 3], &sampling);
        body["stream"] = json!(stream);
        let mut client = server.begin(PATH, &body);
        if stream {
            assert_eq!(client.status(), 200);
        }
        eventually("they run", || {
            server.metric("vllm:num_requests_running") == 4.0
        });
        client.stream().shutdown(Shutdown::Both).unwrap();
        drop(client);
        eventually("they end", || {
            server.metric("vllm:num_requests_running") == 0.0
        });
    }
    let text = server.get("/metrics").body;
    let mut lines = text.lines();
    let line =
        lines.find(|l| l.starts_with("vllm:request_success_total") && l.contains("\"abort\""));
    assert!(line.unwrap().ends_with(" 8"), "{line:?}");
}
