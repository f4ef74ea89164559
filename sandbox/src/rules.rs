//! Which files a process needs.

use std::path::{Path, PathBuf};

/// Read by the C library, the Rust runtime and the engine: cores, memory and limits of this process,
/// random numbers.
const SYSTEM_FILES: [&str; 8] = [
    "/dev/urandom",
    "/dev/random",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/sys/devices/system",
    "/sys/fs/cgroup",
];

/// Where shared libraries lie.
const LIBRARIES: [&str; 7] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/nix/store",
    "/gnu/store",
];

/// Read by the dynamic loader beside the libraries.
const LOADER_FILES: [&str; 3] = ["/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.preload"];

/// Read to find a host's address, or the local time.
const NAME_AND_TIME_FILES: [&str; 9] = [
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/services",
    "/run/systemd/resolve",
    "/usr/share/zoneinfo",
];

/// What may be done to a file, or to all that a folder holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Read, and run as a program.
    Execute,
    /// Read and write files that exist.
    Write,
    /// Make, write and remove files; not read them.
    MakeFiles,
    /// Make and remove sockets and folders for them.
    MakeSockets,
    /// Remove files.
    RemoveFiles,
}

/// Files and folders, by what may be done to them. Those that don't exist when the rules are applied
/// can't be reached later either: name the folder in which they will be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileRules {
    rules: Vec<(PathBuf, Access)>,
}

impl FileRules {
    /// What every process needs: to read about itself and its machine, and `/dev/null`.
    pub fn system() -> Self {
        let mut rules = Self::default();
        rules.allow_each(SYSTEM_FILES, Access::Read);
        rules.allow("/dev/null", Access::Write);
        // For the lines of a backtrace.
        if let Ok(own) = std::env::current_exe() {
            rules.allow(own, Access::Read);
        }
        rules
    }

    /// Allows access to a file, or to a folder and all below it. Links are followed.
    pub fn allow(&mut self, path: impl Into<PathBuf>, access: Access) {
        self.rules.push((path.into(), access));
    }

    /// The same for several.
    pub fn allow_each<'p>(&mut self, paths: impl IntoIterator<Item = &'p str>, access: Access) {
        for path in paths {
            self.allow(path, access);
        }
    }

    /// Allows to start this program, and such as need no file but the system's.
    pub fn allow_program(&mut self, executable: &Path) {
        self.allow(executable, Access::Execute);
        self.allow_each(LIBRARIES, Access::Execute);
        self.allow_each(LOADER_FILES, Access::Read);
        let more = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        for folder in std::env::split_paths(&more).filter(|folder| folder.is_absolute()) {
            self.allow(folder, Access::Execute);
        }
        // The program's own entry is not there yet. What is secret in others' is kept from us by the
        // system, since they are not confined as we are.
        self.allow("/proc", Access::Read);
    }

    /// Allows to look up hosts' names and the local time.
    pub fn allow_names_and_time(&mut self) {
        self.allow_each(LIBRARIES, Access::Read);
        self.allow_each(NAME_AND_TIME_FILES, Access::Read);
    }

    /// The rules in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, Access)> {
        self.rules
            .iter()
            .map(|(path, access)| (path.as_path(), *access))
    }
}
