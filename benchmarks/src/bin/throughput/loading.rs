//! How long loading takes, and how much memory it takes at most.

use std::fs;
use std::path::Path;
use std::time::Instant;

use benchmarks::memory::{Memory, evict_files, reset_peak};

use crate::engine::{Engine, EngineSpec};

/// Loads an engine three times and prints a line for each: with its files on the disk only and
/// nothing made from them, with them in memory, and, where a file of quantized weights was made, from
/// that.
pub(crate) fn measure(folder: &Path, spec: EngineSpec, num_threads: u32) -> anyhow::Result<()> {
    remove_weight_caches(folder)?;
    evict_files(folder)?;
    line(folder, spec, num_threads, "from the disk", false)?;
    line(folder, spec, num_threads, "from memory", false)?;
    // Makes the file, where there is something to be kept.
    drop(Engine::load(folder, spec, num_threads, true)?);
    if remove_or_count(folder, false)? > 0 {
        line(folder, spec, num_threads, "from the file of weights", true)?;
    }
    remove_weight_caches(folder)
}

/// The head of the table.
pub(crate) fn print_head() {
    println!("| engine | loaded | seconds | memory after, MB | at most, MB |");
    println!("|---|---|---:|---:|---:|");
}

fn line(
    folder: &Path,
    spec: EngineSpec,
    num_threads: u32,
    case: &str,
    weight_cache: bool,
) -> anyhow::Result<()> {
    reset_peak()?;
    let before = Memory::now();
    let started = Instant::now();
    let engine = Engine::load(folder, spec, num_threads, weight_cache)?;
    let seconds = started.elapsed().as_secs_f64();
    let after = Memory::now();
    drop(engine);
    println!(
        "| {spec} | {case} | {seconds:.2} | {} | {} |",
        after.resident.saturating_sub(before.resident) / 1_000_000,
        after.peak.saturating_sub(before.resident) / 1_000_000
    );
    Ok(())
}

fn remove_weight_caches(folder: &Path) -> anyhow::Result<()> {
    remove_or_count(folder, true).map(|_| ())
}

/// Counts the files of weights that the engine made in a folder, and removes them where asked to.
fn remove_or_count(folder: &Path, remove: bool) -> anyhow::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("formwork.") && name.ends_with(".weights") {
            count += 1;
            if remove {
                fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(count)
}
