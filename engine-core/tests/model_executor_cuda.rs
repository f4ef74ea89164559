//! The CUDA backend on the simulator: a row's logits are bit-identical however it came about, and heads, masks and argmax
//! agree with one another.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model_runner;
mod random_checkpoint;

use engine_core::model_executor::{Bitmask, CausalLm, ForwardInput};
use model_runner::{Runner, Sequence, bits, load, load_with};
use protocol::{BackendKind, Dtype, KvCacheDtype, Quantization};
use random_checkpoint::{ARCHITECTURES, Random, RandomCheckpoint};

const VOCAB_SIZE: usize = 203;

fn random_ids(seed: u64, len: usize) -> Vec<u32> {
    let mut random = Random(seed);
    (0..len).map(|_| random.below(VOCAB_SIZE) as u32).collect()
}

fn runner(architecture: &'static str, seed: u64, dtype: Dtype) -> Runner {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = RandomCheckpoint::tiny(architecture, seed);
    checkpoint.write(folder.path()).unwrap();
    Runner::new(folder.path(), BackendKind::CudaSimulator, dtype, 1)
}

#[test]
fn a_row_is_the_same_alone_in_company_in_chunks_and_after_a_prefix_hit() {
    for (seed, architecture) in ARCHITECTURES.into_iter().enumerate() {
        for dtype in [Dtype::Float32, Dtype::BFloat16] {
            let mut runner = runner(architecture, seed as u64, dtype);
            let ids = random_ids(seed as u64, 45);
            let table = [3, 9, 4];
            let expected = bits(&runner.prefill(&mut Sequence::new(&ids, &table), 45));
            let check = |what: &str, logits: &[f32]| {
                assert!(bits(logits) == expected, "{architecture} {dtype:?} {what}");
            };
            for chunk in [1, 7, 16] {
                let logits = runner.prefill(&mut Sequence::new(&ids, &table), chunk);
                check(&format!("in chunks of {chunk}"), &logits);
            }
            // The first two blocks were computed by another request.
            runner.prefill(&mut Sequence::new(&ids[..40], &[20, 21, 22]), 40);
            let mut hit = Sequence::new(&ids, &[20, 21, 30]);
            hit.num_computed_tokens = 32;
            check("after a prefix hit", &runner.prefill(&mut hit, 512));

            let other_ids = random_ids(100, 40);
            let mut others: Vec<Sequence> = (0..4)
                .map(|index| {
                    Sequence::new(
                        &other_ids,
                        &[40 + 3 * index, 41 + 3 * index, 42 + 3 * index],
                    )
                })
                .collect();
            let mut own = Sequence::new(&ids, &table);
            runner.prefill(&mut Sequence::new(&ids[..44], &table), 44);
            own.num_computed_tokens = 44;
            let [first, second, third, fourth] = &mut others[..] else {
                unreachable!("there are four");
            };
            let mut batch = [
                (first, 40),
                (second, 17),
                (&mut own, 1),
                (third, 3),
                (fourth, 40),
            ];
            check("in company", &runner.step(&mut batch)[2]);
        }
    }
}

#[test]
fn replayed_steps_of_decode_are_those_that_ran() {
    for architecture in [
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Gemma2ForCausalLM",
    ] {
        let mut runner = runner(architecture, 5, Dtype::BFloat16);
        let ids: Vec<Vec<u32>> = (0..3).map(|seed| random_ids(50 + seed, 26)).collect();
        let prompts = [20, 5, 11];
        // By request, then by step.
        let mut expected = Vec::new();
        for (ids, prompt) in ids.iter().zip(prompts) {
            let of_step = (0..6).map(|step| {
                let mut alone = Sequence::new(&ids[..=prompt + step], &[50, 51]);
                bits(&runner.prefill(&mut alone, 512))
            });
            expected.push(of_step.collect::<Vec<_>>());
        }
        let mut sequences: Vec<Sequence> = (0..3)
            .map(|index| Sequence::new(&ids[index], &[1 + 2 * index as u32, 2 + 2 * index as u32]))
            .collect();
        for (sequence, prompt) in sequences.iter_mut().zip(prompts) {
            let mut own = Sequence::new(&sequence.token_ids[..prompt], &sequence.block_table);
            runner.prefill(&mut own, 512);
            sequence.num_computed_tokens = prompt;
        }
        // The first step runs, the second is captured, the others are replayed. Three rows are filled up to four.
        let steps = (0..6).map(|step| {
            expected
                .iter()
                .map(|of_steps| &of_steps[step])
                .collect::<Vec<_>>()
        });
        for (step, expected) in steps.enumerate() {
            if step > 2 {
                // A step that runs between two that are replayed, with fewer rows.
                runner.prefill(&mut Sequence::new(&[5, 6, 7], &[60]), 3);
            }
            let mut batch: Vec<_> = sequences.iter_mut().map(|sequence| (sequence, 1)).collect();
            let found = runner.step(&mut batch);
            // Rows that don't follow one another are gathered first.
            let mut some = vec![0.0; 2 * VOCAB_SIZE];
            runner
                .model
                .compute_logits_of(&[2, 0], &[], &mut some)
                .unwrap();
            assert_eq!(bits(&some[..VOCAB_SIZE]), bits(&found[2]), "step {step}");
            assert_eq!(bits(&some[VOCAB_SIZE..]), bits(&found[0]), "step {step}");
            for (index, logits) in found.iter().enumerate() {
                assert!(
                    &bits(logits) == expected[index],
                    "{architecture}: step {step}, request {index}"
                );
            }
        }
    }
}

#[test]
fn shared_rows_are_written_for_both_requests() {
    for dtype in [Dtype::Float32, Dtype::BFloat16] {
        let mut runner = runner("Qwen3ForCausalLM", 5, dtype);
        for len in [31, 17] {
            let ids = random_ids(12, len);
            let shared = runner.sharing(&ids, 77);
            let alone = [&ids[..], &[77]].concat();
            let alone = runner.prefill(&mut Sequence::new(&alone, &[30, 31]), 512);
            assert_eq!(bits(&shared), bits(&alone), "{len}");
        }
    }
}

/// Puts 20 tokens through the model and keeps four rows.
fn forward(model: &mut dyn CausalLm) {
    let ids = random_ids(7, 20);
    let positions: Vec<u32> = (0..20).collect();
    let slots: Vec<u32> = (16..36).collect();
    model
        .forward(&ForwardInput {
            input_ids: &ids,
            positions: &positions,
            slot_mapping: &slots,
            shared_rows: &[],
            shared_slots: &[],
            query_start_loc: &[0, 20],
            seq_lens: &[20],
            block_tables: &[1, 2],
            block_table_stride: 2,
            token_type_ids: &[],
            logits_indices: &[2, 5, 6, 19],
        })
        .unwrap();
}

#[test]
fn masks_argmax_and_chosen_logits_agree_with_the_full_ones() {
    for (architecture, has_argmax) in [("Qwen3ForCausalLM", true), ("Gemma2ForCausalLM", false)] {
        for dtype in [Dtype::Float32, Dtype::BFloat16] {
            let mut runner = runner(architecture, 3, dtype);
            let model = &mut *runner.model;
            forward(model);
            let mut all = vec![0.0; 4 * VOCAB_SIZE];
            model.compute_logits(0..4, &mut all).unwrap();

            let chosen = [202, 0, 17, 17, 64];
            let of_row = |row: usize, ids: &[u32]| -> Vec<f32> {
                let logits = &all[row * VOCAB_SIZE..];
                ids.iter().map(|&id| logits[id as usize]).collect()
            };
            let many: Vec<u32> = (0..1500).map(|id| id % VOCAB_SIZE as u32).collect();
            let lists = [
                (2, &chosen[..]),
                (0, &[]),
                (3, &many[..]),
                (0, &chosen[1..3]),
            ];
            let expected: Vec<f32> = lists
                .iter()
                .flat_map(|(row, ids)| of_row(*row, ids))
                .collect();
            let mut few = vec![0.0; expected.len()];
            model.compute_logits_for(&lists, &mut few).unwrap();
            assert_eq!(bits(&few), bits(&expected));

            let words = [
                [1 << 5 | 1 << 20, 0, 3, 0, 0, 0, 1 << 9],
                [0; 7],
                [u32::MAX; 7],
            ];
            let mask = |index: usize, number| {
                Some(Bitmask {
                    words: &words[index],
                    number,
                })
            };
            // Numbered masks stay on the device from call to call; one without a number has new words.
            let bitmasks = [None, mask(0, Some(40)), mask(1, Some(41)), mask(2, None)];
            let is_allowed = |mask: &Option<Bitmask<'_>>, id: usize| {
                mask.is_none_or(|mask| mask.words[id / 32] >> (id % 32) & 1 == 1)
            };
            for rows in [&[0, 1, 2, 3][..], &[1, 2], &[3, 1, 1], &[2], &[]] {
                let bitmasks = &bitmasks[..rows.len()];
                let mut logits = vec![0.0; rows.len() * VOCAB_SIZE];
                model
                    .compute_logits_of(rows, bitmasks, &mut logits)
                    .unwrap();
                let mut expected = Vec::new();
                for (&row, mask) in rows.iter().zip(bitmasks) {
                    let own = &all[row * VOCAB_SIZE..][..VOCAB_SIZE];
                    expected.extend(own.iter().enumerate().map(|(id, logit)| {
                        match is_allowed(mask, id) {
                            true => *logit,
                            false => f32::NEG_INFINITY,
                        }
                    }));
                }
                assert_eq!(bits(&logits), bits(&expected), "{architecture} {rows:?}");
                for num_tokens in [VOCAB_SIZE, 100] {
                    let mut found = vec![Some(7)];
                    let is_found = model
                        .compute_argmax(rows, bitmasks, num_tokens, &mut found)
                        .unwrap();
                    assert_eq!(is_found, has_argmax);
                    let largest = expected.chunks(VOCAB_SIZE).map(|logits| {
                        let finite = (0..num_tokens).filter(|&id| logits[id].is_finite());
                        let larger = |a: usize, b: usize| if logits[b] > logits[a] { b } else { a };
                        finite.reduce(larger).map(|id| id as u32)
                    });
                    if is_found {
                        assert_eq!(found, largest.collect::<Vec<_>>(), "{rows:?} {num_tokens}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_a_gpu_does_not_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = RandomCheckpoint::tiny("LlamaForCausalLM", 1);
    checkpoint.write(folder.path()).unwrap();
    let quantized = model_runner::WeightOptions(Dtype::Auto, Quantization::Q4_0);
    let error = load(folder.path(), BackendKind::CudaSimulator, quantized, 1)
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "quantization: q4_0 is not there on a GPU: none"
    );
    let cache = KvCacheDtype::Q8;
    let loaded = load_with(
        folder.path(),
        BackendKind::CudaSimulator,
        Dtype::Auto,
        cache,
        1,
    );
    let error = loaded.err().unwrap().to_string();
    assert_eq!(error, "cache_dtype: q8 is not there on a GPU: auto or bf16");
    // A machine without a GPU says so; one with it loads the model.
    if let Err(error) = load(folder.path(), BackendKind::Cuda(9), Dtype::Auto, 1) {
        let error = error.to_string();
        assert!(error.contains("CUDA"), "{error}");
    }
}
