//! The vocabulary.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use structured_output as so;
use tokenizer::Tokenizer;

/// A vocabulary: what each token writes, which tokens end the text, which are control tokens.
///
/// Immutable, safe in many threads, and pickled whole.
///
/// Args:
///     vocab: the bytes of each token by its id; empty for ids that are never allowed.
///     vocab_size: the width of the logits, at least len(vocab), which it is by default.
///     stop_token_ids: tokens that end the text, at least one.
///     special_token_ids: control tokens, which are never text.
///
/// Raises:
///     ValueError: no token, no stop token, an id out of range.
#[pyclass(frozen, eq, weakref, module = "formwork.grammar")]
#[derive(PartialEq)]
pub(crate) struct TokenizerInfo {
    pub(crate) info: Arc<so::TokenizerInfo>,
}

fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

impl TokenizerInfo {
    /// From a loaded tokenizer; stop tokens other than its own where they are named.
    fn of_tokenizer(
        tokenizer: &Tokenizer,
        vocab_size: Option<usize>,
        stop_token_ids: Option<Vec<u32>>,
    ) -> PyResult<Self> {
        let vocab_size = vocab_size.unwrap_or(tokenizer.vocab_size());
        let info = match stop_token_ids {
            None => tokenizer.tokenizer_info(vocab_size).map_err(value_error)?,
            Some(stop) => {
                let ids = 0..tokenizer.vocab_size() as u32;
                let vocab: Vec<Vec<u8>> =
                    ids.map(|id| tokenizer.token_bytes(id).to_vec()).collect();
                so::TokenizerInfo::new(&vocab, vocab_size, &stop, tokenizer.special_token_ids())
                    .map_err(value_error)?
            }
        };
        Ok(Self {
            info: Arc::new(info),
        })
    }
}

#[pymethods]
impl TokenizerInfo {
    #[new]
    #[pyo3(signature = (vocab, *, vocab_size=None, stop_token_ids, special_token_ids=Vec::new()))]
    fn new(
        py: Python<'_>,
        vocab: Vec<Vec<u8>>,
        vocab_size: Option<usize>,
        stop_token_ids: Vec<u32>,
        special_token_ids: Vec<u32>,
    ) -> PyResult<Self> {
        let vocab_size = vocab_size.unwrap_or(vocab.len());
        let info = py
            .detach(|| {
                so::TokenizerInfo::new(&vocab, vocab_size, &stop_token_ids, &special_token_ids)
            })
            .map_err(value_error)?;
        Ok(Self {
            info: Arc::new(info),
        })
    }

    /// A vocabulary from the text of a tokenizer.json.
    ///
    /// Args:
    ///     json: the file's contents.
    ///     config: the contents of tokenizer_config.json, which names the stop token.
    ///     vocab_size: the width of the logits; by default the number of tokens.
    ///     stop_token_ids: instead of those that the files name.
    ///
    /// Raises:
    ///     ValueError: what is wrong with the file, or that no stop token is named.
    #[staticmethod]
    #[pyo3(signature = (json, *, config=None, vocab_size=None, stop_token_ids=None))]
    fn from_tokenizer_json(
        py: Python<'_>,
        json: TextOrBytes,
        config: Option<TextOrBytes>,
        vocab_size: Option<usize>,
        stop_token_ids: Option<Vec<u32>>,
    ) -> PyResult<Self> {
        let mut files = vec![("tokenizer.json", json.as_bytes())];
        if let Some(config) = &config {
            files.push(("tokenizer_config.json", config.as_bytes()));
        }
        let tokenizer = py
            .detach(|| Tokenizer::from_bytes(&files))
            .map_err(value_error)?;
        Self::of_tokenizer(&tokenizer, vocab_size, stop_token_ids)
    }

    /// A vocabulary from a model's folder with a tokenizer.json, or from a GGUF file.
    ///
    /// Raises:
    ///     ValueError: which file can't be read, and what is wrong with it.
    #[staticmethod]
    #[pyo3(signature = (path, *, vocab_size=None, stop_token_ids=None))]
    fn from_path(
        py: Python<'_>,
        path: PathBuf,
        vocab_size: Option<usize>,
        stop_token_ids: Option<Vec<u32>>,
    ) -> PyResult<Self> {
        let tokenizer = py
            .detach(|| Tokenizer::from_files(&path))
            .map_err(value_error)?;
        Self::of_tokenizer(&tokenizer, vocab_size, stop_token_ids)
    }

    /// A vocabulary from a tokenizer of `transformers` (a fast one) or `tokenizers`. Neither is imported.
    ///
    /// Args:
    ///     tokenizer: a `PreTrainedTokenizerFast` or a `tokenizers.Tokenizer`.
    ///     vocab_size: the width of the model's logits (`model.config.vocab_size`), which is often larger.
    ///     stop_token_ids: by default the tokenizer's `eos_token_id`.
    ///
    /// Raises:
    ///     TypeError: another kind of object.
    ///     ValueError: what is wrong, for instance that no stop token is named.
    #[staticmethod]
    #[pyo3(signature = (tokenizer, *, vocab_size=None, stop_token_ids=None))]
    fn from_huggingface(
        py: Python<'_>,
        tokenizer: &Bound<'_, PyAny>,
        vocab_size: Option<usize>,
        stop_token_ids: Option<Vec<u32>>,
    ) -> PyResult<Self> {
        let inner = match tokenizer.getattr_opt("backend_tokenizer")? {
            Some(inner) => inner,
            None => tokenizer.clone(),
        };
        let Some(to_str) = inner.getattr_opt("to_str")? else {
            let given = tokenizer.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "tokenizer must be a fast tokenizer of transformers or a tokenizers.Tokenizer, not {given}: \
                 for others give TokenizerInfo the bytes of each token"
            )));
        };
        let json: String = to_str.call0()?.extract()?;
        let eos = match tokenizer.getattr_opt("eos_token_id")? {
            Some(eos) if !eos.is_none() => match eos.extract::<u32>() {
                Ok(id) => Some(vec![id]),
                Err(_) => Some(eos.extract()?),
            },
            _ => None,
        };
        let stop_token_ids = stop_token_ids.or(eos);
        if stop_token_ids.is_none() {
            return Err(PyValueError::new_err(
                "the tokenizer names no eos_token: give stop_token_ids, the tokens that end a text",
            ));
        }
        Self::from_tokenizer_json(
            py,
            TextOrBytes::Text(json),
            None,
            vocab_size,
            stop_token_ids,
        )
    }

    /// A vocabulary from an encoding of `tiktoken`, whose end of text is the stop token by default.
    ///
    /// Raises:
    ///     TypeError: another kind of object.
    #[staticmethod]
    #[pyo3(signature = (encoding, *, vocab_size=None, stop_token_ids=None))]
    fn from_tiktoken(
        py: Python<'_>,
        encoding: &Bound<'_, PyAny>,
        vocab_size: Option<usize>,
        stop_token_ids: Option<Vec<u32>>,
    ) -> PyResult<Self> {
        let (Some(ranks), Some(special)) = (
            encoding.getattr_opt("_mergeable_ranks")?,
            encoding.getattr_opt("_special_tokens")?,
        ) else {
            let given = encoding.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "encoding must be a tiktoken.Encoding, not {given}"
            )));
        };
        let num_tokens = encoding.getattr("n_vocab")?.extract::<usize>()?;
        let mut vocab = vec![Vec::new(); num_tokens];
        let mut special_token_ids = Vec::new();
        for (token, id) in ranks.cast::<PyDict>()?.iter() {
            if let Some(entry) = vocab.get_mut(id.extract::<usize>()?) {
                *entry = token.extract()?;
            }
        }
        for (token, id) in special.cast::<PyDict>()?.iter() {
            if let Some(entry) = vocab.get_mut(id.extract::<usize>()?) {
                *entry = token.extract::<String>()?.into_bytes();
                special_token_ids.push(id.extract()?);
            }
        }
        let stop_token_ids = match stop_token_ids {
            Some(ids) => ids,
            None => vec![encoding.getattr("eot_token")?.extract()?],
        };
        Self::new(py, vocab, vocab_size, stop_token_ids, special_token_ids)
    }

    /// Width of the logits.
    #[getter]
    fn vocab_size(&self) -> usize {
        self.info.vocab_size()
    }

    /// Tokens with an entry; ids from here to `vocab_size` are padding.
    #[getter]
    fn num_tokens(&self) -> usize {
        self.info.num_tokens()
    }

    /// Tokens that end the text, ascending.
    #[getter]
    fn stop_token_ids(&self) -> Vec<u32> {
        self.info.stop_token_ids().to_vec()
    }

    /// Control tokens, ascending.
    #[getter]
    fn special_token_ids(&self) -> Vec<u32> {
        self.info.special_token_ids().to_vec()
    }

    /// The bytes that a token writes; empty for one that is never allowed.
    ///
    /// Raises:
    ///     IndexError: an id out of range.
    fn token_bytes<'py>(&self, py: Python<'py>, token_id: i64) -> PyResult<Bound<'py, PyBytes>> {
        let size = self.info.vocab_size();
        let id = u32::try_from(token_id)
            .ok()
            .filter(|&id| (id as usize) < size);
        let Some(id) = id else {
            return Err(PyIndexError::new_err(format!(
                "token_id is {token_id}, but ids go from 0 to {}",
                size - 1
            )));
        };
        Ok(PyBytes::new(py, self.info.token_bytes(id)))
    }

    /// The bytes of all tokens, by id.
    fn decoded_vocab<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.info
            .tokens()
            .map(|(_, bytes)| PyBytes::new(py, bytes))
            .collect()
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let options = PyDict::new(py);
        options.set_item("vocab_size", self.vocab_size())?;
        options.set_item("stop_token_ids", self.stop_token_ids())?;
        options.set_item("special_token_ids", self.special_token_ids())?;
        Ok((PyTuple::new(py, [self.decoded_vocab(py)])?, options))
    }

    fn __repr__(&self) -> String {
        format!(
            "TokenizerInfo(vocab_size={}, num_tokens={}, stop_token_ids={:?})",
            self.info.vocab_size(),
            self.info.num_tokens(),
            self.info.stop_token_ids()
        )
    }
}

/// `str` or `bytes`.
#[derive(FromPyObject)]
enum TextOrBytes {
    Text(String),
    Bytes(Vec<u8>),
}

impl TextOrBytes {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}
