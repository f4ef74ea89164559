//! Finds the tensors of a quantized linear layer, and refuses those that don't fit together.

mod bitsandbytes;

use half::{bf16, f16};
use safetensors::Dtype;

use super::checkpoint::{Checkpoint, FileTensor};
use super::config::{GptqScheme, LinearScheme, PackedScheme, ScaleShape};
use super::error::ModelError;
use super::quantized_tensor::{CodeKind, CodeLayout, Codes, ColumnOrder, QuantizedTensor, word_at};

/// Number formats of scales, and of weights that aren't quantized.
pub(crate) const FLOATS: &[Dtype] = &[Dtype::F16, Dtype::BF16, Dtype::F32];

/// Names that tell a quantized weight, behind a module's.
pub(crate) const QUANTIZED_NAMES: [&str; 6] = [
    "qweight",
    "weight_packed",
    "weight_scale",
    "weight_scale_inv",
    "weight.absmax",
    "SCB",
];

/// The tensors of one layer.
pub(crate) struct LinearTensors<'a, 'n> {
    pub(crate) checkpoint: &'a Checkpoint,
    /// The layer's name, such as `model.layers.0.mlp.up_proj`.
    pub(crate) module: &'n str,
    pub(crate) out_features: usize,
    pub(crate) in_features: usize,
}

impl<'a> LinearTensors<'a, '_> {
    /// The layer's weight.
    ///
    /// # Errors
    /// [`ModelError::Quantized`] with the tensor and the field of `quantization_config` where a tensor is
    /// missing, has another shape or number format, or has contents that can't be right.
    pub(crate) fn read(&self, scheme: LinearScheme) -> Result<QuantizedTensor<'a>, ModelError> {
        match scheme {
            LinearScheme::Gptq(scheme) => self.gptq(scheme),
            LinearScheme::Awq { group_size } => self.awq(group_size),
            LinearScheme::Packed(scheme) => self.packed(scheme),
            LinearScheme::Fp8 { scales, scale_name } => {
                return self.bytes(CodeKind::E4M3, scales, scale_name);
            }
            LinearScheme::Int8 { scales } => self.bytes(CodeKind::Signed, scales, "weight_scale"),
            LinearScheme::LlmInt8 => self.llm_int8(),
            LinearScheme::FourBitFloat(format) => return self.four_bit_floats(format),
        }
        .and_then(|tensor| self.with_half_scales(tensor, scheme))
    }

    /// The tensor with its scales rounded to half precision, which kernels keep them in.
    fn with_half_scales(
        &self,
        mut tensor: QuantizedTensor<'a>,
        scheme: LinearScheme,
    ) -> Result<QuantizedTensor<'a>, ModelError> {
        for scale in &mut tensor.scales {
            let half = f16::from_f32(*scale).to_f32();
            if half.is_infinite() {
                let (suffix, field) = match scheme {
                    LinearScheme::Gptq(_) | LinearScheme::Awq { .. } => ("scales", "group_size"),
                    LinearScheme::LlmInt8 => ("SCB", "load_in_8bit"),
                    _ => ("weight_scale", "config_groups"),
                };
                let problem = format!("has {scale} and must be at most {}", f16::MAX);
                return Err(self.wrong(suffix, field, problem));
            }
            *scale = half;
        }
        Ok(tensor)
    }

    fn gptq(&self, scheme: GptqScheme) -> Result<QuantizedTensor<'a>, ModelError> {
        let (rows, cols) = (self.out_features, self.in_features);
        let group = self.group(scheme.group_size)?;
        let (per_word, groups) = (32 / scheme.bits as usize, cols / group);
        self.divides("bits", per_word, cols, "input")?;
        self.divides("bits", per_word, rows, "output")?;
        let codes = self.required(
            "qweight",
            "bits",
            &[Dtype::I32],
            &[&[cols / per_word, rows]],
        )?;
        let scales = self.scales("scales", "group_size", &[&[groups, rows]])?;
        let shape = [groups, rows / per_word];
        let zeros = self.required("qzeros", "group_size", &[Dtype::I32], &[&shape])?;
        // One less in each code of a word, as a whole number of 32 bits.
        let one_in_each = u32::MAX / ((1 << scheme.bits) - 1);
        let add = if scheme.zeros_less_one {
            one_in_each
        } else {
            0
        };
        let words: Vec<u8> = (0..groups * rows / per_word)
            .flat_map(|word| word_at(zeros.data, word).wrapping_add(add).to_le_bytes())
            .collect();
        let zeros = Codes {
            layout: CodeLayout::WordsOfRow,
            kind: CodeKind::Unsigned,
            bits: scheme.bits,
            rows: groups,
            cols: rows,
            data: &words,
        };
        let is_needed = scheme.desc_act && groups > 1;
        Ok(QuantizedTensor {
            codes: Codes {
                layout: CodeLayout::WordsOfColumns,
                kind: CodeKind::Unsigned,
                bits: scheme.bits,
                rows,
                cols,
                data: codes.data,
            },
            mapped: codes.mapped,
            block: [1, group],
            scales: transposed(&scales, groups, rows),
            zeros: by_row(rows, groups, |row, group| zeros.get(group, row)),
            order: self.order("g_idx", "desc_act", is_needed, group)?,
        })
    }

    fn awq(&self, group_size: Option<usize>) -> Result<QuantizedTensor<'a>, ModelError> {
        const PER_WORD: usize = 8;
        let (rows, cols) = (self.out_features, self.in_features);
        let group = self.group(group_size)?;
        let groups = cols / group;
        self.divides("bits", PER_WORD, rows, "output")?;
        let words = rows / PER_WORD;
        let codes = self.required("qweight", "bits", &[Dtype::I32], &[&[cols, words]])?;
        let scales = self.scales("scales", "group_size", &[&[groups, rows]])?;
        let zeros = self.required("qzeros", "group_size", &[Dtype::I32], &[&[groups, words]])?;
        let packed = |data, cols| Codes {
            layout: CodeLayout::WordsOfRows,
            kind: CodeKind::Unsigned,
            bits: 4,
            rows,
            cols,
            data,
        };
        let zeros = packed(zeros.data, groups);
        Ok(QuantizedTensor {
            codes: packed(codes.data, cols),
            mapped: codes.mapped,
            block: [1, group],
            scales: transposed(&scales, groups, rows),
            zeros: by_row(rows, groups, |row, group| zeros.get(row, group)),
            order: None,
        })
    }

    fn packed(&self, scheme: PackedScheme) -> Result<QuantizedTensor<'a>, ModelError> {
        let (rows, cols) = (self.out_features, self.in_features);
        let group = self.group(scheme.group_size)?;
        let (per_word, groups) = (32 / scheme.bits as usize, cols / group);
        let words = cols.div_ceil(per_word);
        let name = "weight_packed";
        let codes = self.required(name, "config_groups", &[Dtype::I32], &[&[rows, words]])?;
        self.check_weight_shape()?;
        let scales = self.scales("weight_scale", "config_groups", &[&[rows, groups]])?;
        let zeros = match scheme.symmetric {
            true => Vec::new(),
            false => {
                let name = "weight_zero_point";
                let shape = [rows.div_ceil(per_word), groups];
                let zeros = self.required(name, "config_groups", &[Dtype::I32], &[&shape])?;
                // Words of rows: the transposed of what GPTQ calls words of columns.
                let zeros = Codes {
                    layout: CodeLayout::WordsOfColumns,
                    kind: CodeKind::Unsigned,
                    bits: scheme.bits,
                    rows: groups,
                    cols: rows,
                    data: zeros.data,
                };
                by_row(rows, groups, |row, group| zeros.get(group, row))
            }
        };
        let is_needed = scheme.has_group_index && groups > 1;
        Ok(QuantizedTensor {
            codes: Codes {
                layout: CodeLayout::WordsOfRow,
                kind: CodeKind::Unsigned,
                bits: scheme.bits,
                rows,
                cols,
                data: codes.data,
            },
            mapped: codes.mapped,
            block: [1, group],
            scales,
            zeros,
            order: self.order("weight_g_idx", "config_groups", is_needed, group)?,
        })
    }

    /// A byte for each value.
    fn bytes(
        &self,
        kind: CodeKind,
        shape: ScaleShape,
        scale_name: &str,
    ) -> Result<QuantizedTensor<'a>, ModelError> {
        let (rows, cols) = (self.out_features, self.in_features);
        let dtype = match kind {
            CodeKind::E4M3 => Dtype::F8_E4M3,
            CodeKind::Signed | CodeKind::Unsigned | CodeKind::Table(_) => Dtype::I8,
        };
        let codes = self.required("weight", "quant_method", &[dtype], &[&[rows, cols]])?;
        let is_nan = |code: &u8| kind == CodeKind::E4M3 && code & 0x7f == 0x7f;
        if let Some(at) = codes.data.iter().position(is_nan) {
            let problem = format!("has NaN at [{}, {}]", at / cols, at % cols);
            return Err(self.wrong("weight", "quant_method", problem));
        }
        let field = match (scale_name, shape) {
            ("weight_scale_inv", _) => "weight_block_size",
            ("SCB", _) => "load_in_8bit",
            (_, ScaleShape::TensorOrChannel) => "quant_method",
            _ => "config_groups",
        };
        let tensor: [&[usize]; 2] = [&[], &[1]];
        let channel: [&[usize]; 2] = [&[rows, 1], &[rows]];
        let (mut block, scales) = match shape {
            ScaleShape::Tensor => ([rows, cols], self.scales(scale_name, field, &tensor)?),
            ScaleShape::Channel => ([1, cols], self.scales(scale_name, field, &channel)?),
            ScaleShape::TensorOrChannel => {
                let either = [tensor, channel].concat();
                ([1, cols], self.scales(scale_name, field, &either)?)
            }
            ScaleShape::Group(size) => {
                let group = self.group(Some(size))?;
                let scales = self.scales(scale_name, field, &[&[rows, cols / group]])?;
                ([1, group], scales)
            }
            ScaleShape::Block(block) => {
                let shape = [rows.div_ceil(block[0]), cols.div_ceil(block[1])];
                (block, self.scales(scale_name, field, &[&shape])?)
            }
        };
        if scales.len() == 1 {
            block = [rows, cols];
        }
        Ok(QuantizedTensor {
            codes: Codes {
                layout: CodeLayout::Bytes,
                kind,
                bits: 8,
                rows,
                cols,
                data: codes.data,
            },
            mapped: codes.mapped,
            block,
            scales,
            zeros: Vec::new(),
            order: None,
        })
    }

    /// Columns that share a scale.
    fn group(&self, group_size: Option<usize>) -> Result<usize, ModelError> {
        let group = group_size.unwrap_or(self.in_features).max(1);
        self.divides("group_size", group, self.in_features, "input")?;
        Ok(group)
    }

    fn divides(
        &self,
        field: &'static str,
        number: usize,
        features: usize,
        which: &str,
    ) -> Result<(), ModelError> {
        match features % number {
            0 => Ok(()),
            _ => Err(self.wrong(
                "qweight",
                field,
                format!("{number} must divide the layer's {features} {which} features"),
            )),
        }
    }

    fn wrong(&self, suffix: &str, field: &'static str, problem: String) -> ModelError {
        ModelError::Quantized {
            tensor: format!("{}.{suffix}", self.module),
            field,
            problem,
        }
    }

    /// A tensor of one of some number formats and shapes, where it is there.
    fn optional(
        &self,
        suffix: &str,
        field: &'static str,
        dtypes: &[Dtype],
        shapes: &[&[usize]],
    ) -> Result<Option<FileTensor<'a>>, ModelError> {
        let Some(tensor) = (self.checkpoint).find_any(&format!("{}.{suffix}", self.module)) else {
            return Ok(None);
        };
        if !dtypes.contains(&tensor.dtype) {
            let problem = format!("is {:?} and must be {}", tensor.dtype, names(dtypes));
            return Err(self.wrong(suffix, field, problem));
        }
        if !shapes.contains(&tensor.shape) {
            let shapes: Vec<String> = shapes.iter().map(|shape| format!("{shape:?}")).collect();
            let problem = format!(
                "has shape {:?} and must be {}",
                tensor.shape,
                shapes.join(" or ")
            );
            return Err(self.wrong(suffix, field, problem));
        }
        Ok(Some(tensor))
    }

    /// The same where it must be there.
    fn required(
        &self,
        suffix: &str,
        field: &'static str,
        dtypes: &[Dtype],
        shapes: &[&[usize]],
    ) -> Result<FileTensor<'a>, ModelError> {
        let found = self.optional(suffix, field, dtypes, shapes)?;
        found.ok_or_else(|| {
            let shape = shapes.first().copied().unwrap_or_default();
            let problem = format!("is missing; {} {shape:?} is needed", names(dtypes));
            self.wrong(suffix, field, problem)
        })
    }

    /// The contents of a tensor of bytes of whatever length.
    fn required_bytes(&self, suffix: &str, field: &'static str) -> Result<&'a [u8], ModelError> {
        let found = (self.checkpoint).find_any(&format!("{}.{suffix}", self.module));
        let shape = found.map_or(&[1][..], |tensor| tensor.shape);
        let tensor = self.required(suffix, field, &[Dtype::U8], &[shape])?;
        Ok(tensor.data)
    }

    /// Scales in the order of their tensor, as half precision holds them where codes are whole numbers.
    fn scales(
        &self,
        suffix: &str,
        field: &'static str,
        shapes: &[&[usize]],
    ) -> Result<Vec<f32>, ModelError> {
        let tensor = self.required(suffix, field, FLOATS, shapes)?;
        let halves = || tensor.data.as_chunks::<2>().0.iter().copied();
        let scales: Vec<f32> = match tensor.dtype {
            Dtype::F16 => halves().map(|b| f16::from_le_bytes(b).to_f32()).collect(),
            Dtype::BF16 => halves().map(|b| bf16::from_le_bytes(b).to_f32()).collect(),
            _ => (tensor.data.as_chunks::<4>().0.iter())
                .map(|bytes| f32::from_le_bytes(*bytes))
                .collect(),
        };
        match scales.iter().position(|scale| !scale.is_finite()) {
            None => Ok(scales),
            Some(at) => {
                let problem = format!("has {} at {at} and must be finite", scales[at]);
                Err(self.wrong(suffix, field, problem))
            }
        }
    }

    fn check_weight_shape(&self) -> Result<(), ModelError> {
        let (name, field) = ("weight_shape", "config_groups");
        let Some(shape) = self.optional(name, field, &[Dtype::I64, Dtype::I32], &[&[2]])? else {
            return Ok(());
        };
        let numbers: Vec<i64> = match shape.dtype {
            Dtype::I64 => (shape.data.as_chunks().0.iter())
                .map(|bytes| i64::from_le_bytes(*bytes))
                .collect(),
            _ => (shape.data.as_chunks().0.iter())
                .map(|bytes| i32::from_le_bytes(*bytes).into())
                .collect(),
        };
        let expected = [self.out_features as i64, self.in_features as i64];
        match numbers == expected {
            true => Ok(()),
            false => {
                let problem = format!("says {numbers:?} and must say {expected:?}");
                Err(self.wrong(name, field, problem))
            }
        }
    }

    /// The order that a tensor with the group of each column asks for.
    fn order(
        &self,
        suffix: &str,
        field: &'static str,
        is_needed: bool,
        group: usize,
    ) -> Result<Option<ColumnOrder>, ModelError> {
        let shape = [self.in_features];
        let index = match is_needed {
            true => Some(self.required(suffix, field, &[Dtype::I32], &[&shape])?),
            false => self.optional(suffix, field, &[Dtype::I32], &[&shape])?,
        };
        let Some(index) = index else {
            return Ok(None);
        };
        let words = 0..self.in_features;
        let groups = words.map(|word| word_at(index.data, word)).collect();
        ColumnOrder::of(groups, group).map_err(|problem| self.wrong(suffix, field, problem))
    }
}

/// `[groups, rows]` as `[rows, groups]`.
fn transposed(scales: &[f32], groups: usize, rows: usize) -> Vec<f32> {
    (0..rows)
        .flat_map(|row| scales.iter().skip(row).step_by(rows.max(1)).take(groups))
        .copied()
        .collect()
}

/// The zeros of all groups, row by row: `[rows, groups]`.
fn by_row(rows: usize, groups: usize, zero: impl Fn(usize, usize) -> u8) -> Vec<u8> {
    let places = (0..rows).flat_map(|row| (0..groups).map(move |group| (row, group)));
    places.map(|(row, group)| zero(row, group)).collect()
}

fn names(dtypes: &[Dtype]) -> String {
    let names: Vec<String> = dtypes.iter().map(|dtype| format!("{dtype:?}")).collect();
    names.join(" or ")
}
