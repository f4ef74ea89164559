//! The files of a checkpoint: a folder, memory-mapped, or bytes inside the executable; or one GGUF
//! file.

mod shards;

use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use protocol::Quantization;
use tokenizer::{ModelFileError, open_model_file};

use super::config::HfConfig;
use super::error::ModelError;
use super::gguf::{self, GgufModel, GgufTensors};
use super::weights::StoredDtype;
use shards::{Shards, dense_dtype};

/// What PEFT calls the configuration of an adapter.
const ADAPTER_CONFIG: &str = "adapter_config.json";

/// Most bytes of a file of JSON beside the weights: twice the largest index of a published model. A
/// parsed one takes many times its bytes.
const MAX_JSON_BYTES: usize = 32 << 20;

/// Where a checkpoint's files come from.
#[derive(Debug, Clone)]
pub enum CheckpointFiles {
    /// A folder in the Hugging Face layout.
    Folder(PathBuf),
    /// Names and contents.
    Embedded(Vec<(String, &'static [u8])>),
    /// A GGUF file.
    Gguf(GgufModel),
}

/// The content of one file.
pub(crate) enum FileBytes {
    Mapped {
        map: Mmap,
        /// What is mapped, whatever has its name by now.
        file: File,
    },
    Embedded(&'static [u8]),
    Empty,
}

impl FileBytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped { map, .. } => map,
            Self::Embedded(bytes) => bytes,
            Self::Empty => &[],
        }
    }
}

impl CheckpointFiles {
    /// What lies at a path: a folder, or a GGUF file.
    ///
    /// # Errors
    /// [`ModelError::Folder`] where there is neither, [`ModelError::Gguf`] where the file is
    /// something else.
    pub fn at(path: &Path) -> Result<Self, ModelError> {
        let problem = match path.metadata() {
            Ok(metadata) if metadata.is_dir() => return Ok(Self::Folder(path.to_owned())),
            Ok(metadata) if metadata.is_file() => return GgufModel::open(path).map(Self::Gguf),
            Ok(_) => "neither a folder nor a file".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(ModelError::Folder {
            path: path.to_owned(),
            problem: format!(
                "{problem}; a folder with config.json and *.safetensors, or a GGUF file, is needed"
            ),
        })
    }

    /// Where weights that are quantized while loading are kept: in the folder, or beside the file.
    pub(crate) fn weight_cache_path(&self, quantization: Quantization) -> Option<PathBuf> {
        let suffix = match quantization {
            // What a file's formats are rounded to where they have no kernel.
            Quantization::None => "weights".to_owned(),
            asked => format!("{}.weights", asked.as_str()),
        };
        match self {
            Self::Folder(folder) => Some(folder.join(format!("formwork.{suffix}"))),
            Self::Gguf(model) => {
                let mut path = model.path().as_os_str().to_owned();
                path.push(format!(".formwork.{suffix}"));
                Some(path.into())
            }
            Self::Embedded(_) => None,
        }
    }

    /// What the files say of the model.
    ///
    /// # Errors
    /// As [`HfConfig::parse`]; [`ModelError::Gguf`].
    pub(crate) fn config(&self) -> Result<HfConfig, ModelError> {
        match self {
            Self::Gguf(model) => gguf::parse(model),
            Self::Folder(_) | Self::Embedded(_) => {
                let is_adapter = self.find(ADAPTER_CONFIG)?.is_some();
                let config = match self.find("config.json")? {
                    None if is_adapter => {
                        return Err(ModelError::File {
                            file: ADAPTER_CONFIG.to_owned(),
                            problem: "the folder has an adapter (LoRA), which is no model by itself: merge it into its base \
                                      model, with PEFT by merge_and_unload, and save that with its tokenizer"
                                .to_owned(),
                        });
                    }
                    None => self.read("config.json")?,
                    Some(config) => config,
                };
                if is_adapter {
                    tracing::warn!(
                        "the adapter of {} is not applied: the model is read without it",
                        ADAPTER_CONFIG
                    );
                }
                HfConfig::parse(json_bytes("config.json", &config)?)
            }
        }
    }

    /// The file's content, or `None` where the checkpoint has no such file.
    pub(crate) fn find(&self, name: &str) -> Result<Option<FileBytes>, ModelError> {
        match self {
            Self::Embedded(files) => {
                let found = files.iter().find(|(file, _)| file == name);
                Ok(found.map(|(_, bytes)| FileBytes::Embedded(bytes)))
            }
            Self::Folder(folder) => {
                let wrong = |problem: String| ModelError::File {
                    file: name.to_owned(),
                    problem,
                };
                match open_model_file(folder, name) {
                    Ok(file) => map_file(file)
                        .map(Some)
                        .map_err(|error| wrong(error.to_string())),
                    Err(ModelFileError::NotFound { .. }) => Ok(None),
                    Err(error) => Err(wrong(error.to_string())),
                }
            }
            Self::Gguf(_) => Ok(None),
        }
    }

    /// The file's content.
    pub(crate) fn read(&self, name: &str) -> Result<FileBytes, ModelError> {
        self.find(name)?.ok_or_else(|| ModelError::File {
            file: name.to_owned(),
            problem: match self {
                Self::Folder(folder) => format!("missing in {}", folder.display()),
                Self::Embedded(_) | Self::Gguf(_) => "missing".to_owned(),
            },
        })
    }
}

fn map_file(file: File) -> std::io::Result<FileBytes> {
    if file.metadata()?.len() == 0 {
        return Ok(FileBytes::Empty);
    }
    // SAFETY: the map is read only. A file that another process shortens while it is mapped is
    // the caller's fault, as for every program that maps its model.
    let map = unsafe { Mmap::map(&file)? };
    Ok(FileBytes::Mapped { map, file })
}

/// A file on a disk that holds tensors.
pub(crate) struct SourceFile<'a> {
    pub(crate) name: &'a str,
    pub(crate) file: &'a File,
    /// Bytes before the tensors' data.
    pub(crate) header_len: usize,
}

/// All tensors of a checkpoint, by the names that a Hugging Face checkpoint gives them.
pub(crate) enum Checkpoint {
    Safetensors(Shards),
    Gguf(GgufTensors),
}

/// One tensor as the file has it.
#[derive(Clone, Copy)]
pub(crate) struct RawTensor<'a> {
    pub(crate) file: &'a str,
    pub(crate) dtype: StoredDtype,
    pub(crate) shape: &'a [usize],
    pub(crate) data: &'a [u8],
    /// Whether the data lies in the read-only map of a file.
    pub(crate) mapped: bool,
    /// Width of a head whose rows stand in the order `(0, half, 1, half + 1, ..)`, where the rows
    /// are a head's and do.
    pub(crate) interleaved: Option<usize>,
}

/// One tensor of a safetensors file, in whatever number format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileTensor<'a> {
    pub(crate) file: &'a str,
    pub(crate) dtype: safetensors::Dtype,
    pub(crate) shape: &'a [usize],
    pub(crate) data: &'a [u8],
    /// Whether the data lies in the read-only map of a file.
    pub(crate) mapped: bool,
}

impl Checkpoint {
    /// Opens the tensors of a model with this configuration.
    pub(crate) fn open(files: &CheckpointFiles, config: &HfConfig) -> Result<Self, ModelError> {
        Ok(match files {
            CheckpointFiles::Gguf(model) => Self::Gguf(model.tensors(config)),
            CheckpointFiles::Folder(_) | CheckpointFiles::Embedded(_) => {
                Self::Safetensors(Shards::open(files)?)
            }
        })
    }

    /// The files on a disk that hold the tensors, where they are on one.
    pub(crate) fn source_files(&self) -> Vec<SourceFile<'_>> {
        match self {
            Self::Safetensors(shards) => shards.source_files(),
            Self::Gguf(tensors) => vec![tensors.source_file()],
        }
    }

    /// Bytes of all tensors.
    pub(crate) fn num_bytes(&self) -> usize {
        match self {
            Self::Safetensors(shards) => shards.num_bytes(),
            Self::Gguf(tensors) => tensors.num_bytes(),
        }
    }

    /// Bytes that the tensors of these names take at least in a model that keeps `bits` of each dense value. What has
    /// fewer in the file keeps them, or half of them where it is quantized again.
    pub(crate) fn least_num_bytes(&self, bits: u64, is_used: impl Fn(&str) -> bool) -> u64 {
        let of_dtype = |dtype: Option<StoredDtype>, num_bytes: usize| {
            let num_bytes = num_bytes as u64;
            match dtype {
                Some(StoredDtype::F32) => num_bytes / 32 * bits,
                Some(StoredDtype::F16 | StoredDtype::BF16) => num_bytes / 16 * bits,
                _ if bits < 16 => num_bytes / 2,
                _ => num_bytes,
            }
        };
        match self {
            Self::Safetensors(shards) => {
                let shards = shards.shards.iter();
                let tensors = shards.flat_map(|shard| shard.metadata.tensors());
                let used = tensors.filter(|(name, _)| is_used(name));
                used.map(|(_, info)| {
                    let (start, end) = info.data_offsets;
                    of_dtype(dense_dtype(info.dtype), end - start)
                })
                .sum()
            }
            Self::Gguf(tensors) => tensors
                .sizes()
                .map(|(dtype, num_bytes)| of_dtype(Some(dtype), num_bytes))
                .sum(),
        }
    }

    /// The tensor, or `None` where there is none of this name.
    ///
    /// # Errors
    /// [`ModelError::TensorDtype`] where its number format isn't supported.
    pub(crate) fn find(&self, name: &str) -> Result<Option<RawTensor<'_>>, ModelError> {
        match self {
            Self::Safetensors(shards) => shards.find(name),
            Self::Gguf(tensors) => tensors.find(name),
        }
    }

    /// The tensor of a Hugging Face folder in whatever number format; `None` where there is none of this
    /// name.
    pub(crate) fn find_any(&self, name: &str) -> Option<FileTensor<'_>> {
        match self {
            Self::Safetensors(shards) => shards.find_any(name),
            Self::Gguf(_) => None,
        }
    }

    /// Whether a loaded model has used what it must: of a GGUF file every tensor. Hugging Face
    /// folders may hold others, such as a tied LM head.
    ///
    /// # Errors
    /// [`ModelError::Gguf`].
    pub(crate) fn check_all_used(&self) -> Result<(), ModelError> {
        match self {
            Self::Safetensors(_) => Ok(()),
            Self::Gguf(tensors) => tensors.check_all_used(),
        }
    }

    /// The quantized format that most of the weights are stored in.
    pub(crate) fn quantized_format(&self) -> Option<String> {
        match self {
            Self::Safetensors(_) => None,
            Self::Gguf(tensors) => tensors.quantized_format(),
        }
    }

    /// What messages call a tensor: its name in the file.
    pub(crate) fn name_in_file(&self, name: &str) -> String {
        match self {
            Self::Safetensors(_) => name.to_owned(),
            Self::Gguf(tensors) => tensors.name_in_file(name),
        }
    }

    /// Whether the weights of norms hold what some families add to them.
    pub(crate) fn norm_offset_included(&self) -> bool {
        match self {
            Self::Safetensors(_) => false,
            Self::Gguf(tensors) => tensors.norm_offset_included(),
        }
    }
}

/// The content of a file of JSON, where it is no larger than such a file may be.
fn json_bytes<'f>(name: &str, file: &'f FileBytes) -> Result<&'f [u8], ModelError> {
    let bytes = file.as_slice();
    if bytes.len() > MAX_JSON_BYTES {
        return Err(ModelError::File {
            file: name.to_owned(),
            problem: format!(
                "{} bytes; at most {MAX_JSON_BYTES} are read of it",
                bytes.len()
            ),
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::shards::{INDEX_FILE, SINGLE_FILE};
    use super::*;

    #[test]
    fn json_beside_the_weights_is_read_up_to_a_size() {
        let folder = tempfile::tempdir().unwrap();
        let files = CheckpointFiles::Folder(folder.path().to_owned());
        for name in ["config.json", INDEX_FILE] {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_len(MAX_JSON_BYTES as u64 + 1).unwrap();
        }
        let too_large =
            |name: &str| format!("{name}: 33554433 bytes; at most 33554432 are read of it");
        let error = files.config().unwrap_err();
        assert_eq!(error.to_string(), too_large("config.json"));
        let Err(error) = Shards::open(&files) else {
            panic!("the index was read");
        };
        assert_eq!(error.to_string(), too_large(INDEX_FILE));
    }

    #[test]
    fn an_adapter_is_no_model() {
        let folder = tempfile::tempdir().unwrap();
        let files = CheckpointFiles::Folder(folder.path().to_owned());
        std::fs::write(folder.path().join(ADAPTER_CONFIG), "{}").unwrap();
        let error = files.config().unwrap_err().to_string();
        assert!(error.contains("merge it into its base model"), "{error}");
    }

    #[test]
    fn links_out_of_the_folder_are_refused() {
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("secret"), "{}").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let files = CheckpointFiles::Folder(folder.path().to_owned());
        for name in ["config.json", INDEX_FILE, SINGLE_FILE] {
            let link = folder.path().join(name);
            std::os::unix::fs::symlink(elsewhere.path().join("secret"), link).unwrap();
            let Err(error) = files.find(name) else {
                panic!("{name} was read");
            };
            let error = error.to_string();
            assert!(error.contains("outside of the model's folder"), "{error}");
        }
        std::fs::write(folder.path().join("plain"), "x").unwrap();
        assert_eq!(files.read("plain").unwrap().as_slice(), b"x");
    }
}
