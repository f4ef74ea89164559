//! The one product kernel: some rows times 16 or 32 columns of a panel.
//!
//! Linear layers, attention scores and attention outputs are all this kernel. It is compiled once
//! per level, format, number of rows and width, and nowhere inlined: the variants are many.

use super::format::Format;
use super::panels::PANEL_WIDTH;
use super::prefetch::{RowBlock, row_blocks};
use super::simd::{LANES, Portable, Simd, SimdLevel};
#[cfg(target_arch = "aarch64")]
use super::simd_neon::Neon;
#[cfg(target_arch = "x86_64")]
use super::simd_x86::{Avx2, Avx512};

/// `c[r, ..] = init[r, ..] + sum over p of a[r, p] * panel[p, col..]`, `p` in `0..depth`.
///
/// `init` may be `c`. With `init_stride` 0 all rows begin with the same values.
pub(crate) struct Product<F: Format> {
    pub(crate) a: *const f32,
    pub(crate) a_stride: usize,
    pub(crate) panel: *const F::Element,
    /// First column.
    pub(crate) col: usize,
    /// Columns of the panel.
    pub(crate) width: usize,
    pub(crate) depth: usize,
    pub(crate) init: *const f32,
    pub(crate) init_stride: usize,
    pub(crate) c: *mut f32,
    pub(crate) c_stride: usize,
    /// Whether the panel is a matrix's, [`PANEL_WIDTH`] wide, and followed by what is read next, so that
    /// it pays to ask for it.
    pub(crate) streams: bool,
}

/// The product for the `ROWS` rows of a block and `VECS * 16` columns, from column `col` of
/// `product` on.
///
/// Every element of `c` is one chain of multiply-adds in ascending `p`, whatever `ROWS` and
/// `VECS` are: this is what makes a row's result the same alone and in any batch.
#[inline(always)]
unsafe fn multiply<S: Simd, F: Format, const ROWS: usize, const VECS: usize>(
    product: &Product<F>,
    col: usize,
    block: RowBlock,
) {
    let (row, mut prefetch) = (block.first, block.prefetch);
    let Product {
        panel,
        width,
        depth,
        a_stride,
        init_stride,
        c_stride,
        ..
    } = *product;
    // SAFETY: all accesses lie within what the caller of `multiply_rows` vouches for.
    unsafe {
        let a = product.a.add(row * a_stride);
        let init = product.init.add(row * init_stride + col);
        let c = product.c.add(row * c_stride + col);
        let col = product.col + col;
        let mut sums = [[S::splat(0.0); VECS]; ROWS];
        for (row, sums) in sums.iter_mut().enumerate() {
            for (vec, sum) in sums.iter_mut().enumerate() {
                *sum = S::load(init.add(row * init_stride + vec * LANES));
            }
        }
        let even_depth = depth & !1;
        let mut p = 0;
        // Two rows of the panel from `p` on.
        let mut pair = panel;
        while p < even_depth {
            // What streams is as wide as a matrix's panel: a number that is known here, so that this
            // is two instructions and no loop.
            let bytes = 2 * PANEL_WIDTH * size_of::<F::Element>();
            prefetch.step::<S>(pair.cast(), bytes);
            let mut first = [S::splat(0.0); VECS];
            let mut second = [S::splat(0.0); VECS];
            for vec in 0..VECS {
                (first[vec], second[vec]) = F::load_rows::<S>(pair, 0, col + vec * LANES, width);
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let factor = S::splat(*a.add(row * a_stride + p));
                for (sum, b) in sums.iter_mut().zip(first) {
                    *sum = S::fma(factor, b, *sum);
                }
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let factor = S::splat(*a.add(row * a_stride + p + 1));
                for (sum, b) in sums.iter_mut().zip(second) {
                    *sum = S::fma(factor, b, *sum);
                }
            }
            p += 2;
            pair = pair.wrapping_add(2 * width);
        }
        if depth > even_depth {
            for vec in 0..VECS {
                let b = F::load_row::<S>(pair, 0, col + vec * LANES, width);
                for (row, sums) in sums.iter_mut().enumerate() {
                    sums[vec] = S::fma(S::splat(*a.add(row * a_stride + p)), b, sums[vec]);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (vec, sum) in sums.iter().enumerate() {
                S::store(c.add(row * c_stride + vec * LANES), *sum);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn multiply_avx512<F: Format, const ROWS: usize, const VECS: usize>(
    product: &Product<F>,
    col: usize,
    block: RowBlock,
) {
    // SAFETY: passed on to the caller.
    unsafe { multiply::<Avx512, F, ROWS, VECS>(product, col, block) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply_avx2<F: Format, const ROWS: usize, const VECS: usize>(
    product: &Product<F>,
    col: usize,
    block: RowBlock,
) {
    // SAFETY: passed on to the caller.
    unsafe { multiply::<Avx2, F, ROWS, VECS>(product, col, block) }
}

#[cfg(target_arch = "aarch64")]
unsafe fn multiply_neon<F: Format, const ROWS: usize, const VECS: usize>(
    product: &Product<F>,
    col: usize,
    block: RowBlock,
) {
    // SAFETY: passed on to the caller.
    unsafe { multiply::<Neon, F, ROWS, VECS>(product, col, block) }
}

unsafe fn multiply_portable<F: Format, const ROWS: usize, const VECS: usize>(
    product: &Product<F>,
    col: usize,
    block: RowBlock,
) {
    // SAFETY: passed on to the caller.
    unsafe { multiply::<Portable, F, ROWS, VECS>(product, col, block) }
}

/// Most rows of one call of the kernel, at the level with the most registers.
pub(crate) const MAX_ROWS: usize = 8;

/// The product for `rows` rows and 32 (`wide`) or 16 columns, in blocks that fit the registers.
///
/// # Safety
/// The processor must have `level`. `a`, `init` and `c` must be valid for `rows` rows of `depth`
/// or 32 (16) values at their strides; `panel` must hold `depth` rows and the columns.
pub(crate) unsafe fn multiply_rows<F: Format>(
    level: SimdLevel,
    rows: usize,
    wide: bool,
    product: &Product<F>,
) {
    macro_rules! multiply_block {
        ($kernel:ident, $vecs:literal, $block:ident, $col:expr, [$($n:literal),*]) => {
            match $block.count {
                $($n => $kernel::<F, $n, $vecs>(product, $col, $block),)*
                _ => unreachable!("a block has at most {MAX_ROWS} rows"),
            }
        };
    }
    let most = match level {
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx512(_)
        | SimdLevel::Avx512Vnni(_)
        | SimdLevel::Avx512Bf16(_)
        | SimdLevel::Amx(_) => MAX_ROWS,
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2(_) => 6,
        #[cfg(target_arch = "aarch64")]
        SimdLevel::Neon | SimdLevel::NeonDot(_) => 5,
        SimdLevel::Portable => 4,
    };
    debug_assert!(!product.streams || product.width == PANEL_WIDTH);
    let part_bytes = product.depth * product.width * size_of::<F::Element>();
    for block in row_blocks(rows, most, product.streams.then_some(part_bytes)) {
        // SAFETY: the rows of the block are among those that the caller vouches for.
        unsafe {
            match level {
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx512(_)
                | SimdLevel::Avx512Vnni(_)
                | SimdLevel::Avx512Bf16(_)
                | SimdLevel::Amx(_)
                    if wide =>
                {
                    multiply_block!(multiply_avx512, 2, block, 0, [1, 2, 3, 4, 5, 6, 7, 8]);
                }
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx512(_)
                | SimdLevel::Avx512Vnni(_)
                | SimdLevel::Avx512Bf16(_)
                | SimdLevel::Amx(_) => {
                    multiply_block!(multiply_avx512, 1, block, 0, [1, 2, 3, 4, 5, 6, 7, 8]);
                }
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx2(_) if wide && block.count <= 2 => {
                    multiply_block!(multiply_avx2, 2, block, 0, [1, 2]);
                }
                #[cfg(target_arch = "x86_64")]
                SimdLevel::Avx2(_) => {
                    multiply_block!(multiply_avx2, 1, block, 0, [1, 2, 3, 4, 5, 6]);
                    if wide {
                        multiply_block!(multiply_avx2, 1, block, LANES, [1, 2, 3, 4, 5, 6]);
                    }
                }
                #[cfg(target_arch = "aarch64")]
                SimdLevel::Neon | SimdLevel::NeonDot(_) => {
                    multiply_block!(multiply_neon, 1, block, 0, [1, 2, 3, 4, 5]);
                    if wide {
                        multiply_block!(multiply_neon, 1, block, LANES, [1, 2, 3, 4, 5]);
                    }
                }
                SimdLevel::Portable => {
                    multiply_block!(multiply_portable, 1, block, 0, [1, 2, 3, 4]);
                    if wide {
                        multiply_block!(multiply_portable, 1, block, LANES, [1, 2, 3, 4]);
                    }
                }
            }
        }
    }
}
