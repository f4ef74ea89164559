//! Masks of random ambiguous grammars, cold, beside llguidance.
//!
//! `ambiguous --tokenizer tokenizer.json --count 600`: random grammars (`random_lark`), each compiled
//! with nothing kept of others. Measured are the first mask, from the source on, and the masks along one
//! random walk; steps are what a call took of `max_mask_steps`. The token that the walk goes on with is
//! one that both engines allow, as long as both go on. What one of them can't do is reported.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benchmarks::maskbench::parser_factory;
use benchmarks::random_lark::{Random, random_lark};
use benchmarks::vocabulary::{load_tokenizer, tokenizer_info};
use clap::Parser;
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use structured_output::{
    CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo, allocate_token_bitmask,
};

/// llguidance has no limit that ends all that takes long; what takes longer counts as a failure of its.
const SLOW: Duration = Duration::from_millis(500);

#[derive(Parser)]
struct Arguments {
    /// A `tokenizer.json`.
    #[arg(long)]
    tokenizer: PathBuf,
    /// The first grammar's seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many grammars.
    #[arg(long, default_value_t = 600)]
    count: u64,
    /// How many masks of each.
    #[arg(long, default_value_t = 20)]
    masks: usize,
    /// How many of the slowest to list.
    #[arg(long, default_value_t = 12)]
    slowest: usize,
    /// A grammar from a file in place of random ones; a `.json` file is a structural tag, of which
    /// llguidance is not asked.
    #[arg(long)]
    grammar: Option<PathBuf>,
    /// Lists all masks.
    #[arg(long)]
    verbose: bool,
    /// Without llguidance.
    #[arg(long)]
    alone: bool,
}

/// What was measured of one grammar.
#[derive(Default)]
struct Found {
    seed: u64,
    source: String,
    /// Why an engine stopped, ours first.
    failed: [Option<String>; 2],
    /// From the source to the first mask.
    first: [Duration; 2],
    /// All masks of the walk.
    masks: [Vec<Duration>; 2],
    /// The most steps that one mask, and one token took.
    worst_steps: [u64; 2],
    text: Vec<u8>,
}

impl Found {
    fn mean(&self, engine: usize) -> f64 {
        let masks = &self.masks[engine];
        let sum: Duration = masks.iter().sum();
        sum.as_secs_f64() * 1e6 / masks.len().max(1) as f64
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let tokenizer = load_tokenizer(&arguments.tokenizer)?;
    let info = tokenizer_info(&tokenizer)?;
    let compiler = GrammarCompiler::new(Arc::clone(&info), CompilerOptions::default());
    let factory = parser_factory(&arguments.tokenizer)?;
    let short: Vec<u32> = (0..info.vocab_size() as u32)
        .filter(|&id| {
            let bytes = info.token_bytes(id);
            let is_known = |byte: &u8| b"ab() *1\"x\nif".contains(byte);
            (1..=4).contains(&bytes.len()) && bytes.iter().all(is_known)
        })
        .collect();
    let mut all = Vec::new();
    for seed in arguments.seed..arguments.seed + arguments.count {
        let mut random = Random::new(seed);
        let source = match &arguments.grammar {
            Some(file) => std::fs::read_to_string(file)?,
            None => random_lark(&mut random),
        };
        compiler.clear_cache();
        if arguments.verbose {
            println!("{seed}\n{source:.2000}");
        }
        all.push(one(
            &arguments, seed, source, &compiler, &factory, &short, random,
        ));
        if arguments.grammar.is_some() {
            break;
        }
    }
    report(&arguments, &all);
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn one(
    arguments: &Arguments,
    seed: u64,
    source: String,
    compiler: &GrammarCompiler,
    factory: &Arc<ParserFactory>,
    short: &[u32],
    mut random: Random,
) -> Found {
    const MANY: u64 = 1 << 40;
    let info: &TokenizerInfo = compiler.tokenizer_info();
    let mut found = Found {
        seed,
        ..Found::default()
    };
    let mut row = allocate_token_bitmask(1, info.vocab_size());
    let start = Instant::now();
    let file = arguments.grammar.as_ref();
    let is_tag = file.is_some_and(|file| file.extension().is_some_and(|kind| kind == "json"));
    let compiled = match is_tag {
        true => compiler.compile_structural_tag(&source),
        false => compiler.compile_lark(&source),
    };
    let mut ours = match compiled {
        Ok(grammar) => Some(GrammarMatcher::new(&grammar)),
        Err(error) => {
            found.failed[0] = Some(format!("compile: {error}"));
            None
        }
    };
    let compiled = start.elapsed();
    let start = Instant::now();
    let grammar = TopLevelGrammar::from_lark(source.clone());
    let mut theirs = match arguments.alone || is_tag {
        true => None,
        false => Some(Matcher::new(factory.create_parser(grammar))),
    };
    if let Some(error) = theirs.as_ref().and_then(|theirs| theirs.get_error()) {
        let line = error.lines().next().unwrap_or_default();
        found.failed[1] = Some(format!("compile: {line}"));
        theirs = None;
    }
    let their_compiled = start.elapsed();
    for at in 0..arguments.masks {
        if let Some(matcher) = &mut ours {
            matcher.set_allowance(Some(MANY));
            let start = Instant::now();
            let filled = matcher.fill_next_token_bitmask(&mut row);
            let time = start.elapsed();
            let steps = MANY - matcher.allowance().unwrap_or(MANY);
            found.worst_steps[0] = found.worst_steps[0].max(steps);
            if at == 0 {
                found.first[0] = compiled + time;
            }
            found.masks[0].push(time);
            if arguments.verbose {
                let before = String::from_utf8_lossy(&found.text);
                println!("  {at:>3} {steps:>9} steps {time:>10.1?} after {before:?}");
            }
            if let Err(error) = filled {
                found.failed[0] = Some(format!("mask {at}: {error}"));
                ours = None;
            }
        }
        let mut their_mask = None;
        if let Some(matcher) = &mut theirs {
            let start = Instant::now();
            let mask = matcher.compute_mask();
            let time = start.elapsed();
            if at == 0 {
                found.first[1] = their_compiled + time;
            }
            found.masks[1].push(time);
            if arguments.verbose {
                println!("      llguidance {time:>24.1?}");
            }
            match mask {
                Ok(_) if time > SLOW => {
                    found.failed[1] = Some(format!("mask {at}: {time:.1?}"));
                    theirs = None;
                }
                Ok(mask) => their_mask = Some(mask),
                Err(error) => {
                    let error = error.to_string();
                    let line = error.lines().next().unwrap_or_default().to_owned();
                    found.failed[1] = Some(format!("mask {at}: {line}"));
                    theirs = None;
                }
            }
        }
        let is_allowed = |id: u32| {
            let by_us = ours.is_none() || row[id as usize / 32] >> (id % 32) & 1 == 1;
            by_us && their_mask.as_ref().is_none_or(|mask| mask.is_allowed(id))
        };
        let is_text = |id: &u32| is_allowed(*id) && !info.token_bytes(*id).is_empty();
        if ours.is_none() && theirs.is_none() {
            break;
        }
        let of_short: Vec<u32> = short.iter().copied().filter(is_text).collect();
        let token = match random.below(4) < 3 && !of_short.is_empty() {
            true => Some(of_short[random.below(of_short.len())]),
            false => {
                let all: Vec<u32> = (0..info.vocab_size() as u32).filter(is_text).collect();
                let text = all.get(random.below(all.len())).copied();
                text.filter(|id| !info.stop_token_ids().contains(id))
            }
        };
        let Some(token) = token else { break };
        if let Some(matcher) = &mut ours {
            matcher.set_allowance(Some(MANY));
            let accepted = matcher.accept_token(token);
            let steps = MANY - matcher.allowance().unwrap_or(MANY);
            found.worst_steps[1] = found.worst_steps[1].max(steps);
            if let Err(error) = accepted {
                found.failed[0] = Some(format!("token {at}: {error}"));
                ours = None;
            }
        }
        if let Some(matcher) = &mut theirs {
            let start = Instant::now();
            let consumed = matcher.consume_token(token);
            let error = consumed.err().map(|error| error.to_string());
            if error.is_some() || start.elapsed() > SLOW {
                let line = error.unwrap_or_else(|| format!("{:.1?}", start.elapsed()));
                let line = line.lines().next().unwrap_or_default();
                found.failed[1] = Some(format!("token {at}: {line}"));
                theirs = None;
            }
        }
        found.text.extend_from_slice(info.token_bytes(token));
    }
    found.source = source;
    found
}

fn report(arguments: &Arguments, all: &[Found]) {
    let show = |found: &Found| {
        println!(
            "seed {}: first {:.1?} | {:.1?}, mean {:.0} | {:.0} us, {} steps a mask, {} a token",
            found.seed,
            found.first[0],
            found.first[1],
            found.mean(0),
            found.mean(1),
            found.worst_steps[0],
            found.worst_steps[1],
        );
        for (engine, failed) in ["ours", "theirs"].iter().zip(&found.failed) {
            if let Some(failed) = failed {
                println!("  {engine}: {failed}");
            }
        }
        println!("  after {:?}", String::from_utf8_lossy(&found.text));
        for line in found.source.lines() {
            println!("    {line:.2000}");
        }
    };
    let is_served = |found: &&Found, engine: usize| found.failed[engine].is_none();
    let fails_at_run = |found: &&Found| {
        let failed = found.failed[0].as_ref();
        failed.is_some_and(|failed| !failed.starts_with("compile: "))
    };
    println!("== failures of ours after compilation");
    all.iter().filter(fails_at_run).for_each(show);
    println!("== refused by ours, served by theirs");
    let refused =
        |found: &&Found| is_served(found, 1) && !is_served(found, 0) && !fails_at_run(found);
    all.iter().filter(refused).for_each(show);
    let both: Vec<&Found> = all
        .iter()
        .filter(|found| is_served(found, 0) && is_served(found, 1))
        .collect();
    println!("== most steps");
    let mut by_steps: Vec<&Found> = all.iter().collect();
    by_steps.sort_by_key(|found| std::cmp::Reverse(found.worst_steps[0]));
    by_steps
        .iter()
        .take(arguments.slowest)
        .for_each(|found| show(found));
    println!("== slowest beside theirs, by the mean");
    let excess = |found: &Found| found.mean(0) - found.mean(1);
    let mut by_mean = both.clone();
    by_mean.sort_by(|a, b| excess(b).total_cmp(&excess(a)));
    by_mean
        .iter()
        .take(arguments.slowest)
        .for_each(|found| show(found));
    let count = |of: &dyn Fn(&&Found) -> bool| all.iter().filter(of).count();
    println!(
        "{} grammars: {} fail after compilation, {} of them served by llguidance; llguidance fails {}",
        all.len(),
        count(&fails_at_run),
        count(&|found| fails_at_run(found) && is_served(found, 1)),
        count(&|found| !is_served(found, 1)),
    );
    let slower = |times: f64| {
        let slower = both.iter().filter(|f| f.mean(0) > times * f.mean(1));
        slower.count()
    };
    let sum = |engine: usize| both.iter().map(|found| found.mean(engine)).sum::<f64>();
    let first = |engine: usize| {
        let sum: Duration = both.iter().map(|found| found.first[engine]).sum();
        sum.as_secs_f64() * 1e6 / both.len().max(1) as f64
    };
    println!(
        "of {} that both serve: mean {:.0} | {:.0} us, first {:.0} | {:.0} us; slower {}, by half {}, \
         by two {}, by ten {}",
        both.len(),
        sum(0) / both.len().max(1) as f64,
        sum(1) / both.len().max(1) as f64,
        first(0),
        first(1),
        slower(1.0),
        slower(1.5),
        slower(2.0),
        slower(10.0),
    );
    let above = |steps: u64| count(&|found| found.worst_steps[0] > steps);
    println!(
        "most steps of a mask: above 100,000 in {}, 300,000 in {}, 1,000,000 in {}",
        above(100_000),
        above(300_000),
        above(1_000_000)
    );
}
