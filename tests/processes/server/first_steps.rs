//! A newcomer's first minutes: the start, and the pages that tell about the server.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::client::start;
use super::support::{Server, formwork, terminal};

/// A server that is started with these arguments alone, and its standard error until it is ready.
fn started(arguments: &[&str], variables: &[(&str, &str)]) -> (Server, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stderr");
    let mut command = formwork();
    command
        .args(["serve", "--threads", "1"])
        .args(arguments)
        .envs(variables.iter().copied())
        .stderr(File::create(&path).unwrap());
    let server = Server::spawn(&mut command);
    let told = std::fs::read_to_string(&path).unwrap();
    (server, told)
}

#[test]
fn a_server_listens_at_this_machine_alone_and_says_that_the_model_is_built_in() {
    let (server, told) = started(&["--port", "0"], &[]);
    assert!(
        server.address.starts_with("127.0.0.1:"),
        "{}",
        server.address
    );
    let built_in = "no MODEL was given: this is the small built-in model";
    assert_eq!(told.matches(built_in).count(), 1, "{told}");
    assert!(!told.contains("WARN"), "{told}");
}

#[test]
fn another_address_without_a_key_is_warned_of() {
    let everywhere = ["--host", "0.0.0.0", "--port", "0"];
    let (_server, told) = started(&everywhere, &[]);
    assert!(
        told.contains("WARN") && told.contains("asks for no key"),
        "{told}"
    );
    let (_server, told) = started(&[&everywhere[..], &["--api-key", "k"]].concat(), &[]);
    assert!(!told.contains("WARN"), "{told}");
}

#[test]
fn at_a_terminal_a_server_says_what_to_try_and_it_works() {
    let (ours, theirs) = terminal();
    let mut command = formwork();
    command
        .args([
            "serve",
            "--threads",
            "1",
            "--port",
            "0",
            "--api-key",
            "it's",
        ])
        .stderr(theirs);
    let server = Server::spawn(&mut command);
    let mut said = Vec::new();
    for line in BufReader::new(ours).lines() {
        said.push(line.unwrap());
        if said.last().is_some_and(|line| line.starts_with("try ")) {
            break;
        }
    }
    let page = format!("page       http://{}/", server.address);
    assert!(said.contains(&page), "{said:?}");
    let command = said.last().unwrap().trim_start_matches("try").trim();
    let output = Command::new("sh")
        .args(["-c", command])
        .env("FORMWORK_API_KEY", "it's")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    if output.status.code() == Some(127) && std::env::var("CI").as_deref() != Ok("true") {
        return eprintln!("skipped: no curl on this machine");
    }
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        answer["choices"][0]["message"]["content"], "good",
        "{answer}"
    );
}

#[test]
fn completions_and_the_manual_are_written() {
    let written = |arguments: &[&str]| {
        let output = formwork().args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for shell in ["bash", "zsh", "fish"] {
        let script = written(&["completions", shell]);
        assert!(script.contains("max-model-len"), "{shell}");
        let script = written(&["completions", shell, "formwork-batch"]);
        assert!(script.contains("fail-on-error"), "{shell}");
    }
    assert!(written(&["man", "bench", "serve"]).contains(".TH formwork-bench-serve "));
}

#[test]
fn variables_of_a_kubernetes_service_stop_nothing() {
    let variables = [
        ("FORMWORK_SERVICE_HOST", "10.0.0.1"),
        ("FORMWORK_SERVICE_PORT_HTTP", "8000"),
        ("FORMWORK_PORT", "tcp://10.0.0.1:8000"),
        ("FORMWORK_PORT_8000_TCP_PROTO", "tcp"),
    ];
    let (server, _) = started(&["--port", "0"], &variables);
    assert!(server.is_healthy());
}

#[test]
fn another_servers_short_flag_is_told_what_to_do() {
    let output = formwork().args(["serve", "-tp", "2"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("leave it out: a server has one device"),
        "{told}"
    );
}

#[test]
fn the_page_of_the_api_and_the_front_page() {
    let server = Server::shared();
    let docs = server.get("/docs");
    assert_eq!(docs.status, 200);
    assert_eq!(docs.headers["content-type"], "text/html; charset=utf-8");
    assert!(docs.body.contains("<code>response_format</code>"));
    let browser = "Accept: text/html,application/xhtml+xml\r\n";
    let page = start(&server.address, "GET", "/", browser, b"").finish();
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert!(page.body.contains("src=\"ui/app.js\""), "{}", page.body);
    let home = server.get("/").json();
    assert_eq!(home["name"], "formwork");
    assert_eq!(home["models"], json!(["formwork-builtin"]));
    assert_eq!(home["docs"], "/docs");
    assert_eq!(server.get(home["openapi"].as_str().unwrap()).status, 200);
}

#[test]
fn pages_need_a_key_where_the_server_has_one_and_stand_under_its_root_path() {
    let server = Server::start(&["--api-key", "k", "--root-path", "/llm"]);
    for path in ["/", "/docs"] {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
    let key = "Authorization: Bearer k\r\n";
    let home = start(&server.address, "GET", "/llm/", key, b"").finish();
    assert_eq!(home.json()["docs"], "/llm/docs");
    let docs = start(&server.address, "GET", "/llm/docs", key, b"").finish();
    assert_eq!(docs.status, 200);
    let server = Server::start(&["--disable-fastapi-docs"]);
    assert_eq!(server.get("/docs").status, 404);
    assert_eq!(server.get("/").json().get("docs"), None);
}
