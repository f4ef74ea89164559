//! The files of a checkpoint: a folder, memory-mapped, or bytes inside the executable; or one GGUF
//! file.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use protocol::Quantization;
use safetensors::tensor::{Metadata, SafeTensors};
use serde_json::Value;
use tokenizer::{ModelFileError, open_model_file};

use super::config::HfConfig;
use super::error::{ModelError, cut};
use super::gguf::{self, GgufModel, GgufTensors};
use super::weights::StoredDtype;

const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";

/// Most files of weights: sixty times the most of a published model. Each is opened, mapped and kept.
const MAX_SHARDS: usize = 10_000;

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
                let config = self.read("config.json")?;
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

/// One safetensors file.
struct Shard {
    name: String,
    bytes: FileBytes,
    /// Where the tensors' data begins.
    data_start: usize,
    metadata: Metadata,
}

/// All tensors of a checkpoint, by the names that a Hugging Face checkpoint gives them.
pub(crate) enum Checkpoint {
    Safetensors(Shards),
    Gguf(GgufTensors),
}

/// All tensors of safetensors files.
pub(crate) struct Shards {
    shards: Vec<Shard>,
    /// Tensor name to index in `shards`.
    shard_of: HashMap<String, usize>,
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

/// The number format of dense weights.
fn dense_dtype(dtype: safetensors::Dtype) -> Option<StoredDtype> {
    match dtype {
        safetensors::Dtype::F32 => Some(StoredDtype::F32),
        safetensors::Dtype::F16 => Some(StoredDtype::F16),
        safetensors::Dtype::BF16 => Some(StoredDtype::BF16),
        _ => None,
    }
}

impl Shards {
    /// Maps `model.safetensors`, or the shards that `model.safetensors.index.json` lists, and
    /// checks their headers.
    fn open(files: &CheckpointFiles) -> Result<Self, ModelError> {
        let mut checkpoint = Self {
            shards: Vec::new(),
            shard_of: HashMap::new(),
        };
        if let Some(index) = files.find(INDEX_FILE)? {
            for name in shard_names(json_bytes(INDEX_FILE, &index)?)? {
                checkpoint.add_shard(&name, files.read(&name)?)?;
            }
        } else if let Some(bytes) = files.find(SINGLE_FILE)? {
            checkpoint.add_shard(SINGLE_FILE, bytes)?;
        } else {
            return Err(ModelError::File {
                file: SINGLE_FILE.to_owned(),
                problem: format!(
                    "missing; the weights are needed as {SINGLE_FILE} or as shards with {INDEX_FILE}"
                ),
            });
        }
        Ok(checkpoint)
    }

    fn add_shard(&mut self, name: &str, bytes: FileBytes) -> Result<(), ModelError> {
        let (header_len, metadata) =
            SafeTensors::read_metadata(bytes.as_slice()).map_err(|error| ModelError::File {
                file: name.to_owned(),
                problem: format!(
                    "not a complete safetensors file: {error}; get it anew, for a model of the Hub by \
                     `formwork remove NAME` and `formwork pull NAME`"
                ),
            })?;
        let index = self.shards.len();
        for tensor in metadata.offset_keys() {
            self.shard_of.insert(tensor, index);
        }
        // The header's length stands in 8 bytes before it.
        let data_start = 8 + header_len;
        self.shards.push(Shard {
            name: name.to_owned(),
            bytes,
            data_start,
            metadata,
        });
        Ok(())
    }

    fn source_files(&self) -> Vec<SourceFile<'_>> {
        let shards = self.shards.iter();
        shards
            .filter_map(|shard| match &shard.bytes {
                FileBytes::Mapped { file, .. } => Some(SourceFile {
                    name: &shard.name,
                    file,
                    header_len: shard.data_start,
                }),
                FileBytes::Embedded(_) | FileBytes::Empty => None,
            })
            .collect()
    }

    fn num_bytes(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.metadata.data_len())
            .sum()
    }

    fn find_any(&self, name: &str) -> Option<FileTensor<'_>> {
        let shard = self.shards.get(*self.shard_of.get(name)?)?;
        let info = shard.metadata.info(name)?;
        let (start, end) = info.data_offsets;
        let range = shard.data_start + start..shard.data_start + end;
        Some(FileTensor {
            file: &shard.name,
            dtype: info.dtype,
            shape: &info.shape,
            data: shard.bytes.as_slice().get(range)?,
            mapped: matches!(shard.bytes, FileBytes::Mapped { .. }),
        })
    }

    fn find(&self, name: &str) -> Result<Option<RawTensor<'_>>, ModelError> {
        let Some(tensor) = self.find_any(name) else {
            return Ok(None);
        };
        let dtype = dense_dtype(tensor.dtype).ok_or_else(|| ModelError::TensorDtype {
            name: name.to_owned(),
            file: tensor.file.to_owned(),
            found: format!("{:?}", tensor.dtype),
            supported: "F32, F16 and BF16",
        })?;
        Ok(Some(RawTensor {
            file: tensor.file,
            dtype,
            shape: tensor.shape,
            data: tensor.data,
            mapped: tensor.mapped,
            interleaved: None,
        }))
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

/// The distinct file names in an index, in order of their first mention.
fn shard_names(index: &[u8]) -> Result<Vec<String>, ModelError> {
    let wrong = |problem: String| ModelError::File {
        file: INDEX_FILE.to_owned(),
        problem,
    };
    let index: Value =
        serde_json::from_slice(index).map_err(|error| wrong(format!("not JSON: {error}")))?;
    let map = index
        .get("weight_map")
        .and_then(Value::as_object)
        .ok_or_else(|| {
            wrong("weight_map: an object of tensor names and files is needed".to_owned())
        })?;
    let mut names: Vec<String> = Vec::new();
    let mut known: HashSet<&str> = HashSet::new();
    for (tensor, file) in map {
        let file = file
            .as_str()
            .filter(|file| is_plain_file_name(file))
            .ok_or_else(|| {
                wrong(format!(
                    "weight_map: {tensor}: {} must be a file name",
                    cut(&file.to_string())
                ))
            })?;
        if known.insert(file) {
            names.push(file.to_owned());
        }
    }
    if names.len() > MAX_SHARDS {
        return Err(wrong(format!(
            "weight_map: {} files; at most {MAX_SHARDS} are read",
            names.len()
        )));
    }
    Ok(names)
}

/// Whether a name from outside stays inside the checkpoint's folder.
fn is_plain_file_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!(components.next(), Some(std::path::Component::Normal(_)))
        && components.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_cannot_lead_out_of_the_folder() {
        for name in [
            "../model.safetensors",
            "/etc/passwd",
            "a/b.safetensors",
            "",
            ".",
        ] {
            let index = serde_json::json!({"weight_map": {"x": name}}).to_string();
            let error = shard_names(index.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("must be a file name"), "{name}: {error}");
        }
    }

    #[test]
    fn an_index_names_so_many_files_at_most() {
        let index = |count: usize| {
            let map = (0..200_000).map(|n| (format!("t{n}"), format!("s{}", n % count).into()));
            let map: serde_json::Map<String, Value> = map.collect();
            serde_json::json!({ "weight_map": map }).to_string()
        };
        let most = shard_names(index(MAX_SHARDS).as_bytes()).unwrap();
        assert_eq!(most.len(), MAX_SHARDS);
        for count in [MAX_SHARDS + 1, 200_000] {
            let error = shard_names(index(count).as_bytes()).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{INDEX_FILE}: weight_map: {count} files; at most 10000 are read")
            );
        }
    }

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

    #[test]
    fn shards_are_listed_once() {
        let index = br#"{"weight_map": {"x": "b", "y": "a", "z": "b"}}"#;
        assert_eq!(shard_names(index).unwrap(), ["b", "a"]);
    }
}
