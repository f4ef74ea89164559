//! Products of quantized rows with a [`KMatrix`].

use super::integer::IntegerSimd;
use super::integer_product::{IntegerProduct, multiply_rows};
use super::k_quants::{GROUPS, HALVES, KLayout, KMatrix, LOWER, PLANE, SCALES, upper_place};
use super::panels::{PANEL_WIDTH, PanelKernel, Part};
use super::prefetch::RowBlock;
use super::quantized_rows::ActivationGroup;
use super::simd::{LANES, SimdLevel};

/// What is multiplied with a block of weights.
pub(crate) type ActivationBlock = [ActivationGroup; GROUPS];

/// Products with a matrix.
pub(crate) struct KKernel<'a, L: KLayout> {
    pub(crate) matrix: &'a KMatrix<L>,
    pub(crate) level: SimdLevel,
}

impl<L: KLayout> PanelKernel for KKernel<'_, L> {
    type Input = ActivationBlock;

    fn out_features(&self) -> usize {
        self.matrix.out_features()
    }
    fn depth(&self) -> usize {
        self.matrix.num_blocks()
    }
    fn work_per_output(&self) -> usize {
        self.matrix.in_features() / 2
    }
    fn depth_block(&self, _rows: usize) -> usize {
        // Of blocks of 4.6 to 6.6 KiB.
        3
    }
    fn bias(&self) -> &[f32] {
        self.matrix.bias()
    }
    unsafe fn multiply(&self, panel: usize, col: usize, wide: bool, part: &Part<ActivationBlock>) {
        let blocks = self.matrix.blocks(panel, part.first).as_ptr();
        // SAFETY: the caller vouches for rows, results, columns and blocks.
        unsafe { multiply_rows(self, self.level, blocks, col, wide, part) }
    }
}

/// Every element of `c` is one chain of multiply-adds in ascending groups, whatever `ROWS` and
/// `VECS` are; sums over products of integers are exact.
impl<L: KLayout> IntegerProduct for KKernel<'_, L> {
    type Input = ActivationBlock;

    const DEPTH_BYTES: usize = L::BLOCK_BYTES;
    const ROWS_AVX512: usize = 4;
    const ROWS_NEON: usize = 2;

    #[inline(always)]
    unsafe fn multiply<S: IntegerSimd, const ROWS: usize, const VECS: usize>(
        &self,
        blocks: *const u8,
        col: usize,
        part: &Part<ActivationBlock>,
        block: RowBlock,
    ) {
        let (row, mut prefetch) = (block.first, block.prefetch);
        // SAFETY: all accesses lie within what the caller of `multiply_rows` vouches for.
        unsafe {
            let x = part.x.add(row * part.x_stride);
            let mut totals = part.initial_sums::<S, ROWS, VECS>(row);
            for index in 0..part.depth {
                let block = blocks.add(index * L::BLOCK_BYTES);
                let (mut d, mut d_min) = ([S::splat(0.0); VECS], [S::splat(0.0); VECS]);
                for vec in 0..VECS {
                    let at = block.add(2 * (col + vec * LANES));
                    d[vec] = S::load_f16(at.cast());
                    if L::HAS_MINIMUMS {
                        d_min[vec] = S::load_f16(at.add(HALVES).cast());
                    }
                }
                for group in 0..GROUPS {
                    let x = |row: usize| &raw const (*x.add(row * part.x_stride + index))[group];
                    let group = block.add(L::HEADER + group * L::GROUP_BYTES);
                    prefetch.step::<S>(group, L::GROUP_BYTES);
                    let mut sums = [[[S::splat_sums(0); VECS]; ROWS]; 2];
                    for (half, sums) in sums.iter_mut().enumerate() {
                        for (row, sums) in sums.iter_mut().enumerate() {
                            let zero = -L::ZERO * i32::from((*x(row)).halves[half]);
                            *sums = [S::splat_sums(zero); VECS];
                        }
                    }
                    group_sums::<S, L, ROWS, VECS>(group, col, &x, &mut sums);
                    for vec in 0..VECS {
                        let pair = [0, PANEL_WIDTH]
                            .map(|second| S::load_i8(group.add(second + col + vec * LANES).cast()));
                        for (row, totals) in totals.iter_mut().enumerate() {
                            let (x, total) = (&*x(row), &mut totals[vec]);
                            let scale = S::mul(d[vec], S::splat(x.scale));
                            if L::HAS_MINIMUMS {
                                // One sum for both halves.
                                let sum = S::sums_to_f32(sums[0][row][vec]);
                                *total = S::fma(sum, S::mul(scale, pair[0]), *total);
                                let x_sum = i32::from(x.halves[0]) + i32::from(x.halves[1]);
                                let minimum = S::mul(d_min[vec], pair[1]);
                                let factor = S::splat(-(x.scale * x_sum as f32));
                                *total = S::fma(minimum, factor, *total);
                            } else {
                                // Whole numbers below 2^24, as are their sums.
                                let [first, second] = [0, 1].map(|half| {
                                    S::mul(S::sums_to_f32(sums[half][row][vec]), pair[half])
                                });
                                *total = S::fma(S::add(first, second), scale, *total);
                            }
                        }
                    }
                }
            }
            part.store_sums::<S, ROWS, VECS>(row, &totals);
        }
    }
}

/// Adds a group's products of integers to `sums`: to the first alone where there are minimums, to
/// one for each half of the group where there are not.
#[inline(always)]
unsafe fn group_sums<S: IntegerSimd, L: KLayout, const ROWS: usize, const VECS: usize>(
    group: *const u8,
    col: usize,
    x: &impl Fn(usize) -> *const ActivationGroup,
    sums: &mut [[[S::Sums; VECS]; ROWS]; 2],
) {
    // SAFETY: as in `multiply`; planes are read where the layout has them.
    unsafe {
        let mask = (1 << L::UPPER_BITS) - 1;
        for step in 0..4 {
            let at = group.add(SCALES + (step * PANEL_WIDTH + col) * 4);
            let mut bytes = [S::load_nibbles(at); VECS];
            for (vec, bytes) in bytes.iter_mut().enumerate() {
                *bytes = S::load_nibbles(at.add(vec * PLANE));
                if L::PLANES > 0 {
                    let planes =
                        group.add(SCALES + LOWER + (col / LANES + vec) * L::PLANES * PLANE);
                    let (plane, shift) = upper_place::<L>(step, 0);
                    let upper = S::load_plane(planes.add(plane * PLANE));
                    bytes.0 = S::with_upper(bytes.0, upper, shift, mask);
                    let (plane, shift) = upper_place::<L>(step, 1);
                    let upper = S::load_plane(planes.add(plane * PLANE));
                    bytes.1 = S::with_upper(bytes.1, upper, shift, mask);
                }
            }
            let second = if L::HAS_MINIMUMS { 0 } else { 1 };
            let factors = |row: usize, half: usize| {
                let values = (&raw const (*x(row)).values).cast::<i8>();
                S::splat_factors(values.add(4 * step + 16 * half))
            };
            for (row, sums) in sums[0].iter_mut().enumerate() {
                let factors = factors(row, 0);
                for (sum, bytes) in sums.iter_mut().zip(bytes) {
                    *sum = S::dot(*sum, bytes.0, factors);
                }
            }
            for (row, sums) in sums[second].iter_mut().enumerate() {
                let factors = factors(row, 1);
                for (sum, bytes) in sums.iter_mut().zip(bytes) {
                    *sum = S::dot(*sum, bytes.1, factors);
                }
            }
        }
    }
}
