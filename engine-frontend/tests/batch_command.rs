//! What `formwork-batch` refuses before it starts a core.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const REQUEST: &str = "{\"custom_id\": \"a\"}\n";

/// The command, whose core would be an error of its own.
fn formwork_batch(args: &[&str], stdin: Stdio, stdout: Stdio) -> Output {
    Command::new(env!("CARGO_BIN_EXE_formwork-batch"))
        .args(args)
        .args(["--engine-core", "/nonexistent/core"])
        .stdin(stdin)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap()
}

/// The command was refused as wrong usage, and says `says`.
fn assert_usage_error(output: &Output, says: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains(says), "{stderr}");
    assert_eq!(output.status.code(), Some(2), "{stderr}");
}

fn append(path: &Path) -> Stdio {
    OpenOptions::new().append(true).open(path).unwrap().into()
}

#[test]
fn redirections_to_the_other_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests");
    fs::write(&path, REQUEST).unwrap();
    let name = path.to_str().unwrap();
    let stdin = || fs::File::open(&path).unwrap().into();
    let same = "input and output are the same file";

    let args = ["-i", "-", "-o", name, "--overwrite"];
    assert_usage_error(&formwork_batch(&args, stdin(), Stdio::piped()), same);
    let args = ["-i", name, "-o", "-"];
    let output = formwork_batch(&args, Stdio::null(), append(&path));
    assert_usage_error(&output, same);
    let args = ["-i", name];
    let output = formwork_batch(&args, Stdio::null(), append(&path));
    assert_usage_error(&output, same);
    let args = ["-i", "-"];
    assert_usage_error(&formwork_batch(&args, stdin(), append(&path)), same);
    assert_eq!(fs::read_to_string(&path).unwrap(), REQUEST);
}

#[test]
fn values_out_of_range_need_no_core() {
    for (flag, value) in [("--n", "0"), ("--temperature", "nan"), ("--stop", "")] {
        let args = ["--prompt", "a", flag, value];
        assert_usage_error(&formwork_batch(&args, Stdio::null(), Stdio::piped()), flag);
    }
    let greedy = [
        "--prompt",
        "a",
        "--n",
        "2",
        "--temperature",
        "0",
        "--strict-requests",
    ];
    let output = formwork_batch(&greedy, Stdio::null(), Stdio::piped());
    assert_usage_error(&output, "--n must be 1");
}

#[test]
fn a_file_that_is_no_output_survives_resume() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (input, note) = (path("requests"), path("note"));
    fs::write(&input, REQUEST).unwrap();
    fs::write(&note, "important note").unwrap();
    let args = ["-i", &input, "-o", &note, "--resume"];
    let output = formwork_batch(&args, Stdio::null(), Stdio::piped());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("doesn't belong to this input"), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&note).unwrap(), "important note");
}
