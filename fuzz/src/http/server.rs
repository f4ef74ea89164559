//! Servers in this process: the real ones, before a core of ours.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use clap::Parser;
use engine_frontend::server::ServeArgs;

use super::fake_core;
use crate::scratch;

/// A server and how to ask it for its health.
pub(super) struct Server {
    pub(super) address: PathBuf,
    /// Requests for `/health` and `/metrics`.
    pub(super) probe: String,
}

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: ServeArgs,
}

/// The longest that a server may take to start.
const STARTUP: Duration = Duration::from_secs(60);

/// A server that takes every request, and one with a key and all that is said of requests.
pub(super) fn servers() -> &'static [Server] {
    static SERVERS: OnceLock<Vec<Server>> = OnceLock::new();
    SERVERS.get_or_init(|| {
        let core = scratch::file("fake-core");
        fake_core::start(&core);
        let open = ["--trust-request-chat-template"];
        let keyed = [
            "--api-key=secret",
            "--root-path=/llm",
            "--allowed-origins=[\"https://a.example\"]",
            "--enable-request-id-headers",
            "--enable-prompt-tokens-details",
            "--enable-log-requests",
            "--max-log-len=100",
            "--request-timeout=10",
        ];
        vec![
            start(scratch::file("open"), &core, &open),
            start(scratch::file("keyed"), &core, &keyed),
        ]
    })
}

fn start(address: PathBuf, core: &Path, flags: &[&str]) -> Server {
    let socket = format!("--uds={}", address.display());
    let core = format!("--engine-core-address={}", core.display());
    let common = [
        "serve",
        &socket,
        &core,
        "--client-timeout=10",
        "--disable-log-stats",
    ];
    let args = Command::parse_from(common.iter().chain(flags)).args;
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let served = runtime.block_on(engine_frontend::server::serve(&args, |_| {
            ready.send(()).unwrap();
        }));
        panic!("the server ended: {served:?}");
    });
    is_ready.recv_timeout(STARTUP).expect("no server");
    let head = "Host: localhost\r\nAuthorization: Bearer secret\r\n";
    Server {
        address,
        probe: format!(
            "GET /health HTTP/1.1\r\n{head}\r\nGET /metrics HTTP/1.1\r\n{head}Connection: close\r\n\r\n"
        ),
    }
}
