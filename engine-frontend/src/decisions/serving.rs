//! Answers questions with an engine.

use std::sync::Arc;

use serde_json::json;
use structured_output::CancelFlag;

use super::option_trie::{OptionTrie, TriePath};
use super::question::{Question, Questions};
use crate::error::ValidationError;
use crate::input_processor::{ChatPrompt, GenerateRequest, InputProcessor, Prompt, SharedPieces};
use crate::openai::{OpenAIServing, RequestContext, ServingError, ToolChoice};
use crate::sampling_params::params_without_text;

/// Most tokens of all prompts of a request together: 16 MiB as ids, and half of a frame.
const MAX_PROMPT_TOKENS: usize = 4 << 20;

/// Most requests to the core that the questions of one may become: each is a turn that others wait for.
const MAX_PATHS: usize = 1024;

/// Questions as the core is asked them.
#[derive(Debug)]
pub struct PreparedDecision {
    tries: Vec<OptionTrie>,
    /// Tokens of each question's prompt.
    prompt_tokens: Vec<u64>,
    asked: Vec<AskedPath>,
}

/// What one request to the core asks.
#[derive(Debug)]
struct AskedPath {
    /// Index of the question.
    question: usize,
    path: TriePath,
    request: GenerateRequest,
}

impl AskedPath {
    fn token_ids(&self) -> &[u32] {
        match &self.request.prompt {
            Prompt::TokenIds(token_ids) => token_ids,
            _ => &[],
        }
    }
}

/// What came of questions.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The probabilities of each question's options; `None` where the model tells none.
    pub(super) probabilities: Vec<Option<Vec<f64>>>,
    /// Tokens of the questions' prompts, each once.
    pub(super) input_tokens: u64,
    /// Of these, tokens from the prefix cache, where the server tells them.
    pub(super) cached_tokens: u64,
}

impl PreparedDecision {
    /// Bytes of the prompts' tokens.
    pub fn num_bytes(&self) -> usize {
        self.asked
            .iter()
            .map(|asked| asked.request.num_bytes())
            .sum()
    }
}

impl OpenAIServing {
    /// Turns questions into what the core is asked.
    ///
    /// # Errors
    /// The request names another model, the template refuses it, an option can't be told from another, or the
    /// prompts are too long.
    pub async fn prepare_decision(
        &self,
        questions: &Arc<Questions>,
        context: &RequestContext,
    ) -> Result<PreparedDecision, ServingError> {
        self.check_model(questions.model.as_deref())?;
        self.engine().check_generates()?;
        let mut prompt = Prompt::Chat(ChatPrompt {
            add_generation_prompt: true,
            ..ChatPrompt::default()
        });
        self.complete_prompt(&mut prompt, &ToolChoice::None)?;
        let Prompt::Chat(mut chat) = prompt else {
            return Err(ValidationError::new("the model has no chat template").into());
        };
        // Nothing is generated, so nothing is thought either.
        let kwargs = chat.chat_template_kwargs.make_mut();
        kwargs.insert("reasoning_effort", json!("none"));
        kwargs.insert("enable_thinking", json!(false));
        kwargs.insert("thinking", json!(false));
        let preparation = Preparation {
            questions: Arc::clone(questions),
            chat,
            request_id: format!("decision-{}", context.request_id),
        };
        let engine = self.engine();
        let num_bytes = questions.num_bytes();
        let prepare = move |processor: &InputProcessor, cancel: &CancelFlag| {
            preparation.run(processor, cancel)
        };
        Ok(engine.with_input_processor(num_bytes, prepare).await?)
    }

    /// Asks the core, and makes probabilities of what it says.
    ///
    /// # Errors
    /// There is no room for all requests, or the core failed on one.
    pub async fn decide(
        &self,
        prepared: PreparedDecision,
        context: &RequestContext,
    ) -> Result<Decided, ServingError> {
        let PreparedDecision {
            tries,
            prompt_tokens,
            asked,
        } = prepared;
        let (places, requests): (Vec<_>, Vec<_>) = (asked.into_iter())
            .map(|asked| ((asked.question, asked.path), asked.request))
            .unzip();
        let outputs = self.generate(requests, context).await?;
        // What a question's prompts have all found in the cache.
        let mut cached_tokens = prompt_tokens.clone();
        for ((question, _), output) in places.iter().zip(&outputs) {
            let cached = &mut cached_tokens[*question];
            *cached = u64::from(output.num_cached_tokens).min(*cached);
        }
        let mut decided = Decided {
            probabilities: Vec::new(),
            input_tokens: prompt_tokens.iter().sum(),
            cached_tokens: match self.tells_cached_tokens() {
                true => cached_tokens.iter().sum(),
                false => 0,
            },
        };
        let mut answers: Vec<Vec<_>> = tries.iter().map(|_| Vec::new()).collect();
        for ((question, path), output) in places.into_iter().zip(outputs) {
            answers[question].push((path, output.scores));
        }
        let probabilities = tries.iter().zip(&answers);
        decided
            .probabilities
            .extend(probabilities.map(|(trie, answers)| trie.probabilities(answers)));
        Ok(decided)
    }
}

/// Questions that are to be tokenized.
struct Preparation {
    questions: Arc<Questions>,
    /// The conversation without its message.
    chat: ChatPrompt,
    request_id: String,
}

impl Preparation {
    fn run(
        self,
        processor: &InputProcessor,
        cancel: &CancelFlag,
    ) -> Result<PreparedDecision, ValidationError> {
        let mut prepared = PreparedDecision {
            tries: Vec::new(),
            prompt_tokens: Vec::new(),
            asked: Vec::new(),
        };
        let mut pieces = SharedPieces::default();
        let mut num_tokens = 0;
        for question in &self.questions.questions {
            if cancel.is_cancelled() {
                return Err(ValidationError::new("the request was cancelled"));
            }
            num_tokens += self.prepare(question, processor, &mut pieces, cancel, &mut prepared)?;
            if num_tokens > MAX_PROMPT_TOKENS {
                let message = format!(
                    "questions up to {} have prompts of {num_tokens} tokens together: at most \
                     {MAX_PROMPT_TOKENS} are possible. Ask fewer in one request",
                    question.field
                );
                return Err(ValidationError::field("questions", num_tokens, message));
            }
            let num_paths = prepared.asked.len();
            if num_paths > MAX_PATHS {
                let message = format!(
                    "the options of questions up to {} part in {num_paths} places that don't lie on one way: at most \
                     {MAX_PATHS} are possible in one request. Ask fewer questions, or fewer options",
                    question.field
                );
                return Err(ValidationError::field("questions", num_paths, message));
            }
        }
        // Each behind the one that it has most in common with, for the core computes only what differs.
        (prepared.asked).sort_by(|one, other| one.token_ids().cmp(other.token_ids()));
        Ok(prepared)
    }

    /// Adds a question; returns how many tokens the prompts have that ask it.
    fn prepare(
        &self,
        question: &Question,
        processor: &InputProcessor,
        pieces: &mut SharedPieces,
        cancel: &CancelFlag,
        prepared: &mut PreparedDecision,
    ) -> Result<usize, ValidationError> {
        let input = &self.questions.input;
        let content = question.prompt(input);
        let chat = ChatPrompt {
            messages: vec![json!({"role": "user", "content": content})],
            ..self.chat.clone()
        };
        let list = question.list();
        let shared_texts = [input.as_str(), &list];
        let prompt = processor
            .tokenize_for_options(chat, &content, shared_texts, pieces, cancel)
            .map_err(|error| of_question(question, error))?;
        let options = question.options.iter();
        let options: Vec<Vec<u32>> = options
            .map(|option| {
                processor.option_token_ids(&prompt, &option.text, &option.field, pieces, cancel)
            })
            .collect::<Result<_, _>>()?;
        let trie = OptionTrie::new(&options).map_err(|(one, other)| {
            Question::same(&question.options[one], &question.options[other])
        })?;
        let mut num_tokens = 0;
        for path in trie.paths(&options) {
            let token_ids = [&*prompt.token_ids, &*path.token_ids].concat();
            num_tokens += token_ids.len();
            let positions =
                trie.scored_positions(&path, prompt.token_ids.len(), processor.end_token_ids());
            let mut request = GenerateRequest::new(
                self.request_id.clone(),
                Prompt::TokenIds(token_ids),
                params_without_text(),
            );
            request.scored_positions = positions.into();
            prepared.asked.push(AskedPath {
                question: prepared.tries.len(),
                path,
                request,
            });
        }
        prepared.tries.push(trie);
        prepared.prompt_tokens.push(prompt.token_ids.len() as u64);
        Ok(num_tokens)
    }
}

/// What is wrong with a question's prompt, by the question's field. Prompts of questions are never cut.
fn of_question(question: &Question, error: ValidationError) -> ValidationError {
    let message = error.message.replace(", or set truncate_prompt_tokens", "");
    ValidationError {
        message: format!("{}: {message}", question.field),
        parameter: Some(question.field.clone()),
        ..error
    }
}
