//! GGUF files: what they say of a model, its tensors, and the formats of quantized weights.
//!
//! [`GgufFile::open`] maps a file and reads its header; nothing of the tensors is copied.
//! [`Header::parse`] does the same for bytes in memory. Every count and length in a file is
//! checked against the file's size before memory is taken or a byte is read, so that a broken or
//! hostile file is an error that names the place.
//!
//! Written from the specification of the format (version 3; version 2 differs in nothing that is
//! read here). It knows neither models nor tokenizers: what the keys mean is their readers' matter.
//!
//! ```
//! use gguf::Header;
//!
//! let mut file = b"GGUF".to_vec();
//! file.extend(3_u32.to_le_bytes()); // version
//! file.extend(0_u64.to_le_bytes()); // tensors
//! file.extend(1_u64.to_le_bytes()); // entries of the metadata
//! file.extend(4_u64.to_le_bytes());
//! file.extend(b"name");
//! file.extend(8_u32.to_le_bytes()); // a string
//! file.extend(5_u64.to_le_bytes());
//! file.extend(b"value");
//! let header = Header::parse(&file)?;
//! assert_eq!(header.metadata.required_str("name")?, "value");
//!
//! let error = Header::parse(&file[..20]).unwrap_err();
//! assert_eq!(error.to_string(), "the file ends at byte 20, within the number of metadata entries");
//! # Ok::<(), gguf::GgufError>(())
//! ```

mod blocks;
mod cursor;
mod error;
mod file;
mod header;
mod metadata;
mod numbers;
mod tensor_type;

pub use blocks::{K_BLOCK_LEN, KBlock};
pub use error::GgufError;
pub use file::{GgufFile, Tensor};
pub use header::{Header, TensorInfo};
pub use metadata::{Array, Metadata, Value};
pub use numbers::Numbers;
pub use tensor_type::{MAX_BLOCK_LEN, TensorType};
