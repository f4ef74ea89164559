//! Options, limits and budgets.

use std::collections::BTreeMap;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::regex::RegexLimits;

/// How a [`crate::GrammarCompiler`] works. `Default` suits a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerOptions {
    /// Bytes for all that grammars take together: compiled grammars, expressions, masks, in the memory that they share
    /// and in that which some have apart.
    /// Default 256 MiB. See `docs/internals/structured-output.md` for how they are shared out.
    pub cache_bytes: usize,
    /// What one compilation may spend, unless the call brings its own budget.
    pub budget: CompileBudget,
    /// Bounds on what is accepted, and on the work of one mask.
    pub limits: Limits,
    /// Strings and keys of JSON under a constraint may be written with any escapes, as all others may: `\u0061` for `a`.
    /// Default off: each character as it stands or by its short escape, and `\uXXXX` where it has neither. See
    /// `docs/json-schema.md`.
    pub any_escapes: bool,
    /// Bytes that one call on a matcher may take, where the program's allocator is
    /// [`MeteredAllocator`](crate::MeteredAllocator). Default 16 MiB: of 2,009 schemas of MaskBench none takes
    /// more than 2.
    pub max_mask_bytes: usize,
    /// Steps that a compilation may take at a time in the memory that all grammars share, where matchers
    /// wait for it: what needs more is compiled in memory apart, see
    /// [`GrammarCompiler::move_apart`](crate::GrammarCompiler::move_apart). Default none: all are
    /// compiled in the shared memory, as long as that takes.
    pub max_shared_steps: Option<u64>,
    /// What a thread does between two slices of a compilation, and wherever else it lets others have the memory that
    /// all grammars share: offer its processor to other threads, say. Default nothing.
    pub pause: Pause,
    /// Folder in which indexes of vocabularies are kept, so that the next start reads what this
    /// one had to build: a file of some megabytes per vocabulary, named by its hash, made where it
    /// is missing, damaged or of another version. Default none. A folder that can't be read or
    /// written costs time, and is no error. What it holds is believed: name one that no other user can
    /// write to.
    pub index_cache: Option<PathBuf>,
}

impl Default for CompilerOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            budget: CompileBudget::default(),
            limits: Limits::default(),
            any_escapes: false,
            max_mask_bytes: 16 << 20,
            max_shared_steps: None,
            pause: Pause::default(),
            index_cache: None,
        }
    }
}

/// White space in JSON texts. None is without bound: a model may indent, but never loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Whitespace {
    /// As JSON is usually printed: nothing around the text or before `:` and `,`; nothing or one space
    /// after them; a line break with at most 16 spaces and tabs where pretty printers break, which is
    /// after `{`, `[` and `,` and before `}` and `]`.
    #[default]
    Usual,
    /// Wherever JSON allows white space: nothing, one space, or a line break with at most 64 spaces
    /// and tabs.
    Flexible,
    /// As Python's `json.dumps` writes it: a space after `,` and `:`.
    Spaced,
    /// None.
    Compact,
}

/// A draft of JSON Schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Draft {
    /// What `$schema` says; without it, 2020-12 plus the older spellings (`definitions`,
    /// `dependencies`, `additionalItems`, an array of `items`, boolean `exclusiveMinimum` and
    /// `exclusiveMaximum`, `id`), with assertions beside `$ref`.
    #[default]
    Auto,
    /// Draft 4.
    Draft4,
    /// Draft 6.
    Draft6,
    /// Draft 7.
    Draft7,
    /// Draft 2019-09.
    Draft2019_09,
    /// Draft 2020-12.
    Draft2020_12,
}

/// A function that a thread calls between two slices of its work: it should take some microseconds, as that happens
/// every few tens of them. Two are equal if they are clones of one.
#[derive(Clone, Default)]
pub struct Pause(Option<Arc<PauseFunction>>);

type PauseFunction = dyn Fn() + Send + Sync + UnwindSafe + RefUnwindSafe;

impl Pause {
    /// One that calls a function.
    pub fn new(pause: impl Fn() + Send + Sync + UnwindSafe + RefUnwindSafe + 'static) -> Self {
        Self(Some(Arc::new(pause)))
    }

    /// Calls it, if there is one.
    pub(crate) fn call(&self) {
        if let Some(pause) = &self.0 {
            pause();
        }
    }
}

impl PartialEq for Pause {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Pause {}

impl std::fmt::Debug for Pause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pause").field(&self.0.is_some()).finish()
    }
}

/// How a JSON Schema is read, and how JSON is to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct JsonSchemaOptions {
    /// White space in the text.
    pub whitespace: Whitespace,
    /// A regular expression that stands where white space may, instead of `whitespace`. It may
    /// match nothing but JSON white space.
    pub whitespace_pattern: Option<String>,
    /// Each item and member on a line of its own, so many spaces deeper than what it is in, as Python's
    /// `json.dumps(indent=n)` writes it; up to 16. White space is as under [`Whitespace::Spaced`] otherwise, and
    /// `whitespace` and `whitespace_pattern` are not given.
    pub indent: Option<u32>,
    /// No white space around the text, where `whitespace` or its pattern has some.
    pub trimmed: bool,
    /// What stands between items, and between a key and its value, as Python's `json.dumps` takes
    /// them: a comma and a colon with JSON white space around. Other white space is as `whitespace`
    /// says.
    pub separators: Option<(String, String)>,
    /// In which order an object's members come.
    pub property_order: PropertyOrder,
    /// What `format` means.
    pub format: Format,
    /// How schemas are read whose document has no `$schema`.
    pub draft: Draft,
    /// Objects that say nothing of `additionalProperties` allow none: schemas with `properties` or
    /// `patternProperties`, and those with `type: object` that leave members to no other keyword.
    /// Each schema for itself, so branches of an `allOf` with different properties exclude each
    /// other. Schemas with `const` or `enum` list their values whole. Default off.
    pub strict: bool,
    /// Schemas that may be referred to, by URI. They are read only where a reference leads out of
    /// the schema's own document; nothing is ever fetched.
    pub documents: BTreeMap<String, String>,
    /// Instead of the compiler's own; of `max_mask_steps` the smaller holds.
    pub limits: Option<Limits>,
}

impl JsonSchemaOptions {
    /// Bytes of the texts in it.
    pub(crate) fn memory_bytes(&self) -> usize {
        let documents = self.documents.iter();
        let separators = self.separators.iter();
        documents
            .map(|(uri, text)| uri.len() + text.len())
            .sum::<usize>()
            + self.whitespace_pattern.as_ref().map_or(0, String::len)
            + separators
                .map(|(item, key)| item.len() + key.len())
                .sum::<usize>()
    }
}

/// The order of an object's members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PropertyOrder {
    /// Named properties come in the order of the schema, all others after them.
    #[default]
    Schema,
    /// Any.
    Any,
}

impl PropertyOrder {
    /// The names of the options' values.
    pub(crate) const NAMES: [(&'static str, Self); 2] =
        [("schema", Self::Schema), ("any", Self::Any)];
}

/// What `format` means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// The formats of draft 2020-12 are enforced; others are annotations.
    #[default]
    Assert,
    /// All are annotations.
    Annotate,
}

/// What one compilation may spend. Beyond it, the compilation ends with
/// [`crate::CompileError::LimitExceeded`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompileBudget {
    /// Automaton states that it may add. Default 500,000.
    pub max_states: usize,
    /// Bytes that it may add to the engine's memory, the values of a schema and what a first look at the
    /// grammar's masks makes included. Default 24 MiB: of 8,034 schemas of MaskBench the largest takes 2.5.
    pub max_bytes: usize,
    /// Steps of derivation and search. Default 5,000,000, which takes about a second.
    pub max_steps: u64,
}

impl Default for CompileBudget {
    fn default() -> Self {
        Self {
            max_states: 500_000,
            max_bytes: 24 << 20,
            max_steps: 5_000_000,
        }
    }
}

/// Where a compilation may work, and how much: less than its budget, which is what ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompileEffort {
    /// In the memory that all grammars share, for as long as that takes no more than so many steps, and
    /// no more than [`CompilerOptions::max_shared_steps`] at a time.
    Shared {
        /// In all.
        max_steps: u64,
    },
    /// In memory apart, see [`GrammarCompiler::move_apart`](crate::GrammarCompiler::move_apart), where
    /// nobody waits for it but others there.
    Apart {
        /// In all.
        max_steps: u64,
    },
}

/// Bounds on what is accepted from a user. Each is named in the error that it causes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Bytes of a grammar's source, the documents of a schema's options included. Default 1 MiB.
    pub max_source_bytes: usize,
    /// Groups within groups. Default 512.
    pub max_nesting: usize,
    /// Parts (signs, classes, groups) of a regular expression. Default 50,000.
    pub max_regex_nodes: usize,
    /// The largest bound of a counted repetition. Default 2,147,483,647: repetitions are counted,
    /// not unrolled.
    pub max_repetition: u32,
    /// Strings of a choice. Default 100,000.
    pub max_choices: usize,
    /// Rules of a grammar, with those of the grammars within it. Default 100,000.
    pub max_rules: usize,
    /// Parts of a grammar: strings, classes, names, groups, repetitions. Default 500,000.
    pub max_grammar_nodes: usize,
    /// In how many ways the triggers of a dispatch may begin within each other, where one automaton can't read
    /// them all (a control token in one, or more than 32 at one place): for each, its free text
    /// is read once more. Default 1,024.
    pub max_trigger_overlaps: usize,
    /// Grammars of Lark within each other (`%lark`). Default 16.
    pub max_nested_grammars: usize,
    /// Ways in which a text may be read at once: items of a parser's state, and places that one of
    /// them returns to. Default 16,384.
    pub max_items: usize,
    /// Schemas in a JSON Schema, those of other documents that it refers to included, each counted
    /// once for each dynamic scope that it is used in. Default 200,000.
    pub max_schema_nodes: usize,
    /// Values of an `enum`. Default 100,000.
    pub max_enum_entries: usize,
    /// Steps of one call on a matcher: nodes of the vocabulary's trie that are visited, plus
    /// derivatives that are computed, plus an eighth of the operands of formulas. Default 2,000,000, some
    /// tenths of a second. The same work is done once; a state that was asked for before costs none. The
    /// first mask is made when a grammar is compiled, which fails where that takes more; of a JSON Schema only
    /// where it has many alternatives, and then it is found out too whether there is a value at each place.
    pub max_mask_steps: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_source_bytes: 1 << 20,
            max_nesting: 512,
            max_regex_nodes: 50_000,
            max_repetition: i32::MAX as u32,
            max_choices: 100_000,
            max_rules: 100_000,
            max_grammar_nodes: 500_000,
            max_trigger_overlaps: 1_024,
            max_nested_grammars: 16,
            max_items: 16_384,
            max_schema_nodes: 200_000,
            max_enum_entries: 100_000,
            max_mask_steps: 2_000_000,
        }
    }
}

impl Limits {
    /// Those of a regular expression.
    pub(crate) fn regex(&self) -> RegexLimits {
        RegexLimits {
            max_nodes: self.max_regex_nodes,
            max_nesting: self.max_nesting,
            max_repetition: self.max_repetition,
        }
    }
}

/// Stops compilations from another thread. Clones are one flag.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag {
    cancelled: Arc<AtomicBool>,
}

impl CancelFlag {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag, for good: compilations that were given it end with
    /// [`crate::CompileError::Cancelled`] within a few thousand steps; of a schema within a call of
    /// [`Limits::max_mask_steps`], as its first mask is made too.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
