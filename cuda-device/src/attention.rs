//! Causal attention over the paged cache.

use std::ops::Range;

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{DeviceError, ensure, to_u32};
use crate::kv_cache::{Heads, KvCache, KvFormat};
use crate::launch::Arguments;
use crate::rows::MAX_GRID_ROWS;
use crate::scratch::Room;

/// Positions of a part of the kernels on the plain units, whose sums are made apart and then merged.
pub(crate) const PART: usize = 256;
/// Query heads that share the loads of a key head in a block of theirs.
const MAX_GROUP: usize = 8;
/// Blocks above which a row's parts are computed by one block: there is enough to do without splitting them.
const ENOUGH_BLOCKS: usize = 1024;

/// Positions of a piece of the kernels on the tensor cores.
const PIECE: usize = 64;
/// Queries of a warp of theirs.
const QUERIES: usize = 16;
/// Queries of a block of the one for prefill.
const TILE_QUERIES: usize = 64;
/// Warps of a block of the one for decoding, a piece each: their shared memory leaves room for other blocks.
const PIECE_WARPS: usize = 2;
/// Bytes of pieces' sums that a launch may leave: a batch that needs more is split.
pub const MAX_PARTIAL_BYTES: usize = 256 << 20;

/// Where the rows of a batch stand, and in which blocks their requests' keys are.
#[derive(Debug, Clone, Copy)]
pub struct Paging<'a> {
    /// `[rows]` u32 positions.
    pub positions: &'a Buffer,
    /// `[rows]` u32 numbers of the rows' requests, below `num_requests`.
    pub requests: &'a Buffer,
    /// `[num_requests, table_stride]` u32 blocks, in the order of positions.
    pub block_tables: &'a Buffer,
    /// Requests in `block_tables`.
    pub num_requests: usize,
    /// Blocks from one request to the next.
    pub table_stride: usize,
    /// A number above every position of the batch. The results don't depend on it.
    pub max_len: usize,
    /// First and end of the rows, if any, of which many in a row are of one request: a kernel for prefill takes them, which
    /// is slow for rows that are alone. The results don't depend on it.
    pub prefill_rows: (usize, usize),
}

/// What attention makes of the products of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scores {
    /// What they are multiplied with.
    pub scale: f32,
    /// Their bound, by `bound * tanh(score / bound)`.
    pub softcap: Option<f32>,
    /// Positions attended to, the query's own included; `None` is all.
    pub window: Option<usize>,
}

impl Device {
    /// Attention of each row's queries over the positions `position - window + 1 ..= position` of its
    /// request. `qkv` is `[rows, qkv_width]`, of which the queries are read; keys and values are in the cache already.
    /// `out` is `[rows, num_heads * head_dim]`.
    #[allow(clippy::too_many_arguments)] // The batch, the layer and where the result goes.
    pub fn paged_attention(
        &self,
        qkv: &Buffer,
        rows: usize,
        heads: Heads,
        cache: &KvCache,
        paging: Paging<'_>,
        scores: Scores,
        out: &mut Buffer,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "paged_attention";
        cache.check(self, NAME, &heads)?;
        qkv.require_rows(self, NAME, "qkv", rows, heads.qkv_width())?;
        out.require_rows(self, NAME, "out", rows, heads.q_width())?;
        paging
            .positions
            .require_rows(self, NAME, "positions", rows, 1)?;
        paging
            .requests
            .require_rows(self, NAME, "requests", rows, 1)?;
        let (requests, stride) = (paging.num_requests, paging.table_stride);
        paging
            .block_tables
            .require_rows(self, NAME, "block_tables", requests, stride)?;
        ensure(
            requests > 0 && stride > 0 && paging.max_len > 0,
            NAME,
            || {
                format!(
                    "{requests} requests of {stride} blocks up to {}",
                    paging.max_len
                )
            },
        )?;
        ensure(scores.window != Some(0), NAME, || {
            "a window of 0".to_owned()
        })?;
        if rows == 0 {
            return Ok(());
        }
        let window = match scores.window {
            Some(window) if window < paging.max_len => to_u32(NAME, "the window", window)?,
            _ => 0,
        };
        to_u32(NAME, "rows", rows)?;
        to_u32(NAME, "requests", requests)?;
        to_u32(NAME, "the stride", stride)?;
        let call = Call {
            qkv,
            heads,
            cache,
            paging,
            scores,
            window,
            out,
        };
        let (first, end) = paging.prefill_rows;
        ensure(first <= end && end <= rows, NAME, || {
            format!("rows {first}..{end} of {rows}")
        })?;
        let Some(padded_dim) = tensor_core_dim(cache.format(), heads.head_dim) else {
            return call.launch_plain(self, rows);
        };
        call.launch_pieces(self, padded_dim, 0..first)?;
        call.launch_rows(self, padded_dim, first..end)?;
        call.launch_pieces(self, padded_dim, end..rows)
    }
}

/// Dimensions of a head as the tensor cores' kernels are compiled for them, if they take it.
fn tensor_core_dim(format: KvFormat, head_dim: usize) -> Option<usize> {
    if format != KvFormat::Bf16 || !head_dim.is_multiple_of(8) {
        return None;
    }
    [64, 96, 128].into_iter().find(|dim| head_dim <= *dim)
}

/// Shared memory of a piece's keys and values.
fn piece_bytes(padded_dim: usize) -> usize {
    let value_dim = if padded_dim > 64 { 128 } else { 64 };
    2 * PIECE * (padded_dim + value_dim)
}

/// Checked arguments of an attention.
struct Call<'a> {
    qkv: &'a Buffer,
    heads: Heads,
    cache: &'a KvCache,
    paging: Paging<'a>,
    scores: Scores,
    window: u32,
    out: &'a Buffer,
}

impl Call<'_> {
    /// Parts of `len` positions that a row may touch.
    fn num_parts(&self, len: usize) -> usize {
        match self.window as usize {
            0 => self.paging.max_len.div_ceil(len),
            // A window that starts within a part touches one more.
            window => (window - 1).div_ceil(len) + 1,
        }
    }

    /// What all kernels begin with, of rows from `first` on.
    fn arguments(&self, first: usize) -> Arguments {
        let Self {
            heads,
            cache,
            paging,
            ..
        } = self;
        Arguments::new()
            .buffer_at(self.qkv, first * heads.qkv_width() * 4)
            .u32(heads.num_heads as u32)
            .buffer(&cache.keys)
            .buffer(&cache.values)
            .u32(cache.num_blocks() as u32)
            .u32(heads.num_kv_heads as u32)
            .u32(cache.block_size() as u32)
            .u32(heads.head_dim as u32)
            .buffer_at(paging.positions, first * 4)
            .buffer_at(paging.requests, first * 4)
            .buffer(paging.block_tables)
            .u32(paging.num_requests as u32)
            .u32(paging.table_stride as u32)
            .f32(self.scores.scale)
            .f32(self.scores.softcap.unwrap_or(0.0))
            .u32(self.window)
    }

    fn group(&self) -> usize {
        self.heads.num_heads / self.heads.num_kv_heads
    }

    /// Each row by itself, on the plain units.
    fn launch_plain(&self, device: &Device, rows: usize) -> Result<(), DeviceError> {
        let heads = self.heads;
        let head_blocks = heads.num_kv_heads * self.group().div_ceil(MAX_GROUP);
        let parts = self.num_parts(PART);
        let is_split = parts > 1 && rows * head_blocks < ENOUGH_BLOCKS;
        let num_parts = if is_split { parts } else { 1 };
        let items = if is_split {
            rows * heads.num_heads * num_parts
        } else {
            0
        };
        let mut scratch = device.scratch();
        let sums = scratch.room(device, Room::Parts, items * (heads.head_dim + 2) * 4)?;
        let partial = sums + (items * 8) as u64;
        let kernel = match self.cache.format() {
            KvFormat::F32 => "paged_attention_f32",
            KvFormat::Bf16 => "paged_attention_bf16",
        };
        let arguments = self.arguments(0);
        let arguments = arguments
            .u32(num_parts as u32)
            .address(partial)
            .address(sums);
        let grid = [num_parts as u32, head_blocks as u32, rows as u32];
        device.launch(kernel, grid, PART as u32, 0, arguments.buffer(self.out))?;
        if is_split {
            self.launch_merge(device, 0..rows, (PART, num_parts), (partial, sums))?;
        }
        Ok(())
    }

    /// Each row's pieces apart, on the tensor cores.
    fn launch_pieces(
        &self,
        device: &Device,
        padded_dim: usize,
        rows: Range<usize>,
    ) -> Result<(), DeviceError> {
        let heads = self.heads;
        let num_pieces = self.num_parts(PIECE);
        let row_items = heads.num_heads * num_pieces;
        let row_bytes = row_items * (heads.head_dim + 2) * 4;
        let at_once = (MAX_PARTIAL_BYTES / row_bytes).clamp(1, MAX_GRID_ROWS);
        let kernel = match padded_dim {
            64 => "attention_pieces_64",
            96 => "attention_pieces_96",
            _ => "attention_pieces_128",
        };
        let head_blocks = heads.num_kv_heads * self.group().div_ceil(QUERIES);
        let mut scratch = device.scratch();
        for first in rows.clone().step_by(at_once) {
            let count = at_once.min(rows.end - first);
            let sums = scratch.room(device, Room::Parts, count * row_bytes)?;
            let partial = sums + (count * row_items * 8) as u64;
            let arguments = self.arguments(first);
            let arguments = arguments
                .u32(num_pieces as u32)
                .address(partial)
                .address(sums);
            let blocks = num_pieces.div_ceil(PIECE_WARPS);
            let grid = [blocks as u32, head_blocks as u32, count as u32];
            let shared = (PIECE_WARPS * piece_bytes(padded_dim)) as u32;
            device.launch(kernel, grid, 32 * PIECE_WARPS as u32, shared, arguments)?;
            let range = first..first + count;
            self.launch_merge(device, range, (PIECE, num_pieces), (partial, sums))?;
        }
        Ok(())
    }

    /// Many rows of a request together, on the tensor cores.
    fn launch_rows(
        &self,
        device: &Device,
        padded_dim: usize,
        rows: Range<usize>,
    ) -> Result<(), DeviceError> {
        let heads = self.heads;
        let kernel = match padded_dim {
            64 => "attention_rows_64",
            96 => "attention_rows_96",
            _ => "attention_rows_128",
        };
        let tile_rows = TILE_QUERIES / self.group().min(QUERIES);
        let head_blocks = heads.num_kv_heads * self.group().div_ceil(QUERIES);
        let arguments = self.arguments(rows.start).u32(rows.len() as u32);
        let arguments = arguments.buffer_at(self.out, rows.start * heads.q_width() * 4);
        let grid = [rows.len().div_ceil(tile_rows) as u32, head_blocks as u32, 1];
        let shared = piece_bytes(padded_dim) as u32;
        device.launch(kernel, grid, 2 * TILE_QUERIES as u32, shared, arguments)
    }

    /// Merges what a kernel has left of the parts of some rows.
    fn launch_merge(
        &self,
        device: &Device,
        rows: Range<usize>,
        (part_len, num_parts): (usize, usize),
        (partial, sums): (u64, u64),
    ) -> Result<(), DeviceError> {
        let heads = self.heads;
        let arguments = Arguments::new()
            .address(partial)
            .address(sums)
            .buffer_at(self.paging.positions, rows.start * 4)
            .u32(self.window)
            .u32(part_len as u32)
            .u32(num_parts as u32)
            .u32(heads.head_dim as u32)
            .buffer_at(self.out, rows.start * heads.q_width() * 4);
        let threads = heads.head_dim.next_multiple_of(32) as u32;
        let grid = [heads.num_heads as u32, rows.len() as u32, 1];
        device.launch("merge_parts", grid, threads, 0, arguments)
    }
}
