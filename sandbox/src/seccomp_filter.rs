//! Groups of system calls as seccomp filters.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use crate::{Confinement, SystemCalls};

/// Bit that x86-64's second set of numbers for its calls (x32) has, which would pass a list of the
/// first one's.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;

/// A filter's rules: calls, each with the arguments for which it is denied; none are all.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Why there is no filter.
#[derive(Debug)]
enum Problem {
    Filter(BackendError),
    System(io::Error),
}

impl From<BackendError> for Problem {
    fn from(error: BackendError) -> Self {
        Self::Filter(error)
    }
}

pub(crate) fn deny(groups: &[SystemCalls]) -> Confinement {
    match install_all(groups) {
        Ok(()) => Confinement::Full("system calls by seccomp"),
        Err(Problem::Filter(error)) => Confinement::None(format!("seccomp: {error}")),
        Err(Problem::System(error)) => Confinement::None(format!("seccomp: {error}")),
    }
}

fn install_all(groups: &[SystemCalls]) -> Result<(), Problem> {
    // As if the kernel were older than they are: a C library then makes other calls, which can be
    // judged by their arguments.
    let mut unknown = Rules::new();
    // Refused, whoever asks.
    let mut forbidden = Rules::new();
    for group in groups {
        match group {
            SystemCalls::NeverUsed => {
                all(&mut forbidden, NEVER_USED);
                all(&mut unknown, &[libc::SYS_clone3]);
                for flag in NAMESPACES {
                    when(&mut forbidden, libc::SYS_clone, 0, has(flag))?;
                }
                for (call, argument) in OF_ANY_PROCESS {
                    when(&mut forbidden, call, argument, (SeccompCmpOp::Ne, 0))?;
                }
                for request in [TIOCSTI, TIOCLINUX] {
                    when(&mut forbidden, libc::SYS_ioctl, 1, is(request))?;
                }
            }
            SystemCalls::Programs => {
                all(&mut forbidden, PROGRAMS);
                // How a thread sends itself a signal, such as when the process aborts.
                let others = (SeccompCmpOp::Ne, u64::from(std::process::id()));
                when(&mut forbidden, libc::SYS_tgkill, 0, others)?;
            }
            SystemCalls::Network => {
                let others = (SeccompCmpOp::Ne, libc::AF_UNIX as u64);
                when(&mut forbidden, libc::SYS_socket, 0, others)?;
            }
            SystemCalls::Sockets => {
                all(&mut forbidden, SOCKETS);
                // One of a pair of datagram sockets may send to any other by its path; Linux makes such ones of raw ones.
                for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET] {
                    let kind = (SeccompCmpOp::MaskedEq(SOCK_TYPE_MASK), kind as u64);
                    when(&mut forbidden, libc::SYS_socketpair, 1, kind)?;
                }
            }
            SystemCalls::FileChanges => {
                all(&mut forbidden, FILE_CHANGES);
                all(&mut unknown, &[libc::SYS_openat2]);
                for flags in WRITING {
                    #[cfg(target_arch = "x86_64")]
                    when(&mut forbidden, libc::SYS_open, 1, flags.clone())?;
                    when(&mut forbidden, libc::SYS_openat, 2, flags)?;
                }
            }
            SystemCalls::FileRemoval => all(&mut forbidden, FILE_REMOVAL),
        }
    }
    for (rules, error) in [(unknown, libc::ENOSYS), (forbidden, libc::EPERM)] {
        if !rules.is_empty() {
            install(&program(rules, error)?)?;
        }
    }
    Ok(())
}

fn all(rules: &mut Rules, calls: &[libc::c_long]) {
    rules.extend(calls.iter().map(|call| (*call, Vec::new())));
}

/// Denies a call where its argument of this index compares so. All arguments here are 32 bits wide.
fn when(
    rules: &mut Rules,
    call: libc::c_long,
    argument: u8,
    (operator, value): (SeccompCmpOp, u64),
) -> Result<(), BackendError> {
    let length = SeccompCmpArgLen::Dword;
    let condition = SeccompCondition::new(argument, length, operator, value)?;
    rules
        .entry(call)
        .or_default()
        .push(SeccompRule::new(vec![condition])?);
    Ok(())
}

/// All bits of a flag are set.
fn has(flag: i32) -> (SeccompCmpOp, u64) {
    let flag = u64::from(flag as u32);
    (SeccompCmpOp::MaskedEq(flag), flag)
}

fn is(value: u64) -> (SeccompCmpOp, u64) {
    (SeccompCmpOp::Eq, value)
}

fn program(rules: Rules, error: i32) -> Result<BpfProgram, BackendError> {
    #[cfg(target_arch = "x86_64")]
    let rules = rules
        .into_iter()
        .flat_map(|(call, conditions)| [(call, conditions.clone()), (call | X32, conditions)])
        .collect();
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(error as u32),
        architecture,
    )?;
    filter.try_into()
}

/// Installs a filter for all threads.
///
/// `seccompiler` does so too, but without the flag `SPEC_ALLOW`: kernels before 5.16 then turn off a
/// processor's speculation past stores for the process, which costs the model's kernels time. It
/// matters where a process runs others' code, which this one doesn't.
fn install(program: &BpfProgram) -> Result<(), Problem> {
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut().cast(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: prctl takes integers. seccomp reads the program, whose instructions have the system's
    // layout (`sock_filter` is `repr(C)` in both crates) and live until it returns; their number fits,
    // since the kernel refuses more than 4,096 of them.
    let result = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(Problem::System(io::Error::last_os_error()));
        }
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const filter,
        )
    };
    match result {
        0 => Ok(()),
        -1 => Err(Problem::System(io::Error::last_os_error())),
        // A thread that can't be joined to it.
        thread => Err(Problem::System(io::Error::other(format!(
            "thread {thread} has another filter"
        )))),
    }
}

/// Calls that change limits, priority or place of any process of the same user, and the index of the argument that
/// says of which: 0 is the caller. A limit of processor time ends a process.
const OF_ANY_PROCESS: [(libc::c_long, u8); 9] = [
    (libc::SYS_prlimit64, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_migrate_pages, 0),
    (libc::SYS_move_pages, 0),
];

/// `TIOCSTI`, by which a program can type into its terminal.
const TIOCSTI: u64 = 0x5412;

/// `TIOCLINUX`, by which a program can paste into a console.
const TIOCLINUX: u64 = 0x541C;

/// Flags of `clone` that make a namespace, in which a user is root.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Flags of `open` by which a file is written or made.
const WRITING: [(SeccompCmpOp, u64); 4] = [
    (
        SeccompCmpOp::MaskedEq(libc::O_ACCMODE as u64),
        libc::O_WRONLY as u64,
    ),
    (
        SeccompCmpOp::MaskedEq(libc::O_ACCMODE as u64),
        libc::O_RDWR as u64,
    ),
    (
        SeccompCmpOp::MaskedEq(libc::O_CREAT as u64),
        libc::O_CREAT as u64,
    ),
    (
        SeccompCmpOp::MaskedEq(libc::O_TRUNC as u64),
        libc::O_TRUNC as u64,
    ),
];

const NEVER_USED: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_mknodat,
    libc::SYS_fanotify_init,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Parts of the kernel with many holes in their past.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
];

const PROGRAMS: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

/// Bits of a socket's type that are none of its flags.
const SOCK_TYPE_MASK: u64 = 0xf;

// Not `socketpair` of streams: the two lead to each other alone, and waiting for signals takes such a pair.
const SOCKETS: &[libc::c_long] = &[libc::SYS_socket, libc::SYS_connect];

const FILE_REMOVAL: &[libc::c_long] = &[
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
];

const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_SETATTR: libc::c_long = 469;

const FILE_CHANGES: &[libc::c_long] = &[
    libc::SYS_truncate,
    libc::SYS_mkdirat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    #[cfg(not(target_arch = "riscv64"))]
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_fallocate,
    // Newer ones have the same number on all machines, which not every C library's headers have.
    FCHMODAT2,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
];
