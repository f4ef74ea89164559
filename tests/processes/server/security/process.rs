//! What the process does to other users' files and terminals: findings 11 and 14, and logs.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::server::chat::terminal;
use crate::server::support::{Server, formwork};
use crate::support::Process;

fn serve_at(path: &Path) -> Command {
    let mut command = formwork();
    command.args(["serve", "--threads", "1", "--uds"]).arg(path);
    command
}

/// The exit code of a server that doesn't start.
fn exit_code(command: &mut Command) -> i32 {
    let mut process = Process::spawn(command.stdout(Stdio::piped()));
    let mut address = String::new();
    let stdout = process.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut address).unwrap();
    assert_eq!(address, "", "it serves");
    process.wait().code().expect("no signal ends it")
}

/// Finding 11: a regular file at the path was removed.
#[test]
fn a_socket_replaces_no_regular_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    assert_eq!(exit_code(&mut serve_at(&path)), 1);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    // A folder neither, nor what a link points to.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(exit_code(&mut serve_at(&link)), 1);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
}

/// Finding 11: who could connect depended on the umask.
#[test]
fn a_socket_is_its_users_alone() {
    use std::os::unix::process::CommandExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let mut command = serve_at(&path);
    // SAFETY: umask is async-signal-safe and touches no memory.
    unsafe {
        command.pre_exec(|| {
            libc::umask(0);
            Ok(())
        });
    }
    let server = Server::spawn(&mut command);
    let metadata = std::fs::metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    drop(server);
}

/// Finding 14: an answer could set a terminal's title and clipboard.
#[test]
fn chat_writes_no_terminal_sequences_of_an_answer() {
    const SEQUENCES: &str = "\u{1b}]52;c;c2VjcmV0\u{7}\u{1b}]0;title\u{7}\u{9b}31m\u{202e}";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let choice = |delta, reason| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
        let events = [
            choice(
                json!({"content": format!("a{SEQUENCES}b\tc\n")}),
                json!(null),
            ),
            choice(json!({}), json!("stop")),
        ];
        let mut stream = String::new();
        for event in &events {
            stream.push_str(&format!("data: {event}\n\n"));
        }
        stream.push_str("data: [DONE]\n\n");
        let models =
            json!({"object": "list", "data": [{"id": "m", "object": "model"}]}).to_string();
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut request = vec![0; 1 << 16];
            let count = connection.read(&mut request).unwrap();
            let is_post = request[..count].starts_with(b"POST");
            let (kind, body) = match is_post {
                true => ("text/event-stream", &stream),
                false => ("application/json", &models),
            };
            let _ = write!(
                connection,
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    let (mut read_end, write_end) = terminal();
    let mut command = formwork();
    command.args(["chat", "--url", &format!("http://{address}")]);
    command
        .stdin(Stdio::piped())
        .stdout(write_end)
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(command);
    child.stdin.take().unwrap().write_all(b"Hi\n").unwrap();
    let mut process = Process(child);
    assert!(process.wait().success());
    let mut written = Vec::new();
    // The end of a terminal is an error.
    let _ = read_end.read_to_end(&mut written);
    let written = String::from_utf8(written).unwrap();
    assert!(
        written.contains('a') && written.contains("b\tc"),
        "{written:?}"
    );
    for forbidden in ["\u{1b}]", "\u{7}", "\u{9b}", "\u{202e}"] {
        assert!(!written.contains(forbidden), "{written:?}");
    }
}
