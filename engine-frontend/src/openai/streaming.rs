//! Answers in pieces: what `stream: true` asks for.

mod chat;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use tokenizer::Tokenizer;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::chat::ChatCompletionRequest;
use super::chunk::{CompletionResponseStreamChoice, CompletionStreamResponse};
use super::completion::CompletionRequest;
use super::echo::echo_prompt;
use super::error::{ErrorResponse, ServingError};
use super::logprobs::CompletionLogProbs;
use super::request::CommonFields;
use super::serving::{OpenAIServing, RequestContext, request_id, stop_reason};
use super::usage::UsageInfo;
use crate::async_llm::RequestStream;
use crate::error::GenerateError;
use crate::outputs::{CompletionOutput, RequestOutput};
use chat::ChatPieces;

/// A piece of a streamed answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The event's name, in streams whose events have names.
    pub event: Option<&'static str>,
    /// A JSON text.
    pub data: String,
}

impl From<String> for Piece {
    fn from(data: String) -> Self {
        Self { event: None, data }
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
    pub(super) async fn begin(
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
pub(super) trait Pieces: fmt::Debug + Send {
    /// Appends what an output of the request for prompt number `prompt` is in the API's words.
    fn add(&mut self, prompt: u32, output: RequestOutput, pieces: &mut VecDeque<Piece>);
    /// Appends what comes after the last output.
    fn end(&mut self, pieces: &mut VecDeque<Piece>);
    /// An error after the first piece.
    fn error(&mut self, error: &ErrorResponse) -> Piece {
        to_json(error).into()
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
        let pieces = CompletionPieces {
            head: self.head(id, context, &request.common),
            logprobs: HashMap::new(),
            echoed: HashSet::new(),
            tokenizer: self.engine().tokenizer().clone(),
            request,
        };
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
        let (generate, openings) = self.chat_generate_request(&request, &id)?;
        let constrained = generate.sampling_params.structured_outputs.is_some();
        let streams = self.start(vec![generate], context).await?;
        let head = self.head(id, context, &request.common);
        let role = self.response_role(&request);
        let pieces = ChatPieces::new(head, request, openings, role);
        EventStream::begin(streams, constrained, Box::new(pieces)).await
    }

    fn head(&self, id: String, context: &RequestContext, common: &CommonFields) -> Head {
        let options = common.stream_options.unwrap_or_default();
        Head {
            id,
            created: context.created,
            model: self.model_name(),
            system_fingerprint: self.system_fingerprint().to_owned(),
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

/// The pieces of a completion.
#[derive(Debug)]
struct CompletionPieces {
    request: CompletionRequest,
    head: Head,
    /// Where each answer's last token ended: offsets count from the answer's start.
    logprobs: HashMap<u32, u32>,
    /// Answers that have begun with their prompt, where `echo` asks for it.
    echoed: HashSet<u32>,
    tokenizer: Arc<Tokenizer>,
}

impl CompletionPieces {
    fn choice(
        &mut self,
        index: u32,
        output: &RequestOutput,
        completion: CompletionOutput,
        prompt_token_ids: Option<Vec<u32>>,
    ) -> CompletionResponseStreamChoice {
        let common = &self.request.common;
        let as_token_ids = common.return_tokens_as_token_ids;
        let keep_answer = !self.request.echo_only();
        let mut text = String::new();
        let asked = self.request.logprobs.is_some();
        let mut logprobs = asked.then(CompletionLogProbs::default);
        let echoes = self.request.echo && self.echoed.insert(index);
        if echoes {
            text = echo_prompt(&self.tokenizer, output, logprobs.as_mut(), as_token_ids);
        }
        if keep_answer {
            text.push_str(&completion.text);
            let positions = completion.logprobs.as_deref().unwrap_or_default();
            for position in positions.iter().filter(|_| asked) {
                if let Some(logprobs) = &mut logprobs {
                    logprobs.push(Some(position), "", as_token_ids);
                }
            }
        }
        let mut logprobs = logprobs.filter(|_| echoes || completion.logprobs.is_some());
        if let Some(logprobs) = &mut logprobs {
            let offset = self.logprobs.entry(index).or_default();
            *offset = logprobs.shift_offsets(*offset);
        }
        let token_ids = if keep_answer {
            completion.token_ids
        } else {
            Vec::new()
        };
        CompletionResponseStreamChoice {
            index,
            text,
            logprobs,
            finish_reason: completion.finish_reason.map(|r| r.as_str().to_owned()),
            stop_reason: completion.stop_reason.as_ref().map(stop_reason),
            structured_output_complete: completion.structured_output_complete,
            token_ids: common.return_token_ids.then_some(token_ids),
            prompt_token_ids,
        }
    }

    fn piece(
        &self,
        choices: Vec<CompletionResponseStreamChoice>,
        usage: Option<UsageInfo>,
    ) -> Piece {
        to_json(&CompletionStreamResponse {
            id: self.head.id.clone(),
            object: "text_completion".to_owned(),
            created: self.head.created,
            model: self.head.model.clone(),
            system_fingerprint: self.head.system_fingerprint.clone(),
            choices,
            usage,
        })
        .into()
    }
}

impl Pieces for CompletionPieces {
    fn add(&mut self, prompt: u32, output: RequestOutput, pieces: &mut VecDeque<Piece>) {
        let first = self.head.count(prompt, &output);
        if self.request.echo_only() {
            self.head.completion_tokens = 0;
        }
        let mut output = output;
        for completion in std::mem::take(&mut output.outputs) {
            let prompt_token_ids = (first && self.request.common.return_token_ids)
                .then(|| output.prompt_token_ids.to_vec());
            let index = prompt * self.head.n + completion.index;
            let choice = self.choice(index, &output, completion, prompt_token_ids);
            pieces.push_back(self.piece(vec![choice], self.head.continuous_usage()));
        }
    }

    fn end(&mut self, pieces: &mut VecDeque<Piece>) {
        if self.head.include_usage {
            pieces.push_back(self.piece(Vec::new(), Some(self.head.usage())));
        }
    }
}

/// Our own types always have a JSON form.
fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
