//! The files of a model.

use std::ffi::OsString;
use std::path::Path;

use crate::rules::{Access, FileRules};

/// Folder of a repository in the Hub's cache that holds one folder per revision, whose files are links
/// to `../../blobs`.
const SNAPSHOTS: &str = "snapshots";
const BLOBS: &str = "blobs";

/// What stands behind a GGUF file's name in those of its weight caches.
const CACHE_MARK: &str = ".formwork.";

impl FileRules {
    /// Allows to read a model, a folder or a GGUF file, and where `keeps_weights` to keep quantized
    /// weights beside it.
    pub fn allow_model(&mut self, model: &Path, keeps_weights: bool) {
        self.allow(model, Access::Read);
        if model.is_file() {
            self.allow_caches_beside(model, keeps_weights);
            return;
        }
        if keeps_weights {
            self.allow(model, Access::MakeFiles);
        }
        let resolved = model.canonicalize().unwrap_or_else(|_| model.to_owned());
        // The model may lie in a subfolder of its revision.
        let snapshots = resolved
            .ancestors()
            .skip(1)
            .find(|folder| folder.ends_with(SNAPSHOTS));
        if let Some(repository) = snapshots.and_then(Path::parent) {
            let blobs = repository.join(BLOBS);
            self.allow_shared_content(&blobs);
            self.allow(blobs, Access::Read);
        }
    }

    /// Allows the content that a repository's blobs are links to: newer versions of the Hub's cache keep it
    /// once for all repositories, in a folder `blobs` beside these.
    fn allow_shared_content(&mut self, blobs: &Path) {
        let Some(shared) = blobs.ancestors().nth(2).map(|cache| cache.join(BLOBS)) else {
            return;
        };
        for entry in std::fs::read_dir(blobs).into_iter().flatten().flatten() {
            if let Ok(target) = entry.path().canonicalize()
                && target.starts_with(&shared)
            {
                self.allow(target, Access::Read);
            }
        }
    }

    /// Allows what a weight cache of a file takes, without the right to read its neighbours.
    fn allow_caches_beside(&mut self, file: &Path, keeps_weights: bool) {
        let folder = match file.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return,
        };
        if !keeps_weights {
            return;
        }
        self.allow(folder, Access::MakeFiles);
        let mut mark = file.file_name().map(OsString::from).unwrap_or_default();
        mark.push(CACHE_MARK);
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(mark.as_encoded_bytes()) {
                self.allow(entry.path(), Access::Read);
            }
        }
    }
}
