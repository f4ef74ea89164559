//! The sockets: frames arrive whole and in order, and every end of a connection has a name.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use protocol::codec::{CodecError, MAX_FRAME, encode_frame};
use protocol::transport::{Listener, PrivateAddress, Stream, TransportError, tokio as async_io};
use protocol::{EngineCoreRequestType, UtilityResult};

/// Shorter than any test may take, so that what doesn't come is missed soon.
const SHORT: Duration = Duration::from_millis(20);

fn text(length: usize) -> UtilityResult {
    UtilityResult::Success("x".repeat(length))
}

fn pair(address: &PrivateAddress) -> (Stream, Stream) {
    let listener = Listener::bind(address.path()).unwrap();
    let client = Stream::connect(address.path()).unwrap();
    (client, listener.accept().unwrap())
}

/// A blocking stream whose other end takes raw bytes.
fn raw_pair(address: &PrivateAddress) -> (UnixStream, Stream) {
    let listener = Listener::bind(address.path()).unwrap();
    let client = UnixStream::connect(address.path()).unwrap();
    (client, listener.accept().unwrap())
}

/// Around the buffer's sizes, and larger than any socket's.
const LENGTHS: [usize; 9] = [0, 1, 100, 32_763, 65_530, 65_536, 65_540, 3_000_000, 5];

#[test]
fn frames_arrive_in_order_in_both_directions() {
    let address = PrivateAddress::new().unwrap();
    let (client, server) = pair(&address);
    let (mut client_reader, mut client_writer) = client.split();
    let (mut server_reader, mut server_writer) = server.split();
    let echo = thread::spawn(move || {
        while let Some(message) = server_reader.read::<UtilityResult>().unwrap() {
            server_writer.write(&message).unwrap();
        }
    });
    let sender = thread::spawn(move || {
        for length in LENGTHS {
            client_writer.write(&text(length)).unwrap();
        }
        client_writer
    });
    for length in LENGTHS {
        assert_eq!(client_reader.read().unwrap(), Some(text(length)));
    }
    drop((client_reader, sender.join().unwrap()));
    echo.join().unwrap();
}

#[tokio::test]
async fn both_kinds_of_socket_speak_to_each_other() {
    let address = PrivateAddress::new().unwrap();
    let listener = async_io::Listener::bind(address.path()).unwrap();
    let path = address.path().to_owned();
    let echo = thread::spawn(move || {
        let (mut reader, mut writer) = Stream::connect(&path).unwrap().split();
        while let Some(message) = reader.read::<UtilityResult>().unwrap() {
            writer.write(&message).unwrap();
        }
    });
    let (mut reader, mut writer) = listener.accept().await.unwrap().split();
    let sender = tokio::spawn(async move {
        for length in LENGTHS {
            writer.write(&text(length)).await.unwrap();
        }
        writer
    });
    for length in LENGTHS {
        assert_eq!(reader.read().await.unwrap(), Some(text(length)));
    }
    drop((reader, sender.await.unwrap()));
    tokio::task::spawn_blocking(move || echo.join().unwrap())
        .await
        .unwrap();
}

#[tokio::test]
async fn an_async_connection_is_accepted_by_a_blocking_listener() {
    let address = PrivateAddress::new().unwrap();
    let listener = Listener::bind(address.path()).unwrap();
    let (_, mut writer) = async_io::Stream::connect(address.path())
        .await
        .unwrap()
        .split();
    writer.write(&text(1)).await.unwrap();
    let (mut reader, _) = listener.accept().unwrap().split();
    assert_eq!(reader.read().unwrap(), Some(text(1)));
}

#[test]
fn a_connection_closed_between_frames_is_an_end() {
    let address = PrivateAddress::new().unwrap();
    let (client, server) = pair(&address);
    let (client_reader, mut client_writer) = client.split();
    client_writer.write(&text(3)).unwrap();
    drop((client_reader, client_writer));
    let (mut reader, mut writer) = server.split();
    assert_eq!(reader.read().unwrap(), Some(text(3)));
    assert_eq!(reader.read::<UtilityResult>().unwrap(), None);
    assert!(matches!(writer.write(&text(3)), Err(TransportError::Io(_))));
}

#[test]
fn a_peer_that_leaves_our_bytes_unread_is_an_end_too() {
    let address = PrivateAddress::new().unwrap();
    let (client, server) = pair(&address);
    let (mut reader, mut writer) = client.split();
    writer.write(&text(3)).unwrap();
    drop(server);
    assert_eq!(reader.read::<UtilityResult>().unwrap(), None);
}

#[test]
fn garbage_is_an_error() {
    let address = PrivateAddress::new().unwrap();
    let (mut client, server) = raw_pair(&address);
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let error = server
        .split()
        .0
        .read::<EngineCoreRequestType>()
        .unwrap_err();
    let length = u32::from_le_bytes(*b"GET ") as usize;
    assert!(
        matches!(&error, TransportError::Codec(CodecError::FrameTooLarge { length: l, .. }) if *l == length),
        "{error}"
    );
}

#[test]
fn the_limit_on_frames_can_be_lower() {
    let address = PrivateAddress::new().unwrap();
    let (client, server) = pair(&address);
    let (_, mut small) = server.split_with_max_frame(100);
    let error = small.write(&text(200)).unwrap_err();
    assert!(matches!(
        error,
        TransportError::Codec(CodecError::MessageTooLarge { max: 100, .. })
    ));
    // Nothing of it was sent.
    small.write(&text(50)).unwrap();
    let (mut reader, _writer) = client.split_with_max_frame(30);
    let error = reader.read::<UtilityResult>().unwrap_err();
    assert!(
        matches!(
            error,
            TransportError::Codec(CodecError::FrameTooLarge {
                length: 52,
                max: 30
            })
        ),
        "{error}"
    );
}

#[test]
fn a_late_message_is_a_timeout_and_still_comes() {
    let address = PrivateAddress::new().unwrap();
    let (mut client, server) = raw_pair(&address);
    let (mut reader, _writer) = server.split();
    let mut frame = Vec::new();
    encode_frame(&text(3), MAX_FRAME, &mut frame).unwrap();
    let (first, second) = frame.split_at(5);
    client.write_all(first).unwrap();
    let error = reader.read_within::<UtilityResult>(SHORT).unwrap_err();
    assert_eq!(error.to_string(), "no message within 20ms");
    client.write_all(second).unwrap();
    // Without a limit again, and what had arrived is kept.
    assert_eq!(reader.read().unwrap(), Some(text(3)));
}

#[tokio::test]
async fn a_late_message_is_a_timeout_for_async_programs_too() {
    let address = PrivateAddress::new().unwrap();
    let listener = async_io::Listener::bind(address.path()).unwrap();
    let mut client = UnixStream::connect(address.path()).unwrap();
    let (mut reader, _writer) = listener.accept().await.unwrap().split();
    let mut frame = Vec::new();
    encode_frame(&text(3), MAX_FRAME, &mut frame).unwrap();
    let (first, second) = frame.split_at(5);
    client.write_all(first).unwrap();
    let error = reader
        .read_within::<UtilityResult>(SHORT)
        .await
        .unwrap_err();
    assert!(matches!(error, TransportError::Timeout(SHORT)), "{error}");
    client.write_all(second).unwrap();
    assert_eq!(reader.read().await.unwrap(), Some(text(3)));
}

#[test]
fn nobody_there_names_the_address() {
    let address = PrivateAddress::new().unwrap();
    let error = Stream::connect(address.path()).unwrap_err().to_string();
    assert!(
        error.contains(&format!("can't connect to {}", address.path().display())),
        "{error}"
    );
}
