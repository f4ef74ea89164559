//! What a model's files are, without reading all of them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use blake3::Hasher;
use tokenizer::hash_content;

use crate::model_executor::QuantizationConfig;
use crate::model_executor::checkpoint::SourceFile;

/// A hash of the files and of what `config` says that their numbers mean, which stands in another file: their names, what the system says of them, their headers and
/// blocks of their tensors ([`hash_content`]); `None` where there are no files, or one can't be read.
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
