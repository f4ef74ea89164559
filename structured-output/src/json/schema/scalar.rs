//! Types, listed values, numbers and strings.

use super::super::decimal::Decimal;
use super::super::enumeration;
use super::super::node::{Kinds, NodeId};
use super::super::value::Value;
use super::build::Builder;
use super::refusal::{Refusal, in_pattern, malformed, refuse};
use crate::bound::Bound;
use crate::lexical::{Chars, ExprId, UNBOUNDED};
use crate::options::Format;

impl Builder<'_> {
    /// `type`.
    pub(super) fn types(&mut self, value: &Value) -> Result<(), Refusal> {
        let names = match value {
            Value::String(_) => std::slice::from_ref(value),
            Value::Array(names) if !names.is_empty() => names.as_slice(),
            _ => {
                let right = "the name of a type or a list of such";
                return Err(malformed("/type", value, right));
            }
        };
        let mut kinds = Kinds(0);
        let mut only_integers = false;
        for name in names {
            let kind = match name {
                Value::String(name) => match name.as_str() {
                    "null" => Kinds::NULL,
                    "boolean" => Kinds::BOOLEAN,
                    "number" => Kinds::NUMBER,
                    "string" => Kinds::STRING,
                    "array" => Kinds::ARRAY,
                    "object" => Kinds::OBJECT,
                    "integer" => {
                        only_integers = true;
                        Kinds(0)
                    }
                    _ => return Err(not_a_type("/type", &Value::String(name.clone()))),
                },
                other => return Err(not_a_type("/type", other)),
            };
            kinds = kinds.union(kind);
        }
        if only_integers && !kinds.contains(Kinds::NUMBER) {
            kinds = kinds.union(Kinds::NUMBER);
            let integer = if self.dialect.integers_have_a_fraction() {
                self.lexicon.json_integer()
            } else {
                self.lexicon.json_whole()
            };
            self.numbers.push(integer);
        }
        self.kinds = kinds;
        Ok(())
    }

    /// Whether `type` allows whole numbers only.
    fn is_integer(&self) -> bool {
        let names = match self.keyword("type") {
            Some(Value::Array(names)) => names,
            Some(name) => vec![name].into(),
            None => return false,
        };
        let has = |kind: &str| {
            let mut names = names.iter();
            names.any(|name| matches!(name, Value::String(name) if name == kind))
        };
        has("integer") && !has("number")
    }

    /// `const`.
    pub(super) fn constant(&mut self, value: &Value) -> Result<NodeId, Refusal> {
        self.equal_to(value, "/const")
    }

    fn equal_to(&mut self, value: &Value, at: &str) -> Result<NodeId, Refusal> {
        let refused = || malformed(at, value, "numbers of at most 1,000 digits");
        if has_long_number(value) {
            return Err(refused());
        }
        let mut deep = Vec::new();
        height_of(value, &mut deep);
        deep.sort_by_key(|&(height, _)| height);
        for (_, value) in deep {
            let node = self.nodes.constant(self.lexicon, value);
            self.compiler.deep_values.extend(node);
        }
        let node = self.nodes.constant(self.lexicon, value);
        // A list of values is one task, however long it is.
        let made = self.lexicon.memory_bytes() + self.nodes.memory_bytes();
        self.fuel
            .check_bytes(self.compiler.bytes_elsewhere + made)?;
        node.ok_or_else(refused)
    }

    /// `enum`: all strings as one language, all numbers as another.
    pub(super) fn listed(&mut self, value: &Value) -> Result<NodeId, Refusal> {
        let Value::Array(values) = value else {
            return Err(malformed("/enum", value, "a list of values"));
        };
        let max = self.compiler.limits.max_enum_entries;
        if values.len() > max {
            return Err(Refusal::Limit {
                limit: "max_enum_entries",
                max: max as u64,
                at: Some("/enum"),
            });
        }
        let mut kinds = Kinds(0);
        let (mut numbers, mut strings, mut ways) = (Vec::new(), Vec::new(), Vec::new());
        let (mut many_numbers, mut many_strings) = (Vec::new(), Vec::new());
        let are_many = values.len() >= enumeration::MANY;
        for (index, value) in values.iter().enumerate() {
            match value {
                Value::Null => kinds = kinds.union(Kinds::NULL),
                Value::Bool(false) => kinds = kinds.union(Kinds::FALSE),
                Value::Bool(true) => kinds = kinds.union(Kinds::TRUE),
                Value::String(text) if are_many => many_strings.push(text.as_str()),
                Value::Number(text) if are_many && enumeration::is_plain(text) => {
                    many_numbers.push(text.as_str());
                }
                Value::String(text) => strings.push(self.nodes.single_string(self.lexicon, text)),
                Value::Number(text) => {
                    let refused = || {
                        let at = format!("/enum/{index}");
                        malformed(&at, value, "a number of at most 1,000 digits")
                    };
                    if has_long_number(value) {
                        return Err(refused());
                    }
                    let language = self.nodes.single_number(self.lexicon, text);
                    let language = language.map_err(|_| refused())?;
                    numbers.push(language);
                }
                Value::Array(_) | Value::Object(_) => {
                    ways.push(self.equal_to(value, &format!("/enum/{index}"))?);
                }
            }
        }
        ways.push(self.nodes.kinds(kinds));
        if !many_numbers.is_empty() {
            numbers.push(self.lexicon.json_numbers(many_numbers));
        }
        if !many_strings.is_empty() {
            strings.push(self.lexicon.json_strings(many_strings));
        }
        if !numbers.is_empty() {
            let language = self.lexicon.or(&numbers);
            let language = self.nodes.number(language);
            let kind = self.nodes.kinds(Kinds::NUMBER);
            ways.push(self.nodes.all_of(&[kind, language]));
        }
        if !strings.is_empty() {
            let language = self.lexicon.or(&strings);
            let language = self.nodes.string(language);
            let kind = self.nodes.kinds(Kinds::STRING);
            ways.push(self.nodes.all_of(&[kind, language]));
        }
        Ok(self.nodes.any_of(&ways))
    }

    /// Bounds and `multipleOf`.
    pub(super) fn number(&mut self, keyword: &str, value: &Value) -> Result<(), Refusal> {
        let at = format!("/{keyword}");
        let text = match (keyword, value) {
            // Draft 4's: `minimum` asks for it.
            ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(_)) => return Ok(()),
            (_, Value::Number(text)) => text.as_str(),
            _ => return Err(malformed(&at, value, "a number")),
        };
        let is_exclusive = |other| self.keyword(other) == Some(Value::Bool(true));
        let language = match keyword {
            "multipleOf" => {
                let digits = text.split(['e', 'E']).next().unwrap_or(text);
                if text.starts_with('-') || !digits.bytes().any(|b| matches!(b, b'1'..=b'9')) {
                    return Err(malformed(&at, value, "a number above 0"));
                }
                match self.is_integer() {
                    true => self.lexicon.json_whole_multiple_of(text),
                    false => self.lexicon.json_multiple_of(text),
                }
            }
            "minimum" => {
                let low = (text, !is_exclusive("exclusiveMinimum"));
                // One language for both bounds.
                let maximum = match self.keyword("maximum") {
                    Some(Value::Number(maximum)) => Some(maximum),
                    _ => None,
                };
                let is_inclusive = !is_exclusive("exclusiveMaximum");
                let high = maximum.as_deref().map(|maximum| (maximum, is_inclusive));
                self.lexicon.json_number_range(Some(low), high)
            }
            "exclusiveMinimum" => self.lexicon.json_number_range(Some((text, false)), None),
            "exclusiveMaximum" => self.lexicon.json_number_range(None, Some((text, false))),
            // With a minimum it was read already.
            _ if matches!(self.keyword("minimum"), Some(Value::Number(_))) => return Ok(()),
            _ => {
                let high = (text, !is_exclusive("exclusiveMaximum"));
                self.lexicon.json_number_range(None, Some(high))
            }
        };
        let language = language.map_err(|message| refuse(&at, message))?;
        self.numbers.push(language);
        Ok(())
    }

    /// Lengths, `pattern` and `format`.
    pub(super) fn string(&mut self, keyword: &str, value: &Value) -> Result<(), Refusal> {
        let language = match (keyword, value) {
            // With one of these it is read already.
            ("minLength" | "maxLength", _)
                if self.says("pattern")
                    || self.format()?.is_some()
                    || (keyword == "maxLength" && self.says("minLength")) =>
            {
                self.count(keyword, value)?;
                return Ok(());
            }
            ("minLength" | "maxLength", _) => {
                let Chars { min, max } = self.lengths()?;
                self.lexicon.json_string_length(min, max)
            }
            ("pattern", Value::String(pattern)) => {
                let lengths = self.lengths()?;
                self.matching(pattern, lengths)
                    .map_err(|message| refuse("/pattern", message))?
            }
            ("format", Value::String(_)) => match self.format()? {
                Some(language) => language,
                None => return Ok(()),
            },
            _ => return Err(malformed(&format!("/{keyword}"), value, "a string")),
        };
        self.strings.push(language);
        Ok(())
    }
}

impl Builder<'_> {
    /// The strings of some length that match a pattern; else why there are none to be had.
    pub(super) fn matching(&mut self, pattern: &str, length: Chars) -> Result<ExprId, String> {
        let key = (pattern.to_owned(), length);
        if let Some(&known) = self.compiler.patterns.get(&key) {
            return Ok(known);
        }
        let limits = &self.compiler.limits.regex;
        let language = self
            .lexicon
            .json_string_pattern_of_length(pattern, length, limits)
            .map_err(|error| in_pattern(pattern, &error))?;
        self.compiler.patterns.insert(key, language);
        Ok(language)
    }

    /// The strings of `format`, with the lengths where no `pattern` takes them; `None` where it is
    /// an annotation.
    fn format(&mut self) -> Result<Option<ExprId>, Refusal> {
        let format = match self.keyword("format") {
            Some(Value::String(format)) if self.compiler.format == Format::Assert => format,
            _ => return Ok(None),
        };
        let lengths = match self.says("pattern") {
            true => Chars::ANY,
            false => self.lengths()?,
        };
        Ok(self.lexicon.json_string_format_of_length(&format, lengths))
    }

    /// `minLength` and `maxLength`.
    fn lengths(&self) -> Result<Chars, Refusal> {
        let count = |keyword, absent| match self.keyword(keyword) {
            Some(value) => self.count(keyword, &value),
            None => Ok(absent),
        };
        Ok(Chars {
            min: count("minLength", 0)?,
            max: count("maxLength", UNBOUNDED)?,
        })
    }
}

/// Whether a type has this name.
pub(super) fn is_type(name: &str) -> bool {
    let names = [
        "null", "boolean", "integer", "number", "string", "array", "object",
    ];
    names.contains(&name)
}

/// Every so many levels a part of a value is looked at by itself: fewer than are looked at in one piece.
const LEVELS_AT_ONCE: usize = Bound::Nesting.max() / 2;

/// How many levels of arrays and objects a value has, and the parts of it at every so many. Recursion is
/// bounded by the nesting of the source.
fn height_of<'v>(value: &'v Value, deep: &mut Vec<(usize, &'v Value)>) -> usize {
    let inner = match value {
        Value::Array(items) => items.iter().map(|item| height_of(item, deep)).max(),
        Value::Object(members) => members.iter().map(|m| height_of(&m.1, deep)).max(),
        _ => return 0,
    };
    let height = inner.unwrap_or(0) + 1;
    if height.is_multiple_of(LEVELS_AT_ONCE) {
        deep.push((height, value));
    }
    height
}

/// Whether a number in a value takes more digits than are written out. Recursion is bounded by the
/// nesting of the source.
fn has_long_number(value: &Value) -> bool {
    match value {
        Value::Number(text) => Decimal::parse(text).is_err(),
        Value::Array(items) => items.iter().any(has_long_number),
        Value::Object(members) => members.iter().any(|member| has_long_number(&member.1)),
        _ => false,
    }
}

fn not_a_type(at: &str, value: &Value) -> Refusal {
    let right = "the name of a type (null, boolean, integer, number, string, array, object)";
    malformed(at, value, right)
}
