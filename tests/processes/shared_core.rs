//! A core that was started by hand and serves several frontends.

use std::path::Path;
use std::process::Stdio;

use protocol::{
    EngineCoreMessage, EngineCoreRequestType, FinishReason, UtilityRequest, UtilityResult,
};

use crate::support::{Client, Process, connect, greedy};

fn listen(address: &Path) -> Process {
    let mut command = integration_tests::formwork_engine_core();
    command.arg("--listen").arg(address);
    command.args([
        "--engine-config",
        r#"{"cache_config": {"num_blocks_override": 256}}"#,
    ]);
    Process::spawn(&mut command)
}

#[test]
fn it_serves_several_clients_and_outlives_them() {
    let folder = tempfile::tempdir().unwrap();
    let address = folder.path().join("core.sock");
    let mut process = listen(&address);
    let (mut first, ready) = Client::new(connect(&address), None);
    let (mut second, second_ready) = Client::new(connect(&address), None);
    assert_ne!(ready.client_index, second_ready.client_index);

    first.add("first", greedy(1000));
    first.outputs();
    // Neither another's request nor the core is theirs to end.
    second.send(&EngineCoreRequestType::Abort(vec!["first".to_owned()]));
    second.send(&EngineCoreRequestType::Shutdown { drain_seconds: 0.0 });
    second.add("second", greedy(4));
    assert_eq!(second.finish("second").0.len(), 4);
    first.outputs();
    drop(second);
    first.add("again", greedy(4));
    assert_eq!(first.finish("again").1, FinishReason::Length);

    // Its requests end with it: every block is free again.
    drop(first);
    let (mut third, _) = Client::new(connect(&address), None);
    while !others_hold_no_block(&mut third) {}
    third.add("third", greedy(4));
    assert_eq!(third.finish("third").0.len(), 4);

    process.signal(libc::SIGTERM);
    assert!(process.wait().success());
    assert!(!address.exists(), "the socket file is removed");
}

/// True where no request but this client's, which is over, holds a block.
fn others_hold_no_block(client: &mut Client) -> bool {
    client.add("probe", greedy(2));
    loop {
        let Some(EngineCoreMessage::Outputs(step)) = client.message() else {
            panic!("the core is gone");
        };
        let is_over = step
            .outputs
            .iter()
            .any(|output| output.request_id == "probe" && output.finish_reason.is_some());
        if let Some(stats) = step.scheduler_stats.filter(|_| is_over) {
            return stats.num_running_reqs == 0 && stats.kv_cache_usage == 0.0;
        }
    }
}

/// Calls a method of the core.
fn call(client: &mut Client, method: &str, args: &str) -> UtilityResult {
    client.send(&EngineCoreRequestType::Utility(UtilityRequest {
        client_index: 0,
        call_id: 1,
        method: method.to_owned(),
        args: args.to_owned(),
    }));
    loop {
        let Some(EngineCoreMessage::Outputs(outputs)) = client.message() else {
            panic!("the core is gone");
        };
        if let Some(output) = outputs.utility_output {
            return output.result;
        }
    }
}

#[test]
fn a_guest_cannot_pause_resume_or_reset_it() {
    let folder = tempfile::tempdir().unwrap();
    let address = folder.path().join("core.sock");
    let _process = listen(&address);
    let (mut first, _) = Client::new(connect(&address), None);
    let (mut second, _) = Client::new(connect(&address), None);
    first.add("first", greedy(200));
    first.outputs();
    for (method, args) in [
        ("pause_scheduler", "[\"abort\", true]"),
        ("pause_scheduler", "[\"keep\"]"),
        ("pause_scheduler", "[\"wait\"]"),
        ("resume_scheduler", "[]"),
        ("reset_prefix_cache", "[]"),
    ] {
        let UtilityResult::Failure(reason) = call(&mut second, method, args) else {
            panic!("{method}{args} was executed");
        };
        assert_eq!(
            reason,
            format!(
                "Call to {method} method failed: this core is shared (--listen), and it would touch \
                 the requests of other frontends; only a frontend that started its core may call it"
            )
        );
    }
    // It may look, and the other's request goes on to its end.
    let success = |json: &str| UtilityResult::Success(json.to_owned());
    assert_eq!(
        call(&mut second, "is_scheduler_paused", "[]"),
        success("false")
    );
    assert_eq!(first.finish("first").1, FinishReason::Length);
}

#[test]
fn an_address_in_use_is_named_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let address = folder.path().join("core.sock");
    let _process = listen(&address);
    let (mut client, _) = Client::new(connect(&address), None);
    let mut command = integration_tests::formwork_engine_core();
    let output = command.arg("--listen").arg(&address).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(
        log.contains(&address.display().to_string()) && log.contains("in use"),
        "{log}"
    );
    client.add("still served", greedy(2));
    assert_eq!(client.finish("still served").0.len(), 2);
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for arguments in [
        &["--no-such-flag"][..],
        &[],
        &["--listen", "x", "--connect", "y"],
        &["--connect", "x", "--model", "y"],
        &["--listen", "x", "--engine-config", "{"],
        &[
            "--listen",
            "x",
            "--engine-config",
            r#"{"no_such_field": 1}"#,
        ],
    ] {
        let mut command = integration_tests::formwork_engine_core();
        let status = command
            .args(arguments)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(2), "{arguments:?}");
    }
    assert!(!Path::new("x").exists());
}
