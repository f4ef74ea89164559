//! What the integration tests share: where both executables are, how to run them, where the
//! shared data is.
//!
//! What it is not: a test. Those are in `processes/`, one file per thing that a user relies on.
//!
//! ```no_run
//! let output = integration_tests::formwork_batch().args(["--prompt", "Hello"]).output().unwrap();
//! assert!(output.status.success());
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where the executables of this checkout are, built on first use: `cargo test` builds no other
/// package's executables, and a stale one must never be tested.
///
/// # Panics
/// When the build fails: no test can go on.
#[allow(clippy::panic)]
pub fn executables() -> &'static Path {
    static EXECUTABLES: OnceLock<PathBuf> = OnceLock::new();
    EXECUTABLES.get_or_init(|| {
        // A test runs from <target>/<profile>/deps; the executables are one folder up.
        let test = std::env::current_exe().unwrap_or_default();
        let folder = test.ancestors().nth(2).unwrap_or(Path::new("."));
        let mut build = Command::new(env!("CARGO"));
        build.args([
            "build",
            "--quiet",
            "-p",
            "engine-core",
            "-p",
            "engine-frontend",
            "--bins",
        ]);
        // With a test among the targets cargo enables the features that `cargo test` does, so that
        // no dependency is built a second time with others.
        build.args(["-p", "integration-tests", "--test", "processes"]);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        if let Some(target) = folder.parent() {
            build.env("CARGO_TARGET_DIR", target);
        }
        build.current_dir(workspace());
        match build.status() {
            Ok(status) if status.success() => folder.to_owned(),
            result => panic!("building the executables failed: {result:?}"),
        }
    })
}

/// The root of this checkout.
pub fn workspace() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// A command that runs `formwork-batch`.
pub fn formwork_batch() -> Command {
    Command::new(executables().join("formwork-batch"))
}

/// A command that runs `formwork-engine-core`.
pub fn formwork_engine_core() -> Command {
    Command::new(executables().join("formwork-engine-core"))
}

/// A file or folder of the shared test data, or `None`, with a note, where this machine has none.
///
/// # Panics
/// Where it is missing although `CI=true`: there every case must run.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FORMWORK_SHARED")
        .map_or_else(|| workspace().join("../shared"), PathBuf::from);
    let found = root.join(path);
    if found.exists() {
        return Some(found);
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{} is missing, and CI must run every case",
        found.display()
    );
    eprintln!("skipped: {} is not on this machine", found.display());
    None
}
