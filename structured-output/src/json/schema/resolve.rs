//! What references lead to.

use super::super::value::Value;
use super::refusal::cut;
use super::registry::{Registry, ResourceId, Site};
use super::subschemas::is_schema;
use super::uri::{percent_decoded, resolve, split_fragment};

impl Registry {
    /// The schema that a reference from a schema of a resource leads to.
    pub(super) fn resolve(&mut self, reference: &str, from: ResourceId) -> Result<Site, String> {
        if let Some((known_from, site)) = self.resolved.get(reference)
            && *known_from == from
        {
            return Ok(site.clone());
        }
        let (uri, fragment) = split_fragment(reference);
        let base = &self.resources[from as usize];
        let target = resolve(&base.base, uri);
        let root = if target == base.base {
            Site {
                value: base.root.clone(),
                resource: from,
            }
        } else {
            self.resource(&target)?
        };
        let fragment = percent_decoded(fragment).ok_or_else(|| {
            let shown = cut(fragment);
            format!("the fragment `{shown}` is not percent-encoded UTF-8: write `%25` for `%`")
        })?;
        let site = if fragment.is_empty() {
            Some(root)
        } else if fragment.starts_with('/') {
            match self.at_pointer(root, &fragment)? {
                // Many schemas have ids that no one means as a base.
                None if uri.is_empty() => {
                    let document = self.resources[from as usize].document;
                    let root = Site {
                        value: self.resources[document as usize].root.clone(),
                        resource: document,
                    };
                    self.at_pointer(root, &fragment)?
                }
                found => found,
            }
        } else {
            self.search_main()?;
            self.sites.get(&format!("{target}#{fragment}")).cloned()
        };
        let site = site.filter(|site| is_schema(&site.value)).ok_or_else(|| {
            let shown = cut(reference);
            format!(
                "`{shown}` leads to no schema: a reference is the URI of a document that is given, \
                     `#` and a JSON pointer or an anchor in it"
            )
        })?;
        self.resolved
            .insert(reference.to_owned(), (from, site.clone()));
        Ok(site)
    }

    fn at_pointer(&mut self, root: Site, pointer: &str) -> Result<Option<Site>, String> {
        let mut at = root;
        for token in pointer.split('/').skip(1) {
            let token = match token.contains('~') {
                true => token.replace("~1", "/").replace("~0", "~"),
                false => token.to_owned(),
            };
            let next = match &at.value {
                Value::Array(items) => {
                    let index = token.parse().ok();
                    index.and_then(|index: usize| items.get(index)).cloned()
                }
                Value::Object(members) => self.member_of(members, &token),
                _ => None,
            };
            let Some(value) = next else {
                return Ok(None);
            };
            let resource = match &value {
                Value::Object(members) => self.enter(members, at.resource)?,
                _ => at.resource,
            };
            at = Site { value, resource };
        }
        Ok(Some(at))
    }

    /// The schema that a dynamic reference leads to. `scope` is the resources that were entered,
    /// outermost first, as far as they are dynamic.
    pub(super) fn resolve_dynamic(
        &mut self,
        reference: &str,
        from: ResourceId,
        scope: &[ResourceId],
    ) -> Result<Site, String> {
        let site = self.resolve(reference, from)?;
        let name = split_fragment(reference).1;
        let key = (site.resource, name.to_owned());
        // Only where the reference itself leads to a dynamic anchor is it dynamic.
        if !self.dynamic_anchors.contains_key(&key) {
            return Ok(site);
        }
        let outermost = scope
            .iter()
            .find_map(|&resource| self.dynamic_anchors.get(&(resource, name.to_owned())));
        Ok(outermost.cloned().unwrap_or(site))
    }

    /// The schema that `"$recursiveRef": "#"` leads to.
    pub(super) fn resolve_recursive(
        &mut self,
        reference: &str,
        from: ResourceId,
        scope: &[ResourceId],
    ) -> Result<Site, String> {
        let site = self.resolve(reference, from)?;
        if !self.recursive.contains(&site.resource) {
            return Ok(site);
        }
        let outermost = scope
            .iter()
            .find(|resource| self.recursive.contains(*resource));
        Ok(match outermost {
            Some(&resource) => Site {
                value: self.resources[resource as usize].root.clone(),
                resource,
            },
            None => site,
        })
    }
}
