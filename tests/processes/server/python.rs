//! The official `openai` package against a real server, where it is installed. CI has no such step
//! yet, so there too a missing package only skips this.

use std::process::Command;

use super::support::Server;

#[test]
fn the_openai_package_works_unchanged() {
    let installed = Command::new("python3")
        .args(["-c", "import openai"])
        .output();
    if !installed.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: no python3 with the package openai on this machine");
    }
    let server = Server::start(&["--api-key", "secret"]);
    let script = integration_tests::workspace().join("tests/python/openai_client.py");
    let output = Command::new("python3")
        .arg(script)
        .arg(format!("http://{}/v1", server.address))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
