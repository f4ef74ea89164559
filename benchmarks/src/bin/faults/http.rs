//! Requests to the server, each on a connection of its own.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;

/// Longer than any answer takes that still comes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Characters of a message that are kept.
const KEPT_MESSAGE: usize = 160;

/// A client of one server.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    agent: ureq::Agent,
    /// With scheme.
    base_url: String,
}

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    /// The body; null where it is no JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The message of an error, or the beginning of the body.
    pub(crate) fn message(&self) -> String {
        let body = self.json();
        cut(body["error"]["message"].as_str().unwrap_or(&self.body))
    }
}

/// The beginning of a message.
pub(crate) fn cut(message: &str) -> String {
    message.chars().take(KEPT_MESSAGE).collect()
}

/// A streamed answer.
#[derive(Debug, Default)]
pub(crate) struct Streamed {
    pub(crate) status: u16,
    /// All of its text.
    pub(crate) text: String,
    /// Why it ended, as the last piece says.
    pub(crate) finish_reason: String,
    /// The error that ended it or stood in its place.
    pub(crate) error: Option<String>,
    /// Longest time between two pieces, the first from the request on.
    pub(crate) longest_wait: Duration,
}

impl Client {
    /// Of the server at an address without scheme.
    pub(crate) fn new(address: &str) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_idle_connections(0)
            .timeout_global(Some(PATIENCE))
            .build();
        Self {
            agent: ureq::Agent::new_with_config(config),
            base_url: format!("http://{address}"),
        }
    }

    /// A GET.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Answer> {
        let answer = self.agent.get(format!("{}{path}", self.base_url)).call();
        read(answer.with_context(|| format!("GET {path}"))?)
    }

    /// A POST of JSON.
    pub(crate) fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        read(self.send(path, body)?)
    }

    /// A chat request whose answer comes in pieces. `on_begin` runs when the first is there.
    pub(crate) fn stream(&self, body: &Value, on_begin: impl FnOnce()) -> anyhow::Result<Streamed> {
        let mut last = Instant::now();
        let answer = self.send("/v1/chat/completions", body)?;
        let status = answer.status().as_u16();
        if status != 200 {
            return Ok(Streamed {
                status,
                error: Some(read(answer)?.message()),
                ..Streamed::default()
            });
        }
        let mut streamed = Streamed {
            status,
            ..Streamed::default()
        };
        let mut on_begin = Some(on_begin);
        let mut has_ended = false;
        for line in BufReader::new(answer.into_body().into_reader()).lines() {
            let line = line.context("the stream broke off")?;
            let Some(data) = line.strip_prefix("data: ") else {
                continue;
            };
            streamed.longest_wait = streamed.longest_wait.max(last.elapsed());
            last = Instant::now();
            if let Some(on_begin) = on_begin.take() {
                on_begin();
            }
            has_ended = data == "[DONE]";
            if has_ended {
                break;
            }
            let event: Value = serde_json::from_str(data).context("an event is no JSON")?;
            if let Some(error) = event.get("error") {
                streamed.status = error["code"].as_u64().unwrap_or(500) as u16;
                streamed.error = Some(cut(error["message"].as_str().unwrap_or("no message")));
            }
            let choice = &event["choices"][0];
            streamed.text += choice["delta"]["content"].as_str().unwrap_or_default();
            if let Some(reason) = choice["finish_reason"].as_str() {
                streamed.finish_reason = reason.to_owned();
            }
        }
        anyhow::ensure!(has_ended, "the stream ended without its [DONE]");
        Ok(streamed)
    }

    fn send(&self, path: &str, body: &Value) -> anyhow::Result<ureq::http::Response<ureq::Body>> {
        let request = self.agent.post(format!("{}{path}", self.base_url));
        let request = request.header("Content-Type", "application/json");
        let answer = request.send(body.to_string());
        answer.with_context(|| format!("POST {path}"))
    }
}

fn read(mut answer: ureq::http::Response<ureq::Body>) -> anyhow::Result<Answer> {
    let status = answer.status().as_u16();
    let body = answer
        .body_mut()
        .with_config()
        .limit(1 << 30)
        .read_to_string();
    let body = body.context("the answer broke off")?;
    Ok(Answer { status, body })
}
