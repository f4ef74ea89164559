//! From JSON Schema to shapes.
//!
//! What is enforced so far: `type`, `enum` and `const` of scalars, `minLength`, `maxLength`,
//! `items`, `prefixItems`, `additionalItems`, `minItems`, `maxItems`, `properties`, `required`,
//! `additionalProperties`, local `$ref`, `anyOf` and `oneOf` whose branches differ by type where
//! they are arrays or objects, boolean schemas. Every other assertion is refused with its pointer.

use hashbrown::{HashMap, HashSet};

use super::frame::{Frame, MAX_PROPERTIES};
use super::keyword::{
    BESIDE_ENUM, FORMATS, REFUSED, REFUSED_BY_TYPE, SchemaError, Type, Types, count, error, listed,
    listed_value, restricts_values, scalars,
};
use super::shape::{ArrayShape, ObjectShape, Programs, Property, Shape, ShapeId, free_string};
use super::text::{Spacing, Whitespace};
use super::value::Value;
use crate::lexical::search::DEAD;
use crate::lexical::{EMPTY, ExprId, Lexicon};

/// `anyOf` in `anyOf` at most this deep, by recursion.
const MAX_BRANCH_DEPTH: u32 = 32;

/// What a schema says, before it is a shape.
struct Parts {
    scalars: ExprId,
    array: Option<ArrayShape>,
    object: Option<ObjectShape>,
    types: Types,
}

/// A compilation that can pause between schemas.
pub(crate) struct SchemaCompiler {
    root: Value,
    whitespace: Whitespace,
    started: Option<(Spacing, ShapeId)>,
    first_shape: usize,
    by_pointer: HashMap<String, ShapeId>,
    pending: Vec<(ShapeId, Value, String)>,
}

impl SchemaCompiler {
    pub(crate) fn new(root: Value, whitespace: Whitespace) -> Self {
        Self {
            root,
            whitespace,
            started: None,
            first_shape: 0,
            by_pointer: HashMap::new(),
            pending: Vec::new(),
        }
    }

    /// Compiles up to `max_schemas` more schemas; the frames to start with once all are.
    pub(crate) fn run(
        &mut self,
        lexicon: &mut Lexicon,
        programs: &mut Programs,
        max_schemas: usize,
    ) -> Result<Option<[Frame; 2]>, SchemaError> {
        let (spacing, root) = match self.started {
            Some(started) => started,
            None => {
                let spacing = lexicon.spacing(self.whitespace);
                self.first_shape = programs.len();
                let schema = self.root.clone();
                let root = self.shape_at(programs, spacing, &schema, String::new())?;
                *self.started.insert((spacing, root))
            }
        };
        for _ in 0..max_schemas {
            let Some((id, schema, pointer)) = self.pending.pop() else {
                programs.find_shortest(lexicon, self.first_shape);
                return Ok(Some([
                    Frame::End { shape: root },
                    Frame::Root { shape: root },
                ]));
            };
            let parts = self.parts(lexicon, programs, spacing, (&schema, &pointer), 0)?;
            let shape = Shape {
                spacing,
                scalars: parts.scalars,
                array: parts.array,
                object: parts.object,
                min_bytes: DEAD,
            };
            programs.set(id, shape);
        }
        Ok(None)
    }

    /// A schema behind its `$ref`s, with its pointer.
    fn resolve(&self, schema: &Value, pointer: &str) -> Result<(Value, String), SchemaError> {
        let (mut schema, mut pointer) = (schema.clone(), pointer.to_owned());
        for _ in 0..100 {
            let Some(target) = schema.get("$ref") else {
                return Ok((schema, pointer));
            };
            let at = format!("{pointer}/$ref");
            let restricts = |key: &str| key != "$ref" && restricts_values(key);
            if let Value::Object(members) = &schema
                && members.iter().any(|(key, _)| restricts(key))
            {
                return Err(error(
                    &at,
                    "`$ref` beside other assertions is not supported yet",
                ));
            }
            pointer = match target {
                Value::String(target) => target
                    .strip_prefix('#')
                    .filter(|rest| rest.is_empty() || rest.starts_with('/'))
                    .and_then(percent_decoded)
                    .ok_or_else(|| error(&at, "only `#` and `#/...` are supported yet"))?,
                _ => return Err(error(&at, "a reference is a string")),
            };
            schema = self
                .lookup(&pointer)
                .ok_or_else(|| error(&pointer, "there is no schema here"))?
                .clone();
        }
        Err(error(&pointer, "this `$ref` leads back to itself"))
    }

    fn lookup(&self, pointer: &str) -> Option<&Value> {
        let mut at = &self.root;
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            at = match at {
                Value::Array(items) => items.get(token.parse::<usize>().ok()?)?,
                _ => at.get(&token)?,
            };
        }
        Some(at)
    }

    /// The shape of a schema, compiled later if it is new.
    fn shape_at(
        &mut self,
        programs: &mut Programs,
        spacing: Spacing,
        schema: &Value,
        pointer: String,
    ) -> Result<ShapeId, SchemaError> {
        let (schema, pointer) = self.resolve(schema, &pointer)?;
        if let Some(&known) = self.by_pointer.get(&pointer) {
            return Ok(known);
        }
        let id = programs.reserve(spacing);
        self.by_pointer.insert(pointer.clone(), id);
        self.pending.push((id, schema, pointer));
        Ok(id)
    }

    fn parts(
        &mut self,
        lexicon: &mut Lexicon,
        programs: &mut Programs,
        spacing: Spacing,
        (schema, pointer): (&Value, &str),
        depth: u32,
    ) -> Result<Parts, SchemaError> {
        let (schema, pointer) = self.resolve(schema, pointer)?;
        let members = match &schema {
            Value::Object(members) => members.as_slice(),
            Value::Bool(true) => &[],
            Value::Bool(false) => {
                return Ok(Parts {
                    scalars: EMPTY,
                    array: None,
                    object: None,
                    types: Types(0),
                });
            }
            _ => return Err(error(&pointer, "a schema is an object or a boolean")),
        };
        let at = |key: &str| format!("{pointer}/{key}");
        for (key, value) in members {
            let key = key.as_str();
            if REFUSED.contains(&key) {
                return Err(error(&at(key), format!("`{key}` is not supported yet")));
            }
            let identifies = matches!(key, "$id" | "id") && matches!(value, Value::String(_));
            if identifies && !pointer.is_empty() {
                return Err(error(
                    &at(key),
                    "a schema with its own `$id` is not supported yet",
                ));
            }
        }
        let mut types = self.types(&schema, &pointer)?;
        for (one, keys) in REFUSED_BY_TYPE {
            for key in keys.iter().filter(|key| schema.get(key).is_some()) {
                let number = *one == Type::Number && types.has(Type::Integer);
                if types.has(*one) || number {
                    return Err(error(&at(key), format!("`{key}` is not supported yet")));
                }
            }
        }
        if let (true, Some(Value::String(format))) = (types.has(Type::String), schema.get("format"))
            && FORMATS.contains(&format.as_str())
        {
            let message = format!("format `{format}` is not supported yet");
            return Err(error(&at("format"), message));
        }
        let branches = ["anyOf", "oneOf", "allOf"].map(|key| schema.get(key).map(|v| (key, v)));
        let mut branches = branches.into_iter().flatten();
        if let Some((key, list)) = branches.next() {
            let alone = |other: &str| other == key || !restricts_values(other);
            if branches.next().is_some() || !members.iter().all(|(other, _)| alone(other)) {
                let message = format!("`{key}` beside other assertions is not supported yet");
                return Err(error(&at(key), message));
            }
            return self.branches(lexicon, programs, spacing, (key, list), &pointer, depth);
        }
        if let Some((key, values)) = listed(&schema, &pointer)? {
            if let Some((other, _)) = members.iter().find(|m| BESIDE_ENUM.contains(&m.0.as_str())) {
                let message = format!("`{other}` beside `{key}` is not supported yet");
                return Err(error(&at(other), message));
            }
            let mut ways = Vec::new();
            for value in values {
                let (type_, expr) = listed_value(lexicon, &value, types).ok_or_else(|| {
                    error(&at(key), "arrays and objects here are not supported yet")
                })?;
                if types.has(type_) {
                    ways.push(expr);
                }
            }
            types.0 &= !(Type::Array as u8 | Type::Object as u8);
            return Ok(Parts {
                scalars: lexicon.or(&ways),
                array: None,
                object: None,
                types,
            });
        }
        let array = match types.has(Type::Array) {
            true => Some(self.array(programs, lexicon, spacing, &schema, &pointer)?),
            false => None,
        };
        let object = match types.has(Type::Object) {
            true => Some(self.object(programs, lexicon, spacing, &schema, &pointer)?),
            false => None,
        };
        Ok(Parts {
            scalars: scalars(lexicon, &schema, types, &pointer)?,
            array,
            object,
            types,
        })
    }

    fn types(&self, schema: &Value, pointer: &str) -> Result<Types, SchemaError> {
        let bad = || {
            let message = "expected the name of a type: null, boolean, integer, number, string, \
                           array or object";
            error(&format!("{pointer}/type"), message)
        };
        match schema.get("type") {
            None => Ok(Types::ALL),
            Some(Value::String(name)) => Types::named(name).ok_or_else(bad),
            Some(Value::Array(names)) => names.iter().try_fold(Types(0), |all, name| match name {
                Value::String(name) => Types::named(name)
                    .map(|one| Types(all.0 | one.0))
                    .ok_or_else(bad),
                _ => Err(bad()),
            }),
            Some(_) => Err(bad()),
        }
    }

    /// The union of branches that share no array and no object, and for `oneOf` nothing at all.
    fn branches(
        &mut self,
        lexicon: &mut Lexicon,
        programs: &mut Programs,
        spacing: Spacing,
        (key, list): (&str, &Value),
        pointer: &str,
        depth: u32,
    ) -> Result<Parts, SchemaError> {
        let at = format!("{pointer}/{key}");
        let Value::Array(list) = list else {
            return Err(error(&at, "expected an array of schemas"));
        };
        if list.is_empty() || (key == "allOf" && list.len() > 1) || depth >= MAX_BRANCH_DEPTH {
            return Err(error(&at, format!("this `{key}` is not supported yet")));
        }
        let mut union: Option<Parts> = None;
        for (index, schema) in list.iter().enumerate() {
            let at = format!("{at}/{index}");
            let branch = self.parts(lexicon, programs, spacing, (schema, &at), depth + 1)?;
            union = Some(match union {
                None => branch,
                Some(before) => {
                    let both = |a: bool, b: bool| a && b;
                    let clash = both(before.array.is_some(), branch.array.is_some())
                        || both(before.object.is_some(), branch.object.is_some())
                        || (key == "oneOf" && before.types.overlaps(branch.types));
                    if clash {
                        let message =
                            format!("branches of `{key}` that overlap are not supported yet");
                        return Err(error(&at, message));
                    }
                    Parts {
                        scalars: lexicon.or(&[before.scalars, branch.scalars]),
                        array: before.array.or(branch.array),
                        object: before.object.or(branch.object),
                        types: Types(before.types.0 | branch.types.0),
                    }
                }
            });
        }
        union.ok_or_else(|| error(&at, "expected an array of schemas"))
    }

    fn array(
        &mut self,
        programs: &mut Programs,
        lexicon: &mut Lexicon,
        spacing: Spacing,
        schema: &Value,
        pointer: &str,
    ) -> Result<ArrayShape, SchemaError> {
        let at = |key: &str| format!("{pointer}/{key}");
        let min_items = count(schema, "minItems", pointer)?.unwrap_or(0);
        let max_items = count(schema, "maxItems", pointer)?;
        // An array of `items` is the older spelling of `prefixItems`.
        let (list_key, rest_key) = match (schema.get("prefixItems"), schema.get("items")) {
            (None, Some(Value::Array(_))) => ("items", "additionalItems"),
            _ => ("prefixItems", "items"),
        };
        let mut prefix = Vec::new();
        match schema.get(list_key) {
            Some(Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    let pointer = format!("{}/{index}", at(list_key));
                    prefix.push(self.shape_at(programs, spacing, item, pointer)?);
                }
            }
            Some(_) => return Err(error(&at(list_key), "expected an array of schemas")),
            None => {}
        }
        let rest = match schema.get(rest_key) {
            Some(rest) => self.shape_at(programs, spacing, rest, at(rest_key))?,
            None => programs.any(lexicon, spacing),
        };
        Ok(ArrayShape {
            prefix,
            rest: Some(rest),
            min_items,
            max_items,
        })
    }

    fn object(
        &mut self,
        programs: &mut Programs,
        lexicon: &mut Lexicon,
        spacing: Spacing,
        schema: &Value,
        pointer: &str,
    ) -> Result<ObjectShape, SchemaError> {
        let at = |key: &str| format!("{pointer}/{key}");
        let mut required = Vec::new();
        match schema.get("required") {
            Some(Value::Array(names)) => {
                for name in names.iter() {
                    match name {
                        Value::String(name) => required.push(name.as_str()),
                        _ => return Err(error(&at("required"), "expected an array of strings")),
                    }
                }
            }
            // A boolean in a property is draft 3's spelling, which no later draft knows.
            Some(Value::Bool(_)) | None => {}
            Some(_) => return Err(error(&at("required"), "expected an array of strings")),
        }
        let additional = match schema.get("additionalProperties") {
            Some(other) => self.shape_at(programs, spacing, other, at("additionalProperties"))?,
            None => programs.any(lexicon, spacing),
        };
        let mut names: Vec<(&str, Option<&Value>)> = Vec::new();
        match schema.get("properties") {
            Some(Value::Object(members)) => {
                names.extend(
                    members
                        .iter()
                        .map(|(name, schema)| (name.as_str(), Some(schema))),
                );
            }
            Some(_) => return Err(error(&at("properties"), "expected an object of schemas")),
            None => {}
        }
        let mut known: HashSet<&str> = names.iter().map(|name| name.0).collect();
        let unnamed = required.iter().filter(|&name| known.insert(name));
        names.extend(unnamed.map(|name| (*name, None)));
        if names.len() > MAX_PROPERTIES {
            let message = format!("more than {MAX_PROPERTIES} properties");
            return Err(error(&at("properties"), message));
        }
        let required: HashSet<&str> = required.into_iter().collect();
        let mut properties = Vec::new();
        let mut spellings = Vec::new();
        for (name, described) in names {
            let shape = match described {
                Some(schema) => {
                    let token = name.replace('~', "~0").replace('/', "~1");
                    let pointer = format!("{}/{token}", at("properties"));
                    self.shape_at(programs, spacing, schema, pointer)?
                }
                None => additional,
            };
            spellings.push(lexicon.json_string(name, true));
            properties.push(Property {
                key: lexicon.json_string(name, false),
                shape,
                required: required.contains(name),
            });
        }
        let other_keys = if properties.is_empty() {
            free_string(lexicon)
        } else {
            let char = lexicon.json_constrained_char();
            let body = lexicon.star(char);
            let any = lexicon.json_quoted(body);
            let named = lexicon.or(&spellings);
            let unnamed = lexicon.not(named);
            lexicon.and(&[any, unnamed])
        };
        Ok(ObjectShape {
            properties,
            additional: Some(additional),
            other_keys,
        })
    }
}

/// A reference's fragment with its `%XX` decoded.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?.to_owned();
            bytes.push(u8::from_str_radix(&digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
