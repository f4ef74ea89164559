//! On the CPU backend a step takes no memory from the allocator.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model_runner;
mod random_checkpoint;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use engine_core::model_executor::{CausalLm, ForwardInput};
use model_runner::{LIMITS, WeightOptions, load};
use protocol::{BackendKind, Dtype, Quantization};
use random_checkpoint::RandomCheckpoint;

/// Counts allocations on all threads.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// 40 tokens of one request and one of another.
fn step(
    model: &mut dyn CausalLm,
    logits: &mut [f32],
    chosen: &mut [f32],
    largest: &mut Vec<Option<u32>>,
) {
    let positions: [u32; 41] = std::array::from_fn(|row| if row < 40 { row as u32 } else { 0 });
    let slots: [u32; 41] = std::array::from_fn(|row| if row < 40 { 16 + row as u32 } else { 96 });
    model
        .forward(&ForwardInput {
            input_ids: &[7; 41],
            positions: &positions,
            slot_mapping: &slots,
            shared_rows: &[],
            shared_slots: &[],
            query_start_loc: &[0, 40, 41],
            seq_lens: &[40, 1],
            block_tables: &[1, 2, 3, 6, 0, 0],
            block_table_stride: 3,
            token_type_ids: &[],
            logits_indices: &[39, 40],
        })
        .unwrap();
    model.compute_logits(0..2, logits).unwrap();
    model.compute_logits_for(&[(1, &[3, 200])], chosen).unwrap();
    let bitmasks = [None, Some([u32::MAX; 7].as_slice().into())];
    model
        .compute_argmax(&[0, 1], &bitmasks, 203, largest)
        .unwrap();
}

#[test]
fn a_step_allocates_nothing() {
    for architecture in [
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Gemma2ForCausalLM",
    ] {
        let folder = tempfile::tempdir().unwrap();
        RandomCheckpoint::tiny(architecture, 1)
            .write(folder.path())
            .unwrap();
        for (dtype, quantization) in [
            (Dtype::Float32, Quantization::None),
            (Dtype::BFloat16, Quantization::None),
            (Dtype::BFloat16, Quantization::Q8_0),
            (Dtype::BFloat16, Quantization::Q4_0),
        ] {
            let format = WeightOptions(dtype, quantization);
            let loaded = load(folder.path(), BackendKind::Cpu, format, 2).unwrap();
            let mut model = loaded.into_model(&LIMITS).unwrap();
            let (mut logits, mut chosen) = (vec![0.0; 2 * 203], vec![0.0; 2]);
            let mut largest = Vec::new();
            // The count is the process's: a thread that starts late adds to it once. A step that
            // allocates does so every time.
            let fewest = (0..10)
                .map(|_| {
                    let before = ALLOCATIONS.load(Ordering::Relaxed);
                    step(&mut *model, &mut logits, &mut chosen, &mut largest);
                    ALLOCATIONS.load(Ordering::Relaxed) - before
                })
                .min();
            assert_eq!(fewest, Some(0), "{architecture} {format:?}");
        }
    }
}
