//! One request's place in a grammar.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use structured_output as so;

use crate::compiler::{CompiledGrammar, Shared};
use crate::errors::{compile_error, matcher_error};
use crate::memory::{Matrix, bitmask_of};

/// Steps that a call may take before it releases the GIL: some 0.1 ms. Known masks take none.
const STEPS_UNDER_GIL: u64 = 1_000;

/// One request's place in a grammar: which tokens may come next, and what was accepted so far.
///
/// Calls from many threads take turns. A call that has to compute much releases the GIL meanwhile.
///
/// Args:
///     compiled_grammar: what `GrammarCompiler` gave.
///     override_stop_tokens: tokens that end the text instead of the vocabulary's.
///     terminate_without_stop_token: if true, the text is at its end as soon as it matches.
///
/// Raises:
///     ValueError: a stop token out of range, or none.
#[pyclass(frozen, weakref, module = "formwork.grammar")]
pub(crate) struct GrammarMatcher {
    inner: Mutex<Inner>,
    grammar: Py<CompiledGrammar>,
    shared: Arc<Shared>,
    pub(crate) words: usize,
    vocab_size: usize,
    stop_token_ids: Vec<u32>,
    terminate_without_stop_token: bool,
}

#[derive(Clone)]
struct Inner {
    matcher: so::GrammarMatcher,
    /// Steps of the engine by call: a string has one for each of its bytes.
    calls: Vec<u32>,
}

/// Why a call failed.
enum Failure {
    Matcher(so::MatcherError),
    Compile(so::CompileError),
    Other(String),
}

impl From<so::MatcherError> for Failure {
    fn from(error: so::MatcherError) -> Self {
        Self::Matcher(error)
    }
}

impl From<so::RenewError> for Failure {
    fn from(error: so::RenewError) -> Self {
        match error {
            so::RenewError::Matcher(error) => Self::Matcher(error),
            so::RenewError::Compile(error) => Self::Compile(error),
            other => Self::Other(other.to_string()),
        }
    }
}

impl Failure {
    fn into_exception(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Matcher(error) => matcher_error(py, &error),
            Self::Compile(error) => compile_error(py, &error),
            Self::Other(text) => crate::errors::MatcherError::new_err(text),
        }
    }
}

impl GrammarMatcher {
    /// Does work under the GIL if it is little, else without.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Fn(&mut Inner) -> Result<T, so::MatcherError> + Send + Sync,
    ) -> PyResult<T> {
        self.shared.process.check("GrammarMatcher")?;
        let free = match self.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut inner) = free {
            inner.matcher.set_allowance(Some(STEPS_UNDER_GIL));
            let outcome = work(&mut inner);
            inner.matcher.set_allowance(None);
            match outcome {
                Err(
                    so::MatcherError::AllowanceSpent | so::MatcherError::StatesExhausted { .. },
                ) => {}
                outcome => return outcome.map_err(|error| matcher_error(py, &error)),
            }
        }
        py.detach(|| self.call_detached(work))
            .map_err(|failure| failure.into_exception(py))
    }

    /// Does work without the GIL; the matcher moves where its memory is full.
    fn call_detached<T>(
        &self,
        work: impl Fn(&mut Inner) -> Result<T, so::MatcherError>,
    ) -> Result<T, Failure> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match work(&mut inner) {
                Err(so::MatcherError::StatesExhausted { .. }) => {
                    self.shared
                        .compiler
                        .renew(&mut inner.matcher, &so::CancelFlag::new())?;
                }
                outcome => return Ok(outcome?),
            }
        }
    }

    /// Fills a row, for a batch: without the GIL.
    pub(crate) fn fill_detached(&self, matrix: Matrix, index: usize) -> Result<bool, Unfilled> {
        let fill = |inner: &mut Inner| {
            // SAFETY: the batch checked the row, and holds the object.
            let row = unsafe { matrix.row(index) };
            inner.matcher.fill_next_token_bitmask(row)
        };
        self.call_detached(fill).map_err(Unfilled)
    }

    pub(crate) fn check_process(&self) -> PyResult<()> {
        self.shared.process.check("GrammarMatcher")
    }

    /// Checks the row that a mask goes to.
    pub(crate) fn check_row(&self, matrix: &Matrix, index: usize) -> PyResult<()> {
        matrix.check_width(self.words, self.vocab_size)?;
        matrix.check_row(index, "bitmask")
    }

    fn check_id(&self, token_id: i64) -> PyResult<u32> {
        let id = u32::try_from(token_id)
            .ok()
            .filter(|&id| (id as usize) < self.vocab_size);
        id.ok_or_else(|| {
            PyIndexError::new_err(format!(
                "token_id is {token_id}, but ids go from 0 to {}",
                self.vocab_size - 1
            ))
        })
    }
}

/// Why a batch's row was not filled.
pub(crate) struct Unfilled(Failure);

impl Unfilled {
    pub(crate) fn into_exception(self, py: Python<'_>) -> PyErr {
        self.0.into_exception(py)
    }
}

#[pymethods]
impl GrammarMatcher {
    #[new]
    #[pyo3(signature = (compiled_grammar, *, override_stop_tokens=None, terminate_without_stop_token=false))]
    fn new(
        py: Python<'_>,
        compiled_grammar: Py<CompiledGrammar>,
        override_stop_tokens: Option<Vec<u32>>,
        terminate_without_stop_token: bool,
    ) -> PyResult<Self> {
        let grammar = compiled_grammar.get();
        let shared = Arc::clone(&grammar.compiler.bind(py).get().shared);
        shared.process.check("CompiledGrammar")?;
        let info = Arc::clone(grammar.grammar.tokenizer_info());
        let vocab_size = info.vocab_size();
        let (matcher, stop_token_ids) = match override_stop_tokens {
            None => (
                so::GrammarMatcher::new(&grammar.grammar),
                info.stop_token_ids().to_vec(),
            ),
            Some(ids) if ids.is_empty() => {
                return Err(PyValueError::new_err(
                    "override_stop_tokens is empty: name at least one token, or leave it None",
                ));
            }
            Some(ids) => {
                if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
                    return Err(PyValueError::new_err(format!(
                        "override_stop_tokens holds {id}, but ids go from 0 to {}",
                        vocab_size - 1
                    )));
                }
                (
                    so::GrammarMatcher::with_only_stop_tokens(&grammar.grammar, &ids),
                    ids,
                )
            }
        };
        Ok(Self {
            inner: Mutex::new(Inner {
                matcher,
                calls: Vec::new(),
            }),
            grammar: compiled_grammar,
            shared,
            words: so::bitmask_words(vocab_size),
            vocab_size,
            stop_token_ids,
            terminate_without_stop_token,
        })
    }

    /// Writes the mask of the next token: bit t % 32 of word t // 32 is 1 where token t is allowed.
    ///
    /// Args:
    ///     bitmask: `[words]` or `[rows, words]` of int32 on the CPU: a torch tensor, a numpy array or
    ///         another object with a writable buffer or `__dlpack__`. words is at least
    ///         ceil(vocab_size / 32); further ones become 0.
    ///     index: the row.
    ///
    /// Returns:
    ///     False where every token is allowed, so that the mask need not be applied.
    ///
    /// Raises:
    ///     TypeError, ValueError: wrong type, shape, device, or a read-only buffer.
    ///     IndexError: a row that is not there.
    ///     MatcherError: a limit; the row is as it was.
    #[pyo3(signature = (bitmask, index=0))]
    fn fill_next_token_bitmask(
        &self,
        py: Python<'_>,
        bitmask: &Bound<'_, PyAny>,
        index: usize,
    ) -> PyResult<bool> {
        let matrix = bitmask_of(bitmask, true)?;
        self.check_row(&matrix, index)?;
        self.call(py, |inner| {
            // SAFETY: checked, and `bitmask` lives for the call.
            let row = unsafe { matrix.row(index) };
            inner.matcher.fill_next_token_bitmask(row)
        })
    }

    /// The same with the tokens after which the text can be completed by `num_tokens` tokens in all, the
    /// stop token included.
    ///
    /// Raises:
    ///     MatcherError: there is none (kind "within"), or a limit.
    #[pyo3(signature = (bitmask, num_tokens, index=0))]
    fn fill_next_token_bitmask_within(
        &self,
        py: Python<'_>,
        bitmask: &Bound<'_, PyAny>,
        num_tokens: u32,
        index: usize,
    ) -> PyResult<bool> {
        let matrix = bitmask_of(bitmask, true)?;
        self.check_row(&matrix, index)?;
        self.call(py, |inner| {
            // SAFETY: checked, and `bitmask` lives for the call.
            let row = unsafe { matrix.row(index) };
            inner
                .matcher
                .fill_next_token_bitmask_within(row, num_tokens)
        })
    }

    /// Writes the mask to an address, for memory that no Python object stands for. Nothing checks it.
    ///
    /// Args:
    ///     address: of `words` writable, aligned 32-bit words on the CPU that nothing else uses meanwhile.
    ///         A wrong one ends the process.
    ///     words: at least ceil(vocab_size / 32).
    ///
    /// Raises:
    ///     ValueError: address is 0 or not a multiple of 4, or too few words.
    fn unsafe_fill_next_token_bitmask(
        &self,
        py: Python<'_>,
        address: usize,
        words: usize,
    ) -> PyResult<bool> {
        if address == 0
            || !address.is_multiple_of(4)
            || words < self.words
            || words > usize::MAX / 8
        {
            return Err(PyValueError::new_err(format!(
                "address must be that of at least {} words of 32 bits, not {address:#x} with {words}",
                self.words
            )));
        }
        self.call(py, |inner| {
            // SAFETY: the caller's, as the name says.
            let row = unsafe { std::slice::from_raw_parts_mut(address as *mut u32, words) };
            inner.matcher.fill_next_token_bitmask(row)
        })
    }

    /// The ids of the tokens that may come next, ascending.
    fn next_token_ids(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.call(py, |inner| Ok(inner.matcher.next_token_mask()?.token_ids()))
    }

    /// Accepts a token: True where it was allowed, else nothing changes. A stop token terminates the text.
    ///
    /// Raises:
    ///     IndexError: an id out of range.
    ///     MatcherError: a limit; nothing changes.
    pub(crate) fn accept_token(&self, py: Python<'_>, token_id: i64) -> PyResult<bool> {
        let id = self.check_id(token_id)?;
        if self.terminate_without_stop_token && self.is_terminated(py)? {
            return Ok(false);
        }
        self.call(py, |inner| {
            // The second as masks within a number of tokens may have it.
            let accepted =
                inner.matcher.accept_token(id)? || inner.matcher.accept_stop_token_as_text(id)?;
            if accepted {
                inner.calls.push(1);
            }
            Ok(accepted)
        })
    }

    /// Accepts text, whatever tokens write it: True where the text with it can still be completed, else
    /// nothing changes. Counts as one token for `rollback`.
    ///
    /// Raises:
    ///     TypeError: neither str nor bytes.
    ///     MatcherError: a limit; nothing changes.
    fn accept_string(&self, py: Python<'_>, text: &Bound<'_, PyAny>) -> PyResult<bool> {
        let bytes = match (text.cast::<PyBytes>(), text.cast::<PyString>()) {
            (Ok(bytes), _) => bytes.as_bytes().to_vec(),
            (_, Ok(text)) => text.to_cow()?.as_bytes().to_vec(),
            _ => {
                let given = text.get_type().name()?;
                return Err(PyTypeError::new_err(format!(
                    "text must be str or bytes, not {given}"
                )));
            }
        };
        let count = u32::try_from(bytes.len())
            .map_err(|_| PyValueError::new_err("text must be shorter than 4 GiB"))?;
        self.call(py, |inner| {
            let accepted = inner.matcher.accept_bytes(&bytes)?;
            if accepted {
                inner.calls.push(count);
            }
            Ok(accepted)
        })
    }

    /// How many of the tokens could be accepted one after the other. Nothing changes.
    ///
    /// Raises:
    ///     IndexError: an id out of range.
    ///     MatcherError: a limit.
    fn validate_tokens(&self, py: Python<'_>, token_ids: Vec<i64>) -> PyResult<usize> {
        let ids: Vec<u32> = token_ids
            .iter()
            .map(|&id| self.check_id(id))
            .collect::<PyResult<_>>()?;
        self.call(py, |inner| inner.matcher.validate_tokens(&ids))
    }

    /// Takes back the last calls of `accept_token` and `accept_string` that accepted something.
    ///
    /// Raises:
    ///     ValueError: there were fewer; nothing changes.
    #[pyo3(signature = (num_tokens=1))]
    fn rollback(&self, py: Python<'_>, num_tokens: i64) -> PyResult<()> {
        let outcome = self.call(py, |inner| {
            let accepted = inner.calls.len();
            let kept = usize::try_from(num_tokens)
                .ok()
                .and_then(|asked| accepted.checked_sub(asked));
            let Some(kept) = kept else {
                return Ok(Err(accepted));
            };
            let steps: usize = inner.calls[kept..]
                .iter()
                .map(|&steps| steps as usize)
                .sum();
            inner.matcher.rollback(steps)?;
            inner.calls.truncate(kept);
            Ok(Ok(()))
        })?;
        outcome.map_err(|accepted| {
            PyValueError::new_err(format!(
                "num_tokens is {num_tokens}, but it must be from 0 to {accepted}, the tokens accepted so far"
            ))
        })
    }

    /// Back to the start.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |inner| {
            inner.matcher.reset();
            inner.calls.clear();
            Ok(())
        })
    }

    /// A matcher that goes its own way from here.
    fn fork(&self, py: Python<'_>) -> PyResult<Self> {
        let inner = self.call(py, |inner| Ok(inner.clone()))?;
        Ok(Self {
            inner: Mutex::new(inner),
            grammar: self.grammar.clone_ref(py),
            shared: Arc::clone(&self.shared),
            stop_token_ids: self.stop_token_ids.clone(),
            ..*self
        })
    }

    /// True once the text is at its end: a stop token was accepted, or it matches, where
    /// `terminate_without_stop_token` says that this is enough.
    fn is_terminated(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |inner| {
            Ok(match self.terminate_without_stop_token {
                true => inner.matcher.is_completed(),
                false => inner.matcher.is_terminated(),
            })
        })
    }

    /// True where the text could stop here: it matches the grammar as it is.
    fn is_completed(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |inner| Ok(inner.matcher.is_completed()))
    }

    /// The text that must come next, whatever tokens write it; empty where there is a choice.
    fn find_jump_forward_string(&self, py: Python<'_>) -> PyResult<String> {
        self.call(py, |inner| inner.matcher.find_jump_forward_string())
    }

    /// The tokens that must come next, as long as each is the only one allowed.
    fn forced_tokens(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.call(py, |inner| inner.matcher.forced_tokens())
    }

    /// How many tokens complete the text, the stop token included: a bound that masks within it keep.
    fn min_tokens_to_complete(&self, py: Python<'_>) -> PyResult<u32> {
        self.call(py, |inner| inner.matcher.min_tokens_to_complete())
    }

    /// How many calls were accepted and not taken back.
    #[getter]
    fn num_accepted(&self, py: Python<'_>) -> PyResult<usize> {
        self.call(py, |inner| Ok(inner.calls.len()))
    }

    /// Tokens that end the text.
    #[getter]
    fn stop_token_ids(&self) -> Vec<u32> {
        self.stop_token_ids.clone()
    }

    /// Its grammar.
    #[getter]
    fn compiled_grammar(&self, py: Python<'_>) -> Py<CompiledGrammar> {
        self.grammar.clone_ref(py)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a GrammarMatcher can't be pickled: pickle its compiled_grammar and accept the tokens again",
        ))
    }
}
