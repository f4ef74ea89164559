//! The command line, the list of faults, and the table of what was seen.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use benchmarks::machine;
use clap::Parser;

use crate::fault::{Fault, Report, Setting};
use crate::{clients, clock, constraints, core, disk, files, memory, schemas};

/// Breaks one thing at a time under a running server, and says whether it keeps its promises.
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder with formwork, formwork-batch and formwork-engine-core [default: that of this program]
    #[arg(long, value_name = "FOLDER")]
    executables: Option<PathBuf>,
    /// Break only this; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Say what there is to break
    #[arg(long)]
    list: bool,
    /// Take ten times as long for each
    #[arg(long)]
    long: bool,
    /// Schemas of the fault `schemas` [default: 2,000; 10,000 with --only or --long]
    #[arg(long, value_name = "N")]
    schemas: Option<usize>,
    /// `cache_bytes` of the server in the fault `schemas` [default: the server's]
    #[arg(long, value_name = "BYTES")]
    cache_bytes: Option<u64>,
    /// Keep the servers' logs in this folder
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
    /// Use a processor for this long and do nothing else: how this program makes others
    #[arg(long, hide = true, value_name = "SECONDS")]
    spin: Option<u64>,
}

/// Everything that is broken, in this order.
fn faults() -> Vec<Fault> {
    [
        core::FAULTS,
        memory::FAULTS,
        files::FAULTS,
        disk::FAULTS,
        clients::FAULTS,
        constraints::FAULTS,
        schemas::FAULTS,
        clock::FAULTS,
    ]
    .concat()
}

/// Runs what the command line asks for.
///
/// # Errors
/// Where the command line names no fault that exists, or there are no executables.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(seconds) = arguments.spin {
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        return Ok(ExitCode::SUCCESS);
    }
    let faults = faults();
    let names: Vec<&str> = faults.iter().map(|fault| fault.name).collect();
    if arguments.list {
        for fault in &faults {
            println!("{:18} {}", fault.name, fault.must_hold);
        }
        return Ok(ExitCode::SUCCESS);
    }
    for name in &arguments.only {
        anyhow::ensure!(
            names.contains(&name.as_str()),
            "--only {name}: there are {}",
            names.join(", ")
        );
    }
    let program = std::env::current_exe().context("where is this program?")?;
    let beside = program.parent().map(PathBuf::from).unwrap_or_default();
    let is_alone = arguments.only.len() == 1;
    let setting = Setting {
        executables: arguments.executables.unwrap_or(beside),
        program,
        logs: arguments.logs,
        is_long: arguments.long,
        num_schemas: arguments.schemas.unwrap_or(if is_alone || arguments.long {
            10_000
        } else {
            2_000
        }),
        cache_bytes: arguments.cache_bytes,
    };
    let formwork = setting.executable("formwork");
    anyhow::ensure!(
        formwork.is_file(),
        "no {}: name the folder of the executables with --executables",
        formwork.display()
    );
    println!("{}\n", machine::description());
    println!("| fault | what must hold | what was seen | |\n|---|---|---|---|");
    let mut all_held = true;
    for fault in &faults {
        if arguments.only.is_empty() || arguments.only.iter().any(|name| name == fault.name) {
            eprintln!("{} ...", fault.name);
            let started = Instant::now();
            let report = (fault.run)(&setting).unwrap_or_else(|error| {
                let mut report = Report::default();
                report.must(false, format!("{error:#}"));
                report
            });
            all_held &= report.broken.is_empty();
            println!("{}", row(fault, &report));
            eprintln!(
                "{} took {:.0} s",
                fault.name,
                started.elapsed().as_secs_f64()
            );
        }
    }
    Ok(if all_held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A line of the table.
fn row(fault: &Fault, report: &Report) -> String {
    let mut seen = report.seen.clone();
    seen.extend(report.broken.iter().map(|what| format!("**{what}**")));
    seen.extend(report.skipped.clone());
    let verdict = match (&report.skipped, report.broken.is_empty()) {
        (_, false) => "FAILS",
        (Some(_), true) => "skipped",
        (None, true) => "holds",
    };
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    format!(
        "| `{}` | {} | {} | {verdict} |",
        fault.name,
        cell(fault.must_hold),
        cell(&seen.join("; "))
    )
}
