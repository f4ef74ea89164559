//! What a step has to do at least, to be compared with what the machine can do.

use benchmarks::machine;
use benchmarks::peak::{Numbers, multiply_peak};
use safetensors::Dtype;

use crate::checkpoint::random_checkpoint::RandomCheckpoint;
use crate::engine::EngineSpec;

/// Weights that every token is multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// In the layers' matrices.
    pub(crate) layer_weights: usize,
    /// In the LM head.
    pub(crate) head_weights: usize,
}

impl Shape {
    /// The checkpoint's.
    pub(crate) fn of_checkpoint() -> Self {
        let model = RandomCheckpoint::qwen2_5_0_5b(Dtype::BF16);
        let (hidden, head_dim) = (model.hidden_size, model.head_dim);
        let queries = model.num_attention_heads * head_dim;
        let qkv = queries + 2 * model.num_key_value_heads * head_dim;
        let layer = hidden * qkv + queries * hidden + 3 * hidden * model.intermediate_size;
        Self {
            layer_weights: model.num_hidden_layers * layer,
            head_weights: hidden * model.vocab_size,
        }
    }
}

/// The least work of an engine on the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Work {
    /// Bytes of weights that a step reads.
    pub(crate) step_bytes: f64,
    /// Multiplications and additions by weights for each token of a prompt, without the LM head.
    pub(crate) token_operations: f64,
    /// The same of the LM head, for one row.
    pub(crate) head_operations: f64,
}

impl Work {
    pub(crate) fn of(shape: Shape, spec: EngineSpec) -> Self {
        // Groups of 256 with a scale of two bytes, with 4 bits eight factors of as many; the head of q4_0
        // has 8 bits.
        let q8_0 = 258.0 / 256.0;
        let (layers, head) = match spec.format() {
            "float32" => (4.0, 4.0),
            "q8_0" => (q8_0, q8_0),
            "q4_0" => (134.0 / 256.0, q8_0),
            _ => (2.0, 2.0),
        };
        let (layer_weights, head_weights) = (shape.layer_weights as f64, shape.head_weights as f64);
        Self {
            step_bytes: layers * layer_weights + head * head_weights,
            token_operations: 2.0 * layer_weights,
            head_operations: 2.0 * head_weights,
        }
    }
}

/// What the machine can do at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Probe {
    /// Bytes read from memory, by second.
    pub(crate) read: f64,
    /// Multiplications and additions by second, of the numbers that the engine multiplies.
    pub(crate) multiply: Option<f64>,
}

impl Probe {
    pub(crate) fn run(spec: EngineSpec, num_threads: usize) -> Self {
        let peak = |numbers| multiply_peak(numbers, num_threads);
        Self {
            read: machine::read_bandwidth(num_threads),
            multiply: match spec.format() {
                "float32" => peak(Numbers::F32),
                "q8_0" | "q4_0" => peak(Numbers::Int8),
                // Where the processor doesn't multiply bfloat16, it is widened.
                _ => peak(Numbers::Bf16).or_else(|| peak(Numbers::F32)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_by_weights() {
        let shape = Shape {
            layer_weights: 3200,
            head_weights: 320,
        };
        let work = |spec: &str| Work::of(shape, spec.parse().unwrap());
        assert_eq!(work("cpu:bfloat16").step_bytes, 7040.0);
        assert_eq!(work("cpu:q8_0").step_bytes, 3547.5);
        assert_eq!(work("cpu:q4_0:q8").step_bytes, 1675.0 + 322.5);
        assert_eq!(work("cpu:float32").token_operations, 6400.0);
        assert_eq!(work("cpu:float32").head_operations, 640.0);
    }
}
