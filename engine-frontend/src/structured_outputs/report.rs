//! What a constraint says, for people: which keywords hold, how large it is, texts under it, and how far a
//! text of theirs fits.
//!
//! All of it is found out over single bytes, so no model's vocabulary is needed, and nothing is kept.

mod byte_matcher;
mod keywords;
mod sample;
mod text_fit;

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::StructuredOutputsParams;
use structured_output::{
    CancelFlag, CompileBudget, CompileError, CompilerOptions, GrammarCompiler,
    GrammarSpecification, MatcherError, TokenizerInfo,
};

use byte_matcher::ByteMatcher;

pub use keywords::ConstraintKeywords;
pub use sample::shortest_text;
pub use text_fit::TextFit;

/// What compiling a constraint for a report may spend: a fifth of what the core may spend, which is some
/// tenths of a second.
const BUDGET: CompileBudget = CompileBudget {
    max_states: 100_000,
    max_bytes: 16 << 20,
    max_steps: 1_000_000,
};
/// Memory of the grammar and of the states that its texts lead to.
const CACHE_BYTES: usize = 32 << 20;
/// Steps that the samples of a report, and the text that is held against it, may take each.
const MATCHER_STEPS: u64 = 1_000_000;

/// What was found out about a constraint that can be enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConstraintReport {
    /// States of its automaton, so far.
    pub(crate) num_states: usize,
    /// Bytes that these take.
    pub(crate) num_bytes: usize,
    /// How long it took to compile.
    pub(crate) compile_time: Duration,
    /// A shortest text.
    pub(crate) shortest: String,
    /// A longer one.
    pub(crate) sample: String,
    /// How far a text fits, where one was given.
    pub(crate) text: Option<TextFit>,
}

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReportError {
    /// The constraint is refused, or takes too long.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Its texts take too long.
    #[error(transparent)]
    Matcher(#[from] MatcherError),
}

/// Compiles a constraint and looks at its texts. Takes at most some tenths of a second; once `cancel` is set
/// what is returned says nothing.
///
/// # Errors
/// The constraint is refused, or would take too long.
pub(crate) fn report(
    vocabulary: &Arc<TokenizerInfo>,
    params: &StructuredOutputsParams,
    text: Option<&str>,
    cancel: &CancelFlag,
) -> Result<ConstraintReport, ReportError> {
    let options = CompilerOptions {
        cache_bytes: CACHE_BYTES,
        budget: BUDGET,
        ..CompilerOptions::default()
    };
    let (kind, sources) = params.constraint.specification();
    let specification = GrammarSpecification::by_name(kind, sources, params.options())?;
    let compiler = GrammarCompiler::new(Arc::clone(vocabulary), options);
    let started = Instant::now();
    let grammar = compiler.compile_specification(&specification, BUDGET, cancel)?;
    let compile_time = started.elapsed();
    let matcher = || ByteMatcher::new(&grammar, Some(MATCHER_STEPS));
    Ok(ConstraintReport {
        num_states: grammar.num_states(),
        num_bytes: grammar.memory_bytes(),
        compile_time,
        shortest: lossy(&sample::shortest_from(&mut matcher(), cancel)?),
        sample: lossy(&sample::sample_from(&mut matcher(), cancel)?),
        text: match text {
            Some(text) => Some(TextFit::from_start(&mut matcher(), text, cancel)?),
            None => None,
        },
    })
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
