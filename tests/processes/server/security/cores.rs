//! A core that several frontends share is no guest's to stop: finding 9. A core knows no key: 17.

use protocol::{EngineCoreMessage, EngineCoreRequestType, UtilityRequest, UtilityResult};

use super::memory::Peak;
use crate::server::support::{Server, chat, formwork};
use crate::support::{Client, Process, connect, greedy};

/// Calls a method of the core by name.
fn call(client: &mut Client, method: &str, args: &str) -> UtilityResult {
    client.send(&EngineCoreRequestType::Utility(UtilityRequest {
        client_index: 0,
        call_id: 7,
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

/// Finding 9: one frontend ended the sequences of another, whose `/health` stayed 200.
#[test]
fn a_guest_of_a_shared_core_cannot_pause_resume_or_reset_it() {
    let folder = tempfile::tempdir().unwrap();
    let address = folder.path().join("core.sock");
    let mut command = integration_tests::formwork_engine_core();
    command.arg("--listen").arg(&address).args([
        "--engine-config",
        r#"{"cache_config": {"num_blocks_override": 256}}"#,
    ]);
    let _core = Process::spawn(&mut command);
    let (mut victim, _) = Client::new(connect(&address), None);
    let (mut guest, _) = Client::new(connect(&address), None);
    victim.add("victim", greedy(500));
    victim.outputs();
    for (method, args) in [
        ("pause_scheduler", r#"["abort", true]"#),
        ("pause_scheduler", r#"["keep"]"#),
        ("pause_scheduler", r#"["wait"]"#),
        ("resume_scheduler", "[]"),
        ("reset_prefix_cache", "[]"),
    ] {
        let result = call(&mut guest, method, args);
        assert!(
            matches!(result, UtilityResult::Failure(_)),
            "{method} {args}: {result:?}"
        );
    }
    assert_eq!(
        call(&mut guest, "is_scheduler_paused", "[]"),
        UtilityResult::Success("false".to_owned())
    );
    guest.add("guest", greedy(4));
    assert_eq!(guest.finish("guest").0.len(), 4);
    assert!(!victim.finish("victim").0.is_empty());
}

/// Finding 17: the core had the frontend's environment, keys included.
#[test]
fn the_core_has_no_key_in_its_environment() {
    let mut command = formwork();
    command.args([
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--threads",
        "1",
    ]);
    command.env("FORMWORK_API_KEY", "the-tenants-key");
    let server = Server::spawn(&mut command);
    assert_eq!(
        server.post("/v1/chat/completions", &chat("Hi", 1)).status,
        401
    );
    let core = Peak::processes(&server)[0];
    let environment = std::fs::read(format!("/proc/{core}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains("the-tenants-key"), "{environment}");
    let command = std::fs::read(format!("/proc/{core}/cmdline")).unwrap();
    assert!(!String::from_utf8_lossy(&command).contains("the-tenants-key"));
}
