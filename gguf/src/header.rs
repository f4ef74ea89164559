//! The header: version, metadata, and where each tensor lies.

use std::collections::HashMap;
use std::ops::Range;

use crate::cursor::Cursor;
use crate::error::{GgufError, cut};
use crate::metadata::Metadata;
use crate::tensor_type::TensorType;

/// Key of the alignment of tensors in a file.
const ALIGNMENT: &str = "general.alignment";
const DEFAULT_ALIGNMENT: usize = 32;

/// Most dimensions of a tensor.
const MAX_DIMS: u32 = 4;

/// Most tensors: a hundred times the largest model's.
const MAX_TENSORS: usize = 1 << 18;

/// Most entries of the metadata, of which models have some dozens.
const MAX_ENTRIES: usize = 1 << 16;

/// What stands before the tensors' data.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Keys and values.
    pub metadata: Metadata,
    tensors: HashMap<String, TensorInfo>,
    len: usize,
}

/// A tensor's format, shape and place.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    /// Number format.
    pub tensor_type: TensorType,
    /// Row-major: the last dimension's values lie side by side. (The file lists them the other way
    /// round.)
    pub shape: Vec<usize>,
    /// Bytes in the file; empty for formats that aren't read.
    pub(crate) range: Range<usize>,
}

impl Header {
    /// Reads the header of a file that is `bytes`, and checks that every tensor lies within it.
    ///
    /// # Errors
    /// [`GgufError`], which names the place.
    pub fn parse(bytes: &[u8]) -> Result<Self, GgufError> {
        let cursor = &mut Cursor::new(bytes);
        let magic: [u8; 4] = match cursor.array("the magic number") {
            Ok(magic) => magic,
            Err(_) => return Err(not_gguf(bytes)),
        };
        if &magic != b"GGUF" {
            return Err(not_gguf(&magic));
        }
        let version = cursor.u32("the version")?;
        if !(2..=3).contains(&version) {
            return Err(GgufError::Version { version });
        }
        // Name's length, dimensions' number, one dimension, type, offset.
        let num_tensors =
            cursor.count_up_to(MAX_TENSORS, 8 + 4 + 4 + 8, "the number of tensors")?;
        // Key's length, type, value.
        let num_entries =
            cursor.count_up_to(MAX_ENTRIES, 8 + 4 + 1, "the number of metadata entries")?;
        let metadata = Metadata::read(cursor, num_entries)?;
        let alignment = alignment(&metadata)?;

        let mut tensors = HashMap::new();
        for index in 0..num_tensors {
            let name = cursor.string(&format!("the name of tensor {index}"))?;
            let info = read_tensor_info(cursor, name, alignment)?;
            if tensors.insert(name.to_owned(), info).is_some() {
                return Err(tensor_error(name, "the name occurs twice"));
            }
        }
        // Data begins at the next multiple of the alignment.
        let start = cursor.position().next_multiple_of(alignment);
        for (name, info) in &mut tensors {
            info.range = match (
                info.range.start.checked_add(start),
                info.range.end.checked_add(start),
            ) {
                (Some(start), Some(end)) if end <= bytes.len() => start..end,
                _ => {
                    return Err(GgufError::Truncated {
                        len: bytes.len(),
                        what: format!("tensor {}", cut(name)),
                    });
                }
            };
        }
        check_apart(&tensors)?;
        Ok(Self {
            metadata,
            tensors,
            len: cursor.position(),
        })
    }

    /// Its bytes, without what aligns the data after it.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The tensor of a name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// All tensors, in no order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.tensors
            .iter()
            .map(|(name, info)| (name.as_str(), info))
    }
}

/// Refuses tensors that share bytes of the file.
fn check_apart(tensors: &HashMap<String, TensorInfo>) -> Result<(), GgufError> {
    let mut places: Vec<(&Range<usize>, &str)> = tensors
        .iter()
        .map(|(name, info)| (&info.range, name.as_str()))
        .filter(|(range, _)| !range.is_empty())
        .collect();
    places.sort_unstable_by_key(|(range, name)| (range.start, *name));
    for pair in places.windows(2) {
        let [(before, first), (after, second)] = pair else {
            continue;
        };
        if after.start < before.end {
            let problem = format!("its bytes are also those of tensor {}", cut(first));
            return Err(tensor_error(second, problem));
        }
    }
    Ok(())
}

/// `general.alignment`.
fn alignment(metadata: &Metadata) -> Result<usize, GgufError> {
    const MOST: u64 = 1 << 20;
    match metadata.u64(ALIGNMENT)? {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(alignment) if alignment.is_power_of_two() && alignment <= MOST => {
            Ok(alignment as usize)
        }
        Some(_) => Err(metadata.wrong(ALIGNMENT, "a power of two up to 2^20")),
    }
}

/// A tensor's entry; its range is still relative to the data.
fn read_tensor_info(
    cursor: &mut Cursor<'_>,
    name: &str,
    alignment: usize,
) -> Result<TensorInfo, GgufError> {
    let place = format!("tensor {}", cut(name));
    let num_dims = cursor.u32(&place)?;
    if !(1..=MAX_DIMS).contains(&num_dims) {
        return Err(tensor_error(
            name,
            format!("{num_dims} dimensions must be 1 to {MAX_DIMS}"),
        ));
    }
    let mut shape = Vec::with_capacity(num_dims as usize);
    for _ in 0..num_dims {
        let dim = cursor.u64(&place)?;
        match usize::try_from(dim) {
            Ok(dim) if dim > 0 => shape.push(dim),
            _ => {
                return Err(tensor_error(
                    name,
                    format!("the dimension {dim} must be at least 1"),
                ));
            }
        }
    }
    shape.reverse();
    let tensor_type = TensorType::from_id(cursor.u32(&place)?);
    let offset = cursor.u64(&place)?;
    let offset = usize::try_from(offset)
        .ok()
        .filter(|offset| offset % alignment == 0)
        .ok_or_else(|| {
            tensor_error(
                name,
                format!("the offset {offset} must be a multiple of {alignment}"),
            )
        })?;
    let len = data_len(name, tensor_type, &shape)?;
    let end = offset
        .checked_add(len)
        .ok_or_else(|| tensor_error(name, format!("the offset {offset} is too large")))?;
    Ok(TensorInfo {
        tensor_type,
        shape,
        range: offset..end,
    })
}

/// Bytes of a tensor; 0 where its format isn't read.
fn data_len(name: &str, tensor_type: TensorType, shape: &[usize]) -> Result<usize, GgufError> {
    let Some((block_len, block_bytes)) = tensor_type.block() else {
        return Ok(0);
    };
    let cols = shape.last().copied().unwrap_or(1);
    if cols % block_len != 0 {
        return Err(tensor_error(
            name,
            format!("rows of {cols} values must be a multiple of {block_len} in {tensor_type}"),
        ));
    }
    let len = shape
        .iter()
        .try_fold(1_usize, |len, dim| len.checked_mul(*dim));
    len.and_then(|len| (len / block_len).checked_mul(block_bytes))
        .ok_or_else(|| tensor_error(name, format!("the shape {shape:?} is too large")))
}

fn tensor_error(name: &str, problem: impl Into<String>) -> GgufError {
    GgufError::invalid(format!("tensor {}", cut(name)), problem)
}

fn not_gguf(bytes: &[u8]) -> GgufError {
    let first = &bytes[..bytes.len().min(4)];
    GgufError::Magic {
        found: match first {
            [] => "nothing".to_owned(),
            _ => format!("\"{}\"", first.escape_ascii()),
        },
    }
}
