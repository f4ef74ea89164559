//! What the schemas that apply in place evaluate.

use std::sync::Arc;

use hashbrown::HashSet;

use super::super::node::{ANYTHING, NodeId};
use super::super::value::Value;
use super::build::Builder;
use super::draft::member;
use super::place::Place;
use super::refusal::{Refusal, refuse};
use crate::lexical::ExprId;
use crate::options::Draft;

/// Schemas that apply in place, at most.
const MAX_IN_PLACE: usize = 10_000;

/// Steps that a name counts for: it takes memory.
const NAME_STEPS: u64 = 4;

/// What an in-place schema evaluates.
pub(super) enum Evaluated {
    All,
    Name(String),
    Pattern(ExprId),
    /// The first items.
    Prefix(usize),
    /// Items that are such.
    Items(NodeId),
}

impl Builder<'_> {
    /// What the schemas that apply in place evaluate, and under which condition: given that this
    /// schema's other keywords hold. `None` where this schema is being compiled, and one of those
    /// is too or has yet to be: its branches may have no nodes.
    pub(super) fn evaluated(
        &mut self,
        keyword: &str,
    ) -> Result<Option<Vec<(Evaluated, NodeId)>>, Refusal> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let own = self.place.clone();
        let is_early = !self.compiler.is_done(own.key());
        let mut pending = vec![(own.clone(), ANYTHING)];
        while let Some((place, condition)) = pending.pop() {
            self.fuel.burn(1 + place.members.len() as u64)?;
            self.nodes.charge(self.fuel)?;
            if !seen.insert((place.key(), condition)) {
                continue;
            }
            if seen.len() > MAX_IN_PLACE {
                let message = format!(
                    "more than {MAX_IN_PLACE} schemas apply to the same value here: at most so many may"
                );
                return Err(refuse(&format!("/{keyword}"), message));
            }
            let is_own = place.key() == own.key();
            if is_early && !is_own && !self.compiler.is_done(place.key()) {
                self.restore(own);
                return Ok(None);
            }
            self.place = place;
            self.members = Arc::clone(&self.place.members);
            self.dialect = self.compiler.dialect(&self.place);
            let step = self.contributions(keyword, is_own, condition, &mut found, &mut pending);
            if step.is_err() {
                // Others were compiled, so they are well-formed: of those only limits are left.
                self.restore(own);
                return step.map(|()| None);
            }
        }
        self.restore(own);
        Ok(Some(found))
    }

    fn restore(&mut self, place: Place) {
        self.members = Arc::clone(&place.members);
        self.dialect = self.compiler.dialect(&place);
        self.place = place;
    }

    /// What the schema in `self.place` evaluates itself, and which schemas apply in place.
    fn contributions(
        &mut self,
        keyword: &str,
        is_own: bool,
        condition: NodeId,
        found: &mut Vec<(Evaluated, NodeId)>,
        pending: &mut Vec<(Place, NodeId)>,
    ) -> Result<(), Refusal> {
        if let Some((hiding, value)) = self.compiler.hiding(&self.place) {
            return self.follow(&hiding, &value, condition, pending);
        }
        let members = Arc::clone(&self.members);
        if keyword == "unevaluatedProperties" {
            if self.keyword("additionalProperties").is_some()
                || (!is_own && self.keyword(keyword).is_some())
            {
                found.push((Evaluated::All, condition));
            }
            let names = self.map("properties")?;
            // Each is kept with its condition.
            self.fuel.burn(NAME_STEPS * names.len() as u64)?;
            for (name, _) in names.iter() {
                found.push((Evaluated::Name(name.clone()), condition));
            }
            for (pattern, _) in self.map("patternProperties")?.iter() {
                let keys = self.pattern_keys(pattern)?;
                found.push((Evaluated::Pattern(keys), condition));
            }
        } else {
            let (prefix, rest) = self.item_keywords();
            if self.keyword(rest).is_some() || (!is_own && self.keyword(keyword).is_some()) {
                found.push((Evaluated::All, condition));
            }
            if let Some(Value::Array(list)) = self.keyword(prefix) {
                found.push((Evaluated::Prefix(list.len()), condition));
            }
            let counts = self.dialect.since(Draft::Draft2020_12);
            if let (true, Some(item)) = (counts, self.keyword("contains")) {
                let item = self.schema("contains", "", &item)?;
                found.push((Evaluated::Items(item), condition));
            }
        }
        let dialect = self.dialect;
        for (key, value) in members.iter().filter(|m| dialect.knows(&m.0)) {
            match (key.as_str(), value) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", _) => {
                    self.follow(key, value, condition, pending)?;
                }
                ("allOf", Value::Array(list)) => {
                    self.fuel.burn(list.len() as u64)?;
                    for schema in list.iter() {
                        self.descend(key, schema, condition, pending)?;
                    }
                }
                ("anyOf" | "oneOf", Value::Array(list)) => {
                    self.fuel.burn(list.len() as u64)?;
                    for schema in list.iter() {
                        let holds = self.schema(key, "", schema)?;
                        let condition = self.nodes.all_of(&[condition, holds]);
                        self.descend(key, schema, condition, pending)?;
                    }
                }
                ("if", _) => {
                    let holds = self.schema("if", "", value)?;
                    let fails = self.nodes.not(holds);
                    let holds = self.nodes.all_of(&[condition, holds]);
                    self.descend("if", value, holds, pending)?;
                    if let Some(then) = member(&members, "then") {
                        self.descend("then", then, holds, pending)?;
                    }
                    if let Some(other) = member(&members, "else") {
                        let fails = self.nodes.all_of(&[condition, fails]);
                        self.descend("else", other, fails, pending)?;
                    }
                }
                // Arrays have no keys for these to depend on.
                ("dependentSchemas" | "dependencies", Value::Object(map))
                    if keyword == "unevaluatedProperties" =>
                {
                    self.fuel.burn(map.len() as u64)?;
                    for (name, schema) in map.iter() {
                        let has = self.nodes.has(name);
                        let condition = self.nodes.all_of(&[condition, has]);
                        self.descend(key, schema, condition, pending)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn follow(
        &mut self,
        keyword: &str,
        value: &Value,
        condition: NodeId,
        pending: &mut Vec<(Place, NodeId)>,
    ) -> Result<(), Refusal> {
        if let Some(site) = self.compiler.referred(&self.place, keyword, value)? {
            let scope = self.place.scope;
            let place = self.compiler.place(&site.value, site.resource, scope)?;
            pending.extend(place.map(|place| (place, condition)));
        }
        Ok(())
    }

    fn descend(
        &mut self,
        keyword: &str,
        schema: &Value,
        condition: NodeId,
        pending: &mut Vec<(Place, NodeId)>,
    ) -> Result<(), Refusal> {
        let Place {
            resource, scope, ..
        } = self.place;
        let scope = self.compiler.scope_under(scope, keyword);
        let place = self.compiler.place(schema, resource, scope)?;
        pending.extend(place.map(|place| (place, condition)));
        Ok(())
    }
}
