//! A fault, where it happens, and what was seen.

use std::path::PathBuf;
use std::time::Duration;

use crate::load::Tally;

/// One thing that is broken.
#[derive(Clone)]
pub(crate) struct Fault {
    /// How `--only` names it.
    pub(crate) name: &'static str,
    /// The promise, as the table has it.
    pub(crate) must_hold: &'static str,
    /// Breaks it. An error is a promise that did not hold, too.
    pub(crate) run: fn(&Setting) -> anyhow::Result<Report>,
}

/// What all faults are told.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Folder of the executables.
    pub(crate) executables: PathBuf,
    /// This program.
    pub(crate) program: PathBuf,
    /// Where logs of servers are kept.
    pub(crate) logs: Option<PathBuf>,
    /// `--long`.
    pub(crate) is_long: bool,
    /// Schemas that differ.
    pub(crate) num_schemas: usize,
    /// `cache_bytes` that `--cache-bytes` asks for.
    pub(crate) cache_bytes: Option<u64>,
}

impl Setting {
    /// The path of an executable.
    pub(crate) fn executable(&self, name: &str) -> PathBuf {
        self.executables.join(name)
    }

    /// So many seconds, ten times as many with `--long`.
    pub(crate) fn seconds(&self, seconds: u64) -> Duration {
        Duration::from_secs(if self.is_long { 10 * seconds } else { seconds })
    }
}

/// What was seen under a fault.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Facts.
    pub(crate) seen: Vec<String>,
    /// Promises that did not hold.
    pub(crate) broken: Vec<String>,
    /// Why the fault can't be made here.
    pub(crate) skipped: Option<String>,
}

impl Report {
    /// A fault that can't be made on this machine.
    pub(crate) fn skipped(why: impl Into<String>) -> Self {
        Self {
            skipped: Some(why.into()),
            ..Self::default()
        }
    }

    /// Adds a fact.
    pub(crate) fn saw(&mut self, fact: impl Into<String>) {
        self.seen.push(fact.into());
    }

    /// Adds a broken promise unless `holds`.
    pub(crate) fn must(&mut self, holds: bool, otherwise: impl Into<String>) {
        if !holds {
            self.broken.push(otherwise.into());
        }
    }

    /// Adds what became of the steady load: all of it must be answered as before.
    pub(crate) fn load(&mut self, tally: &Tally) {
        self.saw(format!(
            "{} answers as before, at most {:.2} s between two pieces",
            tally.right,
            tally.longest_wait.as_secs_f64()
        ));
        self.must(tally.right > 0, "no steady request was answered");
        if let Some(wrong) = tally.wrong.first() {
            self.must(
                false,
                format!("{} other answers, such as {wrong}", tally.wrong.len()),
            );
        }
        for ((status, message), count) in &tally.failed {
            let failed = format!("{count} steady requests failed with {status}: {message}");
            self.must(false, failed);
        }
    }
}
