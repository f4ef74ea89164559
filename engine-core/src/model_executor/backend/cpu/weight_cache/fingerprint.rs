//! What a model's files are, without reading all of them.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use blake3::Hasher;

use crate::model_executor::QuantizationConfig;
use crate::model_executor::checkpoint::SourceFile;

/// Blocks that are read of a file's tensors, from the first byte to the last at equal distances.
pub(super) const NUM_SAMPLES: u64 = 256;

/// Bytes of such a block: a page, so that each takes one access to a disk.
pub(super) const SAMPLE_BYTES: u64 = 4096;

/// A hash of the files and of what `config` says that their numbers mean, which stands in another file: their names, what the system says of them, their headers and
/// [`NUM_SAMPLES`] blocks of their tensors; `None` where there are no files, or one can't be read.
///
/// A change in place shows in the time of the last change of status, which no program can set back;
/// one that comes with another file shows in its number too. Where a file system keeps neither, a
/// change of at least a 255th of a file's tensors is seen by the blocks.
pub(crate) fn fingerprint(
    sources: &[SourceFile<'_>],
    config: Option<&QuantizationConfig>,
) -> Option<String> {
    if sources.is_empty() {
        return None;
    }
    let mut hasher = Hasher::new();
    let meaning = config.map(|config| format!("{config:?}"));
    hasher.update(meaning.unwrap_or_default().as_bytes());
    for source in sources {
        let metadata = source.file.metadata().ok()?;
        hasher.update(&(source.name.len() as u64).to_le_bytes());
        hasher.update(source.name.as_bytes());
        hash_status(&metadata, &mut hasher);
        hash_content(
            source.file,
            source.header_len as u64,
            metadata.len(),
            &mut hasher,
        )
        .ok()?;
    }
    Some(hasher.finalize().to_hex().to_string())
}

/// Size, times of change of content and of status, and the file's number.
fn hash_status(metadata: &Metadata, hasher: &mut Hasher) {
    hasher.update(&metadata.len().to_le_bytes());
    hasher.update(&metadata.ino().to_le_bytes());
    for number in [
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ] {
        hasher.update(&number.to_le_bytes());
    }
}

/// The header, and blocks of what follows.
pub(super) fn hash_content(
    file: &File,
    header_len: u64,
    len: u64,
    hasher: &mut Hasher,
) -> io::Result<()> {
    let header_len = header_len.min(len);
    hash_range(file, 0, header_len, hasher)?;
    let data_len = len - header_len;
    if data_len <= NUM_SAMPLES * SAMPLE_BYTES {
        return hash_range(file, header_len, data_len, hasher);
    }
    let last = data_len - SAMPLE_BYTES;
    for sample in 0..NUM_SAMPLES {
        // In 128 bits, since the product of a file's size may exceed 64.
        let at = u128::from(last) * u128::from(sample) / u128::from(NUM_SAMPLES - 1);
        hash_range(file, header_len + at as u64, SAMPLE_BYTES, hasher)?;
    }
    Ok(())
}

fn hash_range(file: &File, start: u64, len: u64, hasher: &mut Hasher) -> io::Result<()> {
    const CHUNK_BYTES: u64 = 1 << 20;
    let mut chunk = vec![0; len.min(CHUNK_BYTES) as usize];
    let (mut at, end) = (start, start.saturating_add(len));
    while at < end {
        let part = &mut chunk[..(end - at).min(CHUNK_BYTES) as usize];
        file.read_exact_at(part, at)?;
        hasher.update(part);
        at += part.len() as u64;
    }
    Ok(())
}
