//! Where compiled kernels are kept, so that a start needs neither the compiler nor its time.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sandbox::not_private;

/// Nobody else may read or write there: what is in it runs on the GPU.
const PRIVATE: u32 = 0o700;

/// `~/.cache/formwork/kernels`, made if it isn't there. None where it can't be had or others may write to it.
pub(super) fn folder() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    let folder = Path::new(&home).join(".cache/formwork/kernels");
    match private(&folder) {
        true => Some(folder),
        false => {
            tracing::warn!(
                "compiled kernels are not kept: {} can't be made, or isn't this user's alone",
                folder.display()
            );
            None
        }
    }
}

/// Whether a folder is this user's alone, once it is made.
fn private(folder: &Path) -> bool {
    let made = DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE)
        .create(folder);
    let is_private = |metadata: fs::Metadata| not_private(&metadata).is_none();
    made.is_ok() && fs::symlink_metadata(folder).is_ok_and(is_private)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_a_folder_of_ones_own_is_used() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/kernels");
        assert!(private(&folder));
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, PRIVATE);
        assert!(private(&folder), "it is there already");
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(!private(&folder), "others may write");
        let link = root.path().join("link");
        symlink(root.path(), &link).unwrap();
        assert!(!private(&link), "a link");
        fs::write(root.path().join("file"), "").unwrap();
        assert!(!private(&root.path().join("file")), "a file");
    }
}
