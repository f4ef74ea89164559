//! Messages and answers.

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
}

/// How an answer ended.
#[derive(Debug)]
pub(super) struct Ending {
    /// The API's `finish_reason`.
    pub(super) reason: String,
    /// Whether a constrained answer is not whole.
    pub(super) breaks_off: bool,
}

impl Conversation {
    pub(super) fn new(client: Client, model: &str, system: Option<&str>) -> Self {
        let mut body = Map::new();
        body.insert("model".to_owned(), model.into());
        body.insert("stream".to_owned(), true.into());
        let mut conversation = Self {
            client,
            body,
            system: system.map(str::to_owned),
            messages: Vec::new(),
            answer: String::new(),
            is_constrained: false,
        };
        conversation.clear();
        conversation
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

    /// Holds every answer to this.
    pub(super) fn constrain(&mut self, constraint: &Constraint) {
        constraint.put_into(&mut self.body);
        self.is_constrained = true;
    }

    /// Forgets all but the system's message.
    pub(super) fn clear(&mut self) {
        let system = self.system.iter();
        self.messages = system
            .map(|text| json!({"role": "system", "content": text}))
            .collect();
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
        self.body
            .insert("messages".to_owned(), self.messages.clone().into());
        let body = serde_json::to_string(&self.body)?;
        let answer = self.client.post("/v1/chat/completions", body).await?;
        let mut events = answer.checked().await?.events();
        let mut reason = None;
        let mut is_complete = None;
        while let Some(data) = events.next().await? {
            let piece = Piece::parse(&data)?;
            screen.thinking(piece.reasoning());
            screen.answer(piece.content())?;
            self.answer.push_str(piece.content());
            if let Some(given) = piece.finish_reason() {
                reason = Some(given.to_owned());
                is_complete = piece.is_complete();
            }
        }
        let reason = reason.context("the stream gave no finish_reason")?;
        let breaks_off = match is_complete {
            Some(is_complete) => !is_complete,
            None => self.is_constrained && reason != "stop",
        };
        Ok(Ending { reason, breaks_off })
    }
}
