//! A linear layer's quantized weight as a Hugging Face checkpoint stores it: codes, scales and zeros.
//!
//! A value is `scale * (code - zero)`. Codes stay in the mapped file; scales and zeros, a few for each
//! row, are unpacked once. `quantized_linear.rs` finds the tensors and checks that they fit together.

use super::wide_quantization::{WIDE_GROUP, WideFormat, WideGroup};
use half::f16;

/// How codes are packed.
///
/// Sources of the layouts: AutoGPTQ's and AutoAWQ's published packing, compressed-tensors' `pack_to_int32`, and
/// bitsandbytes' `quantize_4bit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeLayout {
    /// `[rows, cols]`, a byte each.
    Bytes,
    /// `[rows * cols / 2]` bytes with two codes of a row, the first in the highest bits (bitsandbytes). `cols` is
    /// even.
    Nibbles,
    /// `[rows, ceil(cols / n)]` words with `n` codes of a row, the first in the lowest bits
    /// (compressed-tensors).
    WordsOfRow,
    /// `[cols / n, rows]` words with `n` codes of a row, the first in the lowest bits (GPTQ).
    WordsOfColumns,
    /// `[cols, rows / 8]` words with codes of 8 rows, in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits
    /// on (AWQ).
    WordsOfRows,
}

/// By how many codes that of row `row % 8` is shifted in AWQ's order.
const AWQ_SHIFT: [u32; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// What a code's bits mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CodeKind {
    /// A whole number from 0 on, to which a zero belongs.
    Unsigned,
    /// A whole number in two's complement.
    Signed,
    /// A float of 8 bits: 4 of exponent with bias 7, 3 of mantissa, no infinities (OCP E4M3).
    E4M3,
    /// The number of an entry of a table (bitsandbytes' NF4 and FP4).
    Table([f32; 16]),
}

/// A packed matrix of codes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Codes<'a> {
    pub(crate) layout: CodeLayout,
    pub(crate) kind: CodeKind,
    /// 4 or 8.
    pub(crate) bits: u32,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// As long as layout and size say.
    pub(crate) data: &'a [u8],
}

impl Codes<'_> {
    /// The code of a place inside the matrix; 0 for others.
    #[inline]
    pub(crate) fn get(&self, row: usize, col: usize) -> u8 {
        let per_word = 32 / self.bits as usize;
        let (word, place) = match self.layout {
            CodeLayout::Bytes => {
                let byte = self.data.get(row * self.cols + col);
                return byte.copied().unwrap_or(0);
            }
            CodeLayout::Nibbles => {
                let at = row * self.cols + col;
                let byte = self.data.get(at / 2).copied().unwrap_or(0);
                return if at.is_multiple_of(2) {
                    byte >> 4
                } else {
                    byte & 15
                };
            }
            CodeLayout::WordsOfRow => {
                let words = self.cols.div_ceil(per_word);
                (row * words + col / per_word, (col % per_word) as u32)
            }
            CodeLayout::WordsOfColumns => {
                (col / per_word * self.rows + row, (col % per_word) as u32)
            }
            CodeLayout::WordsOfRows => (
                col * (self.rows / per_word) + row / per_word,
                AWQ_SHIFT[row % AWQ_SHIFT.len()],
            ),
        };
        (word_at(self.data, word) >> (place * self.bits)) as u8 & mask(self.bits)
    }

    /// The codes of a row.
    pub(crate) fn row(&self, row: usize) -> Vec<u8> {
        let per_word = 32 / self.bits as usize;
        let words = match self.layout {
            CodeLayout::Bytes => {
                let bytes = self.data.get(row * self.cols..(row + 1) * self.cols);
                return bytes.unwrap_or_default().to_vec();
            }
            CodeLayout::Nibbles => {
                let bytes = self.cols / 2;
                let bytes = self
                    .data
                    .get(row * bytes..(row + 1) * bytes)
                    .unwrap_or_default();
                return bytes
                    .iter()
                    .flat_map(|byte| [byte >> 4, byte & 15])
                    .collect();
            }
            CodeLayout::WordsOfRows => {
                return (0..self.cols).map(|col| self.get(row, col)).collect();
            }
            CodeLayout::WordsOfRow => {
                let words = self.cols.div_ceil(per_word);
                row * words..(row + 1) * words
            }
            CodeLayout::WordsOfColumns => row..self.cols.div_ceil(per_word) * self.rows,
        };
        let step = match self.layout {
            CodeLayout::WordsOfColumns => self.rows,
            _ => 1,
        };
        let mut codes = Vec::with_capacity(words.len() / step * per_word + per_word);
        for word in words.step_by(step) {
            let word = word_at(self.data, word);
            codes.extend(
                (0..per_word).map(|at| (word >> (at as u32 * self.bits)) as u8 & mask(self.bits)),
            );
        }
        codes.truncate(self.cols);
        codes
    }
}

/// Word `index` of little-endian words; 0 behind the last.
#[inline]
pub(crate) fn word_at(data: &[u8], index: usize) -> u32 {
    let word = data.get(index * 4..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

/// The lowest `bits` bits, at most 8.
const fn mask(bits: u32) -> u8 {
    (0xff_u32 >> (8 - bits)) as u8
}

/// The number that a float of 8 bits is.
#[inline]
fn e4m3_to_f32(code: u8) -> f32 {
    // By the difference of the exponents' biases, 127 and 7. Small ones are so in both formats.
    const TWO_TO_120: f32 = f32::from_bits((127 + 120) << 23);
    let sign = u32::from(code & 0x80) << 24;
    match code & 0x7f {
        0x7f => f32::NAN,
        magnitude => f32::from_bits(sign | u32::from(magnitude) << 20) * TWO_TO_120,
    }
}

/// A quantized matrix `[rows, cols]`.
#[derive(Debug)]
pub(crate) struct QuantizedTensor<'a> {
    pub(crate) codes: Codes<'a>,
    /// Whether the codes lie in the read-only map of a file.
    pub(crate) mapped: bool,
    /// Rows and columns that share a scale and a zero; with an `order` such columns stand together in that.
    pub(crate) block: [usize; 2],
    /// `[ceil(rows / block[0]), ceil(cols / block[1])]`, half-precision numbers where codes are whole.
    pub(crate) scales: Vec<f32>,
    /// The same of zeros; empty where all are 0, or with unsigned codes in the middle.
    pub(crate) zeros: Vec<u8>,
    /// Where columns that share a scale don't follow one another.
    pub(crate) order: Option<ColumnOrder>,
}

/// An order of columns in which those of a group follow one another ("activation order").
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnOrder {
    /// The columns, by group and ascending within one.
    pub(crate) columns: Vec<u32>,
    /// The group of each column.
    pub(crate) groups: Vec<u32>,
}

impl ColumnOrder {
    /// The order that `groups`, the group of each column, asks for; `None` where columns stand so already.
    ///
    /// # Errors
    /// What is wrong, where a group has more or fewer than `group_size` columns.
    pub(crate) fn of(groups: Vec<u32>, group_size: usize) -> Result<Option<Self>, String> {
        let num_groups = groups.len().div_ceil(group_size.max(1));
        let mut counts = vec![0usize; num_groups];
        for (column, group) in groups.iter().enumerate() {
            match counts.get_mut(*group as usize) {
                Some(count) => *count += 1,
                None => {
                    return Err(format!(
                        "column {column} has group {}; there are {num_groups}",
                        *group as i32
                    ));
                }
            }
        }
        if let Some(group) = counts.iter().position(|count| *count != group_size) {
            return Err(format!(
                "group {group} has {} columns instead of {group_size}",
                counts[group]
            ));
        }
        if groups.is_sorted() {
            return Ok(None);
        }
        let mut columns: Vec<u32> = (0..groups.len() as u32).collect();
        columns.sort_by_key(|column| groups[*column as usize]);
        Ok(Some(Self { columns, groups }))
    }
}

impl QuantizedTensor<'_> {
    /// Columns that share a scale in a format with groups of at most [`WIDE_GROUP`], where the codes are whole
    /// numbers of 4 bits; `None` for others.
    pub(crate) fn kernel_group(&self) -> Option<usize> {
        let is_4_bit = self.codes.kind == CodeKind::Unsigned && self.codes.bits == 4;
        let divisor = match self.block[1] >= self.codes.cols {
            true => WIDE_GROUP,
            false => greatest_common_divisor(self.block[1], WIDE_GROUP),
        };
        is_4_bit.then_some(divisor)
    }

    /// Where the scale and the zero of a row's group stand.
    fn place(&self, row: usize, group: usize) -> usize {
        let groups = self.codes.cols.div_ceil(self.block[1]);
        row / self.block[0] * groups + group
    }

    /// The scale of a row's group of columns.
    pub(crate) fn scale(&self, row: usize, group: usize) -> f32 {
        let scale = self.scales.get(self.place(row, group));
        scale.copied().unwrap_or(0.0)
    }

    /// What is taken off the codes of a row's group.
    pub(crate) fn zero(&self, row: usize, group: usize) -> u8 {
        let middle = match self.codes.kind {
            CodeKind::Unsigned => 1 << (self.codes.bits - 1),
            CodeKind::Signed | CodeKind::E4M3 | CodeKind::Table(_) => 0,
        };
        let zero = self.zeros.get(self.place(row, group));
        zero.copied().unwrap_or(middle)
    }

    /// The column that stands at `place` among those of its row, in the order of groups.
    pub(crate) fn column_at(&self, place: usize) -> usize {
        match &self.order {
            None => place,
            Some(order) => order.columns.get(place).map_or(place, |col| *col as usize),
        }
    }

    /// Calls `each(column, value)` over one row, in the columns' own order.
    pub(crate) fn for_each_in_row(&self, row: usize, mut each: impl FnMut(usize, f32)) {
        let groups = self.codes.cols.div_ceil(self.block[1]);
        let scales: Vec<(f32, f32)> = (0..groups)
            .map(|group| (self.scale(row, group), f32::from(self.zero(row, group))))
            .collect();
        for (col, code) in self.codes.row(row).into_iter().enumerate() {
            let group = match &self.order {
                None => col / self.block[1],
                Some(order) => order.groups.get(col).map_or(0, |group| *group as usize),
            };
            let (scale, zero) = scales.get(group).copied().unwrap_or_default();
            let number = match self.codes.kind {
                CodeKind::Unsigned => f32::from(code) - zero,
                CodeKind::Signed => f32::from(code as i8),
                CodeKind::E4M3 => e4m3_to_f32(code),
                CodeKind::Table(numbers) => numbers[usize::from(code & 15)],
            };
            each(col, scale * number);
        }
    }

    /// Whether the codes are groups of [`WideFormat::Wide8`] as they are.
    pub(crate) fn is_wide(&self) -> bool {
        let whole_groups =
            self.block[1] >= self.codes.cols || self.block[1].is_multiple_of(WIDE_GROUP);
        self.codes.kind == CodeKind::Signed && whole_groups
    }

    /// Calls `each(group, values)` over the wide groups of a row; the last is filled with zeros.
    pub(crate) fn for_each_wide_group_in_row(
        &self,
        row: usize,
        mut each: impl FnMut(usize, WideGroup),
    ) {
        for (index, codes) in self.codes.row(row).chunks(WIDE_GROUP).enumerate() {
            let scale = self.scale(row, index * WIDE_GROUP / self.block[1]);
            let mut group = WideGroup {
                scale: f16::from_f32(scale),
                ..WideFormat::Wide8.quantize(&[0.0; WIDE_GROUP])
            };
            for (value, code) in group.values.iter_mut().zip(codes) {
                *value = *code as i8;
            }
            each(index, group);
        }
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        _ => greatest_common_divisor(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// All codes of a matrix, by row.
    fn all(codes: &Codes<'_>) -> Vec<Vec<u8>> {
        let row = |row| {
            let one_by_one: Vec<u8> = (0..codes.cols).map(|col| codes.get(row, col)).collect();
            assert_eq!(codes.row(row), one_by_one);
            one_by_one
        };
        (0..codes.rows).map(row).collect()
    }

    #[test]
    fn every_layout_has_its_codes_where_its_packer_puts_them() {
        let codes = |layout, bits, rows, cols, data| Codes {
            layout,
            kind: CodeKind::Unsigned,
            bits,
            rows,
            cols,
            data,
        };
        // compressed-tensors: a row of 10 takes two words.
        let data = words(&[0x7654_3210, 0x98, 0xfedc_ba98, 0x10]);
        let found = all(&codes(CodeLayout::WordsOfRow, 4, 2, 10, &data));
        let expected = [
            vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            vec![8, 9, 10, 11, 12, 13, 14, 15, 0, 1],
        ];
        assert_eq!(found, expected);
        // GPTQ: the words of both rows side by side.
        let data = words(&[0x7654_3210, 0xfedc_ba98]);
        let found = all(&codes(CodeLayout::WordsOfColumns, 4, 2, 8, &data));
        assert_eq!(
            found,
            [
                vec![0, 1, 2, 3, 4, 5, 6, 7],
                vec![8, 9, 10, 11, 12, 13, 14, 15]
            ]
        );
        let data = words(&[0x0403_02ff, 0x0807_0605]);
        let found = all(&codes(CodeLayout::WordsOfColumns, 8, 2, 4, &data));
        assert_eq!(found, [vec![255, 2, 3, 4], vec![5, 6, 7, 8]]);
        // bitsandbytes: one byte for two columns.
        let found = all(&codes(
            CodeLayout::Nibbles,
            4,
            2,
            4,
            &[0x01, 0x23, 0x45, 0xf7],
        ));
        assert_eq!(found, [vec![0, 1, 2, 3], vec![4, 5, 15, 7]]);
        // AWQ: one word per column, its rows out of order.
        let data = words(&[0x7531_6420, 0xfdb9_eca8]);
        let found = all(&codes(CodeLayout::WordsOfRows, 4, 8, 2, &data));
        let expected: Vec<Vec<u8>> = (0..8).map(|row| vec![row, row + 8]).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn all_floats_of_8_bits() {
        for (code, expected) in [
            (0x00, 0.0),
            (0x01, 2f32.powi(-9)),
            (0x07, 7.0 * 2f32.powi(-9)),
            (0x08, 2f32.powi(-6)),
            (0x38, 1.0),
            (0x3c, 1.5),
            (0xb9, -1.125),
            (0x7e, 448.0),
            (0xfe, -448.0),
        ] {
            assert_eq!(e4m3_to_f32(code), expected, "{code:#x}");
        }
        assert!(e4m3_to_f32(0x7f).is_nan() && e4m3_to_f32(0xff).is_nan());
        let finite: Vec<f32> = (0..0x7f).map(e4m3_to_f32).collect();
        assert!(finite.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn columns_stand_by_group_and_each_group_is_whole() {
        assert_eq!(ColumnOrder::of(vec![0, 0, 1, 1], 2), Ok(None));
        let order = ColumnOrder::of(vec![1, 0, 0, 1], 2).unwrap().unwrap();
        assert_eq!(order.columns, [1, 2, 0, 3]);
        assert_eq!(
            ColumnOrder::of(vec![0, 0, 0, 1], 2),
            Err("group 0 has 3 columns instead of 2".to_owned())
        );
        assert_eq!(
            ColumnOrder::of(vec![0, 7, 0, 1], 2),
            Err("column 1 has group 7; there are 2".to_owned())
        );
        let negative = ColumnOrder::of(vec![0, u32::MAX], 2);
        let problem = "column 1 has group -1; there are 1".to_owned();
        assert_eq!(negative, Err(problem));
    }
}
