//! What the caller of a request is told whose grammar is refused or fails.

use protocol::{
    GrammarLimit, GrammarPlace, GrammarPosition, GrammarProblem, PropertyOrder, RequestError,
    RequestErrorCode, SamplingParams, StructuredOutputsConstraint, StructuredOutputsParams,
};
use structured_output::{CompileError, MatcherError, ProblemPosition};

use super::backend::CompileGrammarError;
use super::compile_job::Purpose;

/// What the request's caller is told. A limit of the grammar is the caller's fault whenever it is met; all
/// else that goes wrong after the request was let in is not.
pub(super) fn refusal(
    params: &SamplingParams,
    purpose: &Purpose,
    error: &CompileGrammarError,
) -> RequestError {
    let (mut message, mut problem) = match error {
        CompileGrammarError::Compile(error) => of_compile_error(error),
        CompileGrammarError::Matcher(error) => (error.to_string(), of_matcher_error(error)),
        other => (other.to_string(), GrammarProblem::default()),
    };
    let mut code = RequestErrorCode::GrammarRefused;
    if let Purpose::Aside(request) = purpose
        && request.num_answer_tokens > 0
    {
        // A text that was begun is told where it stood.
        let num_tokens = request.num_answer_tokens;
        let tokens = if num_tokens == 1 { "token" } else { "tokens" };
        message += &format!(", after {num_tokens} {tokens} of the answer");
        if !is_limit(error) {
            code = RequestErrorCode::InternalError;
        }
    }
    let mut field = "structured_outputs".to_owned();
    if let Some(structured_outputs) = &params.structured_outputs {
        field = format!("{field}.{}", structured_outputs.constraint.kind());
        if matches!(error, CompileGrammarError::Matcher(_)) && is_limit(error) {
            problem.help = Some(what_helps(structured_outputs).to_owned());
        }
    }
    RequestError {
        field: Some(field),
        problem: Some(Box::new(problem)),
        ..RequestError::new(code, message)
    }
}

/// Whether the grammar has met a limit, which no other grammar is the cause of: as its text was read, in memory of its
/// own, or as it was compiled again there.
fn is_limit(error: &CompileGrammarError) -> bool {
    match error {
        CompileGrammarError::Matcher(error) => error.limit().is_some(),
        CompileGrammarError::Compile(error) => matches!(error, CompileError::LimitExceeded { .. }),
        CompileGrammarError::Unsupported(_) | CompileGrammarError::Renew(_) => false,
    }
}

/// The message of the grammar engine's error, and the error as the protocol's data.
fn of_compile_error(error: &CompileError) -> (String, GrammarProblem) {
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
    let problem = GrammarProblem {
        language: found.language.map(str::to_owned),
        place,
        option: found.option.map(str::to_owned),
        limit: found.limit.map(limit),
        help: found.help.map(str::to_owned),
    };
    (found.message, problem)
}

fn of_matcher_error(error: &MatcherError) -> GrammarProblem {
    GrammarProblem {
        limit: error.limit().map(limit),
        ..GrammarProblem::default()
    }
}

fn limit((name, value): (&'static str, u64)) -> GrammarLimit {
    GrammarLimit {
        name: name.to_owned(),
        value,
    }
}

/// What a caller can do whose constraint comes to a limit.
fn what_helps(structured_outputs: &StructuredOutputsParams) -> &'static str {
    let in_order = structured_outputs.property_order == PropertyOrder::Schema;
    match structured_outputs.constraint {
        StructuredOutputsConstraint::Json(_) | StructuredOutputsConstraint::StructuralTag(_)
            if !in_order =>
        {
            "`property_order` `schema` asks for less, and so do fewer alternatives and simpler patterns"
        }
        StructuredOutputsConstraint::Json(_) | StructuredOutputsConstraint::StructuralTag(_) => {
            "make it simpler, with fewer alternatives (`anyOf`, `oneOf`, `not`), less to count and \
             simpler patterns"
        }
        StructuredOutputsConstraint::Regex(_) => {
            "make the pattern simpler, with smaller counts and fewer alternatives"
        }
        StructuredOutputsConstraint::Grammar(_) => {
            "make the grammar simpler, with fewer ways to read the same text"
        }
        _ => "make the constraint simpler",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use structured_output::{
        CancelFlag, CompileBudget, CompilerOptions, GrammarCompiler, GrammarSpecification,
        RequestMemory, TokenizerInfo,
    };

    use super::*;

    fn params(constraint: StructuredOutputsConstraint, order: PropertyOrder) -> SamplingParams {
        SamplingParams {
            structured_outputs: Some(
                StructuredOutputsParams {
                    property_order: order,
                    ..StructuredOutputsParams::new(constraint)
                }
                .into(),
            ),
            ..SamplingParams::default()
        }
    }

    fn told(params: &SamplingParams, error: impl Into<CompileGrammarError>) -> RequestError {
        let purpose = Purpose::start(None, Vec::new(), RequestMemory::default());
        refusal(params, &purpose, &error.into())
    }

    #[test]
    fn who_comes_to_a_limit_is_told_what_helps() {
        let help = |constraint, order| {
            let error = MatcherError::StepsExhausted { max: 5 };
            let told = told(&params(constraint, order), error);
            let problem = told.problem.unwrap();
            assert_eq!(problem.limit, Some(limit(("max_mask_steps", 5))));
            (told.field.unwrap(), problem.help.unwrap())
        };
        let json = || StructuredOutputsConstraint::Json("{}".to_owned());
        let (field, any) = help(json(), PropertyOrder::Any);
        assert_eq!(field, "structured_outputs.json");
        assert!(any.contains("`property_order` `schema`"), "{any}");
        let (_, in_order) = help(json(), PropertyOrder::Schema);
        assert!(!in_order.contains("property_order"), "{in_order}");
        assert!(in_order.contains("simpler patterns"), "{in_order}");
        let regex = StructuredOutputsConstraint::Regex("a".to_owned());
        let (_, of_regex) = help(regex, PropertyOrder::Any);
        assert!(of_regex.starts_with("make the pattern simpler"));
    }

    /// Every kind of error as the engine makes it.
    #[test]
    fn a_problem_is_data() {
        use StructuredOutputsConstraint::{Grammar, Json, Regex, StructuralTag};
        let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        vocab.push(b"<eos>".to_vec());
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[256], &[256]).unwrap();
        let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
        let found = |constraint: StructuredOutputsConstraint| {
            let (kind, sources) = constraint.specification();
            let error = GrammarSpecification::by_name(kind, sources, Vec::new())
                .and_then(|what| {
                    let budget = CompileBudget::default();
                    let cancel = CancelFlag::new();
                    compiler.compile_specification(&what, budget, &cancel)
                })
                .unwrap_err();
            let told = told(&params(constraint, PropertyOrder::Schema), error);
            let problem = *told.problem.unwrap();
            let place = problem.place.and_then(|place| place.position);
            (problem.language.unwrap(), place.unwrap())
        };
        let of = |language: &str, position| (language.to_owned(), position);
        let line = |line, column| GrammarPosition::LineColumn { line, column };
        let pointer = |pointer: &str| GrammarPosition::Pointer(pointer.to_owned());
        for (constraint, expected) in [
            (Regex("a\n(a)\\1".to_owned()), of("regex", line(2, 4))),
            (Json("{".to_owned()), of("schema", line(1, 2))),
            (
                Json(r#"{"properties": {"a": {"type": "strnig"}}}"#.to_owned()),
                of("schema", pointer("/properties/a/type")),
            ),
            (Json("false".to_owned()), of("schema", pointer(""))),
            (
                Grammar("root ::= \"a\"\nb ::= )".to_owned()),
                of("grammar", line(2, 7)),
            ),
            (
                StructuralTag(r#"{"type": "structural_tag", "format": {"type": "no"}}"#.to_owned()),
                of("structural tag", pointer("/format/type")),
            ),
        ] {
            assert_eq!(found(constraint), expected);
        }
    }

    /// Also where the grammar had been compiled before, and is compiled again in other memory as its text is written.
    #[test]
    fn a_limit_is_the_constraints_fault_whenever_it_is_met() {
        let exceeded = CompileError::LimitExceeded {
            limit: "max_bytes",
            max: 7,
            place: None,
        };
        let is_limit = |error: CompileGrammarError| is_limit(&error);
        assert!(is_limit(exceeded.into()));
        assert!(is_limit(MatcherError::StepsExhausted { max: 5 }.into()));
        assert!(!is_limit(CompileError::Cancelled.into()));
        assert!(!is_limit(MatcherError::AllowanceSpent.into()));
    }

    #[test]
    fn options_and_limits_have_names() {
        let params = params(StructuredOutputsConstraint::JsonObject, PropertyOrder::Any);
        let of = |error: CompileError| {
            let told = told(&params, error);
            (told.message, *told.problem.unwrap())
        };
        let (message, problem) = of(CompileError::InvalidOption {
            option: "whitespace_pattern".to_owned(),
            message: "no".to_owned(),
        });
        assert_eq!(message, "no");
        assert_eq!(problem.option.as_deref(), Some("whitespace_pattern"));
        let (message, problem) = of(CompileError::LimitExceeded {
            limit: "max_bytes",
            max: 7,
            place: None,
        });
        assert_eq!(message, "the grammar needs more than 7 of `max_bytes`");
        assert_eq!(problem.limit, Some(limit(("max_bytes", 7))));
        assert_eq!(problem.help.as_deref(), Some("make it smaller"));
        // What no field raises.
        let (message, problem) = of(CompileError::LimitExceeded {
            limit: "repetitions",
            max: 7,
            place: None,
        });
        assert_eq!(message, "the grammar needs more than 7 repetitions");
        assert_eq!(problem.limit, None);
    }
}
