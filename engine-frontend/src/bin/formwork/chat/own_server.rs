//! A server for one chat.

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::http::{Client, TrustArgs};

/// How long the server may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Flags from the environment that are not for this server.
const NOT_INHERITED: [&str; 5] = [
    "FORMWORK_UDS",
    "FORMWORK_SSL_CERTFILE",
    "FORMWORK_SSL_KEYFILE",
    "FORMWORK_DAEMON",
    "FORMWORK_PID_FILE",
];

/// The server has said on standard error why it doesn't start, so that nothing is left to say.
#[derive(Debug, thiserror::Error)]
#[error("the server ended")]
pub(super) struct EndedItself;

/// `formwork serve` at a free port of this machine, with a key that only this chat knows. It ends
/// when its standard input closes, so with the chat, however that ends.
#[derive(Debug)]
pub(super) struct OwnServer {
    process: Child,
    address: String,
    key: String,
}

impl OwnServer {
    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// It doesn't start: [`EndedItself`], or what it was ended by.
    pub(super) async fn start(model: Option<&str>, flags: &[OsString]) -> anyhow::Result<Self> {
        let random = || RandomState::new().build_hasher().finish();
        let key = format!("{:016x}{:016x}", random(), random());
        let own = std::env::current_exe().context("can't find this program")?;
        let mut command = Command::new(own);
        command.arg("serve").args(model).args(flags).args([
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--disable-log-stats",
            "--end-with-stdin",
        ]);
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        for name in ["RUST_LOG", "FORMWORK_LOG"] {
            if std::env::var_os(name).is_none() {
                // Warnings about a request come with its answer.
                command.env(name, "error");
            }
        }
        command
            .env("FORMWORK_API_KEY", &key)
            // An interrupt at the terminal is the chat's to handle.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().context("can't start the server")?;
        let stdout = process.stdout.take().context("the server has no output")?;
        let mut address = String::new();
        BufReader::new(stdout).read_line(&mut address).await?;
        if address.is_empty() {
            let status = process.wait().await?;
            if status.code().is_some() {
                return Err(EndedItself.into());
            }
            bail!("the server ended ({status})");
        }
        Ok(Self {
            process,
            address: address.trim_end().to_owned(),
            key,
        })
    }

    /// A client of it.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        Client::new(&self.address, Some(&self.key), &TrustArgs::default())
    }

    /// Lets it end.
    pub(super) async fn end(mut self) {
        drop(self.process.stdin.take());
        if timeout(PATIENCE, self.process.wait()).await.is_err() {
            let _ = self.process.start_kill();
        }
    }
}
