//! `quantization_config` of `config.json`: how a checkpoint's linear layers are quantized.
//!
//! [`QuantizationConfig`] has a variant per `quant_method`, with vLLM's names. Whoever loads a layer asks
//! [`QuantizationConfig::scheme`] for the layer's [`LinearScheme`], which says what its tensors are called
//! and what they hold (`model_executor/quantized_linear.rs`).

mod bitsandbytes;
mod compressed_tensors;
mod modules;

use serde_json::{Map, Value};

pub use self::bitsandbytes::{BitsAndBytesConfig, FourBitFloat};
pub use self::compressed_tensors::{CompressedTensorsConfig, ConfigGroup};
pub use self::modules::ModulePattern;
use super::fields::{Fields, config_error};
use crate::model_executor::error::ModelError;

/// Path of the object in errors.
const PATH: &str = "quantization_config.";

/// Most names of modules in a list: each is compared with every layer's, and published lists have some
/// thousands.
const MAX_NAMES: usize = 16_384;

/// Most regular expressions in a list: each may take 256 KiB.
const MAX_EXPRESSIONS: usize = 256;

/// Most entries of `config_groups`.
const MAX_GROUPS: usize = 16;

/// What a quantized checkpoint says of its layers.
#[derive(Debug, Clone, PartialEq)]
pub enum QuantizationConfig {
    /// `quant_method: fp8`, as Qwen and DeepSeek publish.
    Fp8(Fp8Config),
    /// `quant_method: awq`.
    Awq(AwqConfig),
    /// `quant_method: gptq`.
    Gptq(GptqConfig),
    /// `quant_method: bitsandbytes`.
    BitsAndBytes(BitsAndBytesConfig),
    /// `quant_method: compressed-tensors`.
    CompressedTensors(CompressedTensorsConfig),
}

/// FP8 weights (e4m3).
#[derive(Debug, Clone, PartialEq)]
pub struct Fp8Config {
    /// Rows and columns that share a scale; `None` is a scale per tensor or per row.
    pub weight_block_size: Option<[usize; 2]>,
    /// Layers that are not quantized.
    pub modules_to_not_convert: Vec<ModulePattern>,
}

/// AWQ's 4-bit weights in the layout of its GEMM kernels.
#[derive(Debug, Clone, PartialEq)]
pub struct AwqConfig {
    /// Values of a row that share a scale; `None` is the whole row.
    pub group_size: Option<usize>,
    /// Layers that are not quantized.
    pub modules_to_not_convert: Vec<ModulePattern>,
}

/// GPTQ weights of 4 or 8 bits.
#[derive(Debug, Clone, PartialEq)]
pub struct GptqConfig {
    /// What holds for layers that no rule of `dynamic` names.
    pub scheme: GptqScheme,
    /// Whether the LM head is quantized.
    pub lm_head: bool,
    /// Layers that are quantized; none means all.
    pub modules_in_block_to_quantize: Vec<ModulePattern>,
    /// The first rule that matches a layer decides: its own scheme, or `None` where it isn't quantized.
    pub dynamic: Vec<(ModulePattern, Option<GptqScheme>)>,
}

/// A layer's GPTQ weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GptqScheme {
    /// 4 or 8.
    pub bits: u32,
    /// Values of a row that share a scale; `None` is the whole row.
    pub group_size: Option<usize>,
    /// Whether columns were quantized in the order of their activations, so that `g_idx` says which group
    /// each has.
    pub desc_act: bool,
    /// Whether zeros are stored less 1 (`checkpoint_format: gptq`, and not `gptq_v2`).
    pub zeros_less_one: bool,
}

/// Whole numbers packed to 32-bit words along a row, as compressed-tensors' `pack-quantized`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedScheme {
    /// 4 or 8.
    pub bits: u32,
    /// Values of a row that share a scale; `None` is the whole row.
    pub group_size: Option<usize>,
    /// Whether there are no zeros.
    pub symmetric: bool,
    /// Whether `weight_g_idx` says which group each column has.
    pub has_group_index: bool,
}

/// How many values share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleShape {
    /// All of a tensor.
    Tensor,
    /// Those of a row.
    Channel,
    /// One for the tensor or one for each row, as the file has it.
    TensorOrChannel,
    /// Some of a row.
    Group(usize),
    /// Some rows by some columns.
    Block([usize; 2]),
}

/// How a linear layer's weight is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinearScheme {
    /// `qweight`, `qzeros`, `scales` and maybe `g_idx`.
    Gptq(GptqScheme),
    /// `qweight`, `qzeros`, `scales` in AWQ's order.
    Awq {
        /// Values of a row that share a scale; `None` is the whole row.
        group_size: Option<usize>,
    },
    /// `weight_packed`, `weight_scale` and maybe `weight_zero_point` and `weight_g_idx`.
    Packed(PackedScheme),
    /// `weight` of e4m3 bytes with their scales.
    Fp8 {
        /// Which values share a scale.
        scales: ScaleShape,
        /// The scales' tensor: `weight_scale` or `weight_scale_inv`; values are multiplied by both.
        scale_name: &'static str,
    },
    /// `weight` of signed bytes, `weight_scale`.
    Int8 {
        /// Which values share a scale.
        scales: ScaleShape,
    },
    /// `weight` of signed bytes, `SCB` with the largest magnitude of each row, which is 127 steps.
    LlmInt8,
    /// `weight` of two codes a byte, `weight.absmax`, `weight.quant_map`, `weight.quant_state...` and maybe
    /// `weight.nested_absmax` and `weight.nested_quant_map`.
    FourBitFloat(FourBitFloat),
}

impl QuantizationConfig {
    /// The config, where `config.json` has one.
    ///
    /// # Errors
    /// [`ModelError::Config`] where a field is missing, out of range, or asks for what isn't implemented.
    pub(super) fn parse(config: &Fields<'_>) -> Result<Option<Self>, ModelError> {
        let Some(value) = config.get("quantization_config") else {
            return Ok(None);
        };
        let Value::Object(root) = value else {
            return Err(config.wrong("quantization_config", value, "an object"));
        };
        let fields = Fields { root, path: PATH };
        let right = "\"fp8\", \"awq\", \"gptq\", \"bitsandbytes\" or \"compressed-tensors\"";
        let Some(method) = fields.get("quant_method") else {
            return Err(config_error(
                format!("{PATH}quant_method"),
                format!("missing; {right} is needed"),
            ));
        };
        Ok(Some(match method.as_str() {
            Some("fp8") => Self::Fp8(Fp8Config::parse(&fields)?),
            Some("awq") => Self::Awq(AwqConfig::parse(&fields)?),
            Some("gptq") => Self::Gptq(GptqConfig::parse(&fields)?),
            Some("bitsandbytes") => Self::BitsAndBytes(BitsAndBytesConfig::parse(&fields)?),
            Some("compressed-tensors") => {
                Self::CompressedTensors(CompressedTensorsConfig::parse(&fields)?)
            }
            _ => return Err(fields.wrong("quant_method", method, right)),
        }))
    }

    /// How the linear layer of this name is stored; `None` where it isn't quantized.
    pub fn scheme(&self, module: &str) -> Option<LinearScheme> {
        let is_lm_head = module == "lm_head";
        let is_any = |patterns: &[ModulePattern]| patterns.iter().any(|any| any.matches(module));
        match self {
            Self::Fp8(config) => {
                let plain = is_lm_head || is_any(&config.modules_to_not_convert);
                (!plain).then_some(match config.weight_block_size {
                    Some(block) => LinearScheme::Fp8 {
                        scales: ScaleShape::Block(block),
                        scale_name: "weight_scale_inv",
                    },
                    None => LinearScheme::Fp8 {
                        scales: ScaleShape::TensorOrChannel,
                        scale_name: "weight_scale",
                    },
                })
            }
            Self::Awq(config) => {
                let plain = is_lm_head || is_any(&config.modules_to_not_convert);
                (!plain).then_some(LinearScheme::Awq {
                    group_size: config.group_size,
                })
            }
            Self::Gptq(config) => {
                let listed = &config.modules_in_block_to_quantize;
                if is_lm_head && !config.lm_head
                    || !is_lm_head && !listed.is_empty() && !is_any(listed)
                {
                    return None;
                }
                let rule = config.dynamic.iter().find(|rule| rule.0.matches(module));
                rule.map_or(Some(config.scheme), |(_, scheme)| *scheme)
                    .map(LinearScheme::Gptq)
            }
            Self::BitsAndBytes(config) => {
                (!is_any(&config.llm_int8_skip_modules)).then_some(config.scheme)
            }
            Self::CompressedTensors(config) => config.scheme(module),
        }
    }

    /// `quant_method`.
    pub fn method(&self) -> &'static str {
        match self {
            Self::Fp8(_) => "fp8",
            Self::Awq(_) => "awq",
            Self::Gptq(_) => "gptq",
            Self::BitsAndBytes(_) => "bitsandbytes",
            Self::CompressedTensors(_) => "compressed-tensors",
        }
    }

    /// The field that leaves layers unquantized.
    pub fn ignoring_field(&self) -> &'static str {
        match self {
            Self::Fp8(_) | Self::Awq(_) => "modules_to_not_convert",
            Self::Gptq(_) => "dynamic",
            Self::BitsAndBytes(_) => "llm_int8_skip_modules",
            Self::CompressedTensors(_) => "ignore",
        }
    }
}

impl Fp8Config {
    fn parse(fields: &Fields<'_>) -> Result<Self, ModelError> {
        fields.must_be("fmt", &["e4m3", "float8_e4m3fn"])?;
        fields.must_be("activation_scheme", &["dynamic", "static"])?;
        let weight_block_size =
            match fields.get("weight_block_size") {
                None => None,
                Some(value) => Some(block_of(value).ok_or_else(|| {
                    fields.wrong("weight_block_size", value, "two numbers above 0")
                })?),
            };
        let ignored = match fields.get("modules_to_not_convert") {
            Some(_) => "modules_to_not_convert",
            None => "ignored_layers",
        };
        Ok(Self {
            weight_block_size,
            modules_to_not_convert: fields.modules(ignored)?,
        })
    }
}

impl AwqConfig {
    fn parse(fields: &Fields<'_>) -> Result<Self, ModelError> {
        let either = |new: &'static str, old: &'static str| match fields.get(old) {
            Some(_) => old,
            None => new,
        };
        let bits = either("bits", "w_bit");
        if fields.bits(bits)? != 4 {
            let value = fields.get(bits).unwrap_or(&Value::Null);
            return Err(fields.wrong(bits, value, "4"));
        }
        fields.must_be("version", &["gemm", "GEMM"])?;
        Ok(Self {
            group_size: fields.group_size(either("group_size", "q_group_size"))?,
            modules_to_not_convert: fields.modules("modules_to_not_convert")?,
        })
    }
}

impl GptqConfig {
    fn parse(fields: &Fields<'_>) -> Result<Self, ModelError> {
        fields.must_be("checkpoint_format", &["gptq", "gptq_v2"])?;
        fields.must_be("pack_dtype", &["int32"])?;
        let scheme = GptqScheme {
            bits: fields.bits("bits")?,
            group_size: fields.group_size("group_size")?,
            desc_act: fields.flag("desc_act")?,
            zeros_less_one: fields.get("checkpoint_format").is_none_or(|v| v == "gptq"),
        };
        Ok(Self {
            lm_head: fields.flag("lm_head")?,
            modules_in_block_to_quantize: fields.modules("modules_in_block_to_quantize")?,
            dynamic: dynamic_rules(fields, scheme)?,
            scheme,
        })
    }
}

/// Rules of `dynamic`: a pattern behind `-:` leaves layers out, one behind `+:` or nothing has settings of its
/// own.
fn dynamic_rules(
    fields: &Fields<'_>,
    scheme: GptqScheme,
) -> Result<Vec<(ModulePattern, Option<GptqScheme>)>, ModelError> {
    let Some(value) = fields.get("dynamic") else {
        return Ok(Vec::new());
    };
    let Value::Object(rules) = value else {
        return Err(fields.wrong("dynamic", value, "an object of patterns and settings"));
    };
    if rules.len() > MAX_EXPRESSIONS {
        let problem = format!("{} rules; at most {MAX_EXPRESSIONS} are read", rules.len());
        return Err(config_error(format!("{PATH}dynamic"), problem));
    }
    let rules = rules.iter().map(|(pattern, settings)| {
        let (is_left_out, text) = match pattern.strip_prefix("-:") {
            Some(text) => (true, text),
            None => (false, pattern.strip_prefix("+:").unwrap_or(pattern)),
        };
        let regex = ModulePattern::regex(&format!("{PATH}dynamic"), text)?;
        if is_left_out {
            return Ok((regex, None));
        }
        let Value::Object(settings) = settings else {
            return Err(fields.wrong("dynamic", settings, "an object of settings"));
        };
        let own = Fields {
            root: settings,
            path: "quantization_config.dynamic.",
        };
        let mut scheme = scheme;
        if own.get("bits").is_some() {
            scheme.bits = own.bits("bits")?;
        }
        if own.get("group_size").is_some() {
            scheme.group_size = own.group_size("group_size")?;
        }
        if own.get("desc_act").is_some() {
            scheme.desc_act = own.flag("desc_act")?;
        }
        Ok((regex, Some(scheme)))
    });
    rules.collect()
}

/// `[rows, columns]` of a block, both above 0.
fn block_of(value: &Value) -> Option<[usize; 2]> {
    let list = value.as_array()?;
    let number = |index: usize| match list.get(index)?.as_u64()? {
        number @ 1..=0x1000_0000 => Some(number as usize),
        _ => None,
    };
    (list.len() == 2).then_some([number(0)?, number(1)?])
}

impl Fields<'_> {
    /// Refuses a field whose value is none of some.
    fn must_be(&self, name: &str, right: &[&str]) -> Result<(), ModelError> {
        match self.get(name) {
            Some(value) if !right.iter().any(|right| value == right) => {
                Err(self.wrong(name, value, &right.join(" or ")))
            }
            _ => Ok(()),
        }
    }

    /// 4 or 8.
    fn bits(&self, name: &str) -> Result<u32, ModelError> {
        match (self.positive(name)?, self.get(name)) {
            (4, _) => Ok(4),
            (8, _) => Ok(8),
            (_, value) => Err(self.wrong(name, value.unwrap_or(&Value::Null), "4 or 8")),
        }
    }

    /// Values that share a scale: a multiple of 32, or `None` for -1, the whole row.
    fn group_size(&self, name: &str) -> Result<Option<usize>, ModelError> {
        let right = "a multiple of 32, or -1 for whole rows";
        let Some(value) = self.get(name) else {
            return Err(config_error(
                format!("{}{name}", self.path),
                format!("missing; {right} is needed"),
            ));
        };
        match value.as_i64() {
            Some(-1) => Ok(None),
            Some(size @ 32..=0x1000_0000) if size % 32 == 0 => Ok(Some(size as usize)),
            _ => Err(self.wrong(name, value, right)),
        }
    }

    /// A list of modules, or a list of such lists; none where it is absent.
    fn modules(&self, name: &str) -> Result<Vec<ModulePattern>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(Vec::new());
        };
        let wrong = || self.wrong(name, value, "a list of names of modules");
        let (mut patterns, mut num_expressions) = (Vec::new(), 0);
        for entry in value.as_array().ok_or_else(wrong)? {
            let names = match entry {
                Value::Array(names) => names.as_slice(),
                _ => std::slice::from_ref(entry),
            };
            for entry in names {
                let entry = entry.as_str().ok_or_else(wrong)?;
                patterns.push(ModulePattern::parse(
                    &format!("{}{name}", self.path),
                    entry,
                )?);
                num_expressions += usize::from(entry.starts_with("re:"));
                if patterns.len() > MAX_NAMES || num_expressions > MAX_EXPRESSIONS {
                    let problem = format!(
                        "too long; at most {MAX_NAMES} names and {MAX_EXPRESSIONS} regular expressions are read"
                    );
                    return Err(config_error(format!("{}{name}", self.path), problem));
                }
            }
        }
        Ok(patterns)
    }

    /// The object of this name.
    fn inner<'b>(&'b self, name: &str) -> Result<Option<&'b Map<String, Value>>, ModelError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(inner)) => Ok(Some(inner)),
            Some(value) => Err(self.wrong(name, value, "an object")),
        }
    }
}
