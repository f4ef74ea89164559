//! Which part of a schema is why no value is valid under it.

use hashbrown::HashSet;

use super::super::live::DEAD;
use super::super::programs::Programs;
use super::super::value::Value;
use super::draft::{Dialect, member};
use super::place::{Place, ScopeId};
use super::pointer::escaped;
use super::refusal::Refusal;
use super::registry::ResourceId;
use super::{SchemaCompiler, subschemas};
use crate::lexical::{Fuel, Lexicon};

/// The keyword that allows no value whatever the others say, where that is plain.
fn sole_reason(schema: &[(String, Value)], dialect: Dialect) -> &'static str {
    let excludes_all = |schema: &Value| match schema {
        Value::Object(members) => members.is_empty(),
        schema => *schema == Value::Bool(true),
    };
    for (keyword, value) in schema.iter().filter(|member| dialect.knows(&member.0)) {
        match (keyword.as_str(), value) {
            ("enum", Value::Array(list)) if list.is_empty() => return "/enum",
            ("not", schema) if excludes_all(schema) => return "/not",
            _ => {}
        }
    }
    empty_range(schema, dialect)
}

const NUMBERS: &[&str] = &["integer", "number"];

/// Bounds by the types that they speak of: from, and a pointer to up to where.
const RANGES: [(&[&str], &str, &str); 6] = [
    (NUMBERS, "minimum", "/maximum"),
    (NUMBERS, "exclusiveMinimum", "/maximum"),
    (NUMBERS, "minimum", "/exclusiveMaximum"),
    (&["string"], "minLength", "/maxLength"),
    (&["array"], "minItems", "/maxItems"),
    (&["object"], "minProperties", "/maxProperties"),
];
/// The upper bound of a range with nothing in it, if it is of the only type that a schema allows.
fn empty_range(schema: &[(String, Value)], dialect: Dialect) -> &'static str {
    let bound = |keyword: &str| match member(schema, keyword) {
        Some(Value::Number(text)) if dialect.knows(keyword) => text.parse::<f64>().ok(),
        _ => None,
    };
    let allows = match member(schema, "type") {
        Some(Value::String(name)) => name.as_str(),
        Some(Value::Array(list)) => match &list[..] {
            [Value::String(name)] => name.as_str(),
            _ => return "",
        },
        _ => return "",
    };
    for (types, from, to) in RANGES {
        if types.contains(&allows)
            && let (Some(least), Some(most)) = (bound(from), bound(to.trim_start_matches('/')))
            && least > most
        {
            return to;
        }
    }
    ""
}

/// A schema that another one needs: where in that, and what it is.
struct Needed {
    at: String,
    schema: Value,
    resource: ResourceId,
    scope: ScopeId,
}

impl SchemaCompiler {
    /// The JSON pointer of the innermost schema under which no value is valid, and which is why the whole
    /// one has none: from the root through what each such schema needs (`allOf`, references, members that
    /// are required, items that there have to be). As far as the fuel lasts.
    pub(crate) fn without_value(
        &mut self,
        lexicon: &mut Lexicon,
        programs: &mut Programs,
        fuel: &mut Fuel,
    ) -> String {
        let mut pointer = String::new();
        let mut seen = HashSet::new();
        let mut schema = self.root.clone();
        let (mut resource, mut scope) = (0, 0);
        while let Ok(Some(place)) = self.place(&schema, resource, scope)
            && seen.insert(place.key())
        {
            let (document, own) = self.registry.pointer(place.key().0);
            // A pointer is of the schema itself, not of another document.
            if document.is_empty() {
                pointer = own;
            }
            let needed = self.needed(&place).unwrap_or_default();
            let mut found = None;
            for part in needed {
                let node = self.node(programs.nodes(), &part.schema, part.resource, part.scope);
                let Ok(node) = node else { continue };
                if matches!(programs.cost(lexicon, node, fuel), Ok(DEAD)) {
                    found = Some(part);
                    break;
                }
            }
            let Some(part) = found else {
                if document.is_empty() {
                    pointer += sole_reason(&place.members, self.dialect(&place));
                }
                break;
            };
            if document.is_empty() && !matches!(part.schema, Value::Object(_)) {
                pointer += &part.at;
            }
            (schema, resource, scope) = (part.schema, part.resource, part.scope);
        }
        pointer
    }

    /// What values of a schema need to be valid under, or to have in them.
    fn needed(&mut self, place: &Place) -> Result<Vec<Needed>, Refusal> {
        let mut needed = Vec::new();
        let (resource, scope) = (place.resource, place.scope);
        if let Some((keyword, value)) = self.hiding(place) {
            if let Some(site) = self.referred(place, &keyword, &value)? {
                needed.push(Needed {
                    at: String::new(),
                    schema: site.value,
                    resource: site.resource,
                    scope,
                });
            }
            return Ok(needed);
        }
        let dialect = self.dialect(place);
        let members = &place.members;
        let required = member(members, "required");
        let is_required = |name: &str| match required {
            Some(Value::Array(names)) => names.contains(&Value::String(name.to_owned())),
            _ => false,
        };
        let min_items = match member(members, "minItems") {
            Some(Value::Number(min)) => min.parse::<f64>().unwrap_or(0.0),
            _ => 0.0,
        };
        // The items that there must be, one by one; then those after them.
        let first = ["prefixItems", "items"].into_iter().find_map(|keyword| {
            match member(members, keyword).filter(|_| dialect.knows(keyword)) {
                Some(Value::Array(list)) => Some(list.len()),
                _ => None,
            }
        });
        let has_more = min_items > first.unwrap_or(0) as f64;
        for (keyword, value) in members.iter().filter(|member| dialect.knows(&member.0)) {
            if let Some(site) = self.referred(place, keyword, value)? {
                needed.push(Needed {
                    at: String::new(),
                    schema: site.value,
                    resource: site.resource,
                    scope,
                });
                continue;
            }
            let scope = self.scope_under(scope, keyword);
            let mut add = |at: String, schema: &Value| {
                if subschemas::is_schema(schema) {
                    needed.push(Needed {
                        at,
                        schema: schema.clone(),
                        resource,
                        scope,
                    });
                }
            };
            match (keyword.as_str(), value) {
                ("allOf", Value::Array(list)) => {
                    for (at, schema) in list.iter().enumerate() {
                        add(format!("/allOf/{at}"), schema);
                    }
                }
                ("properties", Value::Object(map)) => {
                    for (name, schema) in map.iter().filter(|member| is_required(&member.0)) {
                        add(format!("/properties/{}", escaped(name)), schema);
                    }
                }
                ("prefixItems" | "items", Value::Array(list)) => {
                    let there = list.iter().enumerate();
                    for (at, schema) in there.take_while(|item| (item.0 as f64) < min_items) {
                        add(format!("/{keyword}/{at}"), schema);
                    }
                }
                ("items" | "contains", schema) if has_more || keyword == "contains" => {
                    add(format!("/{keyword}"), schema);
                }
                _ => {}
            }
        }
        Ok(needed)
    }
}
