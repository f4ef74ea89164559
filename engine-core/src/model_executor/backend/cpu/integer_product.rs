//! Products of quantized rows with quantized weights: with which instructions, how many rows at a
//! time. What a product does stands with its format ([`super::quantized`], [`super::k_multiply`]).

use super::integer::IntegerSimd;
use super::panels::Part;
use super::prefetch::{RowBlock, row_blocks};
use super::simd::{Portable, SimdLevel};
#[cfg(target_arch = "aarch64")]
use super::simd_neon::Neon;
#[cfg(target_arch = "x86_64")]
use super::simd_x86::{Avx2, Avx512};

/// Most rows of one block, whatever the product.
const MOST_ROWS: usize = 6;

/// The product of one format.
pub(crate) trait IntegerProduct {
    /// What a row of activations is made of; one goes with [`Self::DEPTH_BYTES`] of weights.
    type Input;

    /// Bytes of a panel for one element of the depth.
    const DEPTH_BYTES: usize;
    /// Rows whose sums fit 32 registers of 64 bytes, at most [`MOST_ROWS`].
    const ROWS_AVX512: usize;
    /// Rows whose sums fit 32 registers of 16 bytes, at most [`MOST_ROWS`].
    const ROWS_NEON: usize;

    /// The product for the `ROWS` rows of a block and `VECS * 16` columns from `col` on; `weights` is
    /// the part of the panel that belongs to the depth of `part`. To be inlined always, so that it is
    /// compiled with the level's instructions.
    ///
    /// # Safety
    /// The processor must have the level of `S`. `part` must be valid as
    /// [`PanelKernel::multiply`](super::panels::PanelKernel::multiply) asks; `weights` must hold its
    /// depth and the columns.
    unsafe fn multiply<S: IntegerSimd, const ROWS: usize, const VECS: usize>(
        &self,
        weights: *const u8,
        col: usize,
        part: &Part<Self::Input>,
        block: RowBlock,
    );
}

/// `P::multiply` compiled for a level; no body for more rows than the level has at a time.
macro_rules! at_level {
    ($(#[$meta:meta])* $name:ident, $simd:ty, $most:expr) => {
        $(#[$meta])*
        unsafe fn $name<P: IntegerProduct, const ROWS: usize, const VECS: usize>(
            product: &P,
            weights: *const u8,
            col: usize,
            part: &Part<P::Input>,
            block: RowBlock,
        ) {
            if ROWS <= $most {
                // SAFETY: passed on to the caller.
                unsafe { product.multiply::<$simd, ROWS, VECS>(weights, col, part, block) }
            }
        }
    };
}

at_level!(
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    multiply_vnni,
    Avx512,
    P::ROWS_AVX512
);
at_level!(
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    multiply_avx2,
    Avx2,
    ROWS_AVX2
);
at_level!(
    #[cfg(target_arch = "aarch64")]
    #[target_feature(enable = "neon,dotprod")]
    multiply_neon,
    Neon,
    P::ROWS_NEON
);
at_level!(multiply_portable, Portable, ROWS_PORTABLE);

/// Rows at a time with 16 registers of 32 bytes.
#[cfg(target_arch = "x86_64")]
const ROWS_AVX2: usize = 2;

/// Rows at a time where nothing is known of the registers.
const ROWS_PORTABLE: usize = 1;

/// The product for the rows of `part` and 32 (`wide`) or 16 columns, in blocks that fit the
/// registers.
///
/// # Safety
/// The processor must have `level`. `part` must be valid as
/// [`PanelKernel::multiply`](super::panels::PanelKernel::multiply) asks; `weights` must hold its depth
/// and the columns.
pub(crate) unsafe fn multiply_rows<P: IntegerProduct>(
    product: &P,
    level: SimdLevel,
    weights: *const u8,
    col: usize,
    wide: bool,
    part: &Part<P::Input>,
) {
    const { assert!(P::ROWS_AVX512 <= MOST_ROWS && P::ROWS_NEON <= MOST_ROWS) };
    macro_rules! multiply_block {
        ($kernel:ident, $block:ident, [$($n:literal),*]) => {
            match ($block.count, wide) {
                $(($n, true) => $kernel::<P, $n, 2>(product, weights, col, part, $block),
                ($n, false) => $kernel::<P, $n, 1>(product, weights, col, part, $block),)*
                _ => unreachable!("a block has as many rows as fit"),
            }
        };
    }
    let most = match level {
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512Vnni(_) | SimdLevel::Avx512Bf16(_) | SimdLevel::Amx(_) => P::ROWS_AVX512,
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512(_) | SimdLevel::Avx2(_) => ROWS_AVX2,
        #[cfg(target_arch = "aarch64")]
        SimdLevel::NeonDot(_) => P::ROWS_NEON,
        #[cfg(target_arch = "aarch64")]
        SimdLevel::Neon => ROWS_PORTABLE,
        SimdLevel::Portable => ROWS_PORTABLE,
    };
    let part_bytes = wide.then_some(part.depth * P::DEPTH_BYTES);
    for block in row_blocks(part.rows, most, part_bytes) {
        let block = match level.has_tiles() {
            true => block.asking_evenly(),
            false => block,
        };
        // SAFETY: the rows of the block are among those that the caller vouches for.
        unsafe {
            match level {
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx512Vnni(_) | SimdLevel::Avx512Bf16(_) | SimdLevel::Amx(_) => {
                    multiply_block!(multiply_vnni, block, [1, 2, 3, 4, 5, 6]);
                }
                // Without dot products of bytes wider vectors gain nothing.
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx512(_) | SimdLevel::Avx2(_) => {
                    multiply_block!(multiply_avx2, block, [1, 2]);
                }
                #[cfg(target_arch = "aarch64")]
                SimdLevel::NeonDot(_) => {
                    multiply_block!(multiply_neon, block, [1, 2, 3, 4, 5, 6]);
                }
                #[cfg(target_arch = "aarch64")]
                SimdLevel::Neon => multiply_block!(multiply_portable, block, [1]),
                SimdLevel::Portable => multiply_block!(multiply_portable, block, [1]),
            }
        }
    }
}
