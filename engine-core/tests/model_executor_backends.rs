//! The CPU backend against the candle backend on random checkpoints of every family and format.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model_runner;
mod random_checkpoint;

use model_runner::{Runner, Sequence};
use protocol::{BackendKind, Dtype};
use random_checkpoint::{ARCHITECTURES, Random, RandomCheckpoint};

fn random_ids(random: &mut Random, len: usize) -> Vec<u32> {
    (0..len).map(|_| random.below(203) as u32).collect()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

/// Three steps of two sequences on both backends; the largest difference of any logit.
fn compare(checkpoint: &RandomCheckpoint, dtype: Dtype) -> f32 {
    let folder = tempfile::tempdir().unwrap();
    checkpoint.write(folder.path()).unwrap();
    let mut random = Random(checkpoint.seed);
    let (long, short) = (random_ids(&mut random, 90), random_ids(&mut random, 25));
    let outputs = [BackendKind::Cpu, BackendKind::Candle].map(|backend| {
        let mut runner = Runner::new(folder.path(), backend, dtype, 2);
        let mut long = Sequence::new(&long, &[7, 3, 12, 40, 5, 1]);
        let mut short = Sequence::new(&short, &[20, 2]);
        let mut outputs = runner.step(&mut [(&mut long, 70)]);
        outputs.extend(runner.step(&mut [(&mut short, 24), (&mut long, 19)]));
        outputs.extend(runner.step(&mut [(&mut long, 1), (&mut short, 1)]));
        outputs.concat()
    });
    largest_difference(&outputs[0], &outputs[1])
}

#[test]
fn all_families_and_stored_formats_agree_in_f32() {
    for (seed, architecture) in ARCHITECTURES.into_iter().enumerate() {
        for dtype in [
            safetensors::Dtype::F32,
            safetensors::Dtype::F16,
            safetensors::Dtype::BF16,
        ] {
            let base = RandomCheckpoint::tiny(architecture, seed as u64);
            let difference = compare(&RandomCheckpoint { dtype, ..base }, Dtype::Float32);
            assert!(difference < 1e-3, "{architecture} {dtype:?}: {difference}");
        }
    }
}

#[test]
fn all_families_agree_in_bf16() {
    for (seed, architecture) in ARCHITECTURES.into_iter().enumerate() {
        let base = RandomCheckpoint::tiny(architecture, 10 + seed as u64);
        let difference = compare(&base, Dtype::BFloat16);
        // Rounded keys and values that lie near a tie may round apart.
        assert!(difference < 5e-2, "{architecture}: {difference}");
    }
}

#[test]
fn shards_are_one_checkpoint() {
    let single = RandomCheckpoint::tiny("Qwen3ForCausalLM", 3);
    let sharded = RandomCheckpoint {
        num_shards: 3,
        ..single.clone()
    };
    let logits = [single, sharded].map(|checkpoint| {
        let folder = tempfile::tempdir().unwrap();
        checkpoint.write(folder.path()).unwrap();
        let mut runner = Runner::new(folder.path(), BackendKind::Cpu, Dtype::Auto, 1);
        runner.prefill(&mut Sequence::new(&[5, 6, 7], &[1]), 3)
    });
    assert_eq!(logits[0], logits[1]);
}

#[test]
fn auto_takes_the_stored_format_and_16_bit_floats_as_bf16() {
    for (stored, effective) in [
        (safetensors::Dtype::F32, "float32"),
        (safetensors::Dtype::F16, "bfloat16"),
        (safetensors::Dtype::BF16, "bfloat16"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let base = RandomCheckpoint::tiny("LlamaForCausalLM", 1);
        RandomCheckpoint {
            dtype: stored,
            ..base
        }
        .write(folder.path())
        .unwrap();
        let loaded = model_runner::load(folder.path(), BackendKind::Cpu, Dtype::Auto, 1).unwrap();
        assert_eq!(loaded.dtype().as_str(), effective);
    }
}
