//! Matchers of one compiler on several threads, and masks within a number of tokens.
//!
//! `matchers --tokenizer tokenizer.json FOLDER`: schemas of the corpus that `maskbench` runs, each
//! with a valid instance. After a first run each thread runs all instances, a mask and an accepted
//! token at a time, so that almost every call is a look-up under the engine's lock: the worst case
//! for it. Then, at each place of each instance, the mask within four tokens more than are needed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use benchmarks::maskbench::Case;
use benchmarks::statistics::Summary;
use benchmarks::vocabulary::{load_tokenizer, tokenizer_info};
use clap::Parser;
use structured_output::{
    CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions,
    PropertyOrder,
};

/// Measures matchers on several threads, and masks within a number of tokens.
#[derive(Debug, Parser)]
struct Arguments {
    /// The tokenizer.json of the model
    #[arg(long, value_name = "FILE")]
    tokenizer: PathBuf,
    /// How many schemas, taken evenly from the folder
    #[arg(long, default_value_t = 100)]
    schemas: usize,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    threads: Vec<usize>,
    /// Runs over all instances per thread
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// The corpus
    #[arg(value_name = "PATH")]
    folder: PathBuf,
}

/// A grammar and a text of it, in tokens.
type Text = (CompiledGrammar, Vec<u32>);

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let texts = texts(&arguments)?;
    let num_tokens: usize = texts.iter().map(|text| text.1.len()).sum();
    println!("{} schemas, {num_tokens} tokens", texts.len());
    run(&texts)?;
    for &threads in &arguments.threads {
        let start = Instant::now();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| scope.spawn(|| (0..arguments.rounds).try_for_each(|_| run(&texts))))
                .collect();
            workers.into_iter().try_for_each(|worker| {
                let ended = worker.join();
                ended.map_err(|_| anyhow!("a thread panicked"))?
            })
        })?;
        let steps = threads * arguments.rounds * num_tokens;
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{threads} threads: {:.2} million masks with accepted tokens per second, {:.2} us each on its thread",
            steps as f64 / seconds / 1e6,
            seconds * threads as f64 / steps as f64 * 1e6,
        );
    }
    for (name, times) in [("at first", within(&texts)?), ("again", within(&texts)?)] {
        let most = times.iter().max().copied().unwrap_or_default();
        let summary = Summary::of(times);
        println!(
            "masks within a number of tokens, {name}: p50 {:?}, p99 {:?}, maximum {most:?}",
            summary.p50, summary.p99
        );
    }
    Ok(())
}

fn texts(arguments: &Arguments) -> anyhow::Result<Vec<Text>> {
    let tokenizer = load_tokenizer(&arguments.tokenizer)?;
    let compiler = GrammarCompiler::new(tokenizer_info(&tokenizer)?, CompilerOptions::default());
    let folder = std::fs::read_dir(&arguments.folder)
        .with_context(|| format!("reading {}", arguments.folder.display()))?;
    let mut files = folder
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    let step = files.len().div_ceil(arguments.schemas.max(1)).max(1);
    let options = JsonSchemaOptions {
        property_order: PropertyOrder::Any,
        ..JsonSchemaOptions::default()
    };
    let mut texts = Vec::new();
    for file in files.iter().step_by(step) {
        let case = Case::read(file, &tokenizer)?;
        let valid = case.instances.into_iter().find(|one| one.is_valid);
        if let Some(instance) = valid
            && let Ok(grammar) = compiler.compile_json_schema(&case.schema_text, &options)
        {
            texts.push((grammar, instance.token_ids));
        }
    }
    Ok(texts)
}

/// All texts once: a mask before each token.
fn run(texts: &[Text]) -> anyhow::Result<()> {
    for (grammar, tokens) in texts {
        let mut matcher = GrammarMatcher::new(grammar);
        for &token in tokens {
            matcher.next_token_mask()?;
            if !matcher.accept_token(token)? {
                break;
            }
        }
    }
    Ok(())
}

/// Times of masks within four tokens more than are needed, at each place.
fn within(texts: &[Text]) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    let mut num_exhausted = 0;
    for (grammar, tokens) in texts {
        let mut matcher = GrammarMatcher::new(grammar);
        for &token in tokens {
            let num_tokens = matcher.min_tokens_to_complete()? + 4;
            let start = Instant::now();
            num_exhausted += usize::from(matcher.next_token_mask_within(num_tokens).is_err());
            times.push(start.elapsed());
            if !matcher.accept_token(token)? {
                break;
            }
        }
    }
    println!("{num_exhausted} of {} masks hit a limit", times.len());
    Ok(times)
}
