//! Matrices in the formats of GGUF files with blocks of 256 values, packed at load.
//!
//! A panel is 32 outputs wide and as deep as the matrix in blocks. A block is `d` of its 32 outputs
//! (half precision), `d_min` where the format has minimums, then 8 groups of 32 values. A group is two
//! bytes of each output (scale and minimum, or the scales of its halves), the values' lower four bits
//! as `q4_0` has them, and planes of 64 bytes with their upper bits: the byte of output and value
//! `k % 4` holds those of all values that are multiplied with it in other steps. So the bits are the
//! file's, and so is their number.

use half::f16;

use gguf::{K_BLOCK_LEN, KBlock};

use super::buffer::Buffer;
use super::packing::{for_each_row_of_panel, pack_panels, padded_bias};
use super::panels::PANEL_WIDTH;
use super::shared_weights::Weights;
use super::simd::LANES;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;
use crate::model_executor::quantization::{GROUP, KFormat};
use crate::model_executor::weights::StoredTensor;

/// Groups of a block.
pub(crate) const GROUPS: usize = K_BLOCK_LEN / GROUP;

/// Bytes of one half-precision number for each output.
pub(crate) const HALVES: usize = 2 * PANEL_WIDTH;

/// Bytes of a group before its values.
pub(crate) const SCALES: usize = 2 * PANEL_WIDTH;

/// Bytes of a group's lower bits.
pub(crate) const LOWER: usize = GROUP * PANEL_WIDTH / 2;

/// Bytes of a plane: four of each of 16 outputs.
pub(crate) const PLANE: usize = 4 * LANES;

/// A format's layout in a panel.
pub(crate) trait KLayout: Send + Sync + 'static {
    const FORMAT: KFormat;
    /// Planes of 16 outputs in a group.
    const PLANES: usize;
    /// Upper bits of a value.
    const UPPER_BITS: u32;
    /// Whether there are minimums; else a group has two scales.
    const HAS_MINIMUMS: bool;
    /// What is stored for 0, where there are no minimums.
    const ZERO: i32;

    /// Bytes before the groups.
    const HEADER: usize = if Self::HAS_MINIMUMS {
        2 * HALVES
    } else {
        HALVES
    };
    /// Bytes of a group, a multiple of 64.
    const GROUP_BYTES: usize = SCALES + LOWER + 2 * Self::PLANES * PLANE;
    /// Bytes of a block.
    const BLOCK_BYTES: usize = Self::HEADER + GROUPS * Self::GROUP_BYTES;
}

/// 4 bits with minimums.
pub(crate) struct Q4K;
impl KLayout for Q4K {
    const FORMAT: KFormat = KFormat::Q4K;
    const PLANES: usize = 0;
    const UPPER_BITS: u32 = 0;
    const HAS_MINIMUMS: bool = true;
    const ZERO: i32 = 0;
}

/// 5 bits with minimums.
pub(crate) struct Q5K;
impl KLayout for Q5K {
    const FORMAT: KFormat = KFormat::Q5K;
    const PLANES: usize = 1;
    const UPPER_BITS: u32 = 1;
    const HAS_MINIMUMS: bool = true;
    const ZERO: i32 = 0;
}

/// 6 bits, a scale for every 16.
pub(crate) struct Q6K;
impl KLayout for Q6K {
    const FORMAT: KFormat = KFormat::Q6K;
    const PLANES: usize = 2;
    const UPPER_BITS: u32 = 2;
    const HAS_MINIMUMS: bool = false;
    const ZERO: i32 = 32;
}

/// Where the upper bits of a step's values stand: which of the planes, and from which bit on. `half`
/// is 0 for the first 16 values of a group.
pub(crate) const fn upper_place<L: KLayout>(step: usize, half: usize) -> (usize, u32) {
    match L::PLANES {
        // All eight bits of one plane.
        1 => (0, (step + 4 * half) as u32),
        // A plane for each half, two bits for each step.
        _ => (half, 2 * step as u32),
    }
}

/// Where value `k` of output `col` stands in a group: the byte of its lower bits and by how much they
/// are shifted, and the same of its upper bits.
fn place<L: KLayout>(k: usize, col: usize) -> [(usize, u32); 2] {
    let (half, step) = (k / 16, k % 16 / 4);
    let lower = SCALES + (step * PANEL_WIDTH + col) * 4 + k % 4;
    let (plane, shift) = upper_place::<L>(step, half);
    let plane = SCALES + LOWER + (col / LANES * L::PLANES + plane) * PLANE;
    let upper = plane + col % LANES * 4 + k % 4;
    [(lower, 4 * half as u32), (upper, shift)]
}

fn write_block<L: KLayout>(block: &KBlock, col: usize, to: &mut [u8]) {
    to[2 * col..][..2].copy_from_slice(&block.d.to_bits().to_ne_bytes());
    if L::HAS_MINIMUMS {
        to[HALVES + 2 * col..][..2].copy_from_slice(&block.d_min.to_bits().to_ne_bytes());
    }
    for (group, to) in to[L::HEADER..].chunks_exact_mut(L::GROUP_BYTES).enumerate() {
        let pair = match L::HAS_MINIMUMS {
            true => [block.scales[group] as u8, block.minimums[group]],
            false => [2 * group, 2 * group + 1].map(|half| block.scales[half] as u8),
        };
        to[col] = pair[0];
        to[PANEL_WIDTH + col] = pair[1];
        for (k, integer) in block.integers[group * GROUP..][..GROUP].iter().enumerate() {
            let [(lower, shift), (upper, upper_shift)] = place::<L>(k, col);
            to[lower] |= (integer & 15) << shift;
            if L::PLANES > 0 {
                to[upper] |= (integer >> 4) << upper_shift;
            }
        }
    }
}

/// A weight `[out_features, in_features]` in panels of layout `L`.
pub(crate) struct KMatrix<L: KLayout> {
    panels: Weights<u8>,
    bias: Buffer<f32>,
    out_features: usize,
    in_features: usize,
    layout: std::marker::PhantomData<L>,
}

impl<L: KLayout> KMatrix<L> {
    /// Bytes of the panels of such a matrix.
    pub(crate) fn num_bytes(out_features: usize, in_features: usize) -> usize {
        out_features.div_ceil(PANEL_WIDTH) * (in_features / K_BLOCK_LEN) * L::BLOCK_BYTES
    }

    /// Packs tensors `[n_i, in_features]` of the format, stacked, to the panels of one matrix. Rows are whole
    /// blocks, as in every file.
    pub(crate) fn pack(
        pool: &ComputePool,
        in_features: usize,
        parts: &[StoredTensor<'_>],
    ) -> Result<Buffer<u8>, ModelError> {
        let format = L::FORMAT.tensor_type();
        let stored_bytes = format.block().map_or(1, |(_, bytes)| bytes);
        let num_blocks = in_features / K_BLOCK_LEN;
        let row_bytes = num_blocks * stored_bytes;
        assert!(
            in_features.is_multiple_of(K_BLOCK_LEN)
                && (parts.iter()).all(|part| part.num_bytes() == part.rows() * row_bytes),
            "rows must be whole blocks"
        );
        let panel_len = num_blocks * L::BLOCK_BYTES;
        pack_panels(pool, parts, panel_len, &|panel, to: &mut [u8]| {
            for_each_row_of_panel(parts, panel, |col, part, row| {
                let blocks = part.row(row).chunks_exact(stored_bytes);
                for (block, to) in blocks.zip(to.chunks_exact_mut(L::BLOCK_BYTES)) {
                    if let Some(block) = KBlock::read(format, block) {
                        write_block::<L>(&block, col, to);
                    }
                }
            });
        })
    }

    /// A matrix of such panels.
    pub(crate) fn new(
        panels: Weights<u8>,
        out_features: usize,
        in_features: usize,
        bias: Option<&[f32]>,
    ) -> Result<Self, ModelError> {
        assert!(
            panels.len() == Self::num_bytes(out_features, in_features),
            "panels of another size"
        );
        Ok(Self {
            panels,
            bias: padded_bias(out_features, bias)?,
            out_features,
            in_features,
            layout: std::marker::PhantomData,
        })
    }

    pub(crate) fn out_features(&self) -> usize {
        self.out_features
    }

    pub(crate) fn in_features(&self) -> usize {
        self.in_features
    }

    pub(crate) fn num_blocks(&self) -> usize {
        self.in_features / K_BLOCK_LEN
    }

    /// `[out_features]`, padded to whole panels.
    pub(crate) fn bias(&self) -> &[f32] {
        &self.bias
    }

    /// The blocks of a panel from block `first` on.
    pub(crate) fn blocks(&self, panel: usize, first: usize) -> &[u8] {
        let end = (panel + 1) * self.num_blocks() * L::BLOCK_BYTES;
        &self.panels[(panel * self.num_blocks() + first) * L::BLOCK_BYTES..end]
    }

    /// Writes row `feature` of the matrix, as a table of embeddings is read: the file's values.
    pub(crate) fn read_row(&self, feature: usize, out: &mut [f32]) {
        let blocks = self.blocks(feature / PANEL_WIDTH, 0);
        let col = feature % PANEL_WIDTH;
        let half = |bytes: &[u8]| f16::from_ne_bytes([bytes[2 * col], bytes[2 * col + 1]]).to_f32();
        let blocks = blocks.chunks_exact(L::BLOCK_BYTES);
        for (out, block) in out.chunks_mut(K_BLOCK_LEN).zip(blocks) {
            let d = half(block);
            let d_min = match L::HAS_MINIMUMS {
                true => half(&block[HALVES..]),
                false => 0.0,
            };
            let groups = block[L::HEADER..].chunks_exact(L::GROUP_BYTES);
            for (out, group) in out.chunks_mut(GROUP).zip(groups) {
                let pair = [group[col], group[PANEL_WIDTH + col]];
                for (k, out) in out.iter_mut().enumerate() {
                    let [(lower, shift), (upper, upper_shift)] = place::<L>(k, col);
                    let mut integer = i32::from(group[lower] >> shift & 15);
                    if L::PLANES > 0 {
                        let mask = (1 << L::UPPER_BITS) - 1;
                        integer |= i32::from(group[upper] >> upper_shift & mask) << 4;
                    }
                    *out = if L::HAS_MINIMUMS {
                        d * f32::from(pair[0]) * integer as f32 - d_min * f32::from(pair[1])
                    } else {
                        d * f32::from(pair[k / 16] as i8) * (integer - L::ZERO) as f32
                    };
                }
            }
        }
    }
}
