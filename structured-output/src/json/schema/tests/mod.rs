//! The front end against a slow evaluator of nodes, on the official test suite and on real schemas.

mod cases;
mod corpus;
pub(in crate::json) mod evaluate;
mod refusals;
mod suite;

use std::path::PathBuf;

use super::super::node::{NodeId, Nodes};
use super::super::value::Value;
use super::SchemaCompiler;
use crate::error::CompileError;
use crate::lexical::{Fuel, Lexicon};
use crate::options::{JsonSchemaOptions, Limits};

/// What a schema compiles to, and all that is needed to look at it.
pub(in crate::json) struct Compiled {
    pub(in crate::json) lexicon: Lexicon,
    pub(in crate::json) nodes: Nodes,
    pub(in crate::json) root: NodeId,
}

pub(in crate::json) fn compile(
    source: &str,
    options: &JsonSchemaOptions,
) -> Result<Compiled, CompileError> {
    compile_within(source, options, &Limits::default())
}

pub(super) fn compile_within(
    source: &str,
    options: &JsonSchemaOptions,
    limits: &Limits,
) -> Result<Compiled, CompileError> {
    let mut lexicon = Lexicon::new(Vec::new(), 8);
    let mut nodes = Nodes::default();
    let mut compiler = SchemaCompiler::new(source, options, limits)?;
    let mut fuel = Fuel::new(u64::MAX);
    loop {
        let done = compiler.run(&mut lexicon, &mut nodes, 64, 0, &mut fuel);
        if let Some(root) = done.unwrap()? {
            return Ok(Compiled {
                lexicon,
                nodes,
                root,
            });
        }
    }
}

impl Compiled {
    /// Whether a value is valid.
    pub(super) fn allows(&mut self, value: &Value) -> bool {
        evaluate::holds(&self.nodes, &mut self.lexicon, self.root, value)
    }
}

/// A folder of shared data; `None`, with a note, where it is absent outside CI.
pub(super) fn shared(folder: &str) -> Option<PathBuf> {
    let root = std::env::var("FORMWORK_SHARED")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared").into());
    let path = PathBuf::from(root).join(folder);
    if path.is_dir() {
        return Some(path);
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "no {} (set FORMWORK_SHARED)",
        path.display()
    );
    println!("skipped: no {} (set FORMWORK_SHARED)", path.display());
    None
}

pub(super) fn parse(text: &str) -> Value {
    Value::parse(text, 1000).unwrap()
}

/// A value as JSON.
pub(in crate::json) fn written(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Number(text) => text.clone(),
        Value::String(text) => super::key_language::spelled(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(written).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(key, value)| {
                    format!("{}:{}", super::key_language::spelled(key), written(value))
                })
                .collect();
            format!("{{{}}}", members.join(","))
        }
    }
}
