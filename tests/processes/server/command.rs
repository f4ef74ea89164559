//! The command line, and the process around the server.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};

use super::support::{Server, chat, formwork};

fn run(arguments: &[&str]) -> Output {
    formwork().args(arguments).output().unwrap()
}

fn says(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn a_server_in_the_background_is_started_looked_at_and_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("f.pid");
    let pid_file = pid_file.to_str().unwrap();
    let start = [
        "serve",
        "--daemon",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--pid-file",
        pid_file,
    ];
    let status = ["status", "--pid-file", pid_file];
    let stop = ["stop", "--pid-file", pid_file];
    assert_eq!(run(&status).status.code(), Some(3));
    let started = run(&start);
    assert!(started.status.success(), "{}", says(&started));
    assert!(says(&started).contains("ready at http://127.0.0.1:"));
    let looked = run(&status);
    assert!(
        looked.status.success() && says(&looked).contains("healthy"),
        "{}",
        says(&looked)
    );
    let again = run(&start);
    assert_eq!(again.status.code(), Some(1));
    let log = std::fs::read_to_string(folder.path().join("f.log")).unwrap();
    assert!(log.contains("a server runs already"), "{log}");
    assert!(log.contains("KV cache"), "{log}");
    let stopped = run(&stop);
    assert!(stopped.status.success(), "{}", says(&stopped));
    assert_eq!(run(&status).status.code(), Some(3));
    assert!(run(&stop).status.success());
    // The flag stands in the environment, which the process in the background has as well.
    let mut command = formwork();
    command.env("FORMWORK_DAEMON", "true");
    command.args(start.iter().filter(|arg| **arg != "--daemon"));
    let started = command.output().unwrap();
    assert!(started.status.success(), "{}", says(&started));
    // So does the file's name.
    let with_variable = |command: &str| {
        let mut formwork = formwork();
        formwork.env("FORMWORK_PID_FILE", pid_file).arg(command);
        formwork.output().unwrap()
    };
    assert!(with_variable("status").status.success());
    assert!(says(&with_variable("stop")).contains("stopped"));
    assert_eq!(run(&status).status.code(), Some(3));
}

/// The default folder has a name that anybody can guess, among everybody's temporary files.
#[test]
fn files_in_a_folder_that_others_write_to_are_left_alone() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    let temporary = tempfile::tempdir().unwrap();
    let user = temporary.path().metadata().unwrap().uid();
    let folder = temporary.path().join(format!("formwork-{user}"));
    let victim = temporary.path().join("victim");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(&victim, "precious").unwrap();
    for name in ["formwork.pid", "formwork.log"] {
        symlink(&victim, folder.join(name)).unwrap();
    }
    let start = ["serve", "--daemon", "--host", "127.0.0.1", "--port", "0"];
    for arguments in [&start[..], &["status"], &["stop"]] {
        let mut command = formwork();
        command.env_remove("XDG_RUNTIME_DIR");
        command.env("TMPDIR", temporary.path()).args(arguments);
        let refused = command.output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{}", says(&refused));
        let says = says(&refused);
        assert!(says.contains("can be written to by other users"), "{says}");
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
}

/// Whoever gives requests a long time to finish is not killed before it is over.
#[test]
fn a_stop_waits_as_long_as_the_server_may_take() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("f.pid");
    let pid_file = pid_file.to_str().unwrap();
    let _server = Server::start(&["--shutdown-timeout", "90.5", "--pid-file", pid_file]);
    let text = std::fs::read_to_string(pid_file).unwrap();
    assert_eq!(text.lines().nth(2), Some("90.5"));
    let stopped = run(&[
        "stop",
        "--timeout",
        &u64::MAX.to_string(),
        "--pid-file",
        pid_file,
    ]);
    assert!(stopped.status.success(), "{}", says(&stopped));
}

#[test]
fn a_socket_in_the_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("formwork.sock");
    let start = || {
        let mut command = formwork();
        command.args(["serve", "--uds"]).arg(&path);
        // They say nothing beside a socket: neither could be listened at.
        command
            .args(["--host", "192.0.2.1"])
            .env("FORMWORK_PORT", "1");
        Server::spawn(&mut command)
    };
    let ask = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream
            .write_all(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let mut server = start();
    assert_eq!(server.address, format!("unix:{}", path.display()));
    assert!(ask().starts_with("HTTP/1.1 200"));
    server.process.signal(libc::SIGTERM);
    assert!(server.process.wait().success());
    assert!(!path.exists());
    // What a killed server leaves behind is in nobody's way.
    let mut server = start();
    server.process.signal(libc::SIGKILL);
    server.process.wait();
    assert!(path.exists());
    let _server = start();
    assert!(ask().starts_with("HTTP/1.1 200"));
}

#[test]
fn a_socket_replaces_sockets_only_and_is_its_owners() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("formwork.sock");
    let make: [fn(&Path) -> std::io::Result<()>; 3] = [
        |path| std::fs::write(path, "precious"),
        |path| std::os::unix::fs::symlink("victim", path),
        |path| std::fs::create_dir(path),
    ];
    for make in make {
        make(&path).unwrap();
        let mut command = formwork();
        let refused = command
            .args(["serve", "--uds"])
            .arg(&path)
            .output()
            .unwrap();
        assert_eq!(refused.status.code(), Some(1));
        let says = says(&refused);
        let why = format!("{} exists and is not a socket", path.display());
        assert!(says.contains(&why), "{says}");
        let removed = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path));
        removed.unwrap();
    }
    for (flags, expected) in [(&[][..], 0o600), (&["--uds-mode", "660"], 0o660)] {
        let mut command = formwork();
        command.args(["serve", "--uds"]).arg(&path).args(flags);
        let _server = Server::spawn(&mut command);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, expected);
    }
}

#[test]
fn a_secure_connection() {
    let data = integration_tests::workspace().join("tests/data");
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("f.pid");
    let mut command = formwork();
    command
        .args(["serve", "--host", "127.0.0.1", "--port", "0"])
        .arg("--pid-file")
        .arg(&pid_file)
        .arg("--ssl-certfile")
        .arg(data.join("localhost.crt"))
        .arg("--ssl-keyfile")
        .arg(data.join("localhost.key"));
    let server = Server::spawn(&mut command);
    let status = || run(&["status", "--pid-file", pid_file.to_str().unwrap()]);
    let looked = status();
    assert!(
        looked.status.success() && says(&looked).contains("healthy"),
        "{}",
        says(&looked)
    );
    server.process.signal(libc::SIGSTOP);
    let looked = status();
    server.process.signal(libc::SIGCONT);
    assert_eq!(looked.status.code(), Some(1), "{}", says(&looked));
    assert!(says(&looked).contains("not in time"), "{}", says(&looked));
    let port = server.address.rsplit(':').next().unwrap();
    let curl = Command::new("curl")
        .args(["--silent", "--show-error", "--cacert"])
        .arg(data.join("localhost.crt"))
        .arg(format!("https://localhost:{port}/version"))
        .output();
    let Ok(curl) = curl else {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "CI must run every case"
        );
        return eprintln!("skipped: no curl on this machine");
    };
    assert!(
        says(&curl).contains(env!("CARGO_PKG_VERSION")),
        "{}",
        says(&curl)
    );
}

#[test]
fn clients_show_a_certificate_where_authorities_are_given() {
    let data = integration_tests::workspace().join("tests/data");
    let (certificate, key) = (data.join("localhost.crt"), data.join("localhost.key"));
    let folder = tempfile::tempdir().unwrap();
    let (own, own_key) = (folder.path().join("c.crt"), folder.path().join("c.key"));
    let made = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ])
        .args([
            "-subj",
            "/CN=client",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .args(["-addext", "extendedKeyUsage=clientAuth"])
        .arg("-out")
        .arg(&own)
        .arg("-keyout")
        .arg(&own_key)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "CI must run every case"
        );
        return eprintln!("skipped: no openssl on this machine");
    }
    let mut command = formwork();
    command
        .args(["serve", "--host", "127.0.0.1", "--port", "0"])
        .arg("--ssl-certfile")
        .arg(&certificate)
        .arg("--ssl-keyfile")
        .arg(&key)
        .arg("--ssl-ca-certs")
        .arg(&own);
    let pid_file = folder.path().join("f.pid");
    command.arg("--pid-file").arg(&pid_file);
    let server = Server::spawn(&mut command);
    let looked = run(&["status", "--pid-file", pid_file.to_str().unwrap()]);
    assert!(
        looked.status.success() && says(&looked).contains("only a client with a certificate"),
        "{}",
        says(&looked)
    );
    let port = server.address.rsplit(':').next().unwrap();
    let ask = |with: &[&std::path::Path]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--cacert"])
            .arg(&certificate);
        if let [certificate, key] = with {
            curl.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        curl.arg(format!("https://localhost:{port}/version"))
            .output()
            .unwrap()
    };
    assert!(!ask(&[]).status.success(), "nobody comes without one");
    assert!(
        !ask(&[&certificate, &key]).status.success(),
        "nor with another"
    );
    let right = ask(&[&own, &own_key]);
    assert!(
        says(&right).contains(env!("CARGO_PKG_VERSION")),
        "{}",
        says(&right)
    );
}

#[test]
fn a_chat_template_instead_of_the_models() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.jinja");
    let template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}!";
    std::fs::write(&file, template).unwrap();
    for given in [file.to_str().unwrap(), template] {
        let server = Server::start(&["--chat-template", given]);
        let body = serde_json::json!({
            "messages": [{"role": "user", "content": "Hi"}], "add_special_tokens": false,
        });
        let tokens = server.post("/tokenize", &body).json()["tokens"].take();
        let text = server.post("/detokenize", &serde_json::json!({"tokens": tokens}));
        assert_eq!(text.json()["prompt"], "<user>Hi!", "{given}");
        assert_eq!(
            server.post("/v1/chat/completions", &chat("Hi", 2)).status,
            200
        );
    }
    let wrong = run(&["serve", "--port", "0", "--chat-template", "{% for %}"]);
    assert!(!wrong.status.success());
}

#[test]
fn flags_come_from_a_file_the_environment_and_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("formwork.yaml");
    std::fs::write(
        &file,
        "host: 127.0.0.1\nport: 1\nserved-model-name: [from-file]\n",
    )
    .unwrap();
    let mut command = formwork();
    command
        .args(["serve", "--port", "0", "--config"])
        .arg(&file)
        .env("FORMWORK_API_KEY", "k");
    let server = Server::spawn(&mut command);
    assert_eq!(server.get("/v1/models").status, 401);
    let mut body = chat("Hi", 2);
    body["model"] = "from-file".into();
    let headers = "Authorization: Bearer k\r\nContent-Type: application/json\r\n";
    let body = body.to_string();
    let answer = super::client::start(
        &server.address,
        "POST",
        "/v1/chat/completions",
        headers,
        body.as_bytes(),
    );
    assert_eq!(answer.finish().json()["model"], "from-file");
}

#[test]
fn what_can_not_start_says_why_and_ends_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nothing");
    let nowhere = nowhere.to_str().unwrap();
    let slip = folder.path().join("slip.yaml");
    std::fs::write(&slip, "prot: 1\n").unwrap();
    let slip = slip.to_str().unwrap();
    let format = folder.path().join("format.json");
    let file =
        r#"{"names": ["mine"], "position": "whole", "arguments": "json", "call": ["{name}"]}"#;
    std::fs::write(&format, file).unwrap();
    let format = format.to_str().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (arguments, code, why) in [
        (&["serve", "--port", "70000"][..], 2, "--port"),
        (&["serve", "--prot", "1"], 2, "--prot"),
        (&["serve", "--config", slip], 2, "no flag --prot"),
        (
            &["serve", "--max-model-len", "-1"],
            2,
            "'--max-model-len <TOKENS>': must be a whole number of at least 1",
        ),
        (
            &["serve", "--kv-cache-memory-bytes", "1XB"],
            2,
            "the unit \"XB\" is none of k, m",
        ),
        (
            &["serve", "--reasoning-parser", "foo"],
            2,
            "must be one of auto, deepseek_r1",
        ),
        (
            &["serve", "--tool-call-parser", "foo"],
            2,
            "'--tool-call-parser <NAME>': must be one of auto, hermes",
        ),
        (
            &["serve", "--tool-format-file", format],
            2,
            "'--tool-format-file <FILE>': `call[0]` must have {arguments} once",
        ),
        (
            &["serve", "--tool-format-file", nowhere],
            2,
            "'--tool-format-file <FILE>': can't be read",
        ),
        (
            &["serve", "--gpu-memory-utilization=1.5"],
            2,
            "must be more than 0 and at most 1",
        ),
        (
            &["serve", "--ctx-size=4096"],
            2,
            "Here, use --max-model-len",
        ),
        (&["serve", "--config", nowhere], 1, "can't read --config"),
        (&["serve", "--port", "0", nowhere], 1, "no model at"),
        (
            &["serve", "--host", "127.0.0.1", "--port", &port],
            1,
            &format!(
                "can't listen at 127.0.0.1:{port}: it is taken already; end what listens there, or choose another port"
            ),
        ),
        (
            &["serve", "--ssl-certfile", nowhere, "--ssl-keyfile", nowhere],
            1,
            "can't use",
        ),
    ] {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}",
            says(&output)
        );
        let said = says(&output);
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert!(!said.contains("use '-- "), "{arguments:?}: {said}");
    }
    let output = formwork()
        .arg("serve")
        .env("FORMWORK_PROT", "1")
        .output()
        .unwrap();
    assert!(says(&output).contains("FORMWORK_PROT"), "{}", says(&output));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn logs_are_json_where_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let path = log.to_str().unwrap();
    let flags = [
        "--log-format",
        "json",
        "--log-file",
        path,
        "--enable-log-requests",
    ];
    let mut server = Server::start(&flags);
    server.get("/version");
    server.process.signal(libc::SIGTERM);
    server.process.wait();
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    let request = lines
        .iter()
        .find(|line| line["message"] == "request")
        .unwrap();
    assert_eq!(request["handler"], "/version");
    assert_eq!(request["status"], 200);
}

#[test]
fn a_constraint_is_checked_without_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let output = run(&["check", file.to_str().unwrap()]);
        (output.status.code(), says(&output))
    };
    let (code, said) = check(
        r#"{"type": "object", "properties": {"a": {"enum": [12]}}, "required": ["a"],
            "additionalProperties": false}"#,
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("enforced  all of it") && said.contains("sample    {\"a\":12}"),
        "{said}"
    );
    let (code, said) = check("[a-c]{3}\n");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("sample    aaa\n"), "{said}");
    let (code, said) = check(r#"{"properties": {"a": {"type": "nothing"}}}"#);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("refused") && said.contains("#/properties/a/type"),
        "{said}"
    );
    assert_eq!(run(&["check", "/nonexistent"]).status.code(), Some(1));
}
