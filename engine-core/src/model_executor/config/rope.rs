//! The settings of the rotary position embeddings.

use serde_json::{Map, Value};

use super::fields::{Fields, config_error};
use super::settings::Defaults;
use crate::model_executor::error::ModelError;
use crate::model_executor::rotary::{RopeParameters, RopeScaling};

impl Fields<'_> {
    /// The embeddings, and which of them each layer has.
    ///
    /// Either spelling: `rope_parameters`, or `rope_theta` with `rope_scaling`.
    #[allow(clippy::type_complexity, reason = "two fields of the result")]
    pub(super) fn ropes(
        &self,
        architecture: &str,
        max_position_embeddings: usize,
        head_dim: usize,
        sliding_windows: &[Option<usize>],
    ) -> Result<(Vec<RopeParameters>, Vec<Option<usize>>), ModelError> {
        let num_layers = sliding_windows.len();
        let defaults = Defaults::of(architecture);
        let (settings, path) = match (self.get("rope_parameters"), self.get("rope_scaling")) {
            (Some(settings), _) => (Some(settings), "rope_parameters."),
            (None, settings) => (settings, "rope_scaling."),
        };
        let root = self.object(settings, path)?;
        let reader = RopeReader {
            config: self,
            architecture,
            max_position_embeddings,
            head_dim,
        };
        if architecture != "Gemma3ForCausalLM" {
            let theta = self.positive_float("rope_theta")?;
            let rope = reader.read(root, path, theta.unwrap_or(defaults.rope_theta))?;
            let layers = self.rotated_layers(architecture, num_layers)?;
            return Ok((
                vec![rope],
                layers
                    .into_iter()
                    .map(|rotated| rotated.then_some(0))
                    .collect(),
            ));
        }
        // Layers with a window have a base of their own, and no stretch.
        let layers = sliding_windows
            .iter()
            .map(|window| Some(usize::from(window.is_some())))
            .collect();
        let by_type = |name: &str| root.and_then(|root| root.get(name));
        let (full, local) = (by_type("full_attention"), by_type("sliding_attention"));
        let (full, local) = if full.is_some() || local.is_some() {
            (
                self.object(full, "rope_parameters.full_attention.")?,
                self.object(local, "rope_parameters.sliding_attention.")?,
            )
        } else {
            (root, None)
        };
        let theta = self.positive_float("rope_theta")?;
        let local_theta = self.positive_float("rope_local_base_freq")?;
        let full = reader.read(full, path, theta.unwrap_or(defaults.rope_theta))?;
        let local = reader.read(local, path, local_theta.unwrap_or(10_000.0))?;
        Ok((vec![full, local], layers))
    }

    /// `[num_layers]` whether queries and keys are rotated: SmolLM3 leaves out every fourth layer.
    pub(super) fn rotated_layers(
        &self,
        architecture: &str,
        num_layers: usize,
    ) -> Result<Vec<bool>, ModelError> {
        if architecture != "SmolLM3ForCausalLM" {
            return Ok(vec![true; num_layers]);
        }
        let Some(value) = self.get("no_rope_layers") else {
            let interval = self
                .optional_positive("no_rope_layer_interval")?
                .unwrap_or(4);
            return Ok((1..=num_layers)
                .map(|layer| layer % interval != 0)
                .collect());
        };
        let right = format!("a list of at least {num_layers} numbers, 1 (rotation) or 0");
        let list = value
            .as_array()
            .filter(|list| list.len() >= num_layers)
            .ok_or_else(|| self.wrong("no_rope_layers", value, &right))?;
        list[..num_layers]
            .iter()
            .map(|layer| match layer.as_u64() {
                Some(rotated @ 0..=1) => Ok(rotated == 1),
                _ => Err(self.wrong("no_rope_layers", layer, &right)),
            })
            .collect()
    }

    fn object<'v>(
        &self,
        value: Option<&'v Value>,
        path: &str,
    ) -> Result<Option<&'v Map<String, Value>>, ModelError> {
        match value {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(root)) => Ok(Some(root)),
            Some(value) => Err(self.wrong(path.trim_end_matches('.'), value, "an object")),
        }
    }
}

/// Reads one object of rotary settings.
struct RopeReader<'a> {
    /// The whole file, where older ones have some of the settings.
    config: &'a Fields<'a>,
    architecture: &'a str,
    max_position_embeddings: usize,
    head_dim: usize,
}

impl RopeReader<'_> {
    fn read(
        &self,
        root: Option<&Map<String, Value>>,
        path: &'static str,
        theta: f64,
    ) -> Result<RopeParameters, ModelError> {
        let empty = Map::new();
        let inner = Fields {
            root: root.unwrap_or(&empty),
            path,
        };
        let partial_rotary_factor = match inner.positive_float("partial_rotary_factor")? {
            Some(factor) => factor,
            None => self
                .config
                .positive_float("partial_rotary_factor")?
                .unwrap_or(1.0),
        };
        let has_part = self.architecture == "Phi3ForCausalLM";
        if partial_rotary_factor > 1.0 || (partial_rotary_factor < 1.0 && !has_part) {
            let right = if has_part { "at most 1" } else { "1" };
            return Err(config_error(
                format!("{path}partial_rotary_factor"),
                format!("{partial_rotary_factor} must be {right}"),
            ));
        }
        let mut rope = RopeParameters {
            theta: inner.positive_float("rope_theta")?.unwrap_or(theta),
            partial_rotary_factor,
            scaling: RopeScaling::Default,
        };
        let rotated = rope.rotated_dims(self.head_dim);
        if rotated == 0 || !rotated.is_multiple_of(2) {
            return Err(config_error(
                format!("{path}partial_rotary_factor"),
                format!(
                    "{partial_rotary_factor} of head_dim {} is {rotated}, which must be even and above 0",
                    self.head_dim
                ),
            ));
        }
        rope.scaling = self.scaling(&inner, rotated / 2)?;
        Ok(rope)
    }

    /// How the angles of `pairs` pairs are stretched.
    fn scaling(&self, inner: &Fields<'_>, pairs: usize) -> Result<RopeScaling, ModelError> {
        let rope_type = inner.get("rope_type").or_else(|| inner.get("type"));
        let longrope = self.architecture == "Phi3ForCausalLM";
        let (scaling, own): (_, &[&str]) = match rope_type.map(|value| (value, value.as_str())) {
            None | Some((_, Some("default"))) => (RopeScaling::Default, &[]),
            Some((_, Some("linear"))) => (
                RopeScaling::Linear {
                    factor: inner.required_float("factor")?,
                },
                &["factor"],
            ),
            Some((_, Some("llama3"))) => (
                llama3(inner)?,
                &["factor", "low_freq_factor", "high_freq_factor"],
            ),
            Some((_, Some("longrope" | "su"))) if longrope => (
                self.longrope(inner, pairs)?,
                &["factor", "short_factor", "long_factor", "attention_factor"],
            ),
            Some((value, _)) => {
                let right = if longrope {
                    "\"default\", \"linear\", \"llama3\" or \"longrope\""
                } else {
                    "\"default\", \"linear\" or \"llama3\""
                };
                return Err(inner.wrong("rope_type", value, right));
            }
        };
        let common = [
            "rope_type",
            "type",
            "rope_theta",
            "partial_rotary_factor",
            "original_max_position_embeddings",
        ];
        let unknown = inner.root.iter().find(|(name, value)| {
            !value.is_null() && !common.contains(&name.as_str()) && !own.contains(&name.as_str())
        });
        if let Some((name, value)) = unknown {
            return Err(inner.wrong(name, value, "absent: this setting is not supported"));
        }
        Ok(scaling)
    }

    fn longrope(&self, inner: &Fields<'_>, pairs: usize) -> Result<RopeScaling, ModelError> {
        let name = "original_max_position_embeddings";
        let original = match inner.optional_positive(name)? {
            Some(original) => original,
            None => self.config.positive(name)?,
        };
        let stretch = match inner.positive_float("factor")? {
            Some(factor) => factor,
            None => self.max_position_embeddings as f64 / original as f64,
        };
        let attention_factor = match inner.positive_float("attention_factor")? {
            Some(factor) => factor,
            None if stretch <= 1.0 => 1.0,
            None => (1.0 + stretch.ln() / (original as f64).ln()).sqrt(),
        };
        Ok(RopeScaling::LongRope {
            short_factor: factors(inner, "short_factor", pairs)?,
            long_factor: factors(inner, "long_factor", pairs)?,
            original_max_position_embeddings: original,
            attention_factor,
        })
    }
}

/// A list of `pairs` numbers above 0.
fn factors(inner: &Fields<'_>, name: &str, pairs: usize) -> Result<Vec<f64>, ModelError> {
    let right = format!("a list of {pairs} numbers above 0, one per rotated pair of dimensions");
    let value = inner.get(name).unwrap_or(&Value::Null);
    let list = value
        .as_array()
        .filter(|list| list.len() == pairs)
        .ok_or_else(|| inner.wrong(name, value, &right))?;
    list.iter()
        .map(|factor| match factor.as_f64() {
            Some(number) if number > 0.0 && number.is_finite() => Ok(number),
            _ => Err(inner.wrong(name, factor, &right)),
        })
        .collect()
}

fn llama3(inner: &Fields<'_>) -> Result<RopeScaling, ModelError> {
    let low_freq_factor = inner.required_float("low_freq_factor")?;
    let high_freq_factor = inner.required_float("high_freq_factor")?;
    if low_freq_factor >= high_freq_factor {
        return Err(config_error(
            format!("{}low_freq_factor", inner.path),
            format!("{low_freq_factor} must be below high_freq_factor ({high_freq_factor})"),
        ));
    }
    Ok(RopeScaling::Llama3 {
        factor: inner.required_float("factor")?,
        low_freq_factor,
        high_freq_factor,
        original_max_position_embeddings: inner.positive("original_max_position_embeddings")?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::parse;
    use super::*;

    #[test]
    fn both_spellings_of_rotary_settings_mean_the_same() {
        let scaling = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 256});
        let old = parse(json!({"rope_theta": 5e5, "rope_scaling": scaling})).unwrap();
        let mut parameters = scaling;
        parameters["rope_theta"] = json!(5e5);
        let new = parse(json!({"rope_parameters": parameters})).unwrap();
        assert_eq!(old.ropes, new.ropes);
        assert_eq!(old.ropes[0].theta, 5e5);
        assert!(matches!(
            old.ropes[0].scaling,
            RopeScaling::Llama3 { factor: 8.0, .. }
        ));

        let linear = parse(json!({"rope_scaling": {"type": "linear", "factor": 4.0}})).unwrap();
        assert_eq!(linear.ropes[0].scaling, RopeScaling::Linear { factor: 4.0 });
    }

    #[test]
    fn gemma3_has_a_rotation_for_each_kind_of_layer_in_both_spellings() {
        let base = json!({"architectures": ["Gemma3ForCausalLM"], "sliding_window": 8,
            "sliding_window_pattern": 2});
        let with = |changes: Value| {
            let mut config = base.clone();
            for (name, value) in changes.as_object().unwrap() {
                config[name] = value.clone();
            }
            parse(config).unwrap()
        };
        let old = with(json!({"rope_theta": 1e6, "rope_local_base_freq": 2e4,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0}}));
        let new = with(json!({"rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}}));
        let silent = with(json!({}));
        assert_eq!(old.ropes, new.ropes);
        assert_eq!(old.ropes[0].scaling, RopeScaling::Linear { factor: 8.0 });
        assert_eq!((old.ropes[0].theta, old.ropes[1].theta), (1e6, 2e4));
        assert_eq!(old.ropes[1].scaling, RopeScaling::Default);
        assert_eq!((silent.ropes[0].theta, silent.ropes[1].theta), (1e6, 1e4));
        assert_eq!(old.layer_ropes, [Some(1), Some(0), Some(1), Some(0)]);
    }

    #[test]
    fn smollm3_leaves_some_layers_without_rotation() {
        let layers = |changes: Value| {
            let mut config = json!({"architectures": ["SmolLM3ForCausalLM"]});
            for (name, value) in changes.as_object().unwrap() {
                config[name] = value.clone();
            }
            parse(config).map(|config| config.layer_ropes)
        };
        let some = Some(0);
        assert_eq!(layers(json!({})).unwrap(), [some, some, some, None]);
        assert_eq!(
            layers(json!({"no_rope_layer_interval": 2})).unwrap(),
            [some, None, some, None]
        );
        assert_eq!(
            layers(json!({"no_rope_layers": [0, 1, 1, 0, 1]})).unwrap(),
            [None, some, some, None]
        );
        for list in [json!([1, 1, 1]), json!([1, 1, 2, 1])] {
            let message = layers(json!({"no_rope_layers": list})).unwrap_err();
            assert!(message.contains("no_rope_layers"), "{message}");
        }
    }

    #[test]
    fn longrope_belongs_to_phi3_and_wants_a_factor_per_pair() {
        let scaling = json!({"type": "longrope", "short_factor": vec![1.0; 8],
            "long_factor": vec![4.0; 8]});
        let phi3 = |scaling: &Value| {
            parse(
                json!({"architectures": ["Phi3ForCausalLM"], "rope_scaling": scaling,
                "original_max_position_embeddings": 128}),
            )
        };
        let rope = phi3(&scaling).unwrap().ropes.remove(0);
        let RopeScaling::LongRope {
            attention_factor,
            original_max_position_embeddings: 128,
            ..
        } = rope.scaling
        else {
            panic!("{rope:?}");
        };
        // 512 positions stretched from 128.
        let expected = (1.0 + 4.0_f64.ln() / 128.0_f64.ln()).sqrt();
        assert!((attention_factor - expected).abs() < 1e-12);

        let mut short = scaling.clone();
        short["long_factor"] = json!([4.0]);
        let message = phi3(&short).unwrap_err();
        assert!(
            message.contains("long_factor") && message.contains("list of 8"),
            "{message}"
        );
        let mut unknown = scaling.clone();
        unknown["long_mscale"] = json!(1.2);
        assert!(phi3(&unknown).unwrap_err().contains("long_mscale"));
        assert!(
            parse(json!({"rope_scaling": scaling}))
                .unwrap_err()
                .contains("rope_type")
        );
    }

    #[test]
    fn a_part_of_the_head_is_rotated_in_phi3_only() {
        let phi3 = |factor: f64| {
            parse(json!({"architectures": ["Phi3ForCausalLM"], "partial_rotary_factor": factor}))
        };
        assert_eq!(phi3(0.5).unwrap().ropes[0].rotated_dims(16), 8);
        for (factor, part) in [(0.2, "even"), (1.5, "at most 1")] {
            let message = phi3(factor).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
        let inside =
            json!({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}});
        assert!(parse(inside).unwrap_err().contains("must be 1"));
    }
}
