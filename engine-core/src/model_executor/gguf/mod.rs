//! Models in GGUF files: their configuration as a `config.json` would say it, and their tensors
//! under the names that a Hugging Face checkpoint gives them.

mod config;
mod names;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::gguf::{GgufError, GgufFile, TensorType};

pub(crate) use self::config::parse;
use self::names::Place;
use super::checkpoint::{RawTensor, SourceFile};
use super::config::HfConfig;
use super::error::{ModelError, cut};
use super::weights::StoredDtype;

/// An open file, with what its messages call it.
#[derive(Clone)]
pub struct GgufModel {
    /// The file's name.
    name: String,
    path: PathBuf,
    file: Arc<GgufFile>,
}

impl std::fmt::Debug for GgufModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GgufModel").field(&self.name).finish()
    }
}

impl GgufModel {
    /// Opens a file and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        match GgufFile::open(path) {
            Ok(file) => Ok(Self {
                name: name.into_owned(),
                path: path.to_owned(),
                file: Arc::new(file),
            }),
            Err(source) => Err(ModelError::Gguf {
                file: name.into_owned(),
                source: Box::new(source),
            }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its tensors, for a model with this configuration.
    pub(crate) fn tensors(&self, config: &HfConfig) -> GgufTensors {
        let names = self.file.tensors().map(|(name, _)| name.to_owned());
        let mut unused: BTreeSet<String> = names.collect();
        for name in config::rope_tensors(&self.file) {
            unused.remove(*name);
        }
        GgufTensors {
            model: self.clone(),
            unused: RefCell::new(unused),
            head_dim: config.head_dim,
            layout: Layout::of(&config.architecture),
        }
    }
}

fn stored_dtype(tensor_type: TensorType) -> StoredDtype {
    match tensor_type {
        TensorType::F32 => StoredDtype::F32,
        TensorType::F16 => StoredDtype::F16,
        TensorType::BF16 => StoredDtype::BF16,
        blocks => StoredDtype::Blocks(blocks),
    }
}

/// How a converter changes a family's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Layout {
    /// Rows of queries and keys are in ggml's order for rotation: the pairs that are rotated
    /// together lie side by side, `(0, half, 1, half + 1, ..)`.
    interleaved_heads: bool,
    /// Gemma: norms on both sides of each block, which hold the 1 that others add to them.
    gemma_norms: bool,
}

impl Layout {
    fn of(architecture: &str) -> Self {
        Self {
            interleaved_heads: matches!(
                architecture,
                "LlamaForCausalLM"
                    | "MistralForCausalLM"
                    | "MixtralForCausalLM"
                    | "SmolLM3ForCausalLM"
            ),
            gemma_norms: architecture.starts_with("Gemma"),
        }
    }
}

/// A file's tensors by the names of a Hugging Face checkpoint.
pub(crate) struct GgufTensors {
    model: GgufModel,
    /// Names of those that nothing has asked for.
    unused: RefCell<BTreeSet<String>>,
    head_dim: usize,
    layout: Layout,
}

impl GgufTensors {
    /// The file.
    pub(crate) fn source_file(&self) -> SourceFile<'_> {
        SourceFile {
            name: &self.model.name,
            file: self.model.file.file(),
            header_len: self.model.file.header_len(),
        }
    }

    /// Bytes of all tensors.
    pub(crate) fn num_bytes(&self) -> usize {
        self.sizes().map(|(_, num_bytes)| num_bytes).sum()
    }

    /// Number format and bytes of each tensor.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (StoredDtype, usize)> {
        let tensors = self.model.file.tensors();
        tensors.map(|(_, tensor)| (stored_dtype(tensor.tensor_type), tensor.data.len()))
    }

    /// The quantized format of most bytes, where most are quantized.
    pub(crate) fn quantized_format(&self) -> Option<String> {
        let mut bytes: HashMap<TensorType, usize> = HashMap::new();
        for (_, tensor) in self.model.file.tensors() {
            *bytes.entry(tensor.tensor_type).or_default() += tensor.data.len();
        }
        let (format, _) = bytes
            .into_iter()
            .max_by_key(|(format, bytes)| (*bytes, format.id()))?;
        match format {
            TensorType::F32 | TensorType::F16 | TensorType::BF16 => None,
            quantized => Some(quantized.to_string()),
        }
    }

    /// Whether norms hold what others add to them.
    pub(crate) fn norm_offset_included(&self) -> bool {
        self.layout.gemma_norms
    }

    fn place(&self, name: &str) -> Option<Place> {
        Place::of(name, self.layout.gemma_norms)
    }

    /// A tensor's name in the file.
    pub(crate) fn name_in_file(&self, name: &str) -> String {
        self.place(name)
            .map_or_else(|| name.to_owned(), |place| place.tensor)
    }

    /// Whether everything has been asked for: a file whose metadata describes less than it holds
    /// would answer as another model.
    ///
    /// # Errors
    /// [`ModelError::Gguf`], with the first names that are left.
    pub(crate) fn check_all_used(&self) -> Result<(), ModelError> {
        const MOST_NAMED: usize = 3;
        let unused = self.unused.borrow();
        if unused.is_empty() {
            return Ok(());
        }
        let named = unused.iter().take(MOST_NAMED);
        let mut names = named
            .map(|name| cut(&name.escape_debug().to_string()))
            .collect::<Vec<_>>()
            .join(", ");
        if unused.len() > MOST_NAMED {
            names.push_str(", ..");
        }
        Err(ModelError::Gguf {
            file: self.model.name.clone(),
            source: Box::new(GgufError::Invalid {
                place: format!("unknown tensors ({}): {names}", unused.len()),
                problem: "the model that the metadata describes must use every tensor of the file"
                    .to_owned(),
            }),
        })
    }

    /// The tensor, or `None` where there is none of this name.
    ///
    /// # Errors
    /// [`ModelError::TensorDtype`] where its number format isn't supported.
    pub(crate) fn find(&self, name: &str) -> Result<Option<RawTensor<'_>>, ModelError> {
        let Some(place) = self.place(name) else {
            return Ok(None);
        };
        let Some(tensor) = self.model.file.tensor(&place.tensor) else {
            return Ok(None);
        };
        self.unused.borrow_mut().remove(&place.tensor);
        if matches!(tensor.tensor_type, TensorType::Unsupported(_)) {
            return Err(ModelError::TensorDtype {
                name: place.tensor,
                file: self.model.name.clone(),
                found: tensor.tensor_type.to_string(),
                supported: TensorType::SUPPORTED_NAMES,
            });
        }
        let dtype = stored_dtype(tensor.tensor_type);
        let (mut shape, mut data) = (tensor.shape, tensor.data);
        if let Some(index) = place.expert {
            // All experts' matrices in one tensor, one after the other.
            let [num_experts, one @ ..] = shape else {
                return Ok(None);
            };
            let len = data.len() / num_experts;
            let Some(slice) = data
                .get(index.saturating_mul(len)..)
                .and_then(|rest| rest.get(..len))
            else {
                return Ok(None);
            };
            (shape, data) = (one, slice);
        }
        Ok(Some(RawTensor {
            file: &self.model.name,
            dtype,
            shape,
            data,
            mapped: true,
            interleaved: (place.rotated && self.layout.interleaved_heads).then_some(self.head_dim),
        }))
    }
}
