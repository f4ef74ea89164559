//! Opening files to map them, and telling the system how they are read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file for reading.
///
/// # Errors
/// As of opening; also where the path names something that isn't a plain file, such as a pipe, which
/// would be waited for.
pub(crate) fn open_plain_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "not a plain file",
    ))
}

/// How bytes of a map are used next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    /// They are read soon: the system may begin to.
    WillNeed,
    /// They aren't read again soon: they need not count as this process's memory.
    DontNeed,
}

/// Passes the advice on for the pages that hold `data`. A hint: nothing depends on it.
///
/// # Safety
/// `data` must lie in a read-only map of a file: other pages would lose what was written to them.
#[cfg(target_os = "linux")]
pub(crate) unsafe fn advise(data: &[u8], advice: Advice) {
    // SAFETY: asks for a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).unwrap_or(4096).max(1);
    let advice = match advice {
        Advice::WillNeed => libc::MADV_WILLNEED,
        Advice::DontNeed => libc::MADV_DONTNEED,
    };
    // From the page's beginning: what lies there before `data` belongs to the same map.
    let before = data.as_ptr() as usize % page;
    let start = data.as_ptr().wrapping_sub(before);
    // SAFETY: the pages are those of a map that is alive; pages of a file that were never written
    // to are read from it again when they are next touched.
    unsafe { libc::madvise(start.cast_mut().cast(), data.len() + before, advice) };
}

/// Does nothing here.
///
/// # Safety
/// None needed.
#[cfg(not(target_os = "linux"))]
pub(crate) unsafe fn advise(_data: &[u8], _advice: Advice) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_reads_the_same_after_any_advice() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..50_000u32).map(|i| (i % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        // SAFETY: nobody else has the file.
        let map = unsafe { memmap2::Mmap::map(&file).unwrap() };
        for range in [0..50_000, 5_000..5_001, 4_096..40_960, 49_999..50_000, 7..7] {
            for advice in [Advice::WillNeed, Advice::DontNeed] {
                assert!(map[..] == bytes[..]);
                // SAFETY: a read-only map of a file.
                unsafe { advise(&map[range.clone()], advice) };
            }
        }
        assert!(map[..] == bytes[..]);
    }
}
