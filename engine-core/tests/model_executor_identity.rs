//! On the CPU backend a row's logits are bit-identical however it came about.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model_runner;
mod random_checkpoint;

use std::path::Path;

use engine_core::model_executor::{Bitmask, ForwardInput, LOGITS_PER_MAXIMUM};
use model_runner::{Runner, Sequence, WeightOptions, bits};
use protocol::{BackendKind, Dtype, KvCacheDtype, Quantization};
use random_checkpoint::{ARCHITECTURES, Random, RandomCheckpoint};

fn random_ids(seed: u64, len: usize) -> Vec<u32> {
    let mut random = Random(seed);
    (0..len).map(|_| random.below(203) as u32).collect()
}

/// Every way to compute the last row of `ids`, by name.
fn all_ways(folder: &Path, format: WeightOptions, ids: &[u32]) -> Vec<(String, Vec<u32>)> {
    let tables: [&[u32]; 2] = [
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        &[33, 8, 60, 1, 17, 40, 2, 9, 5, 3],
    ];
    let mut ways = Vec::new();
    for num_threads in [1, 2, 3] {
        let mut runner = Runner::new(folder, BackendKind::Cpu, format, num_threads);
        for (table_index, table) in tables.into_iter().enumerate() {
            for chunk in [ids.len(), 7, 16, 64, 1] {
                let logits = runner.prefill(&mut Sequence::new(ids, table), chunk);
                let name = format!("{num_threads} threads, table {table_index}, chunks of {chunk}");
                ways.push((name, bits(&logits)));
            }
        }

        // The first two blocks computed by another request with the same prefix.
        let mut first = Sequence::new(&ids[..40], tables[1]);
        runner.prefill(&mut first, 40);
        let mut hit = Sequence::new(ids, &[33, 8, 50, 51, 52, 53, 54, 55, 56, 57]);
        hit.num_computed_tokens = 32;
        ways.push((
            format!("{num_threads} threads, prefix hit"),
            bits(&runner.prefill(&mut hit, 512)),
        ));

        // In company: a long prefill and decodes of others before and behind it.
        let mut others: Vec<Sequence> = (0..5)
            .map(|index| {
                let ids = random_ids(100 + index, 30 + 7 * index as usize);
                let block = 12 + 6 * index as u32;
                Sequence::new(&ids, &[block, block + 1, block + 2, block + 3, block + 4])
            })
            .collect();
        for other in &mut others {
            let len = other.token_ids.len();
            runner.prefill(
                &mut Sequence::new(&other.token_ids[..len - 2], &other.block_table),
                512,
            );
            other.num_computed_tokens = len - 2;
        }
        let mut sequence = Sequence::new(ids, tables[0]);
        let mut logits = Vec::new();
        for count in [ids.len() - 1, 1] {
            let (before, behind) = others.split_at_mut(2);
            let mut batch: Vec<(&mut Sequence, usize)> = Vec::new();
            batch.extend(before.iter_mut().map(|other| (other, 1)));
            batch.push((&mut sequence, count));
            batch.extend(behind.iter_mut().map(|other| (other, 1)));
            logits = runner.step(&mut batch).remove(2);
        }
        ways.push((format!("{num_threads} threads, mixed batch"), bits(&logits)));
    }
    ways
}

fn check(checkpoint: &RandomCheckpoint, format: impl Into<WeightOptions>) {
    let format = format.into();
    let folder = tempfile::tempdir().unwrap();
    checkpoint.write(folder.path()).unwrap();
    // 130 tokens cross two spans of the attention and the window of the sliding one.
    let ways = all_ways(folder.path(), format, &random_ids(7, 130));
    let (_, expected) = &ways[0];
    assert!(
        expected
            .iter()
            .all(|bits| f32::from_bits(*bits).is_finite())
    );
    for (name, found) in &ways {
        assert!(
            found == expected,
            "{} {format:?}: {name}",
            checkpoint.architecture
        );
    }
}

#[test]
fn rows_of_every_family_are_bit_identical_in_f32_and_bf16() {
    for (seed, architecture) in ARCHITECTURES.into_iter().enumerate() {
        let checkpoint = RandomCheckpoint::tiny(architecture, 1 + seed as u64);
        check(&checkpoint, Dtype::Float32);
        check(&checkpoint, Dtype::BFloat16);
    }
}

#[test]
fn rows_of_wider_matrices_are_bit_identical() {
    // Deep enough for products in several blocks of depth, and many tiles per matrix.
    let checkpoint = RandomCheckpoint {
        hidden_size: 160,
        intermediate_size: 1300,
        num_hidden_layers: 1,
        ..RandomCheckpoint::tiny("LlamaForCausalLM", 4)
    };
    check(&checkpoint, Dtype::Float32);
    check(&checkpoint, Dtype::BFloat16);
}

#[test]
fn rows_of_quantized_matrices_are_bit_identical() {
    let narrow = RandomCheckpoint::tiny("Qwen2ForCausalLM", 8);
    let wide = RandomCheckpoint {
        hidden_size: 160,
        intermediate_size: 1300,
        num_hidden_layers: 1,
        ..RandomCheckpoint::tiny("LlamaForCausalLM", 4)
    };
    let experts = RandomCheckpoint::tiny("Qwen3MoeForCausalLM", 9);
    for checkpoint in [narrow, wide, experts] {
        check(
            &checkpoint,
            WeightOptions(Dtype::BFloat16, Quantization::Q8_0),
        );
        check(
            &checkpoint,
            WeightOptions(Dtype::Float32, Quantization::Q4_0),
        );
    }
}

#[test]
fn rows_of_long_contexts_are_bit_identical_in_every_format_of_the_cache() {
    // 500 tokens have two parts of attention, which one decoding row shares out over threads.
    let (ids, other) = (random_ids(3, 500), random_ids(4, 300));
    let table: Vec<u32> = (0..32).map(|block| 1 + block * 11 % 32).collect();
    let other_table: Vec<u32> = (33..52).collect();
    for architecture in ["Qwen3ForCausalLM", "Gemma3ForCausalLM"] {
        let folder = tempfile::tempdir().unwrap();
        RandomCheckpoint::tiny(architecture, 12)
            .write(folder.path())
            .unwrap();
        for cache in [KvCacheDtype::Auto, KvCacheDtype::Bf16, KvCacheDtype::Q8] {
            let mut expected: Option<Vec<u32>> = None;
            for num_threads in [1, 2, 3, 8] {
                let mut runner = Runner::with_cache(
                    folder.path(),
                    BackendKind::Cpu,
                    Dtype::Float32,
                    cache,
                    num_threads,
                );
                let mut check = |logits: &[f32], how: &str| {
                    let found = bits(logits);
                    let expected = expected.get_or_insert_with(|| found.clone());
                    assert!(
                        found == *expected,
                        "{architecture} {cache:?}: {num_threads} threads, {how}"
                    );
                };
                let mut sequence = Sequence::new(&ids, &table);
                check(&runner.prefill(&mut sequence, 500), "all at once");
                for chunk in [499, 257, 64] {
                    let mut sequence = Sequence::new(&ids, &table);
                    check(&runner.prefill(&mut sequence, chunk), "in chunks");
                }
                let mut other = Sequence::new(&other, &other_table);
                runner.prefill(
                    &mut Sequence::new(&other.token_ids[..299], &other_table),
                    299,
                );
                other.num_computed_tokens = 299;
                sequence.num_computed_tokens = 499;
                let rows = runner.step(&mut [(&mut other, 1), (&mut sequence, 1)]);
                check(&rows[1], "beside another");
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_whose_rows_its_prefix_was() {
    let folder = tempfile::tempdir().unwrap();
    for architecture in ["Qwen3ForCausalLM", "Gemma2ForCausalLM"] {
        RandomCheckpoint::tiny(architecture, 6)
            .write(folder.path())
            .unwrap();
        for cache in [KvCacheDtype::Auto, KvCacheDtype::Bf16, KvCacheDtype::Q8] {
            for backend in [BackendKind::Cpu, BackendKind::Candle] {
                if backend == BackendKind::Candle && cache == KvCacheDtype::Q8 {
                    continue;
                }
                let dtype = Dtype::Float32;
                let mut runner = Runner::with_cache(folder.path(), backend, dtype, cache, 2);
                for len in [17, 24, 31] {
                    let ids = random_ids(12, len);
                    let shared = runner.sharing(&ids, 77);
                    let alone = [&ids[..], &[77]].concat();
                    let alone = runner.prefill(&mut Sequence::new(&alone, &[30, 31]), 512);
                    let differs = |(one, other): (&f32, &f32)| (one - other).abs() > 1e-4;
                    match backend {
                        BackendKind::Cpu => assert_eq!(bits(&shared), bits(&alone)),
                        _ => assert!(!shared.iter().zip(&alone).any(differs)),
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_which_rows_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    RandomCheckpoint::tiny("Qwen3ForCausalLM", 6)
        .write(folder.path())
        .unwrap();
    let ids = random_ids(11, 40);
    let positions: Vec<u32> = (0..40).collect();
    for dtype in [Dtype::Float32, Dtype::BFloat16] {
        let mut runner = Runner::new(folder.path(), BackendKind::Cpu, dtype, 2);
        // Rows `from..to` of the sequence; the logits of those of them that are in `kept`.
        let mut step = |from: usize, to: usize, kept: &[u32]| {
            let slots: Vec<u32> = positions.iter().map(|position| 16 + position).collect();
            let input = ForwardInput {
                input_ids: &ids[from..to],
                positions: &positions[from..to],
                slot_mapping: &slots[from..to],
                shared_rows: &[],
                shared_slots: &[],
                query_start_loc: &[0, (to - from) as u32],
                seq_lens: &[to as u32],
                block_tables: &[1, 2, 3],
                block_table_stride: 3,
                token_type_ids: &[],
                logits_indices: kept,
            };
            runner.model.forward(&input).unwrap();
            let mut logits = vec![0.0; kept.len() * 203];
            runner
                .model
                .compute_logits(0..kept.len(), &mut logits)
                .unwrap();
            // The same rows one by one and out of order.
            let order: Vec<usize> = (0..kept.len()).rev().step_by(3).collect();
            let mut some = vec![0.0; order.len() * 203];
            runner
                .model
                .compute_logits_of(&order, &[], &mut some)
                .unwrap();
            let maxima = runner.model.logits_maxima().unwrap_or_default();
            let expected = some.chunks_exact(203).flat_map(|row| {
                let of_chunk = |chunk: &[f32]| chunk.iter().copied().fold(f32::MIN, f32::max);
                row.chunks(LOGITS_PER_MAXIMUM).map(of_chunk)
            });
            assert_eq!(maxima, expected.collect::<Vec<f32>>());
            for (row, some) in order.iter().zip(some.chunks_exact(203)) {
                assert_eq!(bits(some), bits(&logits[row * 203..][..203]), "row {row}");
            }
            logits.chunks_exact(203).map(bits).collect::<Vec<_>>()
        };
        let all = step(0, 40, &positions);
        assert_eq!(
            step(0, 40, &[0, 17, 38]),
            [0, 17, 38].map(|row: usize| all[row].clone())
        );
        assert!(step(0, 25, &[]).is_empty());
        assert_eq!(
            step(25, 40, &[0, 1, 9, 14]),
            [25, 26, 34, 39].map(|row: usize| all[row].clone())
        );
    }
}

#[test]
fn chosen_logits_equal_the_full_row() {
    let folder = tempfile::tempdir().unwrap();
    for (dtype, quantization) in [
        (Dtype::Float32, Quantization::None),
        (Dtype::BFloat16, Quantization::None),
        (Dtype::BFloat16, Quantization::Q8_0),
        (Dtype::BFloat16, Quantization::Q4_0),
    ] {
        let format = WeightOptions(dtype, quantization);
        RandomCheckpoint::tiny("MistralForCausalLM", 5)
            .write(folder.path())
            .unwrap();
        let mut runner = Runner::new(folder.path(), BackendKind::Cpu, format, 2);
        let logits = runner.prefill(&mut Sequence::new(&random_ids(9, 20), &[3, 4]), 20);
        let ids: Vec<u32> = (0..203).rev().chain([5, 5, 17]).collect();
        let mut chosen = vec![0.0; ids.len()];
        runner
            .model
            .compute_logits_for(&[(0, &ids)], &mut chosen)
            .unwrap();
        let expected: Vec<f32> = ids.iter().map(|id| logits[*id as usize]).collect();
        assert_eq!(bits(&chosen), bits(&expected), "{format:?}");
        runner
            .model
            .compute_logits_for(&[(0, &[])], &mut [])
            .unwrap();
    }
}

#[test]
fn the_largest_logits_are_those_of_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    for (architecture, has_way) in [("Qwen3ForCausalLM", true), ("Gemma2ForCausalLM", false)] {
        RandomCheckpoint::tiny(architecture, 5)
            .write(folder.path())
            .unwrap();
        for quantization in [Quantization::None, Quantization::Q8_0, Quantization::Q4_0] {
            let format = WeightOptions(Dtype::BFloat16, quantization);
            let mut runner = Runner::new(folder.path(), BackendKind::Cpu, format, 2);
            let ids = random_ids(11, 20);
            let positions: Vec<u32> = (0..20).collect();
            let slots: Vec<u32> = (48..68).collect();
            let input = ForwardInput {
                input_ids: &ids,
                positions: &positions,
                slot_mapping: &slots,
                shared_rows: &[],
                shared_slots: &[],
                query_start_loc: &[0, 20],
                seq_lens: &[20],
                block_tables: &[3, 4],
                block_table_stride: 2,
                token_type_ids: &[],
                logits_indices: &[2, 5, 6, 19],
            };
            let masks = [[1 << 5 | 1 << 20, 0, 3, 0, 0, 0, 1 << 9], [0; 7]];
            let [some, none] = masks.each_ref().map(|mask| Some(mask.as_slice().into()));
            // One after the other, scattered, backwards, twice the same, and none.
            for rows in [
                &[0, 1, 2, 3][..],
                &[1, 2],
                &[3],
                &[0, 2],
                &[3, 1],
                &[0, 0, 2],
                &[],
            ] {
                let bitmasks: Vec<Option<Bitmask<'_>>> =
                    [None, some, none, None][..rows.len()].to_vec();
                runner.model.forward(&input).unwrap();
                let mut logits = vec![0.0; rows.len() * 203];
                let model = &mut runner.model;
                model
                    .compute_logits_of(rows, &bitmasks, &mut logits)
                    .unwrap();
                // All tokens, and where those behind the first 100 are padding.
                for num_tokens in [203, 100] {
                    let expected = logits.chunks(203).zip(&bitmasks).map(|(logits, mask)| {
                        let is_allowed = |id: &usize| {
                            mask.is_none_or(|mask| mask.words[id / 32] >> (id % 32) & 1 == 1)
                        };
                        let ids = (0..num_tokens).filter(is_allowed);
                        let larger = |a: usize, b: usize| if logits[b] > logits[a] { b } else { a };
                        ids.reduce(larger).map(|id| id as u32)
                    });
                    let expected: Vec<Option<u32>> = expected.collect();
                    let mut found = vec![Some(7)];
                    let is_found = model
                        .compute_argmax(rows, &bitmasks, num_tokens, &mut found)
                        .unwrap();
                    assert_eq!(is_found, has_way, "{architecture}");
                    if is_found {
                        assert_eq!(found, expected, "{format:?} {rows:?} {num_tokens}");
                    }
                }
            }
            let mut found = Vec::new();
            if has_way {
                let short = [Some([0; 6].as_slice().into())];
                for (rows, bitmasks, field) in [(&[4], &[None], "rows"), (&[0], &short, "bitmasks")]
                {
                    let error = (runner.model)
                        .compute_argmax(rows, bitmasks, 203, &mut found)
                        .unwrap_err();
                    assert!(error.to_string().contains(field), "{error}");
                }
            }
        }
    }
}
