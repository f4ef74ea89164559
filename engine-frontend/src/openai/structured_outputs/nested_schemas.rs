//! Warnings about schemas, wherever a constraint has them.

use serde_json::Value;

use crate::openai::warnings::Warnings;
use crate::structured_outputs::{schema_warnings, visit_lark_schemas, visit_tag_schemas};

/// A longer text is not looked at: its values would take memory that nobody counted.
const MAX_WARNED_TEXT: usize = 256 << 10;

/// Warns of a schema's keywords that have no effect.
pub(in crate::openai) fn warn_of_schema(warnings: &mut Warnings, field: &str, schema: &Value) {
    let parsed = parse_text(schema);
    let (found, num_more) = schema_warnings(parsed.as_ref().unwrap_or(schema));
    for warning in found {
        warnings.push(field, &format!(", {warning}"));
    }
    warnings.leave_out(num_more);
}

/// Warns of the schemas in a structural tag.
pub(super) fn warn_of_tag(warnings: &mut Warnings, field: &str, tag: &Value) {
    let parsed = parse_text(tag);
    visit_tag_schemas(parsed.as_ref().unwrap_or(tag), &mut |place, schema| {
        warn_of_schema(warnings, &format!("{field}{place}"), schema);
    });
}

/// Warns of the schemas in a Lark grammar.
pub(super) fn warn_of_grammar(warnings: &mut Warnings, field: &str, grammar: &Value) {
    let Some(text) = grammar
        .as_str()
        .filter(|text| text.len() <= MAX_WARNED_TEXT)
    else {
        return;
    };
    visit_lark_schemas(text, &mut |line, schema| {
        warn_of_schema(warnings, &format!("{field}, line {line}"), schema);
    });
}

/// JSON that comes as a text.
fn parse_text(value: &Value) -> Option<Value> {
    let text = value
        .as_str()
        .filter(|text| text.len() <= MAX_WARNED_TEXT)?;
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TAG: &str = "structured_outputs.structural_tag";

    #[test]
    fn schemas_in_tags_are_looked_at() {
        let schema = json!({"type": "object", "requierd": ["a"]});
        let at = "at `#/requierd`: requierd has no effect; did you mean `required`?";
        let format = json!({"type": "sequence", "elements": [
            {"type": "const_string", "value": "a"}, {"type": "json_schema", "json_schema": schema},
        ]});
        let new = json!({"type": "structural_tag", "format": format});
        let structure = json!({"begin": "<f>", "schema": schema, "end": "</f>"});
        let old = json!({"type": "structural_tag", "structures": [structure], "triggers": ["<f"]});
        for (tag, place) in [
            (new.clone(), "format.elements[1].json_schema"),
            (
                Value::from(new.to_string()),
                "format.elements[1].json_schema",
            ),
            (old, "structures[0].schema"),
        ] {
            let mut warnings = Warnings::default();
            warn_of_tag(&mut warnings, TAG, &tag);
            assert_eq!(warnings.texts(), [format!("{TAG}.{place}, {at}")]);
        }
    }

    #[test]
    fn schemas_in_grammars_are_looked_at() {
        let mut warnings = Warnings::default();
        let grammar = "start: a | b\na: %json {\"nullable\": true}\nb: \"%json x\" %json {\"type\": \"null\"}";
        warn_of_grammar(&mut warnings, "grammar", &grammar.into());
        let texts = warnings.texts();
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(texts[0].starts_with("grammar, line 2, at `#/nullable`: nullable has no effect"));
    }
}
