//! A schema's keywords, in their order, to one node.

use std::sync::Arc;

use super::super::node::{ANYTHING, Kinds, NodeId, Nodes};
use super::super::value::Value;
use super::draft::{Dialect, member};
use super::place::ScopeId;
use super::refusal::{Refusal, malformed};
use super::registry::Members;
use super::subschemas::is_schema;
use super::{Place, SchemaCompiler};
use crate::lexical::{ExprId, Fuel, Lexicon, UNBOUNDED};

/// A schema being turned into a node. All schemas in it have nodes.
pub(super) struct Builder<'a> {
    pub(super) compiler: &'a mut SchemaCompiler,
    pub(super) lexicon: &'a mut Lexicon,
    pub(super) nodes: &'a mut Nodes,
    pub(super) fuel: &'a mut Fuel,
    pub(super) place: Place,
    pub(super) members: Members,
    pub(super) dialect: Dialect,
    /// The types that `type` allows.
    pub(super) kinds: Kinds,
    /// Languages that a number or a string has to be in.
    pub(super) numbers: Vec<ExprId>,
    pub(super) strings: Vec<ExprId>,
    /// All else, in the order of the source.
    body: Vec<NodeId>,
    /// What comes last, since it is not to decide in which order properties come: counts, and
    /// names that `required` lists.
    tail: Vec<NodeId>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        compiler: &'a mut SchemaCompiler,
        lexicon: &'a mut Lexicon,
        nodes: &'a mut Nodes,
        place: Place,
        fuel: &'a mut Fuel,
    ) -> Self {
        Self {
            dialect: compiler.dialect(&place),
            compiler,
            lexicon,
            nodes,
            fuel,
            members: Arc::clone(&place.members),
            place,
            kinds: Kinds::ALL,
            numbers: Vec::new(),
            strings: Vec::new(),
            body: Vec::new(),
            tail: Vec::new(),
        }
    }

    /// The schema's node.
    pub(super) fn build(mut self) -> Result<NodeId, Refusal> {
        if let Some((keyword, value)) = self.compiler.hiding(&self.place) {
            return self.referred(&keyword, &value);
        }
        let members = Arc::clone(&self.members);
        let (mut has_items, mut has_properties) = (false, false);
        for (keyword, value) in members.iter() {
            if !self.dialect.knows(keyword) {
                continue;
            }
            let node = match keyword.as_str() {
                "$ref" | "$dynamicRef" | "$recursiveRef" => self.referred(keyword, value)?,
                "type" => {
                    self.types(value)?;
                    ANYTHING
                }
                "enum" => self.listed(value)?,
                "const" => self.constant(value)?,
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
                    self.number(keyword, value)?;
                    ANYTHING
                }
                "minLength" | "maxLength" | "pattern" | "format" => {
                    self.string(keyword, value)?;
                    ANYTHING
                }
                "prefixItems" | "items" | "additionalItems" => {
                    if std::mem::replace(&mut has_items, true) {
                        continue;
                    }
                    self.items()?
                }
                "contains" => self.contains(value)?,
                "uniqueItems" => match value {
                    Value::Bool(true) => self.nodes.unique_items(),
                    Value::Bool(false) => ANYTHING,
                    _ => return Err(malformed("/uniqueItems", value, "true or false")),
                },
                "minItems" => {
                    let min = self.count(keyword, value)?;
                    self.nodes.min_items(min)
                }
                "maxItems" => {
                    let max = self.count(keyword, value)?;
                    self.nodes.max_items(max)
                }
                "properties" | "patternProperties" | "additionalProperties" => {
                    if std::mem::replace(&mut has_properties, true) {
                        continue;
                    }
                    self.properties()?
                }
                "propertyNames" => self.property_names(value)?,
                "required" => self.required(value)?,
                "minProperties" => {
                    let min = self.count(keyword, value)?;
                    let node = self.nodes.min_properties(min);
                    self.tail.push(node);
                    ANYTHING
                }
                "maxProperties" => {
                    let max = self.count(keyword, value)?;
                    let node = self.nodes.max_properties(max);
                    self.tail.push(node);
                    ANYTHING
                }
                "allOf" | "anyOf" | "oneOf" => self.branches(keyword, value)?,
                "not" => {
                    let node = self.schema("not", "", value)?;
                    self.nodes.not(node)
                }
                "if" => self.conditional(value)?,
                "dependentRequired" | "dependentSchemas" | "dependencies" => {
                    self.dependent(keyword, value)?
                }
                "unevaluatedProperties" => {
                    let node = self.unevaluated_properties(value)?;
                    self.tail.insert(0, node);
                    ANYTHING
                }
                "unevaluatedItems" => {
                    let node = self.unevaluated_items(value)?;
                    self.tail.push(node);
                    ANYTHING
                }
                _ => ANYTHING,
            };
            self.body.push(node);
        }
        if self.is_strict() && !has_properties {
            let node = self.closed()?;
            self.body.push(node);
        }
        let mut all = vec![self.nodes.kinds(self.kinds)];
        if !self.numbers.is_empty() {
            let language = self.lexicon.and(&self.numbers);
            all.push(self.nodes.number(language));
        }
        if !self.strings.is_empty() {
            let language = self.lexicon.and(&self.strings);
            // A pattern such as `^name$` tells alternatives apart as a constant does.
            if self.lexicon.is_plain_text(language) {
                self.nodes.note_single_value(language);
            }
            all.push(self.nodes.string(language));
        }
        all.append(&mut self.body);
        all.append(&mut self.tail);
        Ok(self.nodes.all_of(&all))
    }

    /// Adds what comes after all else.
    pub(super) fn last(&mut self, node: NodeId) {
        self.tail.push(node);
    }

    /// Another keyword of the schema, if its draft knows it.
    pub(super) fn keyword(&self, keyword: &str) -> Option<Value> {
        if !self.dialect.knows(keyword) {
            return None;
        }
        member(&self.members, keyword).cloned()
    }

    /// The node of a schema in this one, under a keyword and, where that holds several, at a
    /// place.
    pub(super) fn schema(
        &mut self,
        keyword: &str,
        at: impl std::fmt::Display,
        value: &Value,
    ) -> Result<NodeId, Refusal> {
        let scope = self.compiler.scope_under(self.place.scope, keyword);
        self.schema_in(scope, keyword, at, value)
    }

    /// [`Self::schema`] as a condition: without the option `strict`.
    pub(super) fn condition(
        &mut self,
        keyword: &str,
        at: impl std::fmt::Display,
        value: &Value,
    ) -> Result<NodeId, Refusal> {
        let scope = self.compiler.condition_scope(self.place.scope);
        self.schema_in(scope, keyword, at, value)
    }

    fn schema_in(
        &mut self,
        scope: ScopeId,
        keyword: &str,
        at: impl std::fmt::Display,
        value: &Value,
    ) -> Result<NodeId, Refusal> {
        if !is_schema(value) {
            let at = format!("/{keyword}{at}");
            let right = "a schema, which is an object or a boolean";
            return Err(malformed(&at, value, right));
        }
        self.compiler
            .node(self.nodes, value, self.place.resource, scope)
    }

    fn referred(&mut self, keyword: &str, value: &Value) -> Result<NodeId, Refusal> {
        match self.compiler.referred(&self.place, keyword, value)? {
            Some(site) => {
                let scope = self.place.scope;
                self.compiler
                    .node(self.nodes, &site.value, site.resource, scope)
            }
            None => Ok(ANYTHING),
        }
    }

    /// A count: a whole number, `2.0` and `1e3` included. Beyond what a text can have, all are the same.
    pub(super) fn count(&self, keyword: &str, value: &Value) -> Result<u32, Refusal> {
        let whole = match value {
            Value::Number(text) => whole_number(text),
            _ => None,
        };
        whole
            .map(|count| count.min(UNBOUNDED - 1))
            .ok_or_else(|| malformed(&format!("/{keyword}"), value, "a whole number from 0"))
    }
}

/// The whole number from 0 that a number of JSON is, [`UNBOUNDED`] for those above.
pub(super) fn whole_number(text: &str) -> Option<u32> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let significant = digits.trim_end_matches('0');
    let num_zeros = digits.len() - significant.len();
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    // An exponent with more digits than fit is as good as the largest.
    let exponent = match exponent.parse::<i32>() {
        Ok(exponent) => i64::from(exponent),
        Err(_) if exponent.starts_with('-') => return None,
        Err(_) => i64::from(i32::MAX),
    };
    let zeros = exponent + num_zeros as i64 - fraction.len() as i64;
    if significant.len() as i64 + zeros > 10 {
        return (zeros >= 0).then_some(UNBOUNDED);
    }
    let zeros = "0".repeat(usize::try_from(zeros).ok()?);
    let number: u64 = format!("{significant}{zeros}").parse().ok()?;
    Some(u32::try_from(number).unwrap_or(UNBOUNDED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_however_they_are_written() {
        for (text, expected) in [
            ("0", 0),
            ("0.0e5", 0),
            ("12", 12),
            ("2.0", 2),
            ("1e3", 1_000),
            ("1E+2", 100),
            ("1.5e1", 15),
            ("2500e-2", 25),
            ("0.004e3", 4),
            ("4294967296", UNBOUNDED),
            ("1e400", UNBOUNDED),
            ("1e99999999999999999999", UNBOUNDED),
        ] {
            assert_eq!(whole_number(text), Some(expected), "{text}");
        }
        for text in [
            "-1",
            "1.5",
            "1e-1",
            "25e-2",
            "0.1",
            "1e-99999999999999999999",
            "12345678901234.5",
        ] {
            assert_eq!(whole_number(text), None, "{text}");
        }
    }
}
