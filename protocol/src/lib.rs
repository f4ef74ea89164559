//! Every message between the frontend (process 0) and the EngineCore (process 1), its encoding
//! ([`codec`]) and the socket that carries it ([`transport`]).
//!
//! What it is: the vocabulary of vLLM V1 as Rust types. What it is not: behaviour. No tokenizer,
//! no scheduler, no defaults that depend on a model: a type here says what travels, never what to
//! do with it. The core uses the blocking side of [`transport`]; the frontend the async one, behind
//! the feature `tokio`.
//!
//! A connection opens with the [`handshake`]. After it the frontend sends
//! [`EngineCoreRequestType`] frames and the core [`EngineCoreMessage`] frames:
//!
//! ```
//! use protocol::transport::{Listener, PrivateAddress, Stream};
//! use protocol::{EngineCoreRequest, EngineCoreRequestType, SamplingParams};
//!
//! let address = PrivateAddress::new()?;
//! let listener = Listener::bind(address.path())?;
//! let (_, mut frontend) = Stream::connect(address.path())?.split();
//! let (mut core, _) = listener.accept()?.split();
//!
//! let request = EngineCoreRequestType::Add(Box::new(EngineCoreRequest {
//!     request_id: "cmpl-1".to_owned(),
//!     prompt_token_ids: [1, 2, 3].into(),
//!     sampling_params: SamplingParams { max_tokens: Some(8), ..SamplingParams::default() },
//!     ..EngineCoreRequest::default()
//! }));
//! frontend.write(&request)?;
//! assert_eq!(core.read::<EngineCoreRequestType>()?, Some(request));
//! # Ok::<(), protocol::transport::TransportError>(())
//! ```

pub mod codec;
mod config;
mod grammar_problem;
pub mod handshake;
mod kv_events;
mod output;
mod pooling_params;
mod request;
mod request_type;
mod sampling_params;
mod shared;
mod siblings;
mod stats;
mod structured_output;
pub mod transport;
mod utility;

pub use config::{
    BackendKind, CacheConfig, DraftSampleMethod, Dtype, EngineConfig, JumpForward, KvCacheDtype,
    ModelConfig, ModelSource, ParallelConfig, PrefixCachingHashAlgo, Quantization, SchedulerConfig,
    SchedulingPolicy, SpeculativeConfig, SpeculativeMethod, StructuredOutputsConfig,
};
pub use grammar_problem::{GrammarLimit, GrammarPlace, GrammarPosition, GrammarProblem};
pub use handshake::{
    BUILD_VERSION, EngineCoreReadyResponse, EngineCoreStartupMessage, EngineHandshakeMetadata,
    Hello, LoadProgress, PROTOCOL_VERSION, StartupFailure,
};
pub use kv_events::{BlockStored, KVCacheEvent};
pub use output::{
    EngineCoreEvent, EngineCoreEventType, EngineCoreMessage, EngineCoreOutput, EngineCoreOutputs,
    EngineDead, FinishReason, LogprobsLists, PrefillStats, RequestError, RequestErrorCode,
    StopReason, TokenTrace, TracedToken,
};
pub use pooling_params::{PoolerInfo, PoolingParams, PoolingTask, PoolingType, RunnerType};
pub use request::{EngineCoreRequest, ScoredPosition};
pub use request_type::EngineCoreRequestType;
pub use sampling_params::{
    LogprobsMode, RepetitionDetection, RequestOutputKind, SamplingParams, ThinkingTokens,
};
pub use shared::Shared;
pub use siblings::{Sibling, Siblings};
pub use stats::{PrefixCacheStats, SchedulerStats, SpecDecodingStats, StructuredOutputStats};
pub use structured_output::{
    PropertyOrder, StructuredOutputsConstraint, StructuredOutputsParams, Whitespace,
};
pub use utility::{UtilityOutput, UtilityRequest, UtilityResult};
