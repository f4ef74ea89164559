//! Every message between the frontend (process 0) and the EngineCore (process 1).
//!
//! What it is: the vocabulary of vLLM V1 as Rust types. No tokenizer, no scheduler,
//! no defaults that depend on a model: a type here says what travels, never what to do with it.
//!
//! ```
//! use protocol::{EngineCoreRequest, SamplingParams};
//!
//! let request = EngineCoreRequest {
//!     request_id: "cmpl-1".to_owned(),
//!     prompt_token_ids: vec![1, 2, 3],
//!     sampling_params: SamplingParams { max_tokens: Some(8), ..SamplingParams::default() },
//!     ..EngineCoreRequest::default()
//! };
//! assert_eq!(request.prompt_token_ids.len(), 3);
//! ```

mod config;
mod handshake;
mod output;
mod request;
mod sampling_params;
mod stats;
mod utility;

pub use config::{
    BackendKind, CacheConfig, Dtype, EngineConfig, ModelConfig, ModelSource, SchedulerConfig,
    SchedulingPolicy,
};
pub use handshake::{
    BUILD_VERSION, EngineCoreReadyResponse, EngineHandshakeMetadata, Hello, LoadProgress,
    PROTOCOL_VERSION, StartupFailure,
};
pub use output::{
    EngineCoreEvent, EngineCoreEventType, EngineCoreMessage, EngineCoreOutput, EngineCoreOutputs,
    EngineDead, FinishReason, LogprobsLists, PrefillStats, RequestError, RequestErrorCode,
    StopReason,
};
pub use request::{EngineCoreRequest, EngineCoreRequestType};
pub use sampling_params::{
    LogprobsMode, RepetitionDetection, RequestOutputKind, SamplingParams, ThinkingTokens,
};
pub use stats::{PrefixCacheStats, SchedulerStats};
pub use utility::{UtilityOutput, UtilityRequest, UtilityResult};
