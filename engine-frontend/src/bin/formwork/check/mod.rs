//! `formwork check`: can this be enforced, and what does it allow?

mod keywords;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use structured_output::{
    CompileError, CompiledGrammar, GrammarCompiler, GrammarMatcher, JsonSchemaOptions,
};

use crate::constraint::{Constraint, END, Kind, byte_compiler};
use keywords::Keywords;

/// A longer sample is cut off.
const MAX_SAMPLE: usize = 4096;
/// Places in a schema that are listed as refused.
const MAX_REFUSALS: usize = 50;

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 it is enforced, warnings name keywords without effect; 1 it is refused, or can't be read; 2 a flag is wrong.")]
pub(crate) struct CheckArgs {
    /// A JSON Schema, a regular expression, a grammar (EBNF, GBNF, Lark) or a structural tag; "-" is
    /// standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What it is; found out by its name and text where absent
    #[arg(long, value_enum)]
    kind: Option<Kind>,
}

/// Checks a file.
pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let name = args.file.display();
    let text = if args.file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        fs::read_to_string(&args.file)
    };
    let text = text.with_context(|| format!("can't read {name}"))?;
    let kind = args.kind.unwrap_or_else(|| Kind::guess(&args.file, &text));
    let compiler = byte_compiler()?;
    let mut report = format!("kind      {}\n", kind.name());
    let code = match compile(&compiler, kind, &text)? {
        Ok(grammar) => {
            let keywords = Keywords::of(kind, &text);
            report += match &keywords {
                Some(keywords) if keywords.has_warnings() => {
                    "enforced  all but what the warnings name\n"
                }
                _ => "enforced  all of it\n",
            };
            if let Some(keywords) = keywords {
                report += &keywords.to_string();
            }
            let sample = shortest(&grammar)?;
            writeln!(report, "size      {} bytes", grammar.memory_bytes())?;
            writeln!(report, "shortest  {} bytes", sample.len())?;
            writeln!(report, "sample    {}", String::from_utf8_lossy(&sample))?;
            ExitCode::SUCCESS
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

/// A shortest text of the grammar, of readable characters where there is a choice.
fn shortest(grammar: &CompiledGrammar) -> anyhow::Result<Vec<u8>> {
    let mut matcher = GrammarMatcher::new(grammar);
    let mut row = vec![0_u32; (END as usize + 1).div_ceil(32)];
    let mut sample = Vec::new();
    while sample.len() < MAX_SAMPLE {
        let left = matcher.min_tokens_to_complete()?;
        row.fill(u32::MAX);
        matcher.fill_next_token_bitmask_within(&mut row, left)?;
        let is_allowed = |id: u32| {
            let word = row.get(id as usize / 32).copied().unwrap_or(0);
            word & (1 << (id % 32)) != 0
        };
        if is_allowed(END) {
            return Ok(sample);
        }
        let readable = (b'a'..=b'z').chain(b'!'..=b'~').chain(0..=u8::MAX);
        let mut allowed = readable.filter(|byte| is_allowed(u32::from(*byte)));
        let Some(byte) = allowed.next() else {
            bail!("nothing may follow {:?}", String::from_utf8_lossy(&sample));
        };
        matcher.accept_token(u32::from(byte))?;
        sample.push(byte);
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
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
}
