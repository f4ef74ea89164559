//! Which weights a model has, as far as a look at them tells.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use blake3::Hasher;

use crate::file_content::hash_content;
use crate::{ModelFileError, open_model_file};

/// A hash of a model's weights, hex: of the names and lengths of a folder's safetensors files, or of one GGUF
/// file, with samples of what is in them ([`hash_content`]). It tells apart models that have a name and a tokenizer in common, from one
/// process to another; it is no checksum. `None` where there are no weights.
///
/// # Errors
/// A file can't be read.
pub fn weights_fingerprint(model: &Path) -> Result<Option<String>, ModelFileError> {
    let failed = |source: io::Error| ModelFileError::Io {
        path: model.to_owned(),
        source,
    };
    let mut hasher = Hasher::new();
    if model.is_file() {
        let file = File::open(model).map_err(failed)?;
        hash_file(&file, &mut hasher).map_err(failed)?;
        return Ok(Some(hasher.finalize().to_hex().to_string()));
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(model).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if let Some(name) = name.to_str().filter(|name| name.ends_with(".safetensors")) {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    for name in &names {
        let file = open_model_file(model, name)?;
        hasher.update(name.as_bytes());
        hash_file(&file, &mut hasher).map_err(failed)?;
    }
    Ok((!names.is_empty()).then(|| hasher.finalize().to_hex().to_string()))
}

/// A file's length, and what is in it.
fn hash_file(file: &File, hasher: &mut Hasher) -> io::Result<()> {
    let len = file.metadata()?.len();
    hasher.update(&len.to_le_bytes());
    hash_content(file, 0, len, hasher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_one_size_are_told_apart_wherever_they_lie() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str, weights: &[u8]| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("model.safetensors"), weights).unwrap();
            fs::write(folder.join("config.json"), name).unwrap();
            weights_fingerprint(&folder).unwrap().unwrap()
        };
        let zeros = vec![0; 1 << 20];
        let mut other = zeros.clone();
        let first = folder("a", &zeros);
        assert_eq!(first, folder("b", &zeros));
        // Some kilobytes of another model's are enough.
        other[500_000..].fill(1);
        assert_ne!(first, folder("c", &other));
        assert_ne!(first, folder("d", &zeros[1..]));
        for few in [&b""[..], b"1", &[7; 5000]] {
            let name = format!("few{}", few.len());
            assert_ne!(first, folder(&name, few));
        }
        let file = parent.path().join("a/model.safetensors");
        assert!(weights_fingerprint(&file).unwrap().is_some());
        let none = parent.path().join("none");
        assert!(weights_fingerprint(&none).is_err());
        fs::create_dir(&none).unwrap();
        assert_eq!(weights_fingerprint(&none).unwrap(), None);
    }
}
