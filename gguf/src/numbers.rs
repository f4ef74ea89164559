//! Arrays of numbers, kept as wide as a file has them: widened, bytes would take eight times their room.

/// The kinds of values, by their numbers in a file.
pub(crate) mod kind {
    pub(crate) const UINT8: u32 = 0;
    pub(crate) const INT8: u32 = 1;
    pub(crate) const UINT16: u32 = 2;
    pub(crate) const INT16: u32 = 3;
    pub(crate) const UINT32: u32 = 4;
    pub(crate) const INT32: u32 = 5;
    pub(crate) const FLOAT32: u32 = 6;
    pub(crate) const BOOL: u32 = 7;
    pub(crate) const STRING: u32 = 8;
    pub(crate) const ARRAY: u32 = 9;
    pub(crate) const UINT64: u32 = 10;
    pub(crate) const INT64: u32 = 11;
    pub(crate) const FLOAT64: u32 = 12;
}

/// Bytes of a number of this kind; `None` of what is no number.
pub(crate) fn width(kind: u32) -> Option<usize> {
    match kind {
        kind::UINT8 | kind::INT8 => Some(1),
        kind::UINT16 | kind::INT16 => Some(2),
        kind::UINT32 | kind::INT32 | kind::FLOAT32 => Some(4),
        kind::UINT64 | kind::INT64 | kind::FLOAT64 => Some(8),
        _ => None,
    }
}

/// Numbers of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbers {
    kind: u32,
    /// Little-endian, one after the other.
    bytes: Vec<u8>,
}

impl Numbers {
    pub(crate) fn new(kind: u32, bytes: &[u8]) -> Self {
        Self {
            kind,
            bytes: bytes.to_vec(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / width(self.kind).unwrap_or(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What a message calls them.
    pub(crate) fn shown(&self) -> &'static str {
        match self.kind {
            kind::FLOAT32 | kind::FLOAT64 => "fractions",
            kind::INT8 | kind::INT16 | kind::INT32 | kind::INT64 => "signed numbers",
            _ => "unsigned numbers",
        }
    }

    /// All of them, widened.
    pub fn to_f64(&self) -> Vec<f64> {
        macro_rules! widened {
            ($number:ty) => {{
                let numbers = self.bytes.as_chunks().0.iter();
                numbers
                    .map(|bytes| <$number>::from_le_bytes(*bytes) as f64)
                    .collect()
            }};
        }
        match self.kind {
            kind::UINT8 => widened!(u8),
            kind::INT8 => widened!(i8),
            kind::UINT16 => widened!(u16),
            kind::INT16 => widened!(i16),
            kind::UINT32 => widened!(u32),
            kind::INT32 => widened!(i32),
            kind::UINT64 => widened!(u64),
            kind::INT64 => widened!(i64),
            kind::FLOAT32 => widened!(f32),
            kind::FLOAT64 => widened!(f64),
            _ => Vec::new(),
        }
    }
}
