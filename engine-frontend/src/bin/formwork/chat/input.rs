//! Messages line by line: with line editing and a history at a terminal, else as they are.

use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};
use tokio::sync::mpsc;

/// Lines that the history keeps.
const HISTORY_LINES: usize = 1000;

/// What came of waiting for a line.
#[derive(Debug)]
pub(super) enum Input {
    Line(String),
    /// Ctrl-C in the line editor, which reads the key itself.
    Interrupted,
    End,
}

/// Reads lines on a thread of its own, which nothing waits for.
#[derive(Debug)]
pub(super) struct Lines {
    /// Each asks for one line: while an answer is on its way, the terminal is nobody's.
    requests: mpsc::Sender<()>,
    inputs: mpsc::Receiver<io::Result<Input>>,
    /// True while a line was asked for and didn't come.
    is_waiting: bool,
    /// True if the line editor writes the prompt.
    pub(super) has_prompt: bool,
}

impl Lines {
    /// Of standard input. A history is kept at `history` where there is line editing, which needs a
    /// terminal on both sides.
    pub(super) fn new(history: Option<PathBuf>) -> Self {
        let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        let editor = match is_terminal {
            true => editor(history.as_deref()).ok(),
            false => None,
        };
        let has_prompt = editor.is_some();
        let (requests, asked) = mpsc::channel(1);
        let (sender, inputs) = mpsc::channel(1);
        std::thread::spawn(move || match editor {
            Some(editor) => edit_lines(editor, history.as_deref(), asked, &sender),
            None => read_lines(asked, &sender),
        });
        Self {
            requests,
            inputs,
            is_waiting: false,
            has_prompt,
        }
    }

    /// The next line. Dropped before it is there, it comes next time.
    ///
    /// # Errors
    /// Standard input can't be read, or is no text.
    pub(super) async fn next(&mut self) -> io::Result<Input> {
        if !self.is_waiting {
            self.is_waiting = self.requests.send(()).await.is_ok();
        }
        let input = self.inputs.recv().await.unwrap_or(Ok(Input::End));
        self.is_waiting = false;
        input
    }
}

/// Where the history is kept: as the XDG base directories have it.
pub(super) fn history_path() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from);
    let state = folder("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("formwork").join("chat_history"))
}

fn editor(history: Option<&Path>) -> rustyline::Result<DefaultEditor> {
    let config = Config::builder()
        .max_history_size(HISTORY_LINES)?
        .auto_add_history(true)
        .build();
    let mut editor = DefaultEditor::with_config(config)?;
    if let Some(path) = history {
        // The first chat has none.
        let _ = editor.load_history(path);
    }
    Ok(editor)
}

fn edit_lines(
    mut editor: DefaultEditor,
    history: Option<&Path>,
    mut asked: mpsc::Receiver<()>,
    sender: &mpsc::Sender<io::Result<Input>>,
) {
    while asked.blocking_recv().is_some() {
        let input = match editor.readline("> ") {
            Ok(line) => Ok(Input::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Input::Interrupted),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(ReadlineError::Io(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        };
        if let (Some(path), Ok(Input::Line(_))) = (history, &input) {
            // A chat without a history is a chat.
            let _ = path.parent().map(fs::create_dir_all);
            let _ = editor.append_history(path);
        }
        if sender.blocking_send(input).is_err() {
            return;
        }
    }
}

fn read_lines(mut asked: mpsc::Receiver<()>, sender: &mpsc::Sender<io::Result<Input>>) {
    let mut lines = io::stdin().lock().lines();
    while asked.blocking_recv().is_some() {
        let input = match lines.next() {
            Some(line) => line.map(Input::Line),
            None => Ok(Input::End),
        };
        if sender.blocking_send(input).is_err() {
            return;
        }
    }
}
