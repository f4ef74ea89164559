//! Drives a [`CausalLm`] as the engine's runner does, with its own block tables.

#![allow(unreachable_pub, reason = "support of several test files")]
#![allow(dead_code, reason = "each test file needs a part of it")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use engine_core::model_executor::{
    CausalLm, ComputePool, ForwardInput, LoadOptions, LoadedModel, ModelError, ModelLimits,
    load_model,
};
use protocol::{BackendKind, Dtype, KvCacheDtype, ModelSource, Quantization};

pub const BLOCK_SIZE: usize = 16;
pub const NUM_BLOCKS: usize = 64;

pub const LIMITS: ModelLimits = ModelLimits {
    num_blocks: NUM_BLOCKS,
    block_size: BLOCK_SIZE,
    max_num_batched_tokens: 512,
    max_num_logits_rows: 256,
    max_num_seqs: 16,
    max_model_len: 512,
};

/// The folder with data for tests, if it is there. Absent in CI it is a failure.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FORMWORK_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let path = root.join(path);
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "{} is missing",
        path.display()
    );
    // Past the test harness, which keeps what `println!` says of a test that passes.
    let _ = writeln!(std::io::stderr(), "skipped: {} is missing", path.display());
    None
}

/// A dtype, and a quantization where one is given.
#[derive(Debug, Clone, Copy)]
pub struct WeightOptions(pub Dtype, pub Quantization);

impl From<Dtype> for WeightOptions {
    fn from(dtype: Dtype) -> Self {
        Self(dtype, Quantization::None)
    }
}

pub fn load(
    folder: &Path,
    backend: BackendKind,
    format: impl Into<WeightOptions>,
    num_threads: usize,
) -> Result<LoadedModel, ModelError> {
    load_with(folder, backend, format, KvCacheDtype::Auto, num_threads)
}

pub fn load_with(
    folder: &Path,
    backend: BackendKind,
    format: impl Into<WeightOptions>,
    kv_cache_dtype: KvCacheDtype,
    num_threads: usize,
) -> Result<LoadedModel, ModelError> {
    load_cached(folder, backend, format, kv_cache_dtype, num_threads, None)
}

/// With the cache of quantized weights from `weight_cache` bytes on.
pub fn load_cached(
    folder: &Path,
    backend: BackendKind,
    format: impl Into<WeightOptions>,
    kv_cache_dtype: KvCacheDtype,
    num_threads: usize,
    weight_cache: Option<u64>,
) -> Result<LoadedModel, ModelError> {
    let WeightOptions(dtype, quantization) = format.into();
    let options = LoadOptions {
        dtype,
        kv_cache_dtype,
        quantization,
        weight_cache,
        shared_weights: None,
        available_bytes: None,
        backend,
        heartbeat: Arc::new(AtomicU64::new(0)),
    };
    let pool = Arc::new(ComputePool::new(num_threads).unwrap());
    load_model(
        &ModelSource::Path(folder.to_owned()),
        &options,
        pool,
        &mut |_| {},
    )
}

/// One sequence in the cache.
#[derive(Clone)]
pub struct Sequence {
    pub token_ids: Vec<u32>,
    pub num_computed_tokens: usize,
    pub block_table: Vec<u32>,
}

impl Sequence {
    pub fn new(token_ids: &[u32], block_table: &[u32]) -> Self {
        Self {
            token_ids: token_ids.to_vec(),
            num_computed_tokens: 0,
            block_table: block_table.to_vec(),
        }
    }
}

pub struct Runner {
    pub model: Box<dyn CausalLm>,
}

impl Runner {
    pub fn new(
        folder: &Path,
        backend: BackendKind,
        format: impl Into<WeightOptions>,
        num_threads: usize,
    ) -> Self {
        Self::with_cache(folder, backend, format, KvCacheDtype::Auto, num_threads)
    }

    pub fn with_cache(
        folder: &Path,
        backend: BackendKind,
        format: impl Into<WeightOptions>,
        kv_cache_dtype: KvCacheDtype,
        num_threads: usize,
    ) -> Self {
        let loaded = load_with(folder, backend, format, kv_cache_dtype, num_threads).unwrap();
        Self {
            model: loaded.into_model(&LIMITS).unwrap(),
        }
    }

    /// The logits behind `ids` and one token more, of which a step computes that one alone: the others' keys and
    /// values are those of the rows of another request, which has them at its beginning, or are in full blocks.
    /// Sequences of 17 to 31 tokens.
    pub fn sharing(&mut self, ids: &[u32], own: u32) -> Vec<f32> {
        let len = ids.len() as u32;
        let input_ids = [ids, &[202, own]].concat();
        let positions: Vec<u32> = (0..=len).chain([len]).collect();
        let slots: Vec<u32> = (0..=len).map(|at| 16 + at).chain([96 + len - 16]).collect();
        let shared_rows: Vec<u32> = (16..len).collect();
        let shared_slots: Vec<u32> = (0..len - 16).map(|at| 96 + at).collect();
        self.model
            .forward(&ForwardInput {
                input_ids: &input_ids,
                positions: &positions,
                slot_mapping: &slots,
                shared_rows: &shared_rows,
                shared_slots: &shared_slots,
                query_start_loc: &[0, len + 1, len + 2],
                seq_lens: &[len + 1, len + 1],
                block_tables: &[1, 2, 1, 6],
                block_table_stride: 2,
                token_type_ids: &[],
                logits_indices: &[len + 1],
            })
            .unwrap();
        let mut logits = vec![0.0; self.model.vocab_size()];
        self.model.compute_logits(0..1, &mut logits).unwrap();
        logits
    }

    /// One step: the next `count` tokens of each sequence. Returns each one's last logits row.
    pub fn step(&mut self, batch: &mut [(&mut Sequence, usize)]) -> Vec<Vec<f32>> {
        let stride = batch
            .iter()
            .map(|(sequence, _)| sequence.block_table.len())
            .max()
            .unwrap();
        let (mut ids, mut positions, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        let (mut starts, mut seq_lens, mut tables) = (vec![0], Vec::new(), Vec::new());
        let mut indices = Vec::new();
        for (sequence, count) in batch.iter_mut() {
            for position in sequence.num_computed_tokens..sequence.num_computed_tokens + *count {
                let block = sequence.block_table[position / BLOCK_SIZE];
                ids.push(sequence.token_ids[position]);
                positions.push(position as u32);
                slots.push(block * BLOCK_SIZE as u32 + (position % BLOCK_SIZE) as u32);
            }
            sequence.num_computed_tokens += *count;
            starts.push(ids.len() as u32);
            indices.push(ids.len() as u32 - 1);
            seq_lens.push(sequence.num_computed_tokens as u32);
            tables.extend_from_slice(&sequence.block_table);
            tables.resize(seq_lens.len() * stride, 0);
        }
        self.model
            .forward(&ForwardInput {
                input_ids: &ids,
                positions: &positions,
                slot_mapping: &slots,
                shared_rows: &[],
                shared_slots: &[],
                query_start_loc: &starts,
                seq_lens: &seq_lens,
                block_tables: &tables,
                block_table_stride: stride,
                token_type_ids: &[],
                logits_indices: &indices,
            })
            .unwrap();
        let vocab_size = self.model.vocab_size();
        let mut logits = vec![0.0; indices.len() * vocab_size];
        self.model
            .compute_logits(0..indices.len(), &mut logits)
            .unwrap();
        logits
            .chunks_exact(vocab_size)
            .map(<[f32]>::to_vec)
            .collect()
    }

    /// The rest of one sequence in chunks; the last logits row.
    pub fn prefill(&mut self, sequence: &mut Sequence, chunk: usize) -> Vec<f32> {
        let mut logits = Vec::new();
        while sequence.num_computed_tokens < sequence.token_ids.len() {
            let left = sequence.token_ids.len() - sequence.num_computed_tokens;
            logits = self
                .step(&mut [(&mut *sequence, chunk.min(left))])
                .remove(0);
        }
        logits
    }
}

/// The place of the largest of the first `vocab_size` logits.
pub fn argmax(logits: &[f32], vocab_size: usize) -> u32 {
    let mut best = 0;
    for (id, logit) in logits[..vocab_size].iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

/// Bits, so that equality means bit-identity.
pub fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// The cosine of the angle between two rows of logits.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        std::iter::zip(a, b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}
