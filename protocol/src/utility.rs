//! Calls of a method of the core by name.

use serde::{Deserialize, Serialize};

/// A call. The core executes it between two steps and answers with the same `call_id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UtilityRequest {
    /// Which frontend gets the answer.
    pub client_index: u32,
    /// Chosen by the caller.
    pub call_id: u64,
    /// The method's name. An unknown one fails this call only.
    pub method: String,
    /// A JSON array of arguments, as a string since bincode doesn't describe itself.
    pub args: String,
}

/// The answer to a `UtilityRequest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UtilityOutput {
    /// The call's.
    pub call_id: u64,
    /// How it went.
    pub result: UtilityResult,
}

/// How a utility call went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum UtilityResult {
    /// The method's result as JSON.
    Success(String),
    /// Why it failed, for people.
    Failure(String),
}
