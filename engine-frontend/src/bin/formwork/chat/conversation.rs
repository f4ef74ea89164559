//! Messages and answers.

use std::fmt;
use std::time::Instant;

use anyhow::Context;
use serde_json::{Map, Value, json};

use super::SamplingArgs;
use super::screen::Screen;
use crate::constraint::Constraint;
use crate::http::Client;
use crate::piece::Piece;

/// A conversation with one model.
#[derive(Debug)]
pub(super) struct Conversation {
    client: Client,
    /// What every request has, apart from the messages.
    body: Map<String, Value>,
    system: Option<String>,
    messages: Vec<Value>,
    /// What has come of the answer that is being given.
    answer: String,
    is_constrained: bool,
    /// The server's last warnings: they are shown once.
    told: String,
}

/// How an answer ended.
#[derive(Debug)]
pub(super) struct Ending {
    /// The API's `finish_reason`.
    pub(super) reason: String,
    /// Whether a constrained answer is not whole.
    pub(super) breaks_off: bool,
    /// What else is to be said of it: how it was led to its end.
    pub(super) notes: Vec<&'static str>,
    pub(super) speed: Speed,
}

/// Pieces that come within a shorter time come at once, and say nothing of how fast they were made.
const LEAST_SECONDS: f64 = 0.02;

/// How fast an answer came.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Speed {
    first: Option<Instant>,
    last: Option<Instant>,
    tokens: u64,
}

impl Speed {
    fn note(&mut self, piece: &Piece) {
        if !(piece.content().is_empty() && piece.reasoning().is_empty()) {
            let now = Instant::now();
            self.first.get_or_insert(now);
            self.last = Some(now);
        }
        if let Some(usage) = piece.usage {
            self.tokens = usage.completion_tokens;
        }
    }
}

/// Tokens, and how many of them came in a second after the first, unless all came at once.
impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.tokens == 1 { "" } else { "s" };
        write!(f, "{} token{s}", self.tokens)?;
        let (Some(first), Some(last)) = (self.first, self.last) else {
            return Ok(());
        };
        let seconds = (last - first).as_secs_f64();
        if self.tokens > 1 && seconds >= LEAST_SECONDS {
            #[allow(clippy::cast_precision_loss, reason = "for people")]
            let rate = (self.tokens - 1) as f64 / seconds;
            write!(f, ", {rate:.1} tokens/s")?;
        }
        Ok(())
    }
}

impl Conversation {
    pub(super) fn new(client: Client, model: &str, system: Option<&str>) -> Self {
        let mut body = Map::new();
        body.insert("model".to_owned(), model.into());
        body.insert("stream".to_owned(), true.into());
        let with_usage = json!({"include_usage": true});
        body.insert("stream_options".to_owned(), with_usage);
        Self {
            client,
            body,
            system: system.map(str::to_owned),
            messages: Vec::new(),
            answer: String::new(),
            is_constrained: false,
            told: String::new(),
        }
    }

    /// Sets what was given; the rest is the server's.
    pub(super) fn set_sampling(&mut self, args: &SamplingArgs) {
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                self.body.insert(name.to_owned(), value);
            }
        };
        set("max_tokens", args.max_tokens.map(Value::from));
        set("temperature", args.temperature.map(Value::from));
        set("top_p", args.top_p.map(Value::from));
        set("seed", args.seed.map(Value::from));
    }

    /// Holds every answer to this from now on, or to nothing.
    pub(super) fn constrain(&mut self, constraint: Option<&Constraint>) {
        Constraint::take_out_of(&mut self.body);
        if let Some(constraint) = constraint {
            constraint.put_into(&mut self.body);
        }
        self.is_constrained = constraint.is_some();
    }

    /// Tells the model this before the conversation from now on.
    pub(super) fn set_system(&mut self, text: Option<String>) {
        self.system = text;
    }

    /// Forgets all but the system's message.
    pub(super) fn clear(&mut self) {
        self.messages.clear();
    }

    /// Sends a message and shows its answer. Where there is none, the message is forgotten. Dropped
    /// before its end, call [`Self::stop`].
    ///
    /// # Errors
    /// The server has no answer, or it is cut off without a reason.
    pub(super) async fn ask(
        &mut self,
        message: &str,
        screen: &mut Screen,
    ) -> anyhow::Result<Ending> {
        self.answer.clear();
        self.messages
            .push(json!({"role": "user", "content": message}));
        let ending = self.receive(screen).await;
        match &ending {
            Ok(_) => self.stop(),
            Err(_) => drop(self.messages.pop()),
        }
        ending
    }

    /// Takes what has come of the answer for all of it.
    pub(super) fn stop(&mut self) {
        let answer = std::mem::take(&mut self.answer);
        self.messages
            .push(json!({"role": "assistant", "content": answer}));
    }

    async fn receive(&mut self, screen: &mut Screen) -> anyhow::Result<Ending> {
        let system = self.system.iter();
        let system = system.map(|text| json!({"role": "system", "content": text}));
        let messages: Vec<Value> = system.chain(self.messages.iter().cloned()).collect();
        self.body.insert("messages".to_owned(), messages.into());
        let body = serde_json::to_string(&self.body)?;
        let answer = self.client.post("/v1/chat/completions", body).await?;
        let answer = answer.checked().await?;
        if let Some(warnings) = answer.warnings.as_ref().filter(|w| self.told != **w) {
            screen.note(&format!("(warning: {warnings})"));
            self.told.clone_from(warnings);
        }
        let mut events = answer.events();
        let mut reason = None;
        let mut is_complete = None;
        let mut notes = Vec::new();
        let mut speed = Speed::default();
        while let Some(data) = events.next().await? {
            let piece = Piece::parse(&data)?;
            speed.note(&piece);
            screen.thinking(piece.reasoning());
            screen.answer(piece.content())?;
            self.answer.push_str(piece.content());
            if let Some(given) = piece.finish_reason() {
                reason = Some(given.to_owned());
                is_complete = piece.is_complete();
                notes = piece.how_it_was_led();
            }
        }
        let reason = reason.context("the stream gave no finish_reason")?;
        let breaks_off = match is_complete {
            Some(is_complete) => !is_complete,
            None => self.is_constrained && reason != "stop",
        };
        Ok(Ending {
            reason,
            breaks_off,
            notes,
            speed,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_token_counts_for_nothing_in_a_speed() {
        let now = Instant::now();
        let mut speed = Speed {
            first: Some(now),
            last: Some(now + Duration::from_millis(500)),
            tokens: 11,
        };
        assert_eq!(speed.to_string(), "11 tokens, 20.0 tokens/s");
        speed.tokens = 1;
        assert_eq!(speed.to_string(), "1 token");
        assert_eq!(Speed::default().to_string(), "0 tokens");
    }
}
