//! What rows of the LM head cost: all of them, or those of some tokens.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benchmarks::statistics::Summary;
use engine_core::model_executor::{
    ComputePool, ForwardInput, LoadOptions, ModelLimits, load_model,
};
use protocol::{BackendKind, Dtype, ModelSource, Quantization};

/// Numbers of tokens that are measured.
const NUM_TOKENS: [usize; 6] = [1, 64, 512, 4096, 16_384, 65_536];
const ROUNDS: usize = 9;

/// Prints the time of one full row, and of the logits of a few tokens of it.
pub(crate) fn measure(folder: &Path, num_threads: usize) -> anyhow::Result<()> {
    let pool = Arc::new(ComputePool::new(num_threads)?);
    let options = LoadOptions {
        dtype: Dtype::Auto,
        quantization: Quantization::None,
        backend: BackendKind::Cpu,
        heartbeat: Arc::default(),
    };
    let source = ModelSource::Path(folder.to_owned());
    let mut model = load_model(&source, &options, pool, &mut |_| ())?.into_model(&ModelLimits {
        num_blocks: 8,
        block_size: 16,
        max_num_batched_tokens: 16,
        max_num_logits_rows: 16,
        max_num_seqs: 1,
        max_model_len: 64,
    })?;
    model.forward(&ForwardInput {
        input_ids: &[1000],
        positions: &[0],
        slot_mapping: &[16],
        query_start_loc: &[0, 1],
        seq_lens: &[1],
        block_tables: &[1],
        block_table_stride: 1,
        logits_indices: &[0],
    })?;
    let vocab_size = model.vocab_size();
    let mut logits = vec![0.0; vocab_size];
    let full = time(|| model.compute_logits(0..1, &mut logits))?;
    println!("\n| tokens | time | of a full row |\n|---|---|---|");
    for num_tokens in NUM_TOKENS {
        // Spread over the vocabulary, as a mask's are.
        let token_ids: Vec<u32> = (0..num_tokens)
            .map(|index| (index * vocab_size / num_tokens) as u32)
            .collect();
        let mut few = vec![0.0; num_tokens];
        let took = time(|| model.compute_logits_for(0, &token_ids, &mut few))?;
        let share = took.as_secs_f64() / full.as_secs_f64();
        println!("| {num_tokens} | {took:.1?} | {:.2} % |", 100.0 * share);
    }
    println!("| {vocab_size} | {full:.1?} | a full row |");
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
