//! Who asked for what, and how it ended: one line of JSON a request. Nothing of what was asked or
//! answered is in it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use serde::Serialize;

/// Lines that may wait to be written. Beyond them a line is lost: no request waits for a disk.
const MAX_WAITING: usize = 4096;
/// How long the last lines may take, when the server ends.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Where lines go. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct AuditLog {
    lines: SyncSender<Message>,
    on_lost: OnLost,
}

/// Counts a line that was lost.
#[derive(Clone)]
struct OnLost(Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for OnLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnLost")
    }
}

#[derive(Debug)]
enum Message {
    Line(String),
    /// Answered once all lines before are written.
    Flush(SyncSender<()>),
}

impl AuditLog {
    /// Opens a file, which only its owner may read if it is new. `on_lost` hears of each line that can't
    /// be written.
    pub(super) fn open(
        path: &Path,
        on_lost: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        Self::start(file, on_lost)
    }

    fn start(
        file: impl Write + Send + 'static,
        on_lost: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (lines, received) = sync_channel(MAX_WAITING);
        let on_lost = OnLost(Arc::new(on_lost));
        let log = Self {
            lines,
            on_lost: on_lost.clone(),
        };
        std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || write_lines(file, &received, &on_lost))?;
        Ok(log)
    }

    /// Writes a line, or counts it as lost.
    pub(super) fn write(&self, line: &AuditLine<'_>) {
        // It always has a JSON form.
        let Ok(mut line) = serde_json::to_string(line) else {
            return;
        };
        line.push('\n');
        if self.lines.try_send(Message::Line(line)).is_err() {
            (self.on_lost.0)();
        }
    }

    /// Waits until what was written so far is in the file, for a while.
    pub(super) fn flush(&self) {
        let (done, waits) = sync_channel(1);
        if self.lines.try_send(Message::Flush(done)).is_ok() {
            let _ = waits.recv_timeout(LAST_LINES);
        }
    }
}

/// Writes lines until nobody can send one.
fn write_lines(mut file: impl Write, lines: &Receiver<Message>, on_lost: &OnLost) {
    let mut has_failed = false;
    while let Ok(message) = lines.recv() {
        let line = match message {
            Message::Line(line) => line,
            Message::Flush(done) => {
                let _ = done.try_send(());
                continue;
            }
        };
        // What failed may have written half a line.
        let line = match has_failed {
            true => format!("\n{line}"),
            false => line,
        };
        // In one piece: a file that is appended to has whole lines, whoever else writes to it.
        if let Err(error) = file.write_all(line.as_bytes()) {
            (on_lost.0)();
            if !std::mem::replace(&mut has_failed, true) {
                tracing::error!("can't write --audit-log: {error}; lines are lost and counted");
            }
        } else {
            has_failed = false;
        }
    }
}

/// A line of the log.
#[derive(Debug, Serialize)]
pub(super) struct AuditLine<'a> {
    /// Unix time in seconds at which the request came.
    pub(super) time: f64,
    pub(super) request_id: &'a str,
    /// The address of the connection's other end; a proxy's, where there is one.
    pub(super) client: Option<IpAddr>,
    pub(super) key: Option<&'a str>,
    pub(super) method: &'static str,
    pub(super) route: &'a str,
    pub(super) status: u16,
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    /// Seconds until the answer was sent.
    pub(super) duration: f64,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};

    use super::*;

    fn write(log: &AuditLog) {
        log.write(&AuditLine {
            time: 1.5,
            request_id: "id\u{1b}\"",
            client: Some([127, 0, 0, 1].into()),
            key: None,
            method: "POST",
            route: "/v1/completions",
            status: 200,
            prompt_tokens: 7,
            completion_tokens: 2,
            duration: 0.25,
        });
    }

    #[test]
    fn a_line_says_who_and_how_much() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let log = AuditLog::open(&path, || panic!("a line is lost")).unwrap();
        write(&log);
        log.flush();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with('\n'), "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            line,
            json!({
                "time": 1.5, "request_id": "id\u{1b}\"", "client": "127.0.0.1", "key": null,
                "method": "POST", "route": "/v1/completions", "status": 200, "prompt_tokens": 7,
                "completion_tokens": 2, "duration": 0.25,
            })
        );
    }

    /// A disk that is full.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_counted_and_stops_nothing() {
        let lost = Arc::new(AtomicUsize::new(0));
        let log = AuditLog::start(Full, {
            let lost = lost.clone();
            move || {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        })
        .unwrap();
        for _ in 0..100 {
            write(&log);
        }
        log.flush();
        assert_eq!(lost.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn a_disk_that_hangs_loses_lines_and_holds_nobody() {
        let (lines, received) = sync_channel(1);
        let lost = Arc::new(AtomicUsize::new(0));
        let count = lost.clone();
        let on_lost = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let log = AuditLog {
            lines,
            on_lost: OnLost(Arc::new(on_lost)),
        };
        for _ in 0..3 {
            write(&log);
        }
        assert_eq!(lost.load(Ordering::Relaxed), 2);
        drop(received);
    }
}
