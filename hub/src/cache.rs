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
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::error::HubError;
use crate::files::{CONFIG, INDEX, TOKENIZER, part_names, weight_files};
use crate::limits::LARGEST_JSON;
use crate::listing::is_commit;
use crate::name::{HubName, is_repository};

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

    pub(crate) fn lock(&self, etag: &str) -> PathBuf {
        let locks = self.root.join(".locks").join(&self.folder_name);
        locks.join(format!("{etag}.lock"))
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
        match symlink(&target, &path) {
            // A link whose blob was removed, or another process was faster.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !path.exists() => {
                fs::remove_file(&path).and_then(|()| symlink(&target, &path))
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
        .map_err(at(&path))
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
        // Whoever reads it meanwhile finds one commit or the other.
        let mut new = path.clone().into_os_string();
        new.push(format!(".{}.new", std::process::id()));
        let new = PathBuf::from(new);
        fs::write(&new, commit)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(at(&path))
    }

    /// The folder or GGUF file of a name, without the network.
    ///
    /// # Errors
    /// What is missing, in words that fit before "of NAME".
    pub(crate) fn find(&self, name: &HubName) -> Result<PathBuf, String> {
        let revision = name.revision();
        let reference = || fs::read_to_string(self.folder().join("refs").join(revision));
        let commit = match is_commit(revision) {
            true => revision.to_owned(),
            false => reference().map_or_else(|_| String::new(), |text| text.trim().to_owned()),
        };
        let snapshot = self.snapshot(&commit);
        if !is_commit(&commit) || !snapshot.is_dir() {
            return Err(format!("the revision {revision}"));
        }
        let needed = match &name.file {
            Some(file) => part_names(file).unwrap_or_else(|| vec![file.clone()]),
            None => needed_of_a_folder(&snapshot)?,
        };
        match needed.iter().find(|file| !snapshot.join(file).is_file()) {
            Some(missing) => Err(format!("the file {missing}")),
            None => Ok(match &name.file {
                Some(file) => snapshot.join(file),
                None => snapshot,
            }),
        }
    }
}

/// The files without which a folder can't be loaded.
fn needed_of_a_folder(snapshot: &Path) -> Result<Vec<String>, String> {
    let mut needed = vec![CONFIG.to_owned(), TOKENIZER.to_owned()];
    needed.extend(match read_index(snapshot) {
        Ok(index) => {
            weight_files(index.as_deref()).map_err(|why| format!("a sound {INDEX} ({why})"))?
        }
        Err(error) => return Err(format!("a readable {INDEX} ({error})")),
    });
    Ok(needed)
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

/// A revision of a model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedRevision {
    /// `org/name`.
    pub repository: String,
    /// The branches and tags that are at this commit.
    pub references: Vec<String>,
    /// The commit.
    pub commit: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// The snapshot's folder.
    pub path: PathBuf,
}

/// All models in the cache, by name and commit. GGUF files are in their repository's folder.
///
/// # Errors
/// The cache can't be read. One that isn't there has no models.
pub fn cached_models(cache: &Path) -> Result<Vec<CachedRevision>, HubError> {
    let mut models = Vec::new();
    for (name, folder) in entries(cache)? {
        let repository = name
            .strip_prefix("models--")
            .map(|name| name.replacen("--", "/", 1));
        let Some(repository) = repository.filter(|name| is_repository(name)) else {
            continue;
        };
        let references = references(&folder.join("refs"))?;
        for (commit, path) in entries(&folder.join("snapshots"))? {
            if !is_commit(&commit) {
                continue;
            }
            let mut files = BTreeMap::new();
            count_files(&path, &mut files, |path| fs::metadata(path));
            let of_this = references.iter().filter(|(_, other)| *other == commit);
            models.push(CachedRevision {
                repository: repository.clone(),
                references: of_this.map(|(name, _)| name.clone()).collect(),
                commit,
                bytes: files.values().sum(),
                path,
            });
        }
    }
    Ok(models)
}

/// Removes a repository from the cache, with all its revisions and what was begun of a download. Returns
/// the bytes that this frees.
///
/// # Errors
/// It isn't in the cache, or can't be removed.
pub fn remove_model(cache: &Path, repository: &str) -> Result<u64, HubError> {
    let found = RepositoryCache::new(cache, repository);
    let folder = found.folder();
    let is_there = is_repository(repository)
        && fs::symlink_metadata(&folder).is_ok_and(|metadata| metadata.is_dir());
    if !is_there {
        return Err(HubError::NotCached {
            repository: repository.to_owned(),
            cache: cache.to_owned(),
        });
    }
    let mut files = BTreeMap::new();
    // Links lead to what is counted already, or to what isn't removed.
    count_files(&folder, &mut files, |path| fs::symlink_metadata(path));
    fs::remove_dir_all(&folder).map_err(at(&folder))?;
    // What holds no content is no reason to fail.
    let _ = fs::remove_dir_all(cache.join(".locks").join(&found.folder_name));
    Ok(files.values().sum())
}

/// A folder's entries by name; none where there is no folder. Names that aren't UTF-8 are none of ours.
fn entries(folder: &Path) -> Result<BTreeMap<String, PathBuf>, HubError> {
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

/// The names below `refs`, with their commits.
fn references(folder: &Path) -> Result<Vec<(String, String)>, HubError> {
    let mut found = Vec::new();
    for (name, path) in entries(folder)? {
        if path.is_dir() {
            let below = references(&path)?.into_iter();
            found.extend(below.map(|(below, commit)| (format!("{name}/{below}"), commit)));
        } else if let Ok(commit) = fs::read_to_string(&path) {
            found.push((name, commit.trim().to_owned()));
        }
    }
    Ok(found)
}

/// Counts the bytes of all files below a folder, each once whatever its number of names.
fn count_files(
    folder: &Path,
    files: &mut BTreeMap<(u64, u64), u64>,
    metadata: fn(&Path) -> io::Result<fs::Metadata>,
) {
    for (_, path) in entries(folder).unwrap_or_default() {
        let is_folder = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
        if is_folder {
            count_files(&path, files, metadata);
        } else if let Ok(metadata) = metadata(&path)
            && metadata.is_file()
        {
            files.insert((metadata.dev(), metadata.ino()), metadata.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::WEIGHTS;

    const COMMIT: &str = "0123456789012345678901234567890123456789";

    /// A cache with `o/n`, as `huggingface_hub` makes it.
    fn cache() -> tempfile::TempDir {
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
        assert_eq!(missing("o/n@dev"), "the revision dev");
        assert_eq!(missing("o/other"), "the revision main");
        fs::remove_file(cache.path().join("models--o--n/blobs/bbbb")).unwrap();
        assert_eq!(missing("o/n"), "the file tokenizer.json");
        fs::write(cache.path().join("models--o--n/blobs/bbbb"), "").unwrap();
        let index = r#"{"weight_map": {"a": "1.safetensors"}}"#;
        fs::write(snapshot.join(INDEX), index).unwrap();
        assert_eq!(missing("o/n"), "the file 1.safetensors");
    }

    #[test]
    fn models_are_listed_and_removed() {
        let cache = cache();
        fs::create_dir_all(cache.path().join("datasets--o--d/snapshots")).unwrap();
        let models = cached_models(cache.path()).unwrap();
        let expected = CachedRevision {
            repository: "o/n".to_owned(),
            references: vec!["main".to_owned(), "refs/pr/1".to_owned()],
            commit: COMMIT.to_owned(),
            bytes: 12,
            path: cache.path().join("models--o--n/snapshots").join(COMMIT),
        };
        assert_eq!(models, [expected]);
        assert_eq!(cached_models(&cache.path().join("none")).unwrap(), []);
        for other in ["o/other", "../o", "n"] {
            let error = remove_model(cache.path(), other).unwrap_err();
            assert!(matches!(error, HubError::NotCached { .. }), "{error}");
        }
        let part = RepositoryCache::new(cache.path(), "o/n").incomplete("dddd");
        fs::write(part, "begun").unwrap();
        // With both references, of 40 bytes each.
        assert_eq!(remove_model(cache.path(), "o/n").unwrap(), 12 + 5 + 80);
        assert_eq!(cached_models(cache.path()).unwrap(), []);
        assert!(cache.path().join("datasets--o--d").exists());
    }
}
