//! Schemas that nothing applies: those under `$defs` that nothing refers to, and what stands beside a
//! `$ref` that hides it. They are looked at for their form only.

use super::super::value::Value;
use super::refusal::{Refusal, refuse};
use super::{Place, SchemaCompiler, Site, Task, registry, subschemas, well_formed};

impl SchemaCompiler {
    /// Keeps the schemas that a schema doesn't apply for later.
    pub(super) fn hold_unapplied(&mut self, place: &Place) {
        let resource = place.resource;
        let is_hidden = self.hiding(place).is_some();
        well_formed::unapplied(
            &place.members,
            self.dialect(place),
            is_hidden,
            &mut |value| {
                let value = value.clone();
                self.unapplied.push(Site { value, resource });
            },
        );
    }

    /// Looks at one that was neither compiled nor looked at, if there is one left.
    pub(super) fn unapplied_task(&mut self) -> Option<Task> {
        while let Some(site) = self.unapplied.pop() {
            if let Value::Object(members) = site.value
                && self.checked.insert(registry::address(&members))
            {
                return Some(Task::Check(Place {
                    members,
                    resource: site.resource,
                    scope: 0,
                }));
            }
        }
        None
    }

    /// Looks whether a schema that nothing applies is well formed, and those in it.
    pub(super) fn check_unapplied(&mut self, place: &Place) -> Result<(), Refusal> {
        let resource = self
            .registry
            .enter(&place.members, place.resource)
            .map_err(|message| refuse("/$schema", message))?;
        let dialect = self.registry.dialect(resource);
        let place = Place {
            resource,
            ..place.clone()
        };
        let hiding = self.hiding(&place).is_some();
        if !hiding {
            well_formed::check(&place.members, dialect)?;
        }
        let known = place.members.iter();
        for member in known.filter(|member| dialect.knows(&member.0)) {
            if hiding && !matches!(member.0.as_str(), "$defs" | "definitions") {
                continue;
            }
            subschemas::held(std::slice::from_ref(member), &mut |value| {
                let value = value.clone();
                self.unapplied.push(Site { value, resource });
            });
        }
        Ok(())
    }
}
