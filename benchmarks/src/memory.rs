//! What this process takes of the machine's memory, and taking files out of it.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Bytes of `/proc/self/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// In memory now, mapped files included.
    pub resident: u64,
    /// The most since [`reset_peak`], or since the process began.
    pub peak: u64,
}

impl Memory {
    /// As it is now; zeros where the system doesn't say.
    pub fn now() -> Self {
        Self::of_status(&fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn of_status(status: &str) -> Self {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kib * 1024)
        };
        Self {
            resident: bytes("VmRSS:").unwrap_or_default(),
            peak: bytes("VmHWM:").unwrap_or_default(),
        }
    }
}

/// Makes what is in memory now the peak.
///
/// # Errors
/// Where the system has no such thing.
pub fn reset_peak() -> io::Result<()> {
    fs::write("/proc/self/clear_refs", "5")
}

/// Takes a folder's files out of memory, so that they are next read from the disk. Pages that
/// another process has mapped stay.
///
/// # Errors
/// Where a file can't be opened.
pub fn evict_files(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.is_file() {
            continue;
        }
        let file = File::open(path)?;
        // What isn't written yet can't be taken out.
        file.sync_all()?;
        evict(&file);
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn evict(file: &File) {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open; the call touches no memory of this process.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

#[cfg(not(target_os = "linux"))]
fn evict(_: &File) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_in_kib() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t     100 kB\n";
        let expected = Memory {
            resident: 100 * 1024,
            peak: 2048 * 1024,
        };
        assert_eq!(Memory::of_status(status), expected);
        assert_eq!(Memory::of_status("VmHWM: many"), Memory::default());
    }

    #[test]
    fn evicted_files_keep_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        fs::write(&file, [7; 10_000]).unwrap();
        evict_files(folder.path()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), [7; 10_000]);
    }
}
