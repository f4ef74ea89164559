//! What a function's parameters may be, by its schema: where arguments are tags, the text `5` is a string or
//! a number by that alone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::validator::is_valid;
use super::xml_arguments::push_escaped;
use crate::openai::tool_format::MAX_WHITESPACE_IN_TAGS;
use crate::structured_outputs::FORMATS;

/// What the parameters of a function may be.
#[derive(Debug, Clone, Default)]
pub(in crate::openai) struct ParameterKinds {
    /// The schema of all of them.
    schema: Arc<Value>,
    named: Arc<HashMap<String, ParameterKind>>,
    /// Names in which there may be what ends a name in a tag, those in other schemas of the whole object included.
    odd_names: Arc<[String]>,
    /// Of those that the schema doesn't name.
    other: ParameterKind,
    /// True if other schemas say something of the whole object, so that a member is valid or not beside the others.
    is_whole: bool,
}

/// What a parameter may be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ParameterKind {
    pub(super) is_string: bool,
    /// Types that it may have beside.
    others: Vec<String>,
    /// All values that it may have.
    listed: Option<Vec<Value>>,
    /// True if a schema says more of a string than that it is one: white space around it is no part of it then, as the
    /// grammar has it free.
    is_restricted: bool,
    /// True if something may be said of it where its own schema isn't: white space is a part of a string if it may be.
    is_said_elsewhere: bool,
    min_chars: u64,
}

/// All types but strings.
const OTHER_TYPES: [&str; 6] = ["null", "boolean", "integer", "number", "array", "object"];

/// As deep as a schema is followed through references and `anyOf`.
const MAX_DEPTH: usize = 64;
/// Most schemas that are looked at: references within `anyOf` may lead to very many. A parameter beyond may be
/// anything.
const MAX_SCHEMAS: usize = 100_000;

impl Default for ParameterKind {
    /// Anything.
    fn default() -> Self {
        Self {
            is_string: true,
            others: OTHER_TYPES.map(str::to_owned).into(),
            listed: None,
            is_restricted: false,
            is_said_elsewhere: false,
            min_chars: 0,
        }
    }
}

impl ParameterKinds {
    /// Those of a schema of an object. Linear in the schema's size, but for references, which lead to
    /// [`MAX_SCHEMAS`] at most.
    pub(in crate::openai) fn new(schema: Value) -> Self {
        let schema = Arc::new(schema);
        let (object, _) = resolved(&schema, &schema);
        let is_whole = APPLICATORS
            .iter()
            .any(|keyword| object.get(keyword).is_some());
        let is_said_elsewhere = is_whole || object.get("patternProperties").is_some();
        let properties = object.get("properties").and_then(Value::as_object);
        let mut left = MAX_SCHEMAS;
        let named = properties.into_iter().flatten();
        let named = named.map(|(name, of)| {
            let mut kind = ParameterKind::new(of, &schema, 0, &mut left);
            kind.is_said_elsewhere |= is_said_elsewhere;
            (name.clone(), kind)
        });
        let named = named.collect();
        let mut odd_names = BTreeSet::new();
        add_odd_names(&schema, &schema, 0, &mut HashSet::new(), &mut odd_names);
        let odd_names = odd_names.into_iter().map(str::to_owned).collect();
        let other = match object.get("additionalProperties") {
            _ if is_said_elsewhere => ParameterKind::said_elsewhere(),
            Some(of) => ParameterKind::new(of, &schema, 0, &mut left),
            None => ParameterKind::default(),
        };
        Self {
            named: Arc::new(named),
            odd_names,
            other,
            is_whole,
            schema,
        }
    }

    /// True if a member is valid or not beside those before it.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// True if a tag may go on with a longer name, one of the schema's, where it has what ends a name: no other name is
    /// allowed to end there then.
    pub(super) fn has_longer_name(&self, name: &str, after_name: &str) -> bool {
        self.odd_names.iter().any(|odd| {
            let rest = odd.strip_prefix(name).unwrap_or_default();
            match rest.len() < after_name.len() {
                true => !rest.is_empty() && format!("{rest}{after_name}").starts_with(after_name),
                false => rest.starts_with(after_name),
            }
        })
    }

    /// The kind of a parameter.
    pub(super) fn of(&self, name: &str) -> ParameterKind {
        self.named.get(name).unwrap_or(&self.other).clone()
    }
}

impl ParameterKinds {
    /// The JSON text of a value that is told whole, which is written like this; `on_own_lines` says whether a line
    /// end before and after a string belongs to the tags. `told` is the arguments' JSON up to the value, where members are
    /// valid or not beside others.
    pub(super) fn json(
        &self,
        name: &str,
        kind: &ParameterKind,
        written: &str,
        on_own_lines: bool,
        told: &str,
    ) -> String {
        let readings = kind.readings(written, on_own_lines);
        // White space that is free in the grammar is more likely to be the tags' than the text's.
        let is_likely = |json: &String| {
            !json.starts_with('"')
                || !(kind.is_restricted || kind.is_said_elsewhere)
                || *json == string(kind.with_min_chars(written))
        };
        let valid_under = |schema: &Value| {
            let schema = schema.to_string();
            let mut unknown = None;
            for json in &readings {
                match is_valid(&schema, &self.object_with(name, json, told)) {
                    Some(true) => return Some(json),
                    None if is_likely(json) => unknown = unknown.or(Some(json)),
                    _ => {}
                }
            }
            unknown
        };
        // The only reading needs no proof. Where members are valid or not beside others, this one may be the last that
        // the object needs, or others follow.
        let found = match readings.len() {
            1 => readings.first(),
            _ if self.is_whole => {
                valid_under(&self.schema).or_else(|| valid_under(&self.schema_of(name)))
            }
            _ => valid_under(&self.schema_of(name)),
        };
        found.or(readings.last()).cloned().unwrap_or_default()
    }

    /// The arguments up to a member and with it, or an object with it alone where others make no difference. It has no
    /// white space: in tags that is free in JSON, and the validator has it as it is usually printed.
    fn object_with(&self, name: &str, json: &str, told: &str) -> String {
        let object = match self.is_whole {
            true => format!("{told}{json}}}"),
            false => format!("{{{}:{json}}}", Value::from(name)),
        };
        compact(&object)
    }

    /// The schema of an object with one of these parameters alone: the smallest part of the whole that says it.
    fn schema_of(&self, name: &str) -> Value {
        let (object, _) = resolved(&self.schema, &self.schema);
        let own = object.get("properties").and_then(|all| all.get(name));
        let is_plain = !APPLICATORS
            .iter()
            .any(|keyword| object.get(keyword).is_some());
        if let Some(own) = own
            && is_plain
            && object.get("patternProperties").is_none()
            && !refers_elsewhere(own)
        {
            let mut schema = json!({"type": "object", "properties": {name: own}});
            for definitions in DEFINITIONS {
                if let Some(given) = self.schema.get(definitions) {
                    schema[definitions] = given.clone();
                }
            }
            return schema;
        }
        let mut schema = (*self.schema).clone();
        drop_requirements(&mut schema, 0);
        schema
    }
}

/// A JSON text without white space.
fn compact(json: &str) -> String {
    let (mut in_text, mut is_escaped) = (false, false);
    let kept = json.chars().filter(|c| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = in_text,
            '"' => in_text = !in_text,
            _ => {}
        }
        in_text || !c.is_ascii_whitespace()
    });
    kept.collect()
}

/// Keywords of an object's schema by which other schemas say something of its members.
const APPLICATORS: [&str; 8] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "dependentSchemas",
    "$ref",
    "$dynamicRef",
];

const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// True if a schema refers to what isn't a definition.
fn refers_elsewhere(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, value)| match name.as_str() {
            "$ref" => value.as_str().is_some_and(|target| {
                !DEFINITIONS.iter().any(|definitions| {
                    target
                        .strip_prefix("#/")
                        .is_some_and(|rest| rest.starts_with(definitions))
                })
            }),
            "$dynamicRef" => true,
            _ => refers_elsewhere(value),
        }),
        Value::Array(items) => items.iter().any(refers_elsewhere),
        _ => false,
    }
}

/// Takes out of an object's schema, and of those that it applies to the same object, what asks for other members.
fn drop_requirements(schema: &mut Value, depth: usize) {
    let Value::Object(members) = schema else {
        return;
    };
    for keyword in ["required", "minProperties", "dependentRequired"] {
        members.shift_remove(keyword);
    }
    if depth >= MAX_DEPTH {
        return;
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let branches = members.get_mut(keyword).and_then(Value::as_array_mut);
        for branch in branches.into_iter().flatten() {
            drop_requirements(branch, depth + 1);
        }
    }
    for keyword in ["then", "else"] {
        if let Some(branch) = members.get_mut(keyword) {
            drop_requirements(branch, depth + 1);
        }
    }
    // Branches of which one holds may both do so without what is required.
    if let Some(branches) = members.shift_remove("oneOf") {
        members.entry("anyOf").or_insert(branches);
    }
    // Definitions may be applied too, and are the members' own.
    for definitions in DEFINITIONS {
        let of = members.get_mut(definitions).and_then(Value::as_object_mut);
        for definition in of.into_iter().flat_map(|of| of.values_mut()) {
            if depth == 0 {
                drop_requirements(definition, MAX_DEPTH);
            }
        }
    }
}

/// Adds the names of an object's members that have signs of a tag in them, from its schema and those that it applies to
/// the same object, each of which is looked at once.
fn add_odd_names<'a>(
    schema: &'a Value,
    root: &'a Value,
    depth: usize,
    seen: &mut HashSet<*const Value>,
    names: &mut BTreeSet<&'a str>,
) {
    if depth >= MAX_DEPTH || !seen.insert(schema) {
        return;
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let all = properties.into_iter().flatten().map(|(name, _)| &**name);
    names.extend(all.filter(|name| name.contains(['<', '>', '"'])));
    for keyword in APPLICATORS.into_iter().chain(["then", "else"]) {
        let next = match (keyword, schema.get(keyword)) {
            (_, None) => continue,
            ("$ref" | "$dynamicRef", Some(_)) => vec![resolved(schema, root).0],
            (_, Some(Value::Array(branches))) => branches.iter().collect(),
            ("dependentSchemas", Some(Value::Object(of))) => of.values().collect(),
            (_, Some(one)) => vec![one],
        };
        for schema in next {
            add_odd_names(schema, root, depth + 1, seen, names);
        }
    }
}

/// True if a schema says more of a string than its type and what it may equal.
fn restricts_strings(schema: &Value) -> bool {
    const KEYWORDS: [&str; 5] = ["enum", "const", "minLength", "maxLength", "pattern"];
    let has_keyword = KEYWORDS.iter().any(|keyword| schema.get(keyword).is_some());
    let format = schema.get("format").and_then(Value::as_str);
    has_keyword || format.is_some_and(|format| FORMATS.contains(&format))
}

/// True if other schemas say something of the same value.
fn is_combined(schema: &Value) -> bool {
    const KEYWORDS: [&str; 4] = ["allOf", "oneOf", "not", "if"];
    KEYWORDS.iter().any(|keyword| schema.get(keyword).is_some())
}

/// Follows a schema's references within `root`. True in the second place if keywords beside one of them restrict a value.
fn resolved<'a>(mut schema: &'a Value, root: &'a Value) -> (&'a Value, bool) {
    let mut has_more = false;
    for _ in 0..MAX_DEPTH {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| root.pointer(reference.strip_prefix('#')?));
        let Some(target) = target else { break };
        has_more |= restricts_strings(schema) || is_combined(schema);
        schema = target;
    }
    (schema, has_more)
}

impl ParameterKind {
    fn new(schema: &Value, root: &Value, depth: usize, left: &mut usize) -> Self {
        if *left == 0 {
            return Self::said_elsewhere();
        }
        let mut kind = Self::default();
        *left -= 1;
        let (schema, has_more) = resolved(schema, root);
        if let Some(branches) = schema.get("anyOf").and_then(Value::as_array)
            && depth < MAX_DEPTH
        {
            kind.is_string = false;
            kind.others.clear();
            let branches = branches.iter();
            let branches = branches.map(|of| Self::new(of, root, depth + 1, left));
            let mut kind = branches.fold(kind, Self::or);
            kind.is_restricted |= restricts_strings(schema);
            kind.is_said_elsewhere |= has_more || is_combined(schema);
            return kind;
        }
        let types: Option<Vec<&str>> = match schema.get("type") {
            Some(Value::String(name)) => Some(vec![name]),
            Some(Value::Array(names)) => Some(names.iter().filter_map(Value::as_str).collect()),
            _ => None,
        };
        if let Some(types) = types {
            kind.is_string = types.contains(&"string");
            kind.others.retain(|name| types.contains(&name.as_str()));
        }
        kind.listed = match (schema.get("enum"), schema.get("const")) {
            (Some(Value::Array(values)), _) => Some(values.clone()),
            (_, Some(value)) => Some(vec![value.clone()]),
            _ => None,
        };
        if let Some(listed) = &kind.listed {
            kind.is_string &= listed.iter().any(Value::is_string);
        }
        kind.min_chars = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0);
        kind.is_restricted = restricts_strings(schema);
        kind.is_said_elsewhere = has_more || is_combined(schema);
        kind
    }

    /// Anything, which a schema says somewhere else.
    fn said_elsewhere() -> Self {
        Self {
            is_said_elsewhere: true,
            ..Self::default()
        }
    }

    /// What is of this kind or of another.
    fn or(mut self, other: Self) -> Self {
        self.is_string |= other.is_string;
        for name in other.others {
            if !self.others.contains(&name) {
                self.others.push(name);
            }
        }
        self.is_restricted |= other.is_restricted;
        self.is_said_elsewhere |= other.is_said_elsewhere;
        self.min_chars = self.min_chars.max(other.min_chars);
        // A list is all that there is only where nothing is beside it.
        self.is_restricted |= self.listed.is_some() || other.listed.is_some();
        self.listed = None;
        self
    }

    /// The kind where the text says whether it is a string.
    pub(super) fn narrowed(self, is_string: bool) -> Self {
        match is_string {
            true => Self {
                is_string: true,
                others: Vec::new(),
                listed: None,
                is_restricted: false,
                is_said_elsewhere: false,
                min_chars: 0,
            },
            false => Self {
                is_string: false,
                listed: None,
                ..self
            },
        }
    }

    /// True if a value has to be whole before anything of it can be told.
    pub(super) fn is_told_whole(&self) -> bool {
        let may_be_other = !self.others.is_empty() || self.listed.is_some();
        self.is_string && (may_be_other || self.is_restricted || self.is_said_elsewhere)
    }

    /// The JSON texts that a written value may stand for, the likeliest first.
    fn readings(&self, written: &str, on_own_lines: bool) -> Vec<String> {
        let trimmed = written.trim();
        let is_json = serde_json::from_str::<&RawValue>(trimmed).is_ok();
        let mut readings = Vec::new();
        let is_listed_text = |listed: &Vec<Value>| listed.iter().all(Value::is_string);
        let may_be_json = !self.listed.as_ref().is_some_and(is_listed_text);
        if may_be_json && is_json && self.allows(trimmed) {
            readings.push(trimmed.to_owned());
        }
        let is_restricted = self.is_restricted || self.listed.is_some();
        if !is_restricted || self.is_said_elsewhere {
            let text = match on_own_lines {
                true => written.strip_prefix('\n').unwrap_or(written),
                false => written,
            };
            let text = match on_own_lines {
                true => text.strip_suffix('\n').unwrap_or(text),
                false => text,
            };
            readings.push(string(text));
        }
        if is_restricted || self.is_said_elsewhere {
            readings.push(string(self.with_min_chars(written)));
            readings.extend(with_less_space_around(written).map(string));
            // Where none is known to be valid.
            readings.push(string(trimmed));
        }
        readings
    }

    /// True for the JSON text of a value of one of the types beside strings.
    fn allows(&self, json: &str) -> bool {
        let has = |name: &str| self.others.iter().any(|other| other == name);
        match json.as_bytes().first() {
            Some(b'n') => has("null"),
            Some(b't' | b'f') => has("boolean"),
            Some(b'[') => has("array"),
            Some(b'{') => has("object"),
            Some(b'"') | None => false,
            Some(_) => {
                let is_whole = || match json.contains(['.', 'e', 'E']) {
                    true => json
                        .parse::<f64>()
                        .is_ok_and(|number| number.fract() == 0.0),
                    false => true,
                };
                has("number") || (has("integer") && is_whole())
            }
        }
    }

    /// A text without white space around it, but for as much as its least length needs.
    fn with_min_chars<'a>(&self, written: &'a str) -> &'a str {
        let (before, rest) = written.split_at(written.len() - written.trim_start().len());
        let (text, after) = rest.split_at(rest.trim_end().len());
        let mut lacking = self.min_chars;
        let mut count = |_: &char| {
            let is_lacking = lacking > 0;
            lacking = lacking.saturating_sub(1);
            is_lacking
        };
        let _ = text.chars().take_while(&mut count).count();
        let after: usize = after
            .chars()
            .take_while(&mut count)
            .map(char::len_utf8)
            .sum();
        let before_len: usize = before
            .chars()
            .rev()
            .take_while(&mut count)
            .map(char::len_utf8)
            .sum();
        let start = before.len() - before_len;
        let end = before.len() + text.len() + after;
        written.get(start..end).unwrap_or(written)
    }
}

/// A text without up to [`MAX_WHITESPACE_IN_TAGS`] signs of white space before and behind it, which is as many as the
/// grammar has free there: the shortest first.
fn with_less_space_around(written: &str) -> impl Iterator<Item = &str> {
    let most = MAX_WHITESPACE_IN_TAGS as usize;
    let cuts = (0..=2 * most).rev().flat_map(move |cut| {
        let before = (cut.saturating_sub(most)..=cut.min(most)).rev();
        before.map(move |before| (before, cut - before))
    });
    cuts.filter_map(move |(before, behind)| {
        let mut text = written;
        for _ in 0..before {
            text = text.strip_prefix(char::is_whitespace)?;
        }
        for _ in 0..behind {
            text = text.strip_suffix(char::is_whitespace)?;
        }
        Some(text)
    })
}

/// A text as a JSON string.
fn string(text: &str) -> String {
    let mut json = String::from("\"");
    push_escaped(&mut json, text);
    json.push('"');
    json
}
