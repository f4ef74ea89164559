//! Tensors of candle on the processor: the slow reference of our own kernels.
//!
//! Every operation is the plainest that says what is meant: the paged cache is gathered, attention
//! is two matrix products and a softmax, all in f32. Weights and cache are rounded to the dtype
//! and kept as f32, since candle multiplies bfloat16 on the CPU by widening both operands at each
//! call.

mod operations;
mod routing;

use std::ops::Range;

use candle_core::{D, DType, Device, Tensor};

use self::operations::{
    Linear, activated, causal_mask, layer_norm, linear, rms_norm, softmax, to_bf16, to_f16, to_q8,
};
use self::routing::Routing;
use super::{AttentionScores, AttentionShape, Backend, ExpertChoice, LayerNorm, LmHead, StepNeeds};
use crate::model_executor::config::HiddenAct;
use crate::model_executor::error::ModelError;
use crate::model_executor::rotary::RotaryTable;
use crate::model_executor::weights::{StoredTensor, WeightFormat};
use crate::model_executor::{Bitmask, ForwardInput, KvCacheFormat, ModelDtype, ModelLimits};

/// The candle backend.
pub(crate) struct CandleBackend {
    device: Device,
    dtype: ModelDtype,
    kv_cache_format: KvCacheFormat,
    rotary: Vec<RotaryTable>,
    step: Option<Step>,
    block_size: usize,
}

/// The batch of the step.
struct Step {
    input_ids: Tensor,
    /// Cosines and sines `[num_tokens, 1, rotated / 2]`, by rotation; the same for every head.
    rotary: Vec<(Tensor, Tensor)>,
    slot_mapping: Tensor,
    /// Rows that are written to other slots too, and these, where there are any.
    shared: Option<(Tensor, Tensor)>,
    logits_indices: Tensor,
    requests: Vec<Request>,
    routing: Routing,
}

/// One request of the batch.
struct Request {
    rows: Range<usize>,
    seq_len: usize,
    /// `[seq_len]` slots of its tokens in order of position.
    slots: Tensor,
}

/// Keys and values of one layer, `[num_blocks * block_size, num_kv_heads * head_dim]` each.
pub(crate) struct KvCache {
    keys: Tensor,
    values: Tensor,
}

impl KvCache {
    /// Writes rows of keys and values to these slots.
    fn write(&self, slots: &Tensor, keys: &Tensor, values: &Tensor) -> Result<(), ModelError> {
        let slots = slots.unsqueeze(1)?.broadcast_as(keys.shape())?;
        let slots = slots.contiguous()?;
        self.keys.scatter_set(&slots, keys, 0)?;
        self.values.scatter_set(&slots, values, 0)?;
        Ok(())
    }
}

impl CandleBackend {
    pub(crate) fn new(
        dtype: ModelDtype,
        kv_cache_format: KvCacheFormat,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            device: Device::Cpu,
            dtype,
            kv_cache_format,
            rotary: Vec::new(),
            step: None,
            block_size: 0,
        })
    }

    fn rounded(&self, tensor: &Tensor) -> Result<Tensor, ModelError> {
        match self.dtype {
            ModelDtype::Float32 => Ok(tensor.clone()),
            ModelDtype::BFloat16 => to_bf16(tensor),
            ModelDtype::Float16 => to_f16(tensor),
        }
    }

    /// Keys or values `[rows, kv_width]` as the cache keeps them.
    fn stored(&self, tensor: &Tensor, shape: AttentionShape) -> Result<Tensor, ModelError> {
        match self.kv_cache_format {
            KvCacheFormat::Float32 => Ok(tensor.contiguous()?),
            KvCacheFormat::BFloat16 => Ok(to_bf16(tensor)?.contiguous()?),
            KvCacheFormat::Q8 => to_q8(tensor, shape.head_dim),
        }
    }

    fn tensor(&self, values: &[u32]) -> Result<Tensor, ModelError> {
        Ok(Tensor::from_slice(values, values.len(), &self.device)?)
    }

    fn step(&self) -> Result<&Step, ModelError> {
        self.step.as_ref().ok_or_else(|| ModelError::Input {
            field: "input",
            problem: "a step must have begun".to_owned(),
        })
    }

    /// Cosines and sines of positions, by rotation.
    fn rotations(&self, positions: &[u32]) -> Result<Vec<(Tensor, Tensor)>, ModelError> {
        let of_table = |table: &RotaryTable| {
            let shape = (positions.len(), 1, table.half());
            let (mut cosines, mut sines) = (Vec::new(), Vec::new());
            for &position in positions {
                let (cos, sin) = table.angles(position as usize);
                cosines.extend_from_slice(cos);
                sines.extend_from_slice(sin);
            }
            Ok((
                Tensor::from_vec(cosines, shape, &self.device)?,
                Tensor::from_vec(sines, shape, &self.device)?,
            ))
        };
        self.rotary.iter().map(of_table).collect()
    }

    /// Rotates heads `[num_tokens, heads, head_dim]`: the first dimensions of each, as many as the
    /// table has pairs for.
    fn rotate(&self, x: &Tensor, index: usize) -> Result<Tensor, ModelError> {
        let Some((cos, sin)) = self.step()?.rotary.get(index) else {
            return Err(ModelError::Input {
                field: "limits",
                problem: "must be reserved before a step".to_owned(),
            });
        };
        let half = cos.dim(D::Minus1)?;
        let first = x.narrow(D::Minus1, 0, half)?;
        let second = x.narrow(D::Minus1, half, half)?;
        let rest = x.dim(D::Minus1)? - 2 * half;
        let turned = [
            (first.broadcast_mul(cos)? - second.broadcast_mul(sin)?)?,
            (second.broadcast_mul(cos)? + first.broadcast_mul(sin)?)?,
            x.narrow(D::Minus1, 2 * half, rest)?,
        ];
        Ok(Tensor::cat(&turned, D::Minus1)?)
    }
}

impl Backend for CandleBackend {
    type Matrix = Linear;
    type Experts = Vec<Linear>;
    type Vector = Tensor;
    type Activation = Tensor;
    type KvCache = KvCache;

    fn load_matrix(
        &self,
        _: &str,
        in_features: usize,
        parts: &[StoredTensor<'_>],
        bias: Option<&[f32]>,
        format: WeightFormat,
    ) -> Result<Linear, ModelError> {
        let weights = parts
            .iter()
            .map(|part| {
                let shape = (part.rows(), in_features);
                let values = Tensor::from_vec(part.to_f32_in(format), shape, &self.device)?;
                // A quantized value is used as it is, on the CPU backend too.
                match format {
                    WeightFormat::Dense => self.rounded(&values),
                    WeightFormat::Full
                    | WeightFormat::Quantized(_)
                    | WeightFormat::Wide(_)
                    | WeightFormat::Grouped { .. }
                    | WeightFormat::K(_) => Ok(values),
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        let bias = bias
            .map(|bias| Tensor::from_slice(bias, bias.len(), &self.device))
            .transpose()?;
        Ok(Linear {
            weight: Tensor::cat(&weights, 0)?,
            bias,
        })
    }

    fn stack_matrices(&self, mut matrices: Vec<Linear>) -> Result<Linear, ModelError> {
        if matrices.len() == 1 {
            return Ok(matrices.swap_remove(0));
        }
        let weights: Vec<&Tensor> = matrices.iter().map(|matrix| &matrix.weight).collect();
        let biases: Vec<&Tensor> = matrices
            .iter()
            .filter_map(|matrix| matrix.bias.as_ref())
            .collect();
        Ok(Linear {
            weight: Tensor::cat(&weights, 0)?,
            bias: match biases.is_empty() {
                true => None,
                false => Some(Tensor::cat(&biases, 0)?),
            },
        })
    }

    fn join_experts(&self, experts: Vec<Linear>) -> Result<Vec<Linear>, ModelError> {
        Ok(experts)
    }

    fn round_to_dtype(&self, value: f32) -> f32 {
        self.dtype.round(value)
    }

    fn load_vector(&self, tensor: StoredTensor<'_>, offset: f32) -> Result<Tensor, ModelError> {
        let values = Tensor::from_vec(tensor.to_f32(), tensor.cols(), &self.device)?;
        Ok((self.rounded(&values)? + f64::from(offset))?)
    }

    fn kv_cache_bytes_per_block(&self, shape: AttentionShape, block_size: usize) -> usize {
        2 * block_size * shape.kv_width() * size_of::<f32>()
    }

    fn reserve(&mut self, limits: &ModelLimits, needs: StepNeeds) -> Result<(), ModelError> {
        self.rotary = needs.rotary;
        self.block_size = limits.block_size;
        Ok(())
    }

    /// Tensors are made by the operations; this one only stands in their place.
    fn allocate(&self, _rows: usize, width: usize) -> Result<Tensor, ModelError> {
        Ok(Tensor::zeros((1, width), DType::F32, &self.device)?)
    }

    fn allocate_kv_caches(
        &self,
        shape: AttentionShape,
        limits: &ModelLimits,
        num_layers: usize,
    ) -> Result<Vec<KvCache>, ModelError> {
        let size = (limits.num_blocks * limits.block_size, shape.kv_width());
        let layer = |_| {
            Ok(KvCache {
                keys: Tensor::zeros(size, DType::F32, &self.device)?,
                values: Tensor::zeros(size, DType::F32, &self.device)?,
            })
        };
        (0..num_layers).map(layer).collect()
    }

    fn begin_step(&mut self, input: &ForwardInput<'_>) -> Result<bool, ModelError> {
        let block_size = self.block_size;
        let mut requests = Vec::with_capacity(input.seq_lens.len());
        for (index, (rows, seq_len)) in input
            .query_start_loc
            .windows(2)
            .zip(input.seq_lens)
            .enumerate()
        {
            let seq_len = *seq_len as usize;
            let table = &input.block_tables[index * input.block_table_stride..];
            let slots: Vec<u32> = (0..seq_len)
                .map(|position| {
                    table[position / block_size] * block_size as u32
                        + (position % block_size) as u32
                })
                .collect();
            if rows[0] < rows[1] {
                requests.push(Request {
                    rows: rows[0] as usize..rows[1] as usize,
                    seq_len,
                    slots: self.tensor(&slots)?,
                });
            }
        }
        self.step = Some(Step {
            input_ids: self.tensor(input.input_ids)?,
            rotary: self.rotations(input.positions)?,
            slot_mapping: self.tensor(input.slot_mapping)?,
            shared: match input.shared_rows {
                [] => None,
                rows => Some((self.tensor(rows)?, self.tensor(input.shared_slots)?)),
            },
            logits_indices: self.tensor(input.logits_indices)?,
            requests,
            routing: Routing::default(),
        });
        Ok(false)
    }

    fn embed(&mut self, table: &Linear, scale: f32, out: &mut Tensor) -> Result<(), ModelError> {
        let rows = table.weight.index_select(&self.step()?.input_ids, 0)?;
        *out = (rows * f64::from(scale))?;
        Ok(())
    }

    fn linear(&mut self, x: &Tensor, matrix: &Linear, out: &mut Tensor) -> Result<(), ModelError> {
        *out = linear(x, matrix)?;
        Ok(())
    }

    fn rms_norm(
        &mut self,
        x: &Tensor,
        weight: &Tensor,
        eps: f32,
        out: &mut Tensor,
    ) -> Result<(), ModelError> {
        *out = rms_norm(x, weight, eps)?;
        Ok(())
    }

    fn rms_norm_in_place(
        &mut self,
        x: &mut Tensor,
        weight: &Tensor,
        eps: f32,
    ) -> Result<(), ModelError> {
        *x = rms_norm(x, weight, eps)?;
        Ok(())
    }

    fn add_rms_norm(
        &mut self,
        residual: &mut Tensor,
        delta: &Tensor,
        weight: &Tensor,
        eps: f32,
        out: &mut Tensor,
    ) -> Result<(), ModelError> {
        *residual = (&*residual + delta)?;
        *out = rms_norm(residual, weight, eps)?;
        Ok(())
    }

    fn qk_norm(
        &mut self,
        qkv: &mut Tensor,
        shape: AttentionShape,
        q_weight: &Tensor,
        k_weight: &Tensor,
        eps: f32,
    ) -> Result<(), ModelError> {
        let rows = qkv.dim(0)?;
        let norm = |from: usize, width: usize, weight: &Tensor| -> Result<Tensor, ModelError> {
            let heads = qkv.narrow(1, from, width)?;
            let heads = heads.reshape((rows, width / shape.head_dim, shape.head_dim))?;
            Ok(rms_norm(&heads, weight, eps)?.reshape((rows, width))?)
        };
        let queries = norm(0, shape.q_width(), q_weight)?;
        let keys = norm(shape.q_width(), shape.kv_width(), k_weight)?;
        let values = qkv.narrow(1, shape.q_width() + shape.kv_width(), shape.kv_width())?;
        *qkv = Tensor::cat(&[queries, keys, values], 1)?;
        Ok(())
    }

    fn rotary_and_kv_write(
        &mut self,
        qkv: &mut Tensor,
        shape: AttentionShape,
        rotary: Option<usize>,
        cache: &mut KvCache,
    ) -> Result<(), ModelError> {
        let rows = qkv.dim(0)?;
        let rotated_width = shape.q_width() + shape.kv_width();
        let heads = (rows, shape.num_heads + shape.num_kv_heads, shape.head_dim);
        let heads = qkv.narrow(1, 0, rotated_width)?.reshape(heads)?;
        let rotated = match rotary {
            Some(index) => self.rotate(&heads, index)?,
            None => heads,
        };
        let rotated = rotated.reshape((rows, rotated_width))?;
        let values = qkv.narrow(1, rotated_width, shape.kv_width())?;
        let keys = rotated.narrow(1, shape.q_width(), shape.kv_width())?;
        let (stored_keys, stored_values) =
            (self.stored(&keys, shape)?, self.stored(&values, shape)?);
        let step = self.step()?;
        cache.write(&step.slot_mapping, &stored_keys, &stored_values)?;
        if let Some((rows, slots)) = &step.shared {
            let keys = stored_keys.index_select(rows, 0)?;
            cache.write(slots, &keys, &stored_values.index_select(rows, 0)?)?;
        }
        *qkv = Tensor::cat(&[rotated, values], 1)?;
        Ok(())
    }

    fn paged_attention(
        &mut self,
        qkv: &Tensor,
        shape: AttentionShape,
        cache: &KvCache,
        scores: AttentionScores,
        out: &mut Tensor,
    ) -> Result<(), ModelError> {
        let AttentionScores {
            scale,
            softcap,
            window,
            is_causal,
        } = scores;
        let mut outputs = Vec::new();
        for request in &self.step()?.requests {
            let (rows, seq_len) = (request.rows.len(), request.seq_len);
            // Query heads of a key head stand together: `[kv_heads, group * rows, head_dim]`.
            let queries = qkv
                .narrow(0, request.rows.start, rows)?
                .narrow(1, 0, shape.q_width())?
                .reshape((rows, shape.num_heads, shape.head_dim))?
                .transpose(0, 1)?
                .contiguous()?
                .reshape((shape.num_kv_heads, shape.group() * rows, shape.head_dim))?;
            let gather = |cache: &Tensor| -> Result<Tensor, ModelError> {
                Ok(cache
                    .index_select(&request.slots, 0)?
                    .reshape((seq_len, shape.num_kv_heads, shape.head_dim))?
                    .transpose(0, 1)?
                    .contiguous()?)
            };
            let (keys, values) = (gather(&cache.keys)?, gather(&cache.values)?);
            let mask = match is_causal {
                true => causal_mask(rows, seq_len - rows, seq_len, window, &self.device)?,
                false => Tensor::zeros((rows, seq_len), DType::F32, &self.device)?,
            };
            let mut scores = (queries.matmul(&keys.transpose(1, 2)?)? * f64::from(scale))?;
            if let Some(bound) = softcap {
                let bound = f64::from(bound);
                scores = ((scores / bound)?.tanh()? * bound)?;
            }
            let scores = scores
                .reshape((shape.num_heads, rows, seq_len))?
                .broadcast_add(&mask)?;
            let weights =
                softmax(&scores)?.reshape((shape.num_kv_heads, shape.group() * rows, seq_len))?;
            let output = weights
                .matmul(&values)?
                .reshape((shape.num_heads, rows, shape.head_dim))?
                .transpose(0, 1)?
                .reshape((rows, shape.q_width()))?;
            outputs.push(output);
        }
        *out = Tensor::cat(&outputs, 0)?;
        Ok(())
    }

    fn act_and_mul(
        &mut self,
        act: HiddenAct,
        gate_up: &Tensor,
        out: &mut Tensor,
    ) -> Result<(), ModelError> {
        let width = gate_up.dim(1)? / 2;
        let gate = gate_up.narrow(1, 0, width)?;
        *out = (activated(act, &gate)? * gate_up.narrow(1, width, width)?)?;
        Ok(())
    }

    fn route(&mut self, logits: &Tensor, choice: ExpertChoice) -> Result<(), ModelError> {
        let routing = Routing::of(&logits.to_vec2::<f32>()?, choice, &self.device)?;
        if let Some(step) = &mut self.step {
            step.routing = routing;
        }
        Ok(())
    }

    fn gather_routed(&mut self, x: &Tensor, out: &mut Tensor) -> Result<(), ModelError> {
        let parts = self.step()?.routing.groups.iter();
        let parts = parts.map(|group| x.index_select(&group.rows, 0));
        *out = Tensor::cat(&parts.collect::<Result<Vec<_>, _>>()?, 0)?;
        Ok(())
    }

    fn linear_experts(
        &mut self,
        x: &Tensor,
        experts: &Vec<Linear>,
        out: &mut Tensor,
    ) -> Result<(), ModelError> {
        let mut first = 0;
        let mut parts = Vec::new();
        for group in &self.step()?.routing.groups {
            let count = group.rows.dim(0)?;
            parts.push(linear(&x.narrow(0, first, count)?, &experts[group.expert])?);
            first += count;
        }
        *out = Tensor::cat(&parts, 0)?;
        Ok(())
    }

    fn combine_routed(&mut self, routed: &Tensor, out: &mut Tensor) -> Result<(), ModelError> {
        let routing = &self.step()?.routing;
        let mut sum = Tensor::zeros((routing.num_rows, routed.dim(1)?), DType::F32, &self.device)?;
        let mut first = 0;
        for group in &routing.groups {
            let count = group.rows.dim(0)?;
            let part = routed
                .narrow(0, first, count)?
                .broadcast_mul(&group.weights)?;
            sum = sum.index_add(&group.rows, &part, 0)?;
            first += count;
        }
        *out = sum;
        Ok(())
    }

    fn keep_logits_rows(&mut self, x: &mut Tensor) -> Result<(), ModelError> {
        *x = x.index_select(&self.step()?.logits_indices, 0)?;
        Ok(())
    }

    fn copy_rows(
        &mut self,
        from: &Tensor,
        rows: &[usize],
        to: &mut Tensor,
    ) -> Result<(), ModelError> {
        let rows: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
        *to = from.index_select(&self.tensor(&rows)?, 0)?;
        Ok(())
    }

    fn read_row(&mut self, x: &Tensor, row: usize, out: &mut [f32]) -> Result<(), ModelError> {
        out.copy_from_slice(&x.narrow(0, row, 1)?.flatten_all()?.to_vec1::<f32>()?);
        Ok(())
    }

    fn embed_rows(
        &mut self,
        table: &Linear,
        ids: &[u32],
        out: &mut Tensor,
    ) -> Result<(), ModelError> {
        *out = table.weight.index_select(&self.tensor(ids)?, 0)?;
        Ok(())
    }

    fn add(&mut self, x: &mut Tensor, delta: &Tensor) -> Result<(), ModelError> {
        *x = (&*x + delta)?;
        Ok(())
    }

    fn layer_norm(&mut self, x: &mut Tensor, norm: &LayerNorm<Tensor>) -> Result<(), ModelError> {
        *x = layer_norm(x, norm)?;
        Ok(())
    }

    fn activate(&mut self, act: HiddenAct, x: &mut Tensor) -> Result<(), ModelError> {
        *x = activated(act, x)?;
        Ok(())
    }

    fn lm_head(
        &mut self,
        hidden: &Tensor,
        rows: Range<usize>,
        head: LmHead<'_, Linear>,
        _: &[Option<Bitmask<'_>>],
        logits: &mut [f32],
        _: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        let product = linear(&hidden.narrow(0, rows.start, rows.len())?, head.matrix)?;
        logits.copy_from_slice(&product.flatten_all()?.to_vec1::<f32>()?);
        cap(logits, head.softcap);
        Ok(())
    }

    fn lm_head_for(
        &mut self,
        hidden: &Tensor,
        few: &[(usize, &[u32])],
        head: LmHead<'_, Linear>,
        logits: &mut [f32],
    ) -> Result<(), ModelError> {
        let mut products = Vec::with_capacity(logits.len());
        for (row, token_ids) in few.iter().filter(|(_, token_ids)| !token_ids.is_empty()) {
            let chosen = Linear {
                weight: head
                    .matrix
                    .weight
                    .index_select(&self.tensor(token_ids)?, 0)?,
                bias: None,
            };
            let product = linear(&hidden.narrow(0, *row, 1)?, &chosen)?;
            products.extend(product.flatten_all()?.to_vec1::<f32>()?);
        }
        logits.copy_from_slice(&products);
        cap(logits, head.softcap);
        Ok(())
    }
}

/// Bounds logits, where they have a bound.
fn cap(logits: &mut [f32], bound: Option<f32>) {
    if let Some(bound) = bound {
        for logit in logits {
            *logit = bound * (*logit / bound).tanh();
        }
    }
}
