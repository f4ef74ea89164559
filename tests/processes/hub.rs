//! Models by their names on the Hub, from a Hub on this machine.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use integration_tests::{formwork_batch, workspace};

use crate::fake_hub::{Access, ApiFault, COMMIT, FakeHub, Fault, etag};
use crate::gguf_files::built_in_model;
use crate::server::clients;
use crate::server::support::{Server, chat, children, eventually, formwork, signal};

const WEIGHTS: &str = "model.safetensors";

/// A Hub with the built-in model as `org/tiny`, and a home of its own.
struct Home {
    hub: FakeHub,
    folder: tempfile::TempDir,
    weights: Vec<u8>,
}

impl Home {
    fn new() -> Self {
        let hub = FakeHub::start();
        let model = workspace().join("builtin-model/model");
        let files: Vec<(String, Vec<u8>)> = fs::read_dir(&model)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                (name, fs::read(path).unwrap())
            })
            .collect();
        let mut files: Vec<(&str, &[u8])> = files
            .iter()
            .map(|(name, content)| (name.as_str(), content.as_slice()))
            .collect();
        files.push(("README.md", b"not needed"));
        hub.add("org/tiny", Access::Everybody, &files);
        hub.add("org/gated", Access::Gated("secret"), &files);
        Self {
            hub,
            folder: tempfile::tempdir().unwrap(),
            weights: fs::read(model.join(WEIGHTS)).unwrap(),
        }
    }

    /// A command that finds this Hub and this home, and nothing of the outer environment's.
    fn with_hub(&self, mut command: Command) -> Command {
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy().to_lowercase();
            if text.starts_with("hf_") || text.contains("proxy") || text.starts_with("hugging") {
                command.env_remove(name);
            }
        }
        command
            .env("HF_ENDPOINT", &self.hub.endpoint)
            .env("HF_HOME", self.folder.path())
            .env("HOME", self.folder.path());
        command
    }

    fn formwork(&self, arguments: &[&str]) -> Command {
        let mut command = self.with_hub(formwork());
        command.args(arguments);
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.formwork(arguments).output().unwrap()
    }

    /// A server of `model`, and what it said on standard error until it was ready.
    fn serve(&self, model: &str, variables: &[(&str, &str)]) -> (Server, String) {
        let log = self.folder.path().join("stderr");
        let mut command = self.formwork(&["serve", model, "--port", "0", "--threads", "1"]);
        command
            .envs(variables.iter().copied())
            .stderr(File::create(&log).unwrap());
        let server = Server::spawn(&mut command);
        (server, fs::read_to_string(log).unwrap())
    }

    fn repository(&self) -> PathBuf {
        self.folder.path().join("hub/models--org--tiny")
    }

    fn snapshot(&self) -> PathBuf {
        self.repository().join("snapshots").join(COMMIT)
    }

    /// The weights, as far as they have arrived.
    fn part(&self) -> PathBuf {
        let name = format!("{}.incomplete", etag(WEIGHTS, &self.weights));
        self.repository().join("blobs").join(name)
    }

    /// Waits until a download holds at this many bytes.
    fn wait_for_part(&self, bytes: u64) {
        eventually("the part grows", || {
            fs::metadata(self.part()).is_ok_and(|metadata| metadata.len() == bytes)
        });
    }
}

fn answer(server: &Server) -> String {
    let answer = server.post("/v1/chat/completions", &chat("What is Formwork?", 16));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    answer["choices"][0]["message"]["content"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn stdout(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    std::str::from_utf8(&output.stdout).unwrap()
}

fn has_ended(process: i32) -> bool {
    let stat = format!("/proc/{process}/stat");
    fs::read_to_string(stat).map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn a_name_is_downloaded_served_and_found_again_without_a_network() {
    let home = Home::new();
    let (server, told) = home.serve("org/tiny", &[]);
    assert!(told.contains("the frontend is confined: "), "{told}");
    assert!(!told.contains("WARN"), "{told}");
    let models = server.get("/v1/models").json();
    assert_eq!(models["data"][0]["id"], "org/tiny");
    let expected = answer(Server::shared());
    assert_eq!(answer(&server), expected);
    drop(server);
    assert!(!home.snapshot().join("README.md").exists());
    home.hub.take_seen();
    let (server, told) = home.serve("org/tiny", &[("HF_HUB_OFFLINE", "1")]);
    assert_eq!(home.hub.take_seen(), []);
    assert_eq!(answer(&server), expected);
    assert!(!told.contains("WARN"), "{told}");
    drop(server);
    home.hub.go_down();
    let (server, told) = home.serve(&format!("org/tiny@{COMMIT}"), &[]);
    assert_eq!(answer(&server), expected);
    assert!(told.contains("is taken from the cache"), "{told}");
}

#[test]
fn batch_and_chat_take_names() {
    let home = Home::new();
    let mut batch = home.with_hub(formwork_batch());
    batch.args(["--model", "org/tiny", "--threads", "1"]);
    let output = batch.args(["--prompt", "Hi"]).output().unwrap();
    assert!(!stdout(&output).trim().is_empty(), "{output:?}");
    let input = home.folder.path().join("in.jsonl");
    let line = r#"{"custom_id": "1", "method": "POST", "url": "/v1/completions",
        "body": {"model": "org/tiny", "prompt": "Hi", "max_tokens": 2}}"#;
    fs::write(&input, line.replace('\n', " ")).unwrap();
    let mut batch = home.with_hub(formwork_batch());
    batch.args(["--model", "org/tiny", "--threads", "1", "-o", "-", "-i"]);
    let output = batch.arg(&input).output().unwrap();
    let result: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(result["response"]["body"]["model"], "org/tiny", "{result}");
    let flags = ["--choice", "yes", "--choice", "no", "--", "--threads", "1"];
    let mut command = home.formwork(&["chat", "org/tiny"]);
    let mut chat = command
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    chat.stdin.take().unwrap().write_all(b"Hi").unwrap();
    let output = chat.wait_with_output().unwrap();
    assert!(["yes\n", "no\n"].contains(&stdout(&output)), "{output:?}");
}

#[test]
fn a_gguf_file_of_a_repository_is_served() {
    let home = Home::new();
    let file = home.folder.path().join("built-in.gguf");
    built_in_model().write(&file).unwrap();
    let content = fs::read(&file).unwrap();
    let files: [(&str, &[u8]); 2] = [("q/tiny.gguf", &content), ("other.gguf", b"")];
    home.hub.add("org/tiny-GGUF", Access::Everybody, &files);
    let name = "org/tiny-GGUF:q/tiny.gguf";
    let (server, _) = home.serve(name, &[]);
    assert_eq!(server.get("/v1/models").json()["data"][0]["id"], name);
    assert!(!answer(&server).is_empty());
}

#[test]
fn models_are_pulled_listed_and_removed() {
    let home = Home::new();
    let empty = home.output(&["list"]);
    assert_eq!(stdout(&empty), "");
    assert!(String::from_utf8_lossy(&empty.stderr).starts_with("no models in "));
    let pulled = home.output(&["pull", "org/tiny"]);
    let path = home.snapshot().display().to_string();
    assert_eq!(stdout(&pulled), format!("{path}\n"));
    let listed = home.output(&["list"]);
    let listed: Vec<&str> = stdout(&listed).lines().collect();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(listed[0].starts_with("NAME "), "{listed:?}");
    assert!(
        listed[1].starts_with("org/tiny  main (01234567)  "),
        "{listed:?}"
    );
    assert!(listed[1].ends_with(&format!(" MiB  {path}")), "{listed:?}");
    for unknown in ["org/tiny@dev", "org/tiny:Q8_0"] {
        let refused = home.output(&["remove", unknown]);
        assert_eq!(refused.status.code(), Some(1));
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(
            said.contains(&format!("{unknown} is not in the cache ")),
            "{said}"
        );
    }
    assert!(home.repository().exists());
    // The only revision is all that there is.
    let removed = home.output(&["remove", "org/tiny@main"]);
    let said = stdout(&removed);
    assert!(
        said.starts_with("removed org/tiny@main: ") && said.ends_with(" MiB freed\n"),
        "{said}"
    );
    assert!(!home.repository().exists());
    let again = home.output(&["remove", "org/tiny"]);
    assert_eq!(again.status.code(), Some(1));
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(said.contains("org/tiny is not in the cache "), "{said}");
    let no_name = home.output(&["pull", "tiny"]);
    assert_eq!(no_name.status.code(), Some(2));
}

#[test]
fn an_interrupt_leaves_what_has_arrived_and_the_next_pull_goes_on() {
    let home = Home::new();
    home.hub.set_fault(WEIGHTS, Some(Fault::StallAfter(1000)));
    let mut pull: Child = home
        .formwork(&["pull", "org/tiny"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    home.wait_for_part(1000);
    signal(pull.id().try_into().unwrap(), libc::SIGINT);
    assert!(!pull.wait().unwrap().success());
    // On a busy machine the download may have gone on by itself before it was interrupted.
    let arrived = fs::metadata(home.part()).unwrap().len();
    let listed = home.output(&["list"]);
    let listed: Vec<&str> = stdout(&listed).lines().collect();
    assert!(listed[1].contains("  01234567, incomplete  "), "{listed:?}");
    assert!(listed[2].contains("  unfinished downloads  "), "{listed:?}");
    home.hub.set_fault(WEIGHTS, None);
    home.hub.take_seen();
    stdout(&home.output(&["pull", "org/tiny"]));
    let ranges: Vec<Option<String>> = home
        .hub
        .take_seen()
        .into_iter()
        .filter(|seen| seen.is_cdn)
        .map(|seen| seen.range)
        .collect();
    assert_eq!(ranges, [Some(format!("bytes={arrived}-"))]);
    assert_eq!(
        fs::read(home.snapshot().join(WEIGHTS)).unwrap(),
        home.weights
    );
}

#[test]
fn a_full_disk_is_told_and_the_next_pull_goes_on() {
    let home = Home::new();
    // The limit of a file's size stands for that of a disk: the system refuses to write more.
    let limited = "trap '' XFSZ; ulimit -f 2000; exec \"$0\" pull org/tiny";
    let program = formwork().get_program().to_owned();
    let mut shell = home.with_hub(Command::new("sh"));
    let output = shell.args(["-c", limited]).arg(program).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let why = "error: no room for model.safetensors of org/tiny: ";
    assert!(said.contains(why) && said.contains("set HF_HOME"), "{said}");
    let begun = fs::metadata(home.part()).unwrap().len();
    assert!(begun > 0 && begun < home.weights.len() as u64);
    home.hub.take_seen();
    stdout(&home.output(&["pull", "org/tiny"]));
    let seen = home.hub.take_seen();
    let content = seen.iter().find(|seen| seen.is_cdn).unwrap();
    assert_eq!(content.range, Some(format!("bytes={begun}-")));
    assert_eq!(
        fs::read(home.snapshot().join(WEIGHTS)).unwrap(),
        home.weights
    );
}

#[test]
fn a_download_ends_with_the_chat_that_wants_it() {
    let home = Home::new();
    home.hub.set_fault(WEIGHTS, Some(Fault::StallAfter(1000)));
    let mut command = home.formwork(&["chat", "org/tiny"]);
    let mut chat = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    home.wait_for_part(1000);
    let server = children(chat.id())[0];
    chat.kill().unwrap();
    chat.wait().unwrap();
    eventually("the server has ended", || has_ended(server));
    assert_eq!(fs::metadata(home.part()).unwrap().len(), 1000);
}

#[test]
fn a_model_in_the_cache_is_served_whatever_the_hub_answers() {
    let home = Home::new();
    stdout(&home.output(&["pull", "org/tiny"]));
    let moved = home.folder.path().join("moved/models--org--tiny");
    fs::create_dir_all(moved.parent().unwrap()).unwrap();
    fs::rename(home.repository(), &moved).unwrap();
    symlink(&moved, home.repository()).unwrap();
    let refused: &[(&str, &str)] = &[(
        "X-Error-Message",
        "Invalid credentials in Authorization header",
    )];
    home.hub.set_api_fault(Some(ApiFault::Status(401, refused)));
    let (server, told) = home.serve("hf.co/org/tiny", &[("HF_TOKEN", "expired")]);
    assert!(told.contains("is taken from the cache"), "{told}");
    assert!(
        told.contains("doesn't know the token of HF_TOKEN"),
        "{told}"
    );
    assert!(!told.contains("expired"), "{told}");
    assert_eq!(server.get("/v1/models").json()["data"][0]["id"], "org/tiny");
    drop(server);
    let removed = home.output(&["remove", "org/tiny"]);
    let expected = format!(
        "removed org/tiny: the link alone; its files stay in {}\n",
        moved.canonicalize().unwrap().display()
    );
    assert_eq!(stdout(&removed), expected);
    assert!(!home.repository().exists());
    let locks: Vec<_> = fs::read_dir(home.folder.path().join("hub/.locks/models--org--tiny"))
        .unwrap()
        .collect();
    let lock = File::open(locks[0].as_ref().unwrap().path()).unwrap();
    lock.lock().unwrap();
    symlink(&moved, home.repository()).unwrap();
    let refused = home.output(&["remove", "org/tiny"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("is being downloaded by another process"),
        "{said}"
    );
}

#[test]
fn what_can_not_be_had_says_what_to_do() {
    let home = Home::new();
    for (model, why) in [
        (
            "org/gated",
            "error: org/gated is gated: accept its licence at https://huggingface.co/org/gated, then set HF_TOKEN",
        ),
        (
            "org/nothing",
            "error: no folder or file is called org/nothing, and the Hub at ",
        ),
        (
            "a/b/c",
            "error: no model at a/b/c: give a folder, a GGUF file, or a name on the Hub",
        ),
    ] {
        let output = home.output(&["serve", model, "--port", "0"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why), "{said}");
        assert_eq!(said.matches("error: ").count(), 1, "{said}");
        let mut batch = home.with_hub(formwork_batch());
        let output = batch
            .args(["--model", model, "--prompt", "Hi"])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why), "{said}");
    }
    // With the token it can be, and no log has it.
    let (_server, told) = home.serve("org/gated", &[("HF_TOKEN", "secret")]);
    assert!(!told.contains("secret"), "{told}");
}

#[test]
fn a_cache_made_by_hand_is_served() {
    let home = Home::new();
    let model = workspace().join("builtin-model/model");
    fs::create_dir_all(home.snapshot()).unwrap();
    for folder in ["blobs", "refs"] {
        fs::create_dir_all(home.repository().join(folder)).unwrap();
    }
    fs::write(home.repository().join("refs/main"), COMMIT).unwrap();
    for entry in fs::read_dir(model).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let content = fs::read(&path).unwrap();
        let blob = etag(name, &content);
        fs::write(home.repository().join("blobs").join(&blob), content).unwrap();
        symlink(
            Path::new("../../blobs").join(blob),
            home.snapshot().join(name),
        )
        .unwrap();
    }
    let (server, _) = home.serve("org/tiny", &[("HF_HUB_OFFLINE", "1")]);
    assert_eq!(answer(&server), answer(Server::shared()));
    drop(server);
    assert_eq!(home.hub.take_seen(), []);
    // Nor is a file downloaded again where there is a network.
    let pulled = home.output(&["pull", "org/tiny"]);
    assert_eq!(
        stdout(&pulled).trim_end(),
        home.snapshot().display().to_string()
    );
    assert_eq!(home.hub.take_seen().len(), 1);
}

/// Runs a script with `huggingface_hub`, in this home.
fn run_python(home: &Home, python: &Path, script: &str, variables: &[(&str, &str)]) -> String {
    let mut command = home.with_hub(Command::new(python));
    command.envs([
        ("HF_HUB_DISABLE_XET", "1"),
        ("HF_HUB_DISABLE_TELEMETRY", "1"),
    ]);
    let output = command
        .envs(variables.iter().copied())
        .args(["-c", script])
        .output()
        .unwrap();
    stdout(&output).trim_end().to_owned()
}

#[test]
fn huggingface_hub_and_formwork_find_each_others_models() {
    let Some(python) = clients::python("huggingface_hub") else {
        return;
    };
    let python = Path::new(&python);
    let download = "import huggingface_hub as h; print(h.snapshot_download('org/tiny'))";
    let theirs = Home::new();
    let path = run_python(&theirs, python, download, &[]);
    assert_eq!(path, theirs.snapshot().display().to_string());
    let (server, _) = theirs.serve("org/tiny", &[("HF_HUB_OFFLINE", "1")]);
    assert_eq!(answer(&server), answer(Server::shared()));
    drop(server);
    theirs.hub.take_seen();
    stdout(&theirs.output(&["pull", "org/tiny"]));
    assert_eq!(theirs.hub.take_seen().len(), 1);
    let ours = Home::new();
    let path = home_path(&ours.output(&["pull", "org/tiny"]));
    let file =
        "import huggingface_hub as h; print(h.hf_hub_download('org/tiny', 'model.safetensors'))";
    let found = run_python(&ours, python, file, &[("HF_HUB_OFFLINE", "1")]);
    assert_eq!(found, format!("{path}/{WEIGHTS}"));
    let scan = "import huggingface_hub as h; c = h.scan_cache_dir(); r, = c.repos; \
                print(r.repo_id, sorted(r.refs), len(c.warnings), r.nb_files)";
    assert_eq!(
        run_python(&ours, python, scan, &[]),
        "org/tiny ['main'] 0 5"
    );
}

fn home_path(output: &Output) -> String {
    stdout(output).trim_end().to_owned()
}
