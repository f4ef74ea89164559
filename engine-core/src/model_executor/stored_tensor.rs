//! A tensor as a checkpoint stores it, read row by row.

use std::ops::Range;

use ::gguf::{MAX_BLOCK_LEN, TensorType};
use half::{bf16, f16};

use super::checkpoint::RawTensor;
use super::error::ModelError;
use super::mapped::{self, Advice};
use super::quantization::{GROUP, Group, QuantizedFormat};
use super::quantized_tensor::{ColumnOrder, QuantizedTensor};
use super::weights::WeightFormat;
use super::wide_quantization::{WIDE_GROUP, WideFormat, WideGroup};

/// Number format of a stored tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredDtype {
    F32,
    F16,
    BF16,
    /// Quantized blocks of a GGUF file.
    Blocks(TensorType),
    /// Codes with scales and zeros in tensors of their own, see [`QuantizedTensor`].
    Codes,
}

impl StoredDtype {
    /// Bytes of a row of `cols` values, which are whole blocks.
    fn row_bytes(self, cols: usize) -> usize {
        match self {
            Self::F32 => cols * 4,
            Self::F16 | Self::BF16 => cols * 2,
            Self::Blocks(format) => {
                let (len, bytes) = format.block().unwrap_or((1, 0));
                cols / len * bytes
            }
            // They have no rows of bytes.
            Self::Codes => 0,
        }
    }
}

/// A matrix (or, with one row, a vector) as the checkpoint stores it, row-major.
#[derive(Clone, Copy)]
pub(crate) struct StoredTensor<'a> {
    dtype: StoredDtype,
    rows: usize,
    cols: usize,
    data: &'a [u8],
    /// See [`RawTensor::mapped`].
    mapped: bool,
    /// See [`RawTensor::interleaved`].
    interleaved: Option<usize>,
    /// What was added to a vector's values before they were stored.
    offset: f32,
    /// Where the dtype is [`StoredDtype::Codes`].
    quantized: Option<&'a QuantizedTensor<'a>>,
}

impl<'a> StoredTensor<'a> {
    /// The tensor, where its shape is `expected`; `name` is for the error.
    pub(crate) fn new(
        raw: RawTensor<'a>,
        name: impl FnOnce() -> String,
        expected: &[usize],
    ) -> Result<Self, ModelError> {
        if raw.shape != expected {
            return Err(ModelError::TensorShape {
                name: name(),
                file: raw.file.to_owned(),
                expected: expected.to_owned(),
                found: raw.shape.to_owned(),
            });
        }
        let cols = match (expected, raw.interleaved) {
            // The biases of rows that are in another order.
            ([_], Some(_)) => 1,
            _ => expected.last().copied().unwrap_or(1),
        };
        let rows = expected
            .iter()
            .product::<usize>()
            .checked_div(cols)
            .unwrap_or(0);
        Ok(Self {
            dtype: raw.dtype,
            rows,
            cols,
            data: raw.data,
            mapped: raw.mapped,
            interleaved: raw.interleaved,
            offset: 0.0,
            quantized: None,
        })
    }

    /// A quantized layer's weight.
    pub(crate) fn quantized(tensor: &'a QuantizedTensor<'a>) -> Self {
        Self {
            dtype: StoredDtype::Codes,
            rows: tensor.codes.rows,
            cols: tensor.codes.cols,
            data: tensor.codes.data,
            mapped: tensor.mapped,
            interleaved: None,
            offset: 0.0,
            quantized: Some(tensor),
        }
    }

    /// A tensor of f32 bytes.
    #[cfg(test)]
    pub(crate) fn f32(rows: usize, cols: usize, data: &'a [u8]) -> Self {
        Self {
            dtype: StoredDtype::F32,
            rows,
            cols,
            data,
            mapped: false,
            interleaved: None,
            offset: 0.0,
            quantized: None,
        }
    }

    /// A vector to whose values `offset` was added before they were stored, without it.
    pub(crate) fn without_offset(self, offset: f32) -> Self {
        Self { offset, ..self }
    }

    pub(crate) fn dtype(&self) -> StoredDtype {
        self.dtype
    }

    /// Codes, scales and zeros, where it is stored so.
    pub(crate) fn codes(&self) -> Option<&'a QuantizedTensor<'a>> {
        self.quantized
    }

    /// The order in which columns that share a scale follow one another, where it isn't their own.
    pub(crate) fn column_order(&self) -> Option<&'a ColumnOrder> {
        self.quantized.and_then(|tensor| tensor.order.as_ref())
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    pub(crate) fn num_bytes(&self) -> usize {
        self.data.len()
    }

    /// Tells the system how some rows are used next. Rows out of range count for nothing.
    ///
    /// Codes of a row may lie anywhere in their tensor: it is given back as a whole, with the last row.
    pub(crate) fn advise(&self, rows: Range<usize>, advice: Advice) {
        if self.dtype == StoredDtype::Codes {
            let is_last = rows.start < self.rows && rows.end >= self.rows;
            if self.mapped && (advice == Advice::WillNeed && rows.start == 0 || is_last) {
                // SAFETY: the bytes lie in the read-only map of a file, as `mapped` says.
                unsafe { mapped::advise(self.data, advice) };
            }
            return;
        }
        let len = self.dtype.row_bytes(self.cols);
        let range = rows.start.min(self.rows) * len..rows.end.min(self.rows) * len;
        if let Some(data) = self.data.get(range)
            && self.mapped
        {
            // SAFETY: the bytes lie in the read-only map of a file, as `mapped` says.
            unsafe { mapped::advise(data, advice) };
        }
    }

    /// The bytes of one row.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> &'a [u8] {
        let row = match self.interleaved {
            None => row,
            // Row `half * j + i` of a head stands at `2 * i + j`.
            Some(head_dim) => {
                let (head, row, half) = (row / head_dim, row % head_dim, head_dim / 2);
                head * head_dim + row % half * 2 + row / half
            }
        };
        let len = self.dtype.row_bytes(self.cols);
        self.data.get(row * len..(row + 1) * len).unwrap_or(&[])
    }

    /// Calls `each(column, value)` over one row.
    #[inline]
    pub(crate) fn for_each_in_row(&self, row: usize, mut each: impl FnMut(usize, f32)) {
        fn split<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
            bytes.as_chunks::<N>().0.iter().copied()
        }
        let bytes = self.row(row);
        match self.dtype {
            StoredDtype::F32 => split::<4>(bytes)
                .enumerate()
                .for_each(|(col, bytes)| each(col, f32::from_le_bytes(bytes))),
            StoredDtype::F16 => split::<2>(bytes)
                .enumerate()
                .for_each(|(col, bytes)| each(col, f16::from_le_bytes(bytes).to_f32())),
            StoredDtype::BF16 => split::<2>(bytes)
                .enumerate()
                .for_each(|(col, bytes)| each(col, bf16::from_le_bytes(bytes).to_f32())),
            StoredDtype::Blocks(format) => {
                let Some((len, block_bytes)) = format.block() else {
                    return;
                };
                let mut values = [0.0; MAX_BLOCK_LEN];
                for (index, block) in bytes.chunks_exact(block_bytes).enumerate() {
                    format.dequantize_block(block, &mut values);
                    for (at, value) in values[..len].iter().enumerate() {
                        each(index * len + at, *value);
                    }
                }
            }
            StoredDtype::Codes => {
                if let Some(tensor) = self.quantized {
                    tensor.for_each_in_row(row, each);
                }
            }
        }
    }

    /// Calls `each(group, values)` over the wide groups of one row; the last is filled with zeros. Groups that
    /// the checkpoint has are taken as they are.
    pub(crate) fn for_each_wide_group_in_row(
        &self,
        row: usize,
        format: WideFormat,
        mut each: impl FnMut(usize, WideGroup),
    ) {
        match self.quantized {
            Some(tensor) if format == WideFormat::Wide8 && tensor.is_wide() => {
                tensor.for_each_wide_group_in_row(row, each);
            }
            _ => self.for_each_chunk_in_row(row, |index, values| {
                each(index, format.quantize(values));
            }),
        }
    }

    /// Whether the blocks are groups of `format` as they are.
    pub(crate) fn is_held_by(&self, format: QuantizedFormat) -> bool {
        matches!(self.dtype, StoredDtype::Blocks(stored) if holds(format, stored))
    }

    /// Calls `each(group, values)` over the groups of one row; the last is filled with zeros.
    pub(crate) fn for_each_group_in_row(
        &self,
        row: usize,
        format: QuantizedFormat,
        mut each: impl FnMut(usize, Group),
    ) {
        if let StoredDtype::Blocks(stored) = self.dtype
            && holds(format, stored)
            && let Some((_, block_bytes)) = stored.block()
        {
            for (index, block) in self.row(row).chunks_exact(block_bytes).enumerate() {
                if let Some((scale, values)) = stored.symmetric_block(block) {
                    each(index, Group { scale, values });
                }
            }
            return;
        }
        self.for_each_chunk_in_row(row, |index, values| each(index, format.quantize(values)));
    }

    /// Calls `each(index, values)` over the row `N` values at a time; the last are filled up with zeros.
    pub(crate) fn for_each_chunk_in_row<const N: usize>(
        &self,
        row: usize,
        mut each: impl FnMut(usize, &[f32; N]),
    ) {
        if self.dtype == StoredDtype::BF16 {
            // What most checkpoints have, a chunk at a time.
            for (index, bytes) in self.row(row).chunks(2 * N).enumerate() {
                let mut values = [0.0; N];
                for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *value = bf16::from_le_bytes(*bytes).to_f32();
                }
                each(index, &values);
            }
            return;
        }
        let mut values = [0.0; N];
        self.for_each_in_row(row, |col, value| {
            values[col % N] = value;
            if col % N == N - 1 || col + 1 == self.cols {
                each(col / N, &values);
                values = [0.0; N];
            }
        });
    }

    /// All values in order, as they are left in `format`.
    pub(crate) fn to_f32_in(self, format: WeightFormat) -> Vec<f32> {
        let mut values = vec![0.0; self.rows * self.cols];
        let rows = values.chunks_exact_mut(self.cols.max(1)).enumerate();
        match format {
            WeightFormat::Quantized(format) => rows.for_each(|(row, values)| {
                self.for_each_group_in_row(row, format, |index, group| {
                    let values = values[index * GROUP..].iter_mut().take(GROUP);
                    (values.enumerate()).for_each(|(i, value)| *value = group.to_f32(i));
                });
            }),
            WeightFormat::Wide(format) => rows.for_each(|(row, values)| {
                self.for_each_wide_group_in_row(row, format, |index, group| {
                    let values = values[index * WIDE_GROUP..].iter_mut().take(WIDE_GROUP);
                    (values.enumerate()).for_each(|(i, value)| *value = group.to_f32(i));
                });
            }),
            WeightFormat::Full
            | WeightFormat::Dense
            | WeightFormat::Grouped { .. }
            | WeightFormat::K(_) => return self.to_f32(),
        }
        values
    }

    /// All values in order.
    pub(crate) fn to_f32(self) -> Vec<f32> {
        let mut values = vec![0.0; self.rows * self.cols];
        for (row, values) in values.chunks_exact_mut(self.cols.max(1)).enumerate() {
            self.for_each_in_row(row, |col, value| values[col] = value - self.offset);
        }
        values
    }
}

/// Whether the blocks of `stored` are groups of `format` as they are: the same 32 values share a
/// scale, and the integers fit.
fn holds(format: QuantizedFormat, stored: TensorType) -> bool {
    match format {
        QuantizedFormat::Q8_0 => {
            matches!(
                stored,
                TensorType::Q8_0 | TensorType::Q5_0 | TensorType::Q4_0
            )
        }
        QuantizedFormat::Q4_0 => stored == TensorType::Q4_0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor<'a>(
        dtype: StoredDtype,
        shape: &'a [usize],
        data: &'a [u8],
        interleaved: Option<usize>,
    ) -> StoredTensor<'a> {
        let raw = RawTensor {
            file: "f",
            dtype,
            shape,
            data,
            mapped: false,
            interleaved,
        };
        StoredTensor::new(raw, String::new, shape).unwrap()
    }

    #[test]
    fn interleaved_heads_are_read_as_halves() {
        // Two heads of 6 rows, each row its number; stored as ggml rotates them.
        let stored = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11].map(|row| row as f32);
        let data: Vec<u8> = stored.iter().flat_map(|row| row.to_le_bytes()).collect();
        let expected: Vec<f32> = (0..12).map(|row| row as f32).collect();
        let matrix = tensor(StoredDtype::F32, &[12, 1], &data, Some(6));
        assert_eq!(matrix.to_f32(), expected);
        let bias = tensor(StoredDtype::F32, &[12], &data, Some(6));
        assert_eq!(bias.to_f32(), expected);
    }

    #[test]
    fn blocks_that_a_format_holds_are_kept_bit_by_bit() {
        // Scale 0.1 in half precision, then every nibble.
        let mut block = f16::from_f32(0.1).to_le_bytes().to_vec();
        block.extend((0..16).map(|byte| byte | (15 - byte) << 4));
        let matrix = tensor(
            StoredDtype::Blocks(TensorType::Q4_0),
            &[1, 32],
            &block,
            None,
        );
        for format in [QuantizedFormat::Q4_0, QuantizedFormat::Q8_0] {
            let mut groups = Vec::new();
            matrix.for_each_group_in_row(0, format, |index, group| groups.push((index, group)));
            let [(0, group)] = groups[..] else {
                panic!("{groups:?}");
            };
            assert_eq!(group.scale, f16::from_f32(0.1));
            let expected = std::array::from_fn(|i| if i < 16 { i as i8 - 8 } else { 23 - i as i8 });
            assert_eq!(group.values, expected, "{format:?}");
            let kept = matrix.to_f32_in(WeightFormat::Quantized(format));
            assert_eq!(kept, matrix.to_f32(), "{format:?}");
        }
    }
}
