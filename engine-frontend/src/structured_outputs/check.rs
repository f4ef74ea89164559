//! Whether a constraint can be enforced, found out before its request travels.

use std::sync::{Arc, OnceLock};

use protocol::{StructuredOutputsParams, Whitespace};
use structured_output::{
    CancelFlag, CompileBudget, CompileError, CompilerOptions, GrammarCompiler, GrammarSpecification,
};
use tokenizer::Tokenizer;

use crate::error::ValidationError;

/// What a check may spend: a tenth of what the core spends. What takes more is left to the core,
/// which refuses it later and for this request alone.
const BUDGET: CompileBudget = CompileBudget {
    max_states: 50_000,
    max_bytes: 8 << 20,
    max_steps: 500_000,
};

/// The option whose value a request may give.
pub(crate) const WHITESPACE_PATTERN: &str = "whitespace_pattern";

/// Memory for constraints that were checked before.
const CACHE_BYTES: usize = 32 << 20;

/// Parses and checks constraints for one model.
///
/// It compiles them for the model's vocabulary, since grammars name tokens of it, and makes no mask:
/// that takes no more than parsing does. The vocabulary's index is made for the first constraint.
#[derive(Debug)]
pub struct ConstraintChecker {
    tokenizer: Arc<Tokenizer>,
    /// Empty only for a vocabulary that the core refuses too: then all is left to the core.
    compiler: OnceLock<Option<GrammarCompiler>>,
}

impl ConstraintChecker {
    /// A checker that has seen nothing yet.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            tokenizer,
            compiler: OnceLock::new(),
        }
    }

    fn compiler(&self) -> Option<&GrammarCompiler> {
        let compiler = self.compiler.get_or_init(|| {
            let info = self.tokenizer.tokenizer_info(self.tokenizer.vocab_size());
            let options = CompilerOptions {
                cache_bytes: CACHE_BYTES,
                budget: BUDGET,
                ..CompilerOptions::default()
            };
            info.ok()
                .map(|info| GrammarCompiler::new(Arc::new(info), options))
        });
        compiler.as_ref()
    }

    /// Checks a constraint. `field` is how its request calls it.
    ///
    /// # Errors
    /// What is wrong with it and where: in a schema a pointer, in a pattern or grammar line and
    /// column.
    pub fn check(
        &self,
        params: &StructuredOutputsParams,
        field: &str,
    ) -> Result<(), ValidationError> {
        let cancel = CancelFlag::new();
        let Some(compiler) = self.compiler() else {
            return Ok(());
        };
        let (kind, sources) = params.constraint.specification();
        let result = GrammarSpecification::by_name(kind, sources, params.options()).and_then(
            |specification| compiler.compile_specification(&specification, BUDGET, &cancel),
        );
        match result {
            Ok(_) => Ok(()),
            Err(CompileError::LimitExceeded { limit, .. }) if is_budget(limit) => Ok(()),
            Err(error) => {
                if let CompileError::InvalidOption { option, message } = &error {
                    return Err(match &params.whitespace {
                        Whitespace::Pattern(pattern) if option == WHITESPACE_PATTERN => {
                            ValidationError::field(option, pattern, message)
                        }
                        _ => ValidationError::about(option, message),
                    });
                }
                let message = format!("{field}: {}", without_hint(&error.to_string()));
                let value = match sources {
                    [source] => source.clone(),
                    _ => format!("{sources:?}"),
                };
                Err(ValidationError::field(field, value, message))
            }
        }
    }
}

/// What the grammar engine says, for whoever sends requests: its limits are the engine's, and no request
/// can raise them.
pub(crate) fn without_hint(message: &str) -> String {
    message.replace(" or raise the limit", "")
}

/// Whether a limit is one of [`BUDGET`]'s, which the core has more of.
fn is_budget(limit: &str) -> bool {
    matches!(limit, "max_states" | "max_bytes" | "max_steps")
}

#[cfg(test)]
mod tests {
    use protocol::{PropertyOrder, StructuredOutputsConstraint};

    use super::*;
    use crate::test_support::tokenizer;

    fn check(constraint: StructuredOutputsConstraint) -> Result<(), ValidationError> {
        ConstraintChecker::new(tokenizer())
            .check(&StructuredOutputsParams::new(constraint), "guided")
    }

    fn refused(constraint: StructuredOutputsConstraint) -> String {
        let error = check(constraint).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("guided"));
        error.message
    }

    #[test]
    fn good_constraints_pass() {
        use StructuredOutputsConstraint::{
            Choice, Grammar, Json, JsonObject, Regex, StructuralTag,
        };
        for constraint in [
            Json(r#"{"type": "object", "properties": {"a": {"enum": [1, "x"]}}}"#.to_owned()),
            JsonObject,
            Regex(r"\w+@\w+\.com\n".to_owned()),
            Choice(vec!["positive".to_owned(), "negative".to_owned()]),
            Grammar("root ::= \"a\" root | \"b\"".to_owned()),
            Grammar("start: \"a\" start | \"b\"".to_owned()),
            StructuralTag(
                r#"{"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}"#
                    .to_owned(),
            ),
        ] {
            assert_eq!(check(constraint.clone()), Ok(()), "{constraint:?}");
        }
    }

    #[test]
    fn grammars_name_tokens_of_the_model() {
        let grammar = |text: &str| StructuredOutputsConstraint::Grammar(text.to_owned());
        assert_eq!(check(grammar("start: <[65]> \"a\"")), Ok(()));
        assert_eq!(check(grammar("start: <think> \"a\"")), Ok(()));
        let message = refused(grammar("start: <[300]>"));
        assert!(message.contains("300"), "{message}");
        let message = refused(grammar("start: <|nothing|>"));
        assert!(message.contains("<|nothing|>"), "{message}");
    }

    #[test]
    fn errors_say_where() {
        use StructuredOutputsConstraint::{Choice, Grammar, Json, Regex, StructuralTag};
        for (constraint, says) in [
            (Json("{".to_owned()), "guided: schema, line 1, column 2"),
            (
                Json(r#"{"properties": {"a": {"type": "strnig"}}}"#.to_owned()),
                "guided: schema, at `#/properties/a/type`",
            ),
            (
                Json(r#"{"type": "string", "minLength": 3, "maxLength": 2}"#.to_owned()),
                "guided: no text matches",
            ),
            (Regex("a\n(".to_owned()), "guided: regex, line 2, column "),
            (
                Regex(r"(a)\1".to_owned()),
                "guided: regex, line 1, column 4",
            ),
            (Choice(Vec::new()), "guided: the choice is empty"),
            (
                Grammar("root ::= \"a\"\nb ::= )".to_owned()),
                "guided: grammar, line 2, column",
            ),
            (
                StructuralTag("{\"type\": \"structural_tag\"}".to_owned()),
                "guided: structural tag, at",
            ),
        ] {
            let message = refused(constraint);
            assert!(message.starts_with(says), "{message}");
        }
    }

    #[test]
    fn options_reach_the_compiler() {
        let checker = ConstraintChecker::new(tokenizer());
        let with = |pattern: &str, constraint| {
            let mut params = StructuredOutputsParams::new(constraint);
            params.whitespace = Whitespace::Pattern(pattern.to_owned());
            params.property_order = PropertyOrder::Any;
            params.disable_additional_properties = true;
            checker.check(&params, "guided_json")
        };
        let schema = StructuredOutputsConstraint::Json(r#"{"properties": {"a": {}}}"#.to_owned());
        for constraint in [schema, StructuredOutputsConstraint::JsonObject] {
            assert_eq!(with("[ \n]{0,2}", constraint.clone()), Ok(()));
            let error = with("x", constraint).unwrap_err();
            assert_eq!(error.parameter.as_deref(), Some("whitespace_pattern"));
            assert_eq!(error.value.as_deref(), Some("x"));
            assert!(error.message.starts_with("`x` matches more"), "{error}");
        }
    }

    #[test]
    fn a_long_source_is_cut_short() {
        let source = format!("({}", "a".repeat(5000));
        let error = check(StructuredOutputsConstraint::Regex(source)).unwrap_err();
        assert!(error.to_string().len() < 600, "{error}");
    }

    #[test]
    fn nobody_is_told_to_raise_a_limit_that_requests_can_not_raise() {
        let message = refused(StructuredOutputsConstraint::Regex("a".repeat(2 << 20)));
        assert_eq!(
            message,
            "guided: the grammar needs more than 1048576 of `max_source_bytes`: make it smaller"
        );
    }

    /// The core has ten times as much.
    #[test]
    fn what_takes_long_is_left_to_the_core() {
        let pattern = "(a|b)*a(a|b){18}c(a|b|c|d){3,1000}".repeat(1000);
        assert_eq!(check(StructuredOutputsConstraint::Regex(pattern)), Ok(()));
    }
}
