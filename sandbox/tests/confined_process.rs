//! A process that confines itself and then tries what it must not be able to do. Each case is a child
//! process, this test's own executable, which reports a line per attempt: nothing here can be taken
//! back, so nothing here may be done to the tests themselves.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sandbox::{Access, FileRules, SystemCalls, Tcp, confine_files, deny_system_calls};

/// `CASE FOLDER`, for the child.
const VARIABLE: &str = "SANDBOX_TEST_CASE";

/// Runs a case in a child process, in a folder of its own; its attempts by name.
fn run(case: &str, folder: &Path) -> BTreeMap<String, String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads", "1"])
        .env(VARIABLE, format!("{case} {}", folder.display()))
        .env("SANDBOX_TEST_SECRET", "secret")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    let attempts: BTreeMap<_, _> = lines
        .filter_map(|(name, result)| {
            let name = name.strip_prefix("attempt ")?;
            Some((name.to_owned(), result.to_owned()))
        })
        .collect();
    assert!(!attempts.is_empty(), "{text}");
    attempts
}

/// The child's side of these tests; not a test of its own.
#[test]
fn child() {
    let Ok(variable) = std::env::var(VARIABLE) else {
        return;
    };
    let (case, folder) = variable.split_once(' ').unwrap();
    let folder = PathBuf::from(folder);
    println!();
    match case {
        "files" => confined_to_files(&folder),
        "ports" => confined_to_ports(),
        "calls" => without_system_calls(&folder),
        "threads" => in_all_threads(&folder),
        _ => panic!("no case {case}"),
    }
}

fn report<T>(name: &str, result: io::Result<T>) {
    let result = match result {
        Ok(_) => "done".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    };
    println!("attempt {name}: {result}");
}

/// The result of a system call.
fn called(result: libc::c_long) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// True where this kernel enforces all rules about files; a test that needs them is skipped else.
fn has_landlock() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let is_full = run("threads", folder.path())["landlock"] == "done";
    if !is_full {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "this kernel has no Landlock, and CI must run every case"
        );
        eprintln!("skipped: this kernel has no Landlock of ABI 6");
    }
    is_full
}

fn confined_to_files(folder: &Path) {
    let mut rules = FileRules::system();
    rules.allow_model(&folder.join("model"), false);
    rules.allow_model(&folder.join("kept"), true);
    rules.allow_model(&folder.join("hub/snapshots/abc"), false);
    rules.allow(folder.join("sockets"), Access::MakeSockets);
    rules.allow(folder.join("there.pid"), Access::RemoveFiles);
    let parent = std::os::unix::process::parent_id();
    assert!(confine_files(&rules, &Tcp::None).is_full());

    let read = |path: &str| fs::read(folder.join(path));
    report("read the model", read("model/config.json"));
    report("list the model", fs::read_dir(folder.join("model")));
    report("read a link into blobs", read("hub/snapshots/abc/w"));
    report("read shared content", read("hub/snapshots/abc/s"));
    report("read others' shared content", read("blobs/ab/other"));
    report("read a link to elsewhere", read("model/link"));
    report("read beside", read("beside"));
    report("read /etc/passwd", fs::read("/etc/passwd"));
    report("list home", fs::read_dir("/root"));
    let write = |path: &str| fs::write(folder.join(path), "x");
    report("write into the model", write("model/new"));
    report("write over the model", write("model/config.json"));
    report("write beside", write("new"));
    report("keep weights", write("kept/formwork.weights"));
    report(
        "bind a socket",
        UnixListener::bind(folder.join("sockets/s")),
    );
    report("bind beside", UnixListener::bind(folder.join("s")));
    report("run a program", Command::new("/bin/true").status());
    report("read own status", fs::read("/proc/self/status"));
    report("write /dev/null", fs::write("/dev/null", "x"));
    report(
        "read the parent's environment",
        fs::read(format!("/proc/{parent}/environ")),
    );
    // SAFETY: signal 0 only asks.
    let signal = unsafe { libc::kill(parent as i32, 0) };
    report("signal the parent", called(signal.into()));
    report("listen at a port", TcpListener::bind("127.0.0.1:0"));
}

#[test]
fn only_named_files_can_be_reached() {
    if !has_landlock() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for name in [
        "model",
        "kept",
        "hub/snapshots/abc",
        "hub/blobs",
        "blobs/ab",
        "sockets",
    ] {
        fs::create_dir_all(path.join(name)).unwrap();
    }
    for name in [
        "model/config.json",
        "beside",
        "hub/blobs/hash",
        "blobs/ab/own",
        "blobs/ab/other",
    ] {
        fs::write(path.join(name), "{}").unwrap();
    }
    let link = std::os::unix::fs::symlink::<&Path, PathBuf>;
    link(
        Path::new("../../blobs/hash"),
        path.join("hub/snapshots/abc/w"),
    )
    .unwrap();
    link(
        Path::new("../../blobs/ab/own"),
        path.join("hub/blobs/shared"),
    )
    .unwrap();
    link(
        Path::new("../../blobs/shared"),
        path.join("hub/snapshots/abc/s"),
    )
    .unwrap();
    link(Path::new("../beside"), path.join("model/link")).unwrap();
    let attempts = run("files", path);
    let done = |name: &str| (name.to_owned(), "done".to_owned());
    let denied = |name: &str| (name.to_owned(), "PermissionDenied".to_owned());
    let expected = BTreeMap::from([
        done("read the model"),
        done("list the model"),
        done("read a link into blobs"),
        done("read shared content"),
        denied("read others' shared content"),
        denied("read a link to elsewhere"),
        denied("read beside"),
        denied("read /etc/passwd"),
        denied("list home"),
        denied("write into the model"),
        denied("write over the model"),
        denied("write beside"),
        done("keep weights"),
        done("bind a socket"),
        denied("bind beside"),
        denied("run a program"),
        done("read own status"),
        done("write /dev/null"),
        denied("read the parent's environment"),
        denied("signal the parent"),
        denied("listen at a port"),
    ]);
    assert_eq!(attempts, expected);
}

fn confined_to_ports() {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [allowed, other] = listeners.each_ref().map(|l| l.local_addr().unwrap());
    let mut rules = FileRules::system();
    rules.allow_program(Path::new("/bin/true"));
    rules.allow_names_and_time();
    assert!(confine_files(&rules, &Tcp::ConnectTo(vec![allowed.port()])).is_full());
    // Starting a program must do without `clone3`.
    assert!(deny_system_calls(&[SystemCalls::NeverUsed]).is_full());
    report("connect", TcpStream::connect(allowed));
    report("connect to another port", TcpStream::connect(other));
    report("listen", TcpListener::bind("127.0.0.1:0"));
    report("look up a name", TcpListener::bind("localhost:0"));
    report("run the program", Command::new("/bin/true").status());
    report("run another", Command::new("/bin/ls").status());
}

#[test]
fn only_named_ports_and_programs_can_be_used() {
    if !has_landlock() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let attempts = run("ports", folder.path());
    let expected = [
        ("connect", "done"),
        ("connect to another port", "PermissionDenied"),
        ("listen", "done"),
        ("look up a name", "done"),
        ("run another", "PermissionDenied"),
        ("run the program", "done"),
    ];
    let expected = expected.map(|(name, result)| (name.to_owned(), result.to_owned()));
    assert_eq!(attempts, BTreeMap::from(expected));
}

fn without_system_calls(folder: &Path) {
    let file = folder.join("file");
    fs::write(&file, "x").unwrap();
    let name = CString::new(file.as_os_str().as_bytes()).unwrap();
    let calls = deny_system_calls(&[
        SystemCalls::NeverUsed,
        SystemCalls::Programs,
        SystemCalls::Network,
    ]);
    assert!(calls.is_full(), "{calls:?}");
    let null = std::ptr::null::<u8>();
    // SAFETY: every one of these is refused before the system looks at its arguments; were one not,
    // these arguments would have it fail or do nothing that outlives this process.
    unsafe {
        let report = |name: &str, result: libc::c_long| report(name, called(result));
        report(
            "ptrace",
            libc::syscall(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, null, null),
        );
        report(
            "unshare",
            libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER),
        );
        report(
            "mount",
            libc::syscall(libc::SYS_mount, null, null, null, 0, null),
        );
        report("bpf", libc::syscall(libc::SYS_bpf, 0, null, 0));
        report("io_uring", libc::syscall(libc::SYS_io_uring_setup, 1, null));
        report("userfaultfd", libc::syscall(libc::SYS_userfaultfd, 0));
        report(
            "perf",
            libc::syscall(libc::SYS_perf_event_open, null, 0, -1, -1, 0),
        );
        let vm_read = libc::SYS_process_vm_readv;
        report(
            "vm_readv",
            libc::syscall(vm_read, libc::getppid(), null, 0, null, 0, 0),
        );
        let namespace = libc::CLONE_NEWUSER | libc::SIGCHLD;
        report(
            "clone a namespace",
            libc::syscall(libc::SYS_clone, namespace, null),
        );
        report("clone3", libc::syscall(libc::SYS_clone3, null, 0));
        report(
            "type",
            libc::syscall(libc::SYS_ioctl, 0, libc::TIOCSTI, c"x".as_ptr()),
        );
        report(
            "execve",
            libc::syscall(libc::SYS_execve, c"/bin/true".as_ptr(), null, null),
        );
        let (of_process, parent) = (libc::PRIO_PROCESS, libc::getppid());
        report("kill", libc::syscall(libc::SYS_kill, parent, 0));
        report("tkill", libc::syscall(libc::SYS_tkill, parent, 0));
        report("tgkill", libc::syscall(libc::SYS_tgkill, parent, parent, 0));
        report(
            "rt_tgsigqueueinfo",
            libc::syscall(libc::SYS_rt_tgsigqueueinfo, parent, parent, 0, null),
        );
        report(
            "signal itself",
            libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), 0),
        );
        report(
            "another's limits",
            libc::syscall(libc::SYS_prlimit64, parent, libc::RLIMIT_CPU, null, null),
        );
        report(
            "another's priority",
            libc::syscall(libc::SYS_setpriority, of_process, parent, 0),
        );
        report(
            "another's processors",
            libc::syscall(libc::SYS_sched_setaffinity, parent, 0, null),
        );
        report(
            "own priority",
            libc::syscall(libc::SYS_setpriority, of_process, 0, 0),
        );
        #[cfg(target_arch = "x86_64")]
        report(
            "x32",
            libc::syscall(libc::SYS_unshare | 0x4000_0000, libc::CLONE_NEWUSER),
        );
    }
    report("connect", TcpStream::connect("127.0.0.1:9"));
    report("socket", UnixListener::bind(folder.join("s")));
    report(
        "thread",
        std::thread::Builder::new()
            .spawn(|| ())
            .map(|thread| thread.join()),
    );
    report("file", fs::write(&file, "y"));

    let listener = UnixListener::bind(folder.join("t")).unwrap();
    let calls = deny_system_calls(&[
        SystemCalls::Sockets,
        SystemCalls::FileChanges,
        SystemCalls::FileRemoval,
    ]);
    assert!(calls.is_full(), "{calls:?}");
    report("socket of any kind", UnixListener::bind(folder.join("u")));
    report("connect to a socket", UnixStream::connect(folder.join("t")));
    report("a pair of sockets", UnixStream::pair());
    report("a pair of datagram sockets", UnixDatagram::pair());
    for (name, kind) in [
        ("a raw pair", libc::SOCK_RAW),
        ("a pair of packets", libc::SOCK_SEQPACKET),
    ] {
        let mut pair = [0; 2];
        // SAFETY: `pair` has room for the two descriptors that the call may write.
        let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) };
        report(name, called(made.into()));
    }
    drop(listener);
    // By number: the C library may make another call.
    for (name, call) in [
        ("fchmodat2", 452),
        ("setxattrat", 463),
        ("removexattrat", 466),
        ("file_setattr", 469),
    ] {
        // SAFETY: refused before the system looks at its arguments, which are a folder's and no address.
        let result = unsafe { libc::syscall(call, libc::AT_FDCWD, null, 0, 0, null, 0) };
        report(name, called(result));
    }
    report("read", fs::read(&file));
    report("write", fs::write(&file, "z"));
    report("append", fs::OpenOptions::new().append(true).open(&file));
    report("make", fs::create_dir(folder.join("made")));
    report("rename", fs::rename(&file, folder.join("renamed")));
    report("link", fs::hard_link(&file, folder.join("linked")));
    report("remove", fs::remove_file(&file));
    // SAFETY: the name is a string that lives through the call.
    let opened = unsafe {
        let how = [libc::O_RDWR as u64, 0, 0];
        libc::syscall(
            libc::SYS_openat2,
            libc::AT_FDCWD,
            name.as_ptr(),
            &how,
            size_of_val(&how),
        )
    };
    report("openat2", called(opened));
}

#[test]
fn denied_system_calls_fail_and_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let attempts = run("calls", folder.path());
    let done = [
        "a pair of sockets",
        "file",
        "own priority",
        "read",
        "signal itself",
        "socket",
        "thread",
    ];
    let unknown = ["clone3", "openat2"];
    for (name, result) in &attempts {
        let expected = match name.as_str() {
            name if done.contains(&name) => "done",
            name if unknown.contains(&name) => "Unsupported",
            _ => "PermissionDenied",
        };
        assert_eq!(result, expected, "{name}");
    }
    let by_machine = usize::from(cfg!(target_arch = "x86_64"));
    assert_eq!(attempts.len(), 43 + by_machine, "{attempts:?}");
    assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "y");
}

fn in_all_threads(folder: &Path) {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let path = folder.join("new");
    let thread = std::thread::spawn(move || {
        wait.recv().unwrap();
        fs::write(path, "x")
    });
    let calls = deny_system_calls(&[SystemCalls::FileChanges]);
    assert!(calls.is_full(), "{calls:?}");
    go.send(()).unwrap();
    report("another thread's write", thread.join().unwrap());
    let is_full = confine_files(&FileRules::system(), &Tcp::None).is_full();
    let missing = || io::Error::from(io::ErrorKind::Unsupported);
    report("landlock", is_full.then_some(()).ok_or_else(missing));
    let status = fs::read_to_string("/proc/self/status").unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
}

#[test]
fn threads_that_run_already_lose_system_calls_too() {
    let folder = tempfile::tempdir().unwrap();
    let attempts = run("threads", folder.path());
    assert_eq!(attempts["another thread's write"], "PermissionDenied");
}
