//! A model's folder: its weight cache, the headers of its weights, their index, its configuration.
//!
//! The first byte of an input says what the rest is; everything else of the folder is whole:
//! `e` edits of the weight cache as it was written, `t` the cache's table, `s` the header of
//! `model.safetensors`, `i` the index of shards, `c` `config.json`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use engine_core::model_executor::{
    CausalLm, ComputePool, ForwardInput, LoadOptions, LoadedModel, ModelLimits, load_model,
};
use protocol::{BackendKind, Dtype, KvCacheDtype, ModelSource, Quantization};
use serde_json::{Value, json};

use crate::memory::Meter;
use crate::{Random, scratch};

/// How a weight cache begins and ends.
const MARK: &[u8; 16] = b"formwork weights";
/// What a table has in place of the model's fingerprint, which is another one in each run.
const FINGERPRINT: &str = "FINGERPRINT";

const VOCAB_SIZE: usize = 64;

/// Loads the folder with one file of it replaced.
pub(crate) fn run(data: &[u8]) -> String {
    let Some((kind, rest)) = data.split_first() else {
        return "nothing".to_owned();
    };
    let folder = folder();
    let is_edited = *kind == b'e';
    let (name, contents) = match kind {
        b'e' => (folder.cache.clone(), edited(&folder.whole_cache, rest)),
        b't' => (folder.cache.clone(), folder.with_table(rest)),
        b's' => (folder.file("model.safetensors"), safetensors(rest)),
        b'i' => (folder.file("model.safetensors.index.json"), rest.to_vec()),
        b'c' => (folder.file("config.json"), rest.to_vec()),
        _ => return "another kind".to_owned(),
    };
    let before = std::fs::read(&name).ok();
    std::fs::write(&name, contents).unwrap();
    let meter = Meter::start();
    let loaded = load(&folder.path, true);
    let peak = meter.peak();
    let outcome = match loaded {
        Ok(model) => {
            // Whatever a broken cache holds, the model is the one of the folder.
            if is_edited {
                assert_eq!(logits(model), folder.logits, "the cache changed the model");
            }
            "loaded".to_owned()
        }
        Err(error) => {
            assert!(!is_edited, "a cache keeps a model from loading: {error}");
            error
        }
    };
    match before {
        Some(contents) => std::fs::write(&name, contents).unwrap(),
        None => std::fs::remove_file(&name).unwrap(),
    }
    // The next input finds the cache as it was.
    std::fs::write(&folder.cache, &folder.whole_cache).unwrap();
    let most = (64 << 20) + 16 * (data.len() + folder.whole_cache.len());
    assert!(peak <= most, "too much memory: {} MiB", peak >> 20);
    outcome
}

/// Loads a model, with a weight cache beside it where that is asked for.
pub(crate) fn load(path: &Path, quantized: bool) -> Result<LoadedModel, String> {
    static POOL: OnceLock<Arc<ComputePool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| Arc::new(ComputePool::new(1).unwrap()));
    let options = LoadOptions {
        dtype: Dtype::Auto,
        kv_cache_dtype: KvCacheDtype::Auto,
        quantization: if quantized {
            Quantization::Q8_0
        } else {
            Quantization::None
        },
        weight_cache: quantized.then_some(0),
        backend: BackendKind::Cpu,
        heartbeat: Arc::default(),
        shared_weights: None,
        available_bytes: None,
    };
    let source = ModelSource::Path(path.to_owned());
    load_model(&source, &options, Arc::clone(pool), &mut |_| {})
        .map_err(|error| crate::sketch(&error.to_string()))
}

struct Folder {
    path: PathBuf,
    cache: PathBuf,
    whole_cache: Vec<u8>,
    /// Of the model as it is.
    logits: Vec<f32>,
    fingerprint: String,
}

/// A model of one layer with its weight cache, written once.
fn folder() -> &'static Folder {
    static FOLDER: OnceLock<Folder> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let path = scratch::file("folder");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("config.json"), config().to_string()).unwrap();
        std::fs::write(
            path.join("model.safetensors"),
            safetensors(header().as_bytes()),
        )
        .unwrap();
        let logits = logits(load(&path, true).unwrap());
        let is_cache = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("formwork.")
        };
        let mut files = std::fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let cache = files.find(is_cache).expect("no weight cache");
        let whole_cache = std::fs::read(&cache).unwrap();
        let (_, table) = split(&whole_cache);
        let table: Value = serde_json::from_slice(table).unwrap();
        Folder {
            fingerprint: table["model"].as_str().unwrap().to_owned(),
            path,
            cache,
            whole_cache,
            logits,
        }
    })
}

impl Folder {
    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The cache with another table, and with what follows from it.
    fn with_table(&self, table: &[u8]) -> Vec<u8> {
        let table = String::from_utf8_lossy(table).replace(FINGERPRINT, &self.fingerprint);
        let (panels, _) = split(&self.whole_cache);
        let mut file = panels.to_vec();
        file.extend(table.bytes());
        file.extend((table.len() as u64).to_le_bytes());
        file.extend(blake3::hash(table.as_bytes()).as_bytes());
        file.extend(MARK);
        file
    }
}

/// What stands before the table of a cache, and the table.
fn split(cache: &[u8]) -> (&[u8], &[u8]) {
    let trailer = cache.len() - (8 + 32 + MARK.len());
    let table_len = u64::from_le_bytes(cache[trailer..trailer + 8].try_into().unwrap());
    cache[..trailer].split_at(trailer - table_len as usize)
}

/// A file with some bytes changed: three of an edit say where, one what.
fn edited(whole: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut file = whole.to_vec();
    for edit in edits.chunks_exact(4) {
        let at = u32::from_le_bytes([edit[0], edit[1], edit[2], 0]) as usize;
        match (at % (file.len() + 1), edit[3]) {
            (at, 0) => file.truncate(at),
            (at, value) if at < file.len() => file[at] ^= value,
            (_, value) => file.push(value),
        }
        if file.is_empty() {
            break;
        }
    }
    file
}

/// Tensors of the model and their shapes.
fn tensors() -> [(&'static str, Vec<usize>); 11] {
    [
        ("model.embed_tokens.weight", vec![VOCAB_SIZE, 32]),
        ("model.norm.weight", vec![32]),
        ("model.layers.0.input_layernorm.weight", vec![32]),
        ("model.layers.0.self_attn.q_proj.weight", vec![32, 32]),
        ("model.layers.0.self_attn.k_proj.weight", vec![16, 32]),
        ("model.layers.0.self_attn.v_proj.weight", vec![16, 32]),
        ("model.layers.0.self_attn.o_proj.weight", vec![32, 32]),
        ("model.layers.0.post_attention_layernorm.weight", vec![32]),
        ("model.layers.0.mlp.gate_proj.weight", vec![64, 32]),
        ("model.layers.0.mlp.up_proj.weight", vec![64, 32]),
        ("model.layers.0.mlp.down_proj.weight", vec![32, 64]),
    ]
}

fn config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB_SIZE,
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": true, "torch_dtype": "float32",
    })
}

/// The header of the model's safetensors file.
fn header() -> String {
    let mut at = 0;
    let mut header = serde_json::Map::new();
    for (name, shape) in tensors() {
        let end = at + 4 * shape.iter().product::<usize>();
        let tensor = json!({"dtype": "F32", "shape": shape, "data_offsets": [at, end]});
        header.insert(name.to_owned(), tensor);
        at = end;
    }
    Value::Object(header).to_string()
}

/// A file with this header and the weights of the model.
fn safetensors(header: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    let mut random = Random::new(3);
    for (_, shape) in tensors() {
        for _ in 0..shape.iter().product() {
            let value = random.below(2_001) as f32 / 1_000.0 - 1.0;
            file.extend(value.to_le_bytes());
        }
    }
    file
}

/// The logits after a few tokens.
fn logits(model: LoadedModel) -> Vec<f32> {
    let limits = ModelLimits {
        num_blocks: 4,
        block_size: 16,
        max_num_batched_tokens: 16,
        max_num_logits_rows: 16,
        max_num_seqs: 1,
        max_model_len: 32,
    };
    let mut model: Box<dyn CausalLm> = model.into_model(&limits).unwrap();
    let input = ForwardInput {
        input_ids: &[1, 2, 3],
        positions: &[0, 1, 2],
        slot_mapping: &[16, 17, 18],
        shared_rows: &[],
        shared_slots: &[],
        query_start_loc: &[0, 3],
        seq_lens: &[3],
        block_tables: &[1],
        block_table_stride: 1,
        token_type_ids: &[],
        logits_indices: &[2],
    };
    model.forward(&input).unwrap();
    let mut logits = vec![0.0; VOCAB_SIZE];
    model.compute_logits(0..1, &mut logits).unwrap();
    assert!(logits.iter().all(|logit| logit.is_finite()));
    logits
}

/// An input of any kind, whole or slightly wrong.
pub(crate) fn generate(random: &mut Random) -> Vec<u8> {
    let text = |kind: char, text: String| format!("{kind}{text}").into_bytes();
    match random.below(6) {
        0 | 1 => {
            let mut input = vec![b'e'];
            for _ in 0..1 + random.below(4) {
                let at = match random.once_in(2) {
                    // The trailer and the table are at the end.
                    true => folder().whole_cache.len() - 1 - random.below(3_000),
                    false => random.below(1 << 24),
                };
                input.extend(&(at as u32).to_le_bytes()[..3]);
                input.push(if random.once_in(8) {
                    0
                } else {
                    1 << random.below(8)
                });
            }
            input
        }
        2 => {
            let (_, table) = split(&folder().whole_cache);
            let table = String::from_utf8_lossy(table);
            text('t', table.replace(&folder().fingerprint, FINGERPRINT))
        }
        3 => text('s', header()),
        4 => {
            let mut map = serde_json::Map::new();
            for (name, _) in tensors() {
                let file = *random.pick(&[
                    "model.safetensors",
                    "model.safetensors",
                    "../a",
                    "b",
                    "",
                    "/dev/zero",
                ]);
                map.insert(name.to_owned(), file.into());
            }
            text(
                'i',
                json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string(),
            )
        }
        _ => {
            let mut config = config();
            if random.once_in(2) {
                config["architectures"] = json!([random.pick(&[
                    "LlamaForCausalLM",
                    "Qwen2ForCausalLM",
                    "Qwen3ForCausalLM",
                    "MixtralForCausalLM",
                    "Gemma2ForCausalLM",
                    "Gemma3ForCausalLM",
                    "Phi3ForCausalLM",
                    "Qwen3MoeForCausalLM",
                ])]);
            }
            let rope = ["linear", "llama3", "yarn", "longrope", "dynamic", "x"];
            if random.once_in(3) {
                config["rope_scaling"] = json!({
                    "rope_type": random.pick(&rope), "factor": random.below(9), "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
                    "short_factor": vec![1.0; random.below(20)], "long_factor": vec![1.5; random.below(20)],
                });
            }
            for _ in 0..random.below(3) {
                let field = *random.pick(&[
                    "hidden_size",
                    "num_hidden_layers",
                    "num_attention_heads",
                    "head_dim",
                    "vocab_size",
                    "max_position_embeddings",
                    "sliding_window",
                    "num_local_experts",
                    "num_experts_per_tok",
                    "layer_types",
                    "rope_theta",
                    "rms_norm_eps",
                    "final_logit_softcapping",
                    "partial_rotary_factor",
                ]);
                config[field] = random
                    .pick(&[
                        json!(0),
                        json!(1),
                        json!(2),
                        json!(-1),
                        json!(1u64 << 40),
                        json!(u64::MAX),
                        json!(1e300),
                        json!(null),
                        json!("a"),
                        json!([1, 2]),
                        json!(0.25),
                        json!(true),
                    ])
                    .clone();
            }
            text('c', config.to_string())
        }
    }
}
