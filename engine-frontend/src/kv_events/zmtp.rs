//! ZeroMQ's wire protocol, version 3.0 with the mechanism NULL (<https://rfc.zeromq.org/spec/23/>), as much as a
//! publisher and a router need.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest frame that a peer may send, in bytes: subscriptions and numbers are short. Room is made for no more,
/// whatever a frame claims.
const MAX_PEER_FRAME: usize = 4096;
/// Most frames of a peer's message.
const MAX_PEER_FRAMES: usize = 8;

/// Bits of a frame's first byte.
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Length of the first bytes on a connection.
const GREETING: usize = 64;
/// Where the mechanism's name stands in them, and the zeros that fill it up.
const MECHANISM: std::ops::Range<usize> = 12..32;
/// The mechanism without keys.
const NULL: [u8; 20] = *b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum ZmtpError {
    /// The peer is gone.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer speaks something else.
    #[error("{0}")]
    Protocol(String),
}

fn wrong<T>(what: impl Into<String>) -> Result<T, ZmtpError> {
    Err(ZmtpError::Protocol(what.into()))
}

/// What a socket is, and which kinds may connect to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SocketType {
    /// Sends to subscribers.
    Pub,
    /// Answers requests.
    Router,
}

impl SocketType {
    fn name(self) -> &'static str {
        match self {
            Self::Pub => "PUB",
            Self::Router => "ROUTER",
        }
    }

    fn peers(self) -> &'static [&'static str] {
        match self {
            Self::Pub => &["SUB", "XSUB"],
            Self::Router => &["REQ", "DEALER", "ROUTER"],
        }
    }
}

/// What a peer sends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FromPeer {
    /// All frames of a message.
    Message(Vec<Vec<u8>>),
    /// A command: its name and what follows it.
    Command(String, Vec<u8>),
}

/// Greets a peer, and makes sure that it is of a kind that goes with this socket.
///
/// # Errors
/// The peer is gone, or speaks something else.
pub(super) async fn handshake<S>(stream: &mut S, own: SocketType) -> Result<(), ZmtpError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(&greeting()).await?;
    let mut greeting = [0; GREETING];
    stream.read_exact(&mut greeting).await?;
    check_greeting(&greeting)?;
    let mut ready = Vec::new();
    put_property(&mut ready, "Socket-Type", own.name());
    stream.write_all(&command("READY", &ready)).await?;
    match read(stream).await? {
        FromPeer::Command(name, properties) if name == "READY" => {
            check_socket_type(own, &properties)
        }
        FromPeer::Command(name, _) => wrong(format!("its first command is {name:?}, not READY")),
        FromPeer::Message(_) => wrong("it sent a message before READY"),
    }
}

fn greeting() -> [u8; GREETING] {
    let mut greeting = [0; GREETING];
    // The signature, whose ends tell it from a frame of older versions.
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    // Version 3.0.
    greeting[10] = 3;
    greeting[MECHANISM].copy_from_slice(&NULL);
    greeting
}

fn check_greeting(greeting: &[u8; GREETING]) -> Result<(), ZmtpError> {
    if greeting[0] != 0xff || greeting[9] & 1 == 0 {
        return wrong("it doesn't speak ZeroMQ's protocol");
    }
    if greeting[10] < 3 {
        return wrong(format!(
            "it speaks version {} of ZeroMQ's protocol, which must be at least 3",
            greeting[10]
        ));
    }
    if greeting[MECHANISM] != NULL {
        return wrong("it wants a security mechanism, and there is none here but NULL");
    }
    Ok(())
}

/// A property of READY: both lengths and both texts.
fn put_property(out: &mut Vec<u8>, name: &str, value: &str) {
    // Both are short and ours.
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
    out.extend((value.len() as u32).to_be_bytes());
    out.extend_from_slice(value.as_bytes());
}

fn check_socket_type(own: SocketType, mut properties: &[u8]) -> Result<(), ZmtpError> {
    while let Some((name, value, rest)) = take_property(properties) {
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            let is_peer = own.peers().iter().any(|peer| peer.as_bytes() == value);
            return match is_peer {
                true => Ok(()),
                false => wrong(format!(
                    "it is a {:?}, and a {} socket talks to {}",
                    String::from_utf8_lossy(value),
                    own.name(),
                    own.peers().join(", ")
                )),
            };
        }
        properties = rest;
    }
    wrong("its READY names no Socket-Type")
}

/// The first property, its value, and what follows them.
fn take_property(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(length))?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (value, rest) = rest.split_at_checked(length)?;
    Some((name, value, rest))
}

/// A command as a frame.
pub(super) fn command(name: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + name.len() + body.len());
    // Names are ours and short.
    bytes.push(name.len() as u8);
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(body);
    let mut frame = Vec::new();
    put_frame(&mut frame, COMMAND, &bytes);
    frame
}

/// A message of these frames.
pub(super) fn message(frames: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(frames.iter().map(|frame| 9 + frame.len()).sum());
    for (index, frame) in frames.iter().enumerate() {
        let flags = match index + 1 < frames.len() {
            true => MORE,
            false => 0,
        };
        put_frame(&mut out, flags, frame);
    }
    out
}

fn put_frame(out: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(length) => out.extend([flags, length]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend((body.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(body);
}

/// The next message or command.
///
/// # Errors
/// The peer is gone, or sends more than there is room for.
pub(super) async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<FromPeer, ZmtpError> {
    let mut frames = Vec::new();
    loop {
        let (flags, body) = read_frame(stream).await?;
        if flags & COMMAND != 0 {
            return match frames.is_empty() {
                true => parse_command(&body),
                false => wrong("it sent a command within a message"),
            };
        }
        frames.push(body);
        if flags & MORE == 0 {
            return Ok(FromPeer::Message(frames));
        }
        if frames.len() == MAX_PEER_FRAMES {
            return wrong(format!(
                "its message has more than {MAX_PEER_FRAMES} frames"
            ));
        }
    }
}

async fn read_frame<S: AsyncRead + Unpin>(stream: &mut S) -> Result<(u8, Vec<u8>), ZmtpError> {
    let flags = stream.read_u8().await?;
    if flags & !(MORE | LONG | COMMAND) != 0 {
        return wrong(format!("a frame has the unknown flags {flags:#x}"));
    }
    let length = match flags & LONG {
        0 => u64::from(stream.read_u8().await?),
        _ => stream.read_u64().await?,
    };
    let Some(length) = usize::try_from(length)
        .ok()
        .filter(|&n| n <= MAX_PEER_FRAME)
    else {
        return wrong(format!(
            "a frame of {length} bytes is longer than the limit of {MAX_PEER_FRAME} bytes"
        ));
    };
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((flags, body))
}

fn parse_command(body: &[u8]) -> Result<FromPeer, ZmtpError> {
    let parts = body
        .split_first()
        .and_then(|(&length, rest)| rest.split_at_checked(usize::from(length)));
    match parts {
        Some((name, rest)) => {
            let name = String::from_utf8_lossy(name).into_owned();
            Ok(FromPeer::Command(name, rest.to_vec()))
        }
        None => wrong("a command is shorter than its name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(mut bytes: &[u8]) -> Result<FromPeer, ZmtpError> {
        read(&mut bytes).await
    }

    #[tokio::test]
    async fn frames_of_every_length_are_read_as_they_are_written() {
        let long = vec![7; 300];
        let frames: [&[u8]; 4] = [b"", b"a", &[1; 255], &long];
        let written = message(&frames);
        assert_eq!(written[..5], [1, 0, 1, 1, b'a']);
        let expected = frames.map(<[u8]>::to_vec).to_vec();
        assert_eq!(
            read_all(&written).await.unwrap(),
            FromPeer::Message(expected)
        );
        let ping = command("PING", b"\0\x05x");
        assert_eq!(
            read_all(&ping).await.unwrap(),
            FromPeer::Command("PING".to_owned(), b"\0\x05x".to_vec())
        );
    }

    #[tokio::test]
    async fn no_room_is_made_for_what_a_frame_claims() {
        let claims = [&[LONG][..], &u64::MAX.to_be_bytes()].concat();
        let many = [&[MORE, 0][..]; 9].concat();
        for (bytes, says) in [
            (claims, "longer than the limit of 4096"),
            (many, "more than 8 frames"),
            (vec![0x10, 0], "unknown flags 0x10"),
            (vec![COMMAND, 1, 9], "shorter than its name"),
            (
                [&[MORE, 0][..], &command("PING", b"")].concat(),
                "within a message",
            ),
        ] {
            let error = read_all(&bytes).await.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[tokio::test]
    async fn only_a_peer_of_a_fitting_kind_is_let_in() {
        let peer = |kind: &str| {
            let mut properties = Vec::new();
            put_property(&mut properties, "Identity", "");
            put_property(&mut properties, "socket-type", kind);
            [&greeting()[..], &command("READY", &properties)].concat()
        };
        let mut old = peer("SUB");
        old[10] = 2;
        let mut secured = peer("SUB");
        secured[MECHANISM][..5].copy_from_slice(b"CURVE");
        for (own, bytes, says) in [
            (SocketType::Pub, peer("SUB"), None),
            (SocketType::Pub, peer("XSUB"), None),
            (SocketType::Router, peer("DEALER"), None),
            (
                SocketType::Pub,
                peer("REQ"),
                Some("it is a \"REQ\", and a PUB socket talks to SUB, XSUB"),
            ),
            (SocketType::Pub, old, Some("version 2")),
            (SocketType::Pub, secured, Some("NULL")),
            (SocketType::Pub, vec![b'G'; 64], Some("doesn't speak")),
            (
                SocketType::Pub,
                [&greeting()[..], &command("READY", b"")].concat(),
                Some("no Socket-Type"),
            ),
            (
                SocketType::Pub,
                [&greeting()[..], &message(&[b"\x01"])].concat(),
                Some("before READY"),
            ),
        ] {
            let (mut ours, mut theirs) = tokio::io::duplex(1024);
            theirs.write_all(&bytes).await.unwrap();
            let result = handshake(&mut ours, own).await;
            match says {
                None => assert!(result.is_ok(), "{result:?}"),
                Some(says) => {
                    let error = result.unwrap_err().to_string();
                    assert!(error.contains(says), "{error}");
                }
            }
        }
    }
}
