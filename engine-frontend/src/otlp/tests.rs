use std::sync::Arc;

use protocol::EngineCoreRequest;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::metrics::RequestStateStats;
use crate::openai::{CompletionRequest, DefaultSamplingParams, OpenAIServing, RequestContext};
use crate::test_support::{FakeCore, fake_engine, output};

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_ID: &str = "00f067aa0ba902b7";

/// A server on an engine whose requests are traced to `listener`.
async fn traced_server(listener: &TcpListener) -> (OpenAIServing, Arc<OtlpTracer>, FakeCore) {
    let port = listener.local_addr().unwrap().port();
    let endpoint = format!("http://127.0.0.1:{port}/v1/traces?x=1");
    let tracer = Arc::new(OtlpTracer::new(&endpoint.parse().unwrap()).unwrap());
    let (engine, core) = fake_engine(64);
    engine.set_stat_loggers(vec![tracer.clone()]);
    let defaults = DefaultSamplingParams::default();
    let serving = OpenAIServing::new(Arc::new(engine), vec!["m".to_owned()], defaults);
    (serving, tracer, core)
}

/// Runs one request of seven tokens, with two tokens for an answer.
async fn complete(serving: &OpenAIServing, core: &mut FakeCore) {
    let body = json!({"prompt": "seven b", "max_tokens": 5, "temperature": 0.5});
    let request = CompletionRequest::from_json(body).unwrap();
    let context = RequestContext {
        request_id: "r".to_owned(),
        created: 0,
        default_seed: None,
        trace_headers: vec![(
            "traceparent".to_owned(),
            format!("00-{TRACE_ID}-{PARENT_ID}-01"),
        )],
        caller_salt: None,
        owner: 0,
        usage: Arc::default(),
    };
    let answer = serving.create_completion(&request, &context);
    let generate = async {
        let request = core.added().await;
        core.send(vec![output(&request.request_id, "a", None)]);
        let end = Some(FinishReason::Length);
        core.send(vec![output(&request.request_id, "b", end)]);
    };
    let (answer, ()) = tokio::join!(answer, generate);
    assert_eq!(answer.unwrap().choices[0].text.to_string(), "ab");
}

/// Takes one export in and accepts it.
async fn collect(listener: &TcpListener) -> (String, Vec<u8>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut received = Vec::new();
    let (head, mut body, length) = loop {
        assert!(stream.read_buf(&mut received).await.unwrap() > 0);
        if let Some(end) = find(&received, b"\r\n\r\n") {
            let head = String::from_utf8(received[..end].to_vec()).unwrap();
            let head = head.to_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            break (head, received[end + 4..].to_vec(), length);
        }
    };
    while body.len() < length {
        assert!(stream.read_buf(&mut body).await.unwrap() > 0);
    }
    let accepted = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(accepted).await.unwrap();
    (head, body)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|w| w == wanted)
}

/// A length-delimited field of a Protocol Buffers message.
fn field(number: u8, contents: &[u8]) -> Vec<u8> {
    let length = u8::try_from(contents.len()).unwrap();
    assert!(length < 128);
    [&[number << 3 | 2, length], contents].concat()
}

/// An attribute as OTLP writes it: a key, and an `AnyValue` with one field.
fn attribute(key: &str, value: &[u8]) -> Vec<u8> {
    [field(1, key.as_bytes()), field(2, value)].concat()
}

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_gets_a_span_under_its_parent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (serving, tracer, mut core) = traced_server(&listener).await;
    complete(&serving, &mut core).await;
    // Statistics follow a step's answers: those of the first request are there when the second
    // one has some.
    complete(&serving, &mut core).await;
    let ((head, span), ()) = tokio::join!(collect(&listener), tracer.shutdown());
    assert!(
        head.starts_with("post /v1/traces?x=1 http/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains("content-type: application/x-protobuf"),
        "{head}"
    );
    let double = |value: f64| [&[0x21], &value.to_le_bytes()[..]].concat();
    let int = |value: u8| vec![0x18, value];
    for expected in [
        field(1, &hex(TRACE_ID)),
        field(4, &hex(PARENT_ID)),
        field(5, b"llm_request"),
        attribute("service.name", &field(1, b"formwork")),
        attribute("gen_ai.request.id", &field(1, b"cmpl-r-0")),
        attribute("gen_ai.request.max_tokens", &int(5)),
        attribute("gen_ai.request.n", &int(1)),
        attribute("gen_ai.request.temperature", &double(0.5)),
        attribute("gen_ai.request.top_p", &double(1.0)),
        attribute("gen_ai.usage.prompt_tokens", &int(7)),
        attribute("gen_ai.usage.completion_tokens", &int(2)),
        field(1, b"gen_ai.latency.time_to_first_token"),
        field(1, b"gen_ai.latency.e2e"),
        field(1, b"gen_ai.latency.time_in_queue"),
        field(1, b"gen_ai.latency.time_in_model_prefill"),
        field(1, b"gen_ai.latency.time_in_model_decode"),
        field(1, b"gen_ai.latency.time_in_model_inference"),
    ] {
        let text = String::from_utf8_lossy(&expected).into_owned();
        assert!(find(&span, &expected).is_some(), "{text:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_never_answers_delays_nobody() {
    // Connections are accepted by the system, and nobody reads from them.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (serving, tracer, mut core) = traced_server(&listener).await;
    complete(&serving, &mut core).await;
    // More than the queue holds.
    let stats = RequestStateStats::new(&EngineCoreRequest::default(), 1, std::time::Instant::now());
    let finished = stats.finish(FinishReason::Stop);
    for _ in 0..10_000 {
        tracer.trace(&finished);
    }
    complete(&serving, &mut core).await;
    // The export in flight ends with its connection.
    drop(listener);
    tracer.shutdown().await;
}
