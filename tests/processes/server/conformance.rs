//! `schemathesis` against `/openapi.json`: no 5xx, and no answer of another shape than documented.
//!
//! Runs where the program is installed, or where `SCHEMATHESIS` names it.

use std::process::Command;

use super::support::Server;

#[test]
fn answers_are_as_documented() {
    let named = std::env::var_os("SCHEMATHESIS");
    let program = named.clone().unwrap_or_else(|| "schemathesis".into());
    if Command::new(&program).arg("--version").output().is_err() {
        assert!(named.is_none(), "SCHEMATHESIS names no program");
        return eprintln!("skipped: no schemathesis on this machine");
    }
    let server = Server::start(&["--max-model-len", "128", "--enable-server-load-tracking"]);
    let output = Command::new(&program)
        .args(["run", &format!("http://{}/openapi.json", server.address)])
        .args([
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,\
             response_schema_conformance",
        ])
        .args(["--max-examples", "40", "--seed", "1", "--no-color"])
        // How fast it makes its requests is the machine's affair.
        .args(["--suppress-health-check", "too_slow"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(server.is_healthy());
}
