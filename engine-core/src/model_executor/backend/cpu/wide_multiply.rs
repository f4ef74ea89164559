//! Products of rows in wide groups with a [`WideMatrix`].

use super::integer::IntegerSimd;
use super::integer_product::{IntegerProduct, multiply_rows};
use super::panels::{PANEL_WIDTH, PanelKernel, Part};
use super::prefetch::{Prefetch, RowBlock};
use super::simd::{LANES, SimdLevel};
use super::wide::{HEADERS_AHEAD, SCALES, STEP, TILE, UNIT, Wide4, Wide8, WideLayout, WideMatrix};
use super::wide_rows::{WideRowGroup, num_wide_groups};
#[cfg(target_arch = "x86_64")]
use super::wide_tiles;
use crate::model_executor::wide_quantization::{FACTOR_GROUP, NUM_FACTORS, WideFormat};

/// Products with a matrix.
pub(crate) struct WideKernel<'a, L: WideLayout> {
    pub(crate) matrix: &'a WideMatrix<L>,
    pub(crate) level: SimdLevel,
}

impl<L: WideLayout> WideKernel<'_, L> {
    /// Whether tiles are faster than vectors for so many rows; their results are the same.
    #[cfg(target_arch = "x86_64")]
    fn goes_by_tiles(&self, rows: usize) -> bool {
        self.level.has_tiles() && rows >= wide_tiles::LEAST_ROWS
    }

    /// There are none.
    #[cfg(not(target_arch = "x86_64"))]
    fn goes_by_tiles(&self, _rows: usize) -> bool {
        false
    }
}

impl<L: WideLayout> PanelKernel for WideKernel<'_, L> {
    type Input = WideRowGroup;

    fn out_features(&self) -> usize {
        self.matrix.out_features()
    }
    fn depth(&self) -> usize {
        num_wide_groups(self.matrix.in_features())
    }
    fn work_per_output(&self) -> usize {
        // A quarter of what f32 takes, where there are instructions for bytes.
        self.matrix.in_features() / 2
    }
    fn depth_block(&self, rows: usize) -> usize {
        if self.goes_by_tiles(rows) {
            // They walk it in chunks of their own.
            return self.depth().max(1);
        }
        (16 * 1024 / L::GROUP_BYTES).max(1)
    }
    fn row_block(&self) -> usize {
        if !self.level.has_tiles() {
            return 96;
        }
        // Whose activations take two thirds of the second cache.
        let row_bytes = self.depth() * size_of::<WideRowGroup>();
        ((5 << 18) / row_bytes.max(1)).clamp(32, 256) / 32 * 32
    }
    fn row_step(&self) -> usize {
        if self.level.has_tiles() { 32 } else { 1 }
    }
    fn bias(&self) -> &[f32] {
        self.matrix.bias()
    }
    unsafe fn multiply(&self, panel: usize, col: usize, wide: bool, part: &Part<WideRowGroup>) {
        let groups = self.matrix.groups(panel, part.first).as_ptr();
        let headers = self.matrix.headers(panel, part.first).as_ptr();
        #[cfg(target_arch = "x86_64")]
        if wide && self.goes_by_tiles(part.rows) {
            // SAFETY: the caller vouches for rows, results and groups; the level has tiles.
            return unsafe { wide_tiles::multiply(self.matrix, groups, headers, part) };
        }
        let product = VectorProduct {
            matrix: self.matrix,
            headers,
        };
        // SAFETY: the caller vouches for rows, results, columns and groups.
        unsafe { multiply_rows(&product, self.level, groups, col, wide, part) }
    }
}

/// The product with a part of a panel by vectors.
struct VectorProduct<'a, L: WideLayout> {
    matrix: &'a WideMatrix<L>,
    /// Of the groups that are multiplied.
    headers: *const u8,
}

/// Every element of `c` is one chain of multiply-adds in ascending groups, whatever `ROWS` and
/// `VECS` are; the products inside a group are whole numbers and summed exactly.
impl<L: WideLayout> IntegerProduct for VectorProduct<'_, L> {
    type Input = WideRowGroup;

    const DEPTH_BYTES: usize = L::GROUP_BYTES;
    const ROWS_AVX512: usize = 6;
    const ROWS_NEON: usize = match L::FORMAT {
        WideFormat::Wide8 => 3,
        WideFormat::Wide4 => 2,
    };

    #[inline(always)]
    unsafe fn multiply<S: IntegerSimd, const ROWS: usize, const VECS: usize>(
        &self,
        groups: *const u8,
        col: usize,
        part: &Part<WideRowGroup>,
        block: RowBlock,
    ) {
        let (row, mut prefetch) = (block.first, block.prefetch);
        // SAFETY: all accesses lie within what the caller of `multiply_rows` vouches for.
        unsafe {
            let x = part.x.add(row * part.x_stride);
            let mut totals = part.initial_sums::<S, ROWS, VECS>(row);
            for index in 0..part.depth {
                let group = groups.add(index * L::GROUP_BYTES);
                let header = self.headers.add(index * L::HEADER);
                for line in (0..L::HEADER).step_by(64) {
                    S::prefetch(header.wrapping_add(HEADERS_AHEAD * L::HEADER + line));
                }
                let x = |row: usize| x.add(row * part.x_stride + index);
                let num_parts = self.matrix.units(part.first + index) * (UNIT / FACTOR_GROUP);
                let weights = (group, header);
                // Here and not within their loops, of which there are so two.
                let sums = match prefetch.is_by_line() {
                    true => sums_of_group::<S, L, ROWS, VECS, true>(
                        weights,
                        num_parts,
                        col,
                        &x,
                        &mut prefetch,
                    ),
                    false => sums_of_group::<S, L, ROWS, VECS, false>(
                        weights,
                        num_parts,
                        col,
                        &x,
                        &mut prefetch,
                    ),
                };
                let mut scales = [S::splat(0.0); VECS];
                for (vec, scale) in scales.iter_mut().enumerate() {
                    *scale = S::load_f16(header.add(2 * (col + vec * LANES)).cast());
                }
                for (row, (totals, sums)) in totals.iter_mut().zip(sums).enumerate() {
                    let x_scale = S::splat((*x(row)).scale);
                    for (vec, total) in totals.iter_mut().enumerate() {
                        *total = S::fma(sums[vec], S::mul(scales[vec], x_scale), *total);
                    }
                }
            }
            part.store_sums::<S, ROWS, VECS>(row, &totals);
        }
    }
}

/// The values of each row in a part of 32 of the depth.
///
/// # Safety
/// `x` must be valid for all rows.
#[inline(always)]
unsafe fn values_of_part<const ROWS: usize>(
    part: usize,
    x: &impl Fn(usize) -> *const WideRowGroup,
) -> [*const i8; ROWS] {
    let mut values = [std::ptr::null(); ROWS];
    for (row, values) in values.iter_mut().enumerate() {
        // SAFETY: the caller vouches for the rows; a group has the part.
        *values = unsafe {
            (&raw const (*x(row)).values)
                .cast::<i8>()
                .add(part * FACTOR_GROUP)
        };
    }
    values
}

/// Rows of four values of each column in a part of 32 of the depth.
const ROWS_OF_PART: usize = FACTOR_GROUP / 4;

/// The sums over a group's products. With `BY_LINE` the lines that follow are asked for one by one.
///
/// # Safety
/// As [`IntegerProduct::multiply`]: the group must have as many parts of 32 and its header, `x` be valid for
/// all rows.
#[inline(always)]
unsafe fn sums_of_group<
    S: IntegerSimd,
    L: WideLayout,
    const ROWS: usize,
    const VECS: usize,
    const BY_LINE: bool,
>(
    (group, header): (*const u8, *const u8),
    num_parts: usize,
    col: usize,
    x: &impl Fn(usize) -> *const WideRowGroup,
    prefetch: &mut Prefetch,
) -> [[S::V; VECS]; ROWS] {
    // SAFETY: passed on to the caller.
    unsafe {
        match L::FORMAT {
            WideFormat::Wide8 => {
                sums_of_8::<S, ROWS, VECS, BY_LINE>(group, num_parts, col, x, prefetch)
            }
            WideFormat::Wide4 => {
                sums_of_4::<S, ROWS, VECS, BY_LINE>((group, header), num_parts, col, x, prefetch)
            }
        }
    }
}

/// The same with 8 bits.
///
/// # Safety
/// As [`sums_of_group`].
#[inline(always)]
unsafe fn sums_of_8<S: IntegerSimd, const ROWS: usize, const VECS: usize, const BY_LINE: bool>(
    group: *const u8,
    num_parts: usize,
    col: usize,
    x: &impl Fn(usize) -> *const WideRowGroup,
    prefetch: &mut Prefetch,
) -> [[S::V; VECS]; ROWS] {
    // SAFETY: the caller vouches for the level, the group and the rows.
    unsafe {
        let mut sums = [[S::splat_sums(0); VECS]; ROWS];
        for (row, sums) in sums.iter_mut().enumerate() {
            *sums = [S::splat_sums(-S::SIGNED_MORE * (*x(row)).sum); VECS];
        }
        let values = group.add(col / LANES * TILE).cast::<i8>();
        for part in 0..num_parts {
            let share = Wide8::GROUP_BYTES / NUM_FACTORS;
            if !BY_LINE {
                prefetch.step::<S>(group.add(part * share), share);
            }
            let x = values_of_part::<ROWS>(part, x);
            // Two parts share the tiles of a unit.
            let values = values.add(part / 2 * 2 * TILE + part % 2 * ROWS_OF_PART * STEP);
            for four in 0..ROWS_OF_PART {
                let at = values.add(four * STEP);
                let mut bytes = [S::load_signed(at); VECS];
                for (vec, bytes) in bytes.iter_mut().enumerate().skip(1) {
                    *bytes = S::load_signed(at.add(vec * TILE));
                }
                if BY_LINE {
                    for vec in 0..VECS {
                        Prefetch::line::<S>(at.add(vec * TILE).cast());
                    }
                }
                for (sums, x) in sums.iter_mut().zip(x) {
                    let factors = S::splat_factors(x.add(4 * four));
                    for (sum, bytes) in sums.iter_mut().zip(bytes) {
                        *sum = S::dot(*sum, bytes, factors);
                    }
                }
            }
        }
        // Not by `map`, which isn't inlined into code with other instructions than its own.
        let mut totals = [[S::splat(0.0); VECS]; ROWS];
        for (totals, sums) in totals.iter_mut().zip(sums) {
            for (total, sum) in totals.iter_mut().zip(sums) {
                *total = S::sums_to_f32(sum);
            }
        }
        totals
    }
}

/// The same with 4 bits: the sums of parts of 32 times their factors. All are whole numbers below 2^24, so
/// f32 has them exactly.
///
/// # Safety
/// As [`sums_of_group`].
#[inline(always)]
unsafe fn sums_of_4<S: IntegerSimd, const ROWS: usize, const VECS: usize, const BY_LINE: bool>(
    (group, header): (*const u8, *const u8),
    num_parts: usize,
    col: usize,
    x: &impl Fn(usize) -> *const WideRowGroup,
    prefetch: &mut Prefetch,
) -> [[S::V; VECS]; ROWS] {
    // SAFETY: the caller vouches for the level, the group and the rows.
    unsafe {
        let mut totals = [[S::splat(0.0); VECS]; ROWS];
        let values = group.add(col * 4);
        for unit in 0..num_parts / 2 {
            let [mut first, mut second] = [[S::splat(0.0); VECS]; 2];
            for (vec, both) in first.iter_mut().zip(&mut second).enumerate() {
                let at = header.add(SCALES + unit * PANEL_WIDTH + col + vec * LANES);
                (*both.0, *both.1) = S::load_nibbles_as_f32(at);
            }
            for (part, weights) in (2 * unit..).zip([first, second]) {
                let share = Wide4::GROUP_BYTES / NUM_FACTORS;
                if !BY_LINE {
                    prefetch.step::<S>(group.add(part * share), share);
                }
                let mut sums = [[S::splat_sums(0); VECS]; ROWS];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let zero = -8 * i32::from((*x(row)).part_sums[part]);
                    *sums = [S::splat_sums(zero); VECS];
                }
                let x = values_of_part::<ROWS>(part, x);
                let values = values.add(part * ROWS_OF_PART * STEP);
                for four in 0..ROWS_OF_PART / 2 {
                    let at = values.add(four * 2 * STEP);
                    let mut bytes = [S::load_nibbles(at); VECS];
                    for (vec, bytes) in bytes.iter_mut().enumerate().skip(1) {
                        *bytes = S::load_nibbles(at.add(vec * STEP));
                    }
                    if BY_LINE {
                        for vec in 0..VECS {
                            Prefetch::line::<S>(at.add(vec * STEP));
                        }
                    }
                    for (sums, x) in sums.iter_mut().zip(x) {
                        let lower = S::splat_factors(x.add(4 * four));
                        for (sum, bytes) in sums.iter_mut().zip(bytes) {
                            *sum = S::dot(*sum, bytes.0, lower);
                        }
                        let upper = S::splat_factors(x.add(4 * four + FACTOR_GROUP / 2));
                        for (sum, bytes) in sums.iter_mut().zip(bytes) {
                            *sum = S::dot(*sum, bytes.1, upper);
                        }
                    }
                }
                for (totals, sums) in totals.iter_mut().zip(sums) {
                    for (vec, total) in totals.iter_mut().enumerate() {
                        *total = S::fma(S::sums_to_f32(sums[vec]), weights[vec], *total);
                    }
                }
            }
        }
        totals
    }
}

const _: () = assert!(UNIT == 2 * FACTOR_GROUP);
