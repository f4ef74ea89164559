//! The settings of the rotary position embedding.

use serde_json::Value;

use super::fields::{Fields, config_error};
use crate::model_executor::error::ModelError;
use crate::model_executor::rotary::{RopeParameters, RopeScaling};

impl Fields<'_> {
    /// Either spelling: `rope_parameters`, or `rope_theta` with `rope_scaling`.
    pub(super) fn rope(&self) -> Result<RopeParameters, ModelError> {
        const DEFAULT_THETA: f64 = 10_000.0;
        let (settings, path) = match (self.get("rope_parameters"), self.get("rope_scaling")) {
            (Some(settings), _) => (settings, "rope_parameters."),
            (None, Some(settings)) => (settings, "rope_scaling."),
            (None, None) => {
                let theta = self.positive_float("rope_theta")?.unwrap_or(DEFAULT_THETA);
                return Ok(RopeParameters {
                    theta,
                    scaling: RopeScaling::Default,
                });
            }
        };
        let Value::Object(root) = settings else {
            return Err(self.wrong(path.trim_end_matches('.'), settings, "an object"));
        };
        let inner = Fields { root, path };
        let theta = match inner.positive_float("rope_theta")? {
            Some(theta) => theta,
            None => self.positive_float("rope_theta")?.unwrap_or(DEFAULT_THETA),
        };
        let rope_type = inner.get("rope_type").or_else(|| inner.get("type"));
        let scaling = match rope_type.map(|value| (value, value.as_str())) {
            None | Some((_, Some("default"))) => RopeScaling::Default,
            Some((_, Some("linear"))) => RopeScaling::Linear {
                factor: inner.required_float("factor")?,
            },
            Some((_, Some("llama3"))) => RopeScaling::Llama3 {
                factor: inner.required_float("factor")?,
                low_freq_factor: inner.required_float("low_freq_factor")?,
                high_freq_factor: inner.required_float("high_freq_factor")?,
                original_max_position_embeddings: inner
                    .positive("original_max_position_embeddings")?,
            },
            Some((value, _)) => {
                return Err(inner.wrong(
                    "rope_type",
                    value,
                    "\"default\", \"linear\" or \"llama3\"",
                ));
            }
        };
        if let RopeScaling::Llama3 {
            low_freq_factor,
            high_freq_factor,
            ..
        } = scaling
            && low_freq_factor >= high_freq_factor
        {
            return Err(config_error(
                format!("{path}low_freq_factor"),
                format!("{low_freq_factor} must be below high_freq_factor ({high_freq_factor})"),
            ));
        }
        if let Some(value) = inner.get("partial_rotary_factor")
            && value.as_f64() != Some(1.0)
        {
            return Err(inner.wrong("partial_rotary_factor", value, "1"));
        }
        Ok(RopeParameters { theta, scaling })
    }
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
        assert_eq!(old.rope, new.rope);
        assert_eq!(old.rope.theta, 5e5);
        assert!(matches!(
            old.rope.scaling,
            RopeScaling::Llama3 { factor: 8.0, .. }
        ));

        let linear = parse(json!({"rope_scaling": {"type": "linear", "factor": 4.0}})).unwrap();
        assert_eq!(linear.rope.scaling, RopeScaling::Linear { factor: 4.0 });
    }
}
