//! The driver of the fuzz targets for a stable toolchain: makes inputs from seeds for some time.
//!
//! `fuzz TARGET --seconds 1200 --seed 1 [--seeds FOLDER] [--out FOLDER]`; `all` is every target, one
//! after the other. Inputs run in a process of their own. One that ends it, by a panic, an abort, an
//! overflow of the stack or by taking too long, is copied to `--out` with what the process said, and
//! another process goes on.
//! `fuzz TARGET --input FILE` runs one input.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Parser, ValueEnum};
use fuzz::{Mutator, Random, Target, seeds};

#[derive(Parser)]
struct Arguments {
    /// What is fuzzed: a target's name, or "all".
    #[arg(value_parser = targets)]
    target: Targets,
    /// For how long, each target.
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
    #[arg(long)]
    input: Option<PathBuf>,
    /// Told to the process that runs the inputs.
    #[arg(long, hide = true)]
    child: bool,
}

#[derive(Debug, Clone)]
struct Targets(Vec<Target>);

fn targets(name: &str) -> Result<Targets, String> {
    match name {
        "all" => Ok(Targets(Target::ALL.to_vec())),
        name => Target::from_str(name, false).map(|target| Targets(vec![target])),
    }
}

/// Findings after which a target's run ends.
const MAX_FINDINGS: usize = 20;
/// Processes of a target that may end early.
const MAX_RESTARTS: u64 = 200;

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.out)?;
    let mut found = 0;
    for &target in &arguments.target.0 {
        let files = Files {
            folder: arguments.out.clone(),
            target,
        };
        if let Some(file) = &arguments.input {
            let input = std::fs::read(file).with_context(|| file.display().to_string())?;
            println!("{}", target.run(&input));
        } else if arguments.child {
            run_inputs(&arguments, &files)?;
        } else {
            found += supervise(&arguments, &files)?;
        }
    }
    if found > 0 {
        println!("{found} findings in {}", arguments.out.display());
        std::process::exit(1);
    }
    Ok(())
}

/// Where a target's files are.
struct Files {
    folder: PathBuf,
    target: Target,
}

impl Files {
    fn named(&self, name: &str) -> PathBuf {
        Path::new(&self.folder).join(format!("{}-{name}", self.target.name()))
    }
}

/// Starts processes that run inputs until the time is over, and keeps what ended them. Returns the
/// number of findings.
fn supervise(arguments: &Arguments, files: &Files) -> anyhow::Result<usize> {
    let start = Instant::now();
    let mut kinds = BTreeSet::new();
    let mut executions = 0;
    // Processes that are ended leave files behind.
    let scratch = tempfile::tempdir()?;
    for restart in 0..MAX_RESTARTS {
        let left = arguments.seconds.saturating_sub(start.elapsed().as_secs());
        if left == 0 || kinds.len() >= MAX_FINDINGS {
            break;
        }
        let seed = arguments.seed.wrapping_add(restart << 32);
        let mut child = Command::new(std::env::current_exe()?);
        child
            .args([files.target.name(), "--child"])
            .args(["--seconds", &left.to_string(), "--seed", &seed.to_string()])
            .args(["--timeout", &arguments.timeout.to_string()])
            .arg("--out")
            .arg(&arguments.out)
            .env("TMPDIR", scratch.path())
            .stderr(Stdio::from(File::create(files.named("stderr"))?));
        if let Some(folder) = &arguments.seeds {
            child.arg("--seeds").arg(folder);
        }
        let status = child.status()?;
        let count = std::fs::read_to_string(files.named("count")).unwrap_or_default();
        executions += count.trim().parse::<u64>().unwrap_or(0);
        if status.success() {
            break;
        }
        let said = std::fs::read(files.named("stderr"))?;
        let kind = kind_of(status, &String::from_utf8_lossy(&said));
        if kinds.insert(kind.clone()) {
            let name = format!("finding-{}-{restart}", arguments.seed);
            std::fs::copy(files.named("current"), files.named(&name))?;
            std::fs::copy(files.named("stderr"), files.named(&format!("{name}.txt")))?;
            println!(
                "{}: {kind}: see {}",
                files.target.name(),
                files.named(&name).display()
            );
        }
    }
    println!(
        "{}: {executions} inputs in {:.1} minutes, {} findings",
        files.target.name(),
        start.elapsed().as_secs_f64() / 60.0,
        kinds.len()
    );
    Ok(kinds.len())
}

/// Findings with the same words are the same.
fn kind_of(status: ExitStatus, stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().collect();
    let signs = [
        "panicked at",
        "overflowed its stack",
        "memory allocation of",
        "no end within",
    ];
    let at = lines
        .iter()
        .position(|line| signs.iter().any(|sign| line.contains(sign)));
    let said: Vec<&str> = at.map_or(Vec::new(), |at| {
        lines[at..].iter().take(2).copied().collect()
    });
    let letters = said
        .join(" ")
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .take(150)
        .collect::<String>();
    format!("{status}: {letters}")
}

/// Runs inputs until the time is over.
fn run_inputs(arguments: &Arguments, files: &Files) -> anyhow::Result<()> {
    let target = files.target;
    let mut known = seeds(target)?;
    if let Some(folder) = &arguments.seeds {
        for entry in std::fs::read_dir(folder)? {
            known.push(std::fs::read(entry?.path())?);
        }
    }
    let running = Arc::new(AtomicU64::new(0));
    watch(&running, Duration::from_secs(arguments.timeout));
    let mut mutator = Mutator::new(target, known);
    let mut random = Random::new(arguments.seed);
    let mut met = BTreeSet::new();
    let (mut executions, mut slowest) = (0_u64, Duration::ZERO);
    // Opened before anything confines this process to fewer files.
    let mut current = File::create(files.named("current"))?;
    let mut count = File::create(files.named("count"))?;
    let mut slow = File::create(files.named("slowest"))?;
    let start = Instant::now();
    while start.elapsed().as_secs() < arguments.seconds {
        let input = mutator.next(&mut random);
        rewrite(&mut current, &input)?;
        executions += 1;
        rewrite(&mut count, executions.to_string().as_bytes())?;
        running.store(executions, Ordering::Relaxed);
        let began = Instant::now();
        let outcome = target.run(&input);
        if began.elapsed() > slowest {
            slowest = began.elapsed();
            rewrite(&mut slow, &input)?;
        }
        if met.insert(outcome) {
            mutator.add(input);
        }
    }
    println!(
        "{}: {executions} inputs, {} outcomes, slowest {:.2} s, {}",
        target.name(),
        met.len(),
        slowest.as_secs_f64(),
        peak_memory()
    );
    // Servers in this process would go on.
    std::process::exit(0);
}

fn rewrite(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    file.rewind()?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)
}

/// The most memory that was in use, as Linux says it.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    peak.unwrap_or("VmHWM unknown").replace('\t', " ")
}

/// Ends the process where an input takes too long.
fn watch(executions: &Arc<AtomicU64>, timeout: Duration) {
    let executions = Arc::clone(executions);
    std::thread::spawn(move || {
        let mut last = u64::MAX;
        loop {
            std::thread::sleep(timeout);
            let running = executions.load(Ordering::Relaxed);
            if running == last {
                eprintln!("no end within the time limit");
                std::process::exit(1);
            }
            last = running;
        }
    });
}
