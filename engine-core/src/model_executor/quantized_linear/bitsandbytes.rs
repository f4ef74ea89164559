//! Tensors of bitsandbytes: signed bytes, and floats of 4 bits whose scales may be quantized themselves.

use safetensors::Dtype;
use serde::Deserialize;

use super::LinearTensors;
use crate::model_executor::config::{FourBitFloat, ScaleShape};
use crate::model_executor::error::{ModelError, cut};
use crate::model_executor::quantized_tensor::{CodeKind, CodeLayout, Codes, QuantizedTensor};

/// Steps of a signed byte in the largest magnitude of its row.
const STEPS: f32 = 127.0;

/// Field of `quantization_config` in errors.
const FIELD: &str = "bnb_4bit_quant_type";

/// The fields of the JSON in the tensor `quant_state.bitsandbytes__...` that dequantizing needs.
#[derive(Debug, Deserialize)]
struct QuantState {
    /// Values that share a scale, along rows.
    blocksize: usize,
    /// Rows and columns.
    shape: Vec<usize>,
    /// Scales that share one of their own; absent where scales are floats.
    nested_blocksize: Option<usize>,
    /// A number that dequantizing adds to each scale, where the scales are quantized too.
    nested_offset: Option<f32>,
}

impl<'a> LinearTensors<'a, '_> {
    /// `load_in_8bit`.
    pub(super) fn llm_int8(&self) -> Result<QuantizedTensor<'a>, ModelError> {
        let mut tensor = self.bytes(CodeKind::Signed, ScaleShape::Channel, "SCB")?;
        for scale in &mut tensor.scales {
            *scale /= STEPS;
        }
        Ok(tensor)
    }

    /// `load_in_4bit`: a value is a number of the table `quant_map`, times the scale of its block.
    pub(super) fn four_bit_floats(
        &self,
        format: FourBitFloat,
    ) -> Result<QuantizedTensor<'a>, ModelError> {
        let (rows, cols) = (self.out_features, self.in_features);
        let state = self.quant_state(format)?;
        let block = state.blocksize;
        let num_blocks = rows * cols / block;
        let shape = [rows * cols / 2, 1];
        let codes = self.required("weight", FIELD, &[Dtype::U8], &[&shape])?;
        let map = self.scales("weight.quant_map", FIELD, &[&[16]])?;
        let mut numbers = [0.0; 16];
        numbers.copy_from_slice(&map);
        let scales = match state.nested_blocksize {
            None => self.scales("weight.absmax", FIELD, &[&[num_blocks]])?,
            Some(nested) => self.nested_scales(num_blocks, nested, &state)?,
        };
        Ok(QuantizedTensor {
            codes: Codes {
                layout: CodeLayout::Nibbles,
                kind: CodeKind::Table(numbers),
                bits: 4,
                rows,
                cols,
                data: codes.data,
            },
            mapped: codes.mapped,
            block: [1, block],
            scales,
            zeros: Vec::new(),
            order: None,
        })
    }

    /// Scales of double quantization: bytes that stand for numbers of a table, with a scale for some of them.
    fn nested_scales(
        &self,
        num_blocks: usize,
        nested_block: usize,
        state: &QuantState,
    ) -> Result<Vec<f32>, ModelError> {
        let codes = self.required("weight.absmax", FIELD, &[Dtype::U8], &[&[num_blocks]])?;
        let map = self.scales("weight.nested_quant_map", FIELD, &[&[256]])?;
        let name = "weight.nested_absmax";
        let scales = self.scales(name, FIELD, &[&[num_blocks.div_ceil(nested_block)]])?;
        let offset = state.nested_offset.unwrap_or(0.0);
        let numbers = codes.data.iter().map(|code| map[usize::from(*code)]);
        let scale_of = |at: usize| scales[at / nested_block];
        let numbers: Vec<f32> = (numbers.enumerate())
            .map(|(at, number)| number * scale_of(at) + offset)
            .collect();
        match numbers.iter().position(|scale| !scale.is_finite()) {
            None => Ok(numbers),
            Some(at) => {
                let problem = format!("stands for {} at {at} and must be finite", numbers[at]);
                Err(self.wrong("weight.absmax", FIELD, problem))
            }
        }
    }

    fn quant_state(&self, format: FourBitFloat) -> Result<QuantState, ModelError> {
        let name = format.state_name();
        let wrong = |problem: String| Err(self.wrong(name, FIELD, problem));
        let bytes = self.required_bytes(name, FIELD)?;
        let state: QuantState = match serde_json::from_slice(bytes) {
            Ok(state) => state,
            Err(error) => {
                let error = error.to_string();
                let problem = "must be JSON with blocksize and shape";
                return wrong(format!("{problem}: {}", cut(&error)));
            }
        };
        let expected = [self.out_features, self.in_features];
        if state.shape != expected {
            let found = format!("{:?}", state.shape);
            return wrong(format!(
                "says the shape {} and must say {expected:?}",
                cut(&found)
            ));
        }
        let block = state.blocksize;
        // Blocks are read by row, and a byte has two codes.
        if block < 2 || !block.is_multiple_of(2) || !self.in_features.is_multiple_of(block) {
            let features = self.in_features;
            return wrong(format!(
                "says the blocksize {block}, which must be even and divide the layer's {features} input features"
            ));
        }
        match state.nested_blocksize {
            Some(0) => wrong("says the nested_blocksize 0, which must be above 0".to_owned()),
            _ if !state.nested_offset.unwrap_or(0.0).is_finite() => {
                wrong("says a nested_offset that is not finite".to_owned())
            }
            _ => Ok(state),
        }
    }
}
