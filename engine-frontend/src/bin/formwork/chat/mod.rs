//! `formwork chat`: a conversation at a terminal, or with a program by its standard input.

mod command;
mod conversation;
mod input;
mod own_server;
mod screen;

use std::ffi::OsString;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::error::ErrorKind;
use clap::{ArgAction, Args};
use engine_frontend::{frontend_runtime, human_readable_int};
use structured_output::CompileError;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::constraint::{Constraint, Kind, byte_compiler};
use crate::http::{Client, Refused, TrustArgs};
use command::{Command, HELP};
use conversation::Conversation;
use input::{Input, Lines, history_path};
use own_server::{EndedItself, OwnServer};
use screen::Screen;

/// The exit code of a program that was interrupted.
const INTERRUPTED: u8 = 130;

/// How a message was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Answered,
    /// A constrained answer is not whole.
    BreaksOff,
    Interrupted,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Answered => Self::SUCCESS,
            Outcome::BreaksOff => Self::FAILURE,
            Outcome::Interrupted => Self::from(INTERRUPTED),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
At a terminal: a line is a message, Ctrl-C stops an answer, Ctrl-D ends, /help tells more.
Otherwise standard input as a whole is one message, and the answer goes to standard output.
Exit codes: 0 answered; 1 no answer, or a constrained one that breaks off; 2 a flag is wrong;
130 interrupted.")]
pub(crate) struct ChatArgs {
    /// Model folder, GGUF file or name on the Hub, or with --url the name of one of its models; the
    /// built-in one, or the server's first, where absent
    #[arg(value_name = "MODEL")]
    model: Option<String>,
    /// A server that runs: http://..., https://... or unix:PATH; where absent one is started, and
    /// ends with the chat
    #[arg(long)]
    url: Option<String>,
    /// The server's key; FORMWORK_API_KEY or OPENAI_API_KEY where absent
    #[arg(long, value_name = "KEY", requires = "url")]
    api_key: Option<String>,
    #[command(flatten)]
    trust: TrustArgs,
    /// What the model is told before the first message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Take each line of standard input for a message of one conversation, not only at a terminal
    #[arg(long)]
    lines: bool,
    /// Keep no history of what is typed at a terminal; it is in ~/.local/state/formwork/chat_history
    #[arg(long)]
    no_history: bool,
    /// Flags for the server that is started, behind "--": see `formwork serve --help`
    #[arg(last = true, value_name = "SERVER FLAGS", conflicts_with = "url")]
    server_flags: Vec<OsString>,

    #[command(flatten)]
    constraint: ConstraintArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// What every answer is held to.
#[derive(Debug, Args)]
#[group(multiple = false)]
#[command(next_help_heading = "Constraint on every answer")]
struct ConstraintArgs {
    /// A file with a JSON Schema
    #[arg(long, value_name = "FILE")]
    json_schema: Option<PathBuf>,
    /// A regular expression
    #[arg(long, value_name = "PATTERN")]
    regex: Option<String>,
    /// A string that the answer may be; repeated for each further one
    #[arg(long, value_name = "STRING", action = ArgAction::Append)]
    choice: Vec<String>,
    /// A file with a grammar in EBNF, GBNF or Lark
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,
    /// A file with a structural tag
    #[arg(long, value_name = "FILE")]
    structural_tag: Option<PathBuf>,
}

impl ConstraintArgs {
    fn constraint(&self) -> anyhow::Result<Option<Constraint>> {
        let read = |kind: Kind, path: &Path| read(kind, path).map(Some);
        if let Some(path) = &self.json_schema {
            read(Kind::Json, path)
        } else if let Some(path) = &self.grammar {
            read(Kind::Grammar, path)
        } else if let Some(path) = &self.structural_tag {
            read(Kind::StructuralTag, path)
        } else if let Some(pattern) = &self.regex {
            Ok(Some(Constraint::Regex(pattern.clone())))
        } else if !self.choice.is_empty() {
            Ok(Some(Constraint::Choice(self.choice.clone())))
        } else {
            Ok(None)
        }
    }
}

/// The constraint in a file.
fn read(kind: Kind, path: &Path) -> anyhow::Result<Constraint> {
    let text =
        fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
    Constraint::new(kind, text)
        .with_context(|| format!("{} holds no {}", path.display(), kind.name()))
}

/// How answers are sampled; the model's own settings where absent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
struct SamplingArgs {
    /// Most tokens of an answer
    #[arg(long, value_name = "N", value_parser = human_readable_int(1_u32..))]
    max_tokens: Option<u32>,
    /// 0 always takes the likeliest token
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
    /// Share of the likeliest tokens that are sampled from
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// The same seed gives the same answers
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Chats until standard input ends.
pub(crate) fn chat(args: &ChatArgs) -> anyhow::Result<ExitCode> {
    if args.trust.is_given() && args.url.is_none() {
        let problem = "--cacert and --insecure are about the server of --url, and none is given";
        crate::usage_error("chat", ErrorKind::MissingRequiredArgument, problem);
    }
    let constraint = args.constraint.constraint()?;
    let runtime = frontend_runtime().context("can't start the async runtime")?;
    let result = runtime.block_on(run(args, constraint));
    // A thread may still wait for a line.
    runtime.shutdown_background();
    match result {
        Err(error) if error.is::<EndedItself>() => Ok(ExitCode::FAILURE),
        result => result,
    }
}

async fn run(args: &ChatArgs, constraint: Option<Constraint>) -> anyhow::Result<ExitCode> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let connecting = connect(args);
    let (client, server) = tokio::select! {
        connected = connecting => connected?,
        _ = interrupts.recv() => return Ok(Outcome::Interrupted.into()),
    };
    let model = match (&args.url, &args.model) {
        (Some(_), Some(model)) => model.clone(),
        _ => {
            let models = client.models().await?;
            models
                .into_iter()
                .next()
                .context("the server has no model")?
        }
    };
    let mut conversation = Conversation::new(client, &model, args.system.as_deref());
    conversation.set_sampling(&args.sampling);
    conversation.constrain(constraint.as_ref());
    let is_terminal = std::io::stdin().is_terminal();
    let mut screen = Screen::new(is_terminal);
    let outcome = if is_terminal || args.lines {
        if is_terminal {
            screen.note(&format!("{model}: type a message, or /help"));
        }
        let history = history_path().filter(|_| !args.no_history);
        let lines = Lines::new(history);
        converse(&mut conversation, &mut screen, &mut interrupts, lines).await
    } else {
        let message = std::io::read_to_string(std::io::stdin());
        let message = message.context("standard input is no text")?;
        once(&mut conversation, &mut screen, &mut interrupts, &message).await
    };
    if let Some(server) = server {
        server.end().await;
    }
    Ok(outcome?.into())
}

/// The server to talk to, and its process where it is this chat's own.
async fn connect(args: &ChatArgs) -> anyhow::Result<(Client, Option<OwnServer>)> {
    if let Some(url) = &args.url {
        let key = crate::api_key(args.api_key.as_deref());
        return Ok((Client::new(url, key.as_deref(), &args.trust)?, None));
    }
    let server = OwnServer::start(args.model.as_deref(), &args.server_flags).await?;
    Ok((server.client()?, Some(server)))
}

/// Answers lines until there are no more. At a terminal neither an error nor an interrupt ends it.
async fn converse(
    conversation: &mut Conversation,
    screen: &mut Screen,
    interrupts: &mut Signal,
    mut lines: Lines,
) -> anyhow::Result<Outcome> {
    let is_terminal = screen.is_terminal();
    let mut outcome = Outcome::Answered;
    loop {
        if !lines.has_prompt {
            screen.prompt();
        }
        let input = tokio::select! {
            input = lines.next() => input.context("standard input is no text")?,
            _ = interrupts.recv() => Input::Interrupted,
        };
        let line = match input {
            Input::Line(line) => line,
            Input::Interrupted if is_terminal => {
                screen.note("(Ctrl-D ends)");
                continue;
            }
            Input::Interrupted => return Ok(Outcome::Interrupted),
            Input::End => {
                screen.end();
                return Ok(outcome);
            }
        };
        match Command::parse(&line) {
            Some(Command::Exit) => return Ok(outcome),
            // A program's line is a message, whatever it looks like.
            Some(Command::Unknown(_)) if !is_terminal => {}
            Some(command) => {
                let told = obey(command, conversation);
                screen.note(
                    &told.unwrap_or_else(|error| format!("error: {}", crate::said_once(&error))),
                );
                continue;
            }
            None if line.trim().is_empty() => continue,
            None => {}
        }
        let answered = once(conversation, screen, interrupts, &line).await;
        if is_terminal {
            if let Err(error) = answered {
                screen.note(&format!("error: {}", crate::said_once(&error)));
                let refused = error.downcast_ref::<Refused>();
                if refused.is_some_and(|refused| refused.param.as_deref() == Some("input_tokens")) {
                    screen.note("(the conversation is too long: /clear begins a new one)");
                }
            }
            continue;
        }
        match answered? {
            Outcome::Answered => {}
            Outcome::BreaksOff => outcome = Outcome::BreaksOff,
            Outcome::Interrupted => return Ok(Outcome::Interrupted),
        }
    }
}

/// Does what a command asks for, and says what was done.
fn obey(command: Command, conversation: &mut Conversation) -> anyhow::Result<String> {
    Ok(match command {
        Command::Clear => {
            conversation.clear();
            "(a new conversation)".to_owned()
        }
        Command::System(text) => {
            let told = match &text {
                Some(_) => "(the model is told so before the conversation)",
                None => "(the model is told nothing before the conversation)",
            };
            conversation.set_system(text);
            told.to_owned()
        }
        Command::Schema(Some(path)) => {
            let schema = read(Kind::Json, &path)?;
            // Now, and not at each message from here on. What is too large here the server may still take.
            match schema.compile(&byte_compiler()?) {
                Ok(_) | Err(CompileError::LimitExceeded { .. }) => {}
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
            conversation.constrain(Some(&schema));
            format!("(answers are valid under {})", path.display())
        }
        Command::Schema(None) => {
            conversation.constrain(None);
            "(answers are free)".to_owned()
        }
        Command::Unknown(problem) => {
            bail!("{problem}: /help lists the commands; a message begins with a space")
        }
        Command::Help | Command::Exit => HELP.to_owned(),
    })
}

/// Asks and shows the answer as it comes.
async fn once(
    conversation: &mut Conversation,
    screen: &mut Screen,
    interrupts: &mut Signal,
    message: &str,
) -> anyhow::Result<Outcome> {
    if message.trim().is_empty() {
        bail!("there is no message on standard input");
    }
    let ending = tokio::select! {
        ending = conversation.ask(message, screen) => Some(ending),
        _ = interrupts.recv() => None,
    };
    let Some(ending) = ending else {
        conversation.stop();
        screen.end_answer();
        screen.note("(stopped)");
        return Ok(Outcome::Interrupted);
    };
    screen.end_answer();
    let ending = ending?;
    let mut notes = Vec::new();
    if screen.is_terminal() {
        notes.push(ending.speed.to_string());
    }
    if ending.reason != "stop" {
        notes.push(format!("the answer ended by: {}", ending.reason));
    }
    notes.extend(ending.notes.iter().map(|note| (*note).to_owned()));
    if !notes.is_empty() {
        screen.note(&format!("({})", notes.join("; ")));
    }
    Ok(match ending.breaks_off {
        true => Outcome::BreaksOff,
        false => Outcome::Answered,
    })
}
