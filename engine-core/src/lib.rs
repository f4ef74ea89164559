//! The EngineCore: scheduler, KV cache, model and sampler of one process.

pub mod model_executor;
