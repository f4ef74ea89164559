//! `formwork`: the server, and what goes with it.

mod api_key;
mod bench;
mod chat;
mod check;
mod constraint;
mod daemon;
mod first_steps;
mod http;
mod manual;
mod models;
mod other_flags;
mod pid_file;
mod piece;
mod serve;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use engine_frontend::server::{ConfigError, ServeArgs, expand_args};
use engine_frontend::{for_terminal, with_flag_names};
use structured_output::MeteredAllocator;

/// So that what the check of a constraint takes is known to the byte.
#[global_allocator]
static ALLOCATOR: MeteredAllocator = MeteredAllocator;

/// An LLM engine with structured output at its heart.
#[derive(Debug, Parser)]
#[command(
    name = "formwork",
    version,
    about,
    max_term_width = 100,
    args_override_self = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the OpenAI API over HTTP
    #[command(args_override_self = true)]
    Serve(Box<ServeArgs>),
    /// Talk with a model at the terminal
    Chat(Box<chat::ChatArgs>),
    /// Download a model from the Hub into its cache, and print its path
    Pull(models::PullArgs),
    /// List the models in the Hub's cache
    List,
    /// Remove a model from the Hub's cache
    Remove(models::RemoveArgs),
    /// Measure a server, this or any other with the OpenAI API
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Say whether a JSON Schema, a pattern or a grammar can be enforced, where not, and show a
    /// sample
    Check(check::CheckArgs),
    /// Make keys for --api-keys
    #[command(subcommand)]
    ApiKey(api_key::ApiKeyCommand),
    /// Write what a shell needs to complete the command line
    Completions(manual::CompletionsArgs),
    /// Write a page of the manual
    Man(manual::ManArgs),
    /// Tell a server that runs in the background to end, and wait for it
    Stop(StopArgs),
    /// Say whether a server runs in the background, and how it is
    Status(StatusArgs),
}

#[derive(Debug, Args)]
struct StopArgs {
    /// The server's --pid-file; FORMWORK_PID_FILE, as for the server, where absent
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Seconds to wait until it is killed; 60 more than its own --shutdown-timeout, within which it
    /// finishes its requests, where absent
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// The server's --pid-file; FORMWORK_PID_FILE, as for the server, where absent
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
}

fn main() -> ExitCode {
    match parse().and_then(run) {
        Ok(code) => code,
        Err(error) => {
            let error = with_flag_names(&said_once(&error), &serve_command());
            // On a full disk this can't be said.
            let _ = writeln!(std::io::stderr(), "error: {}", for_terminal(&error));
            ExitCode::FAILURE
        }
    }
}

/// The command whose flags errors are about.
fn serve_command() -> clap::Command {
    ServeArgs::augment_args(clap::Command::new("serve"))
}

/// An error and its causes, without those that an error before them has in its words.
fn said_once(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if !said.contains(&cause) {
            let colon = if said.is_empty() { "" } else { ": " };
            said = format!("{said}{colon}{cause}");
        }
    }
    said
}

/// Refuses the command line, with the usage of the command that it is about.
fn usage_error(command: &str, kind: ErrorKind, problem: impl std::fmt::Display) -> ! {
    let mut cli = Cli::command();
    cli.build();
    match cli.find_subcommand_mut(command) {
        Some(command) => command.error(kind, problem).exit(),
        None => cli.error(kind, problem).exit(),
    }
}

/// Reads the command line, with the flags of `serve` from its file and the environment put in.
fn parse() -> anyhow::Result<Cli> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let mut cli = Cli::command();
    cli.build();
    if args.get(1).is_some_and(|arg| arg == "serve")
        && let Some(serve) = cli.find_subcommand_mut("serve")
    {
        let own = args.split_off(2);
        // A variable that isn't UTF-8 is no flag's.
        let variables = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        match expand_args(serve, own, variables) {
            Ok(own) => args.extend(own),
            Err(error @ (ConfigError::Flag { .. } | ConfigError::Variable { .. })) => {
                usage_error("serve", ErrorKind::UnknownArgument, error)
            }
            Err(error) => return Err(error).context("can't start"),
        }
    }
    // A negative number is a wrong value, not a flag that isn't there.
    let cli = Cli::command().mut_subcommands(|command| {
        command.mut_args(|arg| match arg.get_action().takes_values() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        })
    });
    let matches = cli.try_get_matches_from(args);
    matches
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| other_flags::exit(error))
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        // The flag may stand in a file or in the environment, where the server itself finds it too.
        Command::Serve(args) if args.server.daemon && !args.server.daemonized => {
            daemon::start(&args)
        }
        Command::Serve(args) => serve::serve(&args),
        Command::Chat(args) => chat::chat(&args),
        Command::Pull(args) => models::pull(&args),
        Command::List => models::list(),
        Command::Remove(args) => models::remove(&args),
        Command::Bench(bench::BenchCommand::Serve(args)) => bench::serve(&args),
        Command::Check(args) => check::check(&args),
        Command::ApiKey(command) => api_key::api_key(&command),
        Command::Completions(args) => manual::completions(&args).map(|()| ExitCode::SUCCESS),
        Command::Man(args) => manual::man(&args).map(|()| ExitCode::SUCCESS),
        Command::Stop(args) => daemon::stop(&pid_file::path(args.pid_file)?, args.timeout),
        Command::Status(args) => daemon::status(&pid_file::path(args.pid_file)?),
    }
}

/// The key for somebody else's server: as given, or from the environment.
fn api_key(given: Option<&str>) -> Option<String> {
    let variables = ["FORMWORK_API_KEY", "OPENAI_API_KEY"];
    given
        .map(str::to_owned)
        .or_else(|| variables.iter().find_map(|name| std::env::var(name).ok()))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::said_once;

    #[test]
    fn causes_that_an_error_names_itself_are_not_said_again() {
        let error = anyhow!("no file")
            .context("can't load: no file")
            .context("can't start");
        assert_eq!(said_once(&error), "can't start: can't load: no file");
        let error = anyhow!("no file").context("can't load");
        assert_eq!(said_once(&error), "can't load: no file");
    }
}
