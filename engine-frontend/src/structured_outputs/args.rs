//! The engine-wide settings: `--structured-outputs-config` and its older kin.

use protocol::{JumpForward, Shared, StructuredOutputsConfig, StructuredOutputsParams, Whitespace};
use serde::Deserialize;

use super::backend::BackendOptions;
use super::reasoning::ThinkingMarkers;
use crate::error::{ValidationError, cut_short};
use crate::json_problem::json_problem;
use crate::unique_json::{self, UniqueJsonError};

/// How the engine treats constraints and thinking, as `--structured-outputs-config` has it.
///
/// vLLM's fields, and Formwork's own for the core.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StructuredOutputsArgs {
    /// A backend's name with its options, see [`BackendOptions`]; absent is `auto`.
    pub backend: Option<String>,
    /// White space in JSON, where a request asks for nothing else: `usual`, `flexible`, `spaced` or
    /// `compact`; absent is `usual`.
    pub whitespace: Option<WhitespaceName>,
    /// The same as `whitespace: compact`: no white space in JSON.
    pub disable_any_whitespace: bool,
    /// Objects that say nothing of `additionalProperties` allow none.
    pub disable_additional_properties: bool,
    /// Constraints hold inside thinking as well.
    pub enable_in_reasoning: bool,
    /// Whether thinking is told apart, by the name of a parser of vLLM's.
    pub reasoning_parser: ReasoningParser,
    /// The texts around thinking, in place of the parser's.
    pub thinking_markers: Option<ThinkingMarkers>,
    /// See [`StructuredOutputsConfig::compile_threads`].
    pub compile_threads: Option<u32>,
    /// See [`StructuredOutputsConfig::max_num_queued_grammars`].
    pub max_num_queued_grammars: Option<u32>,
    /// See [`StructuredOutputsConfig::cache_bytes`].
    pub cache_bytes: Option<u64>,
    /// See [`StructuredOutputsConfig::enable_sparse_head`].
    pub enable_sparse_head: Option<bool>,
    /// See [`StructuredOutputsConfig::jump_forward`].
    pub jump_forward: Option<JumpForward>,
}

/// White space in JSON that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhitespaceName {
    /// [`Whitespace::Usual`].
    Usual,
    /// [`Whitespace::Flexible`].
    Flexible,
    /// [`Whitespace::Spaced`].
    Spaced,
    /// [`Whitespace::Compact`].
    Compact,
}

impl From<WhitespaceName> for Whitespace {
    fn from(name: WhitespaceName) -> Self {
        match name {
            WhitespaceName::Usual => Self::Usual,
            WhitespaceName::Flexible => Self::Flexible,
            WhitespaceName::Spaced => Self::Spaced,
            WhitespaceName::Compact => Self::Compact,
        }
    }
}

/// Whether thinking is told apart from the answer, and by what.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "String")]
pub enum ReasoningParser {
    /// By the markers of the first format that the vocabulary has.
    #[default]
    Auto,
    /// By the markers of one format.
    Markers(ThinkingMarkers),
    /// Never: thinking is part of the answer, and constraints hold from the first token.
    Off,
}

impl TryFrom<String> for ReasoningParser {
    type Error = String;

    /// vLLM's default is the empty name.
    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            "" | "auto" => Ok(Self::Auto),
            "none" => Ok(Self::Off),
            name => ThinkingMarkers::of_parser(name)
                .map(Self::Markers)
                .ok_or_else(|| {
                    let names: Vec<&str> = ThinkingMarkers::parser_names().collect();
                    format!("must be one of auto, {}, none", names.join(", "))
                }),
        }
    }
}

impl StructuredOutputsArgs {
    /// Reads the flag's JSON.
    ///
    /// # Errors
    /// What is wrong with it, by field.
    pub fn from_json(text: &str) -> Result<Self, ValidationError> {
        const FLAG: &str = "structured_outputs_config";
        let (value, _) = unique_json::from_slice(text.as_bytes()).map_err(|error| {
            let message = match error {
                UniqueJsonError::Syntax { error, .. } => {
                    format!("it is not JSON: {}", json_problem(&error))
                }
                UniqueJsonError::DuplicateKey { key, .. } => {
                    format!("it has the key {key:?} twice: give it once")
                }
                UniqueJsonError::TooLarge(mebibytes) => {
                    format!("its values would take more than {mebibytes} MiB of memory")
                }
            };
            ValidationError::field(FLAG, text, message)
        })?;
        if !value.is_object() {
            let message = format!("it must be a JSON object, got {}", cut_short(text));
            return Err(ValidationError::field(FLAG, text, message));
        }
        let args = Self::deserialize(&value).map_err(|error| {
            let message = json_problem(&error);
            ValidationError::field(FLAG, &value, message)
        })?;
        let disables =
            args.disable_any_whitespace || args.backend_options()?.disable_any_whitespace;
        if let Some(whitespace) = args.whitespace
            && disables
            && whitespace != WhitespaceName::Compact
        {
            let message = "whitespace and disable_any_whitespace ask for different white space: \
                           leave one of them out";
            return Err(ValidationError::about("whitespace", message));
        }
        let limits = [
            ("compile_threads", args.compile_threads),
            ("max_num_queued_grammars", args.max_num_queued_grammars),
        ];
        for (field, value) in limits {
            if value == Some(0) {
                let message = format!("{field} must be at least 1, got 0");
                return Err(ValidationError::field(field, 0, message));
            }
        }
        Ok(args)
    }

    /// What the backend's name brings along.
    ///
    /// # Errors
    /// It is no backend's.
    pub fn backend_options(&self) -> Result<BackendOptions, ValidationError> {
        BackendOptions::parse("backend", self.backend.as_deref().unwrap_or("auto"))
    }

    /// The fields that are the core's, by name, as far as they are given.
    pub fn core_fields(&self) -> Vec<&'static str> {
        [
            ("compile_threads", self.compile_threads.is_some()),
            (
                "max_num_queued_grammars",
                self.max_num_queued_grammars.is_some(),
            ),
            ("cache_bytes", self.cache_bytes.is_some()),
            ("enable_sparse_head", self.enable_sparse_head.is_some()),
            ("jump_forward", self.jump_forward.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
        .collect()
    }

    /// The part that the core gets.
    pub fn core_config(&self) -> StructuredOutputsConfig {
        let base = StructuredOutputsConfig::default();
        StructuredOutputsConfig {
            compile_threads: self.compile_threads,
            max_num_queued_grammars: self
                .max_num_queued_grammars
                .unwrap_or(base.max_num_queued_grammars),
            cache_bytes: self.cache_bytes.unwrap_or(base.cache_bytes),
            enable_sparse_head: self.enable_sparse_head.unwrap_or(base.enable_sparse_head),
            jump_forward: self.jump_forward.unwrap_or(base.jump_forward),
        }
    }

    /// Brings the engine's settings into a request's constraint. `says_whitespace` is true if the
    /// request asks for white space itself.
    pub fn apply(&self, params: &mut Shared<StructuredOutputsParams>, says_whitespace: bool) {
        let backend = self.backend_options().unwrap_or_default();
        let disables = self.disable_any_whitespace || backend.disable_any_whitespace;
        let none = disables.then_some(Whitespace::Compact);
        if let Some(whitespace) = none.or_else(|| self.whitespace.map(Into::into))
            && params.constraint.is_json()
            && !says_whitespace
            && params.whitespace == Whitespace::default()
            && params.whitespace != whitespace
        {
            params.make_mut().whitespace = whitespace;
        }
        // Only what changes: others may share it, and then a change costs a copy.
        if (self.disable_additional_properties || backend.disable_additional_properties)
            && params.constraint.kind() == "json"
            && !params.disable_additional_properties
        {
            params.make_mut().disable_additional_properties = true;
        }
        if self.enable_in_reasoning && !params.enable_in_reasoning {
            params.make_mut().enable_in_reasoning = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::StructuredOutputsConstraint;

    use super::*;

    #[test]
    fn fields_are_vllms_and_ours() {
        let args = StructuredOutputsArgs::from_json(
            r#"{"backend": "xgrammar", "disable_any_whitespace": true, "reasoning_parser": "qwen3",
                "jump_forward": "off", "compile_threads": 2}"#,
        )
        .unwrap();
        assert_eq!(
            args.reasoning_parser,
            ReasoningParser::Markers(ThinkingMarkers::default())
        );
        assert_eq!(args.core_fields(), ["compile_threads", "jump_forward"]);
        let core = args.core_config();
        assert_eq!(
            (core.jump_forward, core.compile_threads),
            (JumpForward::Off, Some(2))
        );
        assert!(core.enable_sparse_head);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("{", "it is not JSON"),
            ("[]", "it must be a JSON object, got []"),
            (r#"["outlines", true]"#, "it must be a JSON object"),
            (
                r#"{"backend": "auto", "backend": "xgrammar"}"#,
                "it has the key \"backend\" twice",
            ),
            (r#"{"backend": "best"}"#, "backend must be one of auto"),
            (r#"{"bakend": "auto"}"#, "bakend"),
            (r#"{"compile_threads": 0}"#, "compile_threads must be"),
            (
                r#"{"reasoning_parser": "harmony"}"#,
                "must be one of auto, deepseek_r1, deepseek_v3,",
            ),
        ] {
            let error = StructuredOutputsArgs::from_json(text).unwrap_err();
            assert!(error.message.contains(says), "{error}");
        }
    }

    #[test]
    fn settings_reach_the_constraints_that_they_are_for() {
        let args = StructuredOutputsArgs::from_json(
            r#"{"backend": "guidance:no-additional-properties", "disable_any_whitespace": true}"#,
        )
        .unwrap();
        let applied = |constraint| {
            let mut params = Shared::from(StructuredOutputsParams::new(constraint));
            args.apply(&mut params, false);
            (
                params.whitespace.clone(),
                params.disable_additional_properties,
            )
        };
        let json = StructuredOutputsConstraint::Json("{}".to_owned());
        assert_eq!(applied(json), (Whitespace::Compact, true));
        let object = StructuredOutputsConstraint::JsonObject;
        assert_eq!(applied(object), (Whitespace::Compact, false));
        let regex = StructuredOutputsConstraint::Regex("a".to_owned());
        assert_eq!(applied(regex), (Whitespace::Usual, false));
    }

    #[test]
    fn white_space_by_name_where_a_request_says_none() {
        let applied = |text: &str, says_whitespace| {
            let args = StructuredOutputsArgs::from_json(text).unwrap();
            let json = StructuredOutputsConstraint::JsonObject;
            let mut params = Shared::from(StructuredOutputsParams::new(json));
            args.apply(&mut params, says_whitespace);
            params.whitespace.clone()
        };
        assert_eq!(applied("{}", false), Whitespace::Usual);
        let flexible = r#"{"whitespace": "flexible"}"#;
        assert_eq!(applied(flexible, false), Whitespace::Flexible);
        assert_eq!(applied(flexible, true), Whitespace::Usual);
        let twice = r#"{"whitespace": "flexible", "disable_any_whitespace": true}"#;
        let error = StructuredOutputsArgs::from_json(twice).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("whitespace"));
        assert!(StructuredOutputsArgs::from_json(r#"{"whitespace": "wide"}"#).is_err());
    }
}
