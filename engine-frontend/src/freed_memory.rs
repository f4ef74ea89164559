//! Memory that requests have freed is returned to the system.

/// Has the allocator keep 1 MiB at the end of each thread's part at most, and map what is large by itself. Left alone it
/// keeps up to 64 MiB at each end once something large was freed: 200 MiB after two thousand large requests.
pub(crate) fn keep_little_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: each call takes two numbers, and may be made from any thread at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 20);
    }
}

/// Bytes of input of which no more than 10 MiB are made on the way.
const LITTLE: usize = 32 << 10;

/// Returns what lies free between other things to the system, after work on so many bytes of input: the allocator would
/// keep that of each thread that ever did such work, and what a constraint takes in the engine core would come on top.
/// It takes a millisecond, so after little work nothing is done.
pub(crate) fn give_memory_back(num_bytes: usize) {
    if num_bytes <= LITTLE {
        return;
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes a number only, and may be called from any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
