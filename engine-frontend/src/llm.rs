//! The engine for programs without an async runtime.

use protocol::{RequestOutputKind, SamplingParams};
use serde_json::Value;
use tokio::runtime::{Handle, Runtime};

use crate::arg_utils::EngineArgs;
use crate::async_llm::{AsyncLLM, RequestStream};
use crate::error::GenerateError;
use crate::input_processor::{ChatPrompt, GenerateRequest, Prompt};
use crate::openai::DefaultSamplingParams;
use crate::outputs::RequestOutput;
use crate::startup::fetch_and_start_engine;
use crate::startup_error::StartupError;
use crate::tokenizer_threads::frontend_runtime;

/// An engine with its own core process, for programs that wait for whole answers. Its methods
/// block: async code, where that panics, has [`AsyncLLM`].
///
/// ```no_run
/// use engine_frontend::{EngineArgs, LLM, SamplingParams};
///
/// let llm = LLM::new(&EngineArgs::default())?;
/// let params = SamplingParams { max_tokens: Some(32), ..llm.default_sampling_params() };
/// for output in llm.generate(&["Once upon a time"], &params)? {
///     println!("{}", output?.outputs[0].text);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What the output must be is one of the sampling parameters:
///
/// ```no_run
/// # use engine_frontend::{EngineArgs, LLM, SamplingParams};
/// use engine_frontend::{StructuredOutputsConstraint, StructuredOutputsParams};
///
/// # let llm = LLM::new(&EngineArgs::default())?;
/// let answers = ["positive", "negative"].map(str::to_owned).to_vec();
/// let choice = StructuredOutputsConstraint::Choice(answers);
/// let email = StructuredOutputsConstraint::Regex(r"\w+@\w+\.com".to_owned());
/// let schema = r#"{"type": "object", "properties": {"brand": {"type": "string"}},
///     "required": ["brand"]}"#;
/// let car = StructuredOutputsConstraint::Json(schema.to_owned());
/// for constraint in [choice, email, car] {
///     let params = SamplingParams {
///         max_tokens: Some(64),
///         structured_outputs: Some(StructuredOutputsParams::new(constraint).into()),
///         ..llm.default_sampling_params()
///     };
///     for output in llm.generate(&["The car of Alan Turing, who liked it:"], &params)? {
///         println!("{}", output?.outputs[0].text);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LLM {
    engine: AsyncLLM,
    default_sampling_params: DefaultSamplingParams,
    handle: Handle,
    /// Present until the drop.
    runtime: Option<Runtime>,
}

impl LLM {
    /// Starts a core and loads the model, which is downloaded first where it is a name on the Hub.
    ///
    /// # Errors
    /// No model there, or it can't be loaded; no core executable; no memory.
    pub fn new(args: &EngineArgs) -> Result<Self, StartupError> {
        let runtime = frontend_runtime().map_err(StartupError::Runtime)?;
        let (_, engine, default_sampling_params) =
            runtime.block_on(fetch_and_start_engine(args))?;
        Ok(Self {
            engine,
            default_sampling_params,
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    /// Sampling parameters as the model's `generation_config.json` recommends them.
    pub fn default_sampling_params(&self) -> SamplingParams {
        self.default_sampling_params.to_sampling_params()
    }

    /// Continues prompts. The outputs are in the prompts' order. A prompt that is refused or fails
    /// has its error in the list; the others are still answered.
    ///
    /// # Errors
    /// The core is gone.
    pub fn generate<P: Clone + Into<Prompt>>(
        &self,
        prompts: &[P],
        sampling_params: &SamplingParams,
    ) -> Result<Vec<Result<RequestOutput, GenerateError>>, GenerateError> {
        self.handle.block_on(async {
            let mut streams: Vec<Result<RequestStream, GenerateError>> = Vec::new();
            for (i, prompt) in prompts.iter().enumerate() {
                let request = request(i, prompt.clone().into(), sampling_params);
                streams.push(self.engine.generate(request).await);
            }
            let mut outputs = Vec::with_capacity(streams.len());
            for stream in streams {
                let output = match stream {
                    Ok(stream) => stream.collect().await,
                    Err(error) => Err(error),
                };
                if let Err(error @ GenerateError::EngineDead(_)) = output {
                    return Err(error);
                }
                outputs.push(output);
            }
            Ok(outputs)
        })
    }

    /// Answers one conversation: objects with `role` and `content`, through the model's chat
    /// template.
    ///
    /// # Errors
    /// The request is wrong, the model has no chat template, or the core is gone.
    pub fn chat(
        &self,
        messages: &[Value],
        sampling_params: &SamplingParams,
    ) -> Result<RequestOutput, GenerateError> {
        let prompt = Prompt::Chat(ChatPrompt {
            messages: messages.to_vec(),
            add_generation_prompt: true,
            ..ChatPrompt::default()
        });
        let request = request(0, prompt, sampling_params);
        self.handle
            .block_on(async { self.engine.generate(request).await?.collect().await })
    }
}

/// Streams are no use to a caller who waits for the end.
fn request(index: usize, prompt: Prompt, sampling_params: &SamplingParams) -> GenerateRequest {
    let params = SamplingParams {
        output_kind: RequestOutputKind::FinalOnly,
        ..sampling_params.clone()
    };
    GenerateRequest::new(index.to_string(), prompt, params)
}

impl Drop for LLM {
    fn drop(&mut self) {
        // A runtime can neither wait nor end on a thread that runs async code, which may well hold
        // and drop this engine: it does both on a thread of its own.
        std::thread::scope(|scope| {
            let end = || {
                if let Some(runtime) = self.runtime.take() {
                    // No request is in flight, so there is no one to tell of an error.
                    let _ = runtime.block_on(self.engine.shutdown(0.0));
                }
            };
            // The scope waits for the thread.
            let _ = std::thread::Builder::new().spawn_scoped(scope, end);
        });
        // Still there where the system has no more threads; the core is killed with its client.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::fake_engine;

    #[test]
    fn it_can_be_dropped_within_a_runtime() {
        let runtime = Runtime::new().unwrap();
        let (engine, mut core) = runtime.block_on(async { fake_engine(64) });
        let llm = LLM {
            engine,
            default_sampling_params: DefaultSamplingParams::default(),
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        };
        let outer = Runtime::new().unwrap();
        outer.block_on(async move {
            drop(llm);
            assert_eq!(core.told.recv().await, None, "the client is gone");
        });
    }
}
