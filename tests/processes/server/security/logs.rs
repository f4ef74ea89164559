//! What clients send reaches logs as plain text: finding 17.

use serde_json::json;

use crate::server::support::{Server, eventually};

/// Finding 17: control characters of the C1 set and of bidirectional text reached logs as they were.
#[test]
fn logs_are_one_line_each_and_plain() {
    for format in ["human", "json"] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let flags = [
            "--log-file",
            log.to_str().unwrap(),
            "--log-format",
            format,
            "--enable-log-requests",
            "--max-log-len",
            "500",
        ];
        let server = Server::start(&flags);
        let hostile = "\u{9b}31m\u{202e}\u{2066}\u{1b}[31m\u{7f}\nINFO forged";
        let body = json!({"prompt": hostile, "model": hostile});
        assert_eq!(server.post("/v1/completions", &body).status, 404);
        let read = || std::fs::read_to_string(&log).unwrap();
        eventually("the request is logged", || read().contains("forged"));
        let text = read();
        for c in ['\u{9b}', '\u{202e}', '\u{2066}', '\u{1b}', '\u{7f}'] {
            assert!(!text.contains(c), "{format}: {c:?} in {text:?}");
        }
        assert!(!text.contains("\nINFO forged"), "{format}: {text:?}");
    }
}
