//! The models that the cache has.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cache::{entries, files_below, is_complete};
use crate::error::HubError;
use crate::listing::is_commit;
use crate::name::is_repository;

/// A revision of a model in the cache, or content that no revision has yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedRevision {
    /// `org/name`.
    pub repository: String,
    /// The branches and tags that are at this commit.
    pub references: Vec<String>,
    /// The commit. `None` for what was begun of downloads.
    pub commit: Option<String>,
    /// False if a file is missing that Formwork needs.
    pub is_complete: bool,
    /// Bytes of its files.
    pub bytes: u64,
    /// The snapshot's folder, or that of the content.
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
            let of_this = references.iter().filter(|(_, other)| *other == commit);
            models.push(CachedRevision {
                repository: repository.clone(),
                references: of_this.map(|(name, _)| name.clone()).collect(),
                is_complete: is_complete(&path),
                bytes: size_of(&path, |_| true, |path| fs::metadata(path)),
                commit: Some(commit),
                path,
            });
        }
        let blobs = folder.join("blobs");
        let is_begun = |file: &str| file.ends_with(".incomplete");
        let begun = size_of(&blobs, is_begun, |path| fs::metadata(path));
        if begun > 0 {
            models.push(CachedRevision {
                repository,
                references: Vec::new(),
                commit: None,
                is_complete: false,
                bytes: begun,
                path: blobs,
            });
        }
    }
    Ok(models)
}

/// The names below `refs`, with their commits.
pub(crate) fn references(folder: &Path) -> Result<Vec<(String, String)>, HubError> {
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

/// Bytes of the files below a folder whose path is wanted, each file once whatever its number of names.
pub(crate) fn size_of(
    folder: &Path,
    is_wanted: impl Fn(&str) -> bool,
    metadata: fn(&Path) -> io::Result<fs::Metadata>,
) -> u64 {
    let files = files_below(folder).into_iter();
    let found = files.filter(|file| is_wanted(file));
    let found = found.filter_map(|file| metadata(&folder.join(file)).ok());
    let found = found.filter(|metadata| metadata.is_file());
    let sizes: BTreeMap<(u64, u64), u64> = found
        .map(|metadata| ((metadata.dev(), metadata.ino()), metadata.len()))
        .collect();
    sizes.values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::RepositoryCache;
    use crate::cache::tests::{COMMIT, cache};

    #[test]
    fn models_are_listed() {
        let cache = cache();
        fs::create_dir_all(cache.path().join("datasets--o--d/snapshots")).unwrap();
        let models = cached_models(cache.path()).unwrap();
        let expected = CachedRevision {
            repository: "o/n".to_owned(),
            references: vec!["main".to_owned(), "refs/pr/1".to_owned()],
            commit: Some(COMMIT.to_owned()),
            is_complete: true,
            bytes: 12,
            path: cache.path().join("models--o--n/snapshots").join(COMMIT),
        };
        assert_eq!(models, [expected]);
        assert_eq!(cached_models(&cache.path().join("none")).unwrap(), []);
        let part = RepositoryCache::new(cache.path(), "o/n").incomplete("dddd");
        fs::write(part, "begun").unwrap();
        fs::remove_file(cache.path().join("models--o--n/blobs/bbbb")).unwrap();
        let models = cached_models(cache.path()).unwrap();
        let told: Vec<(bool, bool, u64)> = models
            .iter()
            .map(|model| (model.commit.is_some(), model.is_complete, model.bytes))
            .collect();
        // A GGUF file is whole by itself.
        assert_eq!(told, [(true, true, 8), (false, false, 5)]);
        fs::remove_file(models[0].path.join("q/m.gguf")).unwrap();
        assert!(!cached_models(cache.path()).unwrap()[0].is_complete);
    }
}
