//! What a process of Formwork's may do from here on, enforced by the kernel for as long as it lives
//! and for every process that it starts.
//!
//! Three means, each of which needs no privilege and can't be taken back:
//!
//! - *Landlock* ([`confine_files`]): an allow-list of files and folders, by what may be done to them;
//!   TCP ports that may be connected to; signals and abstract sockets of other processes are out of
//!   reach, and so is their memory. It holds for the calling thread and those it starts, so it comes
//!   before the first thread.
//! - *seccomp* ([`deny_system_calls`]): a deny-list of system calls that a server never makes. A
//!   denied call fails with `EPERM`, and a program that can do without goes on. An allow-list would
//!   deny more, but which calls a C library makes depends on its version and on the machine, and no
//!   test on one machine can show that such a list is long enough.
//! - *No new privileges*, which both set: no program that is started gains any.
//!
//! On other systems than Linux, and where a kernel lacks one, nothing fails: [`Confinement`] says what
//! is in force.
//!
//! ```no_run
//! use sandbox::{Access, FileRules, SystemCalls, Tcp, confine_files, deny_system_calls};
//!
//! let mut rules = FileRules::system();
//! rules.allow("/srv/model", Access::Read);
//! let files = confine_files(&rules, &Tcp::None);
//! let calls = deny_system_calls(&[SystemCalls::NeverUsed, SystemCalls::Programs]);
//! eprintln!("{}; {}", files.in_words(), calls.in_words());
//! ```

mod model;
mod owner;
mod rules;

#[cfg(target_os = "linux")]
mod landlock_rules;
#[cfg(target_os = "linux")]
mod seccomp_filter;

pub use owner::{foreign_owner, not_private, others_may_write, own_user};
pub use rules::{Access, FileRules};

/// Which TCP ports may be connected to. Landlock knows ports alone, not hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tcp {
    /// None, and none may be listened at.
    None,
    /// These; any may be listened at.
    ConnectTo(Vec<u16>),
}

/// Groups of system calls that can be denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemCalls {
    /// What no server needs: other processes' memory, mounts, namespaces, kernel modules and keys,
    /// BPF, `io_uring`, `userfaultfd`, the clock, typing into a terminal.
    NeverUsed,
    /// Starting programs, and signals to other processes.
    Programs,
    /// Sockets that are not local.
    Network,
    /// Any socket but a pair of streams, which lead to each other alone, and connections of those that there are.
    Sockets,
    /// Whatever changes a file system, but for the removal of a file.
    FileChanges,
    /// Removal of files.
    FileRemoval,
}

/// What became of an attempt to confine this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confinement {
    /// All that was asked for is in force.
    Full(&'static str),
    /// An older kernel enforces a part of it.
    Partial(&'static str),
    /// Nothing is in force, for this reason.
    None(String),
}

impl Confinement {
    /// True if all that was asked for is in force.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }

    /// What is in force, for a log.
    pub fn in_words(&self) -> String {
        match self {
            Self::Full(what) => (*what).to_owned(),
            Self::Partial(what) => format!("{what} (in part: the kernel is older)"),
            Self::None(why) => format!("no {why}"),
        }
    }
}

/// Confines the calling thread, and those that it starts, to these files and ports.
pub fn confine_files(rules: &FileRules, tcp: &Tcp) -> Confinement {
    #[cfg(target_os = "linux")]
    return landlock_rules::confine(rules, tcp);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (rules, tcp);
        Confinement::None("Landlock on this system".to_owned())
    }
}

/// Denies system calls to all threads of this process.
pub fn deny_system_calls(groups: &[SystemCalls]) -> Confinement {
    #[cfg(target_os = "linux")]
    return seccomp_filter::deny(groups);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = groups;
        Confinement::None("seccomp on this system".to_owned())
    }
}
