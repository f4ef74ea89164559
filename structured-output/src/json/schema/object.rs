//! The members of objects.

use super::super::node::{self, ANYTHING, NOTHING, NodeId, Nodes};
use super::super::value::Value;
use super::build::Builder;
use super::key_language;
use super::pointer::{Key, escaped};
use super::refusal::{At, Refusal, malformed, refuse};
use super::registry::Members;
use super::{Deferred, draft};
use crate::lexical::{Chars, EMPTY, ExprId, Lexicon};

impl Builder<'_> {
    /// `properties`, `patternProperties` and `additionalProperties`.
    pub(super) fn properties(&mut self) -> Result<NodeId, Refusal> {
        let mut named = Vec::new();
        for (name, schema) in self.map("properties")?.iter() {
            let node = self.schema("properties", At(Key(name)), schema)?;
            named.push((name.as_str().into(), node));
        }
        let mut patterns = Vec::new();
        for (pattern, schema) in self.map("patternProperties")?.iter() {
            let keys = self.pattern_keys(pattern)?;
            let node = self.schema("patternProperties", At(Key(pattern)), schema)?;
            patterns.push((keys, node));
        }
        let additional = match self.keyword("additionalProperties") {
            Some(schema) => self.schema("additionalProperties", "", &schema)?,
            None if self.says("unevaluatedProperties") => ANYTHING,
            None if self.is_strict() => NOTHING,
            None => ANYTHING,
        };
        Ok(self.nodes.members(node::Members {
            named: named.into(),
            patterns: patterns.into(),
            additional,
        }))
    }

    /// Under the option `strict`: an object of a schema with `type: object` and no word of its
    /// members has none.
    pub(super) fn closed(&mut self) -> Result<NodeId, Refusal> {
        let is_object = match self.keyword("type") {
            Some(Value::String(name)) => name == "object",
            Some(Value::Array(names)) => names.contains(&Value::String("object".into())),
            _ => false,
        };
        // Where other keywords speak of its members, those decide.
        let spoken = [
            "$ref",
            "$dynamicRef",
            "$recursiveRef",
            "allOf",
            "anyOf",
            "oneOf",
            "if",
            "unevaluatedProperties",
        ];
        if !is_object || spoken.iter().any(|keyword| self.says(keyword)) {
            return Ok(ANYTHING);
        }
        Ok(self.nodes.members(node::Members {
            named: Box::default(),
            patterns: Box::default(),
            additional: NOTHING,
        }))
    }

    /// True if members that the schema doesn't name are excluded where it says nothing of them. Values that
    /// `const` and `enum` list have the members that they have.
    pub(super) fn is_strict(&self) -> bool {
        self.compiler.is_strict(&self.place) && !self.says("const") && !self.says("enum")
    }

    /// Whether the schema has a keyword that its draft knows.
    pub(super) fn says(&self, keyword: &str) -> bool {
        self.dialect.knows(keyword) && draft::member(&self.members, keyword).is_some()
    }

    /// The entries of a keyword that is a map; none where the keyword is absent.
    pub(super) fn map(&self, keyword: &str) -> Result<Members, Refusal> {
        match self.keyword(keyword) {
            None => Ok(Members::default()),
            Some(Value::Object(map)) => Ok(map),
            Some(other) => Err(malformed(
                &format!("/{keyword}"),
                &other,
                "an object of schemas",
            )),
        }
    }

    /// The keys that match a pattern.
    pub(super) fn pattern_keys(&mut self, pattern: &str) -> Result<ExprId, Refusal> {
        self.matching(pattern, Chars::ANY).map_err(|message| {
            let at = format!("/patternProperties/{}", escaped(pattern));
            refuse(&at, message)
        })
    }

    /// `propertyNames`: no member has another key.
    pub(super) fn property_names(&mut self, value: &Value) -> Result<NodeId, Refusal> {
        let names = self.schema("propertyNames", "", value)?;
        if !key_language::is_defined(self.nodes, names, self.fuel)? {
            let reserved = self.nodes.reserve();
            self.nodes.define(reserved, ANYTHING);
            self.compiler.deferred.push(Deferred {
                reserved,
                names,
                schema: self.place.key(),
            });
            return Ok(reserved);
        }
        let keys = key_language::of_node(self.lexicon, self.nodes, names, self.fuel)?;
        Ok(only_keys(self.lexicon, self.nodes, keys))
    }

    /// `required`.
    pub(super) fn required(&mut self, value: &Value) -> Result<NodeId, Refusal> {
        for node in self.all_present("/required", value)? {
            self.last(node);
        }
        Ok(ANYTHING)
    }

    /// Nodes that say that each of some keys is there.
    pub(super) fn all_present(&mut self, at: &str, names: &Value) -> Result<Vec<NodeId>, Refusal> {
        let right = "a list of names";
        let Value::Array(list) = names else {
            return Err(malformed(at, names, right));
        };
        let mut nodes = Vec::with_capacity(list.len());
        for name in list.iter() {
            let Value::String(name) = name else {
                return Err(malformed(at, name, right));
            };
            nodes.push(self.nodes.has(name));
        }
        Ok(nodes)
    }
}

/// If it is an object, all its keys are in a language.
pub(super) fn only_keys(lexicon: &mut Lexicon, nodes: &mut Nodes, keys: ExprId) -> NodeId {
    let all = key_language::universe(lexicon);
    if keys == all {
        return ANYTHING;
    }
    let others = lexicon.not(keys);
    let others = lexicon.and(&[all, others]);
    if others == EMPTY {
        return ANYTHING;
    }
    nodes.members(node::Members {
        named: Box::default(),
        patterns: [(others, NOTHING)].into(),
        additional: ANYTHING,
    })
}
