//! A steady load whose answers are known: the same questions, asked once before something breaks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::http::{Streamed, cut};
use crate::server::Server;

/// Clients of a load, where a fault doesn't say otherwise.
pub(crate) const CLIENTS: usize = 4;

/// A status for requests that got no answer.
const NO_ANSWER: u16 = 0;

/// Questions and their answers.
#[derive(Debug)]
pub(crate) struct Load {
    known: Vec<(Value, Streamed)>,
}

/// What became of the requests of a load.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Answers that were as before.
    pub(crate) right: usize,
    /// Others.
    pub(crate) wrong: Vec<String>,
    /// How many failed, by status (0 where there was no answer) and message.
    pub(crate) failed: BTreeMap<(u16, String), usize>,
    /// Longest time that any request waited for a piece of its answer.
    pub(crate) longest_wait: Duration,
}

/// Free and constrained requests, greedy and seeded.
fn questions() -> Vec<Value> {
    let knight = json!({
        "type": "object", "additionalProperties": false, "required": ["name", "age", "weapon"],
        "properties": {
            "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"},
            "weapon": {"enum": ["sword", "axe", "bow"]},
        },
    });
    let lark = "start: word (\" \" word)*\nword: /[a-z]{2,7}/";
    let kinds = [
        (Value::Null, 0.0, 200),
        (json!({"regex": "([a-z]{5} ){30}"}), 0.0, 1000),
        (Value::Null, 1.0, 120),
        (json!({"json": knight}), 1.0, 120),
        (json!({"grammar": lark}), 1.0, 100),
        (
            json!({"choice": ["stone", "steel", "a rope of seven strands"]}),
            1.0,
            20,
        ),
    ];
    let question = |(seed, (constraint, temperature, max_tokens)): (usize, (Value, f64, u32))| {
        let mut body = json!({
            "messages": [{"role": "user", "content": format!("Tell me about number {seed}.")}],
            "stream": true, "seed": seed, "temperature": temperature, "max_tokens": max_tokens,
        });
        if constraint.is_null() {
            body["ignore_eos"] = json!(true);
        } else {
            body["structured_outputs"] = constraint;
        }
        body
    };
    kinds.into_iter().enumerate().map(question).collect()
}

impl Load {
    /// Asks each question once.
    ///
    /// # Errors
    /// Where one isn't answered.
    pub(crate) fn learn(server: &Server) -> anyhow::Result<Self> {
        let ask = |body: Value| {
            let answer = server.client.stream(&body, || ())?;
            anyhow::ensure!(answer.error.is_none(), "before the fault: {answer:?}");
            anyhow::ensure!(
                !answer.text.is_empty(),
                "before the fault an answer is empty"
            );
            Ok((body, answer))
        };
        let known: anyhow::Result<Vec<_>> = questions().into_iter().map(ask).collect();
        Ok(Self {
            known: known.context("the questions can't be asked")?,
        })
    }

    /// Asks the questions again and again, by so many clients at once, while `fault` runs, which begins when each of
    /// them has had a first piece of an answer.
    pub(crate) fn beside<R>(
        &self,
        server: &Server,
        num_clients: usize,
        fault: impl FnOnce() -> R,
    ) -> (R, Tally) {
        let (ended, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
        let tally = Mutex::new(Tally::default());
        let result = thread::scope(|scope| {
            for first in 0..num_clients {
                let (ended, begun, tally) = (&ended, &begun, &tally);
                scope.spawn(move || {
                    for (question, known) in self.known.iter().cycle().skip(first) {
                        if ended.load(Ordering::Relaxed) {
                            break;
                        }
                        let answer = server.client.stream(question, || {
                            begun.fetch_add(1, Ordering::Relaxed);
                        });
                        let has_failed =
                            !answer.as_ref().is_ok_and(|answer| answer.error.is_none());
                        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                        tally.add(answer, known);
                        drop(tally);
                        if has_failed {
                            thread::sleep(Duration::from_millis(100));
                        }
                    }
                });
            }
            let deadline = Instant::now() + Duration::from_secs(30);
            while begun.load(Ordering::Relaxed) < num_clients && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            let result = fault();
            ended.store(true, Ordering::Relaxed);
            result
        });
        (
            result,
            tally.into_inner().unwrap_or_else(PoisonError::into_inner),
        )
    }
}

impl Tally {
    fn add(&mut self, answer: anyhow::Result<Streamed>, known: &Streamed) {
        let answer = answer.unwrap_or_else(|error| Streamed {
            status: NO_ANSWER,
            error: Some(cut(&format!("{error:#}"))),
            ..Streamed::default()
        });
        self.longest_wait = self.longest_wait.max(answer.longest_wait);
        if let Some(error) = answer.error {
            *self.failed.entry((answer.status, error)).or_default() += 1;
        } else if (&answer.text, &answer.finish_reason) == (&known.text, &known.finish_reason) {
            self.right += 1;
        } else {
            self.wrong.push(format!(
                "{:?} ({}) instead of {:?} ({})",
                cut(&answer.text),
                answer.finish_reason,
                cut(&known.text),
                known.finish_reason
            ));
        }
    }
}
