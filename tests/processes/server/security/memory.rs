//! The memory of a server's two processes.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::server::support::{Server, children};

pub(super) const MIB: u64 = 1 << 20;
/// Memory of both processes together that a request may take whatever its size.
pub(super) const FREE_BYTES: u64 = 64 * MIB;
/// Memory of both processes together that each byte of a request may take besides.
pub(super) const BYTES_PER_BYTE: u64 = 16;

/// The most memory that a request of `sent` bytes may take in both processes together.
pub(super) fn allowance(sent: usize) -> u64 {
    FREE_BYTES + BYTES_PER_BYTE * sent as u64
}

/// A field of `/proc/PID/status` in bytes; `None` of a process that has ended.
pub(super) fn status_field(process: i32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| {
        let kib = line.strip_prefix(name)?.strip_prefix(':')?;
        Some(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    })
}

/// Peak memory of a frontend and its core, over what they had at the beginning.
pub(super) struct Peak {
    processes: Vec<i32>,
    before: u64,
}

impl Peak {
    /// The core and the frontend of a server.
    pub(super) fn processes(server: &Server) -> Vec<i32> {
        let frontend = server.process.0.id();
        let mut processes = children(frontend);
        processes.push(i32::try_from(frontend).unwrap());
        processes
    }

    /// Sets the peak of both back to what they have now.
    pub(super) fn begin(server: &Server) -> Self {
        let processes = Self::processes(server);
        assert_eq!(processes.len(), 2, "a server has one core");
        for process in &processes {
            // 5 resets the peak, see proc_pid_clear_refs(5).
            let path = PathBuf::from(format!("/proc/{process}/clear_refs"));
            std::fs::write(path, "5").expect("the peak can be reset");
        }
        let before = processes.iter().map(|id| status_field(*id, "VmRSS"));
        let before = before.sum::<Option<u64>>().expect("both processes run");
        Self { processes, before }
    }

    /// Bytes that both peaks together are over the beginning; `None` where a process has ended.
    pub(super) fn try_bytes(&self) -> Option<u64> {
        let marks = self.processes.iter().map(|id| status_field(*id, "VmHWM"));
        let peaks = marks.sum::<Option<u64>>()?;
        Some(peaks.saturating_sub(self.before))
    }

    /// Bytes that both peaks together are over the beginning.
    pub(super) fn bytes(&self) -> u64 {
        self.try_bytes().expect("both processes run")
    }

    /// Fails where a request of so many bytes took more than it may.
    pub(super) fn check(&self, what: &str, sent: usize) {
        check(self.bytes(), what, sent);
    }
}

/// Fails where a request of so many bytes took more than it may.
fn check(bytes: u64, what: &str, sent: usize) {
    let allowed = allowance(sent);
    let mut message = String::new();
    let _ = write!(
        message,
        "{what}: {} MiB for {sent} bytes, more than {} MiB",
        bytes / MIB,
        allowed / MIB
    );
    assert!(bytes <= allowed, "{message}");
}

/// What a frontend and its core have at one moment, over the beginning, where both peaks come one after the other: the
/// most of what was seen, many times a second.
pub(super) struct AtOnce {
    is_done: Arc<AtomicBool>,
    most: JoinHandle<u64>,
}

impl AtOnce {
    /// Looks at both processes from here on.
    pub(super) fn begin(server: &Server) -> Self {
        let processes = Peak::processes(server);
        let now = move || {
            let sizes = processes.iter().map(|id| status_field(*id, "VmRSS"));
            sizes.sum::<Option<u64>>()
        };
        let before = now().expect("both processes run");
        let is_done = Arc::new(AtomicBool::new(false));
        let ends = is_done.clone();
        let most = thread::spawn(move || {
            let mut most = before;
            while !ends.load(Ordering::Relaxed) {
                most = most.max(now().expect("both processes run"));
                thread::sleep(Duration::from_millis(1));
            }
            most - before
        });
        Self { is_done, most }
    }

    /// Fails where a request of so many bytes took more than it may.
    pub(super) fn check(self, what: &str, sent: usize) {
        self.is_done.store(true, Ordering::Relaxed);
        check(self.most.join().unwrap(), what, sent);
    }
}

/// Lets a process have so much more memory to write to, in bytes, than it has now. What it asks for
/// beyond that it doesn't get. (`ulimit -v` would count what allocators and stacks reserve as well.)
pub(super) fn limit_growth(process: i32, bytes: u64) {
    let limit = status_field(process, "VmData").expect("it runs") + bytes;
    let limit = libc::rlimit {
        rlim_cur: limit,
        rlim_max: limit,
    };
    let none = std::ptr::null_mut();
    // SAFETY: the new limit is a valid reference, and no old one is asked for.
    let result = unsafe { libc::prlimit(process, libc::RLIMIT_DATA, &raw const limit, none) };
    assert_eq!(result, 0, "the limit is set");
}

/// Touches what any request may use: the buffers of a full step, all of a small cache, the compiler
/// of grammars, the template.
pub(super) fn warm_up(post: impl Fn(&str, &serde_json::Value) -> u16) {
    use serde_json::json;
    for round in 0..6_u32 {
        let prompt: Vec<u32> = (0..2000).map(|i| (i * 7 + round * 131) % 4000).collect();
        let body = json!({"prompt": prompt, "max_tokens": 4, "n": 8, "logprobs": 5});
        assert_eq!(post("/v1/completions", &body), 200);
        let body = json!({
            "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 16,
            "structured_outputs": {"json": {"properties": {"a": {"type": "string"}}}},
        });
        assert_eq!(post("/v1/chat/completions", &body), 200);
    }
}
