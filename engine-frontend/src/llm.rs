//! The engine for programs without an async runtime.

use protocol::{RequestOutputKind, SamplingParams};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::arg_utils::EngineArgs;
use crate::async_llm::{AsyncLLM, RequestStream};
use crate::error::GenerateError;
use crate::input_processor::{ChatPrompt, GenerateRequest, Prompt};
use crate::openai::DefaultSamplingParams;
use crate::outputs::RequestOutput;
use crate::startup::{StartupError, start_engine};

/// An engine with its own core process, for programs that wait for whole answers.
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
#[derive(Debug)]
pub struct LLM {
    engine: AsyncLLM,
    default_sampling_params: DefaultSamplingParams,
    runtime: Runtime,
}

impl LLM {
    /// Starts a core and loads the model.
    ///
    /// # Errors
    /// No model there, or it can't be loaded; no core executable; no memory.
    pub fn new(args: &EngineArgs) -> Result<Self, StartupError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(StartupError::Runtime)?;
        let (engine, default_sampling_params) = runtime.block_on(start_engine(args))?;
        Ok(Self {
            engine,
            default_sampling_params,
            runtime,
        })
    }

    /// Sampling parameters as the model's `generation_config.json` recommends them.
    pub fn default_sampling_params(&self) -> SamplingParams {
        self.default_sampling_params.to_sampling_params()
    }

    /// Continues prompts. The outputs are in the prompts' order; what is wrong with one prompt is
    /// no matter for the others.
    ///
    /// # Errors
    /// The core is gone. Errors of single prompts are in the list.
    pub fn generate<P: Clone + Into<Prompt>>(
        &self,
        prompts: &[P],
        sampling_params: &SamplingParams,
    ) -> Result<Vec<Result<RequestOutput, GenerateError>>, GenerateError> {
        let prompts = prompts.iter().cloned().map(Into::into);
        self.run(prompts, sampling_params)
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
        self.runtime
            .block_on(async { self.engine.generate(request).await?.collect().await })
    }

    fn run(
        &self,
        prompts: impl Iterator<Item = Prompt>,
        sampling_params: &SamplingParams,
    ) -> Result<Vec<Result<RequestOutput, GenerateError>>, GenerateError> {
        self.runtime.block_on(async {
            let mut streams: Vec<Result<RequestStream, GenerateError>> = Vec::new();
            for (i, prompt) in prompts.enumerate() {
                let request = request(i, prompt, sampling_params);
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
        // Nobody waits for an answer any more, so how the core ends is no matter.
        let _ = self.runtime.block_on(self.engine.shutdown(0.0));
    }
}
