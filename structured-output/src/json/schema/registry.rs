//! Documents and what in them can be referred to: resources by URI, schemas by anchor or pointer.
//!
//! Most schemas refer to their own `#/definitions/...` alone, so documents are searched for ids and
//! anchors, and further documents parsed, only when a reference needs it.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::super::value::Value;
use super::draft::{Dialect, member};
use super::meta_schemas;
use super::refusal::cut;
use super::subschemas::held;
use super::uri::{resolve, split_fragment};
use crate::options::Draft;

/// The members of a schema that is an object.
pub(super) type Members = Arc<Vec<(String, Value)>>;

/// A resource of a registry.
pub(super) type ResourceId = u32;

/// A schema, and the resource that it is in.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) value: Value,
    pub(super) resource: ResourceId,
}

/// A schema with a base URI of its own.
pub(super) struct Resource {
    /// Without fragment.
    pub(super) base: String,
    pub(super) root: Value,
    /// The root of its document.
    pub(super) document: ResourceId,
    dialect: Dialect,
}

/// All documents of a compilation.
pub(super) struct Registry {
    draft: Draft,
    max_nesting: usize,
    pub(super) resources: Vec<Resource>,
    /// Resources by the address of their root.
    by_address: HashMap<usize, ResourceId>,
    /// Resources by URI, and schemas by URI and anchor, of the documents that were searched.
    pub(super) sites: HashMap<String, Site>,
    /// By resource and name.
    pub(super) dynamic_anchors: HashMap<(ResourceId, String), Site>,
    /// Resources with dynamic or recursive anchors.
    dynamic: HashSet<ResourceId>,
    pub(super) recursive: HashSet<ResourceId>,
    /// Whether the main document was searched.
    is_searched: bool,
    /// Documents that were not parsed yet, by URI.
    sources: BTreeMap<String, String>,
    /// By the address of a large object that a pointer led through: its members by name, and whether one
    /// of them may be an id.
    pub(super) named: HashMap<usize, Named>,
    /// The last resolution of each reference, and from which resource.
    pub(super) resolved: HashMap<String, (ResourceId, Site)>,
}

/// Where in an object its members are.
pub(super) struct Named {
    places: HashMap<String, usize>,
    has_id: bool,
}

/// Members of an object from which on they are looked up by name.
const MANY_MEMBERS: usize = 16;

/// The address of an object's members: its identity, as long as its document lives.
pub(super) fn address(members: &Members) -> usize {
    Arc::as_ptr(members) as usize
}

impl Registry {
    /// A registry of one document, the resource 0, with others to refer to.
    pub(super) fn new(
        root: Value,
        draft: Draft,
        documents: &BTreeMap<String, String>,
        max_nesting: usize,
    ) -> Result<Self, String> {
        let mut registry = Self {
            draft,
            max_nesting,
            resources: Vec::new(),
            by_address: HashMap::new(),
            sites: HashMap::new(),
            dynamic_anchors: HashMap::new(),
            dynamic: HashSet::new(),
            recursive: HashSet::new(),
            is_searched: false,
            sources: documents.clone(),
            named: HashMap::new(),
            resolved: HashMap::new(),
        };
        let main = registry.add_document("", root);
        registry.identify(main)?;
        Ok(registry)
    }

    pub(super) fn dialect(&self, resource: ResourceId) -> Dialect {
        self.resources[resource as usize].dialect
    }

    /// Whether a dynamic reference can lead to a resource because it is in the dynamic scope.
    pub(super) fn is_dynamic(&self, resource: ResourceId) -> bool {
        self.dynamic.contains(&resource)
    }

    fn add_document(&mut self, uri: &str, root: Value) -> ResourceId {
        let id = self.resources.len() as ResourceId;
        let base = uri.trim_end_matches('#').to_owned();
        if let Value::Object(members) = &root {
            self.by_address.insert(address(members), id);
        }
        if !base.is_empty() {
            let value = root.clone();
            let resource = id;
            self.sites.insert(base.clone(), Site { value, resource });
        }
        self.resources.push(Resource {
            base,
            root,
            document: id,
            dialect: Dialect::of(self.draft),
        });
        id
    }

    /// Reads a document's `$schema` and `$id`, once all documents that these may need are there.
    fn identify(&mut self, document: ResourceId) -> Result<(), String> {
        let root = self.resources[document as usize].root.clone();
        if let Value::Object(members) = &root {
            let dialect = self.dialect_of(members, Dialect::of(self.draft))?;
            let at = &mut self.resources[document as usize];
            at.dialect = dialect;
            if let Some(own) = dialect.id(members) {
                at.base = resolve(&at.base, split_fragment(own).0);
            }
        }
        Ok(())
    }

    /// The dialect that `$schema` says, else the one inherited.
    fn dialect_of(
        &mut self,
        members: &[(String, Value)],
        inherited: Dialect,
    ) -> Result<Dialect, String> {
        let Some(Value::String(uri)) = member(members, "$schema") else {
            return Ok(inherited);
        };
        let uri = uri.trim_end_matches('#');
        if let Some(draft) = Draft::of_meta_schema(uri) {
            return Ok(Dialect::of(draft));
        }
        if self.sources.is_empty() && self.sites.is_empty() {
            return Ok(inherited);
        }
        self.load_documents()?;
        let Some(Value::Object(meta)) = self.sites.get(uri).map(|site| site.value.clone()) else {
            return Ok(inherited);
        };
        let draft = match member(&meta, "$schema") {
            Some(Value::String(uri)) => Draft::of_meta_schema(uri.trim_end_matches('#')),
            _ => None,
        };
        let draft = draft.unwrap_or(inherited.draft);
        match member(&meta, "$vocabulary") {
            Some(Value::Object(known)) => {
                Dialect::of_vocabularies(draft, known).map_err(|unknown| {
                    let shown = cut(&unknown);
                    format!(
                        "vocabulary `{shown}` is required and not known: known are those of drafts \
                         2019-09 and 2020-12"
                    )
                })
            }
            _ => Ok(Dialect::of(draft)),
        }
    }

    /// A member of an object; in constant time where it has many, since thousands of references may lead
    /// through one object of definitions.
    pub(super) fn member_of(&mut self, members: &Members, key: &str) -> Option<Value> {
        match self.named(members) {
            Some(named) => named.places.get(key).map(|&at| members[at].1.clone()),
            None => member(members, key).cloned(),
        }
    }

    fn named(&mut self, members: &Members) -> Option<&Named> {
        if members.len() < MANY_MEMBERS {
            return None;
        }
        // Its document lives as long as the registry, so that the address stays its own.
        let named = self.named.entry(address(members));
        Some(named.or_insert_with(|| {
            let names = members.iter().map(|member| member.0.clone());
            let places: HashMap<String, usize> = names.zip(0..).collect();
            Named {
                has_id: places.contains_key("$id") || places.contains_key("id"),
                places,
            }
        }))
    }

    /// The resource that a schema is in, which may be its own, from the one around it.
    pub(super) fn enter(
        &mut self,
        schema: &Members,
        around: ResourceId,
    ) -> Result<ResourceId, String> {
        if self.named(schema).is_some_and(|named| !named.has_id) {
            return Ok(around);
        }
        let inherited = self.dialect(around);
        let own = match schema.iter().any(|m| matches!(m.0.as_str(), "$id" | "id")) {
            true => inherited.id(schema).map(|id| split_fragment(id).0),
            false => None,
        };
        let Some(own) = own.filter(|own| !own.is_empty()) else {
            return Ok(around);
        };
        if let Some(&known) = self.by_address.get(&address(schema)) {
            return Ok(known);
        }
        let base = resolve(&self.resources[around as usize].base, own);
        let dialect = self.dialect_of(schema, inherited)?;
        let id = self.resources.len() as ResourceId;
        self.resources.push(Resource {
            base,
            root: Value::Object(Arc::clone(schema)),
            document: self.resources[around as usize].document,
            dialect,
        });
        self.by_address.insert(address(schema), id);
        Ok(id)
    }

    /// Searches a document for ids and anchors.
    fn search(&mut self, document: ResourceId) -> Result<(), String> {
        let root = self.resources[document as usize].root.clone();
        let mut pending = vec![Site {
            value: root,
            resource: document,
        }];
        while let Some(site) = pending.pop() {
            let Value::Object(members) = &site.value else {
                continue;
            };
            let resource = self.enter(members, site.resource)?;
            let base = self.resources[resource as usize].base.clone();
            let site = Site {
                value: site.value.clone(),
                resource,
            };
            if self.by_address.get(&address(members)) == Some(&resource) {
                self.sites.entry(base.clone()).or_insert(site.clone());
            }
            let dialect = self.dialect(resource);
            if let Some(id) = dialect.id(members) {
                self.add_anchor(&base, split_fragment(id).1, &site);
            }
            for (keyword, value) in members.iter() {
                match (keyword.as_str(), value) {
                    ("$anchor", Value::String(name)) if dialect.since(Draft::Draft2019_09) => {
                        self.add_anchor(&base, name, &site);
                    }
                    ("$dynamicAnchor", Value::String(name))
                        if dialect.since(Draft::Draft2020_12) =>
                    {
                        self.add_anchor(&base, name, &site);
                        self.dynamic.insert(resource);
                        self.dynamic_anchors
                            .insert((resource, name.clone()), site.clone());
                    }
                    ("$recursiveAnchor", Value::Bool(true)) if dialect.knows("$recursiveRef") => {
                        self.dynamic.insert(resource);
                        self.recursive.insert(resource);
                    }
                    _ => {}
                }
            }
            held(members, &mut |value| {
                pending.push(Site {
                    value: value.clone(),
                    resource,
                });
            });
        }
        Ok(())
    }

    fn add_anchor(&mut self, base: &str, name: &str, site: &Site) {
        if !name.is_empty() {
            let key = format!("{base}#{name}");
            self.sites.entry(key).or_insert(site.clone());
        }
    }

    /// Searches the main document, if it was not.
    pub(super) fn search_main(&mut self) -> Result<(), String> {
        if self.is_searched {
            return Ok(());
        }
        self.is_searched = true;
        self.search(0)
    }

    /// Parses and searches the further documents.
    fn load_documents(&mut self) -> Result<(), String> {
        let mut added = Vec::new();
        for (uri, source) in std::mem::take(&mut self.sources) {
            let root = Value::parse(&source, self.max_nesting).map_err(|error| {
                let (uri, at) = (cut(&uri), error.offset);
                format!("document `{uri}`, at byte {at}: {}", error.message)
            })?;
            added.push((uri, root));
        }
        let added: Vec<ResourceId> = added
            .into_iter()
            .map(|(uri, root)| self.add_document(&uri, root))
            .collect();
        added.iter().try_for_each(|&id| self.identify(id))?;
        added.iter().try_for_each(|&id| self.search(id))
    }

    /// The resource of a URI without fragment.
    pub(super) fn resource(&mut self, uri: &str) -> Result<Site, String> {
        self.search_main()?;
        if !self.sites.contains_key(uri) {
            self.load_documents()?;
        }
        if let (false, Some(source)) = (self.sites.contains_key(uri), meta_schemas::of_uri(uri))
            && let Ok(Value::Array(schemas)) = Value::parse(source, self.max_nesting)
        {
            for schema in schemas.iter() {
                let root = self.add_document("", schema.clone());
                self.identify(root)?;
                self.search(root)?;
            }
        }
        self.sites.get(uri).cloned().ok_or_else(|| {
            let uri = cut(uri);
            format!(
                "there is no document `{uri}`, and none is fetched: put it under `$defs` of this \
                 schema, with `{uri}` as its `$id`"
            )
        })
    }
}
