//! What rows of the LM head cost: all of them, or those of some tokens.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benchmarks::statistics::Summary;
use engine_core::model_executor::{
    CausalLm, ComputePool, ForwardInput, LoadOptions, ModelLimits, load_model,
};
use protocol::{BackendKind, Dtype, ModelSource, Quantization};

/// Numbers of tokens that are measured.
const NUM_TOKENS: [usize; 8] = [1, 16, 64, 128, 256, 512, 1024, 4096];
/// Positions that are sampled in one step.
const BATCHES: [usize; 3] = [1, 8, 32];
const ROUNDS: usize = 9;

/// Prints the time of full rows by batch, and of the logits of a few tokens of one row.
pub(crate) fn measure(folder: &Path, num_threads: usize) -> anyhow::Result<()> {
    let mut model = load(folder, num_threads)?;
    run_batch(&mut *model)?;
    let vocab_size = model.vocab_size();
    let mut logits = vec![0.0; BATCHES[BATCHES.len() - 1] * vocab_size];
    println!("\n| full rows | time | per row |\n|---|---|---|");
    let mut per_row = Vec::new();
    for batch in BATCHES {
        let took = time(|| model.compute_logits(0..batch, &mut logits[..batch * vocab_size]))?;
        per_row.push(took / batch as u32);
        println!("| {batch} | {took:.1?} | {:.1?} |", took / batch as u32);
    }
    print!("\n| tokens of one row | time |");
    BATCHES
        .iter()
        .for_each(|batch| print!(" of a full row at batch {batch} |"));
    println!("\n|---|---|---|---|---|");
    for num_tokens in NUM_TOKENS {
        // Spread over the vocabulary, as a mask's are.
        let token_ids: Vec<u32> = (0..num_tokens)
            .map(|index| (index * vocab_size / num_tokens) as u32)
            .collect();
        let mut few = vec![0.0; num_tokens];
        let took = time(|| model.compute_logits_for(&[(0, &token_ids)], &mut few))?;
        print!("| {num_tokens} | {took:.1?} |");
        for full in &per_row {
            let share = took.as_secs_f64() / full.as_secs_f64();
            print!(" {:.1} % |", 100.0 * share);
        }
        println!();
    }
    Ok(())
}

fn load(folder: &Path, num_threads: usize) -> anyhow::Result<Box<dyn CausalLm>> {
    let options = LoadOptions {
        dtype: Dtype::Auto,
        kv_cache_dtype: protocol::KvCacheDtype::Auto,
        quantization: Quantization::None,
        weight_cache: None,
        shared_weights: None,
        available_bytes: None,
        backend: BackendKind::Cpu,
        heartbeat: Arc::default(),
    };
    let limits = ModelLimits {
        num_blocks: 8,
        block_size: 16,
        max_num_batched_tokens: 32,
        max_num_logits_rows: 32,
        max_num_seqs: 1,
        max_model_len: 64,
    };
    let source = ModelSource::Path(folder.to_owned());
    let pool = Arc::new(ComputePool::new(num_threads)?);
    Ok(load_model(&source, &options, pool, &mut |_| ())?.into_model(&limits)?)
}

/// A forward pass of one request whose positions are all kept.
fn run_batch(model: &mut dyn CausalLm) -> anyhow::Result<()> {
    let positions: Vec<u32> = (0..32).collect();
    let input_ids: Vec<u32> = positions.iter().map(|position| 1000 + position).collect();
    let slot_mapping: Vec<u32> = positions.iter().map(|position| 16 + position).collect();
    model.forward(&ForwardInput {
        input_ids: &input_ids,
        positions: &positions,
        slot_mapping: &slot_mapping,
        shared_rows: &[],
        shared_slots: &[],
        query_start_loc: &[0, 32],
        seq_lens: &[32],
        block_tables: &[1, 2],
        block_table_stride: 2,
        token_type_ids: &[],
        logits_indices: &positions,
    })?;
    Ok(())
}

/// The median of some calls.
fn time<E>(mut call: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let started = Instant::now();
        call()?;
        times.push(started.elapsed());
    }
    Ok(Summary::of(times).p50)
}
