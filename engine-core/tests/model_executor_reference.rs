//! All backends against what transformers computes: on the shared checkpoints, and on the smaller
//! ones of `tiny_models`, which have what those lack.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model_runner;

use std::path::Path;

use model_runner::{Runner, Sequence, argmax, shared};
use protocol::{BackendKind, Dtype};
use serde_json::Value;

/// Ids from here on are padding of the logits, which no tokenizer knows.
const TOKENIZER_VOCAB_SIZE: usize = 960;

fn numbers<T>(value: &Value, read: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap().iter().map(read).collect()
}

/// Prompt, the logits after it, and the tokens that follow by argmax over the first
/// `tokenizer_vocab_size`.
struct Expected {
    ids: Vec<u32>,
    last_logits: Vec<f64>,
    greedy: Vec<u32>,
}

impl Expected {
    fn of(value: &Value) -> Self {
        let id = |id: &Value| id.as_u64().unwrap() as u32;
        Self {
            ids: numbers(&value["ids"], id),
            last_logits: numbers(&value["last_logits"], |logit| logit.as_f64().unwrap()),
            greedy: numbers(&value["greedy"], id),
        }
    }

    /// In f32, the same logits and the same tokens; in bfloat16, logits not far away.
    fn check(&self, folder: &Path, backend: BackendKind, tokenizer_vocab_size: usize) {
        let what = format!("{} {backend:?}", folder.display());
        let table = [9, 4, 17, 2, 30, 11, 5, 6];
        let mut runner = Runner::new(folder, backend, Dtype::Float32, 2);
        let mut sequence = Sequence::new(&self.ids, &table);
        let mut logits = runner.prefill(&mut sequence, self.ids.len());
        assert_eq!(logits.len(), self.last_logits.len());
        let worst = self.largest_difference(&logits);
        let mut rounded = Runner::new(folder, backend, Dtype::BFloat16, 2);
        // Where the processor multiplies bfloat16, activations are rounded too, and one that lies near
        // a tie lets a token take another expert, which is another model: hence the middle of the
        // distances after some of the last tokens.
        let lengths = (1..=self.ids.len()).rev().take(5);
        let mut distances: Vec<f64> = lengths
            .map(|len| {
                let [exact, in_bf16] = [&mut runner, &mut rounded].map(|runner| {
                    runner.prefill(&mut Sequence::new(&self.ids[..len], &table), len)
                });
                distance(&in_bf16, &exact)
            })
            .collect();
        distances.sort_by(f64::total_cmp);
        let distance = distances[distances.len() / 2];
        println!("{what}: largest difference {worst:.1e}, in bf16 a distance of {distance:.1e}");
        assert!(worst <= 2e-3, "{what}: off by {worst}");
        assert!(distance <= 8e-2, "{what}: off by {distance} in bf16");

        let mut continuation = Vec::new();
        while continuation.len() < self.greedy.len() {
            let id = argmax(&logits, tokenizer_vocab_size);
            continuation.push(id);
            sequence.token_ids.push(id);
            logits = runner.step(&mut [(&mut sequence, 1)]).remove(0);
        }
        assert_eq!(continuation, self.greedy, "{what}");
    }

    fn largest_difference(&self, logits: &[f32]) -> f64 {
        std::iter::zip(logits, &self.last_logits)
            .map(|(found, expected)| (f64::from(*found) - expected).abs())
            .fold(0.0, f64::max)
    }
}

/// The length of the difference in units of the length of what is expected.
fn distance(logits: &[f32], expected: &[f32]) -> f64 {
    let squares: f64 = std::iter::zip(logits, expected)
        .map(|(found, expected)| f64::from(found - expected).powi(2))
        .sum();
    let length: f64 = expected.iter().map(|logit| f64::from(*logit).powi(2)).sum();
    (squares / length).sqrt()
}

fn read(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap()
}

const BACKENDS: [BackendKind; 3] = [
    BackendKind::Cpu,
    BackendKind::Candle,
    BackendKind::CudaSimulator,
];

fn check_shared(family: &str) {
    let Some(folder) = shared(&format!("checkpoints/{family}")) else {
        return;
    };
    for prompt in read(&folder)["prompts"].as_array().unwrap() {
        for backend in BACKENDS {
            Expected::of(prompt).check(&folder, backend, TOKENIZER_VOCAB_SIZE);
        }
    }
}

fn check_tiny(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny_models");
    let folder = folder.join(name);
    let expected = Expected::of(&read(&folder));
    for backend in BACKENDS {
        expected.check(&folder, backend, expected.last_logits.len());
    }
}

#[test]
fn llama_matches() {
    check_shared("llama");
}

#[test]
fn qwen2_matches() {
    check_shared("qwen2");
}

#[test]
fn qwen3_matches() {
    check_shared("qwen3");
}

#[test]
fn mistral_matches() {
    check_shared("mistral");
}

#[test]
fn gemma2_matches() {
    check_shared("gemma2");
}

#[test]
fn phi3_matches() {
    check_shared("phi3");
}

#[test]
fn qwen3_moe_matches() {
    check_shared("qwen3_moe");
}

#[test]
fn gemma3_matches() {
    check_tiny("gemma3");
}

#[test]
fn mixtral_matches() {
    check_tiny("mixtral");
}

#[test]
fn qwen3_moe_with_a_dense_layer_matches() {
    check_tiny("qwen3_moe_mixed");
}

#[test]
fn smollm3_matches() {
    check_tiny("smollm3");
}

#[test]
fn phi3_with_longrope_matches() {
    check_tiny("phi3_longrope");
}

/// The checkpoints of bitsandbytes, whose linear layers all backends round to 8 bits but that of the GPU, which keeps
/// bfloat16. (That values are read exactly, `model_executor_checkpoints` shows.)
#[test]
fn bitsandbytes_matches() {
    for form in ["nf4", "nf4_nested", "fp4", "int8"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/tiny_models")
            .join(format!("bitsandbytes_{form}"));
        let expected = Expected::of(&read(&folder));
        let reference: Vec<f32> = expected.last_logits.iter().map(|x| *x as f32).collect();
        let distances = BACKENDS.map(|backend| {
            let mut runner = Runner::new(&folder, backend, Dtype::Float32, 2);
            let mut sequence = Sequence::new(&expected.ids, &[9, 4, 17, 2]);
            distance(
                &runner.prefill(&mut sequence, expected.ids.len()),
                &reference,
            )
        });
        println!("{form}: distances {distances:.3?}");
        assert!(
            distances.iter().all(|distance| *distance <= 5e-2),
            "{form}: {distances:?}"
        );
    }
}
