//! The Hub's cache on this machine, in the layout of Python's `huggingface_hub`:
//!
//! ```text
//! models--ORG--NAME/blobs/CHECKSUM              content
//! models--ORG--NAME/refs/main                   a commit
//! models--ORG--NAME/snapshots/COMMIT/FILE       a link to ../../blobs/CHECKSUM
//! .locks/models--ORG--NAME/CHECKSUM.lock        held by whoever downloads it
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::HubError;
use crate::files::{CONFIG, INDEX, TOKENIZER, WEIGHTS, all_parts, gguf_file, weight_files};
use crate::limits::LARGEST_JSON;
use crate::listing::{RemoteFile, is_commit};
use crate::name::{HubName, is_gguf};

/// One repository's part of the cache.
#[derive(Debug, Clone)]
pub(crate) struct RepositoryCache {
    root: PathBuf,
    /// `models--ORG--NAME`.
    folder_name: String,
}

impl RepositoryCache {
    pub(crate) fn new(root: &Path, repository: &str) -> Self {
        Self {
            root: root.to_owned(),
            folder_name: format!("models--{}", repository.replace('/', "--")),
        }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.root.join(&self.folder_name)
    }

    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.folder().join("blobs").join(etag)
    }

    /// Where a blob grows until it is whole.
    pub(crate) fn incomplete(&self, etag: &str) -> PathBuf {
        self.folder()
            .join("blobs")
            .join(format!("{etag}.incomplete"))
    }

    /// The folder of all locks of this repository.
    pub(crate) fn locks(&self) -> PathBuf {
        self.root.join(".locks").join(&self.folder_name)
    }

    pub(crate) fn lock(&self, etag: &str) -> PathBuf {
        self.locks().join(format!("{etag}.lock"))
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder().join("snapshots").join(commit)
    }

    /// Makes the link from a snapshot's file to its blob.
    pub(crate) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<(), HubError> {
        let path = self.snapshot(commit).join(file);
        make_folder_of(&path)?;
        let depth = file.split('/').count() + 1;
        let target = Path::new(&"../".repeat(depth)).join("blobs").join(etag);
        match fs::read_link(&path) {
            Ok(known) if known == target => Ok(()),
            // A file that is no link was put there by somebody else.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
            _ => self.replace(&path, |new| symlink(&target, new)),
        }
    }

    /// Makes a file or link in one step: whoever looks meanwhile finds the old one or the new one.
    fn replace(
        &self,
        path: &Path,
        make: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), HubError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let new = format!(".new.{}.{number}", std::process::id());
        let new = self.folder().join(new);
        let made = make(&new).and_then(|()| fs::rename(&new, path));
        if made.is_err() {
            let _ = fs::remove_file(&new);
        }
        made.map_err(at(path))
    }

    /// True if a file's content is there, as far as its length says.
    pub(crate) fn has_blob(&self, file: &RemoteFile) -> bool {
        let found = fs::metadata(self.blob(&file.blob));
        found.is_ok_and(|found| found.is_file() && found.len() == file.bytes)
    }

    /// Bytes of a file that are still to come.
    pub(crate) fn missing_bytes(&self, file: &RemoteFile) -> u64 {
        let begun = fs::metadata(self.incomplete(&file.blob)).map_or(0, |found| found.len());
        match self.has_blob(file) {
            true => 0,
            false => file.bytes.saturating_sub(begun),
        }
    }

    /// Notes which commit a branch or tag is at.
    pub(crate) fn set_ref(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if revision == commit {
            return Ok(());
        }
        let path = self.folder().join("refs").join(revision);
        if fs::read_to_string(&path).is_ok_and(|known| known == commit) {
            return Ok(());
        }
        make_folder_of(&path)?;
        self.replace(&path, |new| fs::write(new, commit))
    }

    /// The commit of a branch, tag or commit that the cache has.
    pub(crate) fn commit_of(&self, revision: &str) -> Option<String> {
        let commit = match is_commit(revision) {
            true => revision.to_owned(),
            false => {
                let reference = fs::read_to_string(self.folder().join("refs").join(revision));
                reference.ok()?.trim().to_owned()
            }
        };
        (is_commit(&commit) && self.snapshot(&commit).is_dir()).then_some(commit)
    }

    /// The folder or GGUF file of a name, without the network.
    ///
    /// # Errors
    /// What is missing, in words that fit before "of NAME".
    pub(crate) fn find(&self, name: &HubName) -> Result<PathBuf, String> {
        let revision = name.revision();
        let commit = self.commit_of(revision);
        let commit = commit.ok_or_else(|| format!("the revision {revision}"))?;
        let snapshot = self.snapshot(&commit);
        let Some(wanted) = &name.file else {
            let needed = needed_of_a_folder(&snapshot)?;
            return missing_of(&snapshot, &needed).map_or(Ok(snapshot), Err);
        };
        let file = gguf_file(&name.repository, &files_below(&snapshot), wanted);
        let file = file.map_err(|_| format!("the file {wanted}"))?;
        match missing_of(&snapshot, &all_parts(&file)) {
            Some(missing) => Err(missing),
            None => Ok(snapshot.join(file)),
        }
    }
}

/// True if a snapshot has all files of a model, or of each GGUF file of which it has a part.
pub(crate) fn is_complete(snapshot: &Path) -> bool {
    let is_whole = |needed: &[String]| missing_of(snapshot, needed).is_none();
    let files = files_below(snapshot);
    let mut gguf_files = files.iter().filter(|file| is_gguf(file)).peekable();
    match gguf_files.peek() {
        Some(_) => gguf_files.all(|file| is_whole(&all_parts(file))),
        None => needed_of_a_folder(snapshot).is_ok_and(|needed| is_whole(&needed)),
    }
}

/// The first of these files that a snapshot lacks, in words that fit before "of NAME".
fn missing_of(snapshot: &Path, needed: &[String]) -> Option<String> {
    let missing = needed.iter().find(|file| !snapshot.join(file).is_file())?;
    Some(format!("the file {missing}"))
}

/// The files without which a folder can't be loaded.
fn needed_of_a_folder(snapshot: &Path) -> Result<Vec<String>, String> {
    let mut needed = vec![CONFIG.to_owned(), TOKENIZER.to_owned()];
    needed.extend(match read_index(snapshot) {
        Ok(index) => {
            let files = match index {
                Some(_) => Vec::new(),
                None => {
                    file_names(snapshot).map_err(|error| format!("a readable folder ({error})"))?
                }
            };
            let weights = weight_files(index.as_deref(), &files)
                .map_err(|why| format!("a sound {INDEX} ({why})"))?;
            match weights.is_empty() {
                true => vec![WEIGHTS.to_owned()],
                false => weights,
            }
        }
        Err(error) => return Err(format!("a readable {INDEX} ({error})")),
    });
    Ok(needed)
}

/// The names of a folder's files.
fn file_names(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
    names.filter_map(Result::transpose).collect()
}

/// The index of a snapshot's weights. `None` where the weights are one file.
pub(crate) fn read_index(snapshot: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(snapshot.join(INDEX)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut index = Vec::new();
    file.take(LARGEST_JSON).read_to_end(&mut index)?;
    Ok(Some(index))
}

/// Names the file or folder that an error of the system is about.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> HubError + use<> {
    let path = path.to_owned();
    move |source| HubError::Cache { path, source }
}

/// Makes the folder that a file is to be in.
pub(crate) fn make_folder_of(path: &Path) -> Result<(), HubError> {
    match path.parent() {
        Some(folder) => fs::create_dir_all(folder).map_err(at(folder)),
        None => Ok(()),
    }
}

/// A folder's entries by name; none where there is no folder. Names that aren't UTF-8 are none of ours.
pub(crate) fn entries(folder: &Path) -> Result<BTreeMap<String, PathBuf>, HubError> {
    let read = match fs::read_dir(folder) {
        Ok(read) => read,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(BTreeMap::new());
        }
        Err(error) => return Err(at(folder)(error)),
    };
    let mut entries = BTreeMap::new();
    for entry in read {
        let entry = entry.map_err(at(folder))?;
        if let Ok(name) = entry.file_name().into_string() {
            entries.insert(name, entry.path());
        }
    }
    Ok(entries)
}

/// The paths below a folder, relative to it, of everything but folders.
pub(crate) fn files_below(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for (name, path) in entries(folder).unwrap_or_default() {
        match fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            true => files.extend(
                files_below(&path)
                    .iter()
                    .map(|file| format!("{name}/{file}")),
            ),
            false => files.push(name),
        }
    }
    files
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const COMMIT: &str = "0123456789012345678901234567890123456789";

    /// A cache with `o/n`, as `huggingface_hub` makes it.
    pub(crate) fn cache() -> tempfile::TempDir {
        let cache = tempfile::tempdir().unwrap();
        let repository = RepositoryCache::new(cache.path(), "o/n");
        for (file, etag) in [
            (CONFIG, "aaaa"),
            (TOKENIZER, "bbbb"),
            (WEIGHTS, "cccc"),
            ("q/m.gguf", "cccc"),
        ] {
            let blob = repository.blob(etag);
            make_folder_of(&blob).unwrap();
            fs::write(blob, etag).unwrap();
            repository.link(COMMIT, file, etag).unwrap();
        }
        repository.set_ref("main", COMMIT).unwrap();
        repository.set_ref("refs/pr/1", COMMIT).unwrap();
        cache
    }

    fn find(cache: &Path, name: &str) -> Result<PathBuf, String> {
        let name = HubName::parse(name).unwrap();
        RepositoryCache::new(cache, &name.repository).find(&name)
    }

    #[test]
    fn links_are_relative_and_lead_to_blobs() {
        let cache = cache();
        let snapshot = cache.path().join("models--o--n/snapshots").join(COMMIT);
        let link = |file: &str| fs::read_link(snapshot.join(file)).unwrap();
        assert_eq!(link(CONFIG), Path::new("../../blobs/aaaa"));
        assert_eq!(link("q/m.gguf"), Path::new("../../../blobs/cccc"));
        assert_eq!(
            fs::read_to_string(snapshot.join("q/m.gguf")).unwrap(),
            "cccc"
        );
        let reference = cache.path().join("models--o--n/refs/refs/pr/1");
        assert_eq!(fs::read_to_string(reference).unwrap(), COMMIT);
    }

    #[test]
    fn a_link_to_other_content_is_replaced_and_a_file_stays() {
        let cache = cache();
        let repository = RepositoryCache::new(cache.path(), "o/n");
        let link = repository.snapshot(COMMIT).join(CONFIG);
        repository.link(COMMIT, CONFIG, "bbbb").unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("../../blobs/bbbb"));
        fs::remove_file(&link).unwrap();
        fs::write(&link, "by hand").unwrap();
        repository.link(COMMIT, CONFIG, "aaaa").unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "by hand");
        // A folder where the reference is to be.
        fs::create_dir(repository.folder().join("refs/dev")).unwrap();
        repository.set_ref("dev", COMMIT).unwrap_err();
        let names: Vec<String> = entries(&repository.folder()).unwrap().into_keys().collect();
        assert_eq!(names, ["blobs", "refs", "snapshots"]);
    }

    #[test]
    fn a_model_is_found_where_all_of_it_is_there() {
        let cache = cache();
        let snapshot = cache.path().join("models--o--n/snapshots").join(COMMIT);
        for name in ["o/n", "o/n@main", "o/n@refs/pr/1", &format!("o/n@{COMMIT}")] {
            assert_eq!(find(cache.path(), name), Ok(snapshot.clone()), "{name}");
        }
        assert_eq!(
            find(cache.path(), "o/n:q/m.gguf"),
            Ok(snapshot.join("q/m.gguf"))
        );
        let missing = |name: &str| find(cache.path(), name).unwrap_err();
        assert_eq!(missing("o/n:x.gguf"), "the file x.gguf");
        assert_eq!(find(cache.path(), "o/n:M"), Ok(snapshot.join("q/m.gguf")));
        assert_eq!(missing("o/n:Q8_0"), "the file Q8_0");
        assert_eq!(missing("o/n@dev"), "the revision dev");
        assert_eq!(missing("o/other"), "the revision main");
        fs::remove_file(cache.path().join("models--o--n/blobs/bbbb")).unwrap();
        assert_eq!(missing("o/n"), "the file tokenizer.json");
        fs::write(cache.path().join("models--o--n/blobs/bbbb"), "").unwrap();
        let index = r#"{"weight_map": {"a": "1.safetensors"}}"#;
        fs::write(snapshot.join(INDEX), index).unwrap();
        assert_eq!(missing("o/n"), "the file 1.safetensors");
    }
}
