//! What users have: the official `openai` package, what is built on it, and `curl`.
//!
//! `PYTHON_CLIENTS` names a Python that has all packages of `tests/python/requirements.txt`, and `LLAMA_INDEX_CLIENTS`
//! a folder with those of `llama_index_requirements.txt`; `.ci/run` makes both. Without them a test is skipped where
//! `python3` lacks its packages.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

use super::support::{Server, builtin_model_with_context};

/// The server that all these tests talk to. It ends with the test program.
fn base_url() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = SERVER.get_or_init(|| Server::that_stays(&["--api-key", "secret"]));
    format!("http://{}/v1", server.address)
}

fn says(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A Python with these packages; `None`, with a note, where there is none and need not be.
pub(crate) fn python(packages: &str) -> Option<OsString> {
    let named = std::env::var_os("PYTHON_CLIENTS");
    let python = named.clone().unwrap_or_else(|| "python3".into());
    has_packages(python, packages, None, named)
}

/// The Python, if it has these packages, some of them perhaps in a folder of their own. `named` is the variable's value
/// that promises them.
fn has_packages(
    python: OsString,
    packages: &str,
    folder: Option<&OsStr>,
    named: Option<OsString>,
) -> Option<OsString> {
    let mut import = Command::new(&python);
    import.args(["-c", &format!("import {packages}")]);
    // Else it asks the network for prices.
    import.env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    if let Some(folder) = folder {
        import.env("PYTHONPATH", folder);
    }
    let imported = import.output();
    match (imported, named) {
        (Ok(output), _) if output.status.success() => Some(python),
        (imported, Some(named)) => panic!("{named:?} lacks one of {packages}: {imported:?}"),
        (_, None) => {
            eprintln!("skipped: no python3 with {packages} on this machine");
            None
        }
    }
}

/// Runs a script of `tests/python` against a server.
fn run(script: &str, packages: &str, arguments: &[&str]) {
    run_at(&base_url(), script, packages, arguments);
}

/// Runs it against the server at a base URL.
pub(crate) fn run_at(base_url: &str, script: &str, packages: &str, arguments: &[&str]) {
    let Some(python) = python(packages) else {
        return;
    };
    let folder = integration_tests::workspace().join("tests/python");
    let output = Command::new(python)
        .arg(folder.join(script))
        .arg(base_url)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", says(&output));
}

#[test]
fn the_openai_package_works_unchanged() {
    run("openai_client.py", "openai, pydantic", &[]);
}

#[test]
fn the_responses_of_the_openai_package_work_unchanged() {
    run("responses_client.py", "openai, pydantic", &[]);
}

#[test]
fn the_decisions_of_the_openai_package_work_unchanged() {
    run("decisions_client.py", "openai.resources.decisions", &[]);
}

#[test]
fn the_anthropic_package_works_unchanged() {
    run("anthropic_client.py", "anthropic, pydantic", &[]);
}

/// A folder with the scripts and the packages of `tests/javascript`; `None`, with a note, where `npm` can't install
/// them, which takes some seconds.
fn javascript() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<TempDir>> = OnceLock::new();
    let installed = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let sources = integration_tests::workspace().join("tests/javascript");
        for file in std::fs::read_dir(sources).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
        let npm = Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--ignore-scripts"])
            .args(["--fetch-retries", "1", "--fetch-timeout", "30000"])
            .current_dir(folder.path())
            .output();
        match npm {
            Ok(output) if output.status.success() => Some(folder),
            other => {
                eprintln!("skipped: no npm, or no registry for it: {other:?}");
                None
            }
        }
    });
    installed.as_ref().map(TempDir::path)
}

/// Runs a script of `tests/javascript` against a server.
fn run_javascript(script: &str) {
    let Some(folder) = javascript() else {
        return;
    };
    let output = Command::new("node")
        .args([script, &base_url()])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", says(&output));
}

#[test]
fn the_anthropic_package_of_javascript_works_unchanged() {
    run_javascript("anthropic_client.mjs");
}

#[test]
fn the_openai_package_of_javascript_works_unchanged() {
    run_javascript("openai_client.mjs");
}

/// LlamaIndex wants an older `openai` than the other packages.
#[test]
fn llama_index_works_unchanged() {
    let folder = std::env::var_os("LLAMA_INDEX_CLIENTS");
    let python = std::env::var_os("PYTHON_CLIENTS").unwrap_or_else(|| "python3".into());
    let packages = "llama_index.llms.openai_like, pydantic";
    let Some(python) = has_packages(python, packages, folder.as_deref(), folder.clone()) else {
        return;
    };
    let script = integration_tests::workspace().join("tests/python/llama_index_client.py");
    let mut command = Command::new(python);
    command.arg(script).arg(base_url());
    if let Some(folder) = folder {
        command.env("PYTHONPATH", folder);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", says(&output));
}

#[test]
fn the_examples_of_vllms_documentation_work_unchanged() {
    let grammar =
        integration_tests::workspace().join("structured-output/tests/grammars/select.lark");
    let grammar = grammar.to_str().unwrap();
    run("vllm_examples.py", "openai, pydantic", &[grammar]);
}

#[test]
fn the_instructor_package_works_unchanged() {
    run("instructor_client.py", "instructor, openai, pydantic", &[]);
}

#[test]
fn the_langchain_openai_package_works_unchanged() {
    let packages = "langchain_openai, openai, pydantic";
    run("langchain_client.py", packages, &[]);
}

#[test]
fn the_litellm_package_works_unchanged() {
    run("litellm_client.py", "litellm, openai, pydantic", &[]);
}

/// The built-in model with a context of 32K tokens, for clients that send many of their own. So far beyond
/// what it was made for it answers nonsense: a test holds it to a schema, and always takes the likeliest token, or now
/// and then it calls tools until the context is full.
fn with_a_longer_context() -> (TempDir, Server) {
    let folder = builtin_model_with_context(32_768);
    let named = "--served-model-name=formwork-builtin";
    let model = folder.path().to_str().unwrap();
    let greedy = r#"--override-generation-config={"temperature": 0}"#;
    let server = Server::start(&[model, "--api-key", "secret", named, greedy]);
    (folder, server)
}

#[test]
fn codex_works_unchanged() {
    let (_model, server) = with_a_longer_context();
    let base_url = format!("http://{}/v1", server.address);
    run_at(&base_url, "codex_client.py", "codex_cli_bin", &[]);
}

#[test]
fn open_webui_works_unchanged() {
    let (_model, server) = with_a_longer_context();
    let base_url = format!("http://{}/v1", server.address);
    let packages = "open_webui, aiosqlite, fastapi, jsonschema, sqlalchemy";
    run_at(&base_url, "open_webui_client.py", packages, &[]);
}

#[test]
fn curl_works_as_in_the_documentation() {
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--no-buffer"])
            .args(["-H", "Authorization: Bearer secret"])
            .args(arguments)
            .output();
        match output {
            Ok(output) => Some(output),
            Err(_) => {
                assert!(
                    std::env::var("CI").as_deref() != Ok("true"),
                    "CI must run every case"
                );
                eprintln!("skipped: no curl on this machine");
                None
            }
        }
    };
    let chat = format!("{}/chat/completions", base_url());
    let json = "Content-Type: application/json";
    let question = r#""messages": [{"role": "user", "content": "What is Formwork?"}]"#;
    let ask = |body: String| curl(&[&chat, "-H", json, "-d", &body]);
    let Some(whole) = ask(format!("{{{question}, \"max_tokens\": 8}}")) else {
        return;
    };
    let answer: serde_json::Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert!(
        answer["choices"][0]["message"]["content"].is_string(),
        "{answer}"
    );
    let choice = r#""guided_choice": ["yes", "no"], "stream": true"#;
    let streamed = says(&ask(format!("{{{question}, {choice}}}")).unwrap());
    assert!(
        streamed.starts_with("data: {") && streamed.ends_with("data: [DONE]\n\n"),
        "{streamed}"
    );
    // Without a header for the type, as `curl -d` sends it, it is a form.
    let refused = curl(&["--write-out", "%{http_code}", &chat, "-d", "{}"]).unwrap();
    assert!(says(&refused).ends_with("415"), "{}", says(&refused));
}
