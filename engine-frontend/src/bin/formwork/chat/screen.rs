//! What is written where: answers to standard output, all else to standard error. Nothing of it can
//! control a terminal, wherever a pipe ends.

use std::io::{IsTerminal, Write, stderr, stdout};

use engine_frontend::for_terminal;

/// Dim, and back, for terminals.
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

#[derive(Debug)]
pub(super) struct Screen {
    /// Whether a person types the messages.
    is_terminal: bool,
    /// Whether notes and thinking are dimmed.
    dims: bool,
    /// Whether thinking stands at the end of the screen.
    is_thinking: bool,
    /// Whether what is on the screen ends within a line.
    in_line: bool,
}

impl Screen {
    pub(super) fn new(is_terminal: bool) -> Self {
        Self {
            is_terminal,
            dims: stderr().is_terminal(),
            is_thinking: false,
            in_line: false,
        }
    }

    /// True if a person types the messages.
    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Asks a person for a message.
    pub(super) fn prompt(&self) {
        if self.is_terminal {
            self.say("> ");
        }
    }

    /// Something beside the answers.
    pub(super) fn note(&self, text: &str) {
        let text = for_terminal(text);
        match self.dims {
            true => self.say(&format!("\r{DIM}{text}{PLAIN}\n")),
            false => self.say(&format!("{text}\n")),
        }
    }

    /// Thinking, which only a person sees.
    pub(super) fn thinking(&mut self, text: &str) {
        if self.is_terminal && !text.is_empty() {
            self.is_thinking = true;
            let text = for_terminal(text);
            match self.dims {
                true => self.say(&format!("{DIM}{text}{PLAIN}")),
                false => self.say(&text),
            }
        }
    }

    /// More of an answer.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub(super) fn answer(&mut self, text: &str) -> std::io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.is_thinking) {
            self.say("\n");
        }
        self.in_line = !text.ends_with('\n');
        let mut stdout = stdout();
        stdout.write_all(for_terminal(text).as_bytes())?;
        stdout.flush()
    }

    /// Ends the line of an answer. What it writes is the answer's last byte, and its loss no loss.
    pub(super) fn end_answer(&mut self) {
        if std::mem::take(&mut self.is_thinking) {
            self.say("\n");
        }
        if std::mem::take(&mut self.in_line) {
            let mut stdout = stdout();
            let _ = stdout.write_all(b"\n").and_then(|()| stdout.flush());
        }
    }

    /// Leaves the shell a line of its own.
    pub(super) fn end(&self) {
        if self.is_terminal {
            self.say("\n");
        }
    }

    fn say(&self, text: &str) {
        let mut stderr = stderr();
        let _ = stderr
            .write_all(text.as_bytes())
            .and_then(|()| stderr.flush());
    }
}
