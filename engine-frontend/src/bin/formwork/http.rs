//! As much of an HTTP client as asking for a status takes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context;

/// The status of `GET path` at an address that a server has printed; `None` for HTTPS.
pub(crate) fn get_status(
    address: &str,
    path: &str,
    patience: Duration,
) -> anyhow::Result<Option<u16>> {
    if let Some(socket) = address.strip_prefix("unix:") {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        return ask(stream, path).map(Some);
    }
    let Some(address) = address.strip_prefix("http://") else {
        return Ok(None);
    };
    let mut address: SocketAddr = address.parse().context("not an address")?;
    if address.ip().is_unspecified() {
        // "All of this machine's": one of them.
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    ask(stream, path).map(Some)
}

fn ask(mut stream: impl Read + Write, path: &str) -> anyhow::Result<u16> {
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    let mut line = String::new();
    BufReader::new(stream.take(1024)).read_line(&mut line)?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.with_context(|| format!("no HTTP answer: {line:?}"))
}
