//! What a broken checkpoint gets: an error that names the thing and what would be right.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod model_runner;
mod random_checkpoint;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine_core::model_executor::{
    CheckpointFiles, ComputePool, ForwardInput, LoadOptions, ModelLimits, load_model,
    load_model_files,
};
use model_runner::{LIMITS, Runner, Sequence, load};
use protocol::{BackendKind, Dtype, ModelSource};
use random_checkpoint::RandomCheckpoint;
use serde_json::{Value, json};

fn tiny() -> RandomCheckpoint {
    RandomCheckpoint::tiny("LlamaForCausalLM", 1)
}

/// Writes a good checkpoint, lets `damage` change the folder, and returns the error of loading.
fn error_after(checkpoint: &RandomCheckpoint, damage: impl FnOnce(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    checkpoint.write(folder.path()).unwrap();
    damage(folder.path());
    match load(folder.path(), BackendKind::Cpu, Dtype::Auto, 1) {
        Ok(_) => panic!("a damaged checkpoint was loaded"),
        Err(error) => error.to_string(),
    }
}

fn change_config(folder: &Path, change: impl FnOnce(&mut Value)) {
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
}

fn assert_names(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in: {message}");
    }
}

#[test]
fn a_path_without_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let error = load(&missing, BackendKind::Cpu, Dtype::Auto, 1)
        .err()
        .unwrap()
        .to_string();
    assert_names(&error, &["missing", "folder with config.json"]);

    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let error = load(&file, BackendKind::Cpu, Dtype::Auto, 1)
        .err()
        .unwrap()
        .to_string();
    assert_names(&error, &["file", "not a GGUF file"]);
}

#[test]
fn missing_files() {
    let remove =
        |name: &'static str| move |folder: &Path| std::fs::remove_file(folder.join(name)).unwrap();
    assert_names(
        &error_after(&tiny(), remove("config.json")),
        &["config.json", "missing"],
    );
    let error = error_after(&tiny(), remove("model.safetensors"));
    assert_names(
        &error,
        &[
            "model.safetensors",
            "missing",
            "model.safetensors.index.json",
        ],
    );
    let sharded = RandomCheckpoint {
        num_shards: 3,
        ..tiny()
    };
    let error = error_after(&sharded, remove("model-00002-of-00003.safetensors"));
    assert_names(&error, &["model-00002-of-00003.safetensors", "missing"]);
}

#[test]
fn broken_json() {
    let write = |name: &'static str, text: &'static str| {
        move |folder: &Path| std::fs::write(folder.join(name), text).unwrap()
    };
    assert_names(
        &error_after(&tiny(), write("config.json", "{\"a\":")),
        &["config.json", "not JSON"],
    );
    assert_names(
        &error_after(&tiny(), write("config.json", "")),
        &["config.json", "not JSON"],
    );
    let sharded = RandomCheckpoint {
        num_shards: 2,
        ..tiny()
    };
    let index = "model.safetensors.index.json";
    assert_names(
        &error_after(&sharded, write(index, "[1")),
        &[index, "not JSON"],
    );
    assert_names(
        &error_after(&sharded, write(index, "{}")),
        &[index, "weight_map"],
    );
    let out = r#"{"weight_map": {"x": "../other.safetensors"}}"#;
    assert_names(
        &error_after(&sharded, write(index, out)),
        &[index, "../other.safetensors"],
    );
}

#[test]
fn an_unknown_architecture_lists_the_supported_ones() {
    let error = error_after(&tiny(), |folder| {
        change_config(folder, |config| {
            config["architectures"] = json!(["GPT2LMHeadModel"])
        });
    });
    assert_names(
        &error,
        &[
            "GPT2LMHeadModel",
            "LlamaForCausalLM",
            "MistralForCausalLM",
            "Qwen2ForCausalLM",
            "Qwen3ForCausalLM",
        ],
    );
}

#[test]
fn a_missing_tensor_is_named_with_its_shape() {
    let error = error_after(&tiny(), |folder| {
        change_config(folder, |config| config["num_hidden_layers"] = json!(4));
    });
    assert_names(&error, &["model.layers.3.", "is missing", "[108, 40]"]);
    let error = error_after(&tiny(), |folder| {
        change_config(folder, |config| {
            config["tie_word_embeddings"] = json!(false)
        });
    });
    assert_names(&error, &["lm_head.weight", "is missing", "[203, 40]"]);
}

#[test]
fn a_misshapen_tensor_is_named_with_both_shapes() {
    let error = error_after(&tiny(), |folder| {
        change_config(folder, |config| config["intermediate_size"] = json!(76));
    });
    assert_names(
        &error,
        &[
            "model.layers.0.mlp.gate_proj.weight",
            "model.safetensors",
            "[75, 40]",
            "[76, 40]",
        ],
    );
}

#[test]
fn a_tensor_of_another_format_is_named() {
    let error = error_after(&tiny(), |folder| {
        let data = vec![0u8; 203 * 40];
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::U8, vec![203, 40], &data);
        let tensors = [("model.embed_tokens.weight", view.unwrap())];
        safetensors::serialize_to_file(tensors, None, &folder.join("model.safetensors")).unwrap();
    });
    assert_names(&error, &["model.embed_tokens.weight", "U8", "BF16"]);
}

#[test]
fn a_truncated_file_is_refused_at_any_length() {
    let whole = {
        let folder = tempfile::tempdir().unwrap();
        tiny().write(folder.path()).unwrap();
        std::fs::read(folder.path().join("model.safetensors")).unwrap()
    };
    for len in [0, 1, 7, 8, 9, 100, whole.len() / 2, whole.len() - 1] {
        let error = error_after(&tiny(), |folder| {
            std::fs::write(folder.join("model.safetensors"), &whole[..len]).unwrap();
        });
        assert_names(
            &error,
            &["model.safetensors", "not a complete safetensors file"],
        );
    }
    let error = error_after(&tiny(), |folder| {
        std::fs::write(folder.join("model.safetensors"), [0xff; 64]).unwrap();
    });
    assert_names(
        &error,
        &["model.safetensors", "not a complete safetensors file"],
    );
}

#[test]
fn settings_that_are_not_implemented_are_refused_by_name() {
    for (field, value, part) in [
        ("hidden_act", json!("gelu"), "silu"),
        (
            "quantization_config",
            json!({"quant_method": "aqlm"}),
            "aqlm",
        ),
        (
            "rope_scaling",
            json!({"rope_type": "yarn", "factor": 4.0}),
            "llama3",
        ),
    ] {
        let error = error_after(&tiny(), |folder| {
            change_config(folder, |config| config[field] = value);
        });
        assert_names(&error, &[field, part]);
    }
}

#[test]
fn limits_that_cannot_be_served_are_named() {
    let folder = tempfile::tempdir().unwrap();
    tiny().write(folder.path()).unwrap();
    for (limits, field) in [
        (
            ModelLimits {
                num_blocks: 0,
                ..LIMITS
            },
            "num_blocks",
        ),
        (
            ModelLimits {
                max_num_seqs: 0,
                ..LIMITS
            },
            "max_num_seqs",
        ),
        (
            ModelLimits {
                block_size: 12,
                ..LIMITS
            },
            "block_size",
        ),
    ] {
        let loaded = load(folder.path(), BackendKind::Cpu, Dtype::Auto, 1).unwrap();
        let error = loaded.into_model(&limits).err().unwrap().to_string();
        assert_names(&error, &[field]);
    }
}

#[test]
fn weights_that_the_memory_cannot_hold_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    tiny().write(folder.path()).unwrap();
    let file = std::fs::read(folder.path().join("model.safetensors")).unwrap();
    let header_len = u64::from_le_bytes(file[..8].try_into().unwrap());
    let num_bytes = file.len() as u64 - 8 - header_len;
    let error = |dtype, available_bytes| {
        let options = LoadOptions {
            dtype,
            kv_cache_dtype: protocol::KvCacheDtype::Auto,
            quantization: protocol::Quantization::None,
            weight_cache: None,
            shared_weights: None,
            available_bytes: Some(available_bytes),
            backend: BackendKind::Cpu,
            heartbeat: Arc::default(),
        };
        let source = ModelSource::Path(folder.path().to_owned());
        let pool = Arc::new(ComputePool::new(1).unwrap());
        let loaded = load_model(&source, &options, pool, &mut |_| ());
        loaded.err().map(|error| error.to_string())
    };
    assert_eq!(error(Dtype::Float32, num_bytes), None);
    assert_eq!(error(Dtype::BFloat16, num_bytes / 2), None);
    let refused = |format| {
        Some(format!(
            "the model's weights take at least 1 MiB ({format}), and 0 MiB of memory are free: make room, or take a \
             smaller model or fewer bits (quantization q8_0, then q4_0)"
        ))
    };
    assert_eq!(error(Dtype::Float32, num_bytes - 1), refused("float32"));
    let half = num_bytes / 2 - 1;
    assert_eq!(error(Dtype::BFloat16, half), refused("bfloat16"));
}

#[test]
fn embedded_files_load_with_progress_and_a_heartbeat() {
    let folder = tempfile::tempdir().unwrap();
    tiny().write(folder.path()).unwrap();
    let files = ["config.json", "model.safetensors"].map(|name| {
        let bytes: &'static [u8] = std::fs::read(folder.path().join(name)).unwrap().leak();
        (name.to_owned(), bytes)
    });
    let heartbeat = Arc::new(AtomicU64::new(0));
    let options = LoadOptions {
        dtype: Dtype::Auto,
        kv_cache_dtype: protocol::KvCacheDtype::Auto,
        quantization: protocol::Quantization::None,
        weight_cache: None,
        shared_weights: None,
        available_bytes: None,
        backend: BackendKind::Cpu,
        heartbeat: Arc::clone(&heartbeat),
    };
    let mut reports = Vec::new();
    let loaded = load_model_files(
        "tiny",
        &CheckpointFiles::Embedded(files.to_vec()),
        &options,
        Arc::new(ComputePool::new(2).unwrap()),
        &mut |progress| reports.push(progress),
    )
    .unwrap();
    assert_eq!(loaded.name(), "tiny");
    assert_eq!(loaded.config().num_hidden_layers, 3);
    // 3 layers, 2 heads, 16 tokens, 18 and 32 numbers, f32.
    assert_eq!(
        loaded.kv_cache_bytes_per_block(16),
        3 * 2 * 16 * (18 + 32) * 4
    );
    assert!(reports.len() > 10);
    assert!(
        reports
            .windows(2)
            .all(|pair| pair[0].done_bytes <= pair[1].done_bytes)
    );
    let last = reports.last().unwrap();
    assert_eq!(last.done_bytes, last.total_bytes);

    let mut runner = Runner {
        model: loaded.into_model(&LIMITS).unwrap(),
    };
    let embedded = runner.prefill(&mut Sequence::new(&[1, 2, 3], &[1]), 3);
    assert_eq!(heartbeat.load(Ordering::Relaxed), 3);
    let mut runner = Runner::new(folder.path(), BackendKind::Cpu, Dtype::Auto, 1);
    assert_eq!(
        embedded,
        runner.prefill(&mut Sequence::new(&[1, 2, 3], &[1]), 3)
    );
}

#[test]
fn logits_of_rows_that_are_not_there_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    tiny().write(folder.path()).unwrap();
    for backend in [BackendKind::Cpu, BackendKind::Candle] {
        let mut runner = Runner::new(folder.path(), backend, Dtype::Auto, 1);
        let mut logits = vec![0.0; 203];
        assert!(
            runner.model.compute_logits(0..1, &mut logits).is_err(),
            "before any step"
        );
        runner.prefill(&mut Sequence::new(&[1, 2, 3], &[1]), 3);
        runner.model.compute_logits(0..1, &mut logits).unwrap();
        runner.model.compute_logits(0..0, &mut []).unwrap();
        let model = &mut runner.model;
        assert_names(
            &model
                .compute_logits(0..1, &mut logits[1..])
                .unwrap_err()
                .to_string(),
            &["202", "203"],
        );
        assert_names(
            &model
                .compute_logits(1..2, &mut logits)
                .unwrap_err()
                .to_string(),
            &["rows", "1..2"],
        );
        let error = model
            .compute_logits_for(&[(0, &[203])], &mut [0.0])
            .unwrap_err()
            .to_string();
        assert_names(&error, &["token_ids", "203"]);
        assert!(model.compute_logits_for(&[(1, &[5])], &mut [0.0]).is_err());

        // An empty batch is no error and leaves no rows.
        let empty = ForwardInput {
            input_ids: &[],
            positions: &[],
            slot_mapping: &[],
            shared_rows: &[],
            shared_slots: &[],
            query_start_loc: &[0],
            seq_lens: &[],
            block_tables: &[],
            block_table_stride: 0,
            token_type_ids: &[],
            logits_indices: &[],
        };
        model.forward(&empty).unwrap();
        assert!(model.compute_logits(0..1, &mut logits).is_err());
    }
}
