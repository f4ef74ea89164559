//! Turns a Hugging Face checkpoint into a GGUF file as llama.cpp's converter does: other names,
//! query and key rows in the order of ggml's rotation, experts in one tensor, Gemma's norms plus 1.
//! Test support; `#[path]` it beside `writer`.

#![allow(unreachable_pub, reason = "support of several crates' tests")]

use std::collections::BTreeMap;
use std::path::Path;

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::writer::GgufWriter;

/// A tensor by its name in the GGUF file, its row-major shape and its values; returns its type by
/// number and its bytes.
pub type Encode<'a> = &'a dyn Fn(&str, &[usize], &[f32]) -> (u32, Vec<u8>);

/// Matrices in F32, F16 (type 1) or BF16 (type 30), the rest in F32.
pub fn floats(kind: u32) -> impl Fn(&str, &[usize], &[f32]) -> (u32, Vec<u8>) {
    move |name, shape, values| {
        let is_small = shape.len() == 1 || name.contains("ffn_gate_inp");
        let kind = if is_small { 0 } else { kind };
        let bytes = match kind {
            1 => values
                .iter()
                .flat_map(|value| f16::from_f32(*value).to_le_bytes())
                .collect(),
            30 => values
                .iter()
                .flat_map(|value| bf16::from_f32(*value).to_le_bytes())
                .collect(),
            _ => values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        };
        (kind, bytes)
    }
}

/// Shape and values of a tensor.
type Values = (Vec<usize>, Vec<f32>);

fn read_tensors(folder: &Path) -> BTreeMap<String, Values> {
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors = BTreeMap::new();
    for (name, tensor) in file.tensors() {
        let data = tensor.data();
        let values = match tensor.dtype() {
            Dtype::F32 => data
                .as_chunks()
                .0
                .iter()
                .map(|bytes| f32::from_le_bytes(*bytes))
                .collect(),
            Dtype::BF16 => data
                .as_chunks()
                .0
                .iter()
                .map(|bytes| bf16::from_le_bytes(*bytes).to_f32())
                .collect(),
            other => panic!("{name} is {other:?}"),
        };
        tensors.insert(name, (tensor.shape().to_vec(), values));
    }
    tensors
}

/// `[heads, 2, half]` rows to `[heads, half, 2]`.
fn permute(values: &[f32], rows: usize, head_dim: usize) -> Vec<f32> {
    let width = values.len() / rows;
    let mut permuted = Vec::with_capacity(values.len());
    for head in 0..rows / head_dim {
        for pair in 0..head_dim / 2 {
            for side in 0..2 {
                let row = head * head_dim + side * (head_dim / 2) + pair;
                permuted.extend(&values[row * width..(row + 1) * width]);
            }
        }
    }
    permuted
}

/// A file with the model of `folder` and no tokenizer.
pub fn convert(folder: &Path, encode: Encode<'_>) -> GgufWriter {
    let config = std::fs::read(folder.join("config.json")).unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    let class = config["architectures"][0].as_str().unwrap();
    let family = match class {
        "LlamaForCausalLM" | "MistralForCausalLM" | "MixtralForCausalLM" => "llama",
        "Qwen2ForCausalLM" => "qwen2",
        "Qwen3ForCausalLM" => "qwen3",
        "Qwen3MoeForCausalLM" => "qwen3moe",
        "Gemma2ForCausalLM" => "gemma2",
        "Gemma3ForCausalLM" => "gemma3",
        "Phi3ForCausalLM" => "phi3",
        "SmolLM3ForCausalLM" => "smollm3",
        other => panic!("{other}"),
    };
    let number = |name: &str| config[name].as_u64().map(|number| number as u32);
    let head_dim = number("head_dim")
        .unwrap_or_else(|| number("hidden_size").unwrap() / number("num_attention_heads").unwrap());
    let mut writer = GgufWriter::new(family);
    let key = |name: &str| format!("{family}.{name}");
    for (name, field) in [
        ("block_count", "num_hidden_layers"),
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("expert_count", "num_local_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("attention.sliding_window", "sliding_window"),
    ] {
        if let Some(number) = number(field) {
            writer.u32(&key(name), number);
        }
    }
    writer.u32(&key("attention.key_length"), head_dim);
    writer.u32(&key("attention.value_length"), head_dim);
    for (name, field) in [
        ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("final_logit_softcapping", "final_logit_softcapping"),
    ] {
        if let Some(number) = config[field].as_f64() {
            writer.f32(&key(name), number as f32);
        }
    }
    rope(&config, family, head_dim, &mut writer);
    tensors(folder, family, head_dim as usize, encode, &mut writer);
    writer
}

fn rope(config: &Value, family: &str, head_dim: u32, writer: &mut GgufWriter) {
    let key = |name: &str| format!("{family}.rope.{name}");
    let parameters = match &config["rope_parameters"] {
        Value::Null => &config["rope_scaling"],
        parameters => parameters,
    };
    let parameters = match &parameters["full_attention"] {
        Value::Null => parameters,
        full => full,
    };
    let theta = parameters["rope_theta"]
        .as_f64()
        .or(config["rope_theta"].as_f64());
    writer.f32(&key("freq_base"), theta.unwrap_or(10_000.0) as f32);
    let part = parameters["partial_rotary_factor"].as_f64().unwrap_or(1.0);
    writer.u32(&key("dimension_count"), (f64::from(head_dim) * part) as u32);
    let setting = |name: &str| parameters[name].as_f64().unwrap();
    let mut factors = |name: &str, factors: &[f32]| {
        let bytes: Vec<u8> = factors
            .iter()
            .flat_map(|factor| factor.to_le_bytes())
            .collect();
        writer.tensor(name, &[factors.len()], 0, &bytes);
    };
    match parameters["rope_type"].as_str() {
        Some("linear") => {
            writer.str(&key("scaling.type"), "linear");
            writer.f32(&key("scaling.factor"), setting("factor") as f32);
        }
        Some("llama3") => {
            let original = setting("original_max_position_embeddings");
            let (low, high) = (setting("low_freq_factor"), setting("high_freq_factor"));
            let divisors = (0..head_dim / 2).map(|pair| {
                let frequency = theta
                    .unwrap_or(10_000.0)
                    .powf(-f64::from(2 * pair) / f64::from(head_dim));
                let waves = original * frequency / std::f64::consts::TAU;
                if waves > high {
                    1.0
                } else if waves < low {
                    setting("factor") as f32
                } else {
                    let smooth = (waves - low) / (high - low);
                    (1.0 / ((1.0 - smooth) / setting("factor") + smooth)) as f32
                }
            });
            factors("rope_freqs.weight", &divisors.collect::<Vec<_>>());
        }
        Some("longrope") => {
            for (name, field) in [
                ("rope_factors_short.weight", "short_factor"),
                ("rope_factors_long.weight", "long_factor"),
            ] {
                let list = parameters[field].as_array().unwrap().iter();
                factors(
                    name,
                    &list
                        .map(|factor| factor.as_f64().unwrap() as f32)
                        .collect::<Vec<_>>(),
                );
            }
            let original = setting("original_max_position_embeddings");
            let stretch = config["max_position_embeddings"].as_f64().unwrap() / original;
            let factor = (1.0 + stretch.ln() / original.ln()).sqrt();
            writer.str(&key("scaling.type"), "longrope");
            writer.u32(&key("scaling.original_context_length"), original as u32);
            writer.f32(&key("scaling.attn_factor"), factor as f32);
        }
        _ => {}
    }
}

fn tensors(
    folder: &Path,
    family: &str,
    head_dim: usize,
    encode: Encode<'_>,
    writer: &mut GgufWriter,
) {
    let is_gemma = family.starts_with("gemma");
    // All experts of a part, by the name of the whole.
    let mut experts: BTreeMap<String, BTreeMap<usize, Values>> = BTreeMap::new();
    for (name, (shape, mut values)) in read_tensors(folder) {
        if matches!(family, "llama" | "smollm3")
            && (name.contains("q_proj") || name.contains("k_proj"))
        {
            values = permute(&values, shape[0], head_dim);
        }
        if is_gemma && name.ends_with("norm.weight") {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        let mut name = name.replace("model.layers.", "blk.");
        for (theirs, ours) in [
            ("model.embed_tokens", "token_embd"),
            ("model.norm", "output_norm"),
            ("lm_head", "output"),
            ("input_layernorm", "attn_norm"),
            (
                "post_attention_layernorm",
                if is_gemma {
                    "post_attention_norm"
                } else {
                    "ffn_norm"
                },
            ),
            ("pre_feedforward_layernorm", "ffn_norm"),
            ("post_feedforward_layernorm", "post_ffw_norm"),
            ("self_attn.q_proj", "attn_q"),
            ("self_attn.k_proj", "attn_k"),
            ("self_attn.v_proj", "attn_v"),
            ("self_attn.o_proj", "attn_output"),
            ("self_attn.qkv_proj", "attn_qkv"),
            ("self_attn.q_norm", "attn_q_norm"),
            ("self_attn.k_norm", "attn_k_norm"),
            ("block_sparse_moe", "mlp"),
            (".w1.", ".gate_proj."),
            (".w2.", ".down_proj."),
            (".w3.", ".up_proj."),
            ("mlp.gate.", "ffn_gate_inp."),
            ("mlp.gate_up_proj", "ffn_up"),
            ("mlp.gate_proj", "ffn_gate"),
            ("mlp.up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
        ] {
            name = name.replace(theirs, ours);
        }
        if let Some((layer, rest)) = name.split_once("mlp.experts.") {
            let (index, part) = rest.split_once('.').unwrap();
            let part = part.strip_suffix("_proj.weight").unwrap();
            let whole = experts
                .entry(format!("{layer}ffn_{part}_exps.weight"))
                .or_default();
            whole.insert(index.parse().unwrap(), (shape, values));
            continue;
        }
        let (kind, bytes) = encode(&name, &shape, &values);
        writer.tensor(&name, &shape, kind, &bytes);
    }
    for (name, parts) in experts {
        let mut shape = vec![parts.len()];
        shape.extend(&parts[&0].0);
        let values: Vec<f32> = parts.into_values().flat_map(|(_, values)| values).collect();
        let (kind, bytes) = encode(&name, &shape, &values);
        writer.tensor(&name, &shape, kind, &bytes);
    }
}
