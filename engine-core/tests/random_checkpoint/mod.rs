//! Checkpoints with random weights, in the Hugging Face layout, of any size.
//!
//! Test and benchmark support: `#[path]` it from wherever one is needed. The same description and
//! seed give the same files.

#![allow(unreachable_pub, reason = "support of several test files")]
#![allow(dead_code, reason = "each user needs a part of it")]

use std::collections::BTreeMap;
use std::path::Path;

use half::{bf16, f16};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

/// What a random checkpoint looks like.
#[derive(Clone)]
pub struct RandomCheckpoint {
    /// Entry of `architectures`.
    pub architecture: &'static str,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub head_dim: usize,
    pub vocab_size: usize,
    pub max_position_embeddings: usize,
    pub tie_word_embeddings: bool,
    /// Biases on queries, keys and values.
    pub qkv_bias: bool,
    /// Norms on query and key heads.
    pub qk_norm: bool,
    /// Further fields of `config.json`.
    pub extra: Value,
    /// Format of the stored weights.
    pub dtype: Dtype,
    /// Files that the weights are spread over.
    pub num_shards: usize,
    pub seed: u64,
}

/// Entries of `architectures`, one per family.
pub const ARCHITECTURES: [&str; 10] = [
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "MixtralForCausalLM",
    "Phi3ForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "SmolLM3ForCausalLM",
];

impl RandomCheckpoint {
    /// A few thousand parameters, odd in every size that may be odd.
    pub fn tiny(architecture: &'static str, seed: u64) -> Self {
        Self {
            architecture,
            hidden_size: 40,
            intermediate_size: 75,
            num_hidden_layers: 3,
            num_attention_heads: 6,
            num_key_value_heads: 2,
            head_dim: if architecture == "Phi3ForCausalLM" {
                16
            } else {
                18
            },
            vocab_size: 203,
            max_position_embeddings: 512,
            tie_word_embeddings: architecture != "MistralForCausalLM",
            qkv_bias: architecture == "Qwen2ForCausalLM",
            qk_norm: ["Qwen3", "Gemma3"]
                .iter()
                .any(|family| architecture.starts_with(family)),
            extra: match architecture {
                "MistralForCausalLM" => json!({"sliding_window": 21}),
                "LlamaForCausalLM" => json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 64}}),
                "Gemma2ForCausalLM" => json!({"sliding_window": 21, "query_pre_attn_scalar": 30,
                    "attn_logit_softcapping": 20.0, "final_logit_softcapping": 15.0}),
                "Gemma3ForCausalLM" => json!({"sliding_window": 21, "sliding_window_pattern": 2,
                    "query_pre_attn_scalar": 30}),
                "MixtralForCausalLM" => json!({"num_local_experts": 5, "num_experts_per_tok": 2}),
                "Phi3ForCausalLM" => json!({"partial_rotary_factor": 0.5, "rope_scaling": {
                    "type": "longrope", "short_factor": vec![1.0; 4],
                    "long_factor": [1.5, 2.0, 3.0, 5.0]},
                    "original_max_position_embeddings": 64}),
                "Qwen3MoeForCausalLM" => json!({"num_experts": 6, "num_experts_per_tok": 3,
                    "moe_intermediate_size": 35, "mlp_only_layers": [1]}),
                "SmolLM3ForCausalLM" => json!({"no_rope_layer_interval": 2}),
                _ => json!({}),
            },
            dtype: Dtype::F32,
            num_shards: 1,
            seed,
        }
    }

    /// The shape of Qwen2.5-0.5B: 494 million parameters.
    pub fn qwen2_5_0_5b(dtype: Dtype) -> Self {
        Self {
            architecture: "Qwen2ForCausalLM",
            hidden_size: 896,
            intermediate_size: 4864,
            num_hidden_layers: 24,
            num_attention_heads: 14,
            num_key_value_heads: 2,
            head_dim: 64,
            vocab_size: 151_936,
            max_position_embeddings: 32_768,
            tie_word_embeddings: true,
            qkv_bias: true,
            qk_norm: false,
            extra: json!({"rope_theta": 1e6, "use_sliding_window": false}),
            dtype,
            num_shards: 1,
            seed: 1,
        }
    }

    /// Names and shapes of all tensors.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, inter) = (self.hidden_size, self.intermediate_size);
        let (q, kv) = (
            self.num_attention_heads * self.head_dim,
            self.num_key_value_heads * self.head_dim,
        );
        let mut tensors = vec![
            (
                "model.embed_tokens.weight".to_owned(),
                vec![self.vocab_size, hidden],
            ),
            ("model.norm.weight".to_owned(), vec![hidden]),
        ];
        if !self.tie_word_embeddings {
            tensors.push(("lm_head.weight".to_owned(), vec![self.vocab_size, hidden]));
        }
        for layer in 0..self.num_hidden_layers {
            let mut add = |name: &str, shape: Vec<usize>| {
                tensors.push((format!("model.layers.{layer}.{name}"), shape));
            };
            add("input_layernorm.weight", vec![hidden]);
            add("post_attention_layernorm.weight", vec![hidden]);
            if self.architecture.starts_with("Gemma") {
                add("pre_feedforward_layernorm.weight", vec![hidden]);
                add("post_feedforward_layernorm.weight", vec![hidden]);
            }
            let phi3 = self.architecture == "Phi3ForCausalLM";
            let projections: &[(&str, usize)] = if phi3 {
                &[("qkv_proj", q + 2 * kv)]
            } else {
                &[("q_proj", q), ("k_proj", kv), ("v_proj", kv)]
            };
            for (name, width) in projections {
                add(&format!("self_attn.{name}.weight"), vec![*width, hidden]);
                if self.qkv_bias {
                    add(&format!("self_attn.{name}.bias"), vec![*width]);
                }
            }
            if self.qk_norm {
                add("self_attn.q_norm.weight", vec![self.head_dim]);
                add("self_attn.k_norm.weight", vec![self.head_dim]);
            }
            add("self_attn.o_proj.weight", vec![hidden, q]);
            if self.qkv_bias && self.architecture == "LlamaForCausalLM" {
                add("self_attn.o_proj.bias", vec![hidden]);
            }
            let size = |field: &str| self.extra[field].as_u64().unwrap_or(0) as usize;
            let (block, experts, width, names) = match self.architecture {
                "MixtralForCausalLM" => (
                    "block_sparse_moe",
                    size("num_local_experts"),
                    inter,
                    ["w1", "w3", "w2"],
                ),
                "Qwen3MoeForCausalLM" if self.extra["mlp_only_layers"][0] != layer => (
                    "mlp",
                    size("num_experts"),
                    size("moe_intermediate_size"),
                    ["gate_proj", "up_proj", "down_proj"],
                ),
                _ => ("mlp", 0, 0, [""; 3]),
            };
            if experts > 0 {
                add(&format!("{block}.gate.weight"), vec![experts, hidden]);
            } else {
                if phi3 {
                    add("mlp.gate_up_proj.weight", vec![2 * inter, hidden]);
                } else {
                    add("mlp.gate_proj.weight", vec![inter, hidden]);
                    add("mlp.up_proj.weight", vec![inter, hidden]);
                }
                add("mlp.down_proj.weight", vec![hidden, inter]);
            }
            for expert in 0..experts {
                let [gate, up, down] =
                    names.map(|name| format!("{block}.experts.{expert}.{name}.weight"));
                add(&gate, vec![width, hidden]);
                add(&up, vec![width, hidden]);
                add(&down, vec![hidden, width]);
            }
        }
        tensors
    }

    /// `config.json`.
    pub fn config(&self) -> Value {
        let mut config = json!({
            "architectures": [self.architecture],
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_position_embeddings,
            "tie_word_embeddings": self.tie_word_embeddings,
            "rms_norm_eps": 1e-6,
            "eos_token_id": 0,
        });
        if self.architecture.starts_with("Gemma") {
            config["hidden_activation"] = json!("gelu_pytorch_tanh");
        }
        for (name, value) in self.extra.as_object().into_iter().flatten() {
            config[name] = value.clone();
        }
        config
    }

    /// Writes `config.json` and the weights to a folder that exists.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::write(folder.join("config.json"), self.config().to_string())?;
        let tensors = self.tensors();
        let per_shard = tensors.len().div_ceil(self.num_shards);
        let mut weight_map = BTreeMap::new();
        for (index, part) in tensors.chunks(per_shard).enumerate() {
            let name = if self.num_shards == 1 {
                "model.safetensors".to_owned()
            } else {
                format!(
                    "model-{:05}-of-{:05}.safetensors",
                    index + 1,
                    self.num_shards
                )
            };
            let data: Vec<Vec<u8>> = part
                .iter()
                .map(|(tensor, shape)| self.values(tensor, shape))
                .collect();
            let views = part.iter().zip(&data).map(|((tensor, shape), data)| {
                weight_map.insert(tensor.clone(), name.clone());
                let view = TensorView::new(self.dtype, shape.clone(), data);
                (
                    tensor.clone(),
                    view.expect("the data has the shape's length"),
                )
            });
            safetensors::serialize_to_file(views, None, &folder.join(&name))
                .map_err(std::io::Error::other)?;
        }
        if self.num_shards > 1 {
            let index = json!({"metadata": {}, "weight_map": weight_map});
            std::fs::write(
                folder.join("model.safetensors.index.json"),
                index.to_string(),
            )?;
        }
        Ok(())
    }

    /// The bytes of one tensor: near normal, scaled so that activations keep their size.
    fn values(&self, name: &str, shape: &[usize]) -> Vec<u8> {
        let name_hash = name.bytes().fold(self.seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut random = Random(name_hash);
        let (mean, deviation) = match shape {
            [_] if name.ends_with("bias") => (0.0, 0.2),
            // Gemma's are stored less 1.
            [_] if self.architecture.starts_with("Gemma") => (0.0, 0.1),
            [_] => (1.0, 0.1),
            _ if name.contains("embed") || name.contains("lm_head") => (0.0, 0.5),
            _ => (0.0, 1.4 / (shape[1] as f32).sqrt()),
        };
        let len: usize = shape.iter().product();
        let mut bytes = Vec::with_capacity(len * 4);
        for _ in 0..len {
            let value = mean + deviation * random.normal();
            match self.dtype {
                Dtype::F16 => bytes.extend(f16::from_f32(value).to_le_bytes()),
                Dtype::BF16 => bytes.extend(bf16::from_f32(value).to_le_bytes()),
                _ => bytes.extend(value.to_le_bytes()),
            }
        }
        bytes
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Nearly normal with variance 1: the sum of four uniform 16-bit numbers.
    fn normal(&mut self) -> f32 {
        let bits = self.next();
        let sum: u32 = (0..4)
            .map(|part| (bits >> (16 * part)) as u32 & 0xffff)
            .sum();
        (sum as f32 / 65536.0 - 2.0) * 3.0_f32.sqrt()
    }
}
