//! Weights as safetensors: one file, or several.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use safetensors::tensor::{Metadata, SafeTensors};
use serde_json::Value;

use super::super::error::{ModelError, cut};
use super::super::weights::StoredDtype;
use super::{CheckpointFiles, FileBytes, FileTensor, RawTensor, SourceFile, json_bytes};

pub(super) const SINGLE_FILE: &str = "model.safetensors";
pub(super) const INDEX_FILE: &str = "model.safetensors.index.json";
/// What PEFT calls the weights of an adapter.
const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// Most files of weights: sixty times the most of a published model. Each is opened, mapped and kept.
const MAX_SHARDS: usize = 10_000;

/// One safetensors file.
pub(super) struct Shard {
    name: String,
    bytes: FileBytes,
    /// Where the tensors' data begins.
    data_start: usize,
    pub(super) metadata: Metadata,
}

/// All tensors of safetensors files.
pub(crate) struct Shards {
    pub(super) shards: Vec<Shard>,
    /// Tensor name to index in `shards`.
    shard_of: HashMap<String, usize>,
}

/// The number format of dense weights.
pub(super) fn dense_dtype(dtype: safetensors::Dtype) -> Option<StoredDtype> {
    match dtype {
        safetensors::Dtype::F32 => Some(StoredDtype::F32),
        safetensors::Dtype::F16 => Some(StoredDtype::F16),
        safetensors::Dtype::BF16 => Some(StoredDtype::BF16),
        _ => None,
    }
}

impl Shards {
    /// Maps the shards that `model.safetensors.index.json` lists, or else `model.safetensors`, or else all files of
    /// weights whatever their names, and checks their headers.
    pub(super) fn open(files: &CheckpointFiles) -> Result<Self, ModelError> {
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
            for name in weights_of_any_name(files)? {
                checkpoint.add_shard(&name, files.read(&name)?)?;
            }
            checkpoint.check_tensors_differ()?;
        }
        if checkpoint.shards.is_empty() {
            return Err(ModelError::File {
                file: SINGLE_FILE.to_owned(),
                problem: format!(
                    "missing; the weights are needed as {SINGLE_FILE}, as shards with {INDEX_FILE}, or as other files \
                     *.safetensors"
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

    /// Refuses files that have a tensor in common, of which nothing says which one is the model's.
    fn check_tensors_differ(&self) -> Result<(), ModelError> {
        for (index, shard) in self.shards.iter().enumerate() {
            for tensor in shard.metadata.offset_keys() {
                let last = self.shard_of.get(&tensor).filter(|last| **last != index);
                if let Some(other) = last.and_then(|last| self.shards.get(*last)) {
                    let problem = format!(
                        "has the tensor {tensor}, and so has {}: leave one of them, or name the model's {SINGLE_FILE}",
                        other.name
                    );
                    return Err(ModelError::File {
                        file: shard.name.clone(),
                        problem,
                    });
                }
            }
        }
        Ok(())
    }

    pub(super) fn source_files(&self) -> Vec<SourceFile<'_>> {
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

    pub(super) fn num_bytes(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.metadata.data_len())
            .sum()
    }

    pub(super) fn find_any(&self, name: &str) -> Option<FileTensor<'_>> {
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

    pub(super) fn find(&self, name: &str) -> Result<Option<RawTensor<'_>>, ModelError> {
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

/// The files of weights of a folder that has neither an index nor `model.safetensors`, in order. What vendors call
/// `consolidated` is a copy in names of their own.
fn weights_of_any_name(files: &CheckpointFiles) -> Result<Vec<String>, ModelError> {
    let CheckpointFiles::Folder(folder) = files else {
        return Ok(Vec::new());
    };
    let failed = |error: std::io::Error| ModelError::Folder {
        path: folder.clone(),
        problem: error.to_string(),
    };
    let mut names = Vec::new();
    for entry in folder.read_dir().map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let is_weights = |name: &&str| {
            name.ends_with(".safetensors")
                && !name.starts_with("consolidated")
                && *name != ADAPTER_WEIGHTS
        };
        names.extend(name.to_str().filter(is_weights).map(str::to_owned));
    }
    if names.len() > MAX_SHARDS {
        let problem = format!(
            "{} files *.safetensors; at most {MAX_SHARDS} are read",
            names.len()
        );
        return Err(ModelError::Folder {
            path: folder.clone(),
            problem,
        });
    }
    names.sort_unstable();
    Ok(names)
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
    fn shards_are_listed_once() {
        let index = br#"{"weight_map": {"x": "b", "y": "a", "z": "b"}}"#;
        assert_eq!(shard_names(index).unwrap(), ["b", "a"]);
    }

    fn safetensors(tensor: &str) -> Vec<u8> {
        let header = format!(
            "{{\"{tensor}\": {{\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}}}"
        );
        let len = (header.len() as u64).to_le_bytes();
        [&len[..], header.as_bytes(), &[0; 4]].concat()
    }

    #[test]
    fn weights_without_an_index_may_have_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let files = CheckpointFiles::Folder(folder.path().to_owned());
        let write = |name: &str, tensor: &str| {
            std::fs::write(folder.path().join(name), safetensors(tensor)).unwrap();
        };
        let error = Shards::open(&files).err().unwrap().to_string();
        assert!(error.contains("or as other files *.safetensors"), "{error}");
        for (name, tensor) in [
            ("weights-2.safetensors", "b"),
            ("weights-1.safetensors", "a"),
            ("adapter_model.safetensors", "a"),
            ("consolidated.00.safetensors", "a"),
        ] {
            write(name, tensor);
        }
        let shards = Shards::open(&files).unwrap();
        let names: Vec<&str> = shards
            .shards
            .iter()
            .map(|shard| shard.name.as_str())
            .collect();
        assert_eq!(names, ["weights-1.safetensors", "weights-2.safetensors"]);
        assert!(shards.find_any("b").is_some());
        write("x.safetensors", "a");
        let error = Shards::open(&files).err().unwrap().to_string();
        assert!(
            error.starts_with("weights-1.safetensors: has the tensor a, and so has x.safetensors"),
            "{error}"
        );
        write(SINGLE_FILE, "c");
        assert_eq!(Shards::open(&files).unwrap().shards.len(), 1);
    }
}
