//! What good requests get.

use serde_json::{Value, json};

use super::client::start;
use super::support::{Server, chat, eventually, streamed_text};

const CHAT: &str = "/v1/chat/completions";

#[test]
fn a_chat_answer_has_the_shape_of_the_api() {
    let server = Server::shared();
    let answer = server.post("/v1/chat/completions", &chat("What is Formwork?", 12));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.headers["content-type"], "application/json");
    let body = answer.json();
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["choices"][0]["message"]["role"], "assistant");
    assert!(
        !body["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .is_empty()
    );
    let usage = &body["usage"];
    let sum =
        usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap();
    assert_eq!(usage["total_tokens"], sum);
}

#[test]
fn a_stream_has_the_text_of_the_whole_answer() {
    let server = Server::shared();
    let mut body = chat("What is Formwork?", 24);
    let whole = server.post("/v1/chat/completions", &body).json();
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let streamed = server.post("/v1/chat/completions", &body);
    assert_eq!(
        streamed.headers["content-type"],
        "text/event-stream; charset=utf-8"
    );
    assert_eq!(
        streamed_text(&streamed),
        whole["choices"][0]["message"]["content"].as_str().unwrap()
    );
    let events = streamed.events();
    let ids: std::collections::HashSet<_> = events.iter().map(|e| e["id"].as_str()).collect();
    assert_eq!(ids.len(), 1);
    let first = &events[0]["choices"][0];
    assert_eq!(first["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(first["finish_reason"], Value::Null);
    let (usage, rest) = events.split_last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"], whole["usage"]);
    let reasons: Vec<_> = rest
        .iter()
        .map(|e| &e["choices"][0]["finish_reason"])
        .collect();
    let (last, others) = reasons.split_last().unwrap();
    assert_eq!(**last, whole["choices"][0]["finish_reason"]);
    assert!(others.iter().all(|reason| reason.is_null()));
    assert!(rest.iter().all(|event| event.get("usage").is_none()));
}

#[test]
fn several_answers_are_told_apart_by_index() {
    let server = Server::shared();
    let body = json!({
        "prompt": ["One", "Two"], "n": 2, "max_tokens": 5, "temperature": 1, "seed": 7,
        "ignore_eos": true, "logprobs": 1,
    });
    let whole = server.post("/v1/completions", &body).json();
    let mut streaming = body.clone();
    streaming["stream"] = json!(true);
    streaming["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
    let events = server.post("/v1/completions", &streaming).events();
    let mut texts = vec![String::new(); 4];
    let mut offsets: Vec<Vec<Value>> = vec![Vec::new(); 4];
    for event in &events {
        assert!(event["usage"]["prompt_tokens"].is_u64());
        for choice in event["choices"].as_array().unwrap() {
            let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
            texts[index].push_str(choice["text"].as_str().unwrap());
            if let Some(list) = choice["logprobs"]["text_offset"].as_array() {
                offsets[index].extend(list.iter().cloned());
            }
        }
    }
    for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
        assert_eq!(choice["index"], index);
        assert_eq!(choice["text"], texts[index], "{index}");
        assert_eq!(
            choice["logprobs"]["text_offset"],
            json!(offsets[index]),
            "{index}"
        );
    }
    assert_eq!(events.last().unwrap()["usage"], whole["usage"]);
}

#[test]
fn the_servers_seed_is_that_of_requests_without_one() {
    let server = Server::start(&["--seed", "5"]);
    let text = |seed: Option<u64>| {
        let body = json!({
            "prompt": "One", "max_tokens": 12, "temperature": 2, "ignore_eos": true, "seed": seed,
        });
        let answer = server.post("/v1/completions", &body).json();
        answer["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let own = text(None);
    assert_eq!(text(None), own);
    assert_eq!(text(Some(5)), own);
    assert_ne!(text(Some(6)), own);
}

#[test]
fn models_are_listed_and_found() {
    let server = Server::start(&[
        "--served-model-name",
        "one",
        "--served-model-name",
        "org/two",
    ]);
    let list = server.get("/v1/models").json();
    assert_eq!(list["object"], "list");
    let ids: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["id"])
        .collect();
    assert_eq!(ids, ["one", "org/two"]);
    assert!(list["data"][0]["max_model_len"].as_u64().unwrap() > 0);
    assert_eq!(server.get("/v1/models/org/two").json()["id"], "org/two");
    assert_eq!(server.get("/v1/models/three").error()["param"], "model");
    let mut body = chat("Hi", 2);
    body["model"] = json!("org/two");
    assert_eq!(
        server.post("/v1/chat/completions", &body).json()["model"],
        "one"
    );
}

#[test]
fn text_becomes_tokens_and_text_again() {
    let server = Server::shared();
    let body = json!({"prompt": "Formwork holds.", "return_token_strs": true});
    let answer = server.post("/tokenize", &body).json();
    let count = answer["tokens"].as_array().unwrap().len();
    assert_eq!(answer["count"], count);
    assert_eq!(answer["token_strs"].as_array().unwrap().len(), count);
    let text = server
        .post("/detokenize", &json!({"tokens": answer["tokens"]}))
        .json();
    assert!(
        text["prompt"]
            .as_str()
            .unwrap()
            .ends_with("Formwork holds.")
    );
    let messages = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let chat_tokens = server.post("/tokenize", &messages).json();
    let asked = server.post("/v1/chat/completions", &chat("Hi", 1)).json();
    assert_eq!(chat_tokens["count"], asked["usage"]["prompt_tokens"]);
}

#[test]
fn usage_tells_of_the_prefix_cache_where_asked_for() {
    let server = Server::start(&[
        "--enable-prompt-tokens-details",
        "--enable-force-include-usage",
    ]);
    let mut body = chat(&"What is Formwork? ".repeat(20), 2);
    let usage = |answer: Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
    assert_eq!(usage(server.post("/v1/chat/completions", &body).json()), 0);
    let again = usage(server.post("/v1/chat/completions", &body).json());
    assert!(again.as_u64().unwrap() >= 16, "{again}");
    body["stream"] = json!(true);
    let last = server
        .post("/v1/chat/completions", &body)
        .events()
        .pop()
        .unwrap();
    assert_eq!(
        (&last["choices"], &usage(last.clone())),
        (&json!([]), &again)
    );
}

#[test]
fn the_small_routes() {
    let server = Server::start(&[
        "--enable-server-load-tracking",
        "--enable-request-id-headers",
    ]);
    for path in ["/health", "/ping"] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{path}");
    }
    assert_eq!(server.post("/ping", &json!({})).status, 200);
    assert_eq!(
        server.get("/version").json()["version"],
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(server.get("/load").json(), json!({"server_load": 0}));
    assert_eq!(server.get("/openapi.json").json()["openapi"], "3.1.0");
    let answer = start(
        &server.address,
        "GET",
        "/version",
        "X-Request-Id: mine\r\n",
        b"",
    )
    .finish();
    assert_eq!(answer.headers["x-request-id"], "mine");
    assert_eq!(server.get("/version").headers["x-request-id"].len(), 32);
    let headers = "Content-Type: application/json\r\nX-Request-Id: mine\r\n";
    let body = chat("Hi", 1).to_string();
    let answer = start(
        &server.address,
        "POST",
        "/v1/chat/completions",
        headers,
        body.as_bytes(),
    );
    assert_eq!(answer.finish().json()["id"], "chatcmpl-mine");
}

#[test]
fn metrics_count_what_was_done() {
    let server = Server::start(&[]);
    let mut body = chat("Count to three.", 6);
    body["ignore_eos"] = json!(true);
    assert_eq!(server.post("/v1/chat/completions", &body).status, 200);
    // A step is counted just after its answers are on their way.
    eventually("the last step is counted", || {
        server.metric("vllm:generation_tokens_total") == 6.0
    });
    assert_eq!(server.metric("vllm:time_to_first_token_seconds_count"), 1.0);
    assert_eq!(server.metric("vllm:inter_token_latency_seconds_count"), 5.0);
    assert_eq!(server.metric("vllm:e2e_request_latency_seconds_count"), 1.0);
    assert_eq!(server.metric("vllm:request_params_n_sum"), 1.0);
    let text = server.get("/metrics").body;
    assert!(text.contains("finished_reason=\"length\"} 1"), "{text}");
    assert!(text.contains(
        "http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"200\"} 1"
    ));
}

#[test]
fn web_pages_are_answered_only_where_they_may_ask() {
    let origin = "Origin: https://a.example\r\n";
    let answer = start(&Server::shared().address, "GET", "/version", origin, b"").finish();
    assert!(!answer.headers.contains_key("access-control-allow-origin"));
    let server = Server::start(&[
        "--allowed-origins",
        "[\"https://a.example\"]",
        "--api-key",
        "k",
    ]);
    let answer = start(&server.address, "GET", "/version", origin, b"").finish();
    assert_eq!(
        answer.headers["access-control-allow-origin"],
        "https://a.example"
    );
    let other = start(
        &server.address,
        "GET",
        "/version",
        "Origin: https://b.example\r\n",
        b"",
    );
    assert!(
        !other
            .finish()
            .headers
            .contains_key("access-control-allow-origin")
    );
    // Before a request with a key a browser asks without.
    let ask = format!(
        "{origin}Access-Control-Request-Method: POST\r\n\
         Access-Control-Request-Headers: authorization\r\n"
    );
    let answer = start(
        &server.address,
        "OPTIONS",
        "/v1/chat/completions",
        &ask,
        b"",
    )
    .finish();
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.headers["access-control-allow-headers"],
        "authorization"
    );
}

#[test]
fn a_choice_of_one_token_fits_one_token() {
    let server = Server::shared();
    for more in [json!({}), json!({"logprobs": true, "top_logprobs": 2})] {
        let mut body = chat("Is Formwork an engine?", 1);
        body["guided_choice"] = json!(["A", "B"]);
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = server.post(CHAT, &body).json();
        let choice = &answer["choices"][0];
        let content = choice["message"]["content"].as_str().unwrap();
        assert!(["A", "B"].contains(&content), "{choice}");
        assert_eq!(choice["finish_reason"], "stop", "{choice}");
        assert_eq!(choice["structured_output_complete"], true, "{choice}");
        assert_eq!(answer["usage"]["completion_tokens"], 1);
    }
}

#[test]
fn constraints_hold_in_streams_and_say_whether_they_are_complete() {
    let server = Server::shared();
    let mut body = chat("Name a colour.", 20);
    body["guided_choice"] = json!(["ultramarine", "vermilion"]);
    body["stream"] = json!(true);
    let answer = server.post("/v1/chat/completions", &body);
    let text = streamed_text(&answer);
    assert!(
        ["ultramarine", "vermilion"].contains(&text.as_str()),
        "{text}"
    );
    let last = answer.events().pop().unwrap();
    assert_eq!(last["choices"][0]["structured_output_complete"], true);
    // A stream that can't begin has an error's status.
    body["guided_choice"] = json!([]);
    assert_eq!(server.post("/v1/chat/completions", &body).status, 400);
}

#[test]
fn prose_around_tags_says_where_the_limit_ended_it() {
    let server = Server::shared();
    let mut body = chat("What is Formwork?", 8);
    body["response_format"] = json!({
        "type": "structural_tag", "triggers": ["<n>"],
        "structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}],
    });
    for (max_tokens, reason) in [(8, "length"), (200, "stop")] {
        body["max_tokens"] = json!(max_tokens);
        let whole = server.post(CHAT, &body).json()["choices"][0].take();
        assert_eq!(whole["finish_reason"], reason, "{whole}");
        assert_eq!(whole["structured_output_complete"], true, "{whole}");
        body["stream"] = json!(true);
        let last = server.post(CHAT, &body).events().pop().unwrap()["choices"][0].take();
        assert_eq!(last["finish_reason"], reason, "{last}");
        body["stream"] = json!(false);
    }
}
