//! Models in GGUF files against the checkpoints that the files were made from.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../gguf/tests/writer/model.rs"]
mod converter;
mod model_runner;
mod random_checkpoint;
#[path = "../../gguf/tests/writer/mod.rs"]
mod writer;

use std::path::{Path, PathBuf};

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use converter::{Encode, convert, floats};
use half::f16;
use model_runner::{Runner, Sequence, WeightOptions, bits, cosine, load, shared};
use protocol::{BackendKind, Dtype, Quantization};
use random_checkpoint::{Random, RandomCheckpoint};
use serde_json::{Value, json};
use writer::GgufWriter;

/// Logits of a prompt in chunks and of a few tokens after it.
fn logits(path: &Path, backend: BackendKind, format: impl Into<WeightOptions>) -> Vec<f32> {
    let mut runner = Runner::new(path, backend, format, 2);
    let vocab_size = runner.model.vocab_size().min(900);
    let mut random = Random(7);
    let ids: Vec<u32> = (0..45).map(|_| random.below(vocab_size) as u32).collect();
    let mut sequence = Sequence::new(&ids, &[5, 2, 9, 4]);
    let mut logits = runner.prefill(&mut sequence, 20);
    for _ in 0..3 {
        sequence.token_ids.push(random.below(vocab_size) as u32);
        logits.extend(runner.step(&mut [(&mut sequence, 1)]).remove(0));
    }
    logits
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    std::iter::zip(a, b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

/// Writes `folder`'s model beside it.
fn written(folder: &Path, to: &Path, encode: Encode<'_>) -> PathBuf {
    let path = to.join("model.gguf");
    convert(folder, encode).write(&path).unwrap();
    path
}

/// A copy of a checkpoint whose `config.json` says what a GGUF file can.
fn changed(folder: &Path, changes: &Value) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let config = std::fs::read(folder.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    for (name, value) in changes.as_object().unwrap() {
        config[name] = value.clone();
    }
    std::fs::write(copy.path().join("config.json"), config.to_string()).unwrap();
    let name = "model.safetensors";
    std::fs::copy(folder.join(name), copy.path().join(name)).unwrap();
    copy
}

/// The checkpoints of all families that GGUF has, and how far logits may be apart, in F32 and in
/// bfloat16. Equal, but where the file holds factors of the rotation in 32 bits instead of the
/// settings behind them, and where the 1 in Gemma's norms took the last bits of a weight: in bfloat16 a
/// key near a tie may then round apart.
fn checkpoints() -> Vec<(String, tempfile::TempDir, [f32; 2])> {
    const EQUAL: [f32; 2] = [0.0, 0.0];
    const FACTORS: [f32; 2] = [1e-4, 1e-2];
    let mut checkpoints = Vec::new();
    for (family, bound) in [
        ("llama", FACTORS),
        ("mistral", EQUAL),
        ("qwen2", EQUAL),
        ("qwen3", EQUAL),
        ("qwen3_moe", EQUAL),
        ("gemma2", [0.0, 1e-2]),
        ("phi3", EQUAL),
    ] {
        if let Some(folder) = shared(&format!("checkpoints/{family}")) {
            checkpoints.push((family.to_owned(), changed(&folder, &json!({})), bound));
        }
    }
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny_models");
    for (family, changes, bound) in [
        ("gemma3", json!({"query_pre_attn_scalar": 12}), EQUAL),
        ("mixtral", json!({}), EQUAL),
        ("phi3_longrope", json!({}), FACTORS),
        (
            "smollm3",
            json!({"no_rope_layers": [1, 1, 1, 0, 1], "layer_types": null}),
            EQUAL,
        ),
    ] {
        checkpoints.push((
            family.to_owned(),
            changed(&tiny.join(family), &changes),
            bound,
        ));
    }
    // Biases on queries and keys, whose rows are in another order as well.
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = RandomCheckpoint {
        qkv_bias: true,
        extra: json!({"rope_theta": 1e4, "attention_bias": true}),
        ..RandomCheckpoint::tiny("LlamaForCausalLM", 3)
    };
    checkpoint.write(folder.path()).unwrap();
    checkpoints.push(("llama with biases".to_owned(), folder, EQUAL));
    checkpoints
}

#[test]
fn floats_give_the_checkpoints_logits() {
    for (family, folder, bounds) in checkpoints() {
        let file = written(folder.path(), folder.path(), &floats(0));
        for (backend, dtype) in [
            (BackendKind::Cpu, Dtype::Float32),
            (BackendKind::Cpu, Dtype::BFloat16),
            (BackendKind::Candle, Dtype::Float32),
        ] {
            let expected = logits(folder.path(), backend, dtype);
            let found = logits(&file, backend, dtype);
            let worst = largest_difference(&found, &expected);
            let bound = bounds[usize::from(dtype == Dtype::BFloat16)];
            assert!(
                worst <= bound,
                "{family} {backend:?} {dtype:?}: off by {worst}"
            );
        }
        // bfloat16 in the file: what `--dtype bfloat16` makes of the checkpoint.
        let expected = logits(&file, BackendKind::Cpu, Dtype::BFloat16);
        let file = written(folder.path(), folder.path(), &floats(30));
        for dtype in [Dtype::BFloat16, Dtype::Auto] {
            let found = logits(&file, BackendKind::Cpu, dtype);
            assert_eq!(bits(&found), bits(&expected), "{family} {dtype:?}");
        }
    }
}

#[test]
fn half_precision_is_read_exactly() {
    for (family, folder, _) in checkpoints() {
        let file = written(folder.path(), folder.path(), &floats(1));
        let found = logits(&file, BackendKind::Cpu, Dtype::Float32);
        let rounded = |name: &str, shape: &[usize], values: &[f32]| {
            let is_small = shape.len() == 1 || name.contains("ffn_gate_inp");
            let values: Vec<f32> = values
                .iter()
                .map(|value| {
                    if is_small {
                        *value
                    } else {
                        f16::from_f32(*value).to_f32()
                    }
                })
                .collect();
            floats(0)(name, shape, &values)
        };
        let file = written(folder.path(), folder.path(), &rounded);
        let expected = logits(&file, BackendKind::Cpu, Dtype::Float32);
        assert_eq!(bits(&found), bits(&expected), "{family}");
    }
}

const QUANTIZED: [GgmlDType; 8] = [
    GgmlDType::Q8_0,
    GgmlDType::Q5_0,
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_1,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
];

fn number(dtype: GgmlDType) -> u32 {
    match dtype {
        GgmlDType::Q8_0 => 8,
        GgmlDType::Q5_0 => 6,
        GgmlDType::Q4_0 => 2,
        GgmlDType::Q4_1 => 3,
        GgmlDType::Q5_1 => 7,
        GgmlDType::Q4K => 12,
        GgmlDType::Q5K => 13,
        GgmlDType::Q6K => 14,
        other => panic!("{other:?}"),
    }
}

fn quantize(dtype: GgmlDType, shape: &[usize], values: &[f32]) -> QTensor {
    let tensor = Tensor::from_slice(values, shape, &Device::Cpu).unwrap();
    QTensor::quantize(&tensor, dtype).unwrap()
}

/// Matrices in one quantized format.
fn quantized(dtype: GgmlDType) -> impl Fn(&str, &[usize], &[f32]) -> (u32, Vec<u8>) {
    move |name, shape, values| {
        if shape.len() == 1 || name.contains("ffn_gate_inp") {
            return floats(0)(name, shape, values);
        }
        let tensor = quantize(dtype, shape, values);
        (number(dtype), tensor.data().unwrap().to_vec())
    }
}

/// The same values in F32.
fn dequantized(dtype: GgmlDType) -> impl Fn(&str, &[usize], &[f32]) -> (u32, Vec<u8>) {
    move |name, shape, values| {
        if shape.len() == 1 || name.contains("ffn_gate_inp") {
            return floats(0)(name, shape, values);
        }
        let tensor = quantize(dtype, shape, values)
            .dequantize(&Device::Cpu)
            .unwrap();
        let values: Vec<f32> = tensor.flatten_all().unwrap().to_vec1().unwrap();
        floats(0)(name, shape, &values)
    }
}

/// Wide enough for blocks of 256.
fn wide(architecture: &'static str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = RandomCheckpoint {
        hidden_size: 256,
        intermediate_size: 512,
        num_hidden_layers: 2,
        num_attention_heads: 8,
        num_key_value_heads: 4,
        head_dim: 32,
        vocab_size: 320,
        extra: match architecture {
            "MixtralForCausalLM" => json!({"num_local_experts": 4, "num_experts_per_tok": 2}),
            _ => json!({"rope_theta": 1e4}),
        },
        ..RandomCheckpoint::tiny(architecture, 5)
    };
    checkpoint.write(folder.path()).unwrap();
    folder
}

#[test]
fn quantized_matrices_hold_what_the_file_holds() {
    for architecture in ["LlamaForCausalLM", "Qwen2ForCausalLM"] {
        let folder = wide(architecture);
        for dtype in QUANTIZED {
            let write = |encode: Encode<'_>| written(folder.path(), folder.path(), encode);
            let file = write(&quantized(dtype));
            let ours = logits(&file, BackendKind::Cpu, Dtype::Float32);
            let kept = logits(&file, BackendKind::Candle, Dtype::Float32);
            let file = write(&dequantized(dtype));
            let exact = logits(&file, BackendKind::Candle, Dtype::Float32);
            let case = format!("{architecture} {dtype:?}");
            match dtype {
                // Kept in 8 bits.
                GgmlDType::Q4_1 | GgmlDType::Q5_1 => {
                    let same = cosine(&kept, &exact);
                    println!("{case}: {same}");
                    assert!(same > 0.999, "{case}: {same}");
                }
                // Nothing is rounded a second time.
                _ => assert_eq!(bits(&kept), bits(&exact), "{case}"),
            }
            // The kernels round activations to 8 bits as well.
            let same = cosine(&ours, &exact);
            assert!(same > 0.998, "{case}: {same}");
        }
    }
}

#[test]
fn parts_of_one_matrix_may_have_different_formats() {
    let folder = wide("LlamaForCausalLM");
    let format = |name: &str| match name {
        _ if name.contains("attn_q.") => Some(GgmlDType::Q4_0),
        _ if name.contains("attn_k.") => Some(GgmlDType::Q8_0),
        _ if name.contains("ffn_up") => None,
        _ if name.contains("ffn_gate") => Some(GgmlDType::Q4K),
        _ => Some(GgmlDType::Q6K),
    };
    let mixed = |name: &str, shape: &[usize], values: &[f32]| match format(name) {
        Some(dtype) => quantized(dtype)(name, shape, values),
        None => floats(0)(name, shape, values),
    };
    let widened = |name: &str, shape: &[usize], values: &[f32]| match format(name) {
        Some(dtype) => dequantized(dtype)(name, shape, values),
        None => floats(0)(name, shape, values),
    };
    let file = written(folder.path(), folder.path(), &mixed);
    let found = logits(&file, BackendKind::Cpu, Dtype::Float32);
    let kept = logits(&file, BackendKind::Candle, Dtype::Float32);
    let file = written(folder.path(), folder.path(), &widened);
    let exact = logits(&file, BackendKind::Candle, Dtype::Float32);
    // Each part is kept as it is.
    assert_eq!(bits(&kept), bits(&exact));
    let same = cosine(&found, &exact);
    assert!(same > 0.998, "{same}");
}

#[test]
fn parts_of_experts_may_have_different_formats() {
    let folder = wide("MixtralForCausalLM");
    let format = |name: &str| match name {
        _ if name.contains("ffn_up_exps") => GgmlDType::Q6K,
        _ if name.contains("ffn_down_exps") => GgmlDType::Q5K,
        _ => GgmlDType::Q4K,
    };
    let mixed =
        |name: &str, shape: &[usize], values: &[f32]| quantized(format(name))(name, shape, values);
    let widened = |name: &str, shape: &[usize], values: &[f32]| {
        dequantized(format(name))(name, shape, values)
    };
    let file = written(folder.path(), folder.path(), &mixed);
    let found = logits(&file, BackendKind::Cpu, Dtype::Float32);
    let file = written(folder.path(), folder.path(), &widened);
    let exact = logits(&file, BackendKind::Candle, Dtype::Float32);
    // The parts that an expert multiplies at once are brought to 8 bits.
    let same = cosine(&found, &exact);
    assert!(same > 0.99, "{same}");
}

#[test]
fn quantization_makes_a_file_coarser_and_never_finer() {
    let folder = wide("Qwen2ForCausalLM");
    let of = |path: &Path, quantization| {
        logits(
            path,
            BackendKind::Cpu,
            WeightOptions(Dtype::Float32, quantization),
        )
    };
    let file = written(folder.path(), folder.path(), &floats(0));
    for quantization in [Quantization::None, Quantization::Q8_0, Quantization::Q4_0] {
        assert_eq!(
            bits(&of(&file, quantization)),
            bits(&of(folder.path(), quantization)),
            "{quantization:?}"
        );
    }
    let file = written(folder.path(), folder.path(), &quantized(GgmlDType::Q4_0));
    let as_it_is = of(&file, Quantization::None);
    assert_eq!(bits(&of(&file, Quantization::Q8_0)), bits(&as_it_is));
    assert_eq!(bits(&of(&file, Quantization::Q4_0)), bits(&as_it_is));
    let file = written(folder.path(), folder.path(), &quantized(GgmlDType::Q4K));
    let as_it_is = of(&file, Quantization::None);
    assert_eq!(bits(&of(&file, Quantization::Q8_0)), bits(&as_it_is));
    assert_eq!(bits(&of(&file, Quantization::Q4_0)), bits(&as_it_is));
    let file = written(folder.path(), folder.path(), &quantized(GgmlDType::Q8_0));
    let as_it_is = of(&file, Quantization::None);
    assert_eq!(bits(&of(&file, Quantization::Q8_0)), bits(&as_it_is));
    let coarser = of(&file, Quantization::Q4_0);
    assert_ne!(bits(&coarser), bits(&as_it_is));
    let same = cosine(&coarser, &as_it_is);
    assert!(same > 0.9, "{same}");
}

/// A small file, changed before it is written, and the error of loading it.
fn error_with(change: impl FnOnce(&mut GgufWriter)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = RandomCheckpoint {
        num_hidden_layers: 1,
        extra: json!({"rope_theta": 1e4}),
        ..RandomCheckpoint::tiny("LlamaForCausalLM", 1)
    };
    checkpoint.write(folder.path()).unwrap();
    let mut writer = convert(folder.path(), &floats(0));
    change(&mut writer);
    error_of(&writer.bytes())
}

fn error_of(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    match load(&path, BackendKind::Cpu, Dtype::Auto, 1) {
        Ok(_) => panic!("a broken file was loaded"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_cannot_be_loaded_is_named() {
    assert_eq!(
        error_of(b"{}"),
        "model.gguf: not a GGUF file: it begins with \"{}\", not with \"GGUF\""
    );
    assert_eq!(
        error_of(&GgufWriter::new("rwkv").bytes()),
        "model.gguf: metadata general.architecture: \"rwkv\" must be llama, qwen2, qwen3, qwen3moe, gemma2, \
         gemma3, phi3 or smollm3"
    );
    assert_eq!(
        error_of(&GgufWriter::new("llama").bytes()),
        "model.gguf: the metadata lacks llama.block_count (a whole number is needed)"
    );
    for (key, part) in [
        ("llama.logit_scale", "2 must be 0 or absent"),
        ("llama.rope.scaling.factor", ""),
        ("split.count", "--merge"),
        ("llama.block_count", "twice"),
    ] {
        let error = error_with(|writer| {
            writer.u32(key, 2);
            if part.is_empty() {
                writer.str("llama.rope.scaling.type", "yarn");
            }
        });
        assert!(error.contains(part), "{error}");
        assert!(part.is_empty() || error.contains(key), "{error}");
    }
    let error = error_with(|writer| {
        writer.str("llama.rope.scaling.type", "yarn");
    });
    assert_eq!(
        error,
        "model.gguf: metadata llama.rope.scaling.type: \"yarn\" must be \"none\" or \"linear\""
    );
    let error = error_with(|writer| {
        writer.tensor("output.weight", &[203, 40], 0, &[0; 203 * 40 * 4 - 32]);
    });
    assert!(
        error.contains("the file ends at byte") && error.contains("output.weight"),
        "{error}"
    );
    let error = error_with(|writer| {
        writer.tensor("output.weight", &[203, 41], 0, &[0; 203 * 41 * 4]);
    });
    assert_eq!(
        error,
        "tensor output.weight in model.gguf has shape [203, 41], the model's configuration implies [203, 40]"
    );
    let error = error_with(|writer| {
        writer.tensor("output.weight", &[203, 40], 23, &[]);
    });
    assert_eq!(
        error,
        "tensor output.weight in model.gguf is IQ4_XS; supported are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, \
         Q5_1, Q4_K, Q5_K, Q6_K"
    );
    let error = error_with(|writer| {
        writer.tensor("rope_freqs.weight", &[3], 0, &[1; 12]);
    });
    assert!(
        error.contains("rope_freqs.weight") && error.contains("one per rotated pair"),
        "{error}"
    );

    let mut deep = GgufWriter::new("llama");
    deep.u32("llama.block_count", 1 << 27);
    for key in ["embedding_length", "attention.head_count"] {
        deep.u32(&format!("llama.{key}"), 8);
    }
    assert_eq!(
        error_of(&deep.bytes()),
        "model.gguf: metadata llama.block_count: 134217728 must be at most the number of tensors (0)"
    );

    let mut incomplete = GgufWriter::new("qwen3");
    for (key, value) in [
        ("block_count", 1),
        ("context_length", 64),
        ("embedding_length", 8),
        ("feed_forward_length", 8),
        ("attention.head_count", 2),
    ] {
        incomplete.u32(&format!("qwen3.{key}"), value);
    }
    incomplete.f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6);
    incomplete.tensor("rope_freqs.weight", &[2], 0, &[0, 0, 0x80, 0x3f].repeat(2));
    let error = error_of(&incomplete.bytes());
    assert!(error.contains("token_embd.weight: missing"), "{error}");
    incomplete.tensor("token_embd.weight", &[4, 8], 0, &[0; 128]);
    assert_eq!(
        error_of(&incomplete.bytes()),
        "tensor blk.0.attn_q_norm.weight is missing from the checkpoint ([4] expected)"
    );
}

/// The error of loading a random model's file with one more entry or tensor. Entries of `without`
/// are left out, so that the change can give them another value.
fn error_of_changed(
    architecture: &'static str,
    without: &str,
    change: impl FnOnce(&mut GgufWriter),
) -> String {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = RandomCheckpoint {
        num_hidden_layers: 2,
        ..RandomCheckpoint::tiny(architecture, 1)
    };
    checkpoint.write(folder.path()).unwrap();
    let mut writer = convert(folder.path(), &floats(0));
    writer.remove(without);
    change(&mut writer);
    error_of(&writer.bytes())
}

#[test]
fn tensors_that_the_model_does_not_use_are_refused() {
    let refused = |names: &str| {
        format!(
            "model.gguf: unknown tensors {names}: the model that the metadata describes must use \
             every tensor of the file"
        )
    };
    let error = error_of_changed("Qwen2ForCausalLM", "qwen2.block_count", |writer| {
        writer.u32("qwen2.block_count", 1);
    });
    assert_eq!(
        error,
        refused("(12): blk.1.attn_k.bias, blk.1.attn_k.weight, blk.1.attn_norm.weight, ..")
    );
    for (name, len) in [("blk.0.attn_q_norm.weight", 8), ("blk.0.ffn_up.bias", 48)] {
        let error = error_of_changed("Qwen2ForCausalLM", "", |writer| {
            writer.tensor(name, &[len], 0, &vec![0; 4 * len]);
        });
        assert_eq!(error, refused(&format!("(1): {name}")));
    }
    // One half of LongRoPE's factors.
    let error = error_of_changed("Qwen2ForCausalLM", "", |writer| {
        let ones = 1_f32.to_le_bytes().repeat(4);
        writer.tensor("rope_factors_long.weight", &[4], 0, &ones);
    });
    assert_eq!(error, refused("(1): rope_factors_long.weight"));
}

#[test]
fn numbers_must_be_finite() {
    for (architecture, key) in [
        ("Qwen2ForCausalLM", "qwen2.rope.freq_base"),
        ("Qwen2ForCausalLM", "qwen2.attention.layer_norm_rms_epsilon"),
        ("Gemma2ForCausalLM", "gemma2.attn_logit_softcapping"),
    ] {
        for (number, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
            let error = error_of_changed(architecture, key, |writer| {
                writer.f32(key, number);
            });
            assert_eq!(
                error,
                format!("model.gguf: metadata {key}: {shown} must be a finite number")
            );
        }
    }
}

#[test]
fn settings_that_would_change_the_result_are_refused() {
    let refused = |key: &str, found: &str, right: &str| {
        format!(
            "model.gguf: metadata {key}: {found} must be {right} or absent: this setting is not \
             supported"
        )
    };
    for (architecture, key, number, right) in [
        (
            "Qwen3MoeForCausalLM",
            "qwen3moe.expert_gating_func",
            2,
            "0, 1",
        ),
        (
            "Qwen3MoeForCausalLM",
            "qwen3moe.expert_weights_scale",
            3,
            "0, 1",
        ),
        (
            "Qwen3MoeForCausalLM",
            "qwen3moe.router_logit_softcapping",
            30,
            "0",
        ),
        ("Qwen2ForCausalLM", "qwen2.attn_logit_softcapping", 50, "0"),
        ("Qwen2ForCausalLM", "qwen2.final_logit_softcapping", 30, "0"),
        (
            "Qwen2ForCausalLM",
            "qwen2.rope.scaling.attn_factor",
            2,
            "0, 1",
        ),
    ] {
        let error = error_of_changed(architecture, "", |writer| {
            writer.f32(key, number as f32);
        });
        assert_eq!(error, refused(key, &number.to_string(), right));
    }
    for (key, right) in [
        ("qwen2.attention.causal", true),
        ("qwen2.expert_weights_norm", true),
        ("qwen2.use_parallel_residual", false),
    ] {
        let error = error_of_changed("Qwen2ForCausalLM", "", |writer| {
            writer.bool(key, !right);
        });
        let (found, right) = ((!right).to_string(), right.to_string());
        assert_eq!(error, refused(key, &found, &right));
    }
    let key = "gemma3.attention.sliding_window_pattern";
    let error = error_of_changed("Gemma3ForCausalLM", key, |writer| {
        writer.u32(key, 4);
    });
    assert_eq!(
        error,
        format!("model.gguf: metadata {key}: 4 must be 6 or absent: no other pattern is supported")
    );

    // What changes nothing may stand there.
    let folder = tempfile::tempdir().unwrap();
    RandomCheckpoint::tiny("Qwen2ForCausalLM", 1)
        .write(folder.path())
        .unwrap();
    let mut writer = convert(folder.path(), &floats(0));
    writer
        .u32("qwen2.expert_gating_func", 1)
        .f32("qwen2.expert_weights_scale", 1.0)
        .bool("qwen2.expert_weights_norm", true)
        .bool("qwen2.attention.causal", true)
        .f32("qwen2.final_logit_softcapping", 0.0);
    let path = folder.path().join("model.gguf");
    writer.write(&path).unwrap();
    load(&path, BackendKind::Cpu, Dtype::Auto, 1).unwrap();
}

#[test]
fn settings_are_named_by_their_keys() {
    let error = error_of_changed("Qwen2ForCausalLM", "qwen2.rope.freq_base", |writer| {
        writer.f32("qwen2.rope.freq_base", -1.0);
    });
    assert!(
        error.starts_with("model.gguf: qwen2.rope.freq_base: -1"),
        "{error}"
    );
    let key = "qwen2.attention.head_count_kv";
    let error = error_of_changed("Qwen2ForCausalLM", key, |writer| {
        writer.u32(key, 4);
    });
    assert!(
        error.contains("head_count_kv: 4 must divide qwen2.attention.head_count ("),
        "{error}"
    );
}

#[test]
fn changed_bytes_are_loaded_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = RandomCheckpoint {
        num_hidden_layers: 1,
        hidden_size: 32,
        intermediate_size: 32,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 16,
        vocab_size: 40,
        ..RandomCheckpoint::tiny("LlamaForCausalLM", 2)
    };
    checkpoint.write(folder.path()).unwrap();
    let bytes = convert(folder.path(), &quantized(GgmlDType::Q4_0)).bytes();
    let path = folder.path().join("model.gguf");
    let header = bytes.len() - checkpoint.tensors().len();
    let mut random = Random(1);
    let (mut loaded, mut refused) = (0, 0);
    for case in 0..3000 {
        let mut bytes = bytes.clone();
        for _ in 0..1 + random.below(3) {
            // Mostly the header, which is the shorter part.
            let end = if random.below(4) == 0 {
                header
            } else {
                header.min(3000)
            };
            bytes[random.below(end)] = random.next() as u8;
        }
        if case % 5 == 0 {
            bytes.truncate(random.below(bytes.len()));
        }
        std::fs::write(&path, &bytes).unwrap();
        match load(&path, BackendKind::Cpu, Dtype::Float32, 1) {
            Ok(_) => loaded += 1,
            Err(error) => {
                assert!(error.to_string().len() < 1000);
                refused += 1;
            }
        }
    }
    println!("{loaded} loaded, {refused} refused");
    assert!(
        refused > 1000 && loaded > 100,
        "{loaded} loaded, {refused} refused"
    );
}

#[test]
fn a_model_has_the_files_name_and_its_context() {
    let folder = wide("Qwen2ForCausalLM");
    let file = written(folder.path(), folder.path(), &quantized(GgmlDType::Q8_0));
    let link = folder.path().join("other.gguf");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for (path, name) in [(&file, "model.gguf"), (&link, "other.gguf")] {
        let model = load(path, BackendKind::Cpu, Dtype::Auto, 1).unwrap();
        assert_eq!(model.name(), name);
        assert_eq!(model.config().max_position_embeddings, 512);
        assert_eq!(model.dtype().as_str(), "bfloat16");
    }
}
