//! What the caller of a request is told whose grammar is refused or fails.

use protocol::{
    PropertyOrder, RequestError, RequestErrorCode, SamplingParams, StructuredOutputsConstraint,
    StructuredOutputsParams,
};
use structured_output::MatcherError;

use super::backend::CompileGrammarError;
use super::compile_job::{JobError, Purpose};

/// What the request's caller is told. A limit of the grammar is the caller's fault whenever it is met; all
/// else that goes wrong after the request was let in is not.
pub(super) fn refusal(
    params: &SamplingParams,
    purpose: &Purpose,
    error: &JobError,
) -> RequestError {
    let kind = params
        .structured_outputs
        .as_ref()
        .map_or("", |structured_outputs| {
            structured_outputs.constraint.kind()
        });
    let is_limit = matches!(
        error,
        JobError::Grammar(CompileGrammarError::Matcher(
            // Beyond memory of its own, so no other grammar is the cause.
            MatcherError::StepsExhausted { .. }
                | MatcherError::BytesExhausted { .. }
                | MatcherError::ItemsExhausted { .. }
                | MatcherError::StatesExhausted { .. }
        ))
    );
    let code = match purpose {
        Purpose::Aside(request) if !is_limit && request.num_answer_tokens > 0 => {
            RequestErrorCode::InternalError
        }
        _ => RequestErrorCode::GrammarRefused,
    };
    // A text that was begun is told where it stood.
    let place = match purpose {
        Purpose::Aside(request) if request.num_answer_tokens > 0 => {
            let num_tokens = request.num_answer_tokens;
            let tokens = if num_tokens == 1 { "token" } else { "tokens" };
            format!(", after {num_tokens} {tokens} of the answer")
        }
        _ => String::new(),
    };
    let hint = match (is_limit, &params.structured_outputs) {
        (true, Some(structured_outputs)) => what_helps(structured_outputs),
        _ => "",
    };
    RequestError {
        code,
        message: format!("structured_outputs.{kind}: {error}{place}{hint}"),
        retryable: false,
    }
}

/// What a caller can do whose constraint comes to a limit.
fn what_helps(structured_outputs: &StructuredOutputsParams) -> &'static str {
    let in_order = structured_outputs.property_order == PropertyOrder::Schema;
    match structured_outputs.constraint {
        StructuredOutputsConstraint::Json(_) | StructuredOutputsConstraint::StructuralTag(_)
            if !in_order =>
        {
            ": `property_order` `schema` asks for less, and so do fewer alternatives and simpler patterns"
        }
        StructuredOutputsConstraint::Json(_) | StructuredOutputsConstraint::StructuralTag(_) => {
            ": make it simpler, with fewer alternatives (`anyOf`, `oneOf`, `not`), less to count and \
             simpler patterns"
        }
        StructuredOutputsConstraint::Regex(_) => {
            ": make the pattern simpler, with smaller counts and fewer alternatives"
        }
        StructuredOutputsConstraint::Grammar(_) => {
            ": make the grammar simpler, with fewer ways to read the same text"
        }
        _ => ": make the constraint simpler",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(constraint: StructuredOutputsConstraint, property_order: PropertyOrder) -> String {
        let params = SamplingParams {
            structured_outputs: Some(
                StructuredOutputsParams {
                    property_order,
                    ..StructuredOutputsParams::new(constraint)
                }
                .into(),
            ),
            ..SamplingParams::default()
        };
        let purpose = Purpose::Start {
            reasoning_ended: None,
            output_token_ids: Vec::new(),
            begun: None,
            num_added_bytes: 0,
        };
        let error = MatcherError::StepsExhausted { max: 5 };
        let error = JobError::Grammar(CompileGrammarError::Matcher(error));
        refusal(&params, &purpose, &error).message
    }

    #[test]
    fn who_comes_to_a_limit_is_told_what_helps() {
        let json = || StructuredOutputsConstraint::Json("{}".to_owned());
        let any = told(json(), PropertyOrder::Any);
        assert!(any.starts_with("structured_outputs.json: "), "{any}");
        assert!(any.contains("`property_order` `schema`"), "{any}");
        let in_order = told(json(), PropertyOrder::Schema);
        assert!(!in_order.contains("property_order"), "{in_order}");
        assert!(in_order.contains("simpler patterns"), "{in_order}");
        let regex = StructuredOutputsConstraint::Regex("a".to_owned());
        assert!(told(regex, PropertyOrder::Any).contains("make the pattern simpler"));
    }
}
