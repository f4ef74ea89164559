//! Which layers attend to a window only.

use serde_json::Value;

use super::fields::{Fields, config_error};
use super::settings::Defaults;
use crate::model_executor::error::ModelError;

impl Fields<'_> {
    /// `layer_types` where given, else the rule of the family.
    pub(super) fn sliding_windows(
        &self,
        architecture: &str,
        num_layers: usize,
    ) -> Result<Vec<Option<usize>>, ModelError> {
        let used = match self.get("use_sliding_window") {
            None => Defaults::of(architecture).use_sliding_window,
            Some(_) => self.flag("use_sliding_window")?,
        };
        let window = if used {
            self.optional_positive("sliding_window")?
        } else {
            None
        };
        if let Some(value) = self.get("layer_types") {
            return self.windows_of_layer_types(value, window, num_layers);
        }
        let every = |full: usize| -> Vec<Option<usize>> {
            (1..=num_layers)
                .map(|layer| window.filter(|_| layer % full != 0))
                .collect()
        };
        match architecture {
            "Gemma2ForCausalLM" => Ok(every(2)),
            "Gemma3ForCausalLM" => Ok(every(
                self.optional_positive("sliding_window_pattern")?
                    .unwrap_or(6),
            )),
            // The layers without rotation have the window.
            "SmolLM3ForCausalLM" => Ok(self
                .rotated_layers(architecture, num_layers)?
                .into_iter()
                .map(|rotated| window.filter(|_| !rotated))
                .collect()),
            "Qwen2ForCausalLM" | "Qwen3ForCausalLM" => {
                let first = match self.get("max_window_layers") {
                    None => 0,
                    Some(value) => value
                        .as_u64()
                        .ok_or_else(|| self.wrong("max_window_layers", value, "a whole number"))?,
                };
                Ok((0..num_layers as u64)
                    .map(|layer| window.filter(|_| layer >= first))
                    .collect())
            }
            _ => Ok(vec![window; num_layers]),
        }
    }

    fn windows_of_layer_types(
        &self,
        value: &Value,
        window: Option<usize>,
        num_layers: usize,
    ) -> Result<Vec<Option<usize>>, ModelError> {
        let types = value
            .as_array()
            .filter(|types| types.len() == num_layers)
            .ok_or_else(|| {
                self.wrong(
                    "layer_types",
                    value,
                    &format!("a list of {num_layers} names, one per layer"),
                )
            })?;
        types
            .iter()
            .map(|layer_type| match layer_type.as_str() {
                Some("full_attention") => Ok(None),
                Some("sliding_attention") if window.is_some() => Ok(window),
                Some("sliding_attention") => Err(config_error(
                    "sliding_window",
                    "missing; layer_types has \"sliding_attention\"",
                )),
                _ => Err(self.wrong(
                    "layer_types",
                    layer_type,
                    "\"full_attention\" or \"sliding_attention\"",
                )),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::parse;
    use super::*;

    fn windows(architecture: &str, mut changes: Value) -> Vec<Option<usize>> {
        changes["architectures"] = json!([architecture]);
        parse(changes).unwrap().sliding_windows
    }

    #[test]
    fn windows_follow_the_flag_the_first_layer_and_the_layer_types() {
        let (llama, qwen) = ("LlamaForCausalLM", "Qwen2ForCausalLM");
        assert_eq!(windows(llama, json!({"sliding_window": 16})), [Some(16); 4]);
        assert_eq!(
            windows(
                llama,
                json!({"sliding_window": 16, "use_sliding_window": false})
            ),
            [None; 4]
        );
        assert_eq!(
            windows(
                qwen,
                json!({"sliding_window": 8, "use_sliding_window": true, "max_window_layers": 2})
            ),
            [None, None, Some(8), Some(8)]
        );
        assert_eq!(
            windows(
                llama,
                json!({"sliding_window": 8, "layer_types":
                    ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]})
            ),
            [None, Some(8), None, Some(8)]
        );
    }

    #[test]
    fn families_have_windows_of_their_own_where_layer_types_are_missing() {
        let some = Some(8);
        assert_eq!(
            windows("Gemma2ForCausalLM", json!({"sliding_window": 8})),
            [some, None, some, None]
        );
        assert_eq!(
            windows("Gemma3ForCausalLM", json!({"sliding_window": 8})),
            [some; 4]
        );
        assert_eq!(
            windows(
                "Gemma3ForCausalLM",
                json!({"sliding_window": 8, "sliding_window_pattern": 3})
            ),
            [some, some, None, some]
        );
        assert_eq!(
            windows("SmolLM3ForCausalLM", json!({"sliding_window": 8})),
            [None; 4]
        );
        assert_eq!(
            windows(
                "SmolLM3ForCausalLM",
                json!({"sliding_window": 8, "use_sliding_window": true})
            ),
            [None, None, None, some]
        );
    }
}
