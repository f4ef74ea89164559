//! What the benchmark asks of an engine.

use super::Case;

/// An engine at work on a corpus, for one tokenizer.
pub trait MaskEngine {
    /// Its name in reports and file names.
    fn name(&self) -> &str;

    /// Compiles a schema.
    ///
    /// # Errors
    /// The engine's message, where it refuses.
    fn compile(&mut self, case: &Case) -> Result<Box<dyn MaskMatcher>, EngineError>;

    /// Drops all that is kept between schemas but what belongs to the tokenizer alone.
    fn drop_caches(&mut self);
}

/// A compiled schema at a place in an instance.
pub trait MaskMatcher {
    /// Goes to the start of an instance.
    ///
    /// # Errors
    /// The engine's message, where it fails.
    fn start(&mut self) -> Result<(), EngineError>;

    /// Computes the mask of the next token, as a dense row.
    ///
    /// # Errors
    /// The engine's message, where it fails.
    fn compute_mask(&mut self) -> Result<(), EngineError>;

    /// Whether the mask that was computed last allows a token.
    fn is_allowed(&self, token_id: u32) -> bool;

    /// Takes a token that the mask allows; false where it is refused all the same.
    ///
    /// # Errors
    /// The engine's message, where it fails.
    fn accept_token(&mut self, token_id: u32) -> Result<bool, EngineError>;
}

/// An engine's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineError(pub String);
