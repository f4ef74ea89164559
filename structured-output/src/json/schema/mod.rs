//! From JSON Schema to nodes.
//!
//! A work list, no recursion: the schemas in a schema are compiled before it, so that its node is
//! interned by content; a schema that is reached again while it is being compiled becomes a
//! reference, defined when it is done.
//!
//! | file | idea |
//! |---|---|
//! | `draft` | which draft knows which keyword |
//! | `uri`, `registry`, `meta_schemas` | documents, and what in them can be referred to |
//! | `resolve`, `pointer` | what references lead to; where a schema is |
//! | `place` | a schema in its surroundings |
//! | `subschemas` | where a schema has schemas in it |
//! | `well_formed` | whether keywords have the form that the meta-schemas ask for |
//! | `unapplied` | schemas that nothing applies |
//! | `build` | a schema's keywords, in their order, to one node |
//! | `scalar`, `array`, `object`, `combine` | the keywords one by one |
//! | `evaluated`, `unevaluated` | what a schema's other keywords leave to `unevaluated...` |
//! | `circular` | schemas that refer to themselves for the same value |
//! | `key_language` | which strings a node allows, for `propertyNames` |
//! | `no_value` | which part is why no value is valid |
//! | `dearest` | which schema was dearest to compile |
//! | `values` | the values that a schema speaks of, to look at each by itself |

mod array;
mod build;
mod circular;
mod combine;
mod dearest;
mod draft;
mod evaluated;
mod key_language;
mod meta_schemas;
mod no_value;
mod object;
mod place;
mod pointer;
mod refusal;
mod registry;
mod resolve;
mod scalar;
mod subschemas;
#[cfg(test)]
pub(super) mod tests;
mod unapplied;
mod unevaluated;
mod uri;
mod values;
mod well_formed;

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::node::{ANYTHING, NOTHING, NodeId, Nodes};
use super::value::Value;
use crate::bound::Bound;
use crate::error::{CompileError, ProblemPlace};
use crate::lexical::{Chars, ExprId, Fuel, Lexicon, Stop};
use crate::options::{Format, JsonSchemaOptions, Limits};
use crate::regex::RegexLimits;
use circular::{circular, needs_itself};
use dearest::Dearest;
use place::{Key, Place, ScopeId};
pub(super) use refusal::in_pattern;
use refusal::{Refusal, malformed, refuse};
use registry::{Registry, ResourceId, Site};
use subschemas::applied;

pub(crate) use values::Part;

enum Task {
    /// Compile a schema: first what is in it.
    Enter(Place),
    /// Now all that is in it is known, or being compiled around it.
    Leave(Place),
    /// Look whether one that nothing applies is well formed.
    Check(Place),
    /// Say what a schema's `unevaluated...` says, which needed schemas that were not compiled yet.
    Unevaluated {
        place: Place,
        keyword: &'static str,
        reserved: NodeId,
    },
}

/// What is known of a schema.
#[derive(Clone, Copy)]
enum State {
    /// It is being compiled; the reference to it, if it was reached again.
    Open(Option<NodeId>),
    Done(NodeId),
}

/// A node whose key language needs nodes that were not defined yet.
struct Deferred {
    reserved: NodeId,
    names: NodeId,
    /// The schema with `propertyNames`.
    schema: Key,
}

/// A compilation that can pause between schemas.
pub(crate) struct SchemaCompiler {
    registry: Registry,
    format: Format,
    strict: bool,
    limits: SchemaLimits,
    /// Whether dynamic references may occur.
    is_dynamic: bool,
    scopes: Vec<Vec<ResourceId>>,
    scope_ids: HashMap<Vec<ResourceId>, ScopeId>,
    root: Value,
    is_started: bool,
    pending: Vec<Task>,
    /// Tasks for when all schemas are compiled.
    last: Vec<Task>,
    /// Schemas that nothing applies, each in the resource around it, of which some may have been referred to.
    unapplied: Vec<Site>,
    /// Addresses of those that are known to be well formed, or are being looked at.
    checked: HashSet<usize>,
    states: HashMap<Key, State>,
    /// References and what they refer to.
    references: Vec<(NodeId, Key)>,
    deferred: Vec<Deferred>,
    /// Languages of patterns met so far, with bounds of length: many occur often.
    patterns: HashMap<(String, Chars), ExprId>,
    /// What schemas have cost so far: expressions and steps.
    dearest: Dearest,
    /// What those that may be met in many ways weigh.
    weights: HashMap<Key, values::Weight>,
    /// Whether one of them may be dear to look at.
    may_be_dear: bool,
    /// Parts of listed values that are nested deeper than is looked at in one piece, each after those in it.
    pub(crate) deep_values: Vec<NodeId>,
    /// Whether schemas are nested deeper, references included, than is looked at in one piece.
    is_deep: bool,
    /// Bytes of states that are held beside the expressions and the nodes.
    bytes_elsewhere: usize,
}

/// The limits that a schema is held to.
#[derive(Clone, Copy)]
struct SchemaLimits {
    max_schema_nodes: usize,
    max_enum_entries: usize,
    regex: RegexLimits,
}

impl SchemaCompiler {
    /// A compilation of a schema's text.
    ///
    /// # Errors
    /// [`CompileError::JsonSyntax`]; [`CompileError::JsonSchema`] where the documents that
    /// `$schema` needs are malformed.
    pub(crate) fn new(
        source: &str,
        options: &JsonSchemaOptions,
        limits: &Limits,
    ) -> Result<Self, CompileError> {
        let root = Value::parse(source, limits.max_nesting)
            .map_err(|error| CompileError::json_syntax(source, error.offset, error.message))?;
        // Or an escape that may spell them.
        let is_dynamic = ["$dynamic", "$recursive", "\\u00"]
            .iter()
            .any(|word| source.contains(word));
        let registry = Registry::new(
            root.clone(),
            options.draft,
            &options.documents,
            limits.max_nesting,
        )
        .map_err(|message| CompileError::JsonSchema {
            pointer: "/$schema".into(),
            message,
        })?;
        Ok(Self {
            registry,
            format: options.format,
            strict: options.strict,
            limits: SchemaLimits {
                max_schema_nodes: limits.max_schema_nodes,
                max_enum_entries: limits.max_enum_entries,
                regex: limits.regex(),
            },
            is_dynamic,
            scopes: vec![Vec::new()],
            scope_ids: HashMap::new(),
            root,
            is_started: false,
            pending: Vec::new(),
            last: Vec::new(),
            unapplied: Vec::new(),
            checked: HashSet::new(),
            states: HashMap::new(),
            references: Vec::new(),
            deferred: Vec::new(),
            patterns: HashMap::new(),
            dearest: Dearest::default(),
            weights: HashMap::new(),
            may_be_dear: false,
            deep_values: Vec::new(),
            is_deep: false,
            bytes_elsewhere: 0,
        })
    }

    /// Bytes of the schema's values.
    pub(crate) fn source_bytes(&self) -> usize {
        self.root.memory_bytes()
    }

    /// Does up to `max_tasks` more tasks, two for each schema and some for `unevaluated...`; the root's
    /// node once all are done. Takes a step for each task, and more for what takes longer. The bytes that `fuel`
    /// limits are those of expressions, nodes and `bytes_elsewhere`.
    ///
    /// # Errors
    /// [`Stop`]; within, [`CompileError::JsonSchema`] with the pointer of what is malformed or can't
    /// be enforced, and [`CompileError::LimitExceeded`].
    pub(crate) fn run(
        &mut self,
        lexicon: &mut Lexicon,
        nodes: &mut Nodes,
        max_tasks: usize,
        bytes_elsewhere: usize,
        fuel: &mut Fuel,
    ) -> Result<Result<Option<NodeId>, CompileError>, Stop> {
        self.bytes_elsewhere = bytes_elsewhere;
        match self.run_tasks(lexicon, nodes, max_tasks, fuel) {
            Ok(done) => Ok(Ok(done)),
            Err((Refusal::Stopped(stop), _)) => Err(stop),
            Err((refusal, key)) => Ok(Err(self.error(&refusal, key))),
        }
    }

    fn run_tasks(
        &mut self,
        lexicon: &mut Lexicon,
        nodes: &mut Nodes,
        max_tasks: usize,
        fuel: &mut Fuel,
    ) -> Result<Option<NodeId>, (Refusal, Option<Key>)> {
        if !self.is_started {
            self.is_started = true;
            self.start().map_err(|refusal| (refusal, None))?;
        }
        for _ in 0..max_tasks {
            let task = self.pending.pop().or_else(|| self.last.pop());
            let Some(task) = task.or_else(|| self.unapplied_task()) else {
                return self.finish(lexicon, nodes, fuel).map(Some);
            };
            let (Task::Enter(place)
            | Task::Leave(place)
            | Task::Check(place)
            | Task::Unevaluated { place, .. }) = &task;
            let key = place.key();
            let before = (fuel.left(), lexicon.len());
            let mut work = || {
                fuel.burn(1)?;
                match &task {
                    Task::Enter(place) => self.enter(place)?,
                    Task::Leave(place) => self.leave(lexicon, nodes, place, fuel)?,
                    Task::Check(place) => self.check_unapplied(place)?,
                    Task::Unevaluated {
                        place,
                        keyword,
                        reserved,
                    } => {
                        let place = place.clone();
                        let builder = build::Builder::new(self, lexicon, nodes, place, fuel);
                        let node = builder.unevaluated(keyword)?;
                        nodes.define(*reserved, node);
                    }
                }
                nodes.charge(fuel)?;
                let made = lexicon.memory_bytes() + nodes.memory_bytes();
                Ok(fuel.check_bytes(self.bytes_elsewhere + made)?)
            };
            let done: Result<(), Refusal> = work();
            let cost = before.0 - fuel.left() + (lexicon.len() - before.1) as u64;
            self.dearest.spend(cost);
            done.map_err(|refusal| (refusal, Some(key)))?;
            match task {
                Task::Enter(_) | Task::Check(_) => {}
                Task::Leave(_) => self.dearest.leave(),
                Task::Unevaluated { .. } => self.dearest.note(key, cost),
            }
        }
        Ok(None)
    }

    /// An error of a budget, with the innermost schema that has needed more of it than all others.
    pub(crate) fn blame(&self, error: CompileError) -> CompileError {
        match error {
            CompileError::LimitExceeded {
                limit,
                max,
                place: None,
            } => CompileError::LimitExceeded {
                limit,
                max,
                place: Some(self.place_of_key(self.dearest.key())),
            },
            error => error,
        }
    }

    /// A schema's place for an error; that of the whole one, if none is at fault by itself.
    fn place_of_key(&self, key: Option<Key>) -> ProblemPlace {
        let (document, pointer) = key
            .map(|key| self.registry.pointer(key.0))
            .unwrap_or_default();
        ProblemPlace::in_document(&document, pointer)
    }

    fn start(&mut self) -> Result<(), Refusal> {
        if !subschemas::is_schema(&self.root) {
            let right = "a schema, which is an object or a boolean";
            return Err(malformed("", &self.root, right));
        }
        if self.is_dynamic {
            self.registry
                .search_main()
                .map_err(|message| refuse("", message))?;
        }
        let root = self.root.clone();
        if let Some(place) = self.place(&root, 0, 0)? {
            self.pending.push(Task::Enter(place));
        }
        Ok(())
    }

    fn enter(&mut self, place: &Place) -> Result<(), Refusal> {
        if self.states.contains_key(&place.key()) {
            return Ok(());
        }
        if self.states.len() >= self.limits.max_schema_nodes {
            return Err(Refusal::Limit {
                limit: "max_schema_nodes",
                max: self.limits.max_schema_nodes as u64,
                at: None,
            });
        }
        self.states.insert(place.key(), State::Open(None));
        self.dearest.enter(place.key());
        self.is_deep |= self.dearest.depth() > Bound::Nesting.max();
        self.pending.push(Task::Leave(place.clone()));
        let members = Arc::clone(&place.members);
        let is_new = self.checked.insert(place.key().0);
        if is_new {
            self.hold_unapplied(place);
        }
        if let Some((keyword, value)) = self.hiding(place) {
            return self.enter_referred(place, &keyword, &value);
        }
        if is_new {
            well_formed::check(&members, self.dialect(place))?;
        }
        for (keyword, value) in members.iter().filter(|member| member.0.starts_with('$')) {
            self.enter_referred(place, keyword, value)?;
        }
        let mut inner = Vec::new();
        applied(&members, self.dialect(place), &mut |keyword, schema| {
            inner.push((keyword.to_owned(), schema.clone()));
        });
        for (keyword, schema) in inner {
            let scope = self.scope_under(place.scope, &keyword);
            self.enter_later(&schema, place.resource, scope)?;
            // Whether exactly one branch holds is asked without the option `strict`.
            let condition = self.condition_scope(scope);
            if keyword == "oneOf" && condition != scope {
                self.enter_later(&schema, place.resource, condition)?;
            }
        }
        Ok(())
    }

    fn enter_referred(
        &mut self,
        place: &Place,
        keyword: &str,
        value: &Value,
    ) -> Result<(), Refusal> {
        match self.referred(place, keyword, value)? {
            Some(site) => self.enter_later(&site.value, site.resource, place.scope),
            None => Ok(()),
        }
    }

    fn enter_later(
        &mut self,
        schema: &Value,
        around: ResourceId,
        scope: ScopeId,
    ) -> Result<(), Refusal> {
        if let Some(place) = self.place(schema, around, scope)?
            && !self.states.contains_key(&place.key())
        {
            self.pending.push(Task::Enter(place));
        }
        Ok(())
    }

    fn leave(
        &mut self,
        lexicon: &mut Lexicon,
        nodes: &mut Nodes,
        place: &Place,
        fuel: &mut Fuel,
    ) -> Result<(), Refusal> {
        let node = build::Builder::new(self, lexicon, nodes, place.clone(), fuel).build()?;
        self.weigh(place);
        let before = self.states.insert(place.key(), State::Done(node));
        if let Some(State::Open(Some(reserved))) = before {
            nodes.define(reserved, node);
        }
        Ok(())
    }

    fn is_done(&self, key: Key) -> bool {
        matches!(self.states.get(&key), Some(State::Done(_)))
    }

    /// The node of a schema in a place, which has been compiled or is being compiled.
    fn node(
        &mut self,
        nodes: &mut Nodes,
        schema: &Value,
        around: ResourceId,
        scope: ScopeId,
    ) -> Result<NodeId, Refusal> {
        if *schema == Value::Bool(false) {
            return Ok(NOTHING);
        }
        let Some(place) = self.place(schema, around, scope)? else {
            return Ok(ANYTHING);
        };
        let key = place.key();
        match self.states.get_mut(&key) {
            Some(State::Done(node) | State::Open(Some(node))) => Ok(*node),
            Some(State::Open(reference @ None)) => {
                let reserved = *reference.insert(nodes.reserve());
                self.references.push((reserved, key));
                Ok(reserved)
            }
            None => Err(refuse("", "a schema in it was not compiled")),
        }
    }

    fn finish(
        &mut self,
        lexicon: &mut Lexicon,
        nodes: &mut Nodes,
        fuel: &mut Fuel,
    ) -> Result<NodeId, (Refusal, Option<Key>)> {
        let root = self.place(&self.root.clone(), 0, 0);
        let root = root.ok().flatten().map(|place| place.key());
        for &(reference, key) in &self.references {
            // Of the whole schema that would be of no use to anyone.
            let of = Some(key);
            if of != root && needs_itself(nodes, reference, fuel).map_err(|out| (out.into(), of))? {
                nodes.define(reference, NOTHING);
            }
        }
        let circular = circular(nodes, &self.references, fuel);
        if let Some(key) = circular.map_err(|out| (out.into(), None))? {
            let message = "this schema refers to itself for the same value, which says nothing: let \
                           the reference be of a member or an item, or leave it out";
            let refusal = refuse("", message);
            return Err((refusal, Some(key)));
        }
        for deferred in std::mem::take(&mut self.deferred) {
            let keys = key_language::of_node(lexicon, nodes, deferred.names, fuel);
            let keys = keys.map_err(|out| (out.into(), Some(deferred.schema)))?;
            let node = object::only_keys(lexicon, nodes, keys);
            nodes.define(deferred.reserved, node);
        }
        let root = self.root.clone();
        self.node(nodes, &root, 0, 0)
            .map_err(|refusal| (refusal, None))
    }

    /// A refusal of the schema at an address as the caller sees it.
    fn error(&self, refusal: &Refusal, key: Option<Key>) -> CompileError {
        match refusal {
            Refusal::Limit { limit, max, at } => CompileError::LimitExceeded {
                limit,
                max: *max,
                place: Some(match at.zip(key) {
                    Some((at, key)) => {
                        let (document, pointer) = self.registry.pointer(key.0);
                        ProblemPlace::in_document(&document, format!("{pointer}{at}"))
                    }
                    None => self.place_of_key(None),
                }),
            },
            // The caller knows how many steps there were: see `run`.
            Refusal::Stopped(_) => CompileError::LimitExceeded {
                limit: "max_steps",
                max: 0,
                place: None,
            },
            Refusal::Schema { at, message } => {
                let (document, pointer) = key
                    .map(|key| self.registry.pointer(key.0))
                    .unwrap_or_default();
                let message = match document.as_str() {
                    "" => message.clone(),
                    document => format!("in document `{document}`: {message}"),
                };
                CompileError::JsonSchema {
                    pointer: format!("{pointer}{at}"),
                    message,
                }
            }
        }
    }
}
