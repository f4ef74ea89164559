//! No text takes more memory than 64 MiB and 16 times its bytes while it is tokenized, or refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use engine_frontend::{GenerateRequest, InputProcessor, ModelLimits, Prompt, SamplingParams};
use tokenizer::Tokenizer;

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

// SAFETY: every method passes its arguments on to the system's allocator and returns what that
// returned; the counters are `Cell`s that never allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller's promise about `layout` is the one that `System` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let _ = LIVE.try_with(|live| live.set(live.get().saturating_sub(layout.size())));
        // SAFETY: `pointer` came from `Self::alloc` with this layout, which is `System`'s.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn hostile_texts_take_no_more_than_their_share() {
    let tokenizer = Tokenizer::from_bytes(builtin_model::FILES).unwrap();
    let vocab_size = u32::try_from(tokenizer.vocab_size()).unwrap();
    let tokenizer = std::sync::Arc::new(tokenizer);
    for max_model_len in [2048, 131_072] {
        let limits = ModelLimits {
            max_model_len,
            vocab_size,
            max_logprobs: 20,
        };
        let processor = InputProcessor::new(tokenizer.clone(), limits);
        for (piece, bytes) in [
            ("1 ", 8 << 20),
            ("1 ", 150 << 10),
            ("1 ", 120 << 10),
            ("\n1", 8 << 20),
            ("a", 4 << 20),
            (" ", 4 << 20),
            (" the", 600 << 10),
            ("\u{1f600}", 2 << 20),
            ("e\u{301}", 2 << 20),
        ] {
            for truncate_prompt_tokens in [None, Some(16)] {
                let text = piece.repeat(bytes / piece.len());
                let bytes = text.len();
                let request = GenerateRequest {
                    truncate_prompt_tokens,
                    ..GenerateRequest::new(
                        "id".to_owned(),
                        Prompt::Text(text),
                        SamplingParams::default(),
                    )
                };
                let before = LIVE.get();
                PEAK.set(before);
                let result = processor.process_inputs(request);
                let peak = PEAK.get() - before.min(PEAK.get());
                let outcome = match &result {
                    Ok(inputs) => format!("{} tokens", inputs.request.prompt_token_ids.len()),
                    Err(error) => error.message.clone(),
                };
                eprintln!("{piece:?} {bytes} {truncate_prompt_tokens:?} {peak}: {outcome}");
                assert!(
                    peak <= (64 << 20) + 16 * bytes,
                    "{piece:?} of {bytes} bytes, {truncate_prompt_tokens:?}, context {max_model_len}: \
                     {peak} bytes ({outcome})"
                );
            }
        }
    }
}
