use std::sync::Arc;

use protocol::{EngineCoreOutput, RequestError};
use serde_json::json;

use super::*;
use crate::openai::DefaultSamplingParams;
use crate::test_support::{FakeCore, fake_engine, ids, output};

fn serving() -> (OpenAIServing, FakeCore) {
    let (engine, core) = fake_engine(64);
    let names = vec!["test-model".to_owned(), "path/to/it".to_owned()];
    let defaults = DefaultSamplingParams::default();
    let serving = OpenAIServing::new(Arc::new(engine), names, defaults);
    (serving, core)
}

/// Serves one line as a batch of its own does.
async fn serve_line(
    serving: OpenAIServing,
    line: InputLine,
    seed: u64,
) -> Result<BatchRequestOutput, EngineDeadError> {
    let mut lines = LineServing::new(serving, seed, 4, true);
    lines.first_pause = Duration::ZERO;
    lines.serve(line).await
}

fn line(number: u64, url: &str, body: Value) -> InputLine {
    let line = json!({"custom_id": "c", "method": "POST", "url": url, "body": body});
    InputLine {
        number,
        bytes: Some(line.to_string().into_bytes()),
        end_offset: 0,
    }
}

fn completion(body: Value) -> InputLine {
    line(7, "/v1/completions", body)
}

fn response(output: BatchRequestOutput) -> (u16, Value) {
    let response = output.response.unwrap();
    (response.status_code, response.body)
}

#[tokio::test]
async fn a_completion() {
    let (serving, mut core) = serving();
    let body = json!({"prompt": ["a", "b"], "max_tokens": 2, "stop": ["."], "echo": true});
    let served = tokio::spawn(serve_line(serving, completion(body), 0));
    let (first, second) = (core.added().await, core.added().await);
    assert_eq!(first.external_req_id.as_deref(), Some("cmpl-batch-7-0"));
    assert_eq!(first.sampling_params.seed, Some(mix(0, 7)));
    core.send(vec![
        output(&second.request_id, "yz", Some(FinishReason::Length)),
        output(&first.request_id, "x.", None),
    ]);
    let (status, mut body) = response(served.await.unwrap().unwrap());
    assert_eq!(status, 200);
    assert!(body["created"].take().as_u64().unwrap() > 1_600_000_000);
    let fingerprint = body["system_fingerprint"].take();
    assert!(fingerprint.as_str().unwrap().starts_with("formwork-"));
    assert_eq!(
        body,
        json!({
            "system_fingerprint": null,
            "id": "cmpl-batch-7", "object": "text_completion", "created": null,
            "model": "test-model",
            "choices": [
                {"index": 0, "text": "ax", "logprobs": null, "finish_reason": "stop",
                 "stop_reason": "."},
                {"index": 1, "text": "byz", "logprobs": null, "finish_reason": "length",
                 "stop_reason": null},
            ],
            "usage": {"prompt_tokens": 2, "total_tokens": 6, "completion_tokens": 4},
        })
    );
}

#[tokio::test]
async fn a_chat() {
    let (serving, mut core) = serving();
    let body = json!({"model": "path/to/it", "messages": [{"role": "user", "content": "hi"}]});
    let served = tokio::spawn(serve_line(
        serving,
        line(7, "/v1/chat/completions", body),
        0,
    ));
    let request = core.added().await;
    assert_eq!(request.prompt_token_ids, ids("[user]hi[assistant]"));
    assert_eq!(request.sampling_params.max_tokens, Some(64 - 19));
    core.send(vec![output(
        &request.request_id,
        "yo",
        Some(FinishReason::Stop),
    )]);
    let (status, body) = response(served.await.unwrap().unwrap());
    assert_eq!(status, 200);
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(
        body["choices"],
        json!([{
            "index": 0, "message": {"role": "assistant", "content": "y"},
            "logprobs": null, "finish_reason": "stop", "stop_reason": null,
        }])
    );
}

#[tokio::test]
async fn echo_alone_returns_the_prompt() {
    let (serving, mut core) = serving();
    let body = json!({"prompt": "ab", "echo": true, "max_tokens": 0});
    let served = tokio::spawn(serve_line(serving, completion(body), 0));
    let request = core.added().await;
    assert_eq!(request.sampling_params.max_tokens, Some(1));
    core.send(vec![output(
        &request.request_id,
        "x",
        Some(FinishReason::Length),
    )]);
    let (_, body) = response(served.await.unwrap().unwrap());
    assert_eq!(body["choices"][0]["text"], "ab");
    assert_eq!(body["usage"]["completion_tokens"], 0);
}

#[tokio::test]
async fn what_is_wrong_with_a_line_is_its_result() {
    for (body, status, says) in [
        (json!({"prompt": "a", "model": "other"}), 404, "`other`"),
        (json!({"prompt": "a", "stream": true}), 400, "no streams"),
        (json!({"prompt": "a", "top_p": 5}), 400, "top_p"),
        (
            json!({"prompt": "a", "guided_json": {"type": "strnig"}}),
            400,
            "guided_json: schema, at `#/type`",
        ),
        (json!({"prompt": ""}), 400, "empty"),
        (json!({}), 400, "prompt is missing"),
    ] {
        let (serving, _core) = serving();
        let output = serve_line(serving, completion(body), 0).await.unwrap();
        assert_eq!(output.custom_id.as_deref(), Some("c"));
        let (code, body) = response(output);
        assert_eq!(code, status);
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("line 7: "), "{message}");
        assert!(message.contains(says), "{message}");
    }
    let (serving, _core) = serving();
    let broken = InputLine {
        number: 3,
        bytes: Some(b"{".to_vec()),
        end_offset: 0,
    };
    let output = serve_line(serving, broken, 0).await.unwrap();
    assert_eq!(output.error.unwrap().line, 3);
}

fn failure(request_id: &str, code: RequestErrorCode) -> EngineCoreOutput {
    EngineCoreOutput {
        request_id: request_id.to_owned(),
        finish_reason: Some(FinishReason::Error),
        error: Some(RequestError::new(code, "said the core")),
        ..EngineCoreOutput::default()
    }
}

#[tokio::test]
async fn a_full_queue_is_waited_for() {
    let (serving, mut core) = serving();
    let served = tokio::spawn(serve_line(serving, completion(json!({"prompt": "a"})), 0));
    for _ in 0..2 {
        let request = core.added().await;
        let full = failure(&request.request_id, RequestErrorCode::QueueOverflow);
        core.send(vec![full]);
    }
    let request = core.added().await;
    core.send(vec![output(
        &request.request_id,
        "x",
        Some(FinishReason::Length),
    )]);
    assert_eq!(response(served.await.unwrap().unwrap()).0, 200);
}

#[tokio::test]
async fn an_ending_core_is_nobodys_result() {
    for ending in [0, 1, 2] {
        let (serving, mut core) = serving();
        let served = tokio::spawn(serve_line(serving, completion(json!({"prompt": "a"})), 0));
        let id = core.added().await.request_id;
        match ending {
            0 => core.die(),
            1 => core.send(vec![failure(&id, RequestErrorCode::ShuttingDown)]),
            _ => core.send(vec![output(&id, "x", Some(FinishReason::Abort))]),
        }
        let reason = match ending {
            0 => "killed by the test",
            _ => "it was told to end",
        };
        assert_eq!(served.await.unwrap().unwrap_err().reason, reason);
    }
}

#[tokio::test]
async fn what_finds_no_room_alone_has_an_error() {
    let (serving, mut core) = serving();
    let served = tokio::spawn(serve_line(serving, completion(json!({"prompt": "a"})), 0));
    for _ in 0..=ATTEMPTS_AMONG_OTHERS {
        let request = core.added().await;
        let full = failure(&request.request_id, RequestErrorCode::QueueOverflow);
        core.send(vec![full]);
    }
    let (status, body) = response(served.await.unwrap().unwrap());
    assert_eq!(status, 503);
    assert_eq!(body["error"]["message"], "line 7: said the core");
}

#[tokio::test]
async fn room_in_a_shared_core_is_waited_for() {
    let (serving, mut core) = serving();
    let mut lines = LineServing::new(serving, 0, 4, false);
    lines.first_pause = Duration::ZERO;
    let served = tokio::spawn(async move {
        let body = json!({"prompt": "a"});
        lines.serve(completion(body)).await
    });
    for _ in 0..3 * ATTEMPTS_AMONG_OTHERS {
        let request = core.added().await;
        let full = failure(&request.request_id, RequestErrorCode::QueueOverflow);
        core.send(vec![full]);
    }
    let id = core.added().await.request_id;
    core.send(vec![output(&id, "x", Some(FinishReason::Length))]);
    assert_eq!(response(served.await.unwrap().unwrap()).0, 200);
}

#[tokio::test]
async fn every_answer_counts_as_in_flight() {
    let (serving, mut core) = serving();
    let lines = Arc::new(LineServing::new(serving, 0, 4, true));
    let serve = |number| {
        let lines = lines.clone();
        let body = json!({"prompt": ["a", "b"], "n": 2});
        tokio::spawn(async move { lines.serve(line(number, "/v1/completions", body)).await })
    };
    let (first, second) = (serve(1), serve(2));
    for served in [first, second] {
        let mut sent = Vec::new();
        for _ in 0..4 {
            sent.push(core.added().await);
        }
        // There is room for four answers.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(core.told.try_recv().is_err());
        for request in sent {
            let finished = output(&request.request_id, "x", Some(FinishReason::Length));
            core.send(vec![finished]);
        }
        assert_eq!(response(served.await.unwrap().unwrap()).0, 200);
    }
}

#[tokio::test]
async fn what_has_no_effect_is_refused_where_requests_are_strict() {
    let body = json!({"prompt": "a", "store": true});
    let (serving, _core) = serving();
    let lines = LineServing::new(serving, 0, 4, true).strictly(true);
    let (status, body) = response(lines.serve(completion(body)).await.unwrap());
    assert_eq!((status, &body["error"]["param"]), (400, &json!("store")));
}
