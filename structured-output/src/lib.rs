//! Structured output: which tokens of a vocabulary may come next, exactly, for any prefix of a
//! text that a grammar constrains.
//!
//! A [`GrammarCompiler`] belongs to a vocabulary ([`TokenizerInfo`]) and compiles grammars for it; a
//! [`GrammarMatcher`] is one request's place in a grammar. Names and semantics are XGrammar's. Every
//! mask is exact: a token is allowed if and only if the text after it can be completed by tokens of
//! the vocabulary. What can't be enforced is refused when it is compiled.
//!
//! What it is not: it reads no `tokenizer.json`, knows no tensor type, no async runtime and none
//! of the engine's messages. The caller brings token bytes and logits as plain slices. Grammars:
//! regular expressions, choices, JSON Schema (`docs/json-schema.md`), EBNF, GBNF, Lark and structural
//! tags (`docs/grammars.md`).
//!
//! How it works, what it costs and where to change it: `docs/internals/structured-output.md`.
//!
//! # In an engine
//! ```
//! use std::sync::Arc;
//!
//! use structured_output::{
//!     CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo, allocate_token_bitmask,
//!     apply_token_bitmask_inplace, bitmask_words,
//! };
//!
//! # fn sample(logits: &[f32]) -> u32 {
//! #     (0..).zip(logits).max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(token, _)| token)
//! # }
//! // Once per model: the tokens' bytes, the width of the logits, stop and control tokens.
//! let vocab = ["0", "1", "12", "-", ".5", "yes", "<eos>"].map(|token| token.as_bytes().to_vec());
//! let info = Arc::new(TokenizerInfo::new(&vocab, 8, &[6], &[6])?);
//! let vocab_size = info.vocab_size();
//! let compiler = GrammarCompiler::new(info, CompilerOptions::default());
//!
//! // Once per request: its grammar, and a matcher.
//! let number = compiler.compile_regex("-?[0-9]{1,3}(\\.[0-9]+)?")?;
//! let answer = compiler.compile_choice(&["yes".into(), "1".into()])?;
//! let mut matchers = [GrammarMatcher::new(&number), GrammarMatcher::new(&answer)];
//!
//! // Each step: a row of the bitmask per request, applied to its logits before sampling.
//! let mut bitmask = allocate_token_bitmask(matchers.len(), vocab_size);
//! for step in 0.. {
//!     if matchers.iter().all(GrammarMatcher::is_terminated) {
//!         break;
//!     }
//!     // The model's forward pass: `[batch, vocab_size]` logits, row after row.
//!     let mut logits = vec![0.0_f32; matchers.len() * vocab_size];
//!     # for row in logits.chunks_mut(vocab_size) { row[if step < 3 { 2 } else { 6 }] = 1.0; }
//!     let rows = bitmask.chunks_mut(bitmask_words(vocab_size));
//!     for ((matcher, row), logits) in
//!         matchers.iter_mut().zip(rows).zip(logits.chunks_mut(vocab_size))
//!     {
//!         if matcher.fill_next_token_bitmask(row)? {
//!             apply_token_bitmask_inplace(logits, row);
//!         }
//!         let token = sample(logits);
//!         assert!(matcher.accept_token(token)?);
//!     }
//! }
//!
//! // (Where grammars of many requests fill the memory for states, a call fails with
//! // `MatcherError::StatesExhausted`: `GrammarCompiler::renew` the matcher, and ask again.)
//!
//! // The same matcher serves another request with that grammar.
//! matchers[0].reset();
//! assert!(!matchers[0].is_terminated());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

mod automaton;
mod bitmask;
mod bound;
mod compiler;
mod did_you_mean;
mod earley;
mod engine;
mod error;
mod grammar;
mod grammar_syntax;
mod held;
mod index;
mod json;
mod lexical;
mod mask;
mod matcher;
mod metered;
mod options;
mod pushdown;
mod regex;
mod specification;
mod tokenizer_info;

pub use automaton::TextSearch;
pub use bitmask::{
    BITS_PER_WORD, allocate_token_bitmask, apply_token_bitmask_inplace, bitmask_words,
};
pub use compiler::{GrammarCompiler, RenewError};
pub use did_you_mean::did_you_mean;
pub use engine::RequestMemory;
pub use error::{CompileError, MatcherError, Problem, ProblemPlace, ProblemPosition};
pub use grammar::CompiledGrammar;
pub use mask::{MaskRef, MaskView};
pub use matcher::GrammarMatcher;
pub use metered::MeteredAllocator;
pub use options::{
    CancelFlag, CompileBudget, CompileEffort, CompilerOptions, Draft, Format, JsonSchemaOptions,
    Limits, Pause, PropertyOrder, Whitespace,
};
pub use regex::RegexNote;
pub use specification::{GrammarSpecification, regex_notes};
pub use tokenizer_info::{TokenizerInfo, TokenizerInfoError};
