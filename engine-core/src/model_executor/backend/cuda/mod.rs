//! Our own kernels on a GPU: the crate `cuda-device`.
//!
//! Weights, activations, keys and values and the grammars' masks are in the device's memory; what comes back of a step is
//! a token a row, or the logits of the rows that the sampler reads. Every sum is made in an order that the shapes and the
//! positions decide, so a row's logits are the same alone and in company, on one kind of GPU. They are not bit by bit those
//! of the processor.
//!
//! Quantized weights are kept in the model's dtype.

mod graphs;
mod kernel_cache;
mod mask_pool;
mod step;

use std::ops::Range;

use cuda_device::{
    Act, Buffer, Device, DeviceError, Heads, KvCache, KvFormat, Matrix, MatrixUpload, Paging,
    QkNorm, Rotary, Routing, Scores, Slots, ThreadOrder, Vector, WeightFormat as DeviceFormat,
};

use self::graphs::Graphs;
use self::mask_pool::{MaskPool, NUM_SLOTS};
use self::step::{SHARED_PIECE, Step};
use super::{
    AttentionScores, AttentionShape, Backend, ExpertChoice, LmHead, StepNeeds, no_encoders,
    not_reserved,
};
use crate::model_executor::config::HiddenAct;
use crate::model_executor::error::ModelError;
use crate::model_executor::weights::{StoredDtype, StoredTensor, WeightFormat};
use crate::model_executor::{
    Bitmask, DeviceMemory, ForwardInput, KvCacheFormat, ModelDtype, ModelLimits,
};

/// Bytes of f32 that are rounded and uploaded at a time while loading.
const UPLOAD_BYTES: usize = 16 << 20;

/// What is left for graphs, which the driver keeps.
const GRAPHS_BYTES: usize = 256 << 20;

/// The CUDA backend.
pub(crate) struct CudaBackend {
    device: Device,
    dtype: ModelDtype,
    kv_format: KvFormat,
    rotary: Vec<Rotary>,
    routing: Option<Routing>,
    step: Option<Step>,
    /// Rows whose keys and values are written a second time, `[SHARED_PIECE, qkv_width]`.
    shared_qkv: Option<Buffer>,
    graphs: Graphs,
    head: Option<HeadBuffers>,
}

/// `[rows, width]` of f32 on the device.
pub(crate) struct Activation {
    buffer: Buffer,
    width: usize,
    rows: usize,
}

/// Rows that the LM head has room for from the start.
const HEAD_ROWS: usize = 64;

/// Chosen tokens of all rows that there is room for from the start.
const FEW: usize = 16_384;

/// What the LM head needs: made at the first step, which is the warm-up.
struct HeadBuffers {
    /// `[max_rows, vocab_size]`
    logits: Buffer,
    max_rows: usize,
    masks: MaskPool,
    /// `[max_rows]` slot of each row's mask.
    slots: Buffer,
    /// `[max_rows]` token ids.
    token_ids: Buffer,
    /// Chosen token ids of all rows, and their logits.
    few_ids: Buffer,
    few_logits: Buffer,
    few_token_ids: Vec<u32>,
}

impl From<DeviceError> for ModelError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::OutOfMemory { bytes } => Self::OutOfMemory {
                what: "the model on its device",
                bytes,
            },
            other => Self::Device(other),
        }
    }
}

impl CudaBackend {
    /// On the GPU of this number.
    ///
    /// # Errors
    /// There is no driver, no such GPU or no compiler for its kernels, or the format of keys and values is none that a
    /// GPU has here.
    pub(crate) fn on_device(
        ordinal: u32,
        dtype: ModelDtype,
        kv_format: KvCacheFormat,
    ) -> Result<Self, ModelError> {
        let kernels = kernel_cache::folder();
        let device = Device::driver(ordinal as usize, kernels.as_deref())?;
        tracing::info!(device = device.name(), "CUDA kernels (experimental)");
        Self::new(device, dtype, kv_format)
    }

    /// On the simulator, for tests.
    ///
    /// # Errors
    /// This build has none, or as above.
    pub(crate) fn on_simulator(
        dtype: ModelDtype,
        kv_format: KvCacheFormat,
    ) -> Result<Self, ModelError> {
        Self::new(Device::simulator(ThreadOrder::Ascending)?, dtype, kv_format)
    }

    fn new(
        device: Device,
        dtype: ModelDtype,
        kv_format: KvCacheFormat,
    ) -> Result<Self, ModelError> {
        let kv_format = match kv_format {
            KvCacheFormat::Float32 => KvFormat::F32,
            KvCacheFormat::BFloat16 => KvFormat::Bf16,
            KvCacheFormat::Q8 => {
                return Err(ModelError::Limits {
                    field: "cache_dtype",
                    problem: "q8 is not there on a GPU: auto or bf16".to_owned(),
                });
            }
        };
        Ok(Self {
            device,
            dtype,
            kv_format,
            rotary: Vec::new(),
            routing: None,
            step: None,
            shared_qkv: None,
            graphs: Graphs::default(),
            head: None,
        })
    }

    fn step(&self) -> Result<&Step, ModelError> {
        self.step.as_ref().ok_or_else(not_reserved)
    }

    /// What the head needs for `rows` rows.
    fn head_buffers(&mut self, head: &Matrix, rows: usize) -> Result<&mut HeadBuffers, ModelError> {
        let known = self.head.take().filter(|known| known.max_rows >= rows);
        let buffers = match known {
            Some(known) => known,
            None => HeadBuffers::allocate(&self.device, rows, head)?,
        };
        Ok(self.head.insert(buffers))
    }

    /// Computes the logits of some rows, which stand at the front of the head's buffer then.
    fn compute_head(
        &mut self,
        hidden: &Activation,
        rows: Range<usize>,
        head: LmHead<'_, Matrix>,
    ) -> Result<&mut HeadBuffers, ModelError> {
        let (device, count) = (self.device.clone(), rows.len());
        let buffers = self.head_buffers(head.matrix, count)?;
        let logits = &mut buffers.logits;
        device.linear_at(&hidden.buffer, rows.start, count, head.matrix, logits)?;
        if let Some(bound) = head.softcap {
            device.softcap(logits, count * head.matrix.out_features(), bound)?;
        }
        Ok(buffers)
    }
}

impl HeadBuffers {
    fn allocate(device: &Device, rows: usize, head: &Matrix) -> Result<Self, ModelError> {
        let (max_rows, vocab_size) = (rows.max(HEAD_ROWS), head.out_features());
        let list = |len: usize| device.allocate(len * size_of::<f32>());
        Ok(Self {
            logits: list(max_rows * vocab_size)?,
            max_rows,
            masks: MaskPool::new(device, NUM_SLOTS.max(max_rows), vocab_size)?,
            slots: list(max_rows)?,
            token_ids: list(max_rows)?,
            few_ids: list(FEW)?,
            few_logits: list(FEW)?,
            few_token_ids: Vec::new(),
        })
    }

    /// Makes room for `count` chosen tokens.
    fn make_room_for_few(&mut self, device: &Device, count: usize) -> Result<(), ModelError> {
        let bytes = count * size_of::<f32>();
        if self.few_ids.num_bytes() < bytes {
            let bytes = bytes.next_power_of_two();
            self.few_ids = device.allocate(bytes)?;
            self.few_logits = device.allocate(bytes)?;
        }
        Ok(())
    }

    /// Uploads the slots of the rows' masks, and those masks that are not there.
    fn place(
        &mut self,
        device: &Device,
        bitmasks: &[Option<Bitmask<'_>>],
        num_rows: usize,
    ) -> Result<(), ModelError> {
        let slots = self.masks.place(device, bitmasks, num_rows)?;
        Ok(device.upload(&mut self.slots, 0, bytes_of(&slots))?)
    }
}

fn heads(shape: AttentionShape) -> Heads {
    Heads {
        num_heads: shape.num_heads,
        num_kv_heads: shape.num_kv_heads,
        head_dim: shape.head_dim,
    }
}

impl Backend for CudaBackend {
    type Matrix = Matrix;
    /// All experts' weights, one above the other.
    type Experts = Matrix;
    type Vector = Vector;
    type Activation = Activation;
    type KvCache = KvCache;

    fn load_matrix(
        &self,
        _: &str,
        in_features: usize,
        parts: &[StoredTensor<'_>],
        bias: Option<&[f32]>,
        format: WeightFormat,
    ) -> Result<Matrix, ModelError> {
        let device_format = match (format, self.dtype) {
            (WeightFormat::Full, _) | (_, ModelDtype::Float32) => DeviceFormat::F32,
            (_, ModelDtype::BFloat16 | ModelDtype::Float16) => DeviceFormat::Bf16,
        };
        let out_features = parts.iter().map(StoredTensor::rows).sum();
        let mut upload = Matrix::upload(&self.device, device_format, in_features, out_features)?;
        for part in parts {
            upload_rows(&mut upload, part, in_features, format)?;
        }
        Ok(upload.finish(bias)?)
    }

    fn stack_matrices(&self, matrices: Vec<Matrix>) -> Result<Matrix, ModelError> {
        Ok(Matrix::stack(&self.device, matrices)?)
    }

    fn join_experts(&self, experts: Vec<Matrix>) -> Result<Matrix, ModelError> {
        self.stack_matrices(experts)
    }

    fn round_to_dtype(&self, value: f32) -> f32 {
        self.dtype.round(value)
    }

    fn load_vector(&self, tensor: StoredTensor<'_>, offset: f32) -> Result<Vector, ModelError> {
        // As on the processor: f32, rounded as the format would have them.
        let values = tensor.to_f32().into_iter();
        let values: Vec<f32> = values
            .map(|value| self.dtype.round(value) + offset)
            .collect();
        Ok(Vector::upload(&self.device, &values)?)
    }

    fn kv_cache_bytes_per_block(&self, shape: AttentionShape, block_size: usize) -> usize {
        KvCache::bytes_per_block(self.kv_format, heads(shape), block_size)
    }

    fn device_memory(&self) -> Result<Option<DeviceMemory>, ModelError> {
        let (free_bytes, total_bytes) = self.device.free_and_total_bytes()?;
        Ok(Some(DeviceMemory {
            free_bytes,
            total_bytes,
        }))
    }

    fn working_bytes(&self, num_tokens: usize, widest: usize, vocab_size: usize) -> u64 {
        let head = HEAD_ROWS * vocab_size * size_of::<f32>() + NUM_SLOTS * vocab_size.div_ceil(8);
        // Rounded rows; what outgrew its place is as much again.
        let rounded = 2 * num_tokens.saturating_mul(widest).next_power_of_two() * 2;
        // Queries, keys and values are at most some three times as wide as what they are made of.
        let shared = SHARED_PIECE * 3 * widest * size_of::<f32>();
        (head + rounded + shared + 2 * cuda_device::MAX_PARTIAL_BYTES + GRAPHS_BYTES) as u64
    }

    fn reserve(&mut self, limits: &ModelLimits, needs: StepNeeds) -> Result<(), ModelError> {
        for table in &needs.rotary {
            let (mut cosines, mut sines) = (Vec::new(), Vec::new());
            for position in 0..limits.max_model_len {
                let (cos, sin) = table.angles(position);
                cosines.extend_from_slice(cos);
                sines.extend_from_slice(sin);
            }
            let rotary = Rotary::upload(&self.device, table.half(), &cosines, &sines)?;
            self.rotary.push(rotary);
        }
        if let Some(choice) = needs.experts {
            let rows = limits.max_num_batched_tokens;
            let (num_experts, top_k) = (choice.num_experts, choice.top_k);
            let routing = Routing::allocate(&self.device, num_experts, top_k, rows)?;
            self.routing = Some(routing);
        }
        self.step = Some(Step::allocate(&self.device, limits)?);
        Ok(())
    }

    fn allocate(&self, rows: usize, width: usize) -> Result<Activation, ModelError> {
        Ok(Activation {
            buffer: self.device.allocate(rows * width * size_of::<f32>())?,
            width,
            rows: 0,
        })
    }

    fn allocate_kv_caches(
        &self,
        shape: AttentionShape,
        limits: &ModelLimits,
        num_layers: usize,
    ) -> Result<Vec<KvCache>, ModelError> {
        let (blocks, block_size) = (limits.num_blocks, limits.block_size);
        let (format, heads) = (self.kv_format, heads(shape));
        let layer = |_| {
            let cache = KvCache::allocate(&self.device, format, heads, blocks, block_size);
            Ok(cache?)
        };
        (0..num_layers).map(layer).collect()
    }

    fn begin_step(&mut self, input: &ForwardInput<'_>) -> Result<bool, ModelError> {
        let step = self.step.as_mut().ok_or_else(not_reserved)?;
        match step.begin(&self.device, input)? {
            None => Ok(false),
            // SAFETY: the decoder's weights, activations and caches and this backend's buffers, which are all that its
            // layers are given, live as long as the backend: nobody replaces one of them between steps.
            Some(key) => unsafe { self.graphs.begin(&self.device, key) },
        }
    }

    fn end_layers(&mut self) -> Result<(), ModelError> {
        // SAFETY: as in `begin_step`.
        unsafe { self.graphs.end(&self.device) }
    }

    fn embed(
        &mut self,
        table: &Matrix,
        scale: f32,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        let step = self.step()?;
        out.rows = step.num_tokens;
        let (ids, to) = (&step.input_ids, &mut out.buffer);
        Ok(self.device.embed(table, ids, out.rows, scale, to)?)
    }

    fn linear(
        &mut self,
        x: &Activation,
        matrix: &Matrix,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        out.rows = x.rows;
        Ok(self
            .device
            .linear(&x.buffer, x.rows, matrix, &mut out.buffer)?)
    }

    fn rms_norm(
        &mut self,
        x: &Activation,
        weight: &Vector,
        eps: f32,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        out.rows = x.rows;
        let to = &mut out.buffer;
        Ok(self.device.rms_norm(&x.buffer, x.rows, weight, eps, to)?)
    }

    fn rms_norm_in_place(
        &mut self,
        x: &mut Activation,
        weight: &Vector,
        eps: f32,
    ) -> Result<(), ModelError> {
        let rows = x.rows;
        Ok(self
            .device
            .rms_norm_in_place(&mut x.buffer, rows, weight, eps)?)
    }

    fn add_rms_norm(
        &mut self,
        residual: &mut Activation,
        delta: &Activation,
        weight: &Vector,
        eps: f32,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        out.rows = residual.rows;
        let (sum, to) = (&mut residual.buffer, &mut out.buffer);
        let rows = out.rows;
        Ok(self
            .device
            .add_rms_norm(sum, &delta.buffer, rows, weight, eps, to)?)
    }

    fn qk_norm(
        &mut self,
        qkv: &mut Activation,
        shape: AttentionShape,
        q_weight: &Vector,
        k_weight: &Vector,
        eps: f32,
    ) -> Result<(), ModelError> {
        let norm = QkNorm {
            q_weight,
            k_weight,
            eps,
        };
        let rows = qkv.rows;
        Ok(self
            .device
            .qk_norm(&mut qkv.buffer, rows, heads(shape), norm)?)
    }

    fn rotary_and_kv_write(
        &mut self,
        qkv: &mut Activation,
        shape: AttentionShape,
        rotary: Option<usize>,
        cache: &mut KvCache,
    ) -> Result<(), ModelError> {
        let step = self.step.as_ref().ok_or_else(not_reserved)?;
        let (positions, slots) = (&step.positions, &step.slot_mapping);
        let slots = Slots { positions, slots };
        let rotary = match rotary {
            None => None,
            Some(index) => Some(self.rotary.get(index).ok_or_else(not_reserved)?),
        };
        let (rows, width, qkv, heads) = (qkv.rows, qkv.width, &mut qkv.buffer, heads(shape));
        let device = &self.device;
        device.rotary_and_kv_write(qkv, rows, heads, rotary, slots, cache)?;
        let num_bytes = SHARED_PIECE * width * size_of::<f32>();
        for piece in step.shared() {
            let has_room = |room: &Buffer| room.num_bytes() >= num_bytes;
            let room = match self.shared_qkv.take().filter(has_room) {
                Some(room) => self.shared_qkv.insert(room),
                None => self.shared_qkv.insert(device.allocate(num_bytes)?),
            };
            device.gather_rows(qkv, rows, width, &piece.rows, piece.num_rows, room)?;
            // They are rotated already.
            let slots = &piece.slots;
            let slots = Slots { positions, slots };
            device.rotary_and_kv_write(room, piece.num_rows, heads, None, slots, cache)?;
        }
        Ok(())
    }

    fn paged_attention(
        &mut self,
        qkv: &Activation,
        shape: AttentionShape,
        cache: &KvCache,
        scores: AttentionScores,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        let step = self.step()?;
        out.rows = qkv.rows;
        let paging = Paging {
            positions: &step.positions,
            requests: &step.requests,
            block_tables: &step.block_tables,
            num_requests: step.num_requests,
            table_stride: step.table_stride,
            max_len: step.longest,
            prefill_rows: (step.prefill_rows.start, step.prefill_rows.end),
        };
        let scores = Scores {
            scale: scores.scale,
            softcap: scores.softcap,
            window: scores.window,
        };
        let (rows, qkv, to) = (qkv.rows, &qkv.buffer, &mut out.buffer);
        let heads = heads(shape);
        Ok(self
            .device
            .paged_attention(qkv, rows, heads, cache, paging, scores, to)?)
    }

    fn act_and_mul(
        &mut self,
        act: HiddenAct,
        gate_up: &Activation,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        out.rows = gate_up.rows;
        let act = match act {
            HiddenAct::Silu => Act::Silu,
            HiddenAct::GeluTanh => Act::GeluTanh,
            HiddenAct::Gelu | HiddenAct::Relu => return Err(no_encoders()),
        };
        let (rows, width) = (out.rows, out.width);
        Ok(self
            .device
            .act_and_mul(act, &gate_up.buffer, rows, width, &mut out.buffer)?)
    }

    fn route(&mut self, logits: &Activation, choice: ExpertChoice) -> Result<(), ModelError> {
        let routing = self.routing.as_mut().ok_or_else(not_reserved)?;
        Ok(self
            .device
            .route(&logits.buffer, logits.rows, choice.normalize, routing)?)
    }

    fn gather_routed(&mut self, x: &Activation, out: &mut Activation) -> Result<(), ModelError> {
        let routing = self.routing.as_ref().ok_or_else(not_reserved)?;
        out.rows = routing.num_routed();
        Ok(self
            .device
            .gather_routed(&x.buffer, routing, out.width, &mut out.buffer)?)
    }

    fn linear_experts(
        &mut self,
        x: &Activation,
        experts: &Matrix,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        let routing = self.routing.as_ref().ok_or_else(not_reserved)?;
        out.rows = x.rows;
        Ok(self
            .device
            .linear_experts(&x.buffer, routing, experts, &mut out.buffer)?)
    }

    fn combine_routed(
        &mut self,
        routed: &Activation,
        out: &mut Activation,
    ) -> Result<(), ModelError> {
        let routing = self.routing.as_ref().ok_or_else(not_reserved)?;
        out.rows = routing.num_routed() / routing.top_k();
        Ok(self
            .device
            .combine_routed(&routed.buffer, routing, out.width, &mut out.buffer)?)
    }

    fn keep_logits_rows(&mut self, x: &mut Activation) -> Result<(), ModelError> {
        let step = self.step()?;
        let (from, to) = (x.rows, step.num_logits_rows);
        let indices = &step.logits_indices;
        (self.device).gather_rows_in_place(&mut x.buffer, from, x.width, indices, to)?;
        x.rows = to;
        Ok(())
    }

    fn copy_rows(
        &mut self,
        from: &Activation,
        rows: &[usize],
        to: &mut Activation,
    ) -> Result<(), ModelError> {
        let step = self.step.as_mut().ok_or_else(not_reserved)?;
        step.choose(&self.device, rows.iter().map(|&row| row as u32))?;
        to.rows = rows.len();
        // No operation has counted the rows of a step that was replayed.
        let from_rows = step.num_logits_rows.max(from.rows);
        let (from, width, chosen) = (&from.buffer, to.width, &step.chosen);
        let to = &mut to.buffer;
        Ok((self.device).gather_rows(from, from_rows, width, chosen, rows.len(), to)?)
    }

    fn read_row(&mut self, x: &Activation, row: usize, out: &mut [f32]) -> Result<(), ModelError> {
        let offset = row * x.width * size_of::<f32>();
        Ok(self.device.download(&x.buffer, offset, bytes_of_mut(out))?)
    }

    fn lm_head(
        &mut self,
        hidden: &Activation,
        rows: Range<usize>,
        head: LmHead<'_, Matrix>,
        bitmasks: &[Option<Bitmask<'_>>],
        logits: &mut [f32],
        _: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        let (count, width) = (rows.len(), head.matrix.out_features());
        let device = self.device.clone();
        let buffers = self.compute_head(hidden, rows, head)?;
        if bitmasks.iter().any(Option::is_some) {
            buffers.place(&device, bitmasks, count)?;
            let masks = buffers.masks.masks(&buffers.slots);
            device.mask_logits(&mut buffers.logits, count, width, masks)?;
        }
        Ok(device.download(&buffers.logits, 0, bytes_of_mut(logits))?)
    }

    fn lm_head_argmax(
        &mut self,
        hidden: &Activation,
        rows: Range<usize>,
        head: &Matrix,
        bitmasks: &[Option<Bitmask<'_>>],
        num_tokens: usize,
        token_ids: &mut Vec<Option<u32>>,
    ) -> Result<bool, ModelError> {
        let (count, width) = (rows.len(), head.out_features());
        let device = self.device.clone();
        let head = LmHead {
            matrix: head,
            softcap: None,
        };
        let buffers = self.compute_head(hidden, rows, head)?;
        buffers.place(&device, bitmasks, count)?;
        let num_tokens = num_tokens.min(width);
        let masks = Some(buffers.masks.masks(&buffers.slots));
        let (logits, to) = (&buffers.logits, &mut buffers.token_ids);
        device.masked_argmax(logits, count, width, num_tokens, masks, to)?;
        let mut found = vec![0_i32; count];
        device.download(&buffers.token_ids, 0, bytes_of_mut(&mut found))?;
        token_ids.clear();
        token_ids.extend(found.into_iter().map(|id| u32::try_from(id).ok()));
        Ok(true)
    }

    fn lm_head_for(
        &mut self,
        hidden: &Activation,
        few: &[(usize, &[u32])],
        head: LmHead<'_, Matrix>,
        logits: &mut [f32],
    ) -> Result<(), ModelError> {
        let (device, count) = (self.device.clone(), logits.len());
        if count == 0 {
            return Ok(());
        }
        let buffers = self.head_buffers(head.matrix, 1)?;
        buffers.few_token_ids.clear();
        (few.iter()).for_each(|(_, ids)| buffers.few_token_ids.extend_from_slice(ids));
        buffers.make_room_for_few(&device, count)?;
        device.upload(&mut buffers.few_ids, 0, bytes_of(&buffers.few_token_ids))?;
        let (ids, to) = (&buffers.few_ids, &mut buffers.few_logits);
        let mut first = 0;
        for (row, token_ids) in few {
            let own = first..first + token_ids.len();
            first = own.end;
            device.head_for(&hidden.buffer, *row, ids, own, head.matrix, to)?;
        }
        if let Some(bound) = head.softcap {
            device.softcap(to, count, bound)?;
        }
        Ok(device.download(to, 0, bytes_of_mut(logits))?)
    }
}

/// Uploads the rows of a tensor, a piece at a time.
fn upload_rows(
    upload: &mut MatrixUpload,
    part: &StoredTensor<'_>,
    in_features: usize,
    format: WeightFormat,
) -> Result<(), ModelError> {
    if matches!(format, WeightFormat::Quantized(_) | WeightFormat::Wide(_)) {
        // As they would be used on the processor.
        return Ok(upload.push_f32(&part.to_f32_in(format))?);
    }
    let rows_at_once = (UPLOAD_BYTES / size_of::<f32>() / in_features.max(1)).max(1);
    let (mut stored, mut values) = (Vec::new(), Vec::new());
    for first in (0..part.rows()).step_by(rows_at_once) {
        let rows = first..part.rows().min(first + rows_at_once);
        if part.dtype() == StoredDtype::BF16 {
            stored.clear();
            rows.for_each(|row| stored.extend_from_slice(part.row(row)));
            upload.push_bf16(&stored)?;
        } else {
            values.clear();
            rows.for_each(|row| part.for_each_in_row(row, |_, value| values.push(value)));
            upload.push_f32(&values)?;
        }
    }
    Ok(())
}

/// Numbers as the device has them.
fn bytes_of<T: Number>(values: &[T]) -> &[u8] {
    // SAFETY: numbers have no padding and any of their bytes may be read as `u8`.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Numbers that the device writes.
fn bytes_of_mut<T: Number>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bytes are such a number.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Plain numbers of 4 bytes, any of which is one.
trait Number: Copy {}
impl Number for f32 {}
impl Number for u32 {}
impl Number for i32 {}
