//! The arguments of a Python call as a grammar in Lark, by the schema of a function's parameters.
//!
//! Strings and numbers are JSON's, which are Python's too; `True`, `False` and `None` are its own words, and
//! so lists and dictionaries are written out as rules. What a rule can't say is refused by its place.

use std::collections::HashMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::error::cut_short;

/// As deep as schemas may lie in each other.
const MAX_DEPTH: usize = 64;

/// Keywords that say nothing of a value.
const ANNOTATIONS: [&str; 13] = [
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    // OpenAPI's, which is none of JSON Schema's: a warning says so.
    "nullable",
];

/// Keywords of strings and numbers, which are left to `%json`.
const SCALAR_KEYWORDS: [(&str, &[&str]); 3] = [
    ("string", &["minLength", "maxLength", "pattern", "format"]),
    ("integer", NUMBER_KEYWORDS),
    ("number", NUMBER_KEYWORDS),
];
const NUMBER_KEYWORDS: &[&str] = &[
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];

/// All types of a value.
const TYPES: [&str; 6] = ["string", "number", "boolean", "null", "array", "object"];

/// The grammar of a call's arguments, without the parentheses. Linear in the schema.
///
/// # Errors
/// The part of the schema that it can't say, by its pointer, and why.
pub(in crate::openai) fn grammar(schema: &str) -> Result<String, String> {
    let root: Value = serde_json::from_str(schema).map_err(|error| error.to_string())?;
    let mut rules = Rules {
        text: String::new(),
        num_rules: 0,
        root: &root,
        references: HashMap::new(),
    };
    let (schema, pointer) = rules.resolved(&root, String::new())?;
    let arguments = rules.members(schema, &pointer, 0, Key::Argument)?;
    let head = "SEP: /, ?/\nCOLON: /: ?/\nIDENTIFIER: /[A-Za-z_][A-Za-z0-9_]*/\n";
    Ok(format!("start: {arguments}\n{head}{}", rules.text))
}

/// How a member's name is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// `name=`
    Argument,
    /// `"name": `
    Item,
}

struct Rules<'a> {
    text: String,
    num_rules: usize,
    root: &'a Value,
    /// The rule of each schema that was referred to, by its pointer.
    references: HashMap<String, String>,
}

impl<'a> Rules<'a> {
    /// Adds a rule; returns its name.
    fn add(&mut self, body: &str) -> String {
        let name = self.name();
        self.define(&name, body);
        name
    }

    fn name(&mut self) -> String {
        self.num_rules += 1;
        format!("r{}", self.num_rules)
    }

    fn define(&mut self, name: &str, body: &str) {
        // Writing to a string can't fail.
        let _ = writeln!(self.text, "{name}: {body}");
    }

    /// What a schema is that refers to another part of the whole, with its pointer.
    fn resolved(
        &self,
        mut schema: &'a Value,
        mut pointer: String,
    ) -> Result<(&'a Value, String), String> {
        for _ in 0..MAX_DEPTH {
            let Some(reference) = schema.get("$ref") else {
                return Ok((schema, pointer));
            };
            let path = reference
                .as_str()
                .and_then(|reference| reference.strip_prefix('#'));
            let target = path.and_then(|path| Some((self.root.pointer(path)?, path)));
            let Some((target, path)) = target else {
                let shown = reference.to_string();
                return Err(at(
                    &pointer,
                    &format!("there is nothing at {}", cut_short(&shown)),
                ));
            };
            (schema, pointer) = (target, path.to_owned());
        }
        Err(at(&pointer, "`$ref` leads back to itself"))
    }

    /// The rule of a value.
    fn value(&mut self, schema: &'a Value, pointer: &str, depth: usize) -> Result<String, String> {
        if depth > MAX_DEPTH {
            return Err(at(
                pointer,
                &format!("schemas lie more than {MAX_DEPTH} deep in each other"),
            ));
        }
        if schema.get("$ref").is_none() {
            let ways = self.ways(schema, pointer, depth)?;
            return Ok(self.add(&ways.join(" | ")));
        }
        let (schema, pointer) = self.resolved(schema, pointer.to_owned())?;
        if let Some(rule) = self.references.get(&pointer) {
            return Ok(rule.clone());
        }
        let name = self.name();
        self.references.insert(pointer.clone(), name.clone());
        let ways = self.ways(schema, &pointer, depth)?;
        self.define(&name, &ways.join(" | "));
        Ok(name)
    }

    /// The ways to write a value.
    fn ways(
        &mut self,
        schema: &'a Value,
        pointer: &str,
        depth: usize,
    ) -> Result<Vec<String>, String> {
        let schema = match schema {
            Value::Object(schema) => schema,
            Value::Bool(true) => return Ok(vec![self.anything()]),
            Value::Bool(false) => return Err(at(pointer, "no value meets this schema")),
            _ => {
                return Err(at(
                    pointer,
                    "must be a schema, an object or a boolean, in this format",
                ));
            }
        };
        let mut left: Vec<&str> = schema.keys().map(String::as_str).collect();
        left.retain(|keyword| !ANNOTATIONS.contains(keyword));
        if left.is_empty() {
            return Ok(vec![self.anything()]);
        }
        let types = match schema.get("type") {
            None => TYPES.into(),
            Some(Value::String(kind)) => vec![kind.as_str()],
            Some(kinds) => {
                texts(kinds).ok_or_else(|| at(&format!("{pointer}/type"), "is no type"))?
            }
        };
        left.retain(|keyword| *keyword != "type");
        if let Some(values) = listed(schema) {
            left.retain(|keyword| !["enum", "const"].contains(keyword));
            refuse_left(&left, pointer)?;
            let values = values.into_iter().filter(|value| is_of(value, &types));
            return some(
                values.map(|value| quoted(&literal(value))).collect(),
                pointer,
            );
        }
        if let Some(Value::Array(branches)) = schema.get("anyOf") {
            left.retain(|keyword| *keyword != "anyOf");
            refuse_left(&left, pointer)?;
            let mut ways = Vec::new();
            for (i, branch) in branches.iter().enumerate() {
                ways.push(self.value(branch, &format!("{pointer}/anyOf/{i}"), depth + 1)?);
            }
            return some(ways, pointer);
        }
        let mut ways = Vec::new();
        for kind in types {
            match kind {
                "boolean" => ways.extend([quoted("True"), quoted("False")]),
                "null" => ways.push(quoted("None")),
                "array" => {
                    left.retain(|keyword| !["items", "minItems", "maxItems"].contains(keyword));
                    ways.push(self.list(schema, pointer, depth)?);
                }
                "object" => {
                    left.retain(|keyword| !OBJECT_KEYWORDS.contains(keyword));
                    let object = self.members_of(schema, pointer, depth, Key::Item)?;
                    ways.push(format!("\"{{\" {object} \"}}\""));
                }
                scalar => {
                    let known = SCALAR_KEYWORDS.iter().find(|(name, _)| *name == scalar);
                    let Some((_, keywords)) = known else {
                        return Err(at(pointer, &format!("{scalar:?} is no type")));
                    };
                    left.retain(|keyword| !keywords.contains(keyword));
                    let mut own = Map::from_iter([("type".to_owned(), Value::from(scalar))]);
                    let said = keywords
                        .iter()
                        .filter_map(|name| schema.get_key_value(*name));
                    own.extend(said.map(|(name, value)| (name.clone(), value.clone())));
                    ways.push(self.add(&format!("%json {}", Value::Object(own))));
                }
            }
        }
        refuse_left(&left, pointer)?;
        some(ways, pointer)
    }

    fn list(
        &mut self,
        schema: &'a Map<String, Value>,
        pointer: &str,
        depth: usize,
    ) -> Result<String, String> {
        let bound = |keyword: &str| {
            let wrong = || at(&format!("{pointer}/{keyword}"), "is no number of items");
            let number = schema
                .get(keyword)
                .map(|number| number.as_u64().ok_or_else(wrong));
            number.transpose()
        };
        let (min, max) = (bound("minItems")?.unwrap_or(0), bound("maxItems")?);
        if max.is_some_and(|max| max < min) {
            return Err(at(pointer, "`maxItems` is less than `minItems`"));
        }
        let none = "\"[\" \"]\"".to_owned();
        if max == Some(0) {
            return Ok(none);
        }
        let items = schema.get("items").unwrap_or(&Value::Bool(true));
        let item = self.value(items, &format!("{pointer}/items"), depth + 1)?;
        let more = match max {
            Some(max) => format!("(SEP {item})~{}..{}", min.saturating_sub(1), max - 1),
            None if min > 1 => format!("(SEP {item}){{{},}}", min - 1),
            None => format!("(SEP {item})*"),
        };
        let some = format!("\"[\" {item} {more} \"]\"");
        Ok(match min {
            0 => format!("{none} | {some}"),
            _ => some,
        })
    }

    fn members(
        &mut self,
        schema: &'a Value,
        pointer: &str,
        depth: usize,
        key: Key,
    ) -> Result<String, String> {
        let Value::Object(schema) = schema else {
            return Err(at(pointer, "must be the schema of an object"));
        };
        let mut left: Vec<&str> = schema.keys().map(String::as_str).collect();
        left.retain(|keyword| {
            !ANNOTATIONS.contains(keyword)
                && !OBJECT_KEYWORDS.contains(keyword)
                && *keyword != "type"
        });
        refuse_left(&left, pointer)?;
        self.members_of(schema, pointer, depth, key)
    }

    /// The rule of an object's members: those that the schema names in its order, then others.
    fn members_of(
        &mut self,
        schema: &'a Map<String, Value>,
        pointer: &str,
        depth: usize,
        key: Key,
    ) -> Result<String, String> {
        let wrong = |keyword: &str, problem| at(&format!("{pointer}/{keyword}"), problem);
        let required = schema
            .get("required")
            .map(|names| texts(names).ok_or_else(|| wrong("required", "is no list of names")));
        let required = required.transpose()?.unwrap_or_default();
        let properties = schema.get("properties").map(|properties| {
            let properties = properties.as_object();
            properties.ok_or_else(|| wrong("properties", "is no object"))
        });
        let properties = properties.transpose()?;
        let mut members = Vec::new();
        for (name, of) in properties.into_iter().flatten() {
            let place = format!("{pointer}/properties/{}", escaped(name));
            if key == Key::Argument && !is_identifier(name) {
                return Err(at(
                    &place,
                    &format!("{:?} can't be the name of an argument", cut_short(name)),
                ));
            }
            let value = self.value(of, &place, depth + 1)?;
            let member = match key {
                Key::Argument => format!("{} {value}", quoted(&format!("{name}="))),
                Key::Item => format!(
                    "{} COLON {value}",
                    quoted(&literal(&Value::from(name.as_str())))
                ),
            };
            members.push((name.as_str(), member));
        }
        if let Some(name) = required
            .iter()
            .find(|name| members.iter().all(|(known, _)| known != *name))
        {
            let place = format!("{pointer}/required");
            return Err(at(
                &place,
                &format!(
                    "names {:?}, which must be one of `properties`",
                    cut_short(name)
                ),
            ));
        }
        let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
        let other = self.other_members(schema, pointer, depth, key, &names)?;
        let more_others = other
            .as_ref()
            .map_or_else(|| "\"\"".to_owned(), |other| format!("(SEP {other})*"));
        // From the last on: the members from one on where another stands before them, and where none does.
        let mut after = self.add(&more_others);
        let mut first = match &other {
            Some(other) => self.add(&format!("({other} {after})?")),
            None => self.add("\"\""),
        };
        for (name, member) in members.iter().rev() {
            let member = self.add(member);
            let is_required = required.contains(name);
            first = self.add(&match is_required {
                true => format!("{member} {after}"),
                false => format!("{member} {after} | {first}"),
            });
            after = self.add(&match is_required {
                true => format!("SEP {member} {after}"),
                false => format!("(SEP {member})? {after}"),
            });
        }
        Ok(first)
    }

    /// The rule of a member that the schema doesn't name, if there may be any.
    fn other_members(
        &mut self,
        schema: &'a Map<String, Value>,
        pointer: &str,
        depth: usize,
        key: Key,
        names: &[&str],
    ) -> Result<Option<String>, String> {
        let additional = schema
            .get("additionalProperties")
            .unwrap_or(&Value::Bool(true));
        if *additional == Value::Bool(false) {
            return Ok(None);
        }
        let value = match additional {
            Value::Bool(true) => self.anything(),
            schema => self.value(
                schema,
                &format!("{pointer}/additionalProperties"),
                depth + 1,
            )?,
        };
        let name = match key {
            Key::Argument => {
                let terminal = format!("NAME{}", self.num_rules);
                let known = names.join("|");
                let body = match names.is_empty() {
                    true => "IDENTIFIER".to_owned(),
                    false => format!("IDENTIFIER & ~/(?:{known})/"),
                };
                self.define(&terminal, &body);
                format!("{terminal} \"=\"")
            }
            Key::Item if names.is_empty() => {
                format!("{} COLON", self.add(r#"%json {"type": "string"}"#))
            }
            Key::Item => {
                let of_other = json!({"type": "string", "not": {"enum": names}});
                format!("{} COLON", self.add(&format!("%json {of_other}")))
            }
        };
        Ok(Some(self.add(&format!("{name} {value}"))))
    }

    /// The rule of any literal.
    fn anything(&mut self) -> String {
        const POINTER: &str = "any value";
        if let Some(rule) = self.references.get(POINTER) {
            return rule.clone();
        }
        let name = self.name();
        self.references.insert(POINTER.to_owned(), name.clone());
        let text = self.add(r#"%json {"type": "string"}"#);
        let number = self.add(r#"%json {"type": "number"}"#);
        let body = format!(
            "{text} | {number} | \"True\" | \"False\" | \"None\" | \"[\" ({name} (SEP {name})*)? \"]\" | \
             \"{{\" ({text} COLON {name} (SEP {text} COLON {name})*)? \"}}\""
        );
        self.define(&name, &body);
        name
    }
}

const OBJECT_KEYWORDS: [&str; 3] = ["properties", "required", "additionalProperties"];

/// The strings of a list, if it is one of strings.
fn texts(list: &Value) -> Option<Vec<&str>> {
    list.as_array()?.iter().map(Value::as_str).collect()
}

/// The values of `enum` or `const`.
fn listed(schema: &Map<String, Value>) -> Option<Vec<&Value>> {
    match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(values)), _) => Some(values.iter().collect()),
        (_, Some(value)) => Some(vec![value]),
        _ => None,
    }
}

/// True for a value of one of some types.
fn is_of(value: &Value, types: &[&str]) -> bool {
    let has = |kind: &str| types.contains(&kind);
    match value {
        Value::Null => has("null"),
        Value::Bool(_) => has("boolean"),
        Value::Number(number) => {
            has("number") || (has("integer") && number.as_f64().is_some_and(|n| n.fract() == 0.0))
        }
        Value::String(_) => has("string"),
        Value::Array(_) => has("array"),
        Value::Object(_) => has("object"),
    }
}

/// A value as Python writes it, with JSON's strings.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members = members.iter();
            let members = members
                .map(|(name, of)| format!("{}: {}", Value::from(name.as_str()), literal(of)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// A text as a string of Lark.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn is_identifier(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_part) && !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty()
}

/// A name as a part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn at(pointer: &str, problem: &str) -> String {
    format!("at `#{pointer}`: {problem}, where a model writes arguments as Python")
}

fn refuse_left(left: &[&str], pointer: &str) -> Result<(), String> {
    match left.first() {
        Some(keyword) => Err(at(
            &format!("{pointer}/{}", escaped(keyword)),
            &format!("`{}` can't be enforced", cut_short(keyword)),
        )),
        None => Ok(()),
    }
}

fn some(ways: Vec<String>, pointer: &str) -> Result<Vec<String>, String> {
    match ways.is_empty() {
        true => Err(at(pointer, "no value meets this schema")),
        false => Ok(ways),
    }
}
