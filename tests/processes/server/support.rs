//! Servers for the tests.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use integration_tests::executables;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::{Answer, Pending, start};
use crate::support::{PATIENCE, Process};

/// A running `formwork serve` at a free port. It ends with the test.
pub(crate) struct Server {
    pub(crate) process: Process,
    /// Without scheme.
    pub(crate) address: String,
}

/// A command that runs `formwork`, with nothing of the outer environment's flags.
pub(crate) fn formwork() -> Command {
    let mut command = Command::new(executables().join("formwork"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FORMWORK_") {
            command.env_remove(name);
        }
    }
    command
}

impl Server {
    /// Starts one with these flags, and waits until it is ready.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut command = formwork();
        command.args([
            "serve",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--threads",
            "1",
        ]);
        Self::spawn(command.args(flags))
    }

    /// Waits until a server that this command runs is ready.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut process = Process::spawn(command.stdout(Stdio::piped()));
        let stdout = process.0.stdout.take().unwrap();
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.trim_end().trim_start_matches("http://").to_owned();
        assert!(!address.is_empty(), "the server did not start");
        Self { process, address }
    }

    /// One server that several tests talk to, at defaults.
    pub(crate) fn shared() -> &'static Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(|| Self::that_stays(&[]))
    }

    /// A server for a static, with these flags. It ends with the test program, whose end its core
    /// and it notice by themselves: nobody waits for it.
    pub(crate) fn that_stays(flags: &[&str]) -> Self {
        let mut command = formwork();
        command.args(["serve", "--host", "127.0.0.1", "--port", "0"]);
        command.args(["--threads", "1"]).args(flags);
        // A static is never dropped: the system ends the server instead, when the thread that
        // started it ends. That one lives as long as the program.
        end_with_parent(&mut command);
        let (sender, started) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _ = sender.send(Server::spawn(&mut command));
            loop {
                std::thread::park();
            }
        });
        started.recv().expect("the server starts")
    }

    pub(crate) fn begin(&self, path: &str, body: &Value) -> Pending {
        let headers = "Content-Type: application/json\r\n";
        start(
            &self.address,
            "POST",
            path,
            headers,
            body.to_string().as_bytes(),
        )
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.begin(path, body).finish()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        start(&self.address, "GET", path, "", b"").finish()
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.get("/health").status == 200
    }

    /// The value of a metric without labels of its own.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let line = text.lines().find(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in\n{text}"))
    }

    /// The engine core's process.
    pub(crate) fn core(&self) -> i32 {
        children(self.process.0.id())
            .into_iter()
            .next()
            .expect("the server has a core")
    }
}

/// Lets the system kill the process when the thread that starts it ends.
fn end_with_parent(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: prctl with PR_SET_PDEATHSIG is async-signal-safe and touches no memory of ours.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

/// A folder with the built-in model, made for texts of so many tokens.
pub(crate) fn builtin_model_with_context(num_tokens: u32) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = integration_tests::workspace().join("builtin-model/model");
    for file in fs::read_dir(model).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let config = folder.path().join("config.json");
    let made_for = r#""max_position_embeddings": 2048"#;
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains(made_for), "{text}");
    let other = format!(r#""max_position_embeddings": {num_tokens}"#);
    fs::write(&config, text.replace(made_for, &other)).unwrap();
    folder
}

/// The children of a process.
pub(crate) fn children(id: u32) -> Vec<i32> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(child) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // After the name in parentheses: state, then the parent.
        let parent = stat
            .rsplit(')')
            .next()
            .and_then(|s| s.split(' ').nth(2)?.parse().ok());
        if parent == Some(id) {
            children.push(child);
        }
    }
    children
}

/// Signals any process.
pub(crate) fn signal(process: i32, signal: i32) {
    // SAFETY: `kill` has no memory effects.
    let result = unsafe { libc::kill(process, signal) };
    assert_eq!(result, 0, "the process is there");
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A chat request whose answer is always the same and this long at most.
pub(crate) fn chat(question: &str, max_tokens: u32) -> Value {
    json!({
        "messages": [{"role": "user", "content": question}],
        "max_tokens": max_tokens, "temperature": 0,
    })
}

/// The same as a stream, which doesn't end before its last token.
pub(crate) fn long_stream(question: &str, max_tokens: u32) -> Value {
    let mut body = chat(question, max_tokens);
    body["stream"] = json!(true);
    body["ignore_eos"] = json!(true);
    body
}

/// The text of a streamed chat answer.
pub(crate) fn streamed_text(answer: &Answer) -> String {
    let events = answer.events();
    let pieces = events.iter().filter_map(|event| {
        assert!(event.get("error").is_none(), "{event}");
        event["choices"][0]["delta"]["content"].as_str()
    });
    pieces.collect()
}

/// A pseudo-terminal: our end and the program's.
pub(crate) fn terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let null = std::ptr::null_mut();
    // SAFETY: the first two pointers are to integers that live through the call, the others may be
    // null.
    let result = unsafe { libc::openpty(&mut ours, &mut theirs, null, null.cast(), null.cast()) };
    assert_eq!(result, 0, "there are pseudo-terminals");
    // SAFETY: both were just opened, and nobody else has them.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// The events of a stream, each under its own name.
pub(crate) fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let events = answer.body.split("\n\n").filter(|event| !event.is_empty());
    let events = events.map(|event| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    });
    events.collect()
}
