//! Starting a core and ending it, with real processes: this test's own executable plays the core.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fake_engine_core;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use engine_frontend::engine_core_client::{
    EngineCoreClient, EngineCoreClientError, EngineCoreStartupError, LaunchOptions,
};
use fake_engine_core::{LONG, get_ready, step};
use protocol::handshake::startup_handshake;
use protocol::transport::Stream;
use protocol::*;

/// What the fake core does, and where it connects: `MODE ADDRESS`.
const VARIABLE: &str = "FORMWORK_FAKE_ENGINE_CORE";

const MODES: [&str; 7] = [
    "serves",
    "exits",
    "exits-later",
    "refuses",
    "hangs",
    "ignores-shutdown",
    "fails-shutdown",
];

/// A folder with one executable per mode. They are written before the first of them runs: a
/// process that is started meanwhile would hold them open, and an open file can't be executed.
static EXECUTABLES: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake-engine-cores");
    fs::create_dir_all(&folder).unwrap();
    let own = std::env::current_exe().unwrap();
    for mode in MODES {
        let path = folder.join(mode);
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --connect ] || exit 2\n\
             {VARIABLE}=\"{mode} $2\" exec '{}' --exact plays_the_core --nocapture\n",
            own.display()
        );
        write_executable(&path, &script);
    }
    // Says which process it is, beside itself, and stays until it is killed.
    let never_connects = folder.join("never-connects");
    let _ = fs::remove_file(folder.join("never-connects.process-id"));
    write_executable(
        &never_connects,
        "#!/bin/sh\necho $$ > \"$0.new\"\nmv \"$0.new\" \"$0.process-id\"\nexec sleep 100000\n",
    );
    folder
});

fn write_executable(path: &Path, script: &str) {
    fs::write(path, script).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The core's side of these tests; not a test of its own.
#[test]
fn plays_the_core() {
    let Ok(variable) = std::env::var(VARIABLE) else {
        return;
    };
    let (mode, address) = variable.split_once(' ').unwrap();
    if mode == "exits" {
        std::process::exit(3);
    }
    let (mut reader, mut writer) = Stream::connect(Path::new(address)).unwrap().split();
    if mode == "refuses" {
        let metadata = startup_handshake(&mut reader, &mut writer, LONG).unwrap();
        let message = format!(
            "no model at {:?}",
            metadata.config.unwrap().model_config.model
        );
        let failure = StartupFailure { message };
        writer
            .write(&EngineCoreStartupMessage::Failure(failure))
            .unwrap();
        std::process::exit(1);
    }
    if mode == "exits-later" {
        startup_handshake(&mut reader, &mut writer, LONG).unwrap();
        std::process::exit(4);
    }
    if mode == "hangs" {
        while reader.read::<Hello>().unwrap().is_some() {}
        std::process::exit(0);
    }
    get_ready(&mut reader, &mut writer);
    while let Some(EngineCoreRequestType::Add(request)) = reader.read().unwrap() {
        let outputs = step(&request.request_id, request.prompt_token_ids[0]);
        writer.write(&EngineCoreMessage::Outputs(outputs)).unwrap();
    }
    match mode {
        "serves" => {
            writer
                .write(&EngineCoreMessage::Outputs(step("last", 9)))
                .unwrap();
            std::process::exit(0);
        }
        "fails-shutdown" => std::process::exit(5),
        _ => loop {
            std::thread::park();
        },
    }
}

fn options(mode: &str) -> LaunchOptions {
    LaunchOptions {
        engine_core: Some(EXECUTABLES.join(mode)),
        startup_timeout: LONG,
        exit_grace: LONG,
        ..LaunchOptions::default()
    }
}

async fn launch(mode: &str) -> Result<EngineCoreClient, EngineCoreStartupError> {
    EngineCoreClient::launch(&options(mode), EngineConfig::default(), |_| ()).await
}

fn exit_status(code: i32) -> ExitStatus {
    ExitStatus::from_raw(code << 8)
}

/// Waits until a process has ended, and fails the test if it doesn't.
async fn wait_until_gone(process_id: u32) {
    let deadline = Instant::now() + LONG;
    let is_running = || {
        let stat = fs::read_to_string(format!("/proc/{process_id}/stat")).unwrap_or_default();
        // The state comes after the name, which is in parentheses; Z is ended, not yet waited for.
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    while is_running() {
        assert!(
            Instant::now() < deadline,
            "process {process_id} is still there"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn kill(process_id: u32) {
    let status = std::process::Command::new("kill")
        .args(["-KILL", &process_id.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

fn request(request_id: &str) -> EngineCoreRequest {
    EngineCoreRequest {
        request_id: request_id.to_owned(),
        prompt_token_ids: vec![5].into(),
        ..EngineCoreRequest::default()
    }
}

#[tokio::test]
async fn a_core_is_started_used_and_shut_down() {
    let mut progress = Vec::new();
    let client = EngineCoreClient::launch(&options("serves"), EngineConfig::default(), |p| {
        progress.push(p)
    })
    .await
    .unwrap();
    assert_eq!(
        progress.iter().map(|p| p.done_bytes).collect::<Vec<_>>(),
        [50, 100]
    );
    client.add_request(request("a")).unwrap();
    assert_eq!(client.get_output().await, Ok(Some(step("a", 5))));
    assert_eq!(client.shutdown(10.0).await, Ok(()));
    // What came while it drained is still there.
    assert_eq!(client.get_output().await, Ok(Some(step("last", 9))));
    assert_eq!(client.get_output().await, Ok(None));
    wait_until_gone(client.process_id().unwrap()).await;
}

#[tokio::test]
async fn a_killed_core_is_reported_with_its_signal() {
    let client = launch("serves").await.unwrap();
    client.add_request(request("a")).unwrap();
    assert_eq!(client.get_output().await, Ok(Some(step("a", 5))));
    kill(client.process_id().unwrap());
    let error = client.get_output().await.unwrap_err();
    assert_eq!(error.exit_status.unwrap().signal(), Some(9));
    assert_eq!(
        error.to_string(),
        "the engine core died: it closed the connection without giving a reason \
         (signal: 9 (SIGKILL))"
    );
    let later = client.call_utility("later", &[]).await;
    assert_eq!(later, Err(EngineCoreClientError::EngineDead(error)));
}

#[tokio::test]
async fn a_dropped_client_leaves_no_process() {
    let client = launch("ignores-shutdown").await.unwrap();
    let process_id = client.process_id().unwrap();
    drop(client);
    wait_until_gone(process_id).await;
}

#[tokio::test]
async fn a_core_that_exits_at_once_is_reported() {
    let error = launch("exits").await.unwrap_err();
    assert!(matches!(
        error,
        EngineCoreStartupError::Exited { exit_status: Some(status) } if status == exit_status(3)
    ));
    assert_eq!(
        error.to_string(),
        "the engine core ended while it started (exit status: 3): what it wrote above may say why"
    );
}

#[tokio::test]
async fn a_core_that_exits_while_it_loads_is_reported() {
    let error = launch("exits-later").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the engine core ended while it started (exit status: 4): what it wrote above may say why"
    );
}

#[tokio::test]
async fn a_core_that_can_not_start_is_quoted() {
    let error = launch("refuses").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "engine core can't start: no model at BuiltIn"
    );
}

#[tokio::test]
async fn a_silent_core_is_given_up_and_ends() {
    let options = LaunchOptions {
        startup_timeout: Duration::from_millis(300),
        ..options("hangs")
    };
    let error = EngineCoreClient::launch(&options, EngineConfig::default(), |_| ())
        .await
        .unwrap_err();
    assert!(
        error.to_string().ends_with("no message within 300ms"),
        "{error}"
    );
}

#[tokio::test]
async fn a_failed_shutdown_is_an_error() {
    let client = launch("fails-shutdown").await.unwrap();
    let error = client.shutdown(10.0).await.unwrap_err();
    assert_eq!(error.exit_status, Some(exit_status(5)));
}

#[tokio::test]
async fn a_core_that_does_not_shut_down_is_killed() {
    let options = LaunchOptions {
        exit_grace: Duration::from_millis(50),
        ..options("ignores-shutdown")
    };
    let client = EngineCoreClient::launch(&options, EngineConfig::default(), |_| ())
        .await
        .unwrap();
    let error = client.shutdown(0.0).await.unwrap_err();
    assert_eq!(error.exit_status.unwrap().signal(), Some(9));
    assert!(
        error.reason.contains("did not shut down in time"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_or_broken_executable_is_named() {
    let launch = async |path: &Path| {
        let options = LaunchOptions {
            engine_core: Some(path.to_owned()),
            ..options("serves")
        };
        EngineCoreClient::launch(&options, EngineConfig::default(), |_| ())
            .await
            .unwrap_err()
            .to_string()
    };
    let missing = launch(Path::new("/nonexistent/core")).await;
    assert!(
        missing.starts_with("no engine core at /nonexistent/core: build it with"),
        "{missing}"
    );
    let folder = launch(Path::new("/")).await;
    assert!(folder.starts_with("no engine core at /: "), "{folder}");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let not_executable = launch(&manifest).await;
    let expected = format!("can't start {}: Permission denied", manifest.display());
    assert!(not_executable.starts_with(&expected), "{not_executable}");
}

#[tokio::test]
async fn a_core_whose_start_is_given_up_is_killed() {
    let process_id = EXECUTABLES.join("never-connects.process-id");
    let options = options("never-connects");
    let launch = EngineCoreClient::launch(&options, EngineConfig::default(), |_| ());
    let started = async {
        while !process_id.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        launched = launch => panic!("{launched:?}"),
        () = started => {}
    }
    let process_id = fs::read_to_string(process_id).unwrap();
    wait_until_gone(process_id.trim().parse().unwrap()).await;
}
