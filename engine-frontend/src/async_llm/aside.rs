//! Work that is linear in a request's size runs on threads that serve no streams.

use structured_output::CancelFlag;
use tokenizer::Tokenizer;

use super::{AsyncLLM, internal_error};
use crate::error::{GenerateError, ValidationError};
use crate::input_processor::{GenerateRequest, InputProcessor, ProcessedInputs, Prompt};
use crate::tokenizer_threads::LONG;

impl AsyncLLM {
    /// Makes requests ready for the core, on no thread that serves streams: a long prompt takes a while to
    /// tokenize, a constraint to be checked. What can't be checked at once is left to the core.
    pub(super) async fn process_inputs(
        &self,
        requests: Vec<GenerateRequest>,
        num_bytes: usize,
    ) -> Result<Vec<ProcessedInputs>, GenerateError> {
        let processor = self.input_processor.clone();
        let mut verified = None;
        let mut requests = requests;
        let has_constraint = requests
            .first()
            .is_some_and(|first| first.sampling_params.structured_outputs.is_some());
        if has_constraint {
            // Its text is hashed to see whether it is known.
            let checker = processor.clone();
            let find_out = move |_: &CancelFlag| {
                let first = requests.first();
                let is_due = first.is_some_and(|first| checker.is_check_due(first));
                (requests, is_due)
            };
            let is_check_due;
            (requests, is_check_due) = self.run_by_size(num_bytes, find_out).await?;
            if is_check_due && let Some(turn) = self.check_thread.try_turn() {
                let checker = processor.clone();
                let verify = move |cancel: &CancelFlag| {
                    let first = requests.first();
                    let verified = first.map(|first| checker.verify_params(first, Some(cancel)));
                    (requests, verified.transpose())
                };
                let checked = turn.run(verify).await;
                let result;
                (requests, result) =
                    checked.ok_or_else(|| internal_error("the constraint's check failed"))?;
                verified = result?;
            }
        }
        let process = move |cancel: &CancelFlag| {
            let process = |request| processor.process_like(&mut verified, request, cancel);
            requests.into_iter().map(process).collect()
        };
        let processed: Result<_, ValidationError> = self.run_aside(num_bytes, process).await?;
        Ok(processed?)
    }

    /// Runs what is linear in a request's size, of about so many bytes: little of it at once, as it delays nobody, and
    /// more [aside](Self::run_aside).
    ///
    /// # Errors
    /// It panicked aside.
    pub(crate) async fn run_by_size<T: Send + 'static>(
        &self,
        num_bytes: usize,
        work: impl FnOnce(&CancelFlag) -> T + Send + 'static,
    ) -> Result<T, GenerateError> {
        match num_bytes <= LONG {
            true => Ok(work(&CancelFlag::new())),
            false => self.run_aside(num_bytes, work).await,
        }
    }

    /// Runs what is linear in a request's size, of about so many bytes, on a thread that serves no streams. Its
    /// flag is set when nobody waits for it any more.
    ///
    /// # Errors
    /// It panicked.
    pub(crate) async fn run_aside<T: Send + 'static>(
        &self,
        num_bytes: usize,
        work: impl FnOnce(&CancelFlag) -> T + Send + 'static,
    ) -> Result<T, GenerateError> {
        let result = self.tokenizer_threads.run(num_bytes, work).await;
        result.map_err(|error| internal_error(&error.to_string()))
    }

    /// Runs work on prompts of about so many bytes as [`Self::generate`] reads them, on a thread that serves no
    /// streams.
    ///
    /// # Errors
    /// Those of the work, or it panicked.
    pub(crate) async fn with_input_processor<T: Send + 'static>(
        &self,
        num_bytes: usize,
        work: impl FnOnce(&InputProcessor, &CancelFlag) -> Result<T, ValidationError> + Send + 'static,
    ) -> Result<T, GenerateError> {
        let processor = self.input_processor.clone();
        let work = move |cancel: &CancelFlag| work(&processor, cancel);
        Ok(self.run_aside(num_bytes, work).await??)
    }

    /// Turns a prompt into tokens, as [`Self::generate`] does, and makes `answer` of them there.
    ///
    /// # Errors
    /// The prompt is wrong, or longer than what is counted.
    pub(crate) async fn tokenize<T: Send + 'static>(
        &self,
        prompt: Prompt,
        add_special_tokens: bool,
        answer: impl FnOnce(Vec<u32>, &Tokenizer) -> T + Send + 'static,
    ) -> Result<T, GenerateError> {
        let input_processor = self.input_processor.clone();
        let tokenizer = self.tokenizer.clone();
        let num_bytes = prompt.num_bytes();
        let tokenize = move |cancel: &CancelFlag| {
            let tokenized = input_processor.tokenize(prompt, add_special_tokens, cancel)?;
            Ok::<_, ValidationError>(answer(tokenized.token_ids, &tokenizer))
        };
        Ok(self.run_aside(num_bytes, tokenize).await??)
    }

    /// The text of tokens, special ones included; of no more than are counted of a text.
    ///
    /// # Errors
    /// Too many tokens, or one that the model doesn't have.
    pub(crate) async fn detokenize(&self, tokens: Vec<u32>) -> Result<String, GenerateError> {
        let max_tokens = self.input_processor.max_counted_tokens() as usize;
        let count = tokens.len();
        if count > max_tokens {
            let message = format!("tokens must be at most {max_tokens}, got {count}");
            return Err(ValidationError::field("tokens", count, message).into());
        }
        let tokenizer = self.tokenizer.clone();
        let size = tokenizer.vocab_size();
        if let Some(id) = tokens.iter().find(|id| **id as usize >= size) {
            let message =
                format!("token id {id} is out of range: the model's ids are below {size}");
            return Err(ValidationError::field("tokens", id, message).into());
        }
        let decode = move |_: &CancelFlag| tokenizer.decode(&tokens, false);
        self.run_aside(count * size_of::<u32>(), decode).await
    }
}
