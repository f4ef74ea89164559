//! Models of the Hugging Face Hub, by name, in the cache that Python's `huggingface_hub` has as well.
//!
//! What it is: names ([`HubName`]), the variables `HF_HOME` and others ([`HubSettings`]), and [`Hub`],
//! which downloads the files that Formwork reads of a repository and gives back their path. Downloads run
//! in parallel, go on where they were cut, and are compared with the checksums that the Hub has of them.
//!
//! What it is not: it reads no model, knows no flag and draws no progress bar. It blocks, and every thread
//! that it starts has ended when it returns, so that a process can confine itself afterwards.
//!
//! ```no_run
//! use hub::{Hub, HubName, HubSettings};
//!
//! let name = HubName::parse("Qwen/Qwen3-0.6B").ok_or("no name on the Hub")?;
//! let folder = Hub::new(HubSettings::from_env()?).fetch(&name, &|_| {})?;
//! println!("{}", folder.display());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blob;
mod cache;
mod client;
mod digest;
mod error;
mod fetch;
mod files;
mod inventory;
mod limits;
mod listing;
mod lock;
mod name;
mod refusal;
mod removal;
mod retry;
mod settings;

pub use error::HubError;
pub use fetch::{FetchProgress, Hub};
pub use inventory::{CachedRevision, cached_models};
pub use name::HubName;
pub use removal::{Removed, remove_model};
pub use settings::{HubSettings, Token};
