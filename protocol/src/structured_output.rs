//! What a request's output must be.

use serde::{Deserialize, Serialize};

/// A request's constraint, after validation by the frontend: exactly one, and how it is enforced.
///
/// vLLM's `backend` stays in the frontend: one engine serves every constraint. Both processes hand it to
/// the grammar engine by names ([`StructuredOutputsConstraint::specification`] and
/// [`StructuredOutputsParams::options`]), so that what the core compiles is what the frontend checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StructuredOutputsParams {
    /// What the output must be.
    pub constraint: StructuredOutputsConstraint,
    /// White space in JSON. Other constraints don't look at it.
    pub whitespace: Whitespace,
    /// Order of an object's properties. JSON Schemas alone look at it.
    pub property_order: PropertyOrder,
    /// Objects of a JSON Schema that say nothing of `additionalProperties` allow none.
    pub disable_additional_properties: bool,
    /// Near `max_tokens` only tokens that can still finish in time are allowed, and a request
    /// whose shortest output doesn't fit is refused.
    pub complete_within_max_tokens: bool,
    /// The constraint holds inside thinking as well: from the first token.
    pub enable_in_reasoning: bool,
}

impl StructuredOutputsParams {
    /// A constraint with everything else at its default.
    pub fn new(constraint: StructuredOutputsConstraint) -> Self {
        Self {
            constraint,
            whitespace: Whitespace::default(),
            property_order: PropertyOrder::default(),
            disable_additional_properties: false,
            complete_within_max_tokens: true,
            enable_in_reasoning: false,
        }
    }

    /// The options of the constraint as the grammar engine names them and their values. Only JSON has
    /// any; of any object only white space.
    pub fn options(&self) -> Vec<(&'static str, &str)> {
        if !self.constraint.is_json() {
            return Vec::new();
        }
        let mut options = vec![match &self.whitespace {
            Whitespace::Usual => ("whitespace", "usual"),
            Whitespace::Flexible => ("whitespace", "flexible"),
            Whitespace::Spaced => ("whitespace", "spaced"),
            Whitespace::Compact => ("whitespace", "compact"),
            Whitespace::Pattern(pattern) => ("whitespace_pattern", pattern.as_str()),
        }];
        if matches!(self.constraint, StructuredOutputsConstraint::Json(_)) {
            let order = match self.property_order {
                PropertyOrder::Schema => "schema",
                PropertyOrder::Any => "any",
            };
            options.push(("property_order", order));
            if self.disable_additional_properties {
                options.push(("strict", "true"));
            }
        }
        options
    }
}

/// What an output must be. Schemas and grammars travel as their text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StructuredOutputsConstraint {
    /// A JSON value that is valid under this JSON Schema.
    Json(String),
    /// Any JSON object.
    JsonObject,
    /// A text that this regular expression matches as a whole.
    Regex(String),
    /// One of these strings; never empty.
    Choice(Vec<String>),
    /// A sentence of this grammar, in EBNF or Lark.
    Grammar(String),
    /// Text with tagged parts, as this structural tag (a JSON text) says.
    StructuralTag(String),
}

impl StructuredOutputsConstraint {
    /// The name of the request's field.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Json(_) => "json",
            Self::JsonObject => "json_object",
            Self::Regex(_) => "regex",
            Self::Choice(_) => "choice",
            Self::Grammar(_) => "grammar",
            Self::StructuralTag(_) => "structural_tag",
        }
    }

    /// The constraint as the grammar engine names it, and its sources: the strings of a choice, none for
    /// any JSON object, else one.
    pub fn specification(&self) -> (&'static str, &[String]) {
        use std::slice::from_ref;
        match self {
            Self::Json(schema) => ("json_schema", from_ref(schema)),
            Self::JsonObject => ("json_object", &[]),
            Self::Regex(pattern) => ("regex", from_ref(pattern)),
            Self::Choice(choices) => ("choice", choices),
            Self::Grammar(grammar) => ("grammar", from_ref(grammar)),
            Self::StructuralTag(tag) => ("structural_tag", from_ref(tag)),
        }
    }

    /// Whether the whole output is JSON.
    pub fn is_json(&self) -> bool {
        matches!(self, Self::Json(_) | Self::JsonObject)
    }
}

/// White space where JSON allows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whitespace {
    /// As JSON is usually printed: nothing around the text; nothing or one space after `:` and `,`; a
    /// line break with at most 16 spaces and tabs after `{`, `[` and `,` and before `}` and `]`.
    #[default]
    Usual,
    /// Wherever JSON allows it: nothing, one space, or a line break with at most 64 spaces and tabs.
    Flexible,
    /// A space after `,` and `:`, as Python's `json.dumps` writes it.
    Spaced,
    /// None.
    Compact,
    /// What this regular expression matches.
    Pattern(String),
}

/// The order of an object's properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PropertyOrder {
    /// That of the schema's `properties`.
    #[default]
    Schema,
    /// Any.
    Any,
}
