//! JSON within a grammar.

use super::job::{Job, exceeded};
use crate::error::CompileError;
use crate::grammar_syntax::EmbeddedSchema;
use crate::json::Style;
use crate::options::{JsonSchemaOptions, Limits, PropertyOrder};
use crate::pushdown;

impl Job<'_> {
    /// The first state of a schema's values, without white space around them, and the length of the
    /// shortest in bytes.
    pub(super) fn embedded_json(
        &mut self,
        schema: &EmbeddedSchema,
        limits: &Limits,
    ) -> Result<(pushdown::State, u32), CompileError> {
        let options = JsonSchemaOptions {
            property_order: match schema.any_order {
                true => PropertyOrder::Any,
                false => PropertyOrder::Schema,
            },
            ..JsonSchemaOptions::default()
        };
        let root = self.schema_root(&schema.text, &options, limits);
        let (root, _) = root.map_err(|error| match error {
            // Its place is the grammar's, which the caller knows.
            CompileError::LimitExceeded { limit, max, .. } => exceeded(limit, max),
            other => other,
        })?;
        let found = self.fuelled_slice(|automaton, fuel| {
            let machine = automaton.machine();
            let style = Style::new(&mut machine.lexicon, &options, limits.regex())?.embedded();
            let Ok(frames) = machine.programs.start(root, style, fuel) else {
                return Ok(None);
            };
            let Some([_, value]) = frames else {
                return Err(CompileError::JsonSchema {
                    pointer: String::new(),
                    message: "it refers to itself in place, so it says nothing".to_owned(),
                });
            };
            let start = machine.start_of_frames(&[value], fuel);
            let measured = start.and_then(|state| {
                let (bytes, _) = machine.distance(state, fuel)?;
                Ok((state, bytes))
            });
            Ok(measured.ok())
        })?;
        found?.ok_or_else(|| self.out_of_steps())
    }
}
