//! Which keywords of a schema hold, and which say nothing about a text.

use std::collections::BTreeMap;
use std::fmt;

use protocol::StructuredOutputsConstraint;
use serde_json::Value;

use crate::structured_outputs::{
    KeywordEffect, schema_warnings, visit_keywords, visit_lark_schemas, visit_tag_schemas,
};

/// How often which keyword stands in a schema, and those without effect.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ConstraintKeywords {
    enforced: BTreeMap<String, usize>,
    annotations: BTreeMap<String, usize>,
    warnings: Vec<String>,
    /// Places of keywords without effect that no warning names.
    num_more: usize,
}

impl ConstraintKeywords {
    /// Counts them; `None` where the constraint has no schema.
    pub fn of(constraint: &StructuredOutputsConstraint) -> Option<Self> {
        use StructuredOutputsConstraint as Constraint;
        let mut keywords = Self::default();
        let mut has_schema = false;
        match constraint {
            Constraint::Json(text) => {
                keywords.add("", &serde_json::from_str(text).ok()?);
                has_schema = true;
            }
            Constraint::StructuralTag(text) => {
                let tag = serde_json::from_str(text).ok()?;
                visit_tag_schemas(&tag, &mut |place, schema| {
                    keywords.add(&format!("{}, ", place.trim_start_matches('.')), schema);
                    has_schema = true;
                });
            }
            Constraint::Grammar(text) => visit_lark_schemas(text, &mut |line, schema| {
                keywords.add(&format!("line {line}, "), schema);
                has_schema = true;
            }),
            Constraint::JsonObject | Constraint::Regex(_) | Constraint::Choice(_) => {}
        }
        has_schema.then_some(keywords)
    }

    fn add(&mut self, place: &str, schema: &Value) {
        let (warnings, num_more) = schema_warnings(schema);
        let warnings = warnings.iter();
        self.warnings
            .extend(warnings.map(|warning| format!("{place}{warning}")));
        self.num_more += num_more;
        visit_keywords(schema, &mut |place, keyword, value| {
            let counts = match place.effect(keyword, value) {
                KeywordEffect::Enforced => &mut self.enforced,
                KeywordEffect::Annotation => &mut self.annotations,
                KeywordEffect::Structure | KeywordEffect::None => return,
            };
            *counts.entry(keyword.to_owned()).or_default() += 1;
        });
    }

    /// The keywords that are enforced, in order.
    pub(crate) fn enforced(&self) -> impl Iterator<Item = &str> {
        self.enforced.keys().map(String::as_str)
    }

    /// True if some keyword has no effect though its writer may expect one.
    pub fn has_warnings(&self) -> bool {
        !self.warnings.is_empty()
    }
}

impl fmt::Display for ConstraintKeywords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |keywords: &BTreeMap<String, usize>| {
            let counted = keywords.iter().map(|(keyword, count)| match count {
                1 => keyword.clone(),
                count => format!("{keyword} ({count})"),
            });
            counted.collect::<Vec<String>>().join(", ")
        };
        for warning in &self.warnings {
            writeln!(f, "warning   {warning}")?;
        }
        if self.num_more > 0 {
            writeln!(f, "warning   and {} more", self.num_more)?;
        }
        if !self.enforced.is_empty() {
            writeln!(f, "keywords  {}", list(&self.enforced))?;
        }
        if !self.annotations.is_empty() {
            writeln!(f, "notes     {} (annotations)", list(&self.annotations))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_no_keywords_and_what_has_no_effect_is_a_warning() {
        use StructuredOutputsConstraint::{Grammar, Json, Regex, StructuralTag};
        let text = r##"{
            "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "t",
            "properties": {"title": {"type": "string", "format": "date"},
                           "b": {"type": "string", "format": "colour", "description": "d"}},
            "items": [{"minimum": 1}, {"$ref": "#/$defs/c"}],
            "$defs": {"c": {"format": "regex", "x-own": {"type": "object"}}},
            "requierd": ["b"]
        }"##;
        let of = |constraint| ConstraintKeywords::of(&constraint);
        let keywords = of(Json(text.to_owned())).unwrap();
        assert!(keywords.has_warnings());
        assert_eq!(
            keywords.to_string(),
            "warning   at `#/properties/b/format`: format \"colour\" has no effect; write a pattern, or \
             minimum and maximum of a number\n\
             warning   at `#/requierd`: requierd has no effect; did you mean `required`?\n\
             keywords  $ref, format (2), items, minimum, properties, type (2)\n\
             notes     description, title, x-own (annotations)\n"
        );
        assert!(of(Regex("a".to_owned())).is_none());
        let tag = r#"{"type": "structural_tag", "format": {"type": "json_schema",
            "json_schema": {"type": "object", "requierd": ["a"]}}}"#;
        let keywords = of(StructuralTag(tag.to_owned())).unwrap();
        assert!(
            keywords.to_string().starts_with(
                "warning   format.json_schema, at `#/requierd`: requierd has no effect; did you mean"
            ),
            "{keywords}"
        );
        let lark = "start: a\na: %json {\"type\": \"string\", \"nullable\": true}\n";
        let keywords = of(Grammar(lark.to_owned())).unwrap();
        assert!(
            keywords
                .to_string()
                .starts_with("warning   line 2, at `#/nullable`: nullable has no effect"),
            "{keywords}"
        );
        assert!(of(Grammar("root ::= \"a\"".to_owned())).is_none());
        assert!(!of(Json("{}".to_owned())).unwrap().has_warnings());
    }
}
