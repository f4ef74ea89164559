//! The encoding: every message comes back as it went, and no bytes do harm.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod strategies;

use proptest::prelude::*;
use protocol::codec::{
    CodecError, FRAME_HEADER, MAX_FRAME, decode_body, decode_header, encode_frame,
};
use protocol::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn body<T: Serialize + DeserializeOwned>(message: &T) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_frame(message, MAX_FRAME, &mut frame).unwrap();
    let header = *frame.first_chunk::<FRAME_HEADER>().unwrap();
    assert_eq!(
        decode_header(header, MAX_FRAME),
        Ok(frame.len() - FRAME_HEADER)
    );
    frame.split_off(FRAME_HEADER)
}

fn undecodable<T: DeserializeOwned + std::fmt::Debug>(body: &[u8]) -> String {
    match decode_body::<T>(body) {
        Err(CodecError::Undecodable { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

/// Bytes that may be anything: an error, or a message that can be sent on. Never a panic.
fn decodes_or_errs<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    if let Ok(message) = decode_body::<T>(bytes) {
        body(&message);
    }
}

fn decodes_or_errs_as_all(bytes: &[u8]) {
    decodes_or_errs::<Hello>(bytes);
    decodes_or_errs::<EngineHandshakeMetadata>(bytes);
    decodes_or_errs::<EngineCoreStartupMessage>(bytes);
    decodes_or_errs::<EngineCoreRequestType>(bytes);
    decodes_or_errs::<EngineCoreMessage>(bytes);
}

/// What must hold for the frames of one type.
fn check<T>(message: &T, flips: &[prop::sample::Index]) -> Result<(), TestCaseError>
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let bytes = body(message);
    let decoded = decode_body::<T>(&bytes);
    prop_assert_eq!(decoded.as_ref(), Ok(message));

    for length in 0..bytes.len() {
        let cut = decode_body::<T>(&bytes[..length]);
        prop_assert!(
            matches!(cut, Err(CodecError::Undecodable { .. })),
            "{} of {} bytes: {:?}",
            length,
            bytes.len(),
            cut
        );
    }

    let mut longer = bytes.clone();
    longer.extend([0, 0, 0]);
    let longer = decode_body::<T>(&longer);
    prop_assert!(
        matches!(longer, Err(CodecError::TrailingBytes { extra: 3, .. })),
        "{:?}",
        longer
    );

    let mut flipped = bytes;
    for flip in flips {
        let bit = flip.index(8 * flipped.len());
        flipped[bit / 8] ^= 1 << (bit % 8);
        decodes_or_errs::<T>(&flipped);
    }
    Ok(())
}

fn flips() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 1..32)
}

proptest! {
    #[test]
    fn hello(message in strategies::hello(), flips in flips()) {
        check(&message, &flips)?;
    }

    #[test]
    fn handshake_metadata(message in strategies::handshake_metadata(), flips in flips()) {
        check(&message, &flips)?;
    }

    #[test]
    fn startup_message(message in strategies::startup_message(), flips in flips()) {
        check(&message, &flips)?;
    }

    #[test]
    fn request(message in strategies::request(), flips in flips()) {
        check(&message, &flips)?;
    }

    #[test]
    fn message(message in strategies::message(), flips in flips()) {
        check(&message, &flips)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        decodes_or_errs_as_all(&bytes);
    }

    /// Small numbers look like messages for longer than random bytes do.
    #[test]
    fn random_small_bytes(bytes in prop::collection::vec(0..4_u8, 0..400)) {
        decodes_or_errs_as_all(&bytes);
    }
}

#[test]
fn the_first_frame_never_changes() {
    // 300 takes the prefix 251 and two bytes; a string its length and its bytes.
    let hello = Hello {
        protocol_version: 300,
        build_version: "0.1.0".to_owned(),
    };
    assert_eq!(body(&hello), [&[251, 44, 1, 5][..], b"0.1.0"].concat());
}

#[test]
fn the_header_is_checked_before_anything_is_read() {
    assert_eq!(decode_header([1, 1, 0, 0], 257), Ok(257));
    assert_eq!(
        decode_header([1, 1, 0, 0], 256),
        Err(CodecError::FrameTooLarge {
            length: 257,
            max: 256
        })
    );
    // A limit above the format's own counts as the format's own.
    assert_eq!(
        decode_header([255; 4], usize::MAX),
        Err(CodecError::FrameTooLarge {
            length: u32::MAX as usize,
            max: MAX_FRAME
        })
    );
}

#[test]
fn errors_say_what_was_wrong() {
    assert_eq!(
        decode_body::<UtilityResult>(&[7]).unwrap_err().to_string(),
        "frame is no UtilityResult: invalid value: integer `7`, expected variant index 0 <= i < 2"
    );
    assert_eq!(
        undecodable::<UtilityResult>(&[0, 5, b'a']),
        "it ends too early, at least 4 more bytes were due"
    );
    assert!(undecodable::<UtilityResult>(&[0, 1, 0xff]).starts_with("a string in it is not UTF-8"));
    assert_eq!(
        undecodable::<EngineHandshakeMetadata>(&[2]),
        "a value of Option<T> in it has the unknown variant 2"
    );
    assert_eq!(
        decode_body::<UtilityResult>(&[0, 0, 0])
            .unwrap_err()
            .to_string(),
        "frame goes on for 1 byte(s) after its UtilityResult"
    );
}

#[test]
fn a_message_that_does_not_fit_is_refused_by_its_sender() {
    let result = UtilityResult::Success("x".repeat(100));
    let length = body(&result).len();
    let mut frame = b"before".to_vec();
    assert_eq!(
        encode_frame(&result, length - 1, &mut frame),
        Err(CodecError::MessageTooLarge {
            message_type: "UtilityResult",
            max: length - 1
        })
    );
    assert_eq!(frame, b"before", "a failed message leaves nothing");
    assert_eq!(encode_frame(&result, length, &mut frame), Ok(()));
    assert_eq!(frame.len(), b"before".len() + FRAME_HEADER + length);
}

/// 64 MiB is a limit on memory as well: short on the wire doesn't mean small.
#[test]
fn a_message_that_its_receiver_would_refuse_is_not_sent() {
    let prompt = |length| {
        EngineCoreRequestType::Add(Box::new(EngineCoreRequest {
            prompt_token_ids: vec![0; length].into(),
            ..EngineCoreRequest::default()
        }))
    };
    let mut frame = Vec::new();
    assert_eq!(
        encode_frame(&prompt(5_000_000), MAX_FRAME, &mut frame),
        Ok(())
    );
    assert_eq!(
        encode_frame(&prompt(6_000_000), MAX_FRAME, &mut Vec::new()),
        Err(CodecError::MessageTooLarge {
            message_type: "EngineCoreRequestType",
            max: MAX_FRAME
        })
    );
    assert_eq!(decode_body(&frame[FRAME_HEADER..]), Ok(prompt(5_000_000)));
}

/// The sender counts what the receiver counts: what is just sent is just taken.
#[test]
fn a_sender_and_its_receiver_agree_on_the_limit() {
    fn check<T>(message: impl Fn(usize) -> T, most: usize)
    where
        T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        let mut frame = Vec::new();
        encode_frame(&message(most), MAX_FRAME, &mut frame).unwrap();
        assert_eq!(decode_body(&frame[FRAME_HEADER..]), Ok(message(most)));
        // More than a frame even where no list grows.
        let more = message(3 * most);
        assert!(encode_frame(&more, MAX_FRAME, &mut frame).is_err());
    }
    // Three times as much while a list grows.
    let of = |size: usize| MAX_FRAME / (3 * size) - 1000;
    let ids = |count| EngineCoreRequestType::Abort(vec![String::new(); count]);
    check(ids, of(size_of::<String>()));
    let outputs = |count| {
        EngineCoreMessage::Outputs(EngineCoreOutputs {
            outputs: vec![EngineCoreOutput::default(); count],
            ..EngineCoreOutputs::default()
        })
    };
    check(outputs, of(size_of::<EngineCoreOutput>()));
    let siblings = |count: usize| {
        let first = EngineCoreRequest::default();
        let mut siblings = Siblings::new(first.clone());
        (1..count).for_each(|_| siblings.push(&first, first.clone()));
        EngineCoreRequestType::AddMany(Box::new(siblings))
    };
    check(siblings, of(size_of::<Sibling>()));
}

#[test]
fn a_path_without_a_text_has_no_encoding() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let mut config = EngineConfig::default();
    config.model_config.model = ModelSource::Path(OsStr::from_bytes(b"\xff").into());
    let metadata = EngineHandshakeMetadata {
        config: Some(config),
    };
    assert_eq!(
        encode_frame(&metadata, MAX_FRAME, &mut Vec::new())
            .unwrap_err()
            .to_string(),
        "EngineHandshakeMetadata can't be encoded: path contains invalid UTF-8 characters"
    );
}
