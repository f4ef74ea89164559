//! Process 0 of Formwork: everything between a user and the EngineCore process.
//!
//! What it is: validation, chat template and tokenization of requests ([`InputProcessor`]), the
//! connection to the core ([`engine_core_client`]), detokenization and streams
//! ([`OutputProcessor`]), put together as [`AsyncLLM`] for async programs and [`LLM`] for others;
//! the OpenAI API's types and behaviour without a transport ([`openai`]); the offline runner
//! ([`batch`]). Types have the names that vLLM V1 gives them.
//!
//! What it is not: it holds no tensor and no scheduler, compiles no grammar for the model's
//! vocabulary, and never touches the model's weights; those are the core's, in another process.
//!
//! ```
//! use engine_frontend::openai::{CompletionRequest, DefaultSamplingParams};
//! use serde_json::json;
//!
//! let body = json!({"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0});
//! let request = CompletionRequest::from_json(body)?;
//! let requests = request.to_generate_requests("cmpl-1", &DefaultSamplingParams::default());
//! assert_eq!(requests[0].sampling_params.max_tokens, Some(8));
//!
//! // What can't be honoured is refused by name.
//! let body = json!({"prompt": "Once upon a time", "guided_yaml": "a"});
//! let error = CompletionRequest::from_json(body).unwrap_err();
//! assert_eq!(error.parameter.as_deref(), Some("guided_yaml"));
//! # Ok::<(), engine_frontend::ValidationError>(())
//! ```

pub mod anthropic;
pub mod batch;
pub mod decisions;
pub mod detokenizer;
pub mod engine_core_client;
pub mod metrics;
pub mod openai;
pub mod pooler_config;
pub mod pooling;
pub mod server;

mod answer_budget;
mod arg_utils;
mod async_llm;
mod cancel_on_drop;
mod client_turns;
mod data_parallel;
mod error;
mod fetch_model;
mod freed_memory;
mod input_processor;
mod json_problem;
mod kv_events;
mod llm;
mod logging;
mod logprobs;
#[cfg(feature = "opentelemetry")]
mod otlp;
mod output_processor;
mod outputs;
mod parallel_sampling;
mod progress_display;
mod random;
mod request_output_collector;
mod sampling_params;
mod startup;
mod startup_error;
mod stop_strings;
mod structured_outputs;
mod supervisor;
mod terminal_text;
#[cfg(test)]
mod test_support;
mod thinking_split;
mod token_trace;
mod token_usage;
mod tokenizer_threads;
mod unique_json;

pub use answer_budget::AnswerBudget;
pub use arg_utils::{
    BackendArg, DeviceArg, DtypeArg, EngineArgs, GenerationConfigArg, LogprobsModeArg, PolicyArg,
    PrefixCachingHashArg, human_readable_int, with_flag_names,
};
pub use async_llm::{AsyncLLM, BoxFuture, CoreClient, RequestStream};
pub use data_parallel::DataParallelClient;
pub use detokenizer::{IncrementalDetokenizer, StopStringMatch};
pub use engine_core_client::CoreEvent;
pub use error::{
    EngineDeadError, ErrorDetails, ErrorLocation, GenerateError, ValidationError, cut_short,
};
pub use fetch_model::{draft_hub_name_of, fetch_model, hub_name_of, pull_model};
pub use input_processor::{
    CallersFields, ChatPrompt, ConstraintPart, GenerateRequest, InputProcessor, ProcessedInputs,
    Prompt, TruncationSide,
};
pub use kv_events::{Endpoint, KVEventPublisher, KVEventStats, KVEventsConfig, KVEventsError};
pub use llm::LLM;
pub use logging::{init_logging, init_logging_as};
pub use logprobs::{Logprob, LogprobsProcessor, PositionLogprobs};
pub use metrics::{EngineMetrics, Histogram};
pub use output_processor::OutputProcessor;
pub use outputs::{CompletionOutput, RequestOutput};
pub use parallel_sampling::ParentRequest;
pub use protocol::{
    FinishReason, PoolingParams, PoolingTask, PoolingType, PropertyOrder, RequestError,
    RequestErrorCode, RequestOutputKind, SamplingParams, SchedulerStats, Shared, StopReason,
    StructuredOutputsConstraint, StructuredOutputsParams, TokenTrace, TracedToken, Whitespace,
};
pub use request_output_collector::RequestOutputCollector;
pub use sampling_params::{ModelLimits, verify};
pub use startup::{start_engine, start_supervised_engine};
pub use startup_error::StartupError;
pub use stop_strings::StopStrings;
pub use structured_outputs::{
    AnswerKind, BackendOptions, ConstraintKeywords, FORMATS, KeywordEffect, KeywordPlace,
    Reasoning, ReasoningParser, SchemaWarning, StructuredOutputsArgs, TextFit, ThinkingMarkers,
    schema_warnings, shortest_text, visit_keywords, visit_lark_schemas, visit_tag_schemas,
};
pub use supervisor::{CoreHealth, CoreSource, SupervisedCore, SupervisorOptions};
pub use terminal_text::{controls_terminals, for_terminal};
pub use thinking_split::{Part, SplitMarkers, ThinkingSplit};
pub use token_usage::TokenUsage;
pub use tokenizer_threads::frontend_runtime;
