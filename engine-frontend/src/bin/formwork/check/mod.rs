//! `formwork check`: can this be enforced, and what does it allow?

mod text;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use engine_frontend::{ConstraintKeywords, StructuredOutputsConstraint, shortest_text};
use serde_json::Value;
use structured_output::{
    CompileError, CompiledGrammar, GrammarCompiler, JsonSchemaOptions, regex_notes,
};

use crate::constraint::{Constraint, Kind, byte_compiler};

/// Places in a schema that are listed as refused.
const MAX_REFUSALS: usize = 50;

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 it is enforced, warnings name keywords without effect, and a text fits; 1 it is refused, can't be read, or a text doesn't fit; 2 a flag is wrong.")]
pub(crate) struct CheckArgs {
    /// A JSON Schema, a regular expression, a grammar (EBNF, GBNF, Lark) or a structural tag; "-" is
    /// standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What it is; found out by its name and text where absent
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// A text to hold against it: shown up to where it stops fitting, with what was expected there
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
}

/// Checks a file.
pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let text = read(&args.file)?;
    let kind = args.kind.unwrap_or_else(|| Kind::guess(&args.file, &text));
    let compiler = byte_compiler()?;
    let mut report = format!("kind      {}\n", kind.name());
    let code = match compile(&compiler, kind, &text)? {
        Ok(grammar) => {
            let keywords = keywords(kind, &text);
            report += match &keywords {
                Some(keywords) if keywords.has_warnings() => {
                    "enforced  all but what the warnings name\n"
                }
                _ => "enforced  all of it\n",
            };
            if let Some(keywords) = keywords {
                report += &keywords.to_string();
            }
            if kind == Kind::Regex {
                for note in regex_notes(&text) {
                    let before = text.get(..note.offset).unwrap_or_default();
                    let line = before.rsplit('\n').next().unwrap_or_default();
                    let column = line.chars().count() + 1;
                    writeln!(report, "dialect   column {column}: {}", note.message)?;
                }
            }
            let sample = shortest_text(&grammar)?;
            writeln!(report, "size      {} bytes", grammar.memory_bytes())?;
            writeln!(report, "shortest  {} bytes", sample.len())?;
            writeln!(report, "sample    {}", String::from_utf8_lossy(&sample))?;
            match &args.text {
                Some(file) => text::hold_against(&grammar, &read(file)?, &mut report)?,
                None => ExitCode::SUCCESS,
            }
        }
        Err(error) => {
            for error in refusals(&compiler, kind, &text, error) {
                writeln!(report, "refused   {error}")?;
            }
            ExitCode::FAILURE
        }
    };
    std::io::stdout().write_all(report.as_bytes())?;
    Ok(code)
}

/// A file's text; `-` is standard input.
fn read(file: &Path) -> anyhow::Result<String> {
    let text = match file.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()),
        false => fs::read_to_string(file),
    };
    text.with_context(|| format!("can't read {}", file.display()))
}

/// Which keywords of its schemas hold.
fn keywords(kind: Kind, text: &str) -> Option<ConstraintKeywords> {
    use StructuredOutputsConstraint as Constraint;
    let text = text.to_owned();
    ConstraintKeywords::of(&match kind {
        Kind::Json => Constraint::Json(text),
        Kind::StructuralTag => Constraint::StructuralTag(text),
        Kind::Grammar => Constraint::Grammar(text),
        Kind::Regex | Kind::Choice => return None,
    })
}

/// Compiles a file's text over single bytes: what is enforced doesn't depend on a vocabulary.
fn compile(
    compiler: &GrammarCompiler,
    kind: Kind,
    text: &str,
) -> anyhow::Result<Result<CompiledGrammar, CompileError>> {
    Ok(match kind {
        // From their text, so that an error names line and column.
        Kind::Json => compiler.compile_json_schema(text, &JsonSchemaOptions::default()),
        Kind::StructuralTag => compiler.compile_structural_tag(text),
        kind => Constraint::new(kind, text.to_owned())?.compile(compiler),
    })
}

/// All that is refused: of a schema every place, each found by leaving out the ones before.
fn refusals(
    compiler: &GrammarCompiler,
    kind: Kind,
    text: &str,
    first: CompileError,
) -> Vec<CompileError> {
    let mut found = vec![first];
    let Ok(mut schema) = serde_json::from_str::<Value>(text) else {
        return found;
    };
    while let Some(CompileError::JsonSchema { pointer, .. }) = found.last()
        && found.len() < MAX_REFUSALS
        && remove(&mut schema, pointer)
    {
        match compile(compiler, kind, &schema.to_string()) {
            Ok(Err(error @ CompileError::JsonSchema { .. })) => found.push(error),
            _ => break,
        }
    }
    found
}

/// Takes out what a JSON pointer leads to; false where that is nothing, or not in an object.
fn remove(value: &mut Value, pointer: &str) -> bool {
    let Some((parent, name)) = pointer.rsplit_once('/') else {
        return false;
    };
    let name = name.replace("~1", "/").replace("~0", "~");
    let parent = value.pointer_mut(parent).and_then(Value::as_object_mut);
    parent.is_some_and(|members| members.shift_remove(&name).is_some())
}

#[cfg(test)]
mod tests {
    use engine_frontend::FORMATS;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_refusal_is_listed() {
        let text = r#"{"properties": {
            "a": {"type": "strnig"},
            "b/c": {"pattern": "(a)\\1"},
            "d": {"minLength": -1, "maxLength": 3}
        }}"#;
        let compiler = byte_compiler().unwrap();
        let first = compile(&compiler, Kind::Json, text).unwrap().unwrap_err();
        let found = refusals(&compiler, Kind::Json, text, first);
        let mut pointers: Vec<&str> = found
            .iter()
            .map(|error| match error {
                CompileError::JsonSchema { pointer, .. } => pointer.as_str(),
                other => panic!("{other}"),
            })
            .collect();
        pointers.sort_unstable();
        assert_eq!(
            pointers,
            [
                "/properties/a/type",
                "/properties/b~1c/pattern",
                "/properties/d/minLength"
            ]
        );
    }

    /// Texts of which every format that is enforced refuses one.
    const NO_FORMAT: [&str; 3] = ["\"\"", "\"~ ~\"", "\"(\""];

    #[test]
    fn the_formats_that_are_enforced_are_known() {
        let compiler = byte_compiler().unwrap();
        let is_enforced = |format: &str| {
            let constraint = Constraint::Json(json!({"type": "string", "format": format}));
            let grammar = constraint.compile(&compiler).unwrap();
            let refuses = |text: &&str| constraint.verify(&grammar, text).is_err();
            NO_FORMAT.iter().any(refuses)
        };
        for format in FORMATS {
            assert!(is_enforced(format), "{format}");
        }
        for format in ["colour", "int32", "binary", "password", "byte", "double"] {
            assert!(!is_enforced(format), "{format}");
        }
    }
}
