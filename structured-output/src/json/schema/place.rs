//! A schema in its surroundings, and what it refers to.

use std::sync::Arc;

use super::super::value::Value;
use super::SchemaCompiler;
use super::draft::Dialect;
use super::refusal::{self, Refusal, refuse};
use super::registry::{Members, ResourceId, Site, address};

/// An interned list of dynamic resources, in the order in which they were entered.
pub(super) type ScopeId = u32;

/// In a scope, beside resources: its schemas are conditions.
const CONDITION: ResourceId = ResourceId::MAX;

/// A schema that is an object, with all that its meaning depends on.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) members: Members,
    pub(super) resource: ResourceId,
    pub(super) scope: ScopeId,
}

/// What tells places apart: a schema's address and the scope.
pub(super) type Key = (usize, ScopeId);

impl Place {
    pub(super) fn key(&self) -> Key {
        (address(&self.members), self.scope)
    }
}

impl SchemaCompiler {
    /// The place of a schema, unless it is a boolean or empty.
    pub(super) fn place(
        &mut self,
        schema: &Value,
        around: ResourceId,
        scope: ScopeId,
    ) -> Result<Option<Place>, Refusal> {
        let Value::Object(members) = schema else {
            return Ok(None);
        };
        if members.is_empty() {
            return Ok(None);
        }
        let resource = self
            .registry
            .enter(members, around)
            .map_err(|message| refuse("/$schema", message))?;
        let scope = if self.registry.is_dynamic(resource) {
            self.scope_with(scope, resource)
        } else {
            scope
        };
        Ok(Some(Place {
            members: Arc::clone(members),
            resource,
            scope,
        }))
    }

    /// The scope of the schemas under a keyword of a schema in one.
    ///
    /// With the option `strict`, what stands in `not`, in `if` and what that leads to, in
    /// `dependentSchemas` and in `contains`, is a condition on values that other schemas describe. It
    /// means what it means without the option: what is denied would be more if it said more, and
    /// what holds only sometimes names some members of an object, not all. Branches of `oneOf` are both: the
    /// one that is met is strict, and whether exactly one is met is asked without the option.
    pub(super) fn scope_under(&mut self, scope: ScopeId, keyword: &str) -> ScopeId {
        let is_condition = matches!(
            keyword,
            "not" | "if" | "then" | "else" | "dependentSchemas" | "dependencies" | "contains"
        );
        match is_condition {
            true => self.condition_scope(scope),
            false => scope,
        }
    }

    /// The scope of a condition in a scope.
    pub(super) fn condition_scope(&mut self, scope: ScopeId) -> ScopeId {
        match self.strict {
            true => self.scope_with(scope, CONDITION),
            false => scope,
        }
    }

    /// Whether objects of a schema have no members but those that it names, where it doesn't say so.
    pub(super) fn is_strict(&self, place: &Place) -> bool {
        self.strict && !self.scopes[place.scope as usize].contains(&CONDITION)
    }

    fn scope_with(&mut self, scope: ScopeId, resource: ResourceId) -> ScopeId {
        let mut list = self.scopes[scope as usize].clone();
        // The outermost counts, so entering it again changes nothing.
        if list.contains(&resource) {
            return scope;
        }
        list.push(resource);
        let next = self.scopes.len() as ScopeId;
        let id = *self.scope_ids.entry(list.clone()).or_insert(next);
        if id == next {
            self.scopes.push(list);
        }
        id
    }

    pub(super) fn dialect(&self, place: &Place) -> Dialect {
        self.registry.dialect(place.resource)
    }

    /// What a keyword that refers to a schema leads to; `None` where it is no such keyword.
    pub(super) fn referred(
        &mut self,
        place: &Place,
        keyword: &str,
        value: &Value,
    ) -> Result<Option<Site>, Refusal> {
        if !matches!(keyword, "$ref" | "$dynamicRef" | "$recursiveRef")
            || !self.dialect(place).knows(keyword)
        {
            return Ok(None);
        }
        let at = || format!("/{keyword}");
        let Value::String(reference) = value else {
            return Err(refusal::malformed(&at(), value, "a URI reference"));
        };
        let scope = &self.scopes[place.scope as usize];
        let site = match keyword {
            "$ref" => self.registry.resolve(reference, place.resource),
            "$dynamicRef" => self
                .registry
                .resolve_dynamic(reference, place.resource, scope),
            _ => self
                .registry
                .resolve_recursive(reference, place.resource, scope),
        };
        site.map(Some).map_err(|message| refuse(&at(), message))
    }

    /// The member that hides all others: `$ref`, in older drafts.
    pub(super) fn hiding(&self, place: &Place) -> Option<(String, Value)> {
        if !self.dialect(place).ref_hides_siblings() {
            return None;
        }
        let found = place.members.iter().find(|member| member.0 == "$ref");
        found.cloned()
    }
}
