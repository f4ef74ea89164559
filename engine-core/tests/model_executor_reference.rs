//! Both backends against what transformers computes on the shared checkpoints.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model_runner;

use model_runner::{Runner, Sequence, argmax, shared};
use protocol::{BackendKind, Dtype};
use serde_json::Value;

/// Ids from here on are padding of the logits, which no tokenizer knows.
const TOKENIZER_VOCAB_SIZE: usize = 960;

fn numbers<T>(value: &Value, read: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap().iter().map(read).collect()
}

fn check(family: &str, backend: BackendKind) {
    let Some(folder) = shared(&format!("checkpoints/{family}")) else {
        return;
    };
    let expected = std::fs::read(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let mut runner = Runner::new(&folder, backend, Dtype::Float32, 2);
    for prompt in expected["prompts"].as_array().unwrap() {
        let ids = numbers(&prompt["ids"], |id| id.as_u64().unwrap() as u32);
        let last_logits = numbers(&prompt["last_logits"], |logit| logit.as_f64().unwrap());
        let greedy = numbers(&prompt["greedy"], |id| id.as_u64().unwrap() as u32);

        let mut sequence = Sequence::new(&ids, &[9, 4, 17, 2, 30, 11, 5, 6]);
        let mut logits = runner.prefill(&mut sequence, ids.len());
        let worst = logits
            .iter()
            .zip(&last_logits)
            .map(|(found, expected)| (f64::from(*found) - expected).abs())
            .fold(0.0, f64::max);
        println!("{family} {backend:?}: largest difference {worst:.1e}");
        assert_eq!(logits.len(), last_logits.len());
        assert!(
            worst <= 2e-3,
            "{family} {backend:?} {}: off by {worst}",
            prompt["text"]
        );

        let mut continuation = Vec::new();
        while continuation.len() < greedy.len() {
            let id = argmax(&logits, TOKENIZER_VOCAB_SIZE);
            continuation.push(id);
            sequence.token_ids.push(id);
            logits = runner.step(&mut [(&mut sequence, 1)]).remove(0);
        }
        assert_eq!(
            continuation, greedy,
            "{family} {backend:?} {}",
            prompt["text"]
        );
    }
}

#[test]
fn llama_matches_on_both_backends() {
    check("llama", BackendKind::Cpu);
    check("llama", BackendKind::Candle);
}

#[test]
fn qwen2_matches_on_both_backends() {
    check("qwen2", BackendKind::Cpu);
    check("qwen2", BackendKind::Candle);
}

#[test]
fn qwen3_matches_on_both_backends() {
    check("qwen3", BackendKind::Cpu);
    check("qwen3", BackendKind::Candle);
}

#[test]
fn mistral_matches_on_both_backends() {
    check("mistral", BackendKind::Cpu);
    check("mistral", BackendKind::Candle);
}
