//! The schemas in constraints that are more than a schema.

use serde_json::Value;

/// Keys of structural tags whose values are schemas; the second is of the older form.
const SCHEMA_KEYS: [&str; 2] = ["json_schema", "schema"];
/// What stands before a schema in a Lark grammar.
const LARK_SCHEMA: &str = "%json";

/// Visits the schemas in a structural tag, each with the place that has it, such as `.format.json_schema`. As deep
/// as the JSON, which its reader bounds.
pub fn visit_tag_schemas(tag: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit_below("", tag, visit);
}

fn visit_below(place: &str, value: &Value, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let place = format!("{place}.{key}");
                match SCHEMA_KEYS.contains(&key.as_str()) {
                    true => visit(&place, value),
                    false => visit_below(&place, value, visit),
                }
            }
        }
        Value::Array(elements) => {
            for (i, value) in elements.iter().enumerate() {
                visit_below(&format!("{place}[{i}]"), value, visit);
            }
        }
        _ => {}
    }
}

/// Visits the schemas in a Lark grammar, each with its line.
pub fn visit_lark_schemas(grammar: &str, visit: &mut impl FnMut(usize, &Value)) {
    for (at, _) in grammar.match_indices(LARK_SCHEMA) {
        let rest = &grammar[at + LARK_SCHEMA.len()..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter();
        if let Some(Ok(schema @ Value::Object(_))) = values.next() {
            visit(grammar[..at].matches('\n').count() + 1, &schema);
        }
    }
}
