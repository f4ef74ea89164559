//! JSON within a grammar.

use super::job::Job;
use crate::error::CompileError;
use crate::options::Limits;
use crate::pushdown;

impl Job<'_> {
    /// The first state of a schema's values, without white space around them, and the length of the
    /// shortest in bytes.
    pub(super) fn embedded_json(
        &mut self,
        _schema: &str,
        _limits: &Limits,
    ) -> Result<(pushdown::State, u32), CompileError> {
        Err(CompileError::EmptyChoice)
    }
}
