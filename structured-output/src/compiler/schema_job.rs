//! Compiling JSON Schemas.

use super::job::{Job, SLICE_PARTS};
use super::opening::Compiled;
use crate::automaton::State;
use crate::error::CompileError;
use crate::json::{Frame, NodeId, SchemaCompiler, Style};
use crate::options::{JsonSchemaOptions, Limits};
use crate::regex::RegexLimits;

impl Job<'_> {
    pub(super) fn json_schema(
        &mut self,
        schema: &str,
        options: &JsonSchemaOptions,
        limits: &Limits,
    ) -> Result<(State, Compiled), CompileError> {
        let all = limits.max_mask_steps;
        let limits = options.limits.as_ref().unwrap_or(limits);
        let (root, compiler) = self.schema_root(schema, options, limits)?;
        let style = self.style(options, limits.regex())?;
        let mut compiled = Compiled {
            compiler,
            style,
            max_mask_steps: limits.max_mask_steps.min(all),
        };
        let start = self.with_parts_known(&mut compiled, |job| job.start_of_json(root, style))?;
        Ok((start, compiled))
    }

    /// How the texts of a schema are written.
    pub(super) fn style(
        &mut self,
        options: &JsonSchemaOptions,
        limits: RegexLimits,
    ) -> Result<Style, CompileError> {
        let style = self.fuelled_slice(|automaton, fuel| {
            Style::new(&mut automaton.machine().lexicon, options, limits, fuel)
        });
        style?
    }

    /// That a schema allows no value, with the part that is why.
    pub(super) fn no_value(&mut self, mut compiler: SchemaCompiler) -> CompileError {
        let pointer = self.fuelled_slice(|automaton, fuel| {
            let machine = automaton.machine();
            Ok(compiler.without_value(&mut machine.lexicon, &mut machine.programs, fuel))
        });
        match pointer {
            Ok(pointer) => CompileError::NoValue { pointer },
            Err(error) => error,
        }
    }

    /// What a schema says, and how that was found.
    pub(super) fn schema_root(
        &mut self,
        schema: &str,
        options: &JsonSchemaOptions,
        limits: &Limits,
    ) -> Result<(NodeId, SchemaCompiler), CompileError> {
        let mut compiler = SchemaCompiler::new(schema, options, limits)?;
        self.charge_bytes(compiler.source_bytes())?;
        loop {
            let done = self.fuelled_slice(|automaton, fuel| {
                let held = automaton.state_bytes();
                let machine = automaton.machine();
                let nodes = machine.programs.nodes();
                let made = machine.lexicon.memory_bytes() + nodes.memory_bytes();
                let elsewhere = held.saturating_sub(made);
                compiler.run(&mut machine.lexicon, nodes, SLICE_PARTS, elsewhere, fuel)
            });
            if let Some(root) = done.map_err(|error| compiler.blame(error))?? {
                self.know_deep_values(&compiler)?;
                return Ok((root, compiler));
            }
        }
    }

    /// Looks at the parts of deeply nested constants from the inside out: all at once would be too deep.
    fn know_deep_values(&mut self, compiler: &SchemaCompiler) -> Result<(), CompileError> {
        for &value in &compiler.deep_values {
            self.fuelled_slice(|automaton, fuel| {
                let machine = automaton.machine();
                machine.programs.know(&mut machine.lexicon, value, fuel)
            })?;
        }
        Ok(())
    }

    /// The start of a grammar of JSON texts that are one value of a node.
    fn start_of_json(&mut self, root: NodeId, style: Style) -> Result<State, CompileError> {
        let frames = self.fuelled_slice(|automaton, fuel| {
            automaton.machine().programs.start(root, style, fuel)
        })?;
        match frames {
            Some(frames) => self.start(&frames),
            None => Err(CompileError::JsonSchema {
                pointer: String::new(),
                message:
                    "a schema here refers to itself for the same value, which says nothing: let \
                          the reference be of a member or an item, or leave it out"
                        .to_owned(),
            }),
        }
    }

    pub(super) fn json_object(
        &mut self,
        options: &JsonSchemaOptions,
        limits: &Limits,
    ) -> Result<State, CompileError> {
        let limits = options.limits.as_ref().unwrap_or(limits);
        let root = self.slice(|automaton| automaton.machine().programs.any_object())?;
        let style = self.style(options, limits.regex())?;
        self.start_of_json(root, style)
    }

    fn start(&mut self, frames: &[Frame]) -> Result<State, CompileError> {
        self.fuelled_slice(|automaton, fuel| automaton.machine().start_of_frames(frames, fuel))
    }
}
