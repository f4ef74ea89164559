//! Formwork's process 1: schedules requests, runs the model, samples tokens.
//!
//! It takes token ids and gives token ids: text, chat templates and HTTP are the frontend's. It is
//! no async program: a few threads with one duty each, and a busy loop that owns the scheduler.
//! The map of it all is `docs/architecture.md`.
//!
//! A core inside a program, one step at a time (the process of its own is [`engine::run_connected`]):
//!
//! ```
//! use engine_core::engine::{EngineCore, load_engine_core};
//! use engine_core::core::request::Request;
//! use protocol::{EngineConfig, EngineCoreRequest, SamplingParams};
//!
//! let mut config = EngineConfig::default(); // the built-in model
//! config.scheduler_config.max_num_seqs = 4;
//! let loaded = load_engine_core(&config, None, &mut |_| {})?;
//! let block_hasher = loaded.block_hasher;
//! let (_aborts, aborts_queue) = crossbeam_channel::unbounded();
//! let mut engine_core = EngineCore::new(loaded.scheduler, loaded.executor, aborts_queue);
//!
//! let request = EngineCoreRequest {
//!     request_id: "1".to_owned(),
//!     prompt_token_ids: [40, 41, 42].into(),
//!     sampling_params: SamplingParams { max_tokens: Some(3), ..Default::default() },
//!     ..Default::default()
//! };
//! engine_core.add_request(Request::from_engine_core_request(request, &block_hasher));
//! let mut num_tokens = 0;
//! while engine_core.has_work() {
//!     for outputs in engine_core.step()?.into_values() {
//!         num_tokens += outputs.outputs.iter().map(|output| output.new_token_ids.len()).sum::<usize>();
//!     }
//! }
//! assert!((1..=3).contains(&num_tokens));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod core;
pub mod engine;
mod lock;
pub mod model_executor;
mod panic_message;
mod repetition;
pub mod request_id;
pub mod sample;
mod shared_prefix;
pub mod structured_output;
mod token_trace;
pub mod worker;
