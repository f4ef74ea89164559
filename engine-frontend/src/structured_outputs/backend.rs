//! Names of backends that requests and flags bring along from other engines.

use crate::error::ValidationError;

/// Every name that is accepted, without its options.
const NAMES: [&str; 9] = [
    "auto",
    "xgrammar",
    "guidance",
    "outlines",
    "lm-format-enforcer",
    "formwork",
    "mlc-ai/xgrammar",
    "outlines-dev/outlines",
    "noamgat/lm-format-enforcer",
];

/// What a backend's name asks for beside the name. One engine serves them all, so the name itself
/// changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackendOptions {
    /// `disable-any-whitespace`
    pub disable_any_whitespace: bool,
    /// `no-additional-properties`
    pub disable_additional_properties: bool,
}

impl BackendOptions {
    /// Reads a name with its options, such as `xgrammar:no-fallback,disable-any-whitespace`.
    ///
    /// # Errors
    /// A name or option that no engine has; `field` is where it was given.
    pub fn parse(field: &str, text: &str) -> Result<Self, ValidationError> {
        let (name, options) = match text.split_once(':') {
            Some((name, options)) => (name, options.split(',').collect()),
            None => (text, Vec::new()),
        };
        if !NAMES.contains(&name) {
            let message = format!("{field} must be one of {}, got {name:?}", NAMES.join(", "));
            return Err(ValidationError::field(field, text, message));
        }
        let mut read = Self::default();
        for option in options {
            match option {
                // There is nothing to fall back to.
                "no-fallback" => {}
                "disable-any-whitespace" => read.disable_any_whitespace = true,
                "no-additional-properties" => read.disable_additional_properties = true,
                other => {
                    let message = format!(
                        "{field}: options are no-fallback, disable-any-whitespace and \
                         no-additional-properties, got {other:?}"
                    );
                    return Err(ValidationError::field(field, text, message));
                }
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_accepted() {
        for name in NAMES {
            assert_eq!(
                BackendOptions::parse("backend", name),
                Ok(BackendOptions::default())
            );
        }
        let options = BackendOptions::parse("backend", "xgrammar:no-fallback").unwrap();
        assert_eq!(options, BackendOptions::default());
        let options = "guidance:no-additional-properties,disable-any-whitespace";
        let options = BackendOptions::parse("backend", options).unwrap();
        assert!(options.disable_any_whitespace && options.disable_additional_properties);
    }

    #[test]
    fn others_are_refused_with_the_right_ones() {
        for name in ["", "llguidance", "XGrammar", "auto:", "auto:fast"] {
            let error = BackendOptions::parse("guided_decoding_backend", name).unwrap_err();
            assert_eq!(
                error.parameter.as_deref(),
                Some("guided_decoding_backend"),
                "{name}"
            );
        }
        let error = BackendOptions::parse("backend", "llguidance").unwrap_err();
        assert!(error.message.contains("xgrammar, guidance"), "{error}");
    }
}
