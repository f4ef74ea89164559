//! The operations that are more than one call of candle, as plain as they can be.

use candle_core::{D, DType, Device, Tensor};

use crate::model_executor::backend::LayerNorm;
use crate::model_executor::config::HiddenAct;
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

pub(super) fn layer_norm(x: &Tensor, norm: &LayerNorm<Tensor>) -> Result<Tensor, ModelError> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let deviation = (variance + f64::from(norm.eps))?.sqrt()?;
    let normed = centred
        .broadcast_div(&deviation)?
        .broadcast_mul(&norm.weight)?;
    Ok(normed.broadcast_add(&norm.bias)?)
}

pub(super) fn activated(act: HiddenAct, x: &Tensor) -> Result<Tensor, ModelError> {
    Ok(match act {
        HiddenAct::Silu => x.silu()?,
        // candle's `gelu` is the approximation with tanh.
        HiddenAct::GeluTanh => x.gelu()?,
        HiddenAct::Gelu => x.gelu_erf()?,
        HiddenAct::Relu => x.relu()?,
    })
}

/// Rounded to bfloat16.
pub(super) fn to_bf16(x: &Tensor) -> Result<Tensor, ModelError> {
    Ok(x.to_dtype(DType::BF16)?.to_dtype(DType::F32)?)
}

/// Rounded to half precision.
pub(super) fn to_f16(x: &Tensor) -> Result<Tensor, ModelError> {
    Ok(x.to_dtype(DType::F16)?.to_dtype(DType::F32)?)
}

/// Heads of `head_dim` values, each rounded to whole multiples of a 127th of its largest magnitude.
pub(super) fn to_q8(x: &Tensor, head_dim: usize) -> Result<Tensor, ModelError> {
    let (rows, width) = x.dims2()?;
    let heads = x.reshape((rows, width / head_dim, head_dim))?;
    let scale = (heads.abs()?.max_keepdim(D::Minus1)? / 127.0)?;
    // A head of zeros stays one.
    let divisor = scale.maximum(1e-30f32)?;
    let whole = heads.broadcast_div(&divisor)?.round()?;
    Ok(whole.broadcast_mul(&scale)?.reshape((rows, width))?)
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
