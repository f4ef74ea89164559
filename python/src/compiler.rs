//! Grammars are compiled without the GIL, and pickled as what they were compiled from.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use structured_output as so;

use crate::errors::compile_error;
use crate::forked::Process;
use crate::tokenizer_info::TokenizerInfo;

/// A compiler, and how it was made.
pub(crate) struct Shared {
    pub(crate) compiler: so::GrammarCompiler,
    options: so::CompilerOptions,
    pub(crate) process: Process,
}

/// Compiles grammars for a vocabulary, and keeps them.
///
/// Safe in many threads; the GIL is released while it works. Pickled as its vocabulary and options.
///
/// Args:
///     tokenizer_info: the vocabulary. An index of it is built here: 0.2 seconds for 128,000 tokens.
///     cache_bytes: memory for everything that is kept for reuse; 128 MiB by default.
///     index_cache: a folder to keep indexes of vocabularies in, so that the next start reads them.
///     any_escapes: True lets strings and keys of JSON under a constraint be written with any escapes, as \u0061 for a.
#[pyclass(frozen, weakref, module = "formwork.grammar")]
pub(crate) struct GrammarCompiler {
    pub(crate) shared: Arc<Shared>,
    tokenizer_info: Py<TokenizerInfo>,
}

/// Stops compilations from another thread.
#[pyclass(frozen, module = "formwork.grammar")]
pub(crate) struct CancelFlag {
    flag: so::CancelFlag,
}

#[pymethods]
impl CancelFlag {
    #[new]
    fn new() -> Self {
        Self {
            flag: so::CancelFlag::new(),
        }
    }

    /// Compilations that were given the flag end with CompileError, for good.
    fn cancel(&self) {
        self.flag.cancel();
    }

    /// True once `cancel` was called.
    fn is_cancelled(&self) -> bool {
        self.flag.is_cancelled()
    }
}

/// A compiled grammar: immutable, safe in many threads.
///
/// Pickled as its specification and compiler; loading it compiles it again.
#[pyclass(frozen, weakref, module = "formwork.grammar")]
pub(crate) struct CompiledGrammar {
    pub(crate) grammar: so::CompiledGrammar,
    pub(crate) compiler: Py<GrammarCompiler>,
    /// The compiler's method and its arguments.
    made_by: (&'static str, Py<PyTuple>, Option<Py<PyDict>>),
}

#[pymethods]
impl CompiledGrammar {
    /// The compiler that made it.
    #[getter]
    fn compiler(&self, py: Python<'_>) -> Py<GrammarCompiler> {
        self.compiler.clone_ref(py)
    }

    /// The vocabulary that it was compiled for.
    #[getter]
    fn tokenizer_info(&self, py: Python<'_>) -> Py<TokenizerInfo> {
        self.compiler.get().tokenizer_info.clone_ref(py)
    }

    /// Bytes that compiling it added.
    #[getter]
    fn memory_size_bytes(&self) -> usize {
        self.grammar.memory_bytes()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let this = slf.get();
        let (method, arguments, options) = &this.made_by;
        let restore = py.import("formwork.grammar")?.getattr("_restore_grammar")?;
        let options = options.as_ref().map(|options| options.clone_ref(py));
        let state = (&this.compiler, *method, arguments.clone_ref(py), options);
        (restore, state.into_pyobject(py)?).into_pyobject(py)
    }
}

/// JSON text of a `str`, a pydantic model or a value.
fn json_text(value: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    if let Ok(text) = value.cast::<PyString>() {
        return text.to_cow().map(Into::into);
    }
    let schema = match value.getattr_opt("model_json_schema")? {
        Some(method) => method.call0()?,
        None => value.clone(),
    };
    let dumps = value.py().import("json")?.getattr("dumps")?;
    let options = PyDict::new(value.py());
    options.set_item("ensure_ascii", false)?;
    options.set_item("allow_nan", false)?;
    let text = dumps.call((schema,), Some(&options)).map_err(|error| {
        let problem = format!("{name} must be JSON as a str, a value that json.dumps takes, or a pydantic model: {error}");
        match error.is_instance_of::<PyTypeError>(value.py()) {
            true => PyTypeError::new_err(problem),
            false => PyValueError::new_err(problem),
        }
    })?;
    text.extract()
}

/// Options of JSON by name; what is None is left out.
fn json_options(
    options: Option<&Bound<'_, PyDict>>,
    py: Python<'_>,
) -> PyResult<so::JsonSchemaOptions> {
    let Some(options) = options else {
        return Ok(so::JsonSchemaOptions::default());
    };
    let given = PyDict::new(py);
    for (name, value) in options.iter() {
        if !value.is_none() {
            given.set_item(name, value)?;
        }
    }
    let text = json_text(given.as_any(), "options")?;
    so::JsonSchemaOptions::from_json(&text).map_err(|error| compile_error(py, &error))
}

/// What a method was called with.
type Call<'py> = (
    &'static str,
    Bound<'py, PyTuple>,
    Option<Bound<'py, PyDict>>,
);

fn compile<'py>(
    slf: &Bound<'py, GrammarCompiler>,
    specification: &so::GrammarSpecification,
    cancel: Option<&CancelFlag>,
    (method, arguments, options): Call<'py>,
) -> PyResult<CompiledGrammar> {
    let py = slf.py();
    let shared = &slf.get().shared;
    shared.process.check("GrammarCompiler")?;
    let flag = cancel.map(|cancel| cancel.flag.clone()).unwrap_or_default();
    let budget = shared.options.budget;
    let compiled = py.detach(|| {
        shared
            .compiler
            .compile_specification(specification, budget, &flag)
    });
    Ok(CompiledGrammar {
        grammar: compiled.map_err(|error| compile_error(py, &error))?,
        compiler: slf.clone().unbind(),
        made_by: (method, arguments.unbind(), options.map(Bound::unbind)),
    })
}

#[pymethods]
impl GrammarCompiler {
    #[new]
    #[pyo3(signature = (tokenizer_info, *, cache_bytes=None, index_cache=None, any_escapes=false))]
    fn new(
        py: Python<'_>,
        tokenizer_info: Py<TokenizerInfo>,
        cache_bytes: Option<usize>,
        index_cache: Option<PathBuf>,
        any_escapes: bool,
    ) -> Self {
        let mut options = so::CompilerOptions {
            index_cache,
            any_escapes,
            ..so::CompilerOptions::default()
        };
        options.cache_bytes = cache_bytes.unwrap_or(options.cache_bytes);
        let info = Arc::clone(&tokenizer_info.get().info);
        let process = Process::current();
        let own = options.clone();
        let compiler = py.detach(|| so::GrammarCompiler::new(info, own));
        Self {
            shared: Arc::new(Shared {
                compiler,
                options,
                process,
            }),
            tokenizer_info,
        }
    }

    /// Compiles a JSON Schema: the text is one JSON value that is valid under it.
    ///
    /// Args:
    ///     schema: JSON as a str, a value that json.dumps takes, or a pydantic model class.
    ///     cancel: a CancelFlag, to stop it from another thread.
    ///     **options: whitespace ("usual", "flexible", "spaced" or "compact"), whitespace_pattern, separators (two strings),
    ///         property_order ("schema" or "any"), format ("assert" or "annotate"), draft, strict,
    ///         documents, limits; docs/json-schema.md describes them.
    ///
    /// Raises:
    ///     CompileError: with the pointer, or line and column, of what is malformed or can't be enforced.
    ///     TypeError, ValueError: schema is no JSON value.
    #[pyo3(signature = (schema, *, cancel=None, **options))]
    fn compile_json_schema<'py>(
        slf: &Bound<'py, Self>,
        schema: &Bound<'py, PyAny>,
        cancel: Option<&CancelFlag>,
        options: Option<Bound<'py, PyDict>>,
    ) -> PyResult<CompiledGrammar> {
        let text = json_text(schema, "schema")?;
        let own = json_options(options.as_ref(), slf.py())?;
        let arguments = PyTuple::new(slf.py(), [&text])?;
        let specification = so::GrammarSpecification::JsonSchema(text, own);
        compile(
            slf,
            &specification,
            cancel,
            ("compile_json_schema", arguments, options),
        )
    }

    /// Compiles the grammar of any JSON object. Options are those of compile_json_schema for white space.
    #[pyo3(signature = (*, cancel=None, **options))]
    fn compile_json_object<'py>(
        slf: &Bound<'py, Self>,
        cancel: Option<&CancelFlag>,
        options: Option<Bound<'py, PyDict>>,
    ) -> PyResult<CompiledGrammar> {
        let own = json_options(options.as_ref(), slf.py())?;
        let specification = so::GrammarSpecification::JsonObject(own);
        let arguments = PyTuple::empty(slf.py());
        compile(
            slf,
            &specification,
            cancel,
            ("compile_json_object", arguments, options),
        )
    }

    /// Compiles a regular expression, which is to match the whole text.
    ///
    /// Raises:
    ///     CompileError: with line and column.
    #[pyo3(signature = (pattern, *, cancel=None))]
    fn compile_regex(
        slf: &Bound<'_, Self>,
        pattern: String,
        cancel: Option<&CancelFlag>,
    ) -> PyResult<CompiledGrammar> {
        let arguments = PyTuple::new(slf.py(), [&pattern])?;
        let specification = so::GrammarSpecification::Regex(pattern);
        compile(
            slf,
            &specification,
            cancel,
            ("compile_regex", arguments, None),
        )
    }

    /// Compiles a choice: the text is one of the strings.
    ///
    /// Raises:
    ///     CompileError: there are none, or none that this vocabulary can write.
    #[pyo3(signature = (choices, *, cancel=None))]
    fn compile_choice(
        slf: &Bound<'_, Self>,
        choices: Vec<String>,
        cancel: Option<&CancelFlag>,
    ) -> PyResult<CompiledGrammar> {
        let arguments = PyTuple::new(slf.py(), [&choices])?;
        let specification = so::GrammarSpecification::Choice(choices);
        compile(
            slf,
            &specification,
            cancel,
            ("compile_choice", arguments, None),
        )
    }

    /// Compiles a grammar in EBNF or GBNF, from the rule named `root` on; docs/grammars.md has the dialects.
    ///
    /// Raises:
    ///     CompileError: with line and column.
    #[pyo3(signature = (grammar, root="root".to_owned(), *, cancel=None))]
    fn compile_ebnf(
        slf: &Bound<'_, Self>,
        grammar: String,
        root: String,
        cancel: Option<&CancelFlag>,
    ) -> PyResult<CompiledGrammar> {
        let arguments = PyTuple::new(slf.py(), [&grammar, &root])?;
        let specification = so::GrammarSpecification::Ebnf { grammar, root };
        compile(
            slf,
            &specification,
            cancel,
            ("compile_ebnf", arguments, None),
        )
    }

    /// Compiles a grammar in Lark, from the rule `start` on.
    ///
    /// Raises:
    ///     CompileError: with line and column.
    #[pyo3(signature = (grammar, *, cancel=None))]
    fn compile_lark(
        slf: &Bound<'_, Self>,
        grammar: String,
        cancel: Option<&CancelFlag>,
    ) -> PyResult<CompiledGrammar> {
        let arguments = PyTuple::new(slf.py(), [&grammar])?;
        let specification = so::GrammarSpecification::Lark(grammar);
        compile(
            slf,
            &specification,
            cancel,
            ("compile_lark", arguments, None),
        )
    }

    /// Compiles a grammar in EBNF (where a line has `::=`) or Lark.
    ///
    /// Raises:
    ///     CompileError: with line and column.
    #[pyo3(signature = (grammar, *, cancel=None))]
    fn compile_grammar(
        slf: &Bound<'_, Self>,
        grammar: String,
        cancel: Option<&CancelFlag>,
    ) -> PyResult<CompiledGrammar> {
        let arguments = PyTuple::new(slf.py(), [&grammar])?;
        let specification = so::GrammarSpecification::grammar(&grammar);
        compile(
            slf,
            &specification,
            cancel,
            ("compile_grammar", arguments, None),
        )
    }

    /// Compiles a structural tag: free text with tags in it.
    ///
    /// Args:
    ///     tag: JSON as a str, or a value that json.dumps takes.
    ///
    /// Raises:
    ///     CompileError: with the pointer of what is malformed or not supported.
    #[pyo3(signature = (tag, *, cancel=None))]
    fn compile_structural_tag<'py>(
        slf: &Bound<'py, Self>,
        tag: &Bound<'py, PyAny>,
        cancel: Option<&CancelFlag>,
    ) -> PyResult<CompiledGrammar> {
        let text = json_text(tag, "tag")?;
        let arguments = PyTuple::new(slf.py(), [&text])?;
        let specification = so::GrammarSpecification::StructuralTag(text);
        compile(
            slf,
            &specification,
            cancel,
            ("compile_structural_tag", arguments, None),
        )
    }

    /// The vocabulary.
    #[getter]
    fn tokenizer_info(&self, py: Python<'_>) -> Py<TokenizerInfo> {
        self.tokenizer_info.clone_ref(py)
    }

    /// Forgets all that was compiled. Grammars and matchers in use go on.
    fn clear_cache(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.process.check("GrammarCompiler")?;
        py.detach(|| self.shared.compiler.clear_cache());
        Ok(())
    }

    /// Bytes held for reuse: compiled grammars, states and masks.
    fn get_cache_size_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.shared.process.check("GrammarCompiler")?;
        Ok(py.detach(|| self.shared.compiler.cache_bytes()))
    }

    /// How many compilations were started; what was known already isn't counted.
    #[getter]
    fn num_compilations(&self) -> u64 {
        self.shared.compiler.num_compilations()
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let options = PyDict::new(py);
        options.set_item("cache_bytes", self.shared.options.cache_bytes)?;
        options.set_item("index_cache", self.shared.options.index_cache.clone())?;
        options.set_item("any_escapes", self.shared.options.any_escapes)?;
        Ok((PyTuple::new(py, [&self.tokenizer_info])?, options))
    }
}
