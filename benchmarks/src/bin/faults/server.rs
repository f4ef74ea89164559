//! A running `formwork serve`, and its two processes as the system sees them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::{Value, json};

use crate::fault::Setting;
use crate::http::{Client, cut};

/// Longer than anything takes that still happens.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a server is started.
#[derive(Debug, Default)]
pub(crate) struct Launch {
    /// Arguments behind `serve`.
    pub(crate) arguments: Vec<String>,
    /// Variables of its environment.
    pub(crate) variables: Vec<(String, String)>,
    /// What a shell does before it becomes the server, such as `ulimit -n 64`.
    pub(crate) setup: Option<String>,
    /// True if the shell may mount file systems, which nobody else sees and which end with the server.
    pub(crate) may_mount: bool,
}

impl Launch {
    /// With these arguments.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        Self {
            arguments: arguments
                .iter()
                .map(|&argument| argument.to_owned())
                .collect(),
            ..Self::default()
        }
    }

    /// The command that runs an executable so, without the environment's flags.
    pub(crate) fn command(&self, executable: &Path) -> Command {
        let mut command = if self.may_mount {
            let mut unshare = Command::new("unshare");
            if !rustix::process::geteuid().is_root() {
                unshare.args(["--user", "--map-root-user"]);
            }
            unshare.args(["--mount", "sh"]);
            unshare
        } else {
            Command::new("sh")
        };
        let setup = self.setup.as_deref().unwrap_or(":");
        command
            .args(["-c", &format!("{setup} && exec \"$0\" \"$@\"")])
            .arg(executable);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FORMWORK_") {
                command.env_remove(name);
            }
        }
        command.envs(self.variables.iter().cloned());
        command.stdin(Stdio::null());
        command
    }
}

/// A server at a free port. It ends with this value.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    /// Without scheme.
    pub(crate) address: String,
    pub(crate) client: Client,
    folder: tempfile::TempDir,
    /// Where the log is kept.
    logs: Option<PathBuf>,
}

impl Server {
    /// Starts one, and waits until it is ready.
    pub(crate) fn start(setting: &Setting, launch: &Launch) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = launch.command(&setting.executable("formwork"));
        command.args([
            "serve",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--num-blocks-override",
            "2048",
        ]);
        command.args(&launch.arguments).stdout(Stdio::piped());
        command.stderr(File::create(folder.path().join("log"))?);
        let mut process = command.spawn().context("the server can't be started")?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim_end().trim_start_matches("http://").to_owned();
        let server = Self {
            client: Client::new(&address),
            process,
            address,
            folder,
            logs: setting.logs.clone(),
        };
        if server.address.is_empty() {
            bail!("the server did not start: {}", cut(&server.log()));
        }
        Ok(server)
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// What the server wrote to standard error.
    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The frontend's process.
    pub(crate) fn frontend(&self) -> Process {
        Process(self.process.id())
    }

    /// The core's process.
    pub(crate) fn core(&self) -> anyhow::Result<Process> {
        let core = self.frontend().children().next();
        core.with_context(|| format!("the server has no core; its log ends {}", self.last_line()))
    }

    fn last_line(&self) -> String {
        cut(self.log().lines().last().unwrap_or_default())
    }

    /// True if the frontend has not ended.
    pub(crate) fn is_up(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// True if `/health` says so.
    pub(crate) fn is_healthy(&self) -> bool {
        self.client
            .get("/health")
            .is_ok_and(|answer| answer.status == 200)
    }

    /// The sum of a metric over its labels.
    pub(crate) fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let text = self.client.get("/metrics")?.body;
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            rest.starts_with(['{', ' ']).then_some(())?;
            rest.rsplit(' ').next()?.parse::<f64>().ok()
        });
        let values: Vec<f64> = values.collect();
        anyhow::ensure!(!values.is_empty(), "no metric {name}");
        Ok(values.iter().sum())
    }

    /// How often a core was replaced.
    pub(crate) fn restarts(&self) -> anyhow::Result<f64> {
        self.metric("formwork:engine_restarts_total")
    }

    /// Waits until nothing runs or waits and every block is free.
    pub(crate) fn wait_until_idle(&self) -> anyhow::Result<()> {
        wait_until("idle, with all blocks free", || {
            // Whoever comes next hears of what the step before did.
            self.client
                .post("/v1/completions", &json!({"prompt": "Hi", "max_tokens": 1}))?;
            let mut sum = 0.0;
            for name in [
                "vllm:num_requests_running",
                "vllm:num_requests_waiting",
                "vllm:kv_cache_usage_perc",
            ] {
                sum += self.metric(name)?;
            }
            Ok(sum == 0.0)
        })
    }

    /// Asks one chat request for a few tokens under a constraint.
    pub(crate) fn ask_constrained(
        &self,
        constraint: &Value,
    ) -> anyhow::Result<crate::http::Answer> {
        let body = json!({
            "messages": [{"role": "user", "content": "Go on."}],
            "max_tokens": 40, "temperature": 0, "structured_outputs": constraint,
        });
        self.client.post("/v1/chat/completions", &body)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.frontend().signal(Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && self.is_up() {
            std::thread::sleep(Duration::from_millis(10));
        }
        // A core that hangs or is stopped ends with its frontend or never.
        for core in self.frontend().children() {
            core.signal(Signal::KILL);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(folder) = &self.logs {
            let _ = fs::copy(
                self.log_path(),
                folder.join(format!("{}.log", self.process.id())),
            );
        }
    }
}

/// Waits until something is so.
///
/// # Errors
/// Where it isn't after a minute, or can't be asked.
pub(crate) fn wait_until(
    what: &str,
    mut is_so: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        anyhow::ensure!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A process by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    fn pid(self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.0).ok()?)
    }

    /// Its folder in `/proc`.
    fn folder(self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.0))
    }

    /// Sends a signal; nothing where it has ended.
    pub(crate) fn signal(self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, signal);
        }
    }

    /// Sets a limit of the running process. It binds what the process starts from now on as well.
    pub(crate) fn limit(self, resource: Resource, limit: u64) -> anyhow::Result<()> {
        let limit = Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        prlimit(self.pid(), resource, limit).context("its limit can't be set")?;
        Ok(())
    }

    /// The processes that it started.
    pub(crate) fn children(self) -> impl Iterator<Item = Process> {
        let threads = fs::read_dir(self.folder().join("task"))
            .into_iter()
            .flatten();
        let children: String = threads
            .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok())
            .collect();
        let children: Vec<Process> = children
            .split_whitespace()
            .filter_map(|id| id.parse().ok().map(Process))
            .collect();
        children.into_iter()
    }

    /// Bytes that a line of `/proc/PID/status` counts, such as `VmRSS`, `VmHWM`, `VmSize`.
    pub(crate) fn bytes(self, name: &str) -> anyhow::Result<u64> {
        let status = fs::read_to_string(self.folder().join("status"))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        Ok(kib.with_context(|| format!("no {name} of a process"))? * 1024)
    }

    /// Files and connections that it has open.
    pub(crate) fn num_files(self) -> anyhow::Result<usize> {
        Ok(fs::read_dir(self.folder().join("fd"))?.count())
    }
}
