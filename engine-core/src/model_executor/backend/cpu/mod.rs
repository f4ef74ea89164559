//! Our own kernels on the CPU.
//!
//! Weights are packed at load, all buffers exist before the first step, and a step allocates
//! nothing. Every output element is computed by the same operations in the same order whatever
//! the batch, the chunking and the number of threads, so a row's logits are bit-identical alone
//! and in company.

mod activation;
mod argmax;
mod attention;
mod attention_ahead;
mod attention_products;
#[cfg(target_arch = "x86_64")]
mod attention_products_x86;
mod attention_sums;
#[cfg(test)]
mod attention_tests;
mod attention_tile;
#[cfg(target_arch = "x86_64")]
mod bf16_dot;
#[cfg(target_arch = "x86_64")]
mod bf16_tiles;
mod buffer;
mod dense;
mod elementwise;
mod experts;
mod format;
mod gated;
mod grouped;
mod grouped_multiply;
#[cfg(test)]
mod grouped_tests;
mod integer;
mod integer_product;
#[cfg(target_arch = "x86_64")]
mod integer_tiles;
#[cfg(target_arch = "x86_64")]
mod integer_x86;
mod k_multiply;
mod k_quants;
#[cfg(test)]
mod k_quants_tests;
#[cfg(test)]
mod kernel_tests;
mod kv_cache;
mod layer_blocks;
mod layer_norm;
mod linear;
#[cfg(test)]
mod linear_tests;
mod multiply;
mod online_softmax;
#[cfg(test)]
mod outputs_tests;
mod packing;
mod pages;
mod panels;
mod prefetch;
mod quantized;
mod quantized_rows;
mod query_tiles;
mod shared_weights;
mod simd;
mod simd_level;
#[cfg(target_arch = "aarch64")]
mod simd_neon;
#[cfg(target_arch = "x86_64")]
mod simd_x86;
#[cfg(target_arch = "x86_64")]
mod tile_products_x86;
#[cfg(target_arch = "x86_64")]
mod tiles_x86;
mod weight_cache;
mod wide;
mod wide_multiply;
#[cfg(target_arch = "x86_64")]
mod wide_products_x86;
mod wide_rows;
#[cfg(target_arch = "x86_64")]
mod wide_tiles;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use self::activation::{Activation, for_each_row};
use self::argmax::{Argmax, Largest};
use self::attention::{Batch, Scratch};
use self::buffer::SharedMut;
use self::experts::Routing;
use self::format::Format;
pub(crate) use self::format::{Bf16, F32, Int8};
use self::gated::GroupScratch;
use self::kv_cache::{BlockShape, KvCache};
use self::linear::{Conversion, Linear, Outputs, PackedMatrix, Packing};
use self::panels::PANEL_WIDTH;
use self::query_tiles::QueryTile;
pub(crate) use self::shared_weights::{SharedWeights, is_complete};
use self::simd::{LANES, SimdLevel};
pub(crate) use self::weight_cache::WeightCache;
use super::{
    AttentionScores, AttentionShape, Backend, ExpertChoice, LayerNorm, LmHead, StepNeeds,
    not_reserved,
};
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::config::HiddenAct;
use crate::model_executor::error::ModelError;
use crate::model_executor::rotary::RotaryTable;
use crate::model_executor::weights::{StoredTensor, WeightFormat};
use crate::model_executor::{Bitmask, ForwardInput, MAX_SHARED_ROWS, ModelDtype, ModelLimits};

/// The CPU backend with its KV cache in format `F`; activations are f32.
pub(crate) struct CpuBackend<F: Format> {
    pool: Arc<ComputePool>,
    level: SimdLevel,
    dtype: ModelDtype,
    weight_cache: Arc<WeightCache>,
    shared_weights: Arc<SharedWeights>,
    /// The widest input of a matrix loaded so far.
    max_in_features: AtomicUsize,
    /// Whether a matrix loaded so far reads wide groups.
    has_wide: AtomicBool,
    step: Option<StepBuffers>,
    format: std::marker::PhantomData<F>,
}

/// The batch of the step, and what its operations share.
struct StepBuffers {
    rotary: Vec<RotaryTable>,
    routing: Routing,
    scratch: Scratch,
    group_scratch: GroupScratch,
    /// Of each thread and row.
    largest: Vec<Largest>,
    conversion: Conversion,
    input_ids: Vec<u32>,
    positions: Vec<u32>,
    slot_mapping: Vec<u32>,
    /// Rows that are written to other slots too, and these.
    shared_rows: Vec<u32>,
    shared_slots: Vec<u32>,
    logits_indices: Vec<u32>,
    /// `[num_reqs, block_table_stride]`, without the caller's unused columns.
    block_tables: Vec<u32>,
    block_table_stride: usize,
    shape: AttentionShape,
    tiles: Vec<QueryTile>,
}

impl<F: Format> CpuBackend<F> {
    /// A backend whose dense matrices are in `dtype`; quantized ones are kept in `weight_cache`, and all in
    /// `shared_weights`.
    ///
    /// # Errors
    /// The environment names a level that the processor lacks.
    pub(crate) fn new(
        pool: Arc<ComputePool>,
        dtype: ModelDtype,
        weight_cache: Arc<WeightCache>,
        shared_weights: Arc<SharedWeights>,
    ) -> Result<Self, ModelError> {
        let level = SimdLevel::chosen()?;
        tracing::info!(
            instructions = level.name(),
            threads = pool.num_threads(),
            "CPU kernels"
        );
        Ok(Self {
            pool,
            level,
            dtype,
            weight_cache,
            shared_weights,
            max_in_features: AtomicUsize::new(0),
            has_wide: AtomicBool::new(false),
            step: None,
            format: std::marker::PhantomData,
        })
    }

    /// A product of some rows of `x`, in whichever form they are there and the matrix reads.
    fn multiply(
        &mut self,
        matrix: &PackedMatrix,
        x: &Activation,
        rows: Range<usize>,
        outputs: Outputs<'_>,
        out: &mut [f32],
    ) -> Result<(), ModelError> {
        let linear = Linear {
            pool: &self.pool,
            level: self.level,
        };
        if let Some(groups) = x.groups_of(rows.clone())
            && matrix.is_wide()
        {
            return linear.multiply_wide(matrix, &groups, outputs, out);
        }
        let step = self.step.as_mut().ok_or_else(not_reserved)?;
        linear.multiply(matrix, &x.rows_of(rows), &mut step.conversion, outputs, out)
    }

    /// Bounds logits, where they have a bound.
    fn cap(&self, logits: &mut [f32], bound: Option<f32>) -> Result<(), ModelError> {
        match bound {
            None => Ok(()),
            Some(bound) => elementwise::softcap(&self.pool, self.level, logits, bound),
        }
    }

    fn step(&self) -> Result<&StepBuffers, ModelError> {
        self.step.as_ref().ok_or_else(not_reserved)
    }
}

/// `out[t] = table[ids[t]] * scale`
fn embed_rows(
    pool: &ComputePool,
    table: &PackedMatrix,
    ids: &[u32],
    scale: f32,
    out: &mut Activation,
) -> Result<(), ModelError> {
    out.set_rows(ids.len())?;
    let (width, stride) = (out.width(), out.stride());
    assert!(table.in_features() == width, "widths differ");
    let to = SharedMut::new(out.as_mut_slice());
    for_each_row(pool, ids.len(), width, &|row, _| {
        // SAFETY: each row belongs to one call.
        let to = unsafe { std::slice::from_raw_parts_mut(to.ptr(row * stride, width), width) };
        table.read_row(ids[row] as usize, to);
        if scale != 1.0 {
            to.iter_mut().for_each(|value| *value *= scale);
        }
    })?;
    Ok(())
}

impl<F: Format> Backend for CpuBackend<F> {
    type Matrix = PackedMatrix;
    type Experts = Vec<PackedMatrix>;
    type Vector = Vec<f32>;
    type Activation = Activation;
    type KvCache = KvCache<F>;

    fn load_matrix(
        &self,
        name: &str,
        in_features: usize,
        parts: &[StoredTensor<'_>],
        bias: Option<&[f32]>,
        format: WeightFormat,
    ) -> Result<PackedMatrix, ModelError> {
        self.max_in_features
            .fetch_max(in_features, Ordering::Relaxed);
        let packing = Packing {
            pool: &self.pool,
            dtype: self.dtype,
            cache: &self.weight_cache,
            shared: &self.shared_weights,
        };
        let matrix = packing.pack(name, format, in_features, parts, bias)?;
        self.has_wide.fetch_or(matrix.is_wide(), Ordering::Relaxed);
        Ok(matrix)
    }

    fn stack_matrices(&self, mut matrices: Vec<PackedMatrix>) -> Result<PackedMatrix, ModelError> {
        Ok(match matrices.len() {
            1 => matrices.swap_remove(0),
            _ => PackedMatrix::Stacked(matrices),
        })
    }

    fn join_experts(&self, experts: Vec<PackedMatrix>) -> Result<Vec<PackedMatrix>, ModelError> {
        if experts.windows(2).any(|pair| !pair[0].is_alike(&pair[1])) {
            return Err(ModelError::Config {
                field: "quantization_config".to_owned(),
                problem: "quantizes some experts of a layer and not others; all must be alike"
                    .to_owned(),
            });
        }
        Ok(experts)
    }

    fn round_to_dtype(&self, value: f32) -> f32 {
        self.dtype.round(value)
    }

    fn load_vector(&self, tensor: StoredTensor<'_>, offset: f32) -> Result<Vec<f32>, ModelError> {
        // Norms are a few kilobytes: they stay f32, rounded as the format would have them.
        Ok(tensor
            .to_f32()
            .into_iter()
            .map(|value| self.dtype.round(value) + offset)
            .collect())
    }

    fn kv_cache_bytes_per_block(&self, shape: AttentionShape, block_size: usize) -> usize {
        BlockShape::new(shape, block_size).bytes::<F>()
    }

    fn reserve(&mut self, limits: &ModelLimits, needs: StepNeeds) -> Result<(), ModelError> {
        let StepNeeds {
            shape,
            rotary,
            experts,
        } = needs;
        if !limits.block_size.is_multiple_of(LANES) {
            return Err(ModelError::Limits {
                field: "block_size",
                problem: format!("{} must be a multiple of {LANES}", limits.block_size),
            });
        }
        let (tokens, requests) = (limits.max_num_batched_tokens, limits.max_num_seqs);
        let block_table_stride = limits.max_model_len.div_ceil(limits.block_size);
        let tiles = query_tiles::most_tiles(shape, tokens, requests);
        let routing = Routing::allocate(experts, tokens);
        self.step = Some(StepBuffers {
            rotary,
            scratch: Scratch::allocate(self.pool.num_threads(), shape, limits.max_model_len)?,
            group_scratch: GroupScratch::allocate(self.pool.num_threads())?,
            largest: Vec::new(),
            conversion: Conversion::allocate(
                tokens
                    .saturating_mul(routing.rows_per_token())
                    .max(limits.max_num_logits_rows),
                self.max_in_features.load(Ordering::Relaxed),
            )?,
            routing,
            input_ids: Vec::with_capacity(tokens),
            positions: Vec::with_capacity(tokens),
            slot_mapping: Vec::with_capacity(tokens),
            shared_rows: Vec::with_capacity(MAX_SHARED_ROWS),
            shared_slots: Vec::with_capacity(MAX_SHARED_ROWS),
            logits_indices: Vec::with_capacity(limits.max_num_logits_rows),
            block_tables: Vec::with_capacity(requests * block_table_stride),
            block_table_stride,
            shape,
            tiles: Vec::with_capacity(tiles),
        });
        Ok(())
    }

    fn allocate(&self, rows: usize, width: usize) -> Result<Activation, ModelError> {
        Activation::allocate(rows, width)
    }

    fn allocate_kv_caches(
        &self,
        shape: AttentionShape,
        limits: &ModelLimits,
        num_layers: usize,
    ) -> Result<Vec<KvCache<F>>, ModelError> {
        let block = BlockShape::new(shape, limits.block_size);
        KvCache::allocate(block, limits.num_blocks, num_layers)
    }

    fn begin_step(&mut self, input: &ForwardInput<'_>) -> Result<bool, ModelError> {
        let step = self.step.as_mut().ok_or_else(not_reserved)?;
        for (to, from) in [
            (&mut step.input_ids, input.input_ids),
            (&mut step.positions, input.positions),
            (&mut step.slot_mapping, input.slot_mapping),
            (&mut step.shared_rows, input.shared_rows),
            (&mut step.shared_slots, input.shared_slots),
            (&mut step.logits_indices, input.logits_indices),
        ] {
            to.clear();
            to.extend_from_slice(from);
        }
        step.block_tables.clear();
        for row in input
            .block_tables
            .chunks_exact(input.block_table_stride.max(1))
        {
            let used = &row[..row.len().min(step.block_table_stride)];
            step.block_tables.extend_from_slice(used);
            let missing = step.block_table_stride - used.len();
            step.block_tables.extend(std::iter::repeat_n(0, missing));
        }
        query_tiles::cut_into_tiles(
            step.shape,
            input.query_start_loc,
            input.seq_lens,
            &mut step.tiles,
        );
        Ok(false)
    }

    fn embed(
        &mut self,
        table: &PackedMatrix,
        scale: f32,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        embed_rows(&self.pool, table, &self.step()?.input_ids, scale, out)
    }

    fn linear(
        &mut self,
        x: &Activation,
        matrix: &PackedMatrix,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        out.set_rows(x.rows())?;
        assert!(out.width() == matrix.out_features(), "widths differ");
        let stride = out.stride();
        let outputs = Outputs::All { stride };
        self.multiply(matrix, x, 0..x.rows(), outputs, out.as_mut_slice())
    }

    fn rms_norm(
        &mut self,
        x: &Activation,
        weight: &Vec<f32>,
        eps: f32,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        activation::rms_norm(&self.pool, self.level, x, weight, eps, out)
    }

    fn rms_norm_in_place(
        &mut self,
        x: &mut Activation,
        weight: &Vec<f32>,
        eps: f32,
    ) -> Result<(), ModelError> {
        activation::rms_norm_in_place(&self.pool, self.level, x, weight, eps)
    }

    fn add_rms_norm(
        &mut self,
        residual: &mut Activation,
        delta: &Activation,
        weight: &Vec<f32>,
        eps: f32,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        let quantizes = self.has_wide.load(Ordering::Relaxed);
        activation::add_rms_norm(
            &self.pool, self.level, residual, delta, weight, eps, quantizes, out,
        )
    }

    fn qk_norm(
        &mut self,
        qkv: &mut Activation,
        shape: AttentionShape,
        q_weight: &Vec<f32>,
        k_weight: &Vec<f32>,
        eps: f32,
    ) -> Result<(), ModelError> {
        kv_cache::qk_norm(&self.pool, self.level, qkv, shape, q_weight, k_weight, eps)
    }

    fn rotary_and_kv_write(
        &mut self,
        qkv: &mut Activation,
        shape: AttentionShape,
        rotary: Option<usize>,
        cache: &mut KvCache<F>,
    ) -> Result<(), ModelError> {
        let step = self.step()?;
        kv_cache::rotary_and_kv_write(
            &self.pool,
            self.level,
            qkv,
            shape,
            rotary.map(|index| &step.rotary[index]),
            &step.positions,
            &step.slot_mapping,
            (&step.shared_rows, &step.shared_slots),
            cache,
        )
    }

    fn paged_attention(
        &mut self,
        qkv: &Activation,
        shape: AttentionShape,
        cache: &KvCache<F>,
        scores: AttentionScores,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        let step = self.step.as_mut().ok_or_else(not_reserved)?;
        let batch = Batch {
            tiles: &step.tiles,
            block_tables: &step.block_tables,
            block_table_stride: step.block_table_stride,
        };
        let (pool, scratch) = (&self.pool, &mut step.scratch);
        attention::paged_attention(
            pool, self.level, scratch, batch, qkv, shape, cache, scores, out,
        )
    }

    fn act_and_mul(
        &mut self,
        act: HiddenAct,
        gate_up: &Activation,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        elementwise::act_and_mul(&self.pool, self.level, act, gate_up, out)
    }

    fn gated_mlp(
        &mut self,
        x: &Activation,
        (gate_up_proj, down_proj): (&PackedMatrix, &PackedMatrix),
        act: HiddenAct,
        gate_up: &mut Activation,
        mlp: &mut Activation,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        mlp.set_rows(x.rows())?;
        assert!(
            2 * mlp.width() == gate_up_proj.out_features(),
            "widths differ"
        );
        if !gate_up_proj.is_gateable() {
            self.linear(x, gate_up_proj, gate_up)?;
            self.act_and_mul(act, gate_up, mlp)?;
        } else if gate_up_proj.is_wide() && down_proj.is_wide() {
            let linear = Linear {
                pool: &self.pool,
                level: self.level,
            };
            let step = self.step.as_mut().ok_or_else(not_reserved)?;
            let rows = 0..x.rows();
            let x = match x.groups_of(rows.clone()) {
                Some(groups) => groups,
                None => {
                    let conversion = &mut step.conversion;
                    conversion.quantize_wide(linear, &x.rows_of(rows), x.width())?
                }
            };
            let (scratch, to) = (&mut step.group_scratch, mlp.as_mut_groups());
            linear.multiply_gated_wide(gate_up_proj, &x, act, scratch, to)?;
        } else {
            let stride = mlp.stride();
            let outputs = Outputs::Gated { act, stride };
            self.multiply(gate_up_proj, x, 0..x.rows(), outputs, mlp.as_mut_slice())?;
        }
        self.linear(mlp, down_proj, out)
    }

    fn route(&mut self, logits: &Activation, choice: ExpertChoice) -> Result<(), ModelError> {
        let step = self.step.as_mut().ok_or_else(not_reserved)?;
        step.routing.route(&self.pool, logits, choice)
    }

    fn gather_routed(&mut self, x: &Activation, out: &mut Activation) -> Result<(), ModelError> {
        self.step()?.routing.gather(&self.pool, x, out)
    }

    fn linear_experts(
        &mut self,
        x: &Activation,
        experts: &Vec<PackedMatrix>,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        out.set_rows(x.rows())?;
        let width = out.width();
        assert!(
            experts.iter().all(|matrix| matrix.out_features() == width),
            "widths differ"
        );
        let linear = Linear {
            pool: &self.pool,
            level: self.level,
        };
        let step = self.step.as_mut().ok_or_else(not_reserved)?;
        let (groups, stride) = (step.routing.groups(), out.stride());
        let (x, conversion) = (x.as_rows(), &mut step.conversion);
        linear.multiply_groups(experts, groups, &x, conversion, out.as_mut_slice(), stride)
    }

    fn combine_routed(
        &mut self,
        routed: &Activation,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        self.step()?.routing.combine(&self.pool, routed, out)
    }

    fn keep_logits_rows(&mut self, x: &mut Activation) -> Result<(), ModelError> {
        let indices = &self.step()?.logits_indices;
        let (width, stride) = (x.width(), x.stride());
        let rows = x.as_mut_slice();
        // A row moves to the front or stays, so none is overwritten before it is read.
        for (to, from) in indices.iter().enumerate() {
            let from = *from as usize * stride;
            rows.copy_within(from..from + width, to * stride);
        }
        x.set_rows(indices.len())
    }

    fn copy_rows(
        &mut self,
        from: &Activation,
        rows: &[usize],
        to: &mut Activation,
    ) -> Result<(), ModelError> {
        to.set_rows(rows.len())?;
        let (width, stride) = (to.width(), to.stride());
        for (copy, &row) in to.as_mut_slice().chunks_mut(stride).zip(rows) {
            copy[..width].copy_from_slice(from.row(row));
        }
        Ok(())
    }

    fn read_row(&mut self, x: &Activation, row: usize, out: &mut [f32]) -> Result<(), ModelError> {
        out.copy_from_slice(x.row(row));
        Ok(())
    }

    fn embed_rows(
        &mut self,
        table: &PackedMatrix,
        ids: &[u32],
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        embed_rows(&self.pool, table, ids, 1.0, out)
    }

    fn add(&mut self, x: &mut Activation, delta: &Activation) -> Result<(), ModelError> {
        activation::add(&self.pool, self.level, x, delta)
    }

    fn layer_norm(
        &mut self,
        x: &mut Activation,
        norm: &LayerNorm<Vec<f32>>,
    ) -> Result<(), ModelError> {
        layer_norm::layer_norm(&self.pool, self.level, x, norm)
    }

    fn activate(&mut self, act: HiddenAct, x: &mut Activation) -> Result<(), ModelError> {
        elementwise::activate(&self.pool, self.level, act, x)
    }

    fn lm_head(
        &mut self,
        hidden: &Activation,
        rows: Range<usize>,
        head: LmHead<'_, PackedMatrix>,
        _: &[Option<Bitmask<'_>>],
        logits: &mut [f32],
        maxima: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        let LmHead { matrix, softcap } = head;
        let stride = matrix.out_features();
        // A cap changes what would be noted.
        if softcap.is_some() || matrix.is_stacked() {
            self.multiply(matrix, hidden, rows, Outputs::All { stride }, logits)?;
            return self.cap(logits, softcap);
        }
        maxima.resize(rows.len() * stride.div_ceil(PANEL_WIDTH), 0.0);
        let maxima = SharedMut::new(maxima);
        let outputs = Outputs::WithMaxima { stride, maxima };
        self.multiply(matrix, hidden, rows, outputs, logits)
    }

    fn lm_head_argmax(
        &mut self,
        hidden: &Activation,
        rows: Range<usize>,
        head: &PackedMatrix,
        bitmasks: &[Option<Bitmask<'_>>],
        num_tokens: usize,
        token_ids: &mut Vec<Option<u32>>,
    ) -> Result<bool, ModelError> {
        if head.is_stacked() {
            return Ok(false);
        }
        let step = self.step.as_mut().ok_or_else(not_reserved)?;
        let mut largest = std::mem::take(&mut step.largest);
        let outputs = Outputs::Argmax(Argmax {
            bitmasks,
            num_tokens,
            largest: &mut largest,
            token_ids,
        });
        self.multiply(head, hidden, rows, outputs, &mut [])?;
        if let Some(step) = &mut self.step {
            step.largest = largest;
        }
        Ok(true)
    }

    fn lm_head_for(
        &mut self,
        hidden: &Activation,
        few: &[(usize, &[u32])],
        head: LmHead<'_, PackedMatrix>,
        logits: &mut [f32],
    ) -> Result<(), ModelError> {
        let mut rest = &mut *logits;
        for (row, token_ids) in few {
            let own = rest.split_off_mut(..token_ids.len()).unwrap_or_default();
            let outputs = Outputs::Chosen(token_ids);
            self.multiply(head.matrix, hidden, *row..row + 1, outputs, own)?;
        }
        self.cap(logits, head.softcap)
    }
}
