//! What the two processes may do. Every other test runs confined as well, so what a server needs is
//! shown by them; here stands what it is kept from.

use std::fs;

use super::support::{Server, chat, eventually, formwork, signal};

/// A line of a process's status.
fn status(process: i32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|line| line.strip_prefix(':'));
    value.expect("the status has this line").trim().to_owned()
}

/// Whether each of two processes can gain privileges, and which filters of system calls it has.
fn confinement(server: &Server) -> [(String, String, String); 2] {
    let own = i32::try_from(server.process.0.id()).unwrap();
    [own, server.core()].map(|process| {
        (
            status(process, "NoNewPrivs"),
            status(process, "Seccomp"),
            status(process, "Seccomp_filters"),
        )
    })
}

#[test]
fn both_processes_are_confined_unless_told_not_to() {
    let confined = |filters: &str| ("1".to_owned(), "2".to_owned(), filters.to_owned());
    // Refused calls and calls as if unknown: two filters of the server's, which its core inherits, two
    // of the core's own, and two more once its model is loaded.
    let expected = [confined("2"), confined("6")];
    assert_eq!(confinement(Server::shared()), expected);
    let free = || ("0".to_owned(), "0".to_owned(), "0".to_owned());
    let server = Server::start(&["--no-sandbox"]);
    assert_eq!(confinement(&server), [free(), free()]);
    assert_eq!(
        server.post("/v1/chat/completions", &chat("Hi", 2)).status,
        200
    );
}

#[test]
fn a_core_that_takes_anothers_place_is_confined_as_well() {
    let server = Server::start(&[]);
    let before = confinement(&server);
    let core = server.core();
    signal(core, libc::SIGKILL);
    eventually("another core serves", || {
        let children = super::support::children(server.process.0.id());
        children.iter().any(|child| *child != core) && server.is_healthy()
    });
    assert_eq!(
        server.post("/v1/chat/completions", &chat("Hi", 2)).status,
        200
    );
    assert_eq!(confinement(&server), before);
}

#[test]
fn the_core_gets_no_secret_of_the_environment() {
    let secrets = [
        ("FORMWORK_API_KEY", "key-one"),
        ("HF_TOKEN", "key-two"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=key-three"),
        ("AWS_SECRET_ACCESS_KEY", "key-four"),
    ];
    let mut command = formwork();
    command.args(["serve", "--host", "127.0.0.1", "--port", "0"]);
    command.args(["--threads", "1"]).envs(secrets);
    let server = Server::spawn(&mut command);
    let environment = fs::read(format!("/proc/{}/environ", server.core())).unwrap();
    let environment = String::from_utf8(environment).unwrap();
    assert!(
        environment.contains("FORMWORK_LOG_FORMAT=human"),
        "{environment}"
    );
    for (name, value) in secrets {
        assert!(!environment.contains(name), "{environment}");
        assert!(!environment.contains(value), "{environment}");
    }
}

#[test]
fn both_processes_say_what_confines_them() {
    let folder = tempfile::tempdir().unwrap();
    for (flags, least, line) in [
        (
            &[][..],
            2,
            "confined: files, TCP and signals by Landlock; system calls by seccomp",
        ),
        (&["--no-sandbox"], 2, "not confined: "),
    ] {
        let log = folder.path().join("log");
        let mut command = formwork();
        command.args(["serve", "--host", "127.0.0.1", "--port", "0"]);
        command.args(["--threads", "1"]).args(flags);
        command.stderr(fs::File::create(&log).unwrap());
        let _server = Server::spawn(&mut command);
        let log = fs::read_to_string(&log).unwrap();
        if log.contains("confined in part") {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "this kernel lacks a part of Landlock, and CI must run every case: {log}"
            );
            return eprintln!("skipped: this kernel lacks a part: {log}");
        }
        assert_eq!(log.matches(line).count(), least, "{log}");
    }
}
