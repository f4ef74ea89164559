//! Combinations of schemas.

use super::super::node::{ANYTHING, Kinds, NodeId};
use super::super::value::Value;
use super::build::Builder;
use super::pointer::{Key, escaped};
use super::refusal::{At, Refusal, malformed};

impl Builder<'_> {
    /// `allOf`, `anyOf`, `oneOf`.
    pub(super) fn branches(&mut self, keyword: &str, value: &Value) -> Result<NodeId, Refusal> {
        let list = match value {
            // No branch is nothing that has to hold.
            Value::Array(list) if !list.is_empty() || keyword == "allOf" => list,
            _ => {
                let at = format!("/{keyword}");
                return Err(malformed(&at, value, "a list of at least one schema"));
            }
        };
        let mut branches = Vec::with_capacity(list.len());
        for (index, schema) in list.iter().enumerate() {
            branches.push(self.schema(keyword, At(index), schema)?);
        }
        Ok(match keyword {
            "allOf" if branches.is_empty() => ANYTHING,
            "allOf" => self.nodes.all_of(&branches),
            "anyOf" => self.nodes.any_of(&branches),
            _ => {
                let one = self.one_branch(list)?;
                // Of branches that are equal without the option no more has to hold.
                match self.nodes.one_of(&branches) {
                    same if same == one => one,
                    _ => {
                        let own = self.nodes.any_of(&branches);
                        self.nodes.all_of(&[own, one])
                    }
                }
            }
        })
    }

    /// Exactly one branch of a `oneOf` holds, each without the option `strict`: a value that two
    /// of them allow is not valid, though the option may leave it to one.
    fn one_branch(&mut self, list: &[Value]) -> Result<NodeId, Refusal> {
        let mut branches = Vec::with_capacity(list.len());
        for (index, schema) in list.iter().enumerate() {
            branches.push(self.condition("oneOf", At(index), schema)?);
        }
        Ok(self.nodes.one_of(&branches))
    }

    /// `if` with `then` and `else`.
    pub(super) fn conditional(&mut self, value: &Value) -> Result<NodeId, Refusal> {
        let condition = self.schema("if", "", value)?;
        let mut all = [ANYTHING; 2];
        if let Some(then) = self.keyword("then") {
            let then = self.schema("then", "", &then)?;
            let not = self.nodes.not(condition);
            all[0] = self.nodes.any_of(&[not, then]);
        }
        if let Some(other) = self.keyword("else") {
            let other = self.schema("else", "", &other)?;
            all[1] = self.nodes.any_of(&[condition, other]);
        }
        Ok(self.nodes.all_of(&all))
    }

    /// `dependentRequired`, `dependentSchemas`, and `dependencies`, which is either.
    pub(super) fn dependent(&mut self, keyword: &str, value: &Value) -> Result<NodeId, Refusal> {
        let Value::Object(map) = value else {
            let right = match keyword {
                "dependentRequired" => "an object of lists of names",
                "dependentSchemas" => "an object of schemas",
                _ => "an object of schemas and lists of names",
            };
            return Err(malformed(&format!("/{keyword}"), value, right));
        };
        let mut all = Vec::with_capacity(map.len());
        for (name, needs) in map.iter() {
            let at = format!("/{keyword}/{}", escaped(name));
            let needs = match (keyword, needs) {
                ("dependentRequired", _) | ("dependencies", Value::Array(_)) => {
                    let names = self.all_present(&at, needs)?;
                    self.nodes.all_of(&names)
                }
                _ => self.schema(keyword, At(Key(name)), needs)?,
            };
            let absent = self.absent(name);
            all.push(self.nodes.any_of(&[absent, needs]));
        }
        Ok(self.nodes.all_of(&all))
    }

    /// It is no object, or has no such member.
    fn absent(&mut self, name: &str) -> NodeId {
        let has = self.nodes.has(name);
        self.nodes.unless(Kinds::OBJECT, has)
    }
}
