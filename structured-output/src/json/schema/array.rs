//! The items of arrays.

use super::super::node::{ANYTHING, NodeId};
use super::super::value::Value;
use super::build::Builder;
use super::refusal::{At, Refusal, malformed};

impl Builder<'_> {
    /// `prefixItems` and `items`, or the older spelling: a list of `items`, and
    /// `additionalItems`.
    pub(super) fn items(&mut self) -> Result<NodeId, Refusal> {
        let (prefix_key, rest_key) = self.item_keywords();
        let mut prefix = Vec::new();
        if let Some(list) = self.keyword(prefix_key) {
            let Value::Array(list) = &list else {
                let at = format!("/{prefix_key}");
                return Err(malformed(&at, &list, "a list of schemas"));
            };
            for (index, item) in list.iter().enumerate() {
                prefix.push(self.schema(prefix_key, At(index), item)?);
            }
        }
        let rest = match self.keyword(rest_key) {
            Some(rest) => self.schema(rest_key, "", &rest)?,
            None => ANYTHING,
        };
        Ok(self.nodes.items(prefix, rest))
    }

    /// The keywords of the first items, and of all further ones.
    pub(super) fn item_keywords(&self) -> (&'static str, &'static str) {
        match (self.keyword("prefixItems"), self.keyword("items")) {
            (None, Some(Value::Array(_))) => ("items", "additionalItems"),
            _ => ("prefixItems", "items"),
        }
    }

    /// `contains`, with its counts.
    pub(super) fn contains(&mut self, value: &Value) -> Result<NodeId, Refusal> {
        let item = self.schema("contains", "", value)?;
        let min = match self.keyword("minContains") {
            Some(min) => self.count("minContains", &min)?,
            None => 1,
        };
        let least = self.nodes.contains(item, min);
        let Some(max) = self.keyword("maxContains") else {
            return Ok(least);
        };
        let max = self.count("maxContains", &max)?;
        let most = self.nodes.max_contains(item, max);
        Ok(self.nodes.all_of(&[least, most]))
    }
}
