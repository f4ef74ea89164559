//! Whether a constraint can be enforced, found out before its request travels.

use std::sync::{Arc, OnceLock};

use protocol::{
    GrammarLimit, GrammarPlace, GrammarPosition, GrammarProblem, RequestError, RequestErrorCode,
    StructuredOutputsParams,
};
use structured_output::{
    CancelFlag, CompileBudget, CompileError, CompilerOptions, GrammarCompiler,
    GrammarSpecification, ProblemPosition,
};
use tokenizer::Tokenizer;

use super::known_constraints::KnownConstraints;

/// What a check may spend: the steps of some milliseconds, a hundredth of what the core may spend. What
/// takes more is left to the core, which refuses it in the same words and for this request alone; and is not
/// tried again.
const BUDGET: CompileBudget = CompileBudget {
    max_states: 20_000,
    max_bytes: 4 << 20,
    max_steps: 40_000,
};

/// Longer constraints are left to the core as well: to parse one takes as long as to check many others.
const MAX_BYTES: usize = 64 << 10;

/// Memory for constraints that were checked before, verdicts included.
const CACHE_BYTES: usize = 16 << 20;

/// Parses constraints, and checks over single bytes that something meets them.
///
/// The model's vocabulary is the core's: which of its tokens a grammar names, and whether they can
/// write what it asks for, is found out there. Equal constraints are checked once.
#[derive(Debug)]
pub(crate) struct ConstraintChecker {
    tokenizer: Arc<Tokenizer>,
    /// Empty only for a vocabulary that the core refuses too: then all is left to the core.
    compiler: OnceLock<Option<GrammarCompiler>>,
    /// What was found good.
    known: KnownConstraints,
}

impl ConstraintChecker {
    /// A checker that has seen nothing yet.
    pub(crate) fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self {
            tokenizer,
            compiler: OnceLock::new(),
            known: KnownConstraints::default(),
        }
    }

    /// Whether a constraint is to be checked here: it is not too long for that, and was not found good, or
    /// left to the core, before.
    pub(crate) fn is_check_due(&self, params: &StructuredOutputsParams) -> bool {
        let (_, sources) = params.constraint.specification();
        let bytes: usize = sources.iter().map(String::len).sum();
        bytes <= MAX_BYTES && !self.known.contains(params)
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
                .map(|info| GrammarCompiler::new(Arc::new(info.over_bytes()), options))
        });
        compiler.as_ref()
    }

    /// Checks a constraint. Ends early, and says nothing, where `cancel` is set.
    ///
    /// # Errors
    /// What is wrong with it and where, as the core would say it: in a schema a pointer, in a pattern or grammar
    /// line and column.
    pub(crate) fn check(
        &self,
        params: &StructuredOutputsParams,
        cancel: &CancelFlag,
    ) -> Result<(), RequestError> {
        let Some(compiler) = self.compiler() else {
            return Ok(());
        };
        let (kind, sources) = params.constraint.specification();
        let result = GrammarSpecification::by_name(kind, sources, params.options()).and_then(
            |specification| compiler.compile_specification(&specification, BUDGET, cancel),
        );
        match result {
            Err(CompileError::Cancelled) => return Ok(()),
            Err(CompileError::LimitExceeded { limit, .. }) if is_left_to_core(limit) => {}
            Err(error) => return Err(refused(&error)),
            Ok(_) => {}
        }
        self.known.insert(params);
        Ok(())
    }
}

/// The grammar engine's error as the protocol's data.
pub(crate) fn refused(error: &CompileError) -> RequestError {
    let found = error.problem();
    let place = found.place.map(|place| GrammarPlace {
        position: place.position.map(|position| match position {
            ProblemPosition::Pointer(pointer) => GrammarPosition::Pointer(pointer),
            ProblemPosition::LineColumn { line, column } => GrammarPosition::LineColumn {
                line: line as u64,
                column: column as u64,
            },
        }),
        words: place.words,
    });
    let limit = found.limit.map(|(name, value)| GrammarLimit {
        name: name.to_owned(),
        value,
    });
    RequestError {
        problem: Some(Box::new(GrammarProblem {
            language: found.language.map(str::to_owned),
            place,
            option: found.option.map(str::to_owned),
            limit,
            help: found.help.map(str::to_owned),
        })),
        ..RequestError::new(RequestErrorCode::GrammarRefused, found.message)
    }
}

/// Whether a limit is one of [`BUDGET`]'s, which the core has more of, or depends on the tokens that a
/// grammar names.
fn is_left_to_core(limit: &str) -> bool {
    matches!(
        limit,
        "max_states" | "max_bytes" | "max_steps" | "max_items" | "max_mask_bytes"
    )
}

#[cfg(test)]
mod tests {
    use protocol::{PropertyOrder, StructuredOutputsConstraint, Whitespace};

    use super::*;
    use crate::error::ValidationError;
    use crate::input_processor::CallersFields;
    use crate::test_support::tokenizer;

    /// As its caller is told, who calls it `guided`.
    fn told(error: RequestError) -> ValidationError {
        let fields = CallersFields {
            constraint: "guided".to_owned(),
            whitespace_pattern: "whitespace_pattern".to_owned(),
            ..CallersFields::default()
        };
        fields.translate(&error)
    }

    fn check(constraint: StructuredOutputsConstraint) -> Result<(), ValidationError> {
        let params = StructuredOutputsParams::new(constraint);
        let checked = ConstraintChecker::new(tokenizer()).check(&params, &CancelFlag::new());
        checked.map_err(told)
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
    fn names_of_tokens_are_left_to_the_core() {
        let checker = ConstraintChecker::new(tokenizer());
        let check = |text: &str| {
            let grammar = StructuredOutputsConstraint::Grammar(text.to_owned());
            let params = StructuredOutputsParams::new(grammar);
            checker.check(&params, &CancelFlag::new())
        };
        for grammar in [
            "start: <[65]> \"a\"",
            "start: <think> \"a\"",
            "start: <|nothing|>",
        ] {
            assert_eq!(check(grammar), Ok(()), "{grammar}");
        }
        let message = check("start: <[300]>").unwrap_err().message;
        assert!(message.contains("300"), "{message}");
        // None of this was compiled for the model's vocabulary.
        let info = checker.compiler().unwrap().tokenizer_info();
        assert!(
            info.tokens()
                .all(|(id, bytes)| bytes.len() == 1 || id > 256)
        );
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
                "guided: schema, at `#/maxLength`: no value is valid",
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
            checker.check(&params, &CancelFlag::new())
        };
        let schema = StructuredOutputsConstraint::Json(r#"{"properties": {"a": {}}}"#.to_owned());
        for constraint in [schema, StructuredOutputsConstraint::JsonObject] {
            assert_eq!(with("[ \n]{0,2}", constraint.clone()), Ok(()));
            let error = told(with("x", constraint).unwrap_err());
            assert_eq!(error.parameter.as_deref(), Some("whitespace_pattern"));
            let said = "whitespace_pattern: `x` matches something else than JSON white space";
            assert!(error.message.starts_with(said), "{error}");
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

    /// The core has more than a hundred times as much.
    #[test]
    fn what_takes_long_is_left_to_the_core() {
        let long = "(a|b)*a(a|b){18}c(a|b|c|d){3,1000}".repeat(1000);
        // No text meets it, which takes a while to find out.
        let dear = "(?=.*a.{12}b)(?=.*b.{13}a)(?!.*a.{14}[ab])[ab]{60}";
        for pattern in [&long, dear] {
            let regex = StructuredOutputsConstraint::Regex(pattern.to_owned());
            assert_eq!(check(regex), Ok(()));
        }
    }

    #[test]
    fn what_was_found_good_is_not_checked_again() {
        let checker = ConstraintChecker::new(tokenizer());
        let of = |pattern: &str| {
            let regex = StructuredOutputsConstraint::Regex(pattern.to_owned());
            StructuredOutputsParams::new(regex)
        };
        let check = |pattern: &str| checker.check(&of(pattern), &CancelFlag::new());
        // Nor what took too long.
        for pattern in [
            "[a-z]+",
            "(?=.*a.{12}b)(?=.*b.{13}a)(?!.*a.{14}[ab])[ab]{60}",
        ] {
            assert!(checker.is_check_due(&of(pattern)));
            assert_eq!(check(pattern), Ok(()));
            assert!(!checker.is_check_due(&of(pattern)));
        }
        assert!(check("(").is_err());
        assert!(checker.is_check_due(&of("(")));
        assert!(checker.is_check_due(&of(&"a".repeat(MAX_BYTES))));
        assert!(!checker.is_check_due(&of(&"a".repeat(MAX_BYTES + 1))));
    }

    #[test]
    fn a_check_that_nobody_waits_for_ends() {
        let cancel = CancelFlag::new();
        cancel.cancel();
        let wrong = StructuredOutputsConstraint::Json(r#"{"minLength": 1, "maxLength": 0}"#.into());
        let checker = ConstraintChecker::new(tokenizer());
        let params = StructuredOutputsParams::new(wrong);
        assert_eq!(checker.check(&params, &cancel), Ok(()));
        // And is no verdict.
        let empty = StructuredOutputsConstraint::Regex("a(?=b)c".to_owned());
        let params = StructuredOutputsParams::new(empty);
        assert_eq!(checker.check(&params, &cancel), Ok(()));
        assert!(checker.check(&params, &CancelFlag::new()).is_err());
    }
}
