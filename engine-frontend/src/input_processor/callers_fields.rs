//! A problem with a constraint in the words of whoever sent it.

use protocol::{GrammarPlace, GrammarPosition, GrammarProblem, RequestError};

use super::generate_request::{ConstraintPart, GenerateRequest};
use crate::error::{ErrorDetails, ErrorLocation, ValidationError};

/// The option whose value a request may give.
const WHITESPACE_PATTERN: &str = "whitespace_pattern";

/// The limit of the answer's tokens, where requests name it so.
pub(super) const MAX_TOKENS: &str = "max_tokens";

/// Longest pointer that a program is told, in bytes: a longer one takes more than it is good for.
const MAX_POINTER_BYTES: usize = 4096;

/// What the caller of a constrained request calls its fields, for errors that are found in the constraint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallersFields {
    /// The field that has the constraint.
    pub constraint: String,
    /// Where the constraint was put together from several fields: each with its
    /// [`place`](ConstraintPart::place) in it.
    pub places: Vec<(String, String)>,
    /// The limit of the answer's tokens.
    pub max_tokens: String,
    /// The pattern of white space.
    pub whitespace_pattern: String,
}

impl CallersFields {
    /// A request's names; `constraint` is the field that has its constraint.
    pub(super) fn of(request: &GenerateRequest, constraint: String) -> Self {
        let parts = request.constraint_parts.iter();
        let name =
            |field: &Option<String>, usual: &str| field.clone().unwrap_or_else(|| usual.to_owned());
        Self {
            constraint,
            places: parts.map(ConstraintPart::named_place).collect(),
            max_tokens: name(&request.max_tokens_field, MAX_TOKENS),
            whitespace_pattern: name(&request.whitespace_field, WHITESPACE_PATTERN),
        }
    }

    /// The names of one part of a constraint, which is looked at by itself.
    pub(super) fn of_part(part: &ConstraintPart) -> Self {
        Self {
            constraint: part.field.clone(),
            ..Self::default()
        }
    }

    /// The same where the constraint stands at a place of a structural tag: a JSON pointer.
    pub(crate) fn within(&self, place: &str) -> Self {
        let moved = |(field, inner): &(String, String)| {
            let inner = inner.strip_prefix("/format").unwrap_or(inner);
            (field.clone(), format!("{place}{inner}"))
        };
        let mut places: Vec<_> = self.places.iter().map(moved).collect();
        if places.is_empty() {
            places.push((self.constraint.clone(), place.to_owned()));
        }
        Self {
            places,
            ..self.clone()
        }
    }

    /// An error about the constraint by the caller's names, with its place and limit as data.
    pub(crate) fn translate(&self, error: &RequestError) -> ValidationError {
        let problem = error.problem.as_deref().cloned().unwrap_or_default();
        let (field, is_part, problem) = self.field_at_fault(problem);
        let place = problem
            .place
            .as_ref()
            .and_then(|place| told(place, is_part));
        let sentence = self.sentence(field, &error.message, &problem, place);
        let position = problem.place.and_then(|place| place.position);
        let location = position.and_then(|position| match position {
            GrammarPosition::Pointer(pointer) if pointer.len() > MAX_POINTER_BYTES => None,
            GrammarPosition::Pointer(pointer) => Some(ErrorLocation::Pointer { pointer }),
            GrammarPosition::LineColumn { line, column } => {
                Some(ErrorLocation::LineColumn { line, column })
            }
        });
        let details = ErrorDetails {
            location,
            limit: problem.limit,
        };
        ValidationError {
            details: (details != ErrorDetails::default()).then(|| Box::new(details)),
            ..ValidationError::about(field, format!("{field}: {sentence}"))
        }
    }

    /// The field at fault; true if it has a part of the constraint; the problem, with a place in that part alone.
    fn field_at_fault(&self, mut problem: GrammarProblem) -> (&str, bool, GrammarProblem) {
        if problem.option.as_deref() == Some(WHITESPACE_PATTERN) {
            return (&self.whitespace_pattern, false, problem);
        }
        let Some(place) = &mut problem.place else {
            return (&self.constraint, false, problem);
        };
        let Some(GrammarPosition::Pointer(pointer)) = &mut place.position else {
            return (&self.constraint, false, problem);
        };
        let part = self.places.iter().find_map(|(field, place)| {
            let within = pointer.strip_prefix(place.as_str())?;
            (within.is_empty() || within.starts_with('/')).then_some((field, within))
        });
        let Some((field, within)) = part else {
            return (&self.constraint, false, problem);
        };
        let within = match within.strip_prefix("/json_schema") {
            // The part is the schema.
            Some(within) => {
                if let Some(language) = &mut problem.language {
                    "schema".clone_into(language);
                }
                within
            }
            None => within,
        };
        *pointer = within.to_owned();
        (field, true, problem)
    }

    /// What is wrong with a field, where, and what would be right.
    fn sentence(
        &self,
        field: &str,
        message: &str,
        problem: &GrammarProblem,
        place: Option<String>,
    ) -> String {
        let help = problem.help.as_deref().unwrap_or_default();
        if let Some(limit) = &problem.limit
            && limit.name == MAX_TOKENS
        {
            let (name, value) = (&self.max_tokens, limit.value);
            return format!("{message}, but {name} leaves {value}: raise {name}, {help}");
        }
        match &problem.language {
            Some(language) => {
                // Where the field's name doesn't tell it.
                let language = (language != "grammar" || !field.ends_with("grammar"))
                    .then(|| language.clone());
                let before: Vec<String> = language.into_iter().chain(place).collect();
                format!("{}: {message}", before.join(", "))
            }
            None => {
                let message = match &problem.option {
                    Some(option) if option != WHITESPACE_PATTERN => {
                        format!("option `{option}`: {message}")
                    }
                    _ => message.to_owned(),
                };
                let at = match place {
                    Some(place) if place.starts_with("at ") => format!(", {place}"),
                    Some(place) => format!(", at {place}"),
                    None => String::new(),
                };
                let help = match help {
                    "" => String::new(),
                    help => format!(": {help}"),
                };
                format!("{message}{at}{help}")
            }
        }
    }
}

/// A place for people. Of a part as a whole its field's name is enough.
fn told(place: &GrammarPlace, is_part: bool) -> Option<String> {
    let words = &place.words;
    match &place.position {
        Some(GrammarPosition::Pointer(pointer)) if is_part && pointer.is_empty() => {
            let words = words.trim_start_matches(", ");
            (!words.is_empty()).then(|| words.to_owned())
        }
        Some(GrammarPosition::Pointer(pointer)) => Some(format!("at `#{pointer}`{words}")),
        Some(GrammarPosition::LineColumn { line, column }) => {
            Some(format!("line {line}, column {column}{words}"))
        }
        None => Some(words.clone()),
    }
}

#[cfg(test)]
mod tests {
    use protocol::{GrammarLimit, RequestErrorCode};

    use super::*;

    fn guided() -> CallersFields {
        CallersFields {
            constraint: "guided".to_owned(),
            max_tokens: "max_output_tokens".to_owned(),
            whitespace_pattern: "guided_whitespace_pattern".to_owned(),
            ..CallersFields::default()
        }
    }

    fn refused(message: &str, problem: GrammarProblem) -> RequestError {
        RequestError {
            problem: Some(Box::new(problem)),
            ..RequestError::new(RequestErrorCode::GrammarRefused, message)
        }
    }

    fn at(language: Option<&str>, position: GrammarPosition, words: &str) -> GrammarProblem {
        GrammarProblem {
            language: language.map(str::to_owned),
            place: Some(GrammarPlace {
                position: Some(position),
                words: words.to_owned(),
            }),
            ..GrammarProblem::default()
        }
    }

    fn limit(name: &str, help: &str) -> GrammarProblem {
        GrammarProblem {
            limit: Some(GrammarLimit {
                name: name.to_owned(),
                value: 7,
            }),
            help: Some(help.to_owned()),
            ..GrammarProblem::default()
        }
    }

    const LINE: GrammarPosition = GrammarPosition::LineColumn { line: 2, column: 5 };

    fn pointer(pointer: &str) -> GrammarPosition {
        GrammarPosition::Pointer(pointer.to_owned())
    }

    #[test]
    fn a_sentence_is_made_of_the_data() {
        for (problem, said) in [
            (GrammarProblem::default(), "guided: x"),
            (
                at(Some("regex"), LINE, ""),
                "guided: regex, line 2, column 5: x",
            ),
            (
                at(Some("grammar"), LINE, ""),
                "guided: grammar, line 2, column 5: x",
            ),
            (
                at(Some("schema"), pointer("/not"), ""),
                "guided: schema, at `#/not`: x",
            ),
            (
                at(Some("schema"), pointer(""), ""),
                "guided: schema, at `#`: x",
            ),
            (
                at(None, LINE, " (rule `a`)"),
                "guided: x, at line 2, column 5 (rule `a`)",
            ),
            (
                limit("max_bytes", "make it smaller"),
                "guided: x: make it smaller",
            ),
            (
                limit("max_tokens", "or allow less"),
                "guided: x, but max_output_tokens leaves 7: raise max_output_tokens, or allow less",
            ),
        ] {
            let error = guided().translate(&refused("x", problem));
            assert_eq!(error.message, said);
            assert_eq!(error.parameter.as_deref(), Some("guided"));
        }
        let grammar = CallersFields {
            constraint: "guided_grammar".to_owned(),
            ..guided()
        };
        let error = grammar.translate(&refused("x", at(Some("grammar"), LINE, "")));
        assert_eq!(error.message, "guided_grammar: line 2, column 5: x");
    }

    #[test]
    fn places_and_limits_stay_data() {
        let details = |problem| guided().translate(&refused("x", problem)).details;
        let json = |problem| serde_json::to_value(details(problem).unwrap()).unwrap();
        assert_eq!(
            json(at(Some("schema"), pointer("/not"), "")),
            serde_json::json!({"location": {"pointer": "/not"}})
        );
        assert_eq!(
            json(GrammarProblem {
                place: at(None, LINE, "").place,
                ..limit("max_bytes", "")
            }),
            serde_json::json!({
                "location": {"line": 2, "column": 5}, "limit": {"name": "max_bytes", "value": 7},
            })
        );
        assert_eq!(details(GrammarProblem::default()), None);
        let long = pointer(&"/a".repeat(MAX_POINTER_BYTES));
        assert_eq!(details(at(Some("schema"), long, "")), None);
    }

    #[test]
    fn a_pattern_of_white_space_is_told_by_its_own_field() {
        let problem = GrammarProblem {
            option: Some(WHITESPACE_PATTERN.to_owned()),
            ..GrammarProblem::default()
        };
        let error = guided().translate(&refused("`x` matches more", problem));
        assert_eq!(error.message, "guided_whitespace_pattern: `x` matches more");
        let field = error.parameter.as_deref();
        assert_eq!(field, Some("guided_whitespace_pattern"));
    }

    #[test]
    fn the_part_at_fault_is_named_with_a_pointer_into_it() {
        let field = |i: usize| format!("tools[{i}].function.parameters");
        let fields = CallersFields {
            constraint: "tools".to_owned(),
            places: [1, 10, 2]
                .map(|i| (field(i), format!("/format/tags/{i}/content")))
                .into(),
            ..CallersFields::default()
        };
        let tag = Some("structural tag");
        for (problem, part, said, within) in [
            (
                GrammarProblem {
                    place: at(None, pointer("/format/tags/10/content"), "").place,
                    ..limit("max_bytes", "make it smaller")
                },
                field(10),
                ": x: make it smaller",
                "",
            ),
            (
                at(
                    tag,
                    pointer("/format/tags/2/content/json_schema/properties/a"),
                    "",
                ),
                field(2),
                ": schema, at `#/properties/a`: x",
                "/properties/a",
            ),
            (
                at(tag, pointer("/format/tags/2/content/json_schema"), ""),
                field(2),
                ": schema: x",
                "",
            ),
            (
                at(tag, pointer("/format/tags/0"), ""),
                "tools".to_owned(),
                ": structural tag, at `#/format/tags/0`: x",
                "/format/tags/0",
            ),
        ] {
            let error = fields.translate(&refused("x", problem));
            assert_eq!(error.message, format!("{part}{said}"));
            assert_eq!(error.parameter, Some(part));
            let location = error.details.unwrap().location;
            let pointer = within.to_owned();
            assert_eq!(location, Some(ErrorLocation::Pointer { pointer }));
        }
    }
}
