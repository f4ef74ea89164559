//! `formwork check`: can this be enforced, and what does it allow?

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use structured_output::{
    CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions,
    TokenizerInfo,
};

/// The only token of the vocabulary below that isn't a byte: it ends a text.
const END: usize = 256;
/// A longer sample is cut off.
const MAX_SAMPLE: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A JSON Schema or a regular expression; "-" is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What it is; a JSON Schema where it is JSON, a regular expression otherwise
    #[arg(long, value_enum)]
    kind: Option<Kind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A JSON Schema
    Json,
    /// A regular expression
    Regex,
}

/// Checks a file. Exit code 0: it is enforced as a whole; 1: it is refused.
pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let name = args.file.display();
    let text = if args.file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        fs::read_to_string(&args.file)
    };
    let text = text.with_context(|| format!("can't read {name}"))?;
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
    let kind = args.kind.unwrap_or(match is_json {
        true => Kind::Json,
        false => Kind::Regex,
    });
    // Over single bytes: what is enforced doesn't depend on a model's vocabulary.
    let mut vocab: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    vocab.push(b"</s>".to_vec());
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[256], &[256])?;
    let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
    let (what, compiled) = match kind {
        Kind::Json => (
            "JSON Schema",
            compiler.compile_json_schema(&text, &JsonSchemaOptions::default()),
        ),
        Kind::Regex => {
            // A line end at the end is the editor's.
            let pattern = text.strip_suffix('\n').unwrap_or(&text);
            ("regular expression", compiler.compile_regex(pattern))
        }
    };
    let mut report = format!("kind      {what}\n");
    let code = match compiled {
        Ok(grammar) => {
            let sample = shortest(&grammar)?;
            report += &format!(
                "enforced  all of it\nsize      {} bytes\nshortest  {} bytes\nsample    {}\n",
                grammar.memory_bytes(),
                sample.len(),
                String::from_utf8_lossy(&sample)
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            report += &format!("refused   {error}\n");
            ExitCode::FAILURE
        }
    };
    std::io::stdout().write_all(report.as_bytes())?;
    Ok(code)
}

/// A shortest text of the grammar, of readable characters where there is a choice.
fn shortest(grammar: &CompiledGrammar) -> anyhow::Result<Vec<u8>> {
    let mut matcher = GrammarMatcher::new(grammar);
    let mut row = vec![0_u32; (END + 1).div_ceil(32)];
    let mut sample = Vec::new();
    while sample.len() < MAX_SAMPLE {
        let left = matcher.min_tokens_to_complete()?;
        row.fill(u32::MAX);
        matcher.fill_next_token_bitmask_within(&mut row, left)?;
        let is_allowed = |id: usize| {
            let word = row.get(id / 32).copied().unwrap_or(0);
            word & (1 << (id % 32)) != 0
        };
        if is_allowed(END) {
            return Ok(sample);
        }
        let readable = (b'a'..=b'z').chain(b'!'..=b'~').chain(0..=u8::MAX);
        let mut allowed = readable.filter(|byte| is_allowed(usize::from(*byte)));
        let Some(byte) = allowed.next() else {
            bail!("nothing may follow {:?}", String::from_utf8_lossy(&sample));
        };
        matcher.accept_token(u32::from(byte))?;
        sample.push(byte);
    }
    Ok(sample)
}
