//! KV events, as a subscriber of vLLM's sees them.

use std::net::TcpListener;

use super::clients::run_at;
use super::data_parallel::has_two_processors;
use super::support::{Server, formwork};

const PACKAGES: &str = "cbor2, msgspec, zmq";

/// A server whose events go to sockets in this folder, with a cache of 64 blocks.
fn with_events(folder: &tempfile::TempDir) -> (Server, [String; 2]) {
    let path = |name: &str| format!("ipc://{}/{name}", folder.path().display());
    let endpoints = [path("events"), path("replay")];
    let config = serde_json::json!({
        "enable_kv_cache_events": true, "publisher": "zmq", "topic": "kv@test@",
        "endpoint": endpoints[0], "replay_endpoint": endpoints[1],
    });
    let mut command = formwork();
    command
        .env("PYTHONHASHSEED", "7")
        .args(["serve", "--host", "127.0.0.1", "--port", "0"])
        .args(["--threads", "1", "--enable-prompt-tokens-details"])
        .args(["--num-blocks-override", "65", "--max-model-len", "512"])
        .args(["--prefix-caching-hash-algo", "sha256_cbor"])
        .args(["--kv-events-config", &config.to_string()]);
    (Server::spawn(&mut command), endpoints)
}

fn run(server: &Server, arguments: &[&str]) {
    let url = format!("http://{}/v1", server.address);
    run_at(&url, "kv_events_client.py", PACKAGES, arguments);
}

#[test]
fn a_subscriber_knows_the_cache_as_the_server_does() {
    let folder = tempfile::tempdir().unwrap();
    let (server, [events, replay]) = with_events(&folder);
    run(&server, &["index", &events, &replay]);
    let dropped = server.metric("formwork:kv_event_batches_dropped_total");
    assert_eq!(dropped, 0.0);
}

#[test]
fn a_core_that_dies_takes_its_cache_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let (server, [events, replay]) = with_events(&folder);
    let core = server.core().to_string();
    run(&server, &["core-dies", &events, &replay, &core]);
}

/// The first of so many ports in a row that are free.
fn free_ports(count: u16) -> u16 {
    loop {
        let first = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let mut others =
            (1..count).map(|i| TcpListener::bind(("0.0.0.0", port.checked_add(i)?)).ok());
        if others.all(|other| other.is_some()) {
            return port;
        }
    }
}

#[test]
fn each_of_two_cores_has_a_port_of_its_own() {
    if !has_two_processors() {
        return;
    }
    let first = free_ports(4);
    let config = format!(
        r#"{{"enable_kv_cache_events": true, "endpoint": "tcp://*:{first}", "replay_endpoint": "tcp://*:{}"}}"#,
        first + 2
    );
    let mut command = formwork();
    command
        .args(["serve", "--host", "127.0.0.1", "--port", "0"])
        .args(["--data-parallel-size", "2", "--threads", "2"])
        .args([
            "--enable-prompt-tokens-details",
            "--kv-events-config",
            &config,
        ]);
    let server = Server::spawn(&mut command);
    let (events, replay) = (first.to_string(), (first + 2).to_string());
    run(&server, &["two-cores", &events, &replay]);
}

#[test]
fn nobody_waits_for_a_subscriber() {
    let port = free_ports(1);
    let config =
        format!(r#"{{"enable_kv_cache_events": true, "endpoint": "tcp://*:{port}", "hwm": 4}}"#);
    let server = Server::start(&[
        "--enable-prompt-tokens-details",
        "--kv-events-config",
        &config,
    ]);
    run(&server, &["never-reads", &port.to_string()]);
    // The address is taken now, which is said before a model is loaded.
    let output = formwork()
        .args(["serve", "--port", "0", "--kv-events-config", &config])
        .output()
        .unwrap();
    let says = String::from_utf8_lossy(&output.stderr);
    let expected = format!("can't listen at tcp://*:{port} (endpoint, engine core 0): it is taken");
    assert!(
        !output.status.success() && says.contains(&expected),
        "{says}"
    );
}
