//! `include_trace`: what each token of an answer was chosen from.

use serde_json::{Value, json};

use super::support::{Server, chat, streamed_text};

const CHAT: &str = "/v1/chat/completions";

/// A chat request under a schema with forced text, and choices between.
fn constrained(max_tokens: u32) -> Value {
    let mut body = chat("Who are you?", max_tokens);
    body["structured_outputs"] = json!({"json": {
        "type": "object",
        "properties": {
            "character_name": {"type": "string", "maxLength": 12},
            "hit_points": {"type": "integer", "minimum": 1, "maximum": 99},
        },
        "required": ["character_name", "hit_points"],
        "additionalProperties": false,
    }});
    body["include_trace"] = json!(true);
    body["return_token_ids"] = json!(true);
    body
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn entries(choice: &Value) -> Vec<Value> {
    choice["trace"].as_array().unwrap().clone()
}

/// What holds of every entry.
fn verify(entry: &Value) {
    let masked = number(&entry["masked_probability"]);
    assert!((0.0..=1.0 + 1e-6).contains(&masked), "{entry}");
    assert!(number(&entry["step_ms"]) >= 0.0, "{entry}");
    let top = entry["top"].as_array().unwrap();
    if entry["is_forced"] == json!(true) {
        assert_eq!(entry["probability"], Value::Null);
        assert_eq!((masked, top.len()), (1.0, 0), "{entry}");
        assert_eq!(
            (&entry["num_allowed"], &entry["is_constrained"]),
            (&json!(1), &json!(true))
        );
        return;
    }
    let probability = number(&entry["probability"]);
    assert!(probability <= masked + 1e-6, "{entry}");
    assert_eq!(top.len(), 10);
    let of_top: Vec<f64> = top
        .iter()
        .map(|token| number(&token["probability"]))
        .collect();
    assert!(of_top.is_sorted_by(|a, b| a >= b), "{entry}");
    assert!(of_top.iter().sum::<f64>() <= 1.0 + 1e-5, "{entry}");
    for token in top
        .iter()
        .filter(|token| token["token_id"] == entry["token_id"])
    {
        assert_eq!(token["probability"], entry["probability"]);
        assert_eq!(token["is_allowed"], json!(true), "{entry}");
    }
}

#[test]
fn a_constrained_answer_says_what_its_tokens_were_chosen_from() {
    let server = Server::shared();
    let answer = server.post(CHAT, &constrained(60));
    assert_eq!(answer.status, 200, "{answer:?}");
    let choice = &answer.json()["choices"][0];
    let trace = entries(choice);
    let ids: Vec<Value> = trace
        .iter()
        .map(|entry| entry["token_id"].clone())
        .collect();
    assert_eq!(json!(ids), choice["token_ids"]);
    trace.iter().for_each(verify);
    let is = |name: &str| {
        trace
            .iter()
            .filter(|entry| entry[name] == json!(true))
            .count()
    };
    assert_eq!(is("is_constrained"), trace.len());
    let num_forced = is("is_forced");
    assert!(num_forced > 1 && num_forced < trace.len(), "{num_forced}");
    // The text, but for the token that ends it, is that of the entries.
    let bytes = |entry: &Value| -> Vec<u8> {
        let bytes = entry["bytes"].as_array().unwrap().iter();
        bytes.map(|byte| byte.as_u64().unwrap() as u8).collect()
    };
    let text: Vec<u8> = trace.iter().flat_map(bytes).collect();
    let text = String::from_utf8(text).unwrap();
    let content = choice["message"]["content"].as_str().unwrap();
    assert!(text.starts_with(content), "{text} {content}");
    // The masks took away some of the likeliest.
    let taken = trace
        .iter()
        .flat_map(|entry| entry["top"].as_array().unwrap());
    assert!(
        taken
            .clone()
            .any(|token| token["is_allowed"] == json!(false))
    );
    assert!(
        taken
            .clone()
            .any(|token| token["is_allowed"] == json!(true))
    );
}

#[test]
fn a_trace_changes_no_token_and_is_there_only_where_asked_for() {
    let server = Server::shared();
    for temperature in [0.0, 1.0] {
        let mut body = constrained(60);
        body["temperature"] = json!(temperature);
        body["seed"] = json!(5);
        body["n"] = json!(if temperature > 0.0 { 3 } else { 1 });
        let traced = server.post(CHAT, &body).json();
        body["include_trace"] = json!(false);
        let plain = server.post(CHAT, &body);
        assert!(!plain.body.contains("\"trace\""), "{}", plain.body);
        let plain = plain.json();
        for (traced, plain) in traced["choices"]
            .as_array()
            .unwrap()
            .iter()
            .zip(plain["choices"].as_array().unwrap())
        {
            assert_eq!(traced["token_ids"], plain["token_ids"]);
            assert_eq!(traced["message"], plain["message"]);
            let num_tokens = plain["token_ids"].as_array().unwrap().len();
            assert_eq!(entries(traced).len(), num_tokens);
            entries(traced).iter().for_each(verify);
        }
    }
}

#[test]
fn a_stream_has_the_trace_of_the_whole_answer() {
    let server = Server::shared();
    let without_time = |mut trace: Vec<Value>| {
        trace
            .iter_mut()
            .for_each(|entry| entry["step_ms"] = json!(0));
        trace
    };
    let mut body = constrained(60);
    let whole = server.post(CHAT, &body).json();
    body["stream"] = json!(true);
    let streamed = server.post(CHAT, &body);
    assert_eq!(
        streamed_text(&streamed),
        whole["choices"][0]["message"]["content"]
    );
    let events = streamed.events();
    let pieces = events
        .iter()
        .flat_map(|event| event["choices"].as_array().unwrap());
    let pieces = pieces.flat_map(|choice| choice["trace"].as_array().cloned().unwrap_or_default());
    assert_eq!(
        without_time(pieces.collect()),
        without_time(entries(&whole["choices"][0]))
    );
    let completion = json!({"prompt": "One", "max_tokens": 6, "temperature": 0, "include_trace": true, "ignore_eos": true});
    let whole = server.post("/v1/completions", &completion).json();
    let mut streaming = completion;
    streaming["stream"] = json!(true);
    let events = server.post("/v1/completions", &streaming).events();
    let pieces = events
        .iter()
        .flat_map(|event| entries(&event["choices"][0]));
    let whole = entries(&whole["choices"][0]);
    assert_eq!(whole.len(), 6);
    assert_eq!(without_time(pieces.collect()), without_time(whole));
}

#[test]
fn free_text_has_every_token_to_choose_from() {
    let server = Server::shared();
    let body = json!({
        "prompt": "One", "max_tokens": 8, "include_trace": true, "logprobs": 2, "ignore_eos": true,
    });
    let choice = &server.post("/v1/completions", &body).json()["choices"][0];
    let trace = entries(choice);
    assert_eq!(trace.len(), 8);
    let sizes: Vec<&Value> = trace.iter().map(|entry| &entry["num_allowed"]).collect();
    assert!(sizes[0].as_u64() > Some(255));
    assert!(sizes.iter().all(|size| *size == sizes[0]));
    let logprobs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
    for (entry, logprob) in trace.iter().zip(logprobs) {
        verify(entry);
        assert_eq!(entry["probability"], entry["masked_probability"]);
        assert_eq!(entry["is_constrained"], json!(false));
        assert!((number(&entry["probability"]) - number(logprob).exp()).abs() < 1e-5);
        let top = entry["top"].as_array().unwrap();
        assert!(top.iter().all(|token| token["is_allowed"] == json!(true)));
    }
}

/// Logprobs are those after the mask.
#[test]
fn probabilities_under_the_mask_are_those_of_logprobs() {
    let server = Server::shared();
    let mut body = constrained(60);
    body["logprobs"] = json!(true);
    let choice = &server.post(CHAT, &body).json()["choices"][0];
    let trace = entries(choice);
    let logprobs = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(trace.len(), logprobs.len());
    for (entry, logprob) in trace.iter().zip(logprobs) {
        verify(entry);
        // Each has logits: none is forced where logprobs are asked for.
        assert_eq!(entry["is_forced"], json!(false));
        let probability = number(&logprob["logprob"]).exp();
        assert!(
            (number(&entry["masked_probability"]) - probability).abs() < 1e-5,
            "{entry}"
        );
    }
}

#[test]
fn drafts_that_come_true_have_entries() {
    let server = Server::start(&[
        "--speculative-config",
        r#"{"method": "ngram", "num_speculative_tokens": 3}"#,
    ]);
    let body = json!({
        "prompt": "a b c a b c a b c", "max_tokens": 24, "temperature": 0, "ignore_eos": true,
        "include_trace": true, "return_token_ids": true,
    });
    let choice = &server.post("/v1/completions", &body).json()["choices"][0];
    let trace = entries(choice);
    let ids: Vec<Value> = trace
        .iter()
        .map(|entry| entry["token_id"].clone())
        .collect();
    assert_eq!(json!(ids), choice["token_ids"]);
    trace.iter().for_each(verify);
}

#[test]
fn apis_without_a_place_for_it_refuse_it() {
    let body = json!({"input": "hi", "include_trace": true});
    let answer = Server::shared().post("/v1/responses", &body);
    assert_eq!(answer.status, 400);
    assert_eq!(answer.error()["param"], "include_trace");
}
