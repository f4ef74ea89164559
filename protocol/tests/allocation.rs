//! No frame, whatever it claims, makes its receiver allocate more than the cap.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;
use protocol::codec::{CodecError, FRAME_HEADER, MAX_FRAME, decode_body, encode_frame};
use protocol::transport::{Listener, PrivateAddress, TransportError};
use protocol::*;
use serde::de::DeserializeOwned;

/// What decoding may take beyond the cap: serde's first room for a sequence of known length, 1 MiB
/// per level of nesting.
const SLACK: usize = 8 << 20;

/// The system's allocator, with a count per thread.
struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn allocated(bytes: usize) {
    // A thread that ends may free after its counters are gone; nobody reads them then.
    let _ = LIVE.try_with(|live| {
        live.set(live.get().saturating_add(bytes));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

fn freed(bytes: usize) {
    let _ = LIVE.try_with(|live| live.set(live.get().saturating_sub(bytes)));
}

// SAFETY: every method passes its arguments on to the system's allocator and returns what that
// returned; the counters are `Cell`s that never allocate. `realloc` keeps the default, which
// counts old and new memory at once, as a move does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller's promise about `layout` is the one that `System` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: `pointer` came from `Self::alloc` with this layout, which is `System`'s.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes that `f` had allocated at once, on this thread.
fn peak_of<R>(f: impl FnOnce() -> R) -> (R, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = f();
    (result, PEAK.get() - before)
}

fn peak_of_decoding<T: DeserializeOwned>(body: &[u8]) -> (Result<T, CodecError>, usize) {
    peak_of(|| decode_body::<T>(body))
}

/// `prefix` and then the length 2^60, as bincode writes it.
fn claim(prefix: &[u8]) -> Vec<u8> {
    [prefix, &[253], &(1_u64 << 60).to_le_bytes()].concat()
}

#[test]
fn claimed_lengths_are_not_believed() {
    let (result, peak) = peak_of_decoding::<UtilityResult>(&claim(&[0]));
    assert!(
        result
            .unwrap_err()
            .to_string()
            .contains("claims more than the limit")
    );
    assert!(peak < 4096, "a string: {peak}");

    let (result, peak) = peak_of_decoding::<EngineCoreRequestType>(&claim(&[1]));
    assert!(result.is_err());
    assert!(peak <= SLACK, "ids to abort: {peak}");

    // A request's `request_id`, `external_req_id`, then `prompt_token_ids`.
    let (result, peak) = peak_of_decoding::<EngineCoreRequestType>(&claim(&[0, 0, 0]));
    assert!(result.is_err());
    assert!(peak <= SLACK, "token ids: {peak}");

    // Outputs of outputs: `engine_index`, 2^60 outputs, an empty id, 2^60 tokens.
    let nested = claim(&[&claim(&[0, 0])[..], &[0]].concat());
    let (result, peak) = peak_of_decoding::<EngineCoreMessage>(&nested);
    assert!(result.is_err());
    assert!(peak <= SLACK, "outputs: {peak}");
}

/// A string may claim up to the cap; it still gets only what is there.
#[test]
fn a_claim_within_the_cap_is_not_believed_either() {
    let body = [&[0, 252][..], &(60_u32 << 20).to_le_bytes()].concat();
    let (result, peak) = peak_of_decoding::<UtilityResult>(&body);
    assert!(result.is_err());
    assert!(peak < 4096, "{peak}");
}

#[test]
fn short_bytes_for_large_values_stay_within_the_cap() {
    fn check<T: DeserializeOwned>(prefix: &[u8], elements: u32, fill: u8) {
        let mut body = [prefix, &[252], &elements.to_le_bytes()].concat();
        body.resize(MAX_FRAME, fill);
        let (_, peak) = peak_of_decoding::<T>(&body);
        assert!(
            peak <= MAX_FRAME + SLACK,
            "{}: {peak}",
            std::any::type_name::<T>()
        );
        assert!(
            peak > MAX_FRAME / 8,
            "{} isn't tried: {peak}",
            std::any::type_name::<T>()
        );
    }
    // Empty ids to abort: one byte each, 24 in memory.
    check::<EngineCoreRequestType>(&[1], u32::MAX, 0);
    // Token 0: one byte each, 4 in memory.
    check::<EngineCoreRequestType>(&[0, 0, 0], u32::MAX, 0);
    // Empty outputs: 16 bytes each, some 350 in memory.
    check::<EngineCoreMessage>(&[0, 0], u32::MAX, 0);
}

/// What the encoder takes for granted about bodies of this length and less.
#[test]
fn a_body_of_512_kib_always_fits() {
    let outputs = EngineCoreMessage::Outputs(EngineCoreOutputs {
        outputs: vec![EngineCoreOutput::default(); (512 << 10) / 18 - 3],
        ..EngineCoreOutputs::default()
    });
    let abort = EngineCoreRequestType::Abort(vec![String::new(); (512 << 10) - 6]);
    let events = EngineCoreMessage::Outputs(EngineCoreOutputs {
        kv_cache_events: vec![KVCacheEvent::AllBlocksCleared; (512 << 10) - 32],
        ..EngineCoreOutputs::default()
    });
    let mut frame = Vec::new();
    encode_frame(&events, MAX_FRAME, &mut frame).unwrap();
    assert!((500 << 10..=512 << 10).contains(&(frame.len() - FRAME_HEADER)));
    assert_eq!(decode_body(&frame[FRAME_HEADER..]), Ok(events));
    frame.clear();
    encode_frame(&outputs, MAX_FRAME, &mut frame).unwrap();
    assert!((500 << 10..=512 << 10).contains(&(frame.len() - FRAME_HEADER)));
    assert_eq!(decode_body(&frame[FRAME_HEADER..]), Ok(outputs));
    frame.clear();
    encode_frame(&abort, MAX_FRAME, &mut frame).unwrap();
    assert_eq!(frame.len() - FRAME_HEADER, 512 << 10);
    assert_eq!(decode_body(&frame[FRAME_HEADER..]), Ok(abort));
}

/// What a reader allocates on a connection that brings `bytes` and then ends.
fn peak_of_reading(bytes: &[u8]) -> (TransportError, usize) {
    let address = PrivateAddress::new().unwrap();
    let listener = Listener::bind(address.path()).unwrap();
    let mut peer = UnixStream::connect(address.path()).unwrap();
    let (mut reader, writer) = listener.accept().unwrap().split();
    drop(writer);
    peer.write_all(bytes).unwrap();
    drop(peer);
    let (result, peak) = peak_of(|| reader.read::<EngineCoreRequestType>());
    (result.unwrap_err(), peak)
}

#[test]
fn a_header_allocates_nothing() {
    let too_large = u32::try_from(MAX_FRAME + 1).unwrap().to_le_bytes();
    let (error, peak) = peak_of_reading(&too_large);
    assert!(
        matches!(
            error,
            TransportError::Codec(CodecError::FrameTooLarge { .. })
        ),
        "{error}"
    );
    assert!(peak < 1 << 20, "{peak}");

    let largest = u32::try_from(MAX_FRAME).unwrap().to_le_bytes();
    let (error, peak) = peak_of_reading(&[&largest[..], &[0; 1000]].concat());
    let truncated = CodecError::Truncated {
        have: 1004,
        need: MAX_FRAME + FRAME_HEADER,
    };
    assert!(
        matches!(&error, TransportError::Codec(error) if *error == truncated),
        "{error}"
    );
    assert!(peak < 1 << 20, "{peak}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn random_frames(
        mut bytes in prop::collection::vec(any::<u8>(), 0..2000),
        variant in 0..5_u8,
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = variant;
        }
        let (_, peak) = peak_of_decoding::<EngineCoreRequestType>(&bytes);
        prop_assert!(peak <= MAX_FRAME);
        let (_, peak) = peak_of_decoding::<EngineCoreMessage>(&bytes);
        prop_assert!(peak <= MAX_FRAME);
    }
}

/// A request of 60 kB for 4,096 answers: the parameters are there once, in the frame and on either side of it.
#[test]
fn answers_to_one_request_share_its_parameters() {
    const ANSWERS: u64 = 4096;
    let request = EngineCoreRequest {
        request_id: "cmpl-0123456789abcdef0123456789abcdef-0".to_owned(),
        prompt_token_ids: (0..1000).collect(),
        sampling_params: SamplingParams {
            allowed_token_ids: Some((0..20_000).collect()),
            seed: Some(1 << 40),
            ..SamplingParams::default()
        },
        ..EngineCoreRequest::default()
    };
    let mut frame = Vec::new();
    let ((), peak) = peak_of(|| {
        let mut before = request.clone();
        let mut siblings = Siblings::new(before.clone());
        for index in 1..ANSWERS {
            let mut child = request.clone();
            child.request_id = format!("{index}_{}", request.request_id);
            child.sampling_params.seed = Some((1 << 40) + index);
            assert!(request.is_sibling(&child));
            siblings.push(&before, child.clone());
            before = child;
        }
        let message = EngineCoreRequestType::AddMany(Box::new(siblings));
        encode_frame(&message, MAX_FRAME, &mut frame).unwrap();
    });
    assert!(peak < 4 << 20, "{peak}");
    assert!(frame.len() < 512 << 10, "{}", frame.len());
    let (requests, peak) = peak_of(|| {
        let body = &frame[FRAME_HEADER..];
        let EngineCoreRequestType::AddMany(siblings) = decode_body(body).unwrap() else {
            panic!("another message");
        };
        siblings.into_requests().collect::<Vec<_>>()
    });
    assert_eq!(requests.len() as u64, ANSWERS);
    // Some 900 bytes an answer. With parameters of their own it would be 340 MB.
    assert!(peak < 8 << 20, "{peak}");
}
