//! `quant_method: bitsandbytes`, as transformers writes it.

use serde_json::Value;

use super::super::fields::{Fields, config_error};
use super::{LinearScheme, ModulePattern, PATH};
use crate::model_executor::error::ModelError;

/// The `quantization_config` of a checkpoint that bitsandbytes quantized.
#[derive(Debug, Clone, PartialEq)]
pub struct BitsAndBytesConfig {
    /// How quantized layers are stored: [`LinearScheme::LlmInt8`] or [`LinearScheme::FourBitFloat`].
    pub scheme: LinearScheme,
    /// Layers that are not quantized. Without a list transformers leaves the LM head alone, and some versions do so
    /// with one: of the LM head the file's own tensors decide.
    pub llm_int8_skip_modules: Vec<ModulePattern>,
}

/// A format of 4 bits whose numbers a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FourBitFloat {
    /// `nf4`: quantiles of a normal distribution.
    Nf4,
    /// `fp4`: a sign, two bits of exponent, one of mantissa.
    Fp4,
}

impl FourBitFloat {
    /// The name behind the weight's that the tensor with the weight's metadata has.
    pub(crate) fn state_name(self) -> &'static str {
        match self {
            Self::Nf4 => "weight.quant_state.bitsandbytes__nf4",
            Self::Fp4 => "weight.quant_state.bitsandbytes__fp4",
        }
    }
}

impl BitsAndBytesConfig {
    pub(super) fn parse(fields: &Fields<'_>) -> Result<Self, ModelError> {
        let scheme = match (fields.flag("load_in_4bit")?, fields.flag("load_in_8bit")?) {
            (true, false) => {
                fields.must_be("bnb_4bit_quant_storage", &["uint8"])?;
                let name = "bnb_4bit_quant_type";
                LinearScheme::FourBitFloat(match fields.get(name).map(Value::as_str) {
                    Some(Some("nf4")) => FourBitFloat::Nf4,
                    // bitsandbytes' own default.
                    Some(Some("fp4")) | None => FourBitFloat::Fp4,
                    Some(_) => {
                        let value = fields.get(name).unwrap_or(&Value::Null);
                        return Err(fields.wrong(name, value, "\"nf4\" or \"fp4\""));
                    }
                })
            }
            (false, true) => LinearScheme::LlmInt8,
            _ => {
                return Err(config_error(
                    format!("{PATH}load_in_4bit"),
                    "must be true, or load_in_8bit, and not both".to_owned(),
                ));
            }
        };
        Ok(Self {
            scheme,
            llm_int8_skip_modules: fields.modules("llm_int8_skip_modules")?,
        })
    }
}
