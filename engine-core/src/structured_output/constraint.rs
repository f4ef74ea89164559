//! Which constraint a request has, by its text and options.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use protocol::{Shared, StructuredOutputsParams};
use structured_output::RequestMemory;

/// Cache key of a constraint: only the fields that affect compilation. Long-lived, so it must not hold the
/// request.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Constraint(Arc<Specification>);

#[derive(PartialEq, Eq)]
struct Specification {
    /// Of the other fields: the text is hashed once, however many requests have it.
    hash: u64,
    kind: &'static str,
    sources: Vec<String>,
    options: Vec<(&'static str, String)>,
}

/// A constraint of requests that share it in memory, with its key.
pub(crate) struct NamedConstraint {
    params: Shared<StructuredOutputsParams>,
    constraint: Constraint,
    request_memory: RequestMemory,
}

impl NamedConstraint {
    /// Names a constraint: copies and hashes its text.
    pub(crate) fn new(params: &Shared<StructuredOutputsParams>) -> Self {
        Self {
            params: params.clone(),
            constraint: Constraint::of(params),
            request_memory: RequestMemory::default(),
        }
    }

    /// True if this constraint is the same in memory.
    pub(crate) fn is_of(&self, params: &Shared<StructuredOutputsParams>) -> bool {
        self.params.is_same(params)
    }

    pub(super) fn constraint(&self) -> Constraint {
        self.constraint.clone()
    }

    /// What the grammars of all requests that share it take together.
    pub(super) fn request_memory(&self) -> RequestMemory {
        self.request_memory.clone()
    }

    /// How long its text is.
    pub(super) fn source_bytes(&self) -> usize {
        self.constraint.0.sources.iter().map(String::len).sum()
    }
}

impl Hash for Constraint {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash.hash(hasher);
    }
}

impl Constraint {
    fn of(params: &StructuredOutputsParams) -> Self {
        /// One key for the process: equal constraints have equal hashes.
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let (kind, sources) = params.constraint.specification();
        let options = params.options().into_iter();
        let options: Vec<_> = options
            .map(|(name, value)| (name, value.to_owned()))
            .collect();
        Self(Arc::new(Specification {
            hash: HASHER.hash_one((kind, sources, &options)),
            kind,
            sources: sources.to_vec(),
            options,
        }))
    }

    /// Bytes that it holds.
    pub(super) fn len(&self) -> usize {
        let sources = self.0.sources.iter();
        let sources: usize = sources.map(|source| source.len() + 32).sum();
        let options: usize = self.0.options.iter().map(|option| option.1.len()).sum();
        sources + options + 512
    }
}
