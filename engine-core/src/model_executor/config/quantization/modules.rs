//! Patterns of names of modules, as quantizers list those that they left alone.

use regex::{Regex, RegexBuilder};

use crate::model_executor::config::fields::config_error;
use crate::model_executor::error::{ModelError, cut};

/// Most bytes of a compiled pattern.
const MAX_REGEX_BYTES: usize = 1 << 18;

/// A name, or a pattern of names.
#[derive(Debug, Clone)]
pub enum ModulePattern {
    /// Consecutive parts of a module's name: `mlp.gate` is in `model.layers.0.mlp.gate` and not in
    /// `model.layers.0.mlp.gate_proj`.
    Name(String),
    /// A regular expression that must match from the name's beginning, as Python's `re.match`.
    Regex(Regex),
}

impl PartialEq for ModulePattern {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(a), Self::Name(b)) => a == b,
            (Self::Regex(a), Self::Regex(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl ModulePattern {
    /// A name, or a regular expression behind `re:`; `field` is for the error.
    ///
    /// # Errors
    /// As [`Self::regex`].
    pub(super) fn parse(field: &str, text: &str) -> Result<Self, ModelError> {
        match text.strip_prefix("re:") {
            Some(pattern) => Self::regex(field, pattern),
            None => Ok(Self::Name(text.to_owned())),
        }
    }

    /// A regular expression.
    ///
    /// # Errors
    /// [`ModelError::Config`] where it isn't one, or looks ahead or behind.
    pub(super) fn regex(field: &str, pattern: &str) -> Result<Self, ModelError> {
        RegexBuilder::new(&format!("^(?:{pattern})"))
            .size_limit(MAX_REGEX_BYTES)
            .build()
            .map(Self::Regex)
            .map_err(|_| {
                let problem = "must be a regular expression without looking ahead or behind";
                config_error(field, format!("\"{}\" {problem}", cut(pattern)))
            })
    }

    /// Whether it names the module.
    pub fn matches(&self, module: &str) -> bool {
        match self {
            Self::Regex(regex) => regex.is_match(module),
            Self::Name(name) => module.match_indices(name.as_str()).any(|(at, name)| {
                let is_end = |part: &str| part.is_empty() || part.starts_with('.');
                let before = &module[..at];
                (before.is_empty() || before.ends_with('.')) && is_end(&module[at + name.len()..])
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_by_whole_parts_and_expressions_from_the_beginning() {
        for (pattern, module, expected) in [
            ("mlp.gate", "model.layers.0.mlp.gate", true),
            ("mlp.gate", "model.layers.0.mlp.gate_proj", false),
            ("model.layers.1", "model.layers.1.mlp.up_proj", true),
            ("model.layers.1", "model.layers.10.mlp.up_proj", false),
            ("lm_head", "lm_head", true),
            ("mlp.up_proj", "model.mlp.up_proj_mlp.up_proj", false),
            ("mlp", "model.mlp_mlp.mlp.x", true),
            ("", "model.mlp", false),
            ("re:.*gate$", "model.layers.0.mlp.gate", true),
            ("re:.*gate$", "model.layers.0.mlp.gate_proj", false),
            ("re:mlp", "model.layers.0.mlp.gate", false),
        ] {
            let found = ModulePattern::parse("f", pattern).unwrap();
            assert_eq!(found.matches(module), expected, "{pattern} {module}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused_with_its_field() {
        let error = ModulePattern::parse("quantization_config.ignore", "re:(?!a)").unwrap_err();
        assert_eq!(
            error.to_string(),
            "config.json: quantization_config.ignore: \"(?!a)\" must be a regular expression without \
             looking ahead or behind"
        );
    }
}
