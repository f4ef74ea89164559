//! A file, mapped.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use crate::error::GgufError;
use crate::header::{Header, TensorInfo};
use crate::metadata::Metadata;
use crate::tensor_type::TensorType;

/// A GGUF file whose header was read and whose tensors are mapped.
pub struct GgufFile {
    header: Header,
    bytes: Mmap,
    file: File,
}

/// A tensor of a file.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// Number format.
    pub tensor_type: TensorType,
    /// Row-major.
    pub shape: &'a [usize],
    /// Its blocks, row after row; empty for formats that aren't read.
    pub data: &'a [u8],
}

impl GgufFile {
    /// Maps a file and reads its header.
    ///
    /// # Errors
    /// [`GgufError`]: it can't be read, is no GGUF file, or is broken.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        // Before it is opened: a pipe would be waited for.
        if !std::fs::metadata(path)?.is_file() {
            let problem = "not a plain file";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, problem).into());
        }
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            // Nothing can't be mapped; the error is the parser's.
            Header::parse(&[])?;
        }
        // SAFETY: the map is read only. A file that another process shortens while it is mapped is
        // the caller's fault, as for every program that maps its model.
        let bytes = unsafe { Mmap::map(&file)? };
        Ok(Self {
            header: Header::parse(&bytes)?,
            bytes,
            file,
        })
    }

    /// What is mapped, whatever has its name by now.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes before the tensors' data.
    pub fn header_len(&self) -> usize {
        self.header.len()
    }

    /// Keys and values.
    pub fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// The tensor of a name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.header.tensor(name).map(|info| self.mapped(info))
    }

    /// All tensors, in no order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Tensor<'_>)> {
        self.header
            .tensors()
            .map(|(name, info)| (name, self.mapped(info)))
    }

    fn mapped<'a>(&'a self, info: &'a TensorInfo) -> Tensor<'a> {
        Tensor {
            tensor_type: info.tensor_type,
            shape: &info.shape,
            data: &self.bytes[info.range.clone()],
        }
    }
}
