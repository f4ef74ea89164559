//! How much a download may take, and how long it is waited for.

use std::time::Duration;

/// Files that are downloaded at the same time.
pub(crate) const PARALLEL_FILES: usize = 4;
/// Attempts to get an answer of the Hub itself, where the cache lacks the model.
pub(crate) const QUESTION_ATTEMPTS: u32 = 3;
/// Time for the Hub's answer where the cache has the model, unless `HF_HUB_ETAG_TIMEOUT` says another.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts in a row that may bring less than [`PROGRESS_BYTES`] each.
pub(crate) const ATTEMPTS: u32 = 6;
/// An attempt that brings as much is progress: the next failure counts as the first.
pub(crate) const PROGRESS_BYTES: u64 = 8 << 20;
/// Longest pause between two attempts. Pauses double from `HubSettings::retry_pause` on. A server that wants
/// more time isn't asked again.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time for a connection, with the look-up of its name and TLS.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time in which a server has to send something.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Redirects of one request.
pub(crate) const REDIRECTS: usize = 10;
/// Largest list of a repository's files, and largest index of weights: both are read into memory.
pub(crate) const LARGEST_JSON: u64 = 64 << 20;
/// Bytes that are read, hashed and written at a time.
pub(crate) const CHUNK: usize = 256 << 10;
/// Files of other names that an error lists.
pub(crate) const NAMES_IN_ERRORS: usize = 8;
