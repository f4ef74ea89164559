//! Compiled kernels, from a folder of them or the compiler.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, process};

use crate::error::DeviceError;
use crate::nvrtc::Nvrtc;
use crate::sources;

/// What a file of the cache begins with: changed with its layout.
const MAGIC: &[u8; 8] = b"FWKERN01";

/// Machine code of all kernels for a GPU of compute capability `major.minor`.
pub(crate) fn cubin(major: u32, minor: u32, cache: Option<&Path>) -> Result<Vec<u8>, DeviceError> {
    let arch = arch(major, minor);
    let file = cache.map(|folder| cache_file(folder, &arch));
    if let Some(code) = file.as_deref().and_then(read) {
        return Ok(code);
    }
    let code = Nvrtc::load()?.compile(&arch)?;
    if let Some(file) = file {
        // Without its cache the next start compiles again.
        let _ = write(&file, &code);
    }
    Ok(code)
}

/// The compiler's name of a target. Code for 9.0 may use what only Hopper has.
fn arch(major: u32, minor: u32) -> String {
    let suffix = if (major, minor) == (9, 0) { "a" } else { "" };
    format!("sm_{major}{minor}{suffix}")
}

fn cache_file(folder: &Path, arch: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (sources::COMMON, sources::kernels(), arch).hash(&mut hasher);
    folder.join(format!("kernels-{arch}-{:016x}.bin", hasher.finish()))
}

fn checksum(code: &[u8]) -> [u8; 8] {
    let mut hasher = DefaultHasher::new();
    code.hash(&mut hasher);
    hasher.finish().to_le_bytes()
}

/// The code of a file, unless it is missing or damaged.
fn read(file: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(file).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (sum, code) = rest.split_first_chunk::<8>()?;
    (*sum == checksum(code)).then(|| code.to_vec())
}

/// Writes a file whole or not at all.
fn write(file: &Path, code: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let part = file.with_extension(format!("{}.part", process::id()));
    fs::write(&part, [MAGIC, checksum(code).as_slice(), code].concat())?;
    fs::rename(&part, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = cache_file(&folder.path().join("kernels"), "sm_90a");
        assert_eq!(read(&file), None);
        write(&file, b"code").unwrap();
        assert_eq!(read(&file).as_deref(), Some(&b"code"[..]));
        let whole = fs::read(&file).unwrap();
        for cut in 0..whole.len() {
            fs::write(&file, &whole[..cut]).unwrap();
            assert_eq!(read(&file), None, "{cut} bytes");
            let mut flipped = whole.clone();
            flipped[cut] ^= 1;
            fs::write(&file, flipped).unwrap();
            assert_eq!(read(&file), None, "byte {cut}");
        }
    }

    #[test]
    fn hopper_has_a_target_of_its_own() {
        assert_eq!(arch(8, 6), "sm_86");
        assert_eq!(arch(9, 0), "sm_90a");
        assert_eq!(arch(12, 0), "sm_120");
    }

    /// Where the compiler is at hand: it needs no GPU.
    #[test]
    fn kernels_compile_for_all_targets() {
        let nvrtc = match Nvrtc::load() {
            Ok(nvrtc) => nvrtc,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        for (major, minor) in [(8, 0), (9, 0), (10, 0), (12, 0)] {
            let code = nvrtc.compile(&arch(major, minor)).unwrap();
            assert!(code.starts_with(b"\x7fELF"), "{major}.{minor}");
            for name in sources::kernel_names() {
                let needle = format!(".text.{name}");
                let found = code.windows(needle.len()).any(|at| at == needle.as_bytes());
                assert!(found, "{name} for {major}.{minor}");
            }
        }
    }
}
