//! JSON within a grammar.

use super::job::{Job, exceeded};
use crate::error::CompileError;
use crate::grammar_syntax::EmbeddedSchema;
use crate::json::Style;
use crate::lexical::Fuel;
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
        let root = self.schema_root(&schema.text, &options, limits)?;
        let max_steps = self.budget.max_steps;
        let found = self.slice(|automaton| {
            let machine = automaton.machine();
            let style = Style::new(&mut machine.lexicon, &options, limits.regex())?.embedded();
            let mut fuel = Fuel::new(max_steps);
            let Ok(frames) = machine.programs.start(root, style, &mut fuel) else {
                return Ok(None);
            };
            let Some([_, value]) = frames else {
                return Err(CompileError::JsonSchema {
                    pointer: String::new(),
                    message: "it refers to itself in place, so it says nothing".to_owned(),
                });
            };
            let start = machine.start_of_frames(&[value], &mut fuel);
            let measured = start.and_then(|state| {
                let (bytes, _) = machine.distance(state, &mut fuel)?;
                Ok((state, bytes))
            });
            Ok(measured.ok())
        })?;
        found?.ok_or_else(|| exceeded("max_steps", max_steps))
    }
}
