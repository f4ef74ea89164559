//! Answers requests for embeddings, scores and rankings with an engine.

use std::sync::Arc;

use protocol::{PoolingParams, PoolingTask, ScoredPosition};
use structured_output::CancelFlag;

use super::embeddings::{
    Embedding, EmbeddingInput, EmbeddingRequest, EmbeddingResponse, EmbeddingResponseData,
    EncodingFormat, PromptOptions,
};
use super::scores::{
    RerankDocument, RerankRequest, RerankResponse, RerankResult, ScoreRequest, ScoreResponse,
    ScoreResponseData, Texts, ranked,
};
use crate::error::{GenerateError, ValidationError};
use crate::input_processor::{GenerateRequest, InputProcessor, Prompt};
use crate::openai::{OpenAIServing, RequestContext, ServingError, UsageInfo};
use crate::outputs::RequestOutput;
use crate::pooler_config::{PoolerConfig, ScoreKind};
use crate::sampling_params::params_without_text;

/// Most tokens of all prompts of a request together: 16 MiB as ids, and half of a frame.
const MAX_PROMPT_TOKENS: usize = 2 << 20;

/// Most bytes of all pairs of texts together, the first text counted before each second: a few seconds of tokenizing.
const MAX_PAIR_BYTES: usize = 32 << 20;

/// Most numbers of all embeddings of a request: as numbers and as JSON they take up to 25 bytes each.
const MAX_ANSWER_NUMBERS: u64 = 3 << 19;

/// Prompts as the core is asked of them.
#[derive(Debug)]
pub struct PreparedPooling {
    requests: Vec<GenerateRequest>,
    ask: Ask,
    /// Numbers that the core answers each prompt with, at most.
    width: u32,
}

impl PreparedPooling {
    /// Bytes of the prompts' tokens, and of the numbers that answer them.
    pub fn num_bytes(&self) -> usize {
        let requests = self.requests.iter();
        let answer_bytes = self.width as usize * size_of::<f32>();
        requests
            .map(|request| request.num_bytes() + answer_bytes)
            .sum()
    }
}

/// What is asked of each prompt.
#[derive(Debug, Clone)]
enum Ask {
    Pooled(PoolingParams),
    /// How likely the second token is against the first, next after the prompt.
    Tokens {
        token_ids: [u32; 2],
        /// As a probability, or as the difference of their logits.
        use_activation: bool,
    },
}

/// A prompt that is to be tokenized.
struct Input {
    field: String,
    form: Form,
}

enum Form {
    Text(String),
    TokenIds(Vec<u32>),
    /// Two texts in the tokenizer's own form for such.
    Pair(Arc<str>, String),
    /// Two texts as one.
    Joined(Arc<str>, String),
}

impl OpenAIServing {
    /// Turns a request for embeddings into what the core is asked.
    ///
    /// # Errors
    /// The request names another model, the model makes no embeddings, or an input is too long.
    pub async fn prepare_embeddings(
        &self,
        request: &mut EmbeddingRequest,
        context: &RequestContext,
    ) -> Result<PreparedPooling, ServingError> {
        self.check_model(request.model.as_deref())?;
        let config = self.pooler()?;
        if config.score != ScoreKind::Cosine {
            return Err(no_embeddings(&config).into());
        }
        let hidden_size = self.engine().ready_response().pooler.hidden_size;
        check_dimensions(request.dimensions, &config, hidden_size)?;
        let width = request.dimensions.unwrap_or(hidden_size);
        let numbers = request.input.len() as u64 * u64::from(width);
        if numbers > MAX_ANSWER_NUMBERS {
            let most = MAX_ANSWER_NUMBERS / u64::from(width.max(1));
            let message = format!(
                "input: {} embeddings of {width} numbers are too many for one answer; at most {most} inputs are \
                 possible",
                request.input.len()
            );
            return Err(ValidationError::field("input", request.input.len(), message).into());
        }
        let params = PoolingParams {
            dimensions: request.dimensions,
            use_activation: request.use_activation.unwrap_or(config.use_activation),
            ..embed(&config)
        };
        let fields: Vec<String> = (0..request.input.len()).map(|i| request.field(i)).collect();
        let num_bytes = request.num_bytes();
        let inputs = std::mem::take(&mut request.input).into_iter();
        let inputs = inputs.zip(fields).map(|(input, field)| Input {
            field,
            form: match input {
                EmbeddingInput::Text(text) => Form::Text(text),
                EmbeddingInput::TokenIds(ids) => Form::TokenIds(ids),
            },
        });
        let id = request_id("embd", &request.prompts, context);
        let inputs = inputs.collect();
        self.prepare(inputs, num_bytes, Ask::Pooled(params), &request.prompts, id)
            .await
    }

    /// Asks the core for embeddings.
    ///
    /// # Errors
    /// There is no room for all requests, or the core failed on one.
    pub async fn create_embeddings(
        &self,
        prepared: PreparedPooling,
        request: &EmbeddingRequest,
        context: &RequestContext,
    ) -> Result<EmbeddingResponse, ServingError> {
        let outputs = self.generate(prepared.requests, context).await?;
        let usage = self.pooling_usage(&outputs);
        let mut data = Vec::with_capacity(outputs.len());
        for (index, output) in (0..).zip(outputs) {
            let vector = vector_of(output)?;
            if request.encoding_format == EncodingFormat::Float
                && vector.iter().any(|value| !value.is_finite())
            {
                return Err(not_finite());
            }
            data.push(EmbeddingResponseData {
                index,
                object: "embedding".to_owned(),
                embedding: Embedding::new(vector, request.encoding_format),
            });
        }
        Ok(EmbeddingResponse {
            id: request_id("embd", &request.prompts, context),
            object: "list".to_owned(),
            created: context.created,
            model: self.model_name(),
            data,
            usage,
        })
    }

    /// Prompts that a request for scores takes: its pairs, or all its texts where they are compared by their vectors.
    pub fn num_score_prompts(&self, request: &ScoreRequest) -> usize {
        let num_pairs = request.text_2.texts.len();
        match self.pooler() {
            Ok(config) if matches!(config.score, ScoreKind::Cosine) => {
                num_pairs + request.text_1.texts.len()
            }
            _ => num_pairs,
        }
    }

    /// Turns a request for scores into what the core is asked.
    ///
    /// # Errors
    /// The request names another model, the model scores nothing, or a text is too long.
    pub async fn prepare_scores(
        &self,
        request: &ScoreRequest,
        context: &RequestContext,
    ) -> Result<PreparedPooling, ServingError> {
        self.check_model(request.model.as_deref())?;
        let config = self.pooler()?;
        let ScoreRequest { text_1, text_2, .. } = request;
        let num_bytes = match config.score {
            ScoreKind::Cosine => text_1.num_bytes() + text_2.num_bytes(),
            ScoreKind::Classifier | ScoreKind::Tokens { .. } => check_pairs(text_1, text_2)?,
        };
        let id = request_id("score", &request.prompts, context);
        let (inputs, ask) = match &config.score {
            ScoreKind::Cosine => {
                let params = PoolingParams {
                    use_activation: true,
                    ..embed(&config)
                };
                (
                    each(text_1).chain(each(text_2)).collect(),
                    Ask::Pooled(params),
                )
            }
            ScoreKind::Classifier => {
                let num_labels = self.engine().ready_response().pooler.num_labels;
                if num_labels != 1 {
                    let message = format!(
                        "this model's classifier has {num_labels} labels: scores need a model with one"
                    );
                    return Err(ValidationError::about("model", message).into());
                }
                let params = PoolingParams {
                    task: PoolingTask::Classify,
                    use_activation: request.use_activation.unwrap_or(config.use_activation),
                    ..embed(&config)
                };
                (
                    pairs(text_1, text_2, config.is_encoder),
                    Ask::Pooled(params),
                )
            }
            ScoreKind::Tokens { no, yes } => {
                let token = |text: &str| {
                    self.engine().tokenizer().token_to_id(text).ok_or_else(|| {
                        let message =
                            format!("classifier_from_token: {text:?} is no token of this model");
                        ValidationError::about("model", message)
                    })
                };
                let ask = Ask::Tokens {
                    token_ids: [token(no)?, token(yes)?],
                    use_activation: request.use_activation.unwrap_or(config.use_activation),
                };
                (pairs(text_1, text_2, config.is_encoder), ask)
            }
        };
        self.prepare(inputs, num_bytes, ask, &request.prompts, id)
            .await
    }

    /// Asks the core for the scores of all pairs, in their order.
    async fn score(
        &self,
        prepared: PreparedPooling,
        num_first: usize,
        context: &RequestContext,
    ) -> Result<(Vec<f32>, UsageInfo), ServingError> {
        let PreparedPooling { requests, ask, .. } = prepared;
        let outputs = self.generate(requests, context).await?;
        let usage = self.pooling_usage(&outputs);
        let scores = match ask {
            Ask::Pooled(params) if params.task == PoolingTask::Embed => {
                let vectors: Result<Vec<_>, _> = outputs.into_iter().map(vector_of).collect();
                let vectors = vectors?;
                let (first, second) = vectors.split_at(num_first.min(vectors.len()));
                let first = first.iter().cycle();
                first.zip(second).map(|(a, b)| dot(a, b)).collect()
            }
            Ask::Pooled(_) => {
                let score = |output| Ok(vector_of(output)?.first().copied().unwrap_or(f32::NAN));
                let scores: Result<Vec<f32>, ServingError> =
                    outputs.into_iter().map(score).collect();
                scores?
            }
            Ask::Tokens { use_activation, .. } => {
                let score = |output: &RequestOutput| token_score(output, use_activation);
                outputs.iter().map(score).collect()
            }
        };
        match scores.iter().all(|score: &f32| score.is_finite()) {
            true => Ok((scores, usage)),
            false => Err(not_finite()),
        }
    }

    /// Asks the core for scores.
    ///
    /// # Errors
    /// There is no room for all requests, or the core failed on one.
    pub async fn create_scores(
        &self,
        prepared: PreparedPooling,
        request: &ScoreRequest,
        context: &RequestContext,
    ) -> Result<ScoreResponse, ServingError> {
        let num_first = request.text_1.texts.len();
        let (scores, usage) = self.score(prepared, num_first, context).await?;
        let data = (0..).zip(scores).map(|(index, score)| ScoreResponseData {
            index,
            object: "score".to_owned(),
            score,
        });
        Ok(ScoreResponse {
            id: request_id("score", &request.prompts, context),
            object: "list".to_owned(),
            created: context.created,
            model: self.model_name(),
            data: data.collect(),
            usage,
        })
    }

    /// Asks the core for scores, and sorts the documents by them.
    ///
    /// # Errors
    /// As [`Self::create_scores`].
    pub async fn create_ranking(
        &self,
        prepared: PreparedPooling,
        mut request: RerankRequest,
        context: &RequestContext,
    ) -> Result<RerankResponse, ServingError> {
        let (scores, usage) = self.score(prepared, 1, context).await?;
        let documents = &mut request.score.text_2.texts;
        let return_documents = request.return_documents;
        let results = ranked(&scores, request.top_n)
            .into_iter()
            .map(|(index, relevance_score)| RerankResult {
                index: u32::try_from(index).unwrap_or(u32::MAX),
                document: documents
                    .get_mut(index)
                    .filter(|_| return_documents)
                    .map(|text| RerankDocument {
                        text: std::mem::take(text),
                    }),
                relevance_score,
            });
        Ok(RerankResponse {
            id: request_id("rerank", &request.score.prompts, context),
            model: self.model_name(),
            usage,
            results: results.collect(),
        })
    }

    /// What the model makes of prompts.
    fn pooler(&self) -> Result<Arc<PoolerConfig>, ServingError> {
        let config = self.engine().pooler_config().cloned();
        config.ok_or_else(|| {
            let message = "this model generates text and makes no embeddings or scores: serve a model that does, or \
                           start the server with --convert embed or --runner pooling";
            ValidationError::about("model", message).into()
        })
    }

    fn pooling_usage(&self, outputs: &[RequestOutput]) -> UsageInfo {
        let prompt: usize = outputs.iter().map(|o| o.prompt_token_ids.len()).sum();
        let cached = outputs.iter().map(|o| u64::from(o.num_cached_tokens)).sum();
        let usage = UsageInfo::new(prompt as u64, 0);
        usage.with_cached_tokens(self.tells_cached_tokens().then_some(cached))
    }

    /// Tokenizes prompts, on a thread that serves no streams.
    async fn prepare(
        &self,
        inputs: Vec<Input>,
        num_bytes: usize,
        ask: Ask,
        options: &PromptOptions,
        id: String,
    ) -> Result<PreparedPooling, ServingError> {
        let width = match &ask {
            Ask::Pooled(params) if params.task == PoolingTask::Embed => params
                .dimensions
                .unwrap_or(self.engine().ready_response().pooler.hidden_size),
            Ask::Pooled(_) | Ask::Tokens { .. } => 2,
        };
        let options = options.clone();
        let max_model_len = self.engine().ready_response().max_model_len;
        let work = move |processor: &InputProcessor, cancel: &CancelFlag| {
            let mut prepared = PreparedPooling {
                requests: Vec::with_capacity(inputs.len()),
                ask,
                width,
            };
            let mut num_tokens = 0;
            for Input { field, form } in inputs {
                if cancel.is_cancelled() {
                    return Err(ValidationError::new("the request was cancelled"));
                }
                let (token_ids, second) =
                    tokenize(processor, form, &options, max_model_len, cancel)
                        .map_err(|error| of_input(&field, error))?;
                num_tokens += token_ids.len();
                if num_tokens > MAX_PROMPT_TOKENS {
                    let message = format!(
                        "the texts up to {field} have {num_tokens} tokens together: at most {MAX_PROMPT_TOKENS} are \
                         possible. Send fewer in one request"
                    );
                    return Err(ValidationError::field(field, num_tokens, message));
                }
                let request = core_request(&id, token_ids, second, &prepared.ask, &options, field);
                prepared.requests.push(request);
            }
            Ok(prepared)
        };
        let engine = self.engine();
        Ok(engine.with_input_processor(num_bytes, work).await?)
    }
}

/// The tokens of a prompt, and the first place of a second text that the model tells from the first.
fn tokenize(
    processor: &InputProcessor,
    form: Form,
    options: &PromptOptions,
    max_model_len: u32,
    cancel: &CancelFlag,
) -> Result<(Vec<u32>, Option<usize>), ValidationError> {
    let keep = match options.truncate_prompt_tokens {
        None => None,
        Some(-1) => Some(max_model_len),
        Some(keep) => {
            let within = u32::try_from(keep)
                .ok()
                .filter(|keep| *keep <= max_model_len);
            Some(within.ok_or_else(|| {
                let message = format!(
                    "truncate_prompt_tokens must be between 1 and the model's context length {max_model_len}, or -1"
                );
                ValidationError::field("truncate_prompt_tokens", keep, message)
            })?)
        }
    };
    let keep = keep.map(|keep| keep as usize);
    let of_text = |text| {
        let prompt = Prompt::Text(text);
        let tokenized = processor.tokenize(prompt, options.add_special_tokens, cancel);
        tokenized.map(|tokenized| tokenized.token_ids)
    };
    let (mut token_ids, mut second) = match form {
        Form::TokenIds(token_ids) => (token_ids, None),
        Form::Text(text) => (of_text(text)?, None),
        Form::Joined(first, second) => (of_text(format!("{first}{second}"))?, None),
        Form::Pair(first, second) => {
            processor.tokenize_pair(&first, &second, options.add_special_tokens, keep, cancel)?
        }
    };
    if let Some(keep) = keep
        && let Some(excess) = token_ids.len().checked_sub(keep)
    {
        // What the tokenizer puts at the end stays there.
        let has_end = token_ids
            .last()
            .is_some_and(|id| processor.is_special_token(*id));
        let end = token_ids.len() - usize::from(has_end && keep > 1);
        token_ids.drain(end - excess..end);
        second = second.map(|second| second.min(token_ids.len()));
    }
    // What was cut off is not to be held while thousands of others are made.
    token_ids.shrink_to_fit();
    Ok((token_ids, second))
}

/// What the core is asked of one prompt.
fn core_request(
    id: &str,
    token_ids: Vec<u32>,
    second: Option<usize>,
    ask: &Ask,
    options: &PromptOptions,
    field: String,
) -> GenerateRequest {
    let num_tokens = u32::try_from(token_ids.len()).unwrap_or(u32::MAX);
    let mut request = GenerateRequest::new(
        id.to_owned(),
        Prompt::TokenIds(token_ids),
        params_without_text(),
    );
    request.priority = options.priority;
    request.cache_salt = options.cache_salt.clone();
    request.prompt_field = Some(field);
    match ask {
        Ask::Pooled(params) => {
            request.pooling_params = Some(PoolingParams {
                compressed_token_type_ids: second.and_then(|second| u32::try_from(second).ok()),
                ..*params
            });
        }
        Ask::Tokens { token_ids, .. } => {
            request.scored_positions = [ScoredPosition {
                num_tokens,
                token_ids: token_ids.to_vec(),
            }]
            .into();
        }
    }
    request
}

/// What is wrong with a prompt, by the name that its caller has for it.
fn of_input(field: &str, error: ValidationError) -> ValidationError {
    match error.parameter.as_deref() {
        Some("prompt" | "input_tokens") | None => ValidationError {
            message: format!("{field}: {}", error.message),
            parameter: Some(field.to_owned()),
            ..error
        },
        Some(_) => error,
    }
}

/// Each text as a prompt of its own.
fn each(texts: &Texts) -> impl Iterator<Item = Input> + '_ {
    let inputs = texts.texts.iter().enumerate();
    inputs.map(|(i, text)| Input {
        field: texts.field(i),
        form: Form::Text(text.clone()),
    })
}

/// Each second text behind its first. A decoder reads them as one text.
fn pairs(text_1: &Texts, text_2: &Texts, is_encoder: bool) -> Vec<Input> {
    let firsts: Vec<Arc<str>> = text_1
        .texts
        .iter()
        .map(|text| text.as_str().into())
        .collect();
    let pairs = firsts.iter().cycle().zip(&text_2.texts).enumerate();
    let input = |(i, (first, second)): (usize, (&Arc<str>, &String))| Input {
        field: text_2.field(i),
        form: match is_encoder {
            true => Form::Pair(Arc::clone(first), second.clone()),
            false => Form::Joined(Arc::clone(first), second.clone()),
        },
    };
    pairs.map(input).collect()
}

/// Bytes of all pairs.
fn check_pairs(text_1: &Texts, text_2: &Texts) -> Result<usize, ValidationError> {
    let count = text_2.texts.len();
    let times = count / text_1.texts.len().max(1);
    let num_bytes = text_1.num_bytes().saturating_mul(times) + text_2.num_bytes();
    if num_bytes <= MAX_PAIR_BYTES {
        return Ok(num_bytes);
    }
    let field = text_1.field;
    let message = format!(
        "{field} before each of {count} texts makes {num_bytes} bytes: at most {MAX_PAIR_BYTES} are read in one \
         request. Send fewer, or shorter ones"
    );
    Err(ValidationError::field(field, num_bytes, message))
}

fn embed(config: &PoolerConfig) -> PoolingParams {
    PoolingParams {
        pooling_type: config.pooling_type,
        ..PoolingParams::default()
    }
}

fn check_dimensions(
    dimensions: Option<u32>,
    config: &PoolerConfig,
    hidden_size: u32,
) -> Result<(), ValidationError> {
    let Some(dimensions) = dimensions else {
        return Ok(());
    };
    let wrong = |message| Err(ValidationError::field("dimensions", dimensions, message));
    if !config.is_matryoshka {
        return wrong(
            "dimensions: this model does not support matryoshka representation, so that fewer dimensions give poor \
             results; leave it out (--hf-overrides '{\"is_matryoshka\": true}' says that it does)"
                .to_owned(),
        );
    }
    match &config.matryoshka_dimensions {
        Some(known) if !known.contains(&dimensions) => wrong(format!(
            "dimensions must be one of {known:?}, got {dimensions}"
        )),
        _ if dimensions > hidden_size => wrong(format!(
            "dimensions must be from 1 to the model's {hidden_size}, got {dimensions}"
        )),
        _ => Ok(()),
    }
}

fn no_embeddings(config: &PoolerConfig) -> ValidationError {
    let message = format!(
        "this model scores pairs of texts and makes no embeddings: it serves {}",
        config.routes()
    );
    ValidationError::about("model", message)
}

fn vector_of(output: RequestOutput) -> Result<Vec<f32>, ServingError> {
    let vector = output.pooling_output;
    vector.ok_or_else(|| internal("the engine core pooled nothing"))
}

/// The score of a model that answers by tokens: the logarithms of both probabilities differ as the logits do.
fn token_score(output: &RequestOutput, use_activation: bool) -> f32 {
    match output.scores.first().map(|scores| &scores[..]) {
        Some([_, yes]) if use_activation => yes.exp(),
        Some([no, yes]) => yes - no,
        _ => f32::NAN,
    }
}

fn not_finite() -> ServingError {
    internal("the model computed numbers that are not finite, which JSON can't hold")
}

fn internal(message: &str) -> ServingError {
    ServingError::Generate(GenerateError::Request(protocol::RequestError::new(
        protocol::RequestErrorCode::InternalError,
        message,
    )))
}

/// The product of vectors of length 1: the cosine of their angle.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
    products.sum::<f64>() as f32
}

fn request_id(prefix: &str, options: &PromptOptions, context: &RequestContext) -> String {
    let own = options.request_id.as_deref();
    format!("{prefix}-{}", own.unwrap_or(&context.request_id))
}
