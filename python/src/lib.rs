//! The extension module of the Python package `formwork.grammar`: the grammar engine's own names over
//! `structured-output`, and `TokenizerInfo` from tokenizers' files over `tokenizer`.
//!
//! | file | idea |
//! |---|---|
//! | `tokenizer_info` | vocabularies |
//! | `compiler` | grammars are compiled without the GIL |
//! | `matcher` | one request's place in a grammar |
//! | `batch` | many matchers in one call |
//! | `memory`, `dlpack` | rows of others' tensors, checked and without a copy |
//! | `apply` | masks over logits |
//! | `errors`, `forked` | exceptions |

mod apply;
mod batch;
mod compiler;
mod dlpack;
mod errors;
mod forked;
mod matcher;
mod memory;
mod tokenizer_info;

use pyo3::prelude::*;

/// The native part of formwork.grammar.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<tokenizer_info::TokenizerInfo>()?;
    module.add_class::<compiler::GrammarCompiler>()?;
    module.add_class::<compiler::CompiledGrammar>()?;
    module.add_class::<compiler::CancelFlag>()?;
    module.add_class::<matcher::GrammarMatcher>()?;
    module.add_function(wrap_pyfunction!(
        apply::apply_token_bitmask_inplace,
        module
    )?)?;
    module.add_function(wrap_pyfunction!(
        batch::fill_next_token_bitmask_batch,
        module
    )?)?;
    module.add_function(wrap_pyfunction!(batch::accept_token_batch, module)?)?;
    module.add("CompileError", py.get_type::<errors::CompileError>())?;
    module.add("MatcherError", py.get_type::<errors::MatcherError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
