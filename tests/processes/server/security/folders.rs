//! A model's folder is data: findings 8, 12, 13 and, of templates, 7.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::memory::{MIB, Peak, allowance};
use crate::server::support::{Server, formwork};
use crate::support::Process;

/// Memory of one process that a start on the built-in model's folder may take, in bytes of data.
const MOST_DATA: u64 = 1 << 30;

/// A copy of the built-in model's folder.
fn model_folder(folder: &Path) -> PathBuf {
    let model = folder.join("model");
    std::fs::create_dir(&model).unwrap();
    let source = integration_tests::workspace().join("builtin-model/model");
    for entry in std::fs::read_dir(source).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), model.join(entry.file_name())).unwrap();
    }
    model
}

fn serve(model: &Path) -> Command {
    let mut command = formwork();
    command.arg("serve").arg(model);
    command.args(["--host", "127.0.0.1", "--port", "0", "--threads", "1"]);
    command.args(["--num-blocks-override", "512"]);
    command
}

/// Lets a process and its children have little memory.
fn limit_data(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    let limit = libc::rlimit {
        rlim_cur: MOST_DATA,
        rlim_max: MOST_DATA,
    };
    // SAFETY: setrlimit is async-signal-safe, and the limit is a valid reference.
    unsafe {
        command.pre_exec(
            move || match libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
}

/// How a server starts with this folder: a server, or exit code and log.
enum Started {
    Serves(Server),
    Ended(i32, String),
}

fn start(model: &Path) -> Started {
    let mut command = serve(model);
    limit_data(&mut command);
    let mut process = Process::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut line = String::new();
    let mut stdout = BufReader::new(process.0.stdout.take().unwrap());
    let stderr = process.0.stderr.take().unwrap();
    let log = std::thread::spawn(move || {
        let mut log = String::new();
        let _ = BufReader::new(stderr).read_to_string(&mut log);
        log
    });
    stdout.read_line(&mut line).unwrap();
    let address = line.trim_end().trim_start_matches("http://").to_owned();
    if address.is_empty() {
        let code = process
            .wait()
            .code()
            .expect("it ends by itself, and no signal ends it");
        return Started::Ended(code, log.join().unwrap());
    }
    Started::Serves(Server { process, address })
}

/// The log of a start that is refused.
fn refusal(model: &Path) -> String {
    match start(model) {
        Started::Ended(1, log) => log,
        Started::Ended(code, log) => panic!("ended with {code}: {log}"),
        Started::Serves(_) => panic!("it serves"),
    }
}

fn change_tokenizer(model: &Path, field: &str, value: Value) {
    let path = model.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    tokenizer[field] = value;
    std::fs::write(path, tokenizer.to_string()).unwrap();
}

/// Finding 8: a link to the process's environment gave out the API key.
#[test]
fn files_of_a_model_are_inside_its_folder() {
    for name in [
        "chat_template.jinja",
        "generation_config.json",
        "config.json",
        "tokenizer.json",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let model = model_folder(folder.path());
        let secret = folder.path().join("secret");
        let original = std::fs::read(model.join(name)).unwrap_or_else(|_| b"the secret".to_vec());
        std::fs::write(&secret, original).unwrap();
        let _ = std::fs::remove_file(model.join(name));
        std::os::unix::fs::symlink(&secret, model.join(name)).unwrap();
        let log = refusal(&model);
        assert!(log.contains(name), "{name}: {log}");
        assert!(!log.contains("the secret"), "{name}: {log}");
    }
    let folder = tempfile::tempdir().unwrap();
    let model = model_folder(folder.path());
    std::os::unix::fs::symlink("/proc/self/environ", model.join("chat_template.jinja")).unwrap();
    assert!(refusal(&model).contains("chat_template.jinja"));
}

/// Folders that the Hub's client makes hold links into `blobs` beside `snapshots`.
#[test]
fn links_of_the_hubs_cache_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let model = model_folder(folder.path());
    let repository = folder.path().join("models--a--b");
    let snapshot = repository.join("snapshots/0123");
    let blobs = repository.join("blobs");
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(&blobs).unwrap();
    for entry in std::fs::read_dir(&model).unwrap() {
        let entry = entry.unwrap();
        std::fs::rename(entry.path(), blobs.join(entry.file_name())).unwrap();
        let target = Path::new("../../blobs").join(entry.file_name());
        std::os::unix::fs::symlink(target, snapshot.join(entry.file_name())).unwrap();
    }
    match start(&snapshot) {
        Started::Serves(server) => assert!(server.is_healthy()),
        Started::Ended(code, log) => panic!("ended with {code}: {log}"),
    }
}

/// Finding 12: twenty bytes of a charsmap asked for 8.6 GB.
#[test]
fn a_tiny_charsmap_cannot_ask_for_gigabytes() {
    let folder = tempfile::tempdir().unwrap();
    let model = model_folder(folder.path());
    let charsmap = "/////wAAAAAAAAAAAAAAAAAAAAA=";
    let normalizer = json!({"type": "Precompiled", "precompiled_charsmap": charsmap});
    change_tokenizer(&model, "normalizer", normalizer);
    assert!(refusal(&model).contains("tokenizer.json"));
}

/// Finding 12: normalizers that make text longer, one after the other, came to 10 GB.
#[test]
fn normalizers_cannot_make_text_grow_without_bound() {
    let folder = tempfile::tempdir().unwrap();
    let model = model_folder(folder.path());
    let replace = json!({"type": "Replace", "pattern": {"String": "e"}, "content": "e".repeat(64)});
    let normalizers = json!({"type": "Sequence", "normalizers": vec![replace; 5]});
    change_tokenizer(&model, "normalizer", normalizers);
    match start(&model) {
        Started::Ended(code, log) => assert!(code == 1 && log.contains("tokenizer.json"), "{log}"),
        Started::Serves(server) => {
            let peak = Peak::begin(&server);
            let answer = server.post("/tokenize", &json!({"prompt": "e".repeat(10)}));
            assert!(peak.bytes() <= allowance(200), "{} MiB", peak.bytes() / MIB);
            assert_eq!(answer.status, 400);
        }
    }
}

/// Finding 13: shards without number were opened one by one.
#[test]
fn an_index_names_at_most_10_000_shards() {
    let folder = tempfile::tempdir().unwrap();
    let model = model_folder(folder.path());
    let shard = |i: usize| {
        (
            format!("tensor{i}"),
            json!(format!("model-{i}.safetensors")),
        )
    };
    let map: serde_json::Map<String, Value> = (0..10_001).map(shard).collect();
    std::fs::remove_file(model.join("model.safetensors")).unwrap();
    let index = json!({"metadata": {}, "weight_map": map});
    std::fs::write(
        model.join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
    let log = refusal(&model);
    assert!(log.contains("10000") || log.contains("10,000"), "{log}");
}

/// Finding 7: a template nested 100,000 deep overflowed the stack of both processes.
#[test]
fn a_models_template_cannot_overflow_the_stack() {
    for template in [
        "{% if 1 %}".repeat(100_000) + &"{% endif %}".repeat(100_000),
        format!("{{{{ {}1 }}}}", "-".repeat(6000)),
        format!("{{{{ {}1 }}}}", "-".repeat(200_000)),
        format!("{{{{ {}1{} }}}}", "[".repeat(100_000), "]".repeat(100_000)),
        "a".repeat((256 << 10) + 1),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let model = model_folder(folder.path());
        std::fs::write(model.join("chat_template.jinja"), &template).unwrap();
        let body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1});
        match start(&model) {
            Started::Ended(code, log) => assert_eq!(code, 1, "{log}"),
            Started::Serves(server) => {
                let answer = server.post("/v1/chat/completions", &body);
                assert!(answer.status == 400 || answer.status == 500, "{answer:?}");
                assert!(server.is_healthy());
            }
        }
    }
}
