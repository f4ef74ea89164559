//! `formwork api-key`: lines for the file of keys that `formwork serve --api-keys` reads.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use engine_frontend::server::{ApiKeyEntry, Scope};
use rustls::crypto::ring;

/// Random bytes of a key.
const KEY_BYTES: usize = 32;
/// What keys begin with, so that people and scanners know one.
const KEY_PREFIX: &str = "fw-";
/// Fewest characters of a key that somebody else made. Its hash is fast to compute, so that whoever has the
/// file could guess a shorter one.
const MIN_KEY_CHARS: usize = 20;

/// What is done with keys.
#[derive(Debug, Subcommand)]
pub(crate) enum ApiKeyCommand {
    /// Make a random key: it is shown once, on standard error; its line for --api-keys goes to standard
    /// output
    New(NewArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Example: formwork api-key new --name alice >> keys.jsonl")]
pub(crate) struct NewArgs {
    /// Who gets the key
    #[arg(long)]
    name: String,
    /// What the key may ask for
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["inference", "tokenize"])]
    scopes: Vec<Scope>,
    /// Take the key from standard input instead
    #[arg(long)]
    from_stdin: bool,
}

/// Makes a key and its line.
pub(crate) fn api_key(command: &ApiKeyCommand) -> anyhow::Result<ExitCode> {
    let ApiKeyCommand::New(args) = command;
    let key = match args.from_stdin {
        true => key_from_stdin()?,
        false => random_key()?,
    };
    let line = line(args, &key)?;
    if !args.from_stdin {
        writeln!(std::io::stderr(), "{key}").context("can't show the key")?;
    }
    writeln!(std::io::stdout(), "{line}").context("can't write the line")?;
    Ok(ExitCode::SUCCESS)
}

fn line(args: &NewArgs, key: &str) -> anyhow::Result<String> {
    let mut entry = ApiKeyEntry::new(&args.name, key).map_err(anyhow::Error::msg)?;
    entry.scopes.clone_from(&args.scopes);
    Ok(serde_json::to_string(&entry)?)
}

fn random_key() -> anyhow::Result<String> {
    let mut bytes = [0; KEY_BYTES];
    let random = ring::default_provider().secure_random;
    if random.fill(&mut bytes).is_err() {
        bail!("the system has no random numbers");
    }
    let mut key = KEY_PREFIX.to_owned();
    for byte in bytes {
        // Writing to a string never fails.
        let _ = write!(key, "{byte:02x}");
    }
    Ok(key)
}

fn key_from_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("can't read the key from standard input")?;
    let key = text.trim_end_matches(['\r', '\n']);
    if key.chars().count() < MIN_KEY_CHARS || !key.chars().all(|c| c.is_ascii_graphic()) {
        bail!("the key must have {MIN_KEY_CHARS} visible characters of ASCII at least");
    }
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_hash_and_never_the_key() {
        let key = random_key().unwrap();
        assert_eq!(key.len(), KEY_PREFIX.len() + 2 * KEY_BYTES);
        assert_ne!(key, random_key().unwrap());
        let mut args = NewArgs {
            name: "alice".to_owned(),
            scopes: vec![Scope::Metrics],
            from_stdin: false,
        };
        let line = super::line(&args, &key).unwrap();
        assert!(!line.contains(key.trim_start_matches(KEY_PREFIX)), "{line}");
        let entry: ApiKeyEntry = serde_json::from_str(&line).unwrap();
        assert_eq!(entry.scopes, [Scope::Metrics]);
        assert_eq!(entry.hash, ApiKeyEntry::new("x", &key).unwrap().hash);
        args.name = "a b".to_owned();
        assert!(super::line(&args, &key).is_err());
    }
}
