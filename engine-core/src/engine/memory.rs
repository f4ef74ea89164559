//! How much memory this process may still take.

use std::fs;
use std::path::Path;

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

/// What the limit of this process's control group, version 2 or 1, leaves, where there is one.
/// File pages, which the kernel can drop, don't count as used: a model's own, read before, must not keep it out.
fn cgroup_remaining_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let version_2 = group_path(&groups, "0::")
        .and_then(|path| remaining_bytes("/sys/fs/cgroup", path, "memory.max", "memory.current"));
    version_2.or_else(|| {
        let path = groups
            .lines()
            .find_map(|line| group_path(line, ":memory:"))?;
        let (limit, used) = ("memory.limit_in_bytes", "memory.usage_in_bytes");
        remaining_bytes("/sys/fs/cgroup/memory", path, limit, used)
    })
}

/// The path of a group in the format of `/proc/self/cgroup`, after `marker`.
fn group_path<'a>(groups: &'a str, marker: &str) -> Option<&'a str> {
    groups
        .lines()
        .find_map(|line| line.split_once(marker).map(|(_, path)| path))
}

/// The least that the limits of a group and of those around it leave.
fn remaining_bytes(root: &str, group: &str, limit: &str, used: &str) -> Option<u64> {
    let of_folder = |folder: &Path| {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let limit: u64 = read(limit)?.trim().parse().ok()?;
        let used: u64 = read(used)?.trim().parse().ok()?;
        let droppable = read("memory.stat").map_or(0, |stat| file_bytes(&stat));
        Some(limit.saturating_sub(used.saturating_sub(droppable)))
    };
    // A container often sees its own group as the root, whatever its path is called.
    let group = Path::new(root).join(group.trim_start_matches('/'));
    let around = group
        .ancestors()
        .take_while(|folder| folder.starts_with(root));
    around.filter_map(of_folder).min()
}

/// Bytes of file pages by a `memory.stat`. Pages of files in memory (`memfd_create`) are no such.
fn file_bytes(stat: &str) -> u64 {
    let of = |name: &str| -> Option<u64> {
        let mut lines = stat.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    };
    // In version 1 the bare names are the group's own alone, and what is used is that of the groups within it too.
    let file_pages = ["inactive_file", "active_file"].iter();
    file_pages
        .filter_map(|name| of(&format!("total_{name}")).or_else(|| of(name)))
        .sum()
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

    #[test]
    fn the_groups_path_and_its_droppable_pages_are_found() {
        assert_eq!(
            group_path("0::/user.slice/a\n", "0::"),
            Some("/user.slice/a")
        );
        let version_1 = "12:cpu:/x\n5:memory:/docker/1\n";
        assert_eq!(group_path(version_1, ":memory:"), Some("/docker/1"));
        assert_eq!(group_path("", "0::"), None);
        let stat = "anon 5\ninactive_file 4096\nactive_file 100\nactive_file_x 7\n";
        assert_eq!(file_bytes(stat), 4196);
        assert_eq!(file_bytes("anon 5\n"), 0);
        let of_parent =
            "inactive_file 0\nactive_file 0\ntotal_inactive_file 4096\ntotal_active_file 50\n";
        assert_eq!(file_bytes(of_parent), 4146);
    }

    #[test]
    fn the_tightest_of_a_group_and_those_around_it_holds() {
        let root = tempfile::tempdir().unwrap();
        let write = |folder: &str, limit: &str, used: &str| {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("memory.max"), limit).unwrap();
            fs::write(folder.join("memory.current"), used).unwrap();
        };
        let remaining = |group: &str| {
            let root = root.path().to_str().unwrap();
            remaining_bytes(root, group, "memory.max", "memory.current")
        };
        write("slice/unit", "max\n", "10\n");
        assert_eq!(remaining("/slice/unit"), None);
        write("slice", "1000\n", "300\n");
        assert_eq!(remaining("/slice/unit"), Some(700));
        write("slice/unit", "500\n", "10\n");
        assert_eq!(remaining("/slice/unit"), Some(490));
        write("", "400\n", "0\n");
        // A path that the container doesn't see.
        assert_eq!(remaining("/elsewhere"), Some(400));
    }
}
