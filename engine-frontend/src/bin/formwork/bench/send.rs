//! One request: sent, timed, judged.

use std::time::Instant;

use super::workload::{Request, Workload};
use crate::http::{Client, Refused};
use crate::piece::{Piece, Usage};

/// What became of a request. Times are in seconds.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) end: End,
    /// From sending to the first text.
    pub(super) time_to_first_token: Option<f64>,
    /// Between one piece with text and the next.
    pub(super) inter_token_latencies: Vec<f64>,
    /// From sending to the end.
    pub(super) latency: f64,
    pub(super) usage: Usage,
    pub(super) is_constrained: bool,
}

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With its answer, which meets its constraint where it has one.
    Finished,
    /// A constrained answer broke off, at its most tokens or a stop string, and its server says so.
    CutOff,
    /// The client left, as it was to.
    Left,
    /// The answer does not meet its constraint.
    Invalid(String),
    /// No answer; with the status where there was one.
    Failed(Option<u16>, String),
}

/// What has come of an answer.
#[derive(Debug)]
struct Progress {
    start: Instant,
    last: Option<Instant>,
    time_to_first_token: Option<f64>,
    inter_token_latencies: Vec<f64>,
    text: String,
    finish_reason: Option<String>,
    is_complete: Option<bool>,
    usage: Option<Usage>,
}

/// Sends a request and takes in its answer.
pub(super) async fn send(client: &Client, workload: &Workload, request: Request) -> Record {
    let mut progress = Progress {
        start: Instant::now(),
        last: None,
        time_to_first_token: None,
        inter_token_latencies: Vec::new(),
        text: String::new(),
        finish_reason: None,
        is_complete: None,
        usage: None,
    };
    let received = receive(client, workload, &request, &mut progress).await;
    let latency = progress.start.elapsed().as_secs_f64();
    let end = match received {
        Ok(left) => match left {
            true => End::Left,
            false => judge(workload, &request, &progress),
        },
        Err(error) => {
            let status = error.downcast_ref::<Refused>();
            let status = status.map(|refused| refused.status.as_u16());
            End::Failed(status, crate::said_once(&error))
        }
    };
    let pieces = progress.inter_token_latencies.len() as u64
        + u64::from(progress.time_to_first_token.is_some());
    Record {
        end,
        time_to_first_token: progress.time_to_first_token,
        inter_token_latencies: progress.inter_token_latencies,
        latency,
        // A server that reports none, or was left before: each piece is a token or so.
        usage: progress.usage.unwrap_or(Usage {
            prompt_tokens: 0,
            completion_tokens: pieces,
        }),
        is_constrained: request.constraint.is_some(),
    }
}

/// Takes in an answer to its end, or as far as its client stays: then true.
async fn receive(
    client: &Client,
    workload: &Workload,
    request: &Request,
    progress: &mut Progress,
) -> anyhow::Result<bool> {
    let answer = client.post(workload.path, request.body.clone()).await?;
    let mut events = answer.checked().await?.events();
    let mut pieces = 0_u32;
    while let Some(data) = events.next().await? {
        let piece = Piece::parse(&data)?;
        if !piece.content().is_empty() || !piece.reasoning().is_empty() {
            progress.text_came();
            progress.text.push_str(piece.content());
            pieces += 1;
        }
        if let Some(reason) = piece.finish_reason() {
            progress.finish_reason = Some(reason.to_owned());
            progress.is_complete = piece.is_complete();
        }
        progress.usage = piece.usage.or(progress.usage);
        if request.leaves_after.is_some_and(|after| pieces >= after) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Progress {
    fn text_came(&mut self) {
        let now = Instant::now();
        match self.last.replace(now) {
            Some(last) => {
                let gap = now.duration_since(last).as_secs_f64();
                self.inter_token_latencies.push(gap);
            }
            None => {
                let first = now.duration_since(self.start).as_secs_f64();
                self.time_to_first_token = Some(first);
            }
        }
    }
}

fn judge(workload: &Workload, request: &Request, progress: &Progress) -> End {
    let Some(reason) = progress.finish_reason.as_deref() else {
        return End::Failed(None, "the stream gave no finish_reason".to_owned());
    };
    if !matches!(reason, "stop" | "length" | "tool_calls") {
        return End::Failed(None, format!("the answer ended by {reason:?}"));
    }
    let Some(constraint) = &request.constraint else {
        return End::Finished;
    };
    // A stop string may end a text before its constraint does.
    let is_complete = progress.is_complete.unwrap_or(reason != "length");
    if !is_complete {
        return End::CutOff;
    }
    match workload.verify(constraint, &progress.text, &request.stop) {
        Ok(()) => End::Finished,
        Err(error) => End::Invalid(format!("{error:#}")),
    }
}

impl Record {
    /// A request that had no answer in time.
    pub(super) fn timed_out(patience: std::time::Duration, is_constrained: bool) -> Self {
        Self {
            end: End::Failed(None, format!("no answer within {patience:?}")),
            time_to_first_token: None,
            inter_token_latencies: Vec::new(),
            latency: patience.as_secs_f64(),
            usage: Usage {
                prompt_tokens: 0,
                completion_tokens: 0,
            },
            is_constrained,
        }
    }
}
