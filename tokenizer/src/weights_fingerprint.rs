//! Which weights a model has, as far as a look at them tells.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use blake3::Hasher;

use crate::{ModelFileError, open_model_file};

/// Bytes that are read at the beginning of each file: headers, for the most part.
const HEAD_BYTES: u64 = 64 << 10;

/// Samples of each file, from its beginning to its end.
const NUM_SAMPLES: u64 = 16;

/// Bytes of each.
const SAMPLE_BYTES: u64 = 4 << 10;

/// A hash of a model's weights, hex: of the names and lengths of a folder's safetensors files, or of one GGUF
/// file, with samples of what is in them. It tells apart models that have a name and a tokenizer in common, from one
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
        hash_samples(&file, &mut hasher).map_err(failed)?;
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
        hash_samples(&file, &mut hasher).map_err(failed)?;
    }
    Ok((!names.is_empty()).then(|| hasher.finalize().to_hex().to_string()))
}

/// A file's length, beginning and samples.
fn hash_samples(file: &File, hasher: &mut Hasher) -> io::Result<()> {
    let len = file.metadata()?.len();
    hasher.update(&len.to_le_bytes());
    let mut hash = |start: u64, bytes: u64| {
        let mut part = vec![0; bytes.min(len - start) as usize];
        file.read_exact_at(&mut part, start)?;
        hasher.update(&part);
        Ok::<_, io::Error>(())
    };
    hash(0, HEAD_BYTES)?;
    let last = len.saturating_sub(SAMPLE_BYTES);
    for sample in 1..=NUM_SAMPLES {
        // In 128 bits, since the product of a file's size may exceed 64.
        let at = u128::from(last) * u128::from(sample) / u128::from(NUM_SAMPLES);
        hash(at as u64, SAMPLE_BYTES)?;
    }
    Ok(())
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
