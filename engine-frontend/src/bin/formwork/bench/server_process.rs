//! What a server of this machine uses, as `/proc` has it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};

/// Memory may grow by this share and still be called the same.
const GROWTH: f64 = 0.05;
/// Ticks per second in `/proc`, which Linux has fixed for programs.
const TICKS: f64 = 100.0;
/// The core's threads that speak with the frontend: what their names begin with.
const IPC_THREADS: [&str; 2] = ["input-", "output-"];

/// A frontend and its cores.
#[derive(Debug)]
pub(super) struct ServerProcess {
    frontend: u32,
}

/// Of one process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ProcessUsage {
    /// Seconds of processor time since its start.
    pub(super) cpu: f64,
    /// Of these, in threads that speak with the other process.
    pub(super) ipc_cpu: f64,
    /// Resident bytes.
    pub(super) resident: u64,
}

/// Of both.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Usage {
    pub(super) frontend: ProcessUsage,
    /// Of all cores together. Memory that they share counts in each.
    pub(super) core: ProcessUsage,
}

/// Before and after a load.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) before: Usage,
    pub(super) after: Usage,
    /// Whether nothing ran or waited and all blocks were free in the end.
    pub(super) is_at_rest: bool,
}

impl Difference {
    /// Signs of a leak: memory that grew, requests or blocks that stay. None for a good server.
    pub(super) fn leaks(&self) -> Vec<String> {
        let mut leaks = Vec::new();
        if !self.is_at_rest {
            let leak =
                "requests run or wait, or blocks of the KV cache are held, after the last answer";
            leaks.push(leak.to_owned());
        }
        for (name, before, after) in [
            ("frontend", self.before.frontend, self.after.frontend),
            ("core", self.before.core, self.after.core),
        ] {
            if after.resident as f64 > before.resident as f64 * (1.0 + GROWTH) {
                let growth = after.resident as f64 / before.resident as f64 - 1.0;
                let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                leaks.push(format!(
                    "the {name}'s memory grew by {:.1} %, from {:.1} to {:.1} MiB; {:.0} % is the limit",
                    growth * 100.0,
                    mebibytes(before.resident),
                    mebibytes(after.resident),
                    GROWTH * 100.0,
                ));
            }
        }
        leaks
    }

    /// Seconds of processor time of the frontend, and of the core's threads that speak with it.
    pub(super) fn overhead(&self) -> (f64, f64) {
        (
            self.after.frontend.cpu - self.before.frontend.cpu,
            self.after.core.ipc_cpu - self.before.core.ipc_cpu,
        )
    }

    /// Seconds of processor time of the core.
    pub(super) fn core(&self) -> f64 {
        self.after.core.cpu - self.before.core.cpu
    }
}

impl ServerProcess {
    /// The server whose frontend has this id.
    ///
    /// # Errors
    /// There is no such process.
    pub(super) fn new(frontend: u32) -> anyhow::Result<Self> {
        if !proc(frontend).is_dir() {
            bail!("there is no process {frontend}");
        }
        Ok(Self { frontend })
    }

    /// Refuses a process that isn't Formwork's frontend.
    ///
    /// # Errors
    /// It has another name.
    pub(super) fn check_name(&self) -> anyhow::Result<()> {
        const FRONTEND: &str = "formwork";
        let name = fs::read_to_string(proc(self.frontend).join("comm"))?;
        let name = name.trim();
        if name != FRONTEND {
            bail!(
                "--server-pid {} is the process {name:?}; it must be that of `formwork serve`, which is \
                 called {FRONTEND:?} (`formwork serve --pid-file` writes its number)",
                self.frontend
            );
        }
        Ok(())
    }

    /// What it has used so far. A core that it didn't start counts as nothing.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn usage(&self) -> anyhow::Result<Usage> {
        let mut all_cores = ProcessUsage::default();
        for core in self.cores()? {
            let core = process_usage(core)?;
            all_cores.cpu += core.cpu;
            all_cores.ipc_cpu += core.ipc_cpu;
            all_cores.resident += core.resident;
        }
        Ok(Usage {
            frontend: process_usage(self.frontend)?,
            core: all_cores,
        })
    }

    /// The frontend's children.
    fn cores(&self) -> anyhow::Result<Vec<u32>> {
        let parent = self.frontend.to_string();
        let children = fs::read_dir("/proc")?.flatten().filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            (field(&stat, 1)? == parent).then_some(id)
        });
        Ok(children.collect())
    }
}

fn proc(id: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{id}"))
}

/// A field of a line in `/proc/*/stat`, counted from the state, which follows the name.
fn field(stat: &str, number: usize) -> Option<&str> {
    stat.rsplit(')')
        .next()?
        .split_ascii_whitespace()
        .nth(number)
}

/// Seconds of processor time: `utime` and `stime`.
fn cpu(stat: &str) -> Option<f64> {
    let ticks = |number| field(stat, number)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

fn process_usage(id: u32) -> anyhow::Result<ProcessUsage> {
    let folder = proc(id);
    let read = |path: PathBuf| {
        fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))
    };
    let stat = read(folder.join("stat"))?;
    let status = read(folder.join("status"))?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .with_context(|| format!("the process {id} has ended"))?;
    let threads = fs::read_dir(folder.join("task"))?.flatten();
    let ipc_cpu = threads.filter_map(|thread| {
        let name = fs::read_to_string(thread.path().join("comm")).ok()?;
        let is_ipc = IPC_THREADS.iter().any(|ipc| name.starts_with(ipc));
        let stat = is_ipc.then(|| fs::read_to_string(thread.path().join("stat")).ok())??;
        cpu(&stat)
    });
    Ok(ProcessUsage {
        cpu: cpu(&stat).context("/proc has another form here")?,
        ipc_cpu: ipc_cpu.sum(),
        resident: resident << 10,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_is_read_behind_the_name() {
        let stat = "12 (a) b) S 7 12 12 0 -1 0 0 0 0 0 150 50 0 0 20 0 4 0 1 2 3";
        assert_eq!(field(stat, 1), Some("7"));
        assert_eq!(cpu(stat), Some(2.0));
    }

    #[test]
    fn this_process_has_used_something() {
        let usage = process_usage(std::process::id()).unwrap();
        assert!(usage.resident > 0 && usage.ipc_cpu == 0.0, "{usage:?}");
        assert!(ServerProcess::new(u32::MAX).is_err());
    }

    #[test]
    fn another_programs_process_is_no_server() {
        let process = ServerProcess::new(std::process::id()).unwrap();
        let error = process.check_name().unwrap_err().to_string();
        assert!(
            error.contains("it must be that of `formwork serve`"),
            "{error}"
        );
    }

    #[test]
    fn five_percent_are_no_leak() {
        let usage = |resident| Usage {
            frontend: ProcessUsage {
                resident,
                ..ProcessUsage::default()
            },
            ..Usage::default()
        };
        let difference = |after, is_at_rest| Difference {
            before: usage(1000 << 20),
            after: usage(after),
            is_at_rest,
        };
        let mebibytes = |number: u64| number << 20;
        let leaks = |after, is_at_rest| difference(mebibytes(after), is_at_rest).leaks();
        assert_eq!(leaks(1050, true), Vec::<String>::new());
        assert_eq!(
            leaks(1060, true),
            ["the frontend's memory grew by 6.0 %, from 1000.0 to 1060.0 MiB; 5 % is the limit"]
        );
        let [rest] = &*leaks(1000, false) else {
            panic!("one leak");
        };
        assert!(rest.starts_with("requests run or wait"), "{rest}");
    }
}
