//! Whose weights are believed. Checksums tell what was written, not by whom.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sandbox::{foreign_owner, others_may_write, own_user};

/// Others may write.
const OTHERS_WRITE: u32 = 0o002;
/// In a folder: only a file's owner may remove or rename it.
const STICKY: u32 = 0o1000;

/// Why a file or a place for it is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distrust {
    /// It is another user's, and is left alone.
    ForeignFile,
    /// It is ours, and others may have written to it: a new one may take its place.
    WritableFile,
    /// Anybody can exchange files in the folder.
    WritableFolder,
}

impl Distrust {
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::ForeignFile => "not used, since it belongs to another user than this one or root",
            Self::WritableFile => "not used, since other users can write to it",
            Self::WritableFolder => {
                "no weights are kept or read here, since any user can write to the folder"
            }
        }
    }
}

/// Why an opened file is not to be believed, by what the system says of the file itself.
pub(super) fn of_file(file: &File) -> io::Result<Option<Distrust>> {
    Ok(by_owner_and_mode(&file.metadata()?, own_user()))
}

/// Why nothing in the folder of a file is to be believed.
pub(super) fn of_folder(path: &Path) -> Option<Distrust> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // One that can't be looked at holds nothing that can be read.
    let mode = folder.metadata().ok()?.mode();
    (mode & OTHERS_WRITE != 0 && mode & STICKY == 0).then_some(Distrust::WritableFolder)
}

fn by_owner_and_mode(metadata: &Metadata, own: u32) -> Option<Distrust> {
    if foreign_owner(metadata, own).is_some() {
        return Some(Distrust::ForeignFile);
    }
    others_may_write(metadata).then_some(Distrust::WritableFile)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_file_is_ours_or_roots_and_nobody_elses_to_write() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let own = own_user();
        for (mode, expected) in [
            (0o600, None),
            (0o644, None),
            (0o664, Some(Distrust::WritableFile)),
            (0o646, Some(Distrust::WritableFile)),
            (0o666, Some(Distrust::WritableFile)),
        ] {
            file.as_file()
                .set_permissions(Permissions::from_mode(mode))
                .unwrap();
            assert_eq!(of_file(file.as_file()).unwrap(), expected, "{mode:o}");
        }
        // Another user's, as that user sees it: ours is another's then, unless we are root.
        let metadata = file.as_file().metadata().unwrap();
        let seen = by_owner_and_mode(&metadata, own + 1);
        if own != 0 {
            assert_eq!(seen, Some(Distrust::ForeignFile));
            return;
        }
        assert_eq!(seen, Some(Distrust::WritableFile));
        chown(file.path(), Some(12_345), None).unwrap();
        assert_eq!(
            of_file(file.as_file()).unwrap(),
            Some(Distrust::ForeignFile)
        );
    }

    #[test]
    fn a_folder_is_not_anybodys_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        for (mode, expected) in [
            (0o700, None),
            (0o755, None),
            (0o775, None),
            (0o1777, None),
            (0o777, Some(Distrust::WritableFolder)),
        ] {
            fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(of_folder(&path), expected, "{mode:o}");
        }
    }
}
