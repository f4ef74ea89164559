//! JSON within a grammar.

use super::job::Job;
use super::opening::Compiled;
use crate::error::CompileError;
use crate::grammar_syntax::EmbeddedSchema;
use crate::options::Limits;
use crate::pushdown;

impl Job<'_> {
    /// The first state of a schema's values, without white space around them, and the length of the
    /// shortest in bytes.
    pub(super) fn embedded_json(
        &mut self,
        schema: &EmbeddedSchema,
        limits: &Limits,
    ) -> Result<(pushdown::State, u32), CompileError> {
        let options = &*schema.options;
        let (root, compiler) = self.schema_root(&schema.text, options, limits)?;
        let style = self.style(options, limits.regex())?.embedded();
        let mut compiled = Compiled {
            compiler,
            style,
            max_mask_steps: limits.max_mask_steps,
        };
        let found = self.with_parts_known(&mut compiled, |job| {
            job.fuelled_slice(|automaton, fuel| {
                let machine = automaton.machine();
                let Some([_, value]) = machine.programs.start(root, style, fuel)? else {
                    return Ok(Err(CompileError::JsonSchema {
                        pointer: String::new(),
                        message: "it refers to itself in place, so it says nothing".to_owned(),
                    }));
                };
                let state = machine.start_of_frames(&[value], fuel)?;
                let (bytes, _) = machine.distance(state, fuel)?;
                Ok(Ok((state, bytes)))
            })?
        })?;
        self.check_values(&mut compiled)?;
        Ok(found)
    }
}
