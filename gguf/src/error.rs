//! What can be wrong with a GGUF file.

/// What is wrong with a GGUF file, or with what is asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file can't be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The file is something else.
    #[error("not a GGUF file: it begins with {found}, not with \"GGUF\"")]
    Magic {
        /// Its first bytes.
        found: String,
    },
    /// A version that isn't read.
    #[error("GGUF version {version} is not supported; versions 2 and 3 (little-endian) are")]
    Version {
        /// What the file says.
        version: u32,
    },
    /// The file ends too early.
    #[error("the file ends at byte {len}, within {what}")]
    Truncated {
        /// Bytes of the file.
        len: usize,
        /// What stood there.
        what: String,
    },
    /// The header contradicts itself or the format.
    #[error("{place}: {problem}")]
    Invalid {
        /// The key, the tensor or the field.
        place: String,
        /// The value found and what would be right.
        problem: String,
    },
    /// The metadata lacks a key that is needed.
    #[error("the metadata lacks {key} ({expected} is needed)")]
    MissingKey {
        /// The key.
        key: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// A key holds something else than its meaning asks for.
    #[error("metadata {key}: {found} must be {expected}")]
    WrongValue {
        /// The key.
        key: String,
        /// What it holds, cut short.
        found: String,
        /// What it should hold.
        expected: String,
    },
}

impl GgufError {
    pub(crate) fn invalid(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid {
            place: place.into(),
            problem: problem.into(),
        }
    }
}

/// Text from a file, cut to a length that fits into a message, control characters escaped.
pub(crate) fn cut(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut cut: String = text
        .chars()
        .take(LONGEST)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        cut.push_str("...");
    }
    cut
}
