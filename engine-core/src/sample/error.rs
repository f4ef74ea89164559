//! Why a row can't be sampled from.

use protocol::{RequestError, RequestErrorCode};

/// Why there is no token for a request. Other requests are untouched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// The row is not the model's.
    #[error("a row has {found} logits; the model's rows have {expected}")]
    LogitsWidth {
        /// Width of the model's rows.
        expected: usize,
        /// Width of this one.
        found: usize,
    },
    /// The grammar's mask is not of this vocabulary.
    #[error("a grammar mask has {found} words of 32 bits; the vocabulary needs {expected}")]
    BitmaskWidth {
        /// Words that the vocabulary needs.
        expected: usize,
        /// Words given.
        found: usize,
    },
    /// The model computed nothing to choose by.
    #[error(
        "the model's logits have no finite value ({num_nans} of {num_tokens} are NaN, the others \
         -inf); the weights or the number format are likely at fault"
    )]
    NoFiniteLogits {
        /// NaN values.
        num_nans: u32,
        /// Tokens of the vocabulary.
        num_tokens: usize,
    },
    /// The grammar's mask leaves no token.
    #[error("the grammar allows none of the {num_tokens} tokens at output token {output_index}")]
    GrammarMaskEmpty {
        /// Tokens of the vocabulary.
        num_tokens: usize,
        /// 0-based position in the output.
        output_index: usize,
    },
}

impl From<SampleError> for RequestError {
    fn from(error: SampleError) -> Self {
        Self::new(RequestErrorCode::InternalError, error.to_string())
    }
}
