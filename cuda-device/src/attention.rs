//! Causal attention over the paged cache.

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{DeviceError, ensure, to_u32};
use crate::kv_cache::{Heads, KvCache, KvFormat};
use crate::launch::Arguments;
use crate::scratch::Room;

/// Positions of a part, whose sums are made apart and then merged.
pub const PART: usize = 256;
/// Query heads that share the loads of a key head in a block.
const MAX_GROUP: usize = 8;
/// Blocks above which a row's parts are computed by one block: there is enough to do without splitting them.
const ENOUGH_BLOCKS: usize = 1024;

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
        // A window that starts within a part touches one more.
        let seen = match window {
            0 => paging.max_len.div_ceil(PART),
            window => (window as usize - 1).div_ceil(PART) + 1,
        };
        let group_tiles = (heads.num_heads / heads.num_kv_heads).div_ceil(MAX_GROUP);
        let head_blocks = heads.num_kv_heads * group_tiles;
        let is_split = seen > 1 && rows * head_blocks < ENOUGH_BLOCKS;
        let num_parts = if is_split { seen } else { 1 };

        let mut scratch = self.scratch();
        let items = rows * heads.num_heads * num_parts;
        let sums_bytes = if is_split { items * 8 } else { 0 };
        let bytes = if is_split {
            items * heads.head_dim * 4
        } else {
            0
        };
        let sums = scratch.room(self, Room::Parts, sums_bytes + bytes)?;
        let partial = sums + sums_bytes as u64;
        let kernel = match cache.format() {
            KvFormat::F32 => "paged_attention_f32",
            KvFormat::Bf16 => "paged_attention_bf16",
        };
        let rows_u32 = to_u32(NAME, "rows", rows)?;
        let arguments = Arguments::new()
            .buffer(qkv)
            .u32(heads.num_heads as u32)
            .buffer(&cache.keys)
            .buffer(&cache.values)
            .u32(cache.num_blocks() as u32)
            .u32(heads.num_kv_heads as u32)
            .u32(cache.block_size() as u32)
            .u32(heads.head_dim as u32)
            .buffer(paging.positions)
            .buffer(paging.requests)
            .buffer(paging.block_tables)
            .u32(to_u32(NAME, "requests", requests)?)
            .u32(to_u32(NAME, "the stride", stride)?)
            .f32(scores.scale)
            .f32(scores.softcap.unwrap_or(0.0))
            .u32(window)
            .u32(num_parts as u32)
            .address(partial)
            .address(sums)
            .buffer(out);
        let grid = [num_parts as u32, head_blocks as u32, rows_u32];
        self.launch(kernel, grid, PART as u32, 0, arguments)?;
        if !is_split {
            return Ok(());
        }
        let arguments = Arguments::new()
            .address(partial)
            .address(sums)
            .buffer(paging.positions)
            .u32(window)
            .u32(num_parts as u32)
            .u32(heads.head_dim as u32)
            .buffer(out);
        let threads = heads.head_dim.next_multiple_of(32) as u32;
        let grid = [heads.num_heads as u32, rows_u32, 1];
        self.launch("merge_parts", grid, threads, 0, arguments)
    }
}
