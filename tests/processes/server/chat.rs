//! `formwork chat`, with pipes and at a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::support::{Server, eventually, formwork, signal, terminal};

/// A chat with the server that all tests share.
fn chat(flags: &[&str]) -> Command {
    let mut command = formwork();
    command.args(["chat", "--url", &Server::shared().address]);
    command.args(["--temperature", "0"]).args(flags);
    command
}

/// Runs it with this standard input.
fn feed(command: &mut Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end before it has read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    std::str::from_utf8(&output.stdout).unwrap()
}

#[test]
fn a_pipe_is_one_message_and_the_answer_alone_comes_out() {
    let whole = feed(&mut chat(&["--max-tokens", "16"]), "What is\nFormwork?\n");
    let answer = Server::shared().post(
        "/v1/chat/completions",
        &super::support::chat("What is\nFormwork?\n", 16),
    );
    let answer = &answer.json()["choices"][0];
    let text = answer["message"]["content"].as_str().unwrap();
    assert_eq!(
        stdout(&whole).trim_end_matches('\n'),
        text.trim_end_matches('\n')
    );
    let note = String::from_utf8_lossy(&whole.stderr);
    assert_eq!(
        note.contains("length"),
        answer["finish_reason"] == "length",
        "{note}"
    );
}

#[test]
fn answers_are_held_to_the_constraint() {
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("schema.json");
    let text = r#"{"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}},
        "required": ["a"], "additionalProperties": false}"#;
    std::fs::write(&schema, text).unwrap();
    let grammar = folder.path().join("grammar.lark");
    std::fs::write(&grammar, "start: \"x\"~3 /[yz]/\n").unwrap();
    let ask = |flags: &[&str]| stdout(&feed(&mut chat(flags), "Hi")).trim_end().to_owned();
    let json: Value =
        serde_json::from_str(&ask(&["--json-schema", schema.to_str().unwrap()])).unwrap();
    assert!(json["a"].as_f64().unwrap() <= 9.0, "{json}");
    assert!(["xxxy", "xxxz"].contains(&&*ask(&["--grammar", grammar.to_str().unwrap()])));
    assert!(["yes", "no"].contains(&&*ask(&["--choice", "yes", "--choice", "no"])));
    let number = ask(&["--regex", "[0-9]{3}"]);
    assert!(
        number.len() == 3 && number.parse::<u32>().is_ok(),
        "{number}"
    );
}

#[test]
fn lines_are_one_conversation_and_a_new_one_forgets() {
    let talk = |input: &str| {
        let output = feed(&mut chat(&["--lines", "--regex", "[a-z]{8}"]), input);
        let lines: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
        assert!(lines.iter().all(|line| line.len() == 8), "{lines:?}");
        lines
    };
    let again = talk("My name is Ada.\n/clear\nMy name is Ada.\n");
    assert!(again.len() == 2 && again[0] == again[1], "{again:?}");
    // The second answer knows of the first message: it is what a request with both gets.
    let two = talk("My name is Ada.\n\nWho am I?\n");
    let mut body = super::support::chat("My name is Ada.", 100);
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(serde_json::json!({"role": "assistant", "content": two[0]}));
    messages.push(serde_json::json!({"role": "user", "content": "Who am I?"}));
    body["structured_outputs"] = serde_json::json!({"regex": "[a-z]{8}"});
    let answer = Server::shared().post("/v1/chat/completions", &body);
    assert_eq!(
        answer.json()["choices"][0]["message"]["content"],
        two[1].as_str()
    );
}

#[test]
fn what_goes_wrong_has_an_exit_code_and_a_reason() {
    let says = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = feed(&mut chat(&["--regex", "("]), "Hi");
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        says(&refused).contains("regex, line 1"),
        "{}",
        says(&refused)
    );
    let nothing = feed(&mut chat(&[]), " \n");
    assert_eq!(nothing.status.code(), Some(1));
    let nobody = feed(
        formwork().args(["chat", "--url", "http://127.0.0.1:1"]),
        "Hi",
    );
    assert_eq!(nobody.status.code(), Some(1));
    assert!(says(&nobody).contains("can't connect"), "{}", says(&nobody));
    let two = feed(&mut chat(&["--regex", "a", "--choice", "b"]), "Hi");
    assert_eq!(two.status.code(), Some(2));
    let no_model = feed(formwork().args(["chat", "/nonexistent"]), "Hi");
    assert_eq!(no_model.status.code(), Some(1));
    assert!(
        says(&no_model).contains("no model at"),
        "{}",
        says(&no_model)
    );
    assert_eq!(says(&no_model).matches("error: ").count(), 1);
}

#[test]
fn its_own_server_ends_with_it() {
    let mut command = formwork();
    command.args(["chat", "--choice", "yes", "--choice", "no"]);
    let output = feed(command.args(["--", "--threads", "1"]), "Hi");
    assert!(["yes\n", "no\n"].contains(&stdout(&output)), "{output:?}");
    // However it ends.
    let mut command = formwork();
    command.args(["chat", "--lines", "--choice", "yes", "--choice", "no"]);
    command.args(["--", "--threads", "1"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "Hi").unwrap();
    let mut byte = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut byte)
        .unwrap();
    let server = super::support::children(child.id())[0];
    child.kill().unwrap();
    child.wait().unwrap();
    let stat = format!("/proc/{server}/stat");
    eventually("the server has ended", || {
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn at_a_terminal_an_interrupt_stops_the_answer_and_not_the_program() {
    let (mut keyboard, stdin) = terminal();
    let mut child: Child = chat(&["--regex", "([a-z]{5} ){200}"])
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = i32::try_from(child.id()).unwrap();
    let mut answers = child.stdout.take().unwrap();
    let mut byte = [0];
    writeln!(keyboard, "Tell me about stone.").unwrap();
    answers.read_exact(&mut byte).unwrap();
    signal(id, libc::SIGINT);
    // The line ends where the answer was stopped.
    while byte != *b"\n" {
        answers.read_exact(&mut byte).unwrap();
    }
    // Without an answer under way it says how to end.
    writeln!(keyboard, "And about wood.").unwrap();
    answers.read_exact(&mut byte).unwrap();
    signal(id, libc::SIGINT);
    while byte != *b"\n" {
        answers.read_exact(&mut byte).unwrap();
    }
    signal(id, libc::SIGINT);
    // Ctrl-D.
    keyboard.write_all(b"\x04").unwrap();
    let mut notes = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut notes)
        .unwrap();
    assert!(child.wait().unwrap().success(), "{notes}");
    assert_eq!(notes.matches("(stopped)").count(), 2, "{notes}");
}

#[test]
fn an_interrupt_ends_a_program_without_a_terminal() {
    let mut child = chat(&["--lines", "--regex", "([a-z]{5} ){200}"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "Tell me about stone.").unwrap();
    let mut byte = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut byte)
        .unwrap();
    signal(i32::try_from(child.id()).unwrap(), libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// A server with one model, which answers every chat with this content.
fn server_that_says(content: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let event = serde_json::json!({
        "choices": [{"index": 0, "delta": {"content": content}, "finish_reason": "stop"}]
    });
    let answers = [
        r#"{"data": [{"id": "a model"}]}"#.to_owned(),
        format!("data: {event}\n\ndata: [DONE]\n\n"),
    ];
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            // The head and the body come in one piece or two; neither matters.
            let _ = stream.read(&mut [0; 65_536]).unwrap();
            let kind = match answer.starts_with('{') {
                true => "application/json",
                false => "text/event-stream",
            };
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n");
            let length = answer.len();
            let _ = write!(stream, "{head}Content-Length: {length}\r\n\r\n{answer}");
            // Closed only once the client has closed: what it sent late would break the answer off.
            let _ = stream.shutdown(Shutdown::Write);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    url
}

#[test]
fn a_server_cannot_control_the_terminal() {
    let hostile = "\u{1b}]52;c;bHM=\u{7}\u{9b}2J\u{202e}txt\r\tend\n";
    let shown = "␛]52;c;bHM=␇\u{fffd}2J\u{fffd}txt␍\tend\n";
    let url = server_that_says(hostile);
    let mut command = formwork();
    let output = feed(command.args(["chat", "--url", &url]), "Hi");
    assert_eq!(stdout(&output), shown);
}

/// A person at a terminal, with everything that stood on it.
struct Person {
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl Person {
    /// Sits down at a chat.
    fn at(command: &mut Command) -> (Self, Child) {
        let (ours, theirs) = terminal();
        let child = command
            .env("TERM", "xterm")
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = ours.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            // It fails where nobody has the other end any more.
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..read]);
                shown.lock().unwrap().push_str(&text);
            }
        });
        let person = Self {
            keyboard: ours,
            screen,
        };
        (person, child)
    }

    /// Types at the prompt, once it is there, and waits for the next one.
    fn types(&mut self, keys: &str) -> String {
        let screen = self.screen.clone();
        let is_at_prompt = |from: usize, lines: usize| {
            let screen = screen.lock().unwrap();
            let new = &screen[from..];
            new.matches('\n').count() >= lines
                && new
                    .rsplit('\n')
                    .next()
                    .is_some_and(|line| line.contains("> "))
        };
        eventually("the prompt is there", || is_at_prompt(0, 0));
        let from = screen.lock().unwrap().len();
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        eventually("the next prompt is there", || is_at_prompt(from, 1));
        screen.lock().unwrap()[from..].to_owned()
    }
}

#[test]
fn warnings_and_how_an_answer_was_led_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("schema.json");
    let text = r#"{"type": "object", "properties": {"n": {"type": "string", "minLength": 30}},
                   "required": ["n"], "requierd": ["n"], "additionalProperties": false}"#;
    std::fs::write(&schema, text).unwrap();
    let schema = schema.to_str().unwrap();
    let output = feed(
        &mut chat(&["--json-schema", schema, "--max-tokens", "45"]),
        "x",
    );
    stdout(&output);
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.contains("(warning: "), "{notes}");
    assert!(notes.contains("requierd"), "{notes}");
    assert!(notes.contains("led to its end by max_tokens"), "{notes}");
}

#[test]
fn a_person_edits_lines_repeats_them_and_gives_commands() {
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("schema.json");
    std::fs::write(&schema, r#"{"const": 17}"#).unwrap();
    let mut command = chat(&["--regex", "[a-z]{4}"]);
    command.env("XDG_STATE_HOME", folder.path());
    command.env("HOME", folder.path());
    let (mut person, child) = Person::at(&mut command);
    // A character that is taken back, and the line before once more.
    person.types("Hix\u{7f}\r");
    person.types("\u{1b}[A\r");
    person.types("/clear\r");
    person.types("/system Be brief.\r");
    person.types("/nonsense\r");
    std::fs::write(folder.path().join("bad.json"), r#"{"type": "strnig"}"#).unwrap();
    person.types("/schema ~/bad.json\r");
    person.types("/schema ~/schema.json\r");
    let answer = person.types("A number?\r");
    assert!(answer.contains("\n17\r\n"), "{answer:?}");
    person.types("/schema\r");
    person.types("/help\r");
    person.keyboard.write_all(b"/exit\r").unwrap();
    let output = child.wait_with_output().unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{notes}");
    for note in [
        "formwork-builtin: type a message, or /help",
        "(a new conversation)",
        "(the model is told so before the conversation)",
        "error: there is no command /nonsense: /help lists the commands",
        "bad.json: schema, at `#/type`: ",
        "(answers are free)",
        "/schema FILE     hold every answer",
    ] {
        assert!(notes.contains(note), "{note}: {notes}");
    }
    assert_eq!(notes.matches(" tokens").count(), 3, "{notes}");
    let history = folder.path().join("formwork/chat_history");
    let history = std::fs::read_to_string(history).unwrap();
    let messages: Vec<&str> = history
        .lines()
        .filter(|line| !line.starts_with(['#', '/']))
        .collect();
    assert_eq!(messages, ["Hi", "A number?"], "{history}");
}

#[test]
fn a_server_with_a_certificate_of_its_own_is_trusted_where_told_so() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data/");
    let (certificate, key) = (
        format!("{data}localhost.crt"),
        format!("{data}localhost.key"),
    );
    let server = Server::start(&["--ssl-certfile", &certificate, "--ssl-keyfile", &key]);
    let port = server.address.rsplit(':').next().unwrap();
    let url = format!("https://localhost:{port}");
    let ask = |flags: &[&str]| {
        let mut command = formwork();
        command.args(["chat", "--url", &url, "--choice", "yes"]);
        feed(command.args(flags), "Hi")
    };
    for flags in [&["--cacert", &certificate][..], &["--insecure"]] {
        assert_eq!(stdout(&ask(flags)), "yes\n", "{flags:?}");
    }
    let stranger = ask(&[]);
    assert_eq!(stranger.status.code(), Some(1));
    let told = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(
        told.contains("no secure connection to localhost:"),
        "{told}"
    );
    let nobody = formwork().args(["chat", "--insecure"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(2));
}
