//! The driver of the fuzz targets for a stable toolchain: makes inputs from seeds for some time.
//!
//! `fuzz --target lark --seconds 1200 --seed 1 [--seeds FOLDER] [--out FOLDER]`. An input that breaks
//! something is written to `--out`; so is the one that runs, in case it takes too long, which ends
//! the program, or takes the process down.
//! `fuzz --target lark FILE` runs one input.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use structured_output_fuzz::{Mutator, Random, Target, seeds};

#[derive(Parser)]
struct Arguments {
    /// What is fuzzed.
    #[arg(long)]
    target: Target,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Runs with the same seed make the same inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// More files to start from.
    #[arg(long)]
    seeds: Option<PathBuf>,
    /// Where findings go.
    #[arg(long, default_value = "fuzz-findings")]
    out: PathBuf,
    /// The longest that an input may take, in seconds.
    #[arg(long, default_value_t = 20)]
    timeout: u64,
    /// An input to run, instead of fuzzing.
    input: Option<PathBuf>,
}

/// The findings after which a run ends.
const MAX_FINDINGS: usize = 20;

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let target = arguments.target;
    if let Some(file) = &arguments.input {
        let input = std::fs::read(file).with_context(|| file.display().to_string())?;
        println!("{}", target.run(&input));
        return Ok(());
    }
    std::fs::create_dir_all(&arguments.out)?;
    let mut known = seeds(target)?;
    if let Some(folder) = &arguments.seeds {
        for entry in std::fs::read_dir(folder)? {
            known.push(std::fs::read(entry?.path())?);
        }
    }
    let running = Arc::new(AtomicU64::new(0));
    watch(&running, &arguments);
    let mut mutator = Mutator::new(target, known);
    let mut random = Random::new(arguments.seed);
    let mut met = HashSet::new();
    let mut findings = HashSet::new();
    let (mut executions, mut slowest) = (0_u64, Duration::ZERO);
    let start = Instant::now();
    let mut said = start;
    while start.elapsed().as_secs() < arguments.seconds && findings.len() < MAX_FINDINGS {
        let input = mutator.next(&mut random);
        // Also found where the process is killed.
        std::fs::write(
            file(&arguments, &format!("current-{}", arguments.seed)),
            &input,
        )?;
        running.store(executions, Ordering::Relaxed);
        let began = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| target.run(&input)));
        let took = began.elapsed();
        executions += 1;
        if took > slowest {
            slowest = took;
            std::fs::write(file(&arguments, "slowest"), &input)?;
        }
        match outcome {
            Ok(outcome) => {
                if met.insert(outcome) {
                    mutator.add(input);
                }
            }
            Err(panic) => {
                let message = panic.downcast_ref::<String>().map_or("", String::as_str);
                let kind: String = message.chars().take(24).collect();
                if findings.insert(kind) {
                    let name = format!("finding-{}-{}", arguments.seed, executions);
                    std::fs::write(file(&arguments, &name), &input)?;
                }
            }
        }
        if said.elapsed().as_secs() >= 60 {
            said = Instant::now();
            report(
                target,
                executions,
                met.len(),
                findings.len(),
                slowest,
                start,
            );
        }
    }
    report(
        target,
        executions,
        met.len(),
        findings.len(),
        slowest,
        start,
    );
    Ok(())
}

fn file(arguments: &Arguments, name: &str) -> PathBuf {
    Path::new(&arguments.out).join(format!("{}-{name}", arguments.target.name()))
}

fn report(
    target: Target,
    executions: u64,
    outcomes: usize,
    findings: usize,
    slowest: Duration,
    start: Instant,
) {
    println!(
        "{}: {:.1} minutes, {executions} executions, {outcomes} outcomes, {findings} findings, \
         slowest {:.2} s, {}",
        target.name(),
        start.elapsed().as_secs_f64() / 60.0,
        slowest.as_secs_f64(),
        peak_memory()
    );
}

/// The most memory that was in use, as Linux says it.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    peak.unwrap_or("VmHWM unknown").replace('\t', " ")
}

/// Ends the program where an input takes too long.
fn watch(executions: &Arc<AtomicU64>, arguments: &Arguments) {
    let executions = Arc::clone(executions);
    let current = file(arguments, &format!("current-{}", arguments.seed));
    let timeout = Duration::from_secs(arguments.timeout);
    std::thread::spawn(move || {
        let mut last = u64::MAX;
        loop {
            std::thread::sleep(timeout);
            let running = executions.load(Ordering::Relaxed);
            if running == last {
                println!("no end within the time limit: see {}", current.display());
                std::process::exit(1);
            }
            last = running;
        }
    });
}
