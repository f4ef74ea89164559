//! Whose a file is, for whoever believes what is in it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The superuser, who can change everything anyway.
const ROOT: u32 = 0;
/// Bits of a mode: the group or others may write.
const GROUP_OR_OTHERS_WRITE: u32 = 0o022;

/// Whether users other than the owner may write to what `metadata` is of: its group or all others.
pub fn others_may_write(metadata: &Metadata) -> bool {
    metadata.mode() & GROUP_OR_OTHERS_WRITE != 0
}

/// The id of the user that this process acts as.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The id of a file's owner, where that is neither `own` nor root.
pub fn foreign_owner(metadata: &Metadata, own: u32) -> Option<u32> {
    let owner = metadata.uid();
    (owner != own && owner != ROOT).then_some(owner)
}

/// Why a folder, of which `symlink_metadata` says this, isn't this user's alone to change: other users could have put
/// files or links there. `None` where it is.
pub fn not_private(metadata: &Metadata) -> Option<&'static str> {
    if !metadata.is_dir() {
        return Some("is no folder");
    }
    if metadata.uid() != own_user() {
        return Some("belongs to another user");
    }
    others_may_write(metadata).then_some("can be written to by other users")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    #[test]
    fn a_file_is_ours_or_roots_or_anothers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let own = own_user();
        assert_eq!(metadata.uid(), own);
        assert_eq!(foreign_owner(&metadata, own), None);
        // As another user sees it: root's is believed by all.
        let expected = (own != ROOT).then_some(own);
        assert_eq!(foreign_owner(&metadata, own + 1), expected);
        assert_eq!(
            foreign_owner(&fs::metadata("/proc").unwrap(), own + 1),
            None
        );
    }

    #[test]
    fn a_folder_is_private_that_nobody_else_can_change() {
        let folder = tempfile::tempdir().unwrap();
        let (own, link) = (folder.path().join("own"), folder.path().join("link"));
        fs::create_dir(&own).unwrap();
        symlink(&own, &link).unwrap();
        let said = |path: &Path| not_private(&fs::symlink_metadata(path).unwrap());
        const SHARED: Option<&str> = Some("can be written to by other users");
        for (mode, expected) in [
            (0o770, SHARED),
            (0o777, SHARED),
            (0o700, None),
            (0o755, None),
        ] {
            fs::set_permissions(&own, Permissions::from_mode(mode)).unwrap();
            assert_eq!(said(&own), expected, "{mode:o}");
        }
        assert_eq!(said(&link), Some("is no folder"));
        // Of root, whom these tests may be run by as well.
        let others = (own_user() != ROOT).then_some("belongs to another user");
        assert_eq!(said(Path::new("/proc")), others);
    }
}
