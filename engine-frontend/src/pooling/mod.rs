//! Embeddings, scores and reranking: vectors and numbers of prompts in place of text.
//!
//! What a model is for comes from its folder and from flags ([`PoolerConfig`](crate::pooler_config::PoolerConfig)). [`embeddings`] is OpenAI's API,
//! [`scores`] has vLLM's `/v1/score` and the `/v1/rerank` of Jina and Cohere; [`serving`] answers all three: each
//! text or pair becomes a request of its own to the core.

mod embeddings;
mod scores;
mod serving;

pub use embeddings::{
    Embedding, EmbeddingInput, EmbeddingRequest, EmbeddingResponse, EmbeddingResponseData,
    EncodingFormat,
};
pub use scores::{
    RerankDocument, RerankRequest, RerankResponse, RerankResult, ScoreRequest, ScoreResponse,
    ScoreResponseData,
};
pub use serving::PreparedPooling;

/// Most texts of one request: OpenAI's limit.
const MAX_INPUTS: usize = 2048;
