//! Lines that are no messages: `/help` and the like.

use std::ffi::OsString;
use std::path::PathBuf;

/// For `/help`.
pub(super) const HELP: &str = "\
/clear           begin a new conversation
/system TEXT     tell the model TEXT before the conversation; without TEXT nothing
/schema FILE     hold every answer to the JSON Schema in FILE; without FILE they are free
/help            this
/exit            end, as Ctrl-D does
Ctrl-C stops an answer. A line that begins with a space is a message, whatever follows.";

/// A line that is no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Clear,
    /// What the model is told before the conversation.
    System(Option<String>),
    /// The file of a schema for all answers.
    Schema(Option<PathBuf>),
    Help,
    Exit,
    /// It begins as a command does, and is none: why.
    Unknown(String),
}

impl Command {
    /// The command that a line is; `None` for a message.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (name, rest) = match line.split_once(char::is_whitespace) {
            Some((name, rest)) => (name, rest.trim()),
            None => (line, ""),
        };
        if !name.starts_with('/') {
            return None;
        }
        let rest = (!rest.is_empty()).then(|| rest.to_owned());
        Some(match (name, rest) {
            ("/clear", None) => Self::Clear,
            ("/system", text) => Self::System(text),
            ("/schema", file) => {
                Self::Schema(file.map(|file| in_home(&file, std::env::var_os("HOME"))))
            }
            ("/help" | "/?", None) => Self::Help,
            ("/exit" | "/quit" | "/bye", None) => Self::Exit,
            ("/clear" | "/help" | "/?" | "/exit" | "/quit" | "/bye", Some(_)) => {
                Self::Unknown(format!("{name} takes nothing behind it"))
            }
            _ => Self::Unknown(format!("there is no command {name}")),
        })
    }
}

/// A path, with `~/` as a shell has it: no shell saw this one.
fn in_home(path: &str, home: Option<OsString>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_home_folder() {
        let home = || Some("/home/ann".into());
        assert_eq!(
            in_home("~/a.json", home()),
            PathBuf::from("/home/ann/a.json")
        );
        assert_eq!(in_home("~/a.json", None), PathBuf::from("~/a.json"));
        assert_eq!(in_home("~a.json", home()), PathBuf::from("~a.json"));
    }

    #[test]
    fn commands_and_messages_are_told_apart() {
        for message in ["Hi", "", " /clear", "1/2"] {
            assert_eq!(Command::parse(message), None, "{message}");
        }
        for (line, command) in [
            ("/clear", Command::Clear),
            ("/clear  ", Command::Clear),
            ("/exit", Command::Exit),
            ("/quit", Command::Exit),
            ("/system", Command::System(None)),
            (
                "/system  Be brief. ",
                Command::System(Some("Be brief.".to_owned())),
            ),
            ("/schema", Command::Schema(None)),
            (
                "/schema my car.json",
                Command::Schema(Some("my car.json".into())),
            ),
            (
                "/clear all",
                Command::Unknown("/clear takes nothing behind it".to_owned()),
            ),
            (
                "/etc/passwd says",
                Command::Unknown("there is no command /etc/passwd".to_owned()),
            ),
        ] {
            assert_eq!(Command::parse(line), Some(command), "{line}");
        }
    }

    #[test]
    fn every_command_is_in_the_help() {
        for name in ["/clear", "/system", "/schema", "/help", "/exit"] {
            let line = HELP.lines().find(|line| line.starts_with(name));
            assert!(line.is_some(), "{name}");
            assert!(
                !matches!(Command::parse(name), Some(Command::Unknown(_))),
                "{name}"
            );
        }
    }
}
