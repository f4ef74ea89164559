//! The tries of an index as a file, so that a start needn't build them.
//!
//! The file's name and head carry a hash of the format and of the vocabulary; its head carries a
//! hash of what follows. A file of another vocabulary or version, one that was cut short or
//! changed, is as good as none. It is written beside its place and renamed, so a reader sees a whole
//! file or none. It is read and checked in one piece rather than mapped: 7 MB for Llama 3's
//! vocabulary take some milliseconds, and nobody can change them afterwards.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::trie::Trie;
use crate::TokenizerInfo;

/// Changes with the layout of the file, the alphabets, and what is a text token.
const FORMAT: &[u8] = b"formwork tokenizer index 2\n";

const HASH_BYTES: usize = 32;

/// The file of an index.
pub(super) struct CacheFile {
    path: PathBuf,
    key: [u8; HASH_BYTES],
}

impl CacheFile {
    /// The file of a vocabulary in a folder. Time: a hash of the vocabulary.
    pub(super) fn new(folder: &Path, info: &TokenizerInfo) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(FORMAT);
        info.hash_into(|bytes| {
            hasher.update(bytes);
        });
        let hash = hasher.finalize();
        Self {
            path: folder.join(format!("{}.tokenizer-index", hash.to_hex())),
            key: *hash.as_bytes(),
        }
    }

    /// The tries in the file, `num_tries` of tokens below `vocab_size`; `None` where there is no
    /// such file, or not in the form in which it was written.
    pub(super) fn read(&self, num_tries: usize, vocab_size: usize) -> Option<Vec<Trie>> {
        let file = fs::read(&self.path).ok()?;
        let (format, rest) = file.split_at_checked(FORMAT.len())?;
        let (key, rest) = rest.split_at_checked(HASH_BYTES)?;
        let (hash, mut payload) = rest.split_at_checked(HASH_BYTES)?;
        if format != FORMAT || key != self.key || hash != blake3::hash(payload).as_bytes() {
            return None;
        }
        let tries: Option<Vec<Trie>> = (0..num_tries)
            .map(|_| Trie::read(&mut payload, vocab_size))
            .collect();
        tries.filter(|_| payload.is_empty())
    }

    /// Writes tries to the file, and makes its folder.
    pub(super) fn write<'a>(&self, tries: impl Iterator<Item = &'a Trie>) -> io::Result<()> {
        static WRITES: AtomicU64 = AtomicU64::new(0);
        let mut payload = Vec::new();
        for trie in tries {
            trie.write(&mut payload);
        }
        let hash = blake3::hash(&payload);
        let file = [FORMAT, &self.key, hash.as_bytes(), &payload].concat();
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let own = (std::process::id(), WRITES.fetch_add(1, Ordering::Relaxed));
        let beside = self.path.with_extension(format!("{}-{}", own.0, own.1));
        let written = fs::write(&beside, file).and_then(|()| fs::rename(&beside, &self.path));
        if written.is_err() {
            // What is left of it helps nobody.
            let _ = fs::remove_file(&beside);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::TokenizerIndex;
    use super::*;

    fn info(tokens: &[&str]) -> Arc<TokenizerInfo> {
        let vocab: Vec<Vec<u8>> = tokens.iter().map(|t| t.as_bytes().to_vec()).collect();
        let stop = [tokens.len() as u32];
        Arc::new(TokenizerInfo::new(&vocab, tokens.len() + 1, &stop, &[]).unwrap())
    }

    fn only_file(folder: &Path) -> PathBuf {
        let mut files = fs::read_dir(folder).unwrap();
        let file = files.next().unwrap().unwrap().path();
        assert!(files.next().is_none(), "one file, and nothing beside it");
        file
    }

    #[test]
    fn what_is_read_is_what_was_built() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("made").join("on demand");
        let info = info(&["a", "ab", "\\n", "\"", "é", "b\\\"", "abc"]);
        let built = TokenizerIndex::new(Arc::clone(&info), None);
        let written = TokenizerIndex::new(Arc::clone(&info), Some(&cache));
        let file = CacheFile::new(&cache, &info);
        assert_eq!(file.path, only_file(&cache));
        let read = file.read(built.tries().count(), info.vocab_size()).unwrap();
        assert_eq!(read.len(), 5);
        assert!(
            read.iter()
                .zip(built.tries())
                .all(|(a, b)| a.tokens() == b.tokens())
        );
        let again = TokenizerIndex::new(info, Some(&cache));
        assert!(again.tries().eq(built.tries()) && written.tries().eq(built.tries()));
    }

    #[test]
    fn a_file_that_is_not_whole_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let info = info(&["a", "ab", "\\n", "b"]);
        let index = TokenizerIndex::new(Arc::clone(&info), Some(folder.path()));
        let num_tries = index.tries().count();
        let cache = CacheFile::new(folder.path(), &info);
        let whole = fs::read(&cache.path).unwrap();
        let read = || cache.read(num_tries, info.vocab_size());
        assert!(read().is_some());
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            fs::write(&cache.path, &changed).unwrap();
            assert!(read().is_none(), "byte {at} changed");
            fs::write(&cache.path, &whole[..at]).unwrap();
            assert!(read().is_none(), "cut to {at} bytes");
        }
        // A start repairs it.
        let repaired = TokenizerIndex::new(Arc::clone(&info), Some(folder.path()));
        assert!(repaired.tries().eq(index.tries()));
        assert_eq!(fs::read(&cache.path).unwrap(), whole);
    }

    #[test]
    fn each_vocabulary_has_its_own_file() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (info(&["ab", "c"]), info(&["a", "bc"]));
        TokenizerIndex::new(Arc::clone(&first), Some(folder.path()));
        let other = CacheFile::new(folder.path(), &second);
        fs::rename(only_file(folder.path()), &other.path).unwrap();
        assert!(other.read(5, second.vocab_size()).is_none());
        let index = TokenizerIndex::new(Arc::clone(&second), Some(folder.path()));
        assert!(index.tries().eq(TokenizerIndex::new(second, None).tries()));
    }

    #[test]
    fn a_folder_that_cannot_be_written_costs_nothing_but_time() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("file");
        fs::write(&taken, "").unwrap();
        let info = info(&["a"]);
        let index = TokenizerIndex::new(Arc::clone(&info), Some(&taken));
        assert!(index.tries().eq(TokenizerIndex::new(info, None).tries()));
    }
}
