//! What structured output costs in the engine, and what it saves: tokens per second of constrained
//! JSON over free text on the shape of Qwen2.5-0.5B with its real vocabulary, the delay of running
//! requests while grammars compile, rows of the LM head, and how many tokens of an object come from
//! the model.

#[path = "../throughput/checkpoint.rs"]
mod checkpoint;
mod compilations;
mod drafts;
mod engine;
mod fixed_keys;
mod head;
mod hostile;
mod overhead;

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use benchmarks::machine;
use clap::{Parser, ValueEnum};
use protocol::{
    CacheConfig, EngineConfig, JumpForward, ModelConfig, ModelSource, StructuredOutputsConfig,
    StructuredOutputsConstraint,
};

/// Measures structured output in an engine in this process.
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder with Qwen2.5's tokenizer.json and tokenizer_config.json; not needed for drafts alone
    #[arg(long, value_name = "FOLDER")]
    tokenizer: Option<PathBuf>,
    /// Where the checkpoint is, or is made: 1 GB [default: a folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    checkpoint: Option<PathBuf>,
    /// Compute threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Requests that decode together; may be repeated
    #[arg(long = "batch", default_values_t = [1, 8, 32])]
    batches: Vec<usize>,
    /// Steps of each measurement at batch 1; a half at 8, a fifth at 32
    #[arg(long, default_value_t = 40)]
    steps: usize,
    /// Rounds; in each, free text and each schema take turns, and ratios are medians over them
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// What is measured; may be repeated [default: all]
    #[arg(long = "part")]
    parts: Vec<Part>,
}

/// A part of the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Constrained JSON over free text
    Overhead,
    /// The same on the built-in model
    BuiltIn,
    /// Running requests, most of them constrained, beside hostile grammars
    Compilations,
    /// Rows of the LM head
    Head,
    /// Tokens of an object with fixed keys
    FixedKeys,
    /// Drafts of prompt lookup and of draft models
    Drafts,
}

const CHARACTER: &str = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 999}, "armor": {"enum": ["leather", "chainmail", "plate"]}, "weapon": {"enum": ["sword", "axe", "bow"]}, "strength": {"type": "integer", "minimum": 0, "maximum": 100}}, "required": ["name", "age", "armor", "weapon", "strength"], "additionalProperties": false}"#;
const CAR: &str = r#"{"type": "object", "properties": {"brand": {"type": "string", "maxLength": 40}, "model": {"type": "string", "maxLength": 40}, "car_type": {"enum": ["sedan", "SUV", "Truck", "Coupe"]}}, "required": ["brand", "model", "car_type"], "additionalProperties": false}"#;
const INVOICE: &str = r#"{"type": "object", "properties": {"number": {"type": "integer", "minimum": 1, "maximum": 99999}, "date": {"type": "string", "format": "date"}, "currency": {"enum": ["EUR", "USD", "GBP", "JPY"]}, "customer": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 30}, "country": {"enum": ["Germany", "France", "Japan", "Brazil"]}}, "required": ["name", "country"], "additionalProperties": false}, "paid": {"type": "boolean"}}, "required": ["number", "date", "currency", "customer", "paid"], "additionalProperties": false}"#;
/// Mostly free text, which nothing makes faster.
const ARTICLE: &str = r#"{"type": "object", "properties": {"title": {"type": "string", "maxLength": 120}, "body": {"type": "string", "maxLength": 800}, "tags": {"type": "array", "items": {"type": "string", "maxLength": 24}, "maxItems": 5}, "draft": {"type": "boolean"}}, "required": ["title", "body", "tags", "draft"], "additionalProperties": false}"#;
const SCHEMAS: [(&str, &str); 4] = [
    ("character", CHARACTER),
    ("car", CAR),
    ("invoice", INVOICE),
    ("article", ARTICLE),
];

/// A list of these that is long enough for no request to end while it is measured, and short enough
/// for the model's context.
fn list_of(schema: &str, model: &ModelSource) -> StructuredOutputsConstraint {
    let min_items = match model {
        ModelSource::BuiltIn => 12,
        ModelSource::Path(_) => 24,
    };
    StructuredOutputsConstraint::Json(format!(
        r#"{{"type": "array", "items": {schema}, "minItems": {min_items}}}"#
    ))
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let wants = |part| arguments.parts.is_empty() || arguments.parts.contains(&part);
    if wants(Part::Drafts) {
        println!("{}\n", machine::description());
        drafts::measure(&arguments, &std::env::temp_dir().join("formwork-drafts"))?;
    }
    if arguments.parts == [Part::Drafts] {
        println!("\nload average at the end {}", machine::load_average());
        return Ok(());
    }
    let tokenizer = arguments.tokenizer.as_ref();
    let tokenizer = tokenizer.context("--tokenizer is needed for all parts but drafts")?;
    let folder = arguments
        .checkpoint
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join("formwork-qwen2.5-0.5b-random-tokenizer"));
    checkpoint::make(&folder)?;
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        let from = tokenizer.join(name);
        fs::copy(&from, folder.join(name)).with_context(|| from.display().to_string())?;
    }
    println!("{}\n", machine::description());
    if wants(Part::Overhead) {
        println!("Random weights in the shape of Qwen2.5-0.5B:\n");
        overhead::measure(&arguments, &ModelSource::Path(folder.clone()))?;
    }
    if wants(Part::BuiltIn) {
        println!("\nThe built-in model:\n");
        overhead::measure(&arguments, &ModelSource::BuiltIn)?;
    }
    if wants(Part::Compilations) {
        compilations::measure(&arguments, &folder)?;
    }
    if wants(Part::Head) {
        let num_threads = arguments
            .threads
            .map_or_else(machine::num_cores, |threads| threads as usize);
        head::measure(&folder, num_threads)?;
    }
    if wants(Part::FixedKeys) {
        fixed_keys::count()?;
    }
    println!("\nload average at the end {}", machine::load_average());
    Ok(())
}

/// An engine with everything on that makes structured output fast, or with none of it.
fn config(model: &ModelSource, threads: Option<u32>, fast: bool) -> EngineConfig {
    EngineConfig {
        model_config: ModelConfig {
            model: model.clone(),
            max_model_len: Some(match model {
                ModelSource::BuiltIn => 1024,
                ModelSource::Path(_) => 4096,
            }),
            num_threads: threads,
            ..ModelConfig::default()
        },
        cache_config: CacheConfig {
            num_blocks_override: Some(1024),
            ..CacheConfig::default()
        },
        structured_outputs_config: StructuredOutputsConfig {
            enable_sparse_head: fast,
            jump_forward: if fast {
                JumpForward::Text
            } else {
                JumpForward::Off
            },
            ..StructuredOutputsConfig::default()
        },
        ..EngineConfig::default()
    }
}
