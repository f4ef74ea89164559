//! What structured output costs in the engine, and what it saves: tokens per second of constrained
//! JSON over free text on the shape of Qwen2.5-0.5B with its real vocabulary, the delay of running
//! requests while grammars compile, rows of the LM head, and how many tokens of an object come from
//! the model.

#[path = "../throughput/checkpoint.rs"]
mod checkpoint;
mod engine;
mod head;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use benchmarks::machine;
use benchmarks::statistics::{Summary, median};
use clap::Parser;
use protocol::{
    CacheConfig, EngineConfig, JumpForward, ModelConfig, ModelSource, StructuredOutputsConfig,
    StructuredOutputsConstraint,
};

use crate::engine::{Engine, Measured};

/// Measures structured output in an engine in this process.
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder with Qwen2.5's tokenizer.json and tokenizer_config.json
    #[arg(long, value_name = "FOLDER")]
    tokenizer: PathBuf,
    /// Where the checkpoint is, or is made: 1 GB [default: a folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    checkpoint: Option<PathBuf>,
    /// Compute threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Requests that decode together; may be repeated
    #[arg(long = "batch", default_values_t = [1, 8, 32])]
    batches: Vec<usize>,
    /// Steps of each measurement
    #[arg(long, default_value_t = 32)]
    steps: usize,
    /// Rounds; each measures everything once, and figures are medians over them
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Leave out the part about compilations beside running requests
    #[arg(long)]
    skip_compiles: bool,
}

const CHARACTER: &str = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 999}, "armor": {"enum": ["leather", "chainmail", "plate"]}, "weapon": {"enum": ["sword", "axe", "bow"]}, "strength": {"type": "integer", "minimum": 0, "maximum": 100}}, "required": ["name", "age", "armor", "weapon", "strength"], "additionalProperties": false}"#;
const CAR: &str = r#"{"type": "object", "properties": {"brand": {"type": "string", "maxLength": 40}, "model": {"type": "string", "maxLength": 40}, "car_type": {"enum": ["sedan", "SUV", "Truck", "Coupe"]}}, "required": ["brand", "model", "car_type"], "additionalProperties": false}"#;
const ARTICLE: &str = r#"{"type": "object", "properties": {"title": {"type": "string", "maxLength": 120}, "body": {"type": "string", "maxLength": 800}, "tags": {"type": "array", "items": {"type": "string", "maxLength": 24}, "maxItems": 5}, "draft": {"type": "boolean"}}, "required": ["title", "body", "tags", "draft"], "additionalProperties": false}"#;

/// A long list of these, so that no request ends while it is measured.
fn list_of(schema: &str) -> StructuredOutputsConstraint {
    StructuredOutputsConstraint::Json(format!(
        r#"{{"type": "array", "items": {schema}, "minItems": 16}}"#
    ))
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let folder = arguments
        .checkpoint
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join("formwork-qwen2.5-0.5b-random-tokenizer"));
    checkpoint::make(&folder)?;
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        let from = arguments.tokenizer.join(name);
        fs::copy(&from, folder.join(name)).with_context(|| from.display().to_string())?;
    }
    let tokenizer = tokenizer::Tokenizer::from_files(&folder)?;
    let eos_token_id = tokenizer
        .eos_token_id()
        .context("the tokenizer has no end of text")?;
    println!("{}\n", machine::description());

    overhead(&arguments, &folder, eos_token_id)?;
    if !arguments.skip_compiles {
        beside_compilations(&arguments, &folder, eos_token_id)?;
    }
    let num_threads = arguments
        .threads
        .map_or_else(machine::num_cores, |threads| threads as usize);
    head::measure(&folder, num_threads)?;
    fixed_keys()?;
    println!("\nload average at the end {}", machine::load_average());
    Ok(())
}

fn config(model: ModelSource, threads: Option<u32>, fast: bool) -> EngineConfig {
    EngineConfig {
        model_config: ModelConfig {
            model,
            max_model_len: Some(4096),
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

/// Tokens per second of constrained JSON over those of free text.
fn overhead(arguments: &Arguments, folder: &Path, eos_token_id: u32) -> anyhow::Result<()> {
    println!(
        "| batch | schema | mode | tokens/s | over free text | exposed fill | update per step | forced |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for fast in [false, true] {
        let source = ModelSource::Path(folder.to_owned());
        let mut engine = Engine::load(&config(source, arguments.threads, fast), eos_token_id)?;
        let mode = if fast {
            "sparse head, forced text"
        } else {
            "plain"
        };
        for &batch in &arguments.batches {
            let schemas = [("character", CHARACTER), ("car", CAR), ("article", ARTICLE)];
            let mut free: Vec<Measured> = Vec::new();
            let mut constrained: Vec<Vec<Measured>> = vec![Vec::new(); schemas.len()];
            for _ in 0..arguments.rounds {
                free.push(engine.decode(None, batch, arguments.steps)?);
                for ((_, schema), measured) in schemas.iter().zip(&mut constrained) {
                    let list = list_of(schema);
                    measured.push(engine.decode(Some(&list), batch, arguments.steps)?);
                }
            }
            let of_free = median_of(&free, Measured::tokens_per_second);
            println!(
                "| {batch} | none | {mode} | {of_free:.1} | 1 | | {} | |",
                update(&free)
            );
            for ((name, _), measured) in schemas.iter().zip(&constrained) {
                let rate = median_of(measured, Measured::tokens_per_second);
                let forced: u64 = measured.iter().map(|m| m.num_forced).sum();
                let tokens: usize = measured.iter().map(|m| m.num_tokens).sum();
                println!(
                    "| {batch} | {name} | {mode} | {rate:.1} | {:.3} | {:.2} % | {} | {:.0} % |",
                    rate / of_free,
                    100.0 * median_of(measured, Measured::exposed_share),
                    update(measured),
                    100.0 * forced as f64 / tokens as f64,
                );
            }
        }
    }
    Ok(())
}

fn median_of(measured: &[Measured], figure: impl Fn(&Measured) -> f64) -> f64 {
    median(measured.iter().map(figure).collect()).unwrap_or_default()
}

fn update(measured: &[Measured]) -> String {
    let per_step = median_of(measured, |m| m.update / m.steps.len() as f64);
    format!("{:.0} us", per_step * 1e6)
}

/// Time between the tokens of eight running requests without and with compilations beside them: one
/// that uses its whole budget, and fifty of ordinary schemas behind it.
fn beside_compilations(
    arguments: &Arguments,
    folder: &Path,
    eos_token_id: u32,
) -> anyhow::Result<()> {
    const RUNNING: usize = 8;
    const OTHERS: usize = 50;
    let source = ModelSource::Path(folder.to_owned());
    let mut engine = Engine::load(&config(source, arguments.threads, true), eos_token_id)?;
    let steps = arguments.steps * 4;
    let quiet = engine.decode(None, RUNNING, steps)?;

    let running: Vec<String> = (0..RUNNING).map(|_| engine.add(None, 3800)).collect();
    engine.step()?;
    let started = Instant::now();
    let hostile =
        r"(?:(?:[a-z]{1,900}-){1,900}x){1,900}(?=(?:a|b[^c]){1,700}$)[^q]{1,900}".to_owned();
    engine.add(Some(StructuredOutputsConstraint::Regex(hostile)), 3800);
    let waiting: Vec<String> = (0..OTHERS)
        .map(|number| {
            // Each its own, so that each is compiled.
            let schema = ARTICLE.replace("\"title\"", &format!("\"title_{number}\""));
            engine.add(Some(StructuredOutputsConstraint::Json(schema)), 3800)
        })
        .collect();
    let (mut times, mut delays) = (Vec::new(), Vec::new());
    let mut ended = Vec::new();
    // Until all are compiled, and for as many steps as without.
    while times.len() < steps && delays.len() < OTHERS {
        let before = Instant::now();
        let (outputs, stats) = engine.step()?;
        times.push(before.elapsed());
        delays.extend(stats.compile_seconds.iter().map(|_| started.elapsed()));
        for output in outputs {
            if waiting.contains(&output.request_id) && !output.new_token_ids.is_empty() {
                // What it was about is over; it must not make the batch larger.
                ended.push(output.request_id);
            }
        }
        engine.end(std::mem::take(&mut ended));
    }
    engine.abort(running.into_iter().chain(waiting).collect())?;

    let (quiet, beside) = (Summary::of(quiet.steps), Summary::of(times));
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    println!(
        "\n{RUNNING} running requests, step times beside {OTHERS} compilations and a hostile one:\n"
    );
    println!("| | alone | beside | ratio |\n|---|---|---|---|");
    for (name, alone, beside) in [
        ("median", quiet.p50, beside.p50),
        ("p99", quiet.p99, beside.p99),
    ] {
        println!(
            "| {name} | {alone:.1?} | {beside:.1?} | {:.2} |",
            ratio(beside, alone)
        );
    }
    let delays = Summary::of(delays);
    println!(
        "\n{} grammars were compiled meanwhile, after {:.1?} (median) and {:.1?} (last)",
        delays.count, delays.p50, delays.max
    );
    Ok(())
}

/// How many tokens of an object with five fixed keys come from the built-in model.
fn fixed_keys() -> anyhow::Result<()> {
    let tokenizer = tokenizer::Tokenizer::from_bytes(builtin_model::FILES)?;
    let eos_token_id = tokenizer.eos_token_id().context("no end of text")?;
    println!();
    for jump_forward in [JumpForward::SingleToken, JumpForward::Text] {
        let mut config = config(ModelSource::BuiltIn, None, true);
        config.model_config.max_model_len = Some(1024);
        config.structured_outputs_config.jump_forward = jump_forward;
        let mut engine = Engine::load(&config, eos_token_id)?;
        let prompt =
            "<|im_start|>user\nA knight as JSON, please.<|im_end|>\n<|im_start|>assistant\n";
        let constraint = StructuredOutputsConstraint::Json(CHARACTER.to_owned());
        engine.ask(&tokenizer.encode(prompt, false)?, constraint);
        engine.wait_for_grammars();
        let (mut num_tokens, mut num_forced) = (0, 0);
        while engine.has_work() {
            let (outputs, stats) = engine.step()?;
            num_tokens += outputs
                .iter()
                .map(|output| output.new_token_ids.len())
                .sum::<usize>();
            num_forced += stats.num_forced_tokens as usize;
        }
        println!(
            "an object with five fixed keys on the built-in model, {jump_forward:?}: {num_tokens} \
             tokens, {} of them from the model",
            num_tokens - num_forced
        );
    }
    Ok(())
}
