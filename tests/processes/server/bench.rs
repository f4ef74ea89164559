//! `formwork bench serve` against a real server.

use std::process::Output;

use serde_json::Value;

use super::support::{Server, formwork};

/// Runs it with these flags; what it printed, and the figures that it wrote.
fn bench(server: &Server, flags: &[&str]) -> (Output, Value) {
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result.json");
    // The server's host is the default.
    let (_, port) = server.address.rsplit_once(':').unwrap();
    let output = formwork()
        .args(["bench", "serve", "--port", port])
        .arg("--result-json")
        .arg(&result)
        .args(flags)
        .output()
        .unwrap();
    let written = std::fs::read(&result).unwrap_or_default();
    let written = serde_json::from_slice(&written).unwrap_or_default();
    (output, written)
}

#[test]
fn a_mixed_load_leaves_nothing_behind() {
    // Few blocks, so that all memory has been touched once the warm-up is over.
    let server = Server::start(&["--num-blocks-override", "512"]);
    let pid = server.process.0.id().to_string();
    let (output, result) = bench(
        &server,
        &[
            "--backend",
            "openai-chat",
            "--num-prompts",
            "120",
            "--max-concurrency",
            "16",
            "--num-warmups",
            "120",
            "--constrained-share",
            "0.5",
            "--disconnect-share",
            "0.1",
            "--random-output-len",
            "48",
            "--random-range-ratio",
            "0.5",
            "--ignore-eos",
            "--server-pid",
            &pid,
        ],
    );
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let number = |key: &str| {
        result[key]
            .as_f64()
            .unwrap_or_else(|| panic!("no {key}: {result}"))
    };
    assert_eq!(number("completed") + number("disconnected"), 120.0);
    assert_eq!(number("failed") + number("constrained_invalid"), 0.0);
    assert!(
        number("disconnected") > 0.0 && number("constrained") > 20.0,
        "{result}"
    );
    assert_eq!(number("constrained_cut_off"), 0.0);
    assert!(number("median_ttft_ms") > 0.0 && number("p99_itl_ms") >= number("median_itl_ms"));
    assert!(number("frontend_cpu_seconds") > 0.0);
    // Counted in hundredths of a second, of which so few messages may take none.
    assert!(number("core_ipc_cpu_seconds") >= 0.0);
    assert_eq!(result["at_rest"], true);
    for name in [
        "P99 TTFT (ms):",
        "Median ITL (ms):",
        "Output token throughput (tok/s):",
    ] {
        assert!(said.contains(name), "{said}");
    }
}

#[test]
fn prompts_and_constraints_of_a_file_are_sent_and_checked() {
    let examples = integration_tests::workspace().join("builtin-model/examples");
    let examples = examples.join("structured_outputs.jsonl");
    let flags = [
        "--backend",
        "openai-chat",
        "--num-prompts",
        "8",
        "--dataset-path",
    ];
    let flags = [&flags[..], &[examples.to_str().unwrap()]].concat();
    let (output, result) = bench(Server::shared(), &flags);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    // One of them has a stop string that is the end of its pattern.
    assert_eq!(result["completed"], 8);
    assert_eq!(result["constrained"], 8);
    // Only a duration without a load is refused by the program itself.
    let (output, _) = bench(Server::shared(), &["--duration", "1"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_server_that_refuses_is_a_failure_with_its_reason() {
    let (output, result) = bench(
        Server::shared(),
        &["--num-prompts", "3", "--model", "nobody"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(result["failed_by_status"]["404"], 3);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("3 x 404") && said.contains("nobody"),
        "{said}"
    );
    let flags = ["bench", "serve", "--base-url", "http://127.0.0.1:1"];
    let output = formwork().args(flags).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("can't connect to 127.0.0.1:1"), "{said}");
}
