//! The constraints of a load: small ones of every kind, such as programs ask for.

use clap::ValueEnum;
use serde_json::json;

use crate::constraint::Constraint;

/// A kind of constraint that the load has examples of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConstraintKind {
    /// JSON Schemas
    Json,
    /// Regular expressions
    Regex,
    /// Choices
    Choice,
    /// A grammar
    Grammar,
}

impl ConstraintKind {
    /// The examples of this kind. Each has a sentence of less than 24 tokens or bytes.
    pub(super) fn examples(self) -> Vec<Constraint> {
        match self {
            Self::Json => vec![
                Constraint::Json(json!({
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "maxLength": 40},
                        "age": {"type": "integer", "minimum": 0, "maximum": 150},
                    },
                    "required": ["name", "age"],
                    "additionalProperties": false,
                })),
                Constraint::Json(json!({
                    "type": "object",
                    "properties": {
                        "kind": {"enum": ["a", "b", "c"]},
                        "tags": {
                            "type": "array",
                            "items": {"type": "string", "pattern": "^[a-z]{1,12}$"},
                            "maxItems": 6,
                        },
                    },
                    "required": ["kind"],
                    "additionalProperties": false,
                })),
                Constraint::Json(json!({
                    "type": "array",
                    "items": {"anyOf": [{"type": "boolean"}, {"type": "number"}, {"type": "null"}]},
                    "maxItems": 20,
                })),
            ],
            Self::Regex => vec![
                Constraint::Regex(r"\w{1,20}@\w{1,20}\.com".to_owned()),
                Constraint::Regex("([a-z]{1,9} ){1,40}[a-z]{1,9}[.!]".to_owned()),
            ],
            Self::Choice => vec![Constraint::Choice(
                ["positive", "negative", "neutral"]
                    .map(str::to_owned)
                    .to_vec(),
            )],
            Self::Grammar => vec![Constraint::Grammar(
                "start: sum\nsum: product (/[+-]/ product)*\nproduct: atom (/[*\\/]/ atom)*\n\
                 atom: /[0-9]{1,4}/ | \"(\" sum \")\"\n"
                    .to_owned(),
            )],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::byte_compiler;

    #[test]
    fn every_example_can_be_enforced_and_is_short_at_its_shortest() {
        let compiler = byte_compiler().unwrap();
        for kind in ConstraintKind::value_variants() {
            let examples = kind.examples();
            assert!(!examples.is_empty());
            for example in examples {
                let grammar = example.compile(&compiler).unwrap();
                let matcher = structured_output::GrammarMatcher::new(&grammar);
                let shortest = matcher.min_bytes_to_complete().unwrap();
                assert!(shortest < 24, "{example:?}: {shortest}");
            }
        }
    }
}
