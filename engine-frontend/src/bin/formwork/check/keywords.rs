//! Which keywords of a schema hold, and which say nothing about a text.

use std::collections::BTreeMap;
use std::fmt;

use engine_frontend::{
    KeywordEffect, schema_warnings, visit_keywords, visit_lark_schemas, visit_tag_schemas,
};
use serde_json::Value;

use crate::constraint::Kind;

/// How often which keyword stands in a schema, and those without effect.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Keywords {
    enforced: BTreeMap<String, usize>,
    annotations: BTreeMap<String, usize>,
    warnings: Vec<String>,
    /// Places of keywords without effect that no warning names.
    num_more: usize,
}

impl Keywords {
    /// Counts them; `None` where the text has no schema.
    pub(super) fn of(kind: Kind, text: &str) -> Option<Self> {
        let mut keywords = Self::default();
        let mut has_schema = false;
        match kind {
            Kind::Json => {
                keywords.add("", &serde_json::from_str(text).ok()?);
                has_schema = true;
            }
            Kind::StructuralTag => {
                let tag = serde_json::from_str(text).ok()?;
                visit_tag_schemas(&tag, &mut |place, schema| {
                    keywords.add(&format!("{}, ", place.trim_start_matches('.')), schema);
                    has_schema = true;
                });
            }
            Kind::Grammar => visit_lark_schemas(text, &mut |line, schema| {
                keywords.add(&format!("line {line}, "), schema);
                has_schema = true;
            }),
            Kind::Regex | Kind::Choice => {}
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

    /// True if some keyword has no effect though its writer may expect one.
    pub(super) fn has_warnings(&self) -> bool {
        !self.warnings.is_empty()
    }
}

impl fmt::Display for Keywords {
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
    use engine_frontend::FORMATS;
    use serde_json::json;

    use super::*;
    use crate::constraint::{Constraint, byte_compiler};

    #[test]
    fn properties_are_no_keywords_and_what_has_no_effect_is_a_warning() {
        let text = r##"{
            "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "t",
            "properties": {"title": {"type": "string", "format": "date"},
                           "b": {"type": "string", "format": "colour", "description": "d"}},
            "items": [{"minimum": 1}, {"$ref": "#/$defs/c"}],
            "$defs": {"c": {"format": "regex", "x-own": {"type": "object"}}},
            "requierd": ["b"]
        }"##;
        let keywords = Keywords::of(Kind::Json, text).unwrap();
        assert!(keywords.has_warnings());
        assert_eq!(
            keywords.to_string(),
            "warning   at `#/properties/b/format`: format \"colour\" has no effect; write a pattern, or \
             minimum and maximum of a number\n\
             warning   at `#/requierd`: requierd has no effect; did you mean `required`?\n\
             keywords  $ref, format (2), items, minimum, properties, type (2)\n\
             notes     description, title, x-own (annotations)\n"
        );
        assert!(Keywords::of(Kind::Regex, "a").is_none());
        let tag = r#"{"type": "structural_tag", "format": {"type": "json_schema",
            "json_schema": {"type": "object", "requierd": ["a"]}}}"#;
        let keywords = Keywords::of(Kind::StructuralTag, tag).unwrap();
        assert!(
            keywords.to_string().starts_with(
                "warning   format.json_schema, at `#/requierd`: requierd has no effect; did you mean"
            ),
            "{keywords}"
        );
        let lark = "start: a\na: %json {\"type\": \"string\", \"nullable\": true}\n";
        let keywords = Keywords::of(Kind::Grammar, lark).unwrap();
        assert!(
            keywords
                .to_string()
                .starts_with("warning   line 2, at `#/nullable`: nullable has no effect"),
            "{keywords}"
        );
        assert!(Keywords::of(Kind::Grammar, "root ::= \"a\"").is_none());
        assert!(!Keywords::of(Kind::Json, "{}").unwrap().has_warnings());
    }

    /// Texts of which every format that is enforced refuses one.
    const NO_FORMAT: [&str; 3] = ["\"\"", "\"~ ~\"", "\"(\""];

    #[test]
    fn the_formats_that_are_enforced_are_known() {
        let compiler = byte_compiler().unwrap();
        let is_enforced = |format: &str| {
            let constraint = Constraint::Json(json!({"type": "string", "format": format}));
            let grammar = constraint.compile(&compiler).unwrap();
            let refuses = |text: &&str| constraint.verify(&grammar, text).is_err();
            NO_FORMAT.iter().any(refuses)
        };
        for format in FORMATS {
            assert!(is_enforced(format), "{format}");
        }
        for format in ["colour", "int32", "binary", "password", "byte", "double"] {
            assert!(!is_enforced(format), "{format}");
        }
    }
}
