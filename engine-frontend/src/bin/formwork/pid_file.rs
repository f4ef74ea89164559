//! The file that says which process serves. It is locked for as long as that lives, so that nobody
//! takes another process with the same number for it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Held by a server: locked, and removed at the end.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    file: File,
}

/// What a pid file says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) process_id: i32,
    /// Once the server is ready.
    pub(crate) address: Option<String>,
}

impl PidFile {
    /// Takes the file for this process.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("can't make the folder {}", folder.display()))?;
        }
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
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
        };
        pid_file.write(None)?;
        Ok(pid_file)
    }

    /// Adds where the server listens.
    pub(crate) fn set_address(&mut self, address: &str) -> anyhow::Result<()> {
        self.write(Some(address))
    }

    fn write(&mut self, address: Option<&str>) -> anyhow::Result<()> {
        let text = format!("{}\n{}\n", std::process::id(), address.unwrap_or_default());
        self.file.set_len(0)?;
        std::os::unix::fs::FileExt::write_all_at(&self.file, text.as_bytes(), 0)?;
        self.file.flush()?;
        Ok(())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Who holds a pid file; `None` where nobody does, whatever it says.
pub(crate) fn running(path: &Path) -> anyhow::Result<Option<Running>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
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
    Ok(Some(Running {
        process_id,
        address: address.map(str::to_owned),
    }))
}

/// The pid file of a server in the background: as given, or by the variable by which the server itself
/// takes its flag, or the default.
pub(crate) fn path(given: Option<PathBuf>) -> PathBuf {
    let variable = || std::env::var_os("FORMWORK_PID_FILE").map(PathBuf::from);
    given.or_else(variable).unwrap_or_else(default_path)
}

/// The pid file of `--daemon` where none is named: in this user's folder for such things.
pub(crate) fn default_path() -> PathBuf {
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => PathBuf::from(folder).join("formwork"),
        None => {
            let user = rustix::process::getuid().as_raw();
            std::env::temp_dir().join(format!("formwork-{user}"))
        }
    };
    folder.join("formwork.pid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_living_server_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/formwork.pid");
        assert_eq!(running(&path).unwrap(), None);
        let mut held = PidFile::create(&path).unwrap();
        assert!(PidFile::create(&path).is_err());
        let id = i32::try_from(std::process::id()).unwrap();
        let found = running(&path).unwrap().unwrap();
        assert_eq!((found.process_id, found.address), (id, None));
        held.set_address("http://x").unwrap();
        let found = running(&path).unwrap().unwrap();
        assert_eq!(found.address.as_deref(), Some("http://x"));
        drop(held);
        // What a killed server leaves behind.
        fs::write(&path, "1\n").unwrap();
        assert_eq!(running(&path).unwrap(), None);
        assert!(PidFile::create(&path).is_ok());
    }
}
