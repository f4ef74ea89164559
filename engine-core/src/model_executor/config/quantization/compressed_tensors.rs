//! `quant_method: compressed-tensors`: schemes by groups of layers.

use serde_json::{Map, Value};

use super::{
    Fields, LinearScheme, MAX_GROUPS, ModulePattern, PATH, PackedScheme, ScaleShape, block_of,
};
use crate::model_executor::config::fields::config_error;
use crate::model_executor::error::ModelError;

/// What compressed-tensors calls the class of all linear layers.
const LINEAR: &str = "Linear";

/// Schemes of layers that are named one by one or by their class.
#[derive(Debug, Clone, PartialEq)]
pub struct CompressedTensorsConfig {
    /// Schemes with the layers that they are for, in the file's order.
    pub config_groups: Vec<ConfigGroup>,
    /// Layers that are not quantized.
    pub ignore: Vec<ModulePattern>,
}

/// An entry of `config_groups`.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigGroup {
    /// Layers by name; a class of theirs is in `is_for_all`.
    pub targets: Vec<ModulePattern>,
    /// Whether all linear layers are targets.
    pub is_for_all: bool,
    /// How they are stored.
    pub scheme: LinearScheme,
}

impl CompressedTensorsConfig {
    pub(super) fn parse(fields: &Fields<'_>) -> Result<Self, ModelError> {
        fields.must_be("quantization_status", &["compressed", "frozen"])?;
        if let Some(sparsity) = fields.inner("sparsity_config")? {
            let sparsity = Fields {
                root: sparsity,
                path: "quantization_config.sparsity_config.",
            };
            sparsity.must_be("format", &["dense"])?;
        }
        let groups = fields.inner("config_groups")?.ok_or_else(|| {
            config_error(
                format!("{PATH}config_groups"),
                "missing; an object of groups of layers is needed",
            )
        })?;
        if groups.len() > MAX_GROUPS {
            let problem = format!("{} groups; at most {MAX_GROUPS} are read", groups.len());
            return Err(config_error(format!("{PATH}config_groups"), problem));
        }
        let groups = groups.iter().map(|(_, group)| match group {
            Value::Object(group) => ConfigGroup::parse(fields, group),
            other => Err(fields.wrong("config_groups", other, "an object in each group")),
        });
        Ok(Self {
            config_groups: groups.collect::<Result<_, _>>()?,
            ignore: fields.modules("ignore")?,
        })
    }

    /// How the linear layer of this name is stored: what names it comes before what names its class.
    pub(super) fn scheme(&self, module: &str) -> Option<LinearScheme> {
        if self.ignore.iter().any(|ignored| ignored.matches(module)) {
            return None;
        }
        let groups = &self.config_groups;
        let named = |group: &&ConfigGroup| group.targets.iter().any(|t| t.matches(module));
        let group = groups.iter().find(named);
        let group = group.or_else(|| groups.iter().find(|group| group.is_for_all));
        group.map(|group| group.scheme)
    }
}

impl ConfigGroup {
    fn parse(config: &Fields<'_>, group: &Map<String, Value>) -> Result<Self, ModelError> {
        let group = Fields {
            root: group,
            path: "quantization_config.config_groups.",
        };
        let weights = group.inner("weights")?.ok_or_else(|| {
            config_error(
                format!("{}weights", group.path),
                "missing; the weights' scheme is needed",
            )
        })?;
        let weights = Fields {
            root: weights,
            path: "quantization_config.config_groups.weights.",
        };
        // Either the group or the config says how tensors are stored.
        let format = match group.get("format") {
            Some(_) => group.get("format"),
            None => config.get("format"),
        };
        let targets = group.modules("targets")?;
        let is_class = |target: &ModulePattern| *target == ModulePattern::Name(LINEAR.to_owned());
        Ok(Self {
            is_for_all: targets.iter().any(is_class),
            targets: (targets.into_iter())
                .filter(|target| !is_class(target))
                .collect(),
            scheme: scheme(&weights, config, format)?,
        })
    }
}

fn scheme(
    weights: &Fields<'_>,
    config: &Fields<'_>,
    format: Option<&Value>,
) -> Result<LinearScheme, ModelError> {
    let bits = weights.bits("num_bits")?;
    weights.must_be("type", &["int", "float"])?;
    let is_float = weights.get("type").is_some_and(|value| value == "float");
    let symmetric = weights.get("symmetric").is_none() || weights.flag("symmetric")?;
    let scales = scale_shape(weights)?;
    let packed = match (format.and_then(Value::as_str), is_float, bits) {
        (Some("pack-quantized"), false, _) => true,
        (Some("float-quantized" | "naive-quantized"), true, 8)
        | (Some("int-quantized" | "naive-quantized"), false, 8) => false,
        _ => {
            let right = "\"pack-quantized\" with 4 or 8 bits of type int, \"int-quantized\" with 8 bits of \
                         type int, or \"float-quantized\" with 8 bits of type float";
            let given = format.unwrap_or(&Value::Null);
            return Err(config.wrong("format", given, right));
        }
    };
    if packed {
        let group_size = match scales {
            ScaleShape::Group(size) => Some(size),
            ScaleShape::Channel => None,
            _ => {
                let given = weights.get("strategy").unwrap_or(&Value::Null);
                let right = "\"group\" or \"channel\" in pack-quantized";
                return Err(weights.wrong("strategy", given, right));
            }
        };
        let actorder = weights.get("actorder");
        return Ok(LinearScheme::Packed(PackedScheme {
            bits,
            group_size,
            symmetric,
            has_group_index: actorder.is_some_and(|value| *value == true || value == "group"),
        }));
    }
    if !symmetric {
        let given = Value::Bool(false);
        return Err(weights.wrong("symmetric", &given, "true where bytes aren't packed"));
    }
    Ok(match is_float {
        true => LinearScheme::Fp8 {
            scales,
            scale_name: "weight_scale",
        },
        false => LinearScheme::Int8 { scales },
    })
}

fn scale_shape(weights: &Fields<'_>) -> Result<ScaleShape, ModelError> {
    let strategy = weights.get("strategy").unwrap_or(&Value::Null);
    Ok(match strategy.as_str() {
        Some("tensor") => ScaleShape::Tensor,
        Some("channel") => ScaleShape::Channel,
        Some("group") => match weights.group_size("group_size")? {
            Some(size) => ScaleShape::Group(size),
            None => ScaleShape::Channel,
        },
        Some("block") => {
            let value = weights.get("block_structure").unwrap_or(&Value::Null);
            let block = block_of(value)
                .ok_or_else(|| weights.wrong("block_structure", value, "two numbers above 0"))?;
            ScaleShape::Block(block)
        }
        _ => {
            let right = "\"tensor\", \"channel\", \"group\" or \"block\"";
            return Err(weights.wrong("strategy", strategy, right));
        }
    })
}
