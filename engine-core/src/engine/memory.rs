//! How much memory this process may still take.

use std::fs;

/// Bytes that can be had without swapping: what Linux estimates for the machine, and what the
/// process's control group leaves. `None` where the system doesn't say.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    let machine = available_in_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(cgroup_remaining_bytes().map_or(machine, |group| machine.min(group)))
}

/// `MemAvailable` of a `/proc/meminfo`, which counts in KiB.
fn available_in_meminfo(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Limit minus use of this process's control group, version 2 or 1, where it has a limit.
fn cgroup_remaining_bytes() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let version_2 = read("/sys/fs/cgroup/memory.max").zip(read("/sys/fs/cgroup/memory.current"));
    let (limit, used) = version_2.or_else(|| {
        read("/sys/fs/cgroup/memory/memory.limit_in_bytes")
            .zip(read("/sys/fs/cgroup/memory/memory.usage_in_bytes"))
    })?;
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_kib() {
        let meminfo = "MemTotal:       100 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(available_in_meminfo(meminfo), Some(2048 * 1024));
        assert_eq!(available_in_meminfo("MemTotal: 100 kB\n"), None);
        assert_eq!(available_in_meminfo("MemAvailable: many kB\n"), None);
    }
}
