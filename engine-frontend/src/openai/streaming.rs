//! Answers in pieces: what `stream: true` asks for.

mod chat;
mod completion;
mod tokens;

use std::collections::{HashMap, VecDeque};
use std::{fmt, io};

use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::chat::ChatCompletionRequest;
use super::completion::CompletionRequest;
use super::error::{ErrorResponse, ServingError};
use super::request::CommonFields;
use super::serving::{OpenAIServing, RequestContext, request_id};
use super::token_in_token_out::{TokenGenerateRequest, serving_error_in_own_words};
use super::usage::UsageInfo;
use crate::async_llm::RequestStream;
use crate::error::GenerateError;
use crate::outputs::RequestOutput;
use chat::ChatPieces;
use completion::CompletionPieces;
use tokens::TokenPieces;

/// A piece of a streamed answer. It becomes text when it is sent: until then there is no second form of what may be
/// large.
#[derive(Debug)]
pub struct Piece {
    /// The event's name, in streams whose events have names.
    pub(crate) event: Option<&'static str>,
    data: Box<dyn PieceData>,
}

/// What a piece tells.
trait PieceData: fmt::Debug + Send {
    /// Writes it as JSON.
    fn write(&self, to: &mut dyn io::Write) -> serde_json::Result<()>;
}

impl<T: Serialize + fmt::Debug + Send> PieceData for T {
    fn write(&self, to: &mut dyn io::Write) -> serde_json::Result<()> {
        serde_json::to_writer(to, self)
    }
}

impl Piece {
    /// A piece without a name.
    pub(crate) fn new(data: impl Serialize + fmt::Debug + Send + 'static) -> Self {
        Self {
            event: None,
            data: Box::new(data),
        }
    }

    /// A piece of a stream whose events have names.
    pub(crate) fn named(
        event: &'static str,
        data: impl Serialize + fmt::Debug + Send + 'static,
    ) -> Self {
        Self {
            event: Some(event),
            ..Self::new(data)
        }
    }

    /// Writes it as a server-sent event. JSON has no raw line ends, so it is one line.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: &mut dyn io::Write) -> io::Result<()> {
        if let Some(event) = self.event {
            writeln!(to, "event: {event}")?;
        }
        to.write_all(b"data: ")?;
        // Our own types always have a JSON form, so that nothing but `to` can fail.
        self.data.write(to)?;
        to.write_all(b"\n\n")
    }

    /// What it tells.
    #[cfg(test)]
    pub(crate) fn to_value(&self) -> serde_json::Value {
        let mut text = Vec::new();
        self.data.write(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

/// A streamed answer: its pieces, in order. Dropping it aborts what still runs.
#[derive(Debug)]
pub struct EventStream {
    outputs: OutputStream,
    pieces: Box<dyn Pieces>,
    ready: VecDeque<Piece>,
    finished: bool,
}

impl EventStream {
    /// A stream that nothing refuses any more: every constraint is known to be good, or, without
    /// any, the first output is there. Until then a refusal is still the whole answer.
    pub(crate) async fn begin(
        mut streams: Vec<RequestStream>,
        constrained: bool,
        mut pieces: Box<dyn Pieces>,
    ) -> Result<Self, ServingError> {
        let mut ready = VecDeque::new();
        if constrained {
            for stream in &mut streams {
                stream.admitted().await?;
            }
        }
        let mut outputs = OutputStream::new(streams);
        if !constrained && let Some((prompt, first)) = outputs.next().await {
            pieces.add(prompt, first?, &mut ready);
        }
        Ok(Self {
            outputs,
            pieces,
            ready,
            finished: false,
        })
    }

    /// What an error in the middle of the stream is in it.
    pub fn error(&mut self, error: &ErrorResponse) -> Piece {
        self.pieces.error(error)
    }

    /// Whether the stream ends with `[DONE]`.
    pub fn is_done_told(&self) -> bool {
        self.pieces.is_done_told()
    }

    /// The next piece; `None` after the last one or after an error. A dropped future loses
    /// nothing.
    pub async fn next(&mut self) -> Option<Result<Piece, ServingError>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            if self.finished {
                return None;
            }
            match self.outputs.next().await {
                Some((prompt, Ok(output))) => self.pieces.add(prompt, output, &mut self.ready),
                Some((_, Err(error))) => {
                    self.finished = true;
                    return Some(Err(error.into()));
                }
                None => {
                    self.finished = true;
                    self.pieces.end(&mut self.ready);
                }
            }
        }
    }
}

/// How outputs become pieces: one kind of answer each.
pub(crate) trait Pieces: fmt::Debug + Send {
    /// Appends what an output of the request for prompt number `prompt` is in the API's words.
    fn add(&mut self, prompt: u32, output: RequestOutput, pieces: &mut VecDeque<Piece>);
    /// Appends what comes after the last output.
    fn end(&mut self, pieces: &mut VecDeque<Piece>);
    /// An error after the first piece.
    fn error(&mut self, error: &ErrorResponse) -> Piece {
        Piece::new(error.clone())
    }
    /// Whether `[DONE]` follows the last piece.
    fn is_done_told(&self) -> bool {
        true
    }
}

/// The outputs of the requests of one API request, as they come.
#[derive(Debug)]
enum OutputStream {
    One(RequestStream),
    Many {
        outputs: mpsc::Receiver<(u32, Result<RequestOutput, GenerateError>)>,
        /// One per prompt; they end, and drop their streams, with this.
        _readers: JoinSet<()>,
    },
}

impl OutputStream {
    fn new(mut streams: Vec<RequestStream>) -> Self {
        if streams.len() == 1
            && let Some(stream) = streams.pop()
        {
            return Self::One(stream);
        }
        let (sender, outputs) = mpsc::channel(1);
        let mut readers = JoinSet::new();
        for (prompt, mut stream) in (0..).zip(streams) {
            let sender = sender.clone();
            readers.spawn(async move {
                while let Some(item) = stream.next().await {
                    if sender.send((prompt, item)).await.is_err() {
                        return;
                    }
                }
            });
        }
        Self::Many {
            outputs,
            _readers: readers,
        }
    }

    async fn next(&mut self) -> Option<(u32, Result<RequestOutput, GenerateError>)> {
        match self {
            Self::One(stream) => Some((0, stream.next().await?)),
            Self::Many { outputs, .. } => outputs.recv().await,
        }
    }
}

impl OpenAIServing {
    /// Answers a completion request in pieces. Returns when the core has taken its constraint, or
    /// without one when the first output is there, so that what the core refuses is an error here
    /// and not in the middle of a stream.
    ///
    /// # Errors
    /// The request is wrong, names another model, or has no answer.
    pub async fn stream_completion(
        &self,
        request: CompletionRequest,
        context: &RequestContext,
    ) -> Result<EventStream, ServingError> {
        self.check_model(request.common.model.as_deref())?;
        let id = request_id("cmpl", request.common.request_id.as_deref(), context);
        let requests = request.to_generate_requests(&id, self.default_sampling_params());
        let streams = self.start(requests, context).await?;
        let constrained = request.common.constraint.is_some();
        let head = self.head(id, context, &request.common);
        let pieces = CompletionPieces::new(head, request, self.engine().tokenizer().clone());
        EventStream::begin(streams, constrained, Box::new(pieces)).await
    }

    /// Answers a chat request in pieces, under the same terms.
    ///
    /// # Errors
    /// The request is wrong, names another model, or has no answer.
    pub async fn stream_chat_completion(
        &self,
        request: ChatCompletionRequest,
        context: &RequestContext,
    ) -> Result<EventStream, ServingError> {
        self.check_model(request.common.model.as_deref())?;
        let id = request_id("chatcmpl", request.common.request_id.as_deref(), context);
        let role = self.response_role(&request, &request.messages);
        let (request, generate, openings) = self.chat_generate_request(request, &id).await?;
        let constrained = generate.sampling_params.structured_outputs.is_some();
        let streams = self.start(vec![generate], context).await?;
        let head = self.head(id, context, &request.common);
        let pieces = ChatPieces::new(
            head,
            request,
            openings,
            role,
            self.engine().tokenizer().clone(),
        );
        EventStream::begin(streams, constrained, Box::new(pieces)).await
    }

    /// Answers a request of token ids in pieces, under the same terms.
    ///
    /// # Errors
    /// The request is wrong, names another model, or has no answer.
    pub async fn stream_tokens(
        &self,
        request: TokenGenerateRequest,
        context: &RequestContext,
    ) -> Result<EventStream, ServingError> {
        let (request, generate) = self.token_generate_request(request, context)?;
        let constrained = request.common.constraint.is_some();
        let head = self.head(generate.request_id.clone(), context, &request.common);
        let streams = self.start(vec![generate], context).await;
        let streams = streams.map_err(serving_error_in_own_words)?;
        let pieces = TokenPieces::new(head, request);
        let stream = EventStream::begin(streams, constrained, Box::new(pieces)).await;
        stream.map_err(serving_error_in_own_words)
    }

    fn head(&self, id: String, context: &RequestContext, common: &CommonFields) -> Head {
        let options = common.stream_options.unwrap_or_default();
        Head {
            id,
            created: context.created,
            model: self.model_name(),
            system_fingerprint: self.system_fingerprint().to_owned(),
            warnings: common.told_warnings(),
            include_usage: options.include_usage,
            continuous_usage: options.continuous_usage_stats,
            n: common.n.unwrap_or(1),
            prompt_tokens: HashMap::new(),
            cached_tokens: self.tells_cached_tokens().then(HashMap::new),
            completion_tokens: 0,
            reasoning_tokens: HashMap::new(),
        }
    }
}

/// What all pieces of one answer share.
#[derive(Debug)]
struct Head {
    id: String,
    created: u64,
    model: String,
    system_fingerprint: String,
    /// For the first piece.
    warnings: Option<Vec<String>>,
    include_usage: bool,
    continuous_usage: bool,
    n: u32,
    /// By prompt: each counts once, whatever `n` is.
    prompt_tokens: HashMap<u32, u64>,
    /// Of these, tokens from the prefix cache; `None` is not told.
    cached_tokens: Option<HashMap<u32, u64>>,
    completion_tokens: u64,
    /// Of these, by prompt and answer, tokens of thinking.
    reasoning_tokens: HashMap<(u32, u32), u64>,
}

impl Head {
    /// Counts an output's tokens; returns whether it is the first of its prompt.
    fn count(&mut self, prompt: u32, output: &RequestOutput) -> bool {
        let new: usize = output.outputs.iter().map(|o| o.token_ids.len()).sum();
        self.completion_tokens += new as u64;
        for answer in output.outputs.iter().filter(|o| o.num_reasoning_tokens > 0) {
            let tokens = u64::from(answer.num_reasoning_tokens);
            self.reasoning_tokens.insert((prompt, answer.index), tokens);
        }
        let prompt_tokens = output.prompt_token_ids.len() as u64;
        if let Some(cached) = &mut self.cached_tokens {
            let tokens = cached.entry(prompt).or_default();
            *tokens = (*tokens).max(u64::from(output.num_cached_tokens));
        }
        self.prompt_tokens.insert(prompt, prompt_tokens).is_none()
    }

    fn usage(&self) -> UsageInfo {
        let cached = self.cached_tokens.as_ref();
        UsageInfo::new(self.prompt_tokens.values().sum(), self.completion_tokens)
            .with_reasoning_tokens(self.reasoning_tokens.values().sum())
            .with_cached_tokens(cached.map(|cached| cached.values().sum()))
    }

    fn continuous_usage(&self) -> Option<UsageInfo> {
        self.continuous_usage.then(|| self.usage())
    }
}
