//! Masks of context-free grammars, beside llguidance with the same grammars and texts.
//!
//! `grammars --tokenizer tokenizer.json [FOLDER]`: a folder of `NAME.lark` with `NAME.inputs`, a JSON
//! array of texts. Grammars in its folder `ambiguous`, if it has one, come after `all`, which doesn't
//! count them. Each text is tokenized, and at each token each engine makes its mask, which must
//! allow the token. Measured are, for each grammar:
//! * `first`: from the grammar's source to the first mask, with nothing kept of it before;
//! * `cold`: all masks of the first pass over the texts, the first mask among them;
//! * `warm`: the same texts once more, as for the second request with a grammar.
//!
//! llguidance starts from a fresh parser and goes through the texts with clones of it, which share
//! what they learn: its only pass is a first one. All of that is done `--repeat` times, from the
//! beginning each time, and each single time that is reported is the shortest of its repetitions, for
//! both engines: what else the machine does is no part of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use benchmarks::maskbench::parser_factory;
use benchmarks::statistics::Summary;
use benchmarks::vocabulary::{load_tokenizer, tokenizer_info};
use clap::Parser;
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use structured_output::{
    CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo, allocate_token_bitmask,
};
use tokenizer::Tokenizer;

#[derive(Parser)]
struct Arguments {
    /// A `tokenizer.json`.
    #[arg(long)]
    tokenizer: PathBuf,
    /// How often everything is done, from the beginning.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// How many of our slowest masks to list, with the text before them.
    #[arg(long, default_value_t = 0)]
    slowest: usize,
    /// The folder of grammars and inputs.
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/grammars"))]
    folder: PathBuf,
}

/// Times of one engine with one grammar.
#[derive(Default)]
struct Times {
    /// From the source to the first mask.
    first_mask: Duration,
    masks: Vec<Duration>,
    accepts: Vec<Duration>,
}

impl Times {
    /// The shorter of each time.
    fn or_shorter(mut self, other: Self) -> Self {
        let shorten = |own: &mut Vec<Duration>, other: Vec<Duration>| {
            for (own, other) in own.iter_mut().zip(other) {
                *own = other.min(*own);
            }
        };
        self.first_mask = self.first_mask.min(other.first_mask);
        shorten(&mut self.masks, other.masks);
        shorten(&mut self.accepts, other.accepts);
        self
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let tokenizer = load_tokenizer(&arguments.tokenizer)?;
    let compiler = GrammarCompiler::new(tokenizer_info(&tokenizer)?, CompilerOptions::default());
    let factory = parser_factory(&arguments.tokenizer)?;
    println!(
        "{:<18} {:<16} {:>9} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "grammar", "engine", "first µs", "masks", "mean µs", "p50", "p99", "max", "accept"
    );
    let all = measure(
        &arguments,
        &arguments.folder,
        &tokenizer,
        &compiler,
        &factory,
    )?;
    for (engine, times) in &all {
        report("all", engine, times);
    }
    let ambiguous = arguments.folder.join("ambiguous");
    if ambiguous.is_dir() {
        measure(&arguments, &ambiguous, &tokenizer, &compiler, &factory)?;
    }
    Ok(())
}

/// Reports the grammars of a folder; the times of each engine over all of them.
fn measure(
    arguments: &Arguments,
    folder: &Path,
    tokenizer: &Tokenizer,
    compiler: &GrammarCompiler,
    factory: &Arc<ParserFactory>,
) -> anyhow::Result<Vec<(&'static str, Times)>> {
    let mut all: Vec<(&'static str, Times)> = Vec::new();
    for path in grammars(folder)? {
        let source = std::fs::read_to_string(&path)?;
        let inputs = std::fs::read_to_string(path.with_extension("inputs"))?;
        let inputs: Vec<String> = serde_json::from_str(&inputs)?;
        let texts = inputs
            .iter()
            .map(|input| tokens(tokenizer, input))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let engines = ["formwork cold", "formwork warm", "llguidance"];
        let mut runs: [Option<anyhow::Result<Times>>; 3] = [None, None, None];
        for _ in 0..arguments.repeat.max(1) {
            compiler.clear_cache();
            let latest = [
                ours(compiler, &source, &texts),
                ours(compiler, &source, &texts),
                theirs(factory, &source, &texts),
            ];
            for (shortest, latest) in runs.iter_mut().zip(latest) {
                *shortest = Some(match shortest.take() {
                    None => latest,
                    Some(known) => known.and_then(|known| Ok(known.or_shorter(latest?))),
                });
            }
        }
        let runs = engines.into_iter().zip(runs.into_iter().flatten());
        for (engine, times) in runs {
            match times {
                Ok(times) => {
                    report(&name, engine, &times);
                    if engine == engines[0] {
                        list_slowest(&times, &texts, compiler.tokenizer_info(), arguments.slowest);
                    }
                    match all.iter_mut().find(|(known, _)| *known == engine) {
                        Some((_, sum)) => sum.masks.extend(times.masks),
                        None => all.push((engine, times)),
                    }
                }
                Err(error) => println!("{name:<18} {engine:<16} {error:#}"),
            }
        }
    }
    Ok(all)
}

/// Lists the slowest masks, each with the tokens before it.
fn list_slowest(times: &Times, texts: &[Vec<u32>], info: &TokenizerInfo, count: usize) {
    let places = texts
        .iter()
        .flat_map(|text| (0..text.len()).map(move |at| &text[..at]));
    let mut masks: Vec<(&Duration, &[u32])> = times.masks.iter().zip(places).collect();
    masks.sort_by(|a, b| b.0.cmp(a.0));
    for (time, before) in masks.into_iter().take(count) {
        let bytes: Vec<u8> = before
            .iter()
            .flat_map(|&token| info.token_bytes(token))
            .copied()
            .collect();
        println!(
            "  {time:>10.1?} after {:?}",
            String::from_utf8_lossy(&bytes)
        );
    }
}

fn grammars(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "lark"));
    paths.sort();
    Ok(paths)
}

fn tokens(tokenizer: &Tokenizer, text: &str) -> anyhow::Result<Vec<u32>> {
    tokenizer
        .encode(text, false)
        .map_err(|error| anyhow!("{error}"))
}

fn ours(compiler: &GrammarCompiler, source: &str, texts: &[Vec<u32>]) -> anyhow::Result<Times> {
    let mut row = allocate_token_bitmask(1, compiler.tokenizer_info().vocab_size());
    let mut times = Times::default();
    let start = Instant::now();
    let grammar = compiler.compile_lark(source)?;
    GrammarMatcher::new(&grammar).fill_next_token_bitmask(&mut row)?;
    times.first_mask = start.elapsed();
    for text in texts {
        let mut matcher = GrammarMatcher::new(&grammar);
        for (at, &token) in text.iter().enumerate() {
            let start = Instant::now();
            matcher.fill_next_token_bitmask(&mut row)?;
            times.masks.push(start.elapsed());
            if row[token as usize / 32] >> (token % 32) & 1 == 0 {
                bail!("token {token} is not allowed after {:?}", &text[..at]);
            }
            let start = Instant::now();
            matcher.accept_token(token)?;
            times.accepts.push(start.elapsed());
        }
    }
    Ok(times)
}

fn theirs(factory: &ParserFactory, source: &str, texts: &[Vec<u32>]) -> anyhow::Result<Times> {
    let mut times = Times::default();
    let start = Instant::now();
    let grammar = TopLevelGrammar::from_lark(source.to_owned());
    let compiled = Matcher::new(factory.create_parser(grammar));
    if let Some(error) = compiled.get_error() {
        bail!("{}", error.lines().next().unwrap_or_default());
    }
    compiled.clone().compute_mask()?;
    times.first_mask = start.elapsed();
    for text in texts {
        let mut matcher = compiled.clone();
        for (at, &token) in text.iter().enumerate() {
            let start = Instant::now();
            let mask = matcher.compute_mask()?;
            times.masks.push(start.elapsed());
            if !mask.is_allowed(token) {
                bail!("token {token} is not allowed after {:?}", &text[..at]);
            }
            let start = Instant::now();
            matcher.consume_token(token)?;
            times.accepts.push(start.elapsed());
        }
    }
    Ok(times)
}

fn report(name: &str, engine: &str, times: &Times) {
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let mean =
        |sample: &[Duration]| micros(sample.iter().sum::<Duration>()) / sample.len().max(1) as f64;
    let masks = Summary::of(times.masks.clone());
    println!(
        "{name:<18} {engine:<16} {:>9.0} {:>7} {:>9.2} {:>9.2} {:>9.2} {:>9.1} {:>9.2}",
        micros(times.first_mask),
        masks.count,
        mean(&times.masks),
        micros(masks.p50),
        micros(masks.p99),
        micros(masks.max),
        mean(&times.accepts),
    );
}
