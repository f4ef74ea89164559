//! The file that says which process serves. It is locked for as long as that lives, so that nobody
//! takes another process with the same number for it.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use sandbox::{not_private, own_user};

/// Held by a server: locked, and removed at the end.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    file: File,
    shutdown_timeout: f64,
}

/// What a pid file says.
#[derive(Debug, PartialEq)]
pub(crate) struct Running {
    pub(crate) process_id: i32,
    /// Once the server is ready.
    pub(crate) address: Option<String>,
    /// Seconds that the server gives its requests when it is told to end.
    pub(crate) shutdown_timeout: f64,
    /// The user who owns the file.
    owner: u32,
}

impl PidFile {
    /// Takes the file for this process, which ends within `shutdown_timeout` seconds when told to.
    pub(crate) fn create(path: &Path, shutdown_timeout: f64) -> anyhow::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("can't make the folder {}", folder.display()))?;
        }
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            // What a link names isn't ours to overwrite.
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .with_context(|| format!("can't write --pid-file {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "a server runs already: {} is locked by it; end it with `formwork stop`, or choose \
                 another --pid-file",
                path.display()
            ),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("can't lock {}", path.display()));
            }
        }
        let mut pid_file = Self {
            path: path.to_owned(),
            file,
            shutdown_timeout,
        };
        pid_file.write(None)?;
        Ok(pid_file)
    }

    /// Adds where the server listens.
    pub(crate) fn set_address(&mut self, address: &str) -> anyhow::Result<()> {
        self.write(Some(address))
    }

    fn write(&mut self, address: Option<&str>) -> anyhow::Result<()> {
        let (id, address) = (std::process::id(), address.unwrap_or_default());
        let text = format!("{id}\n{address}\n{}\n", self.shutdown_timeout);
        self.file.set_len(0)?;
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.flush()?;
        Ok(())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Running {
    /// Whether the file's owner is who may say so of this process: whoever else can write the file
    /// could have any process ended.
    pub(crate) fn may_be_signalled(&self) -> bool {
        self.owner == own_user()
            || fs::metadata(format!("/proc/{}", self.process_id))
                .is_ok_and(|process| process.uid() == self.owner)
    }
}

/// Who holds a pid file; `None` where nobody does, whatever it says.
pub(crate) fn running(path: &Path) -> anyhow::Result<Option<Running>> {
    let mut options = OpenOptions::new();
    let mut file = match options.read(true).custom_flags(libc::O_NOFOLLOW).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("can't read {}", path.display())),
    };
    match file.try_lock_shared() {
        Ok(()) => return Ok(None),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("can't lock {}", path.display()));
        }
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let mut lines = text.lines();
    let process_id = lines.next().and_then(|line| line.parse().ok());
    let process_id = process_id.with_context(|| format!("{} has no number", path.display()))?;
    let address = lines.next().filter(|line| !line.is_empty());
    let shutdown_timeout = lines.next().and_then(|line| line.parse().ok());
    Ok(Some(Running {
        process_id,
        address: address.map(str::to_owned),
        shutdown_timeout: shutdown_timeout.unwrap_or_default(),
        owner: file.metadata()?.uid(),
    }))
}

/// The pid file of a server in the background: as given, or by the variable by which the server itself
/// takes its flag, or the default.
///
/// # Errors
/// The default is in a folder that others could have written to.
pub(crate) fn path(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let variable = || std::env::var_os("FORMWORK_PID_FILE").map(PathBuf::from);
    if let Some(path) = given.or_else(variable) {
        return Ok(path);
    }
    let folder = default_folder();
    match fs::symlink_metadata(&folder) {
        Ok(metadata) => check_private(&folder, &metadata)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error).with_context(|| format!("can't read {}", folder.display()));
        }
    }
    Ok(folder.join(FILE_NAME))
}

/// The pid file of `--daemon` where none is named, in this user's folder for such things, which is
/// made where it is missing.
///
/// # Errors
/// The folder can't be made, or others could have written to it.
pub(crate) fn make_default() -> anyhow::Result<PathBuf> {
    let folder = default_folder();
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    made.with_context(|| format!("can't make the folder {}", folder.display()))?;
    check_private(&folder, &fs::symlink_metadata(&folder)?)?;
    Ok(folder.join(FILE_NAME))
}

const FILE_NAME: &str = "formwork.pid";

fn default_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => PathBuf::from(folder).join("formwork"),
        // Anybody can make it before us.
        None => std::env::temp_dir().join(format!("formwork-{}", own_user())),
    }
}

/// Refuses a folder in which another user could have put files or links.
fn check_private(folder: &Path, metadata: &Metadata) -> anyhow::Result<()> {
    let Some(wrong) = not_private(metadata) else {
        return Ok(());
    };
    bail!(
        "{} {wrong}: name a file with --pid-file, or set XDG_RUNTIME_DIR to a folder of yours",
        folder.display()
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_a_living_server_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/formwork.pid");
        assert_eq!(running(&path).unwrap(), None);
        let mut held = PidFile::create(&path, 7.5).unwrap();
        assert!(PidFile::create(&path, 0.0).is_err());
        let id = i32::try_from(std::process::id()).unwrap();
        let found = running(&path).unwrap().unwrap();
        assert_eq!((found.process_id, found.address), (id, None));
        assert_eq!(found.shutdown_timeout, 7.5);
        held.set_address("http://x").unwrap();
        let found = running(&path).unwrap().unwrap();
        assert_eq!(found.address.as_deref(), Some("http://x"));
        assert_eq!(found.shutdown_timeout, 7.5);
        drop(held);
        // What a killed server leaves behind.
        fs::write(&path, "1\n").unwrap();
        assert_eq!(running(&path).unwrap(), None);
        assert!(PidFile::create(&path, 0.0).is_ok());
    }

    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("f.pid"), folder.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        assert!(PidFile::create(&path, 0.0).is_err());
        assert!(running(&path).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn a_stranger_may_name_only_processes_of_its_own() {
        let own = own_user();
        let says = |owner| Running {
            process_id: i32::try_from(std::process::id()).unwrap(),
            address: None,
            shutdown_timeout: 0.0,
            owner,
        };
        assert!(says(own).may_be_signalled());
        assert!(!says(own + 1).may_be_signalled());
    }

    #[test]
    fn a_folder_that_others_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let check = |mode| {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            check_private(folder.path(), &fs::symlink_metadata(folder.path()).unwrap())
        };
        assert!(check(0o700).is_ok());
        let error = check(0o777).unwrap_err().to_string();
        assert!(
            error.contains("can be written to by other users: name a file"),
            "{error}"
        );
    }
}
