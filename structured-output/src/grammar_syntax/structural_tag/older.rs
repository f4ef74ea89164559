//! The older form, from which today's is made.

use super::super::ast::RuleId;
use super::fields::Fields;
use super::{Ends, Parser, TagError};
use crate::json::Value;

impl Parser<'_> {
    /// The older form: `structures` of begin, schema and end, and `triggers`.
    pub(super) fn structures(&mut self, fields: &mut Fields<'_>) -> Result<RuleId, TagError> {
        self.is_older = true;
        let structures = fields.filled_array("structures", "structure")?;
        let mut tags = Vec::with_capacity(structures.len());
        for (index, item) in structures.iter().enumerate() {
            let pointer = format!("{}/{index}", fields.at("structures"));
            let mut structure = Fields::new(item, &pointer)?;
            let begin = Value::String(structure.string("begin")?.to_owned());
            let end = Value::String(structure.string("end")?.to_owned());
            let schema = structure.required("schema")?.clone();
            structure.finish()?;
            let content = object([
                ("type", Value::String("json_schema".into())),
                ("json_schema", schema),
            ]);
            tags.push(object([
                ("begin", begin),
                ("content", content),
                ("end", end),
            ]));
        }
        let format = object([
            ("type", Value::String("triggered_tags".into())),
            ("triggers", fields.required("triggers")?.clone()),
            ("tags", Value::Array(std::sync::Arc::new(tags))),
        ]);
        let root = self.format(&format, "", &Ends::default());
        root.map_err(|error| match error {
            TagError::At { pointer, message } => TagError::At {
                pointer: in_structures(&pointer),
                message,
            },
            limit => limit,
        })
    }
}

/// Where the older form has what stands at a pointer in the tags that are made of it.
pub(super) fn in_structures(pointer: &str) -> String {
    let Some(rest) = pointer.strip_prefix("/tags") else {
        return pointer.to_owned();
    };
    let rest = rest.replacen("/content/json_schema", "/schema", 1);
    format!("/structures{}", rest.replacen("/content", "/schema", 1))
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let members = members.map(|(name, value)| (name.to_owned(), value));
    Value::Object(std::sync::Arc::new(members.into()))
}
