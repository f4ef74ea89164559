//! Opening files to map them, and telling the system how they are read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
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
    let page = page_size();
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

/// Bytes of a huge page, to which [`PrivateMap`] and the parts of a file that it shows are aligned.
pub(crate) const HUGE_PAGE: u64 = 2 << 20;

/// A part of a file in memory, for reading, at an address where huge pages can be.
///
/// The map is private, so that it hinders no seal of the file. Nobody writes to it, so that it shows what the file
/// holds.
pub(crate) struct PrivateMap {
    start: *mut libc::c_void,
    len: usize,
}

// SAFETY: the map is only read, and it belongs to this value.
unsafe impl Send for PrivateMap {}
// SAFETY: as above.
unsafe impl Sync for PrivateMap {}

impl PrivateMap {
    /// Maps `len` bytes of a file, more than none, from a multiple of [`HUGE_PAGE`] on.
    ///
    /// # Errors
    /// The system's, or a part that can't be.
    pub(crate) fn new(file: &File, offset: u64, len: u64) -> io::Result<Self> {
        let huge = HUGE_PAGE as usize;
        let wrong = || io::Error::from(io::ErrorKind::InvalidInput);
        let len = usize::try_from(len).map_err(|_| wrong())?;
        let offset = libc::off_t::try_from(offset).map_err(|_| wrong())?;
        let reserved = len.checked_add(huge).ok_or_else(wrong)?;
        if len == 0 {
            return Err(wrong());
        }
        // SAFETY: a new map of nothing, at an address of the system's choice.
        let first = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                reserved,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let before = (first as usize).next_multiple_of(huge) - first as usize;
        let start = first.wrapping_byte_add(before);
        let page = page_size();
        let end = before + len.next_multiple_of(page);
        // SAFETY: takes the place of a part of what was just reserved, and gives the rest back.
        let mapped = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
            let fd = file.as_raw_fd();
            let mapped = libc::mmap(start, len, libc::PROT_READ, flags, fd, offset);
            let error = io::Error::last_os_error();
            if mapped == libc::MAP_FAILED {
                libc::munmap(first, reserved);
                return Err(error);
            }
            if before > 0 {
                libc::munmap(first, before);
            }
            if end < reserved {
                libc::munmap(first.wrapping_byte_add(end), reserved - end);
            }
            mapped
        };
        Ok(Self { start: mapped, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.start.cast_const().cast()
    }

    /// Lets the file's pages become huge ones, as far as the system can; every other map of them gains too. It takes as
    /// long as copying them, unless another process has done it. A hint: nothing depends on it.
    pub(crate) fn use_huge_pages(&self) {
        #[cfg(target_os = "linux")]
        // SAFETY: the map is this value's; what it shows stays the same.
        unsafe {
            libc::madvise(self.start, self.len, libc::MADV_COLLAPSE);
        }
    }
}

impl Drop for PrivateMap {
    fn drop(&mut self) {
        // SAFETY: the map is this value's, and nobody has a reference into it any more.
        unsafe { libc::munmap(self.start, self.len) };
    }
}

fn page_size() -> usize {
    // SAFETY: asks for a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).unwrap_or(4096).max(1)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_private_map_shows_its_part_of_a_file() {
        let huge = HUGE_PAGE as usize;
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..3 * huge + 5).map(|i| (i % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        for (offset, len) in [
            (0, bytes.len()),
            (huge, 1),
            (huge, 2 * huge),
            (2 * huge, huge + 5),
        ] {
            let map = PrivateMap::new(&file, offset as u64, len as u64).unwrap();
            assert_eq!((map.len(), map.as_ptr() as usize % huge), (len, 0));
            map.use_huge_pages();
            // SAFETY: the map has so many bytes, and the file isn't changed.
            let shown = unsafe { std::slice::from_raw_parts(map.as_ptr(), len) };
            assert!(*shown == bytes[offset..offset + len]);
        }
        for (offset, len) in [(0, 0), (1, 5), (0, u64::MAX), (u64::MAX, 1)] {
            assert!(
                PrivateMap::new(&file, offset, len).is_err(),
                "{offset} {len}"
            );
        }
    }

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
