//! The operations that are more than one call of candle, as plain as they can be.

use candle_core::{D, Device, Tensor};

use crate::model_executor::error::ModelError;

/// A weight `[out_features, in_features]` with its bias `[out_features]`.
pub(crate) struct Linear {
    pub(super) weight: Tensor,
    pub(super) bias: Option<Tensor>,
}

pub(super) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor, ModelError> {
    let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
    let norm = (mean + f64::from(eps))?.sqrt()?;
    Ok(x.broadcast_div(&norm)?.broadcast_mul(weight)?)
}

pub(super) fn softmax(x: &Tensor) -> Result<Tensor, ModelError> {
    let shifted = x.broadcast_sub(&x.max_keepdim(D::Minus1)?)?.exp()?;
    Ok(shifted.broadcast_div(&shifted.sum_keepdim(D::Minus1)?)?)
}

/// `x * weight^T + bias`
pub(super) fn linear(x: &Tensor, matrix: &Linear) -> Result<Tensor, ModelError> {
    let product = x.matmul(&matrix.weight.t()?)?;
    Ok(match &matrix.bias {
        Some(bias) => product.broadcast_add(bias)?,
        None => product,
    })
}

/// Scores to add: 0 where the query at row `r` (position `first + r`) sees position `c`, else
/// minus infinity.
pub(super) fn causal_mask(
    rows: usize,
    first: usize,
    seq_len: usize,
    window: Option<usize>,
    device: &Device,
) -> Result<Tensor, ModelError> {
    let mut mask = vec![f32::NEG_INFINITY; rows * seq_len];
    for (row, mask) in mask.chunks_exact_mut(seq_len).enumerate() {
        let position = first + row;
        let start = window.map_or(0, |window| (position + 1).saturating_sub(window));
        mask[start..=position].fill(0.0);
    }
    Ok(Tensor::from_vec(mask, (rows, seq_len), device)?)
}
