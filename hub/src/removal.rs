//! Removal of what the cache has: a repository, a revision of it, or a GGUF file.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::cache::{RepositoryCache, at, entries, files_below};
use crate::error::HubError;
use crate::files::{all_parts, gguf_file};
use crate::inventory::{references, size_of};
use crate::listing::is_commit;
use crate::lock;
use crate::name::{HubName, is_repository};

/// What a removal did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Bytes that are free now.
    pub bytes: u64,
    /// The folder that a removed link led to. Its files are still there.
    pub left: Option<PathBuf>,
}

/// Removes what a name means from the cache.
///
/// A repository goes with all its revisions and what was begun of a download; if its folder is a link, the link alone.
/// A revision goes with the branches and tags at its commit, and a GGUF file with all its parts: from the revision
/// that the name has, else from all. Content goes with the last revision that has it.
///
/// # Errors
/// It isn't in the cache, is being downloaded, or can't be removed. A tag that several files have is refused.
pub fn remove_model(cache: &Path, name: &HubName) -> Result<Removed, HubError> {
    let repository = RepositoryCache::new(cache, &name.repository);
    let folder = repository.folder();
    let missing = || HubError::NotCached {
        name: name.to_string(),
        cache: cache.to_owned(),
    };
    if !is_repository(&name.repository) || !folder.is_dir() {
        return Err(missing());
    }
    let _locks = hold_locks(&repository, name)?;
    let all = snapshots(&folder)?;
    let wanted = match &name.revision {
        None => all.clone(),
        Some(revision) => {
            let commit = repository.commit_of(revision).ok_or_else(missing)?;
            vec![commit]
        }
    };
    let is_whole = name.revision.is_none() || wanted == all;
    match &name.file {
        None if is_whole => remove_repository(&folder),
        file => {
            let mut files = Vec::new();
            for commit in &wanted {
                let snapshot = repository.snapshot(commit);
                let found = files_of(&snapshot, name, file.as_deref())?;
                files.extend(found.into_iter().map(|file| snapshot.join(file)));
            }
            if files.is_empty() {
                return Err(missing());
            }
            let bytes = remove_files(&folder, &files)?;
            for commit in &wanted {
                remove_if_empty(&repository, commit)?;
            }
            Ok(Removed { bytes, left: None })
        }
    }
}

/// Takes all locks of a repository, so that no download disturbs the removal.
fn hold_locks(repository: &RepositoryCache, name: &HubName) -> Result<Vec<File>, HubError> {
    let mut locks = Vec::new();
    for path in entries(&repository.locks())?.values() {
        let lock = lock::try_now(path)?;
        locks.push(lock.ok_or_else(|| HubError::InUse {
            repository: name.repository.clone(),
        })?);
    }
    Ok(locks)
}

/// The commits that a repository has.
fn snapshots(folder: &Path) -> Result<Vec<String>, HubError> {
    let names = entries(&folder.join("snapshots"))?.into_keys();
    Ok(names.filter(|name| is_commit(name)).collect())
}

fn remove_repository(folder: &Path) -> Result<Removed, HubError> {
    if folder.is_symlink() {
        let left = fs::canonicalize(folder).map_err(at(folder))?;
        fs::remove_file(folder).map_err(at(folder))?;
        return Ok(Removed {
            bytes: 0,
            left: Some(left),
        });
    }
    // Links lead to what is counted already, or to what isn't removed.
    let bytes = size_of(folder, |_| true, |path| fs::symlink_metadata(path));
    fs::remove_dir_all(folder).map_err(at(folder))?;
    Ok(Removed { bytes, left: None })
}

/// The files of a snapshot that are to go: all, or the parts of a GGUF file.
fn files_of(
    snapshot: &Path,
    name: &HubName,
    wanted: Option<&str>,
) -> Result<Vec<String>, HubError> {
    let files = files_below(snapshot);
    let Some(wanted) = wanted else {
        return Ok(files);
    };
    let parts = match gguf_file(&name.repository, &files, wanted) {
        Ok(file) => all_parts(&file),
        Err(HubError::NoFile { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let is_there = |part: &String| files.contains(part);
    Ok(parts.into_iter().filter(is_there).collect())
}

/// Removes files of snapshots, and the content that no snapshot has any more. Returns the bytes of both.
fn remove_files(folder: &Path, files: &[PathBuf]) -> Result<u64, HubError> {
    let mut blobs = BTreeSet::new();
    let mut bytes = 0;
    for file in files {
        match blob_of(file) {
            Some(blob) => {
                blobs.insert(blob);
            }
            // Somebody put it there in place of a link.
            None => bytes += fs::symlink_metadata(file).map_or(0, |found| found.len()),
        }
        fs::remove_file(file).map_err(at(file))?;
    }
    let snapshots = folder.join("snapshots");
    let left = files_below(&snapshots).into_iter();
    let used: BTreeSet<String> = left
        .filter_map(|file| blob_of(&snapshots.join(file)))
        .collect();
    for blob in blobs.difference(&used) {
        let path = folder.join("blobs").join(blob);
        let Ok(found) = fs::symlink_metadata(&path) else {
            continue;
        };
        fs::remove_file(&path).map_err(at(&path))?;
        bytes += found.len();
    }
    Ok(bytes)
}

/// The name of the blob that a snapshot's file is a link to.
fn blob_of(file: &Path) -> Option<String> {
    let target = fs::read_link(file).ok()?;
    let is_blob = target
        .parent()
        .is_some_and(|folder| folder.ends_with("blobs"));
    let name = target.file_name().filter(|_| is_blob)?;
    name.to_str().map(str::to_owned)
}

/// Removes a snapshot that has no files any more, with what refers to it.
fn remove_if_empty(repository: &RepositoryCache, commit: &str) -> Result<(), HubError> {
    let snapshot = repository.snapshot(commit);
    if !files_below(&snapshot).is_empty() {
        return Ok(());
    }
    match fs::symlink_metadata(&snapshot) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(&snapshot).map_err(at(&snapshot))?,
        Ok(_) => fs::remove_file(&snapshot).map_err(at(&snapshot))?,
        Err(_) => {}
    }
    let folder = repository.folder().join("refs");
    for (name, other) in references(&folder)? {
        if other == commit {
            let path = folder.join(name);
            fs::remove_file(&path).map_err(at(&path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::cache::tests::{COMMIT, cache};
    use crate::inventory::cached_models;

    const OLDER: &str = "abcdef0123456789012345678901234567890123";

    fn remove(cache: &Path, name: &str) -> Result<Removed, HubError> {
        remove_model(cache, &HubName::parse(name).unwrap())
    }

    fn freed(cache: &Path, name: &str) -> u64 {
        remove(cache, name).unwrap().bytes
    }

    fn is_missing(cache: &Path, name: &str) -> bool {
        matches!(remove(cache, name), Err(HubError::NotCached { .. }))
    }

    /// The cache with an older revision, that shares `aaaa` and has `dddd` of its own.
    fn with_older(cache: &Path) -> RepositoryCache {
        let repository = RepositoryCache::new(cache, "o/n");
        fs::write(repository.blob("dddd"), "ddddd").unwrap();
        for (file, etag) in [("config.json", "aaaa"), ("q/x.gguf", "dddd")] {
            repository.link(OLDER, file, etag).unwrap();
        }
        repository.set_ref("old", OLDER).unwrap();
        repository
    }

    fn blobs(repository: &RepositoryCache) -> Vec<String> {
        let names = entries(&repository.folder().join("blobs")).unwrap();
        names.into_keys().collect()
    }

    #[test]
    fn a_repository_goes_as_a_whole() {
        let cache = cache();
        for other in [
            "o/other",
            "o/other@main",
            "o/n@dev",
            "o/n:x.gguf",
            "o/n:Q8_0",
        ] {
            assert!(is_missing(cache.path(), other), "{other}");
        }
        assert!(is_missing(cache.path(), &format!("o/n@{OLDER}")));
        let repository = RepositoryCache::new(cache.path(), "o/n");
        fs::write(repository.incomplete("dddd"), "begun").unwrap();
        // With both references, of 40 bytes each.
        assert_eq!(freed(cache.path(), "o/n"), 12 + 5 + 80);
        assert_eq!(cached_models(cache.path()).unwrap(), []);
    }

    #[test]
    fn a_revision_goes_with_what_it_alone_has() {
        let cache = cache();
        let repository = with_older(cache.path());
        assert_eq!(freed(cache.path(), "o/n@old"), 5);
        assert_eq!(blobs(&repository), ["aaaa", "bbbb", "cccc"]);
        assert!(is_missing(cache.path(), "o/n@old"));
        assert!(!repository.folder().join("refs/old").exists());
        let left = cached_models(cache.path()).unwrap();
        assert_eq!(left.len(), 1);
        assert!(left[0].is_complete);
        // The other way round: what both have stays. By the commit, whose references go too.
        let repository = with_older(cache.path());
        assert_eq!(freed(cache.path(), &format!("o/n@{COMMIT}")), 4 + 4);
        assert_eq!(blobs(&repository), ["aaaa", "dddd"]);
        let refs: Vec<String> = files_below(&repository.folder().join("refs"));
        assert_eq!(refs, ["old"]);
        // The last one takes the repository along.
        remove(cache.path(), "o/n@old").unwrap();
        assert!(!repository.folder().exists());
    }

    #[test]
    fn a_file_goes_from_every_revision_or_from_one() {
        let cache = cache();
        let repository = with_older(cache.path());
        // The same content has another name.
        assert_eq!(freed(cache.path(), "o/n:q/m.gguf"), 0);
        assert_eq!(blobs(&repository), ["aaaa", "bbbb", "cccc", "dddd"]);
        repository.link(COMMIT, "q/x.gguf", "dddd").unwrap();
        assert_eq!(freed(cache.path(), "o/n@main:X"), 0);
        assert!(!repository.snapshot(COMMIT).join("q/x.gguf").exists());
        assert!(is_missing(cache.path(), "o/n@main:X"));
        assert_eq!(freed(cache.path(), "o/n:X"), 5);
        assert_eq!(blobs(&repository), ["aaaa", "bbbb", "cccc"]);
        // A split file goes with all its parts, and a revision with its last file.
        let parts = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
        for part in parts {
            fs::write(repository.blob(part), "12345").unwrap();
            repository.link(OLDER, part, part).unwrap();
        }
        fs::remove_file(repository.snapshot(OLDER).join("config.json")).unwrap();
        assert_eq!(freed(cache.path(), "o/n:M"), 10);
        assert!(!repository.snapshot(OLDER).exists());
        assert!(!repository.folder().join("refs/old").exists());
        assert!(repository.snapshot(COMMIT).join("config.json").is_file());
    }

    #[test]
    fn files_that_are_no_links_and_links_elsewhere_keep_what_is_elsewhere() {
        let cache = cache();
        let repository = with_older(cache.path());
        let other = tempfile::tempdir().unwrap();
        let elsewhere = other.path().join("w.gguf");
        fs::write(&elsewhere, "weights").unwrap();
        let snapshot = repository.snapshot(OLDER);
        symlink(&elsewhere, snapshot.join("w.gguf")).unwrap();
        fs::write(snapshot.join("note.txt"), "note").unwrap();
        let link_itself = fs::symlink_metadata(snapshot.join("w.gguf")).unwrap().len();
        assert_eq!(freed(cache.path(), "o/n@old"), 5 + 4 + link_itself);
        assert!(elsewhere.exists());
    }

    #[test]
    fn what_is_being_downloaded_stays_and_so_does_what_a_link_leads_to() {
        let cache = cache();
        let repository = RepositoryCache::new(cache.path(), "o/n");
        let held = lock::wait_for(&repository.lock("cccc"), "f").unwrap();
        for name in ["o/n", "o/n@main", "o/n:q/m.gguf"] {
            let error = remove(cache.path(), name).unwrap_err();
            assert!(matches!(error, HubError::InUse { .. }), "{error}");
        }
        assert_eq!(cached_models(cache.path()).unwrap().len(), 1);
        drop(held);
        let other = tempfile::tempdir().unwrap();
        let moved = other.path().canonicalize().unwrap().join("moved");
        fs::rename(repository.folder(), &moved).unwrap();
        symlink(&moved, repository.folder()).unwrap();
        let removed = remove(cache.path(), "o/n").unwrap();
        assert_eq!((removed.bytes, removed.left), (0, Some(moved.clone())));
        assert!(!repository.folder().exists() && moved.join("blobs/cccc").exists());
        assert!(repository.lock("cccc").exists());
    }
}
