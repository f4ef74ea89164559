//! Models with quantized weights: close to the candle backend on the same weights, and nearly as good
//! as unquantized.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model_runner;
mod quantized_checkpoint;
mod random_checkpoint;

use std::path::{Path, PathBuf};

use engine_core::model_executor::ForwardInput;
use model_runner::{LIMITS, Runner, Sequence, WeightOptions, cosine, load_cached};
use protocol::{BackendKind, Dtype, KvCacheDtype, Quantization};
use quantized_checkpoint::{Form, Order, convert};
use random_checkpoint::{ARCHITECTURES, Random, RandomCheckpoint};

/// Both backends on one random checkpoint: how alike the logits are by quantization.
fn likeness(architecture: &'static str, seed: u64) -> [f64; 2] {
    let folder = tempfile::tempdir().unwrap();
    RandomCheckpoint::tiny(architecture, seed)
        .write(folder.path())
        .unwrap();
    let mut random = Random(seed);
    let ids: Vec<u32> = (0..60).map(|_| random.below(203) as u32).collect();
    let logits = |backend, quantization| {
        let options = WeightOptions(Dtype::Float32, quantization);
        let mut runner = Runner::new(folder.path(), backend, options, 2);
        runner.prefill(&mut Sequence::new(&ids, &[5, 2, 9, 4]), 50)
    };
    let exact = logits(BackendKind::Cpu, Quantization::None);
    [Quantization::Q8_0, Quantization::Q4_0].map(|quantization| {
        let ours = logits(BackendKind::Cpu, quantization);
        let reference = logits(BackendKind::Candle, quantization);
        // The weights were not simply left as they were.
        assert!(cosine(&exact, &reference) < 0.999_999, "{architecture}");
        cosine(&ours, &reference)
    })
}

#[test]
fn all_families_agree_with_candle_on_the_same_quantized_weights() {
    for (seed, architecture) in ARCHITECTURES.into_iter().enumerate() {
        // What is left is the rounding of activations to 8 bits, layer after layer. Now and then
        // it lets a token take another expert, which is another model: hence the middle of some.
        let has_experts = ["Mixtral", "Qwen3Moe"]
            .iter()
            .any(|family| architecture.starts_with(family));
        let seeds = if has_experts { 15 } else { 1 };
        let runs: Vec<[f64; 2]> = (0..seeds)
            .map(|run| likeness(architecture, seed as u64 + 100 * run))
            .collect();
        for quantization in 0..2 {
            let mut sorted: Vec<f64> = runs.iter().map(|run| run[quantization]).collect();
            sorted.sort_by(f64::total_cmp);
            assert!(
                sorted[sorted.len() / 2] > 0.998,
                "{architecture}: {sorted:?}"
            );
        }
    }
}

/// By how much the logits of a model of one layer are off the unquantized ones, relative to them, in the
/// mean of squares.
fn error_of_one_layer(architecture: &'static str, quantization: Quantization) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let mut checkpoint = RandomCheckpoint {
        num_hidden_layers: 1,
        ..RandomCheckpoint::tiny(architecture, 5)
    };
    // Each token goes through all experts: no rounding chooses another.
    for experts in ["num_experts", "num_local_experts"] {
        if let Some(number) = checkpoint.extra.get(experts).cloned() {
            checkpoint.extra["num_experts_per_tok"] = number;
        }
    }
    checkpoint.write(folder.path()).unwrap();
    let mut random = Random(5);
    let ids: Vec<u32> = (0..60).map(|_| random.below(203) as u32).collect();
    let logits = |quantization| {
        let options = WeightOptions(Dtype::Float32, quantization);
        let mut runner = Runner::new(folder.path(), BackendKind::Cpu, options, 2);
        let mut sequence = Sequence::new(&ids, &[5, 2, 9, 4]);
        let each: Vec<Vec<f32>> = (0..ids.len())
            .map(|_| runner.step(&mut [(&mut sequence, 1)]).remove(0))
            .collect();
        each.concat()
    };
    let (exact, found) = (logits(Quantization::None), logits(quantization));
    let square = |value: f32| f64::from(value).powi(2);
    let error: f64 = std::iter::zip(&exact, &found)
        .map(|(exact, found)| square(exact - found))
        .sum();
    let total: f64 = exact.iter().map(|exact| square(*exact)).sum();
    (error / total).sqrt()
}

#[test]
fn a_layer_of_every_family_stays_near_the_unquantized_one() {
    for architecture in ARCHITECTURES {
        for (quantization, bound) in [(Quantization::Q8_0, 0.035), (Quantization::Q4_0, 0.27)] {
            let error = error_of_one_layer(architecture, quantization);
            println!("{architecture} {quantization:?}: {error:.4}");
            assert!(error < bound, "{architecture} {quantization:?}: {error}");
        }
    }
}

#[test]
fn weights_from_the_cache_give_the_same_logits() {
    let folder = tempfile::tempdir().unwrap();
    RandomCheckpoint::tiny("Qwen3MoeForCausalLM", 3)
        .write(folder.path())
        .unwrap();
    let logits = |quantization, least_bytes| {
        let loaded = load_cached(
            folder.path(),
            BackendKind::Cpu,
            WeightOptions(Dtype::BFloat16, quantization),
            KvCacheDtype::Auto,
            2,
            least_bytes,
        );
        let model = loaded.unwrap().into_model(&LIMITS).unwrap();
        let ids: Vec<u32> = (0..40).map(|id| id * 5 % 203).collect();
        let found = Runner { model }.prefill(&mut Sequence::new(&ids, &[5, 2, 9]), 40);
        found.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    for quantization in [Quantization::Q8_0, Quantization::Q4_0] {
        let file = format!("formwork.{}.weights", quantization.as_str());
        let file = folder.path().join(file);
        let expected = logits(quantization, None);
        assert_eq!(logits(quantization, Some(u64::MAX)), expected);
        assert!(!file.exists(), "the model is too small");
        assert_eq!(logits(quantization, Some(0)), expected);
        let written = std::fs::read(&file).unwrap();
        let changed = || file.metadata().unwrap().modified().unwrap();
        let before = changed();
        assert_eq!(logits(quantization, Some(0)), expected);
        assert_eq!(changed(), before, "it was used");
        // Broken: not believed, and made again by the start after that.
        let mut broken = written.clone();
        broken[100] ^= 1;
        std::fs::write(&file, broken).unwrap();
        assert_eq!(logits(quantization, Some(0)), expected);
        assert!(!file.exists());
        assert_eq!(logits(quantization, Some(0)), expected);
        assert!(std::fs::read(&file).unwrap() == written);
    }
    assert_eq!(logits(Quantization::None, Some(0)).len(), 203);
    let names = std::fs::read_dir(folder.path()).unwrap();
    assert_eq!(
        names.count(),
        4,
        "two files of the model and two of weights"
    );
}

/// The built-in model's files.
fn built_in() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../builtin-model/model")
}

/// Answers of the built-in model's tasks that training never saw.
fn held_out() -> serde_json::Value {
    let samples = include_str!("../../builtin-model/examples/held_out.json");
    serde_json::from_str(samples).unwrap()
}

/// Perplexity of a model's answers to `samples`, in the format given.
fn perplexity(folder: &Path, samples: &serde_json::Value, options: WeightOptions) -> f64 {
    let mut runner = Runner::new(folder, BackendKind::Cpu, options, 2);
    let vocab_size = runner.model.vocab_size();
    let (mut sum, mut count) = (0.0, 0);
    for sample in samples.as_array().unwrap() {
        let ids = |field: &str| -> Vec<u32> {
            let ids = sample[field].as_array().unwrap().iter();
            ids.map(|id| id.as_u64().unwrap() as u32).collect()
        };
        let (prompt, completion) = (ids("prompt"), ids("completion"));
        let ids = [prompt.clone(), completion].concat();
        let rows: Vec<u32> = (prompt.len() as u32 - 1..ids.len() as u32 - 1).collect();
        let positions: Vec<u32> = (0..ids.len() as u32).collect();
        let slots: Vec<u32> = positions.iter().map(|position| 16 + position).collect();
        runner
            .model
            .forward(&ForwardInput {
                input_ids: &ids,
                positions: &positions,
                slot_mapping: &slots,
                shared_rows: &[],
                shared_slots: &[],
                query_start_loc: &[0, ids.len() as u32],
                seq_lens: &[ids.len() as u32],
                block_tables: &(1..=ids.len().div_ceil(16) as u32).collect::<Vec<_>>(),
                block_table_stride: ids.len().div_ceil(16),
                token_type_ids: &[],
                logits_indices: &rows,
            })
            .unwrap();
        let mut logits = vec![0.0; rows.len() * vocab_size];
        runner
            .model
            .compute_logits(0..rows.len(), &mut logits)
            .unwrap();
        for (row, logits) in rows.iter().zip(logits.chunks_exact(vocab_size)) {
            let next = ids[*row as usize + 1] as usize;
            let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
            sum += total.ln() - f64::from(logits[next]);
            count += 1;
        }
    }
    (sum / f64::from(count)).exp()
}

#[test]
fn the_built_in_models_perplexity_hardly_suffers() {
    let samples = held_out();
    let of = |quantization| {
        let options = WeightOptions(Dtype::BFloat16, quantization);
        perplexity(&built_in(), &samples, options)
    };
    let exact = of(Quantization::None);
    for (quantization, most) in [(Quantization::Q8_0, 1.01), (Quantization::Q4_0, 1.05)] {
        let quantized = of(quantization);
        println!("bf16 {exact:.4}, {quantization:?} {quantized:.4}");
        assert!(
            quantized < exact * most,
            "{quantization:?}: {quantized} instead of {exact}"
        );
    }
}

#[test]
fn the_built_in_models_perplexity_in_the_forms_of_quantized_checkpoints() {
    let samples = held_out();
    let of = |folder: &Path| perplexity(folder, &samples, Dtype::BFloat16.into());
    let exact = of(&built_in());
    let group = Some(64);
    let order = Order::PerInput;
    for (form, most) in [
        (Form::Fp8Tensor, 1.01),
        (Form::Fp8Block, 1.01),
        (Form::Fp8Channel, 1.01),
        (Form::Int8Channel, 1.01),
        (
            Form::Gptq {
                bits: 8,
                group,
                order,
            },
            1.01,
        ),
        (
            Form::Packed {
                bits: 8,
                group,
                symmetric: true,
            },
            1.01,
        ),
        (
            Form::Gptq {
                bits: 4,
                group,
                order,
            },
            1.05,
        ),
        (Form::LlmInt8, 1.01),
        (Form::Awq { group: 64 }, 1.05),
        (Form::Nf4 { nested: false }, 1.05),
        (Form::Nf4 { nested: true }, 1.05),
        (
            Form::Packed {
                bits: 4,
                group,
                symmetric: false,
            },
            1.05,
        ),
        (
            Form::Packed {
                bits: 4,
                group: Some(32),
                symmetric: true,
            },
            1.05,
        ),
    ] {
        let [quantized, plain] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        convert(&built_in(), form, quantized.path(), plain.path());
        let found = of(quantized.path());
        println!(
            "bf16 {exact:.4}, {form:?} {found:.4}, as plain bf16 {:.4}",
            of(plain.path())
        );
        assert!(found < exact * most, "{form:?}: {found} instead of {exact}");
    }
}
