//! The file of keys: one JSON object a line.
//!
//! ```text
//! # Who may ask.
//! {"name": "alice", "hash": "blake3:...", "requests_per_minute": 60}
//! {"name": "prometheus", "hash": "blake3:...", "scopes": ["metrics"]}
//! ```

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Read;
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use sandbox::{foreign_owner, others_may_write, own_user};
use serde::{Deserialize, Serialize};

use crate::error::cut_short;
use crate::json_problem::json_problem;

/// Largest file of keys in bytes: what [`MAX_KEYS`] lines of some 500 bytes take.
const MAX_FILE: u64 = 2 << 20;
/// Most keys of a server: a request's key is compared with all of them.
const MAX_KEYS: usize = 4096;
/// Longest name in characters: it stands in each line of the audit log.
const MAX_NAME_CHARS: usize = 64;
/// Longest `cache_salt` in characters, as of requests.
const MAX_CACHE_SALT_CHARS: usize = 128;
/// Names the function of a hash.
const HASH_PREFIX: &str = "blake3:";

/// What a key may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Everything under /v1
    Inference,
    /// /tokenize and /detokenize
    Tokenize,
    /// /metrics and /load
    Metrics,
    /// /pause, /resume, /is_paused and /reset_prefix_cache
    Admin,
}

impl Scope {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [Self::Inference, Self::Tokenize, Self::Metrics, Self::Admin];

    /// Its name in the file.
    pub(in crate::server) fn as_str(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::Tokenize => "tokenize",
            Self::Metrics => "metrics",
            Self::Admin => "admin",
        }
    }
}

/// A line of the file of keys. The key itself is in none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyEntry {
    /// Who has the key: letters, digits, `.`, `_`, `-` and `@`.
    pub name: String,
    /// `blake3:` and the hash of the key as 64 hexadecimal digits.
    pub hash: String,
    /// What the key may ask for.
    #[serde(default = "default_scopes")]
    pub scopes: Vec<Scope>,
    /// Requests that may begin in a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<NonZeroU32>,
    /// Tokens of prompts and answers in a minute, counted when a request ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<NonZeroU32>,
    /// Requests at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_requests: Option<NonZeroU32>,
    /// Keys with the same one share cached prefixes. Where it is absent each key has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_salt: Option<String>,
}

fn default_scopes() -> Vec<Scope> {
    vec![Scope::Inference, Scope::Tokenize]
}

impl ApiKeyEntry {
    /// The line of a key, with the scopes that a line has by default.
    ///
    /// # Errors
    /// The name can't be one.
    pub fn new(name: &str, key: &str) -> Result<Self, String> {
        let entry = Self {
            name: name.to_owned(),
            hash: format!("{HASH_PREFIX}{}", blake3::hash(key.as_bytes())),
            scopes: default_scopes(),
            requests_per_minute: None,
            tokens_per_minute: None,
            max_concurrent_requests: None,
            cache_salt: None,
        };
        entry.verify()?;
        Ok(entry)
    }

    /// The hash, once [`Self::verify`] has found it to be one.
    pub(super) fn key_hash(&self) -> Result<blake3::Hash, String> {
        let hash = self.hash.strip_prefix(HASH_PREFIX);
        hash.and_then(|hash| blake3::Hash::from_hex(hash).ok())
            .ok_or_else(|| {
                "hash must be \"blake3:\" and 64 hexadecimal digits, of the key's hash and never the \
                 key; `formwork api-key new` writes it"
                    .to_owned()
            })
    }

    fn verify(&self) -> Result<(), String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
        let name = &self.name;
        if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(is_plain) {
            return Err(format!(
                "name must have 1 to {MAX_NAME_CHARS} letters, digits, \".\", \"_\", \"-\" or \"@\", \
                 got {:?}",
                cut_short(name)
            ));
        }
        self.key_hash()?;
        if self.scopes.is_empty() {
            return Err(
                "scopes must name one at least; remove the line to remove the key".to_owned(),
            );
        }
        if let Some(salt) = &self.cache_salt
            && (salt.is_empty() || salt.chars().count() > MAX_CACHE_SALT_CHARS)
        {
            return Err(format!(
                "cache_salt must have 1 to {MAX_CACHE_SALT_CHARS} characters, or be absent"
            ));
        }
        Ok(())
    }
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum ApiKeysError {
    /// The file can't be read.
    #[error("can't read --api-keys {}: {error}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// The file can't be trusted, or holds no keys.
    #[error("--api-keys {}: {problem}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A line is wrong.
    #[error("--api-keys {}, line {line}: {problem}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong and what would be right.
        problem: String,
    },
}

/// The keys of a file.
pub(super) fn read(path: &Path) -> Result<Vec<ApiKeyEntry>, ApiKeysError> {
    let read_error = |error| ApiKeysError::Read {
        path: path.to_owned(),
        error,
    };
    let problem = |problem: String| ApiKeysError::File {
        path: path.to_owned(),
        problem,
    };
    // A pipe isn't waited for.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(read_error)?;
    let metadata = file.metadata().map_err(read_error)?;
    if !metadata.is_file() {
        return Err(problem("it must be a regular file".to_owned()));
    }
    if let Some(owner) = foreign_owner(&metadata, own_user()) {
        return Err(problem(format!(
            "it belongs to the user {owner}, who may give out keys with it: chown it to the server's user or to root"
        )));
    }
    if others_may_write(&metadata) {
        return Err(problem(format!(
            "its group or everybody may write to it (mode {:o}), and so give out keys: chmod go-w it",
            metadata.mode() & 0o7777
        )));
    }
    let mut text = String::new();
    file.take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .map_err(read_error)?;
    if text.len() as u64 > MAX_FILE {
        return Err(problem(format!("it is larger than {MAX_FILE} bytes")));
    }
    let entries = parse(&text).map_err(|(line, problem)| ApiKeysError::Line {
        path: path.to_owned(),
        line,
        problem,
    })?;
    match entries.len() {
        0 => Err(problem(
            "it holds no key; `formwork api-key new --name NAME` makes a line".to_owned(),
        )),
        1..=MAX_KEYS => Ok(entries),
        more => Err(problem(format!(
            "it holds {more} keys, more than the limit of {MAX_KEYS}"
        ))),
    }
}

/// The keys of a file's text; an error has its line.
fn parse(text: &str) -> Result<Vec<ApiKeyEntry>, (usize, String)> {
    let mut entries: Vec<ApiKeyEntry> = Vec::new();
    let (mut names, mut hashes) = (HashSet::new(), HashSet::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if !line.starts_with('{') {
            let problem = "it must be a JSON object, such as {\"name\": \"alice\", \"hash\": \
                           \"blake3:...\"}, or begin with #";
            return Err((number, problem.to_owned()));
        }
        let entry: ApiKeyEntry = serde_json::from_str(line).map_err(|error| {
            let problem = json_problem(&error)
                .replace("a nonzero u32", "a whole number from 1 to 4294967295");
            let column = error.column();
            let problem = match problem.contains(" at column ") {
                true => problem,
                false => format!("{problem}, before column {column}"),
            };
            (number, problem)
        })?;
        entry.verify().map_err(|problem| (number, problem))?;
        let hash = entry.key_hash().map_err(|problem| (number, problem))?;
        if !names.insert(entry.name.clone()) {
            let problem = format!("name {:?} is another key's already", entry.name);
            return Err((number, problem));
        }
        if !hashes.insert(hash) {
            return Err((number, "hash is another key's already".to_owned()));
        }
        entries.push(entry);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A line with these further fields.
    fn line(name: &str, more: &str) -> String {
        let hash = blake3::hash(name.as_bytes());
        format!("{{\"name\": \"{name}\", \"hash\": \"blake3:{hash}\"{more}}}\n")
    }

    #[test]
    fn a_line_says_what_a_key_may_do() {
        let text = String::from("# comment\n\n")
            + &line("alice", "")
            + &line(
                "bob",
                ", \"scopes\": [\"metrics\", \"admin\"], \"requests_per_minute\": 60, \
                 \"tokens_per_minute\": 7, \"max_concurrent_requests\": 2, \"cache_salt\": \"team\"",
            );
        let entries = parse(&text).unwrap();
        assert_eq!(entries[0], ApiKeyEntry::new("alice", "alice").unwrap());
        assert_eq!(entries[0].scopes, [Scope::Inference, Scope::Tokenize]);
        assert_eq!(entries[1].scopes, [Scope::Metrics, Scope::Admin]);
        assert_eq!(entries[1].tokens_per_minute, NonZeroU32::new(7));
        assert_eq!(entries[1].cache_salt.as_deref(), Some("team"));
        // What is written can be read.
        for entry in &entries {
            let written = serde_json::to_string(entry).unwrap();
            assert_eq!(parse(&written).unwrap(), std::slice::from_ref(entry));
        }
    }

    #[test]
    fn what_is_wrong_has_its_line_and_its_field() {
        let good = line("alice", "");
        for (wrong, says) in [
            ("not json".to_owned(), "must be a JSON object"),
            ("[]".to_owned(), "must be a JSON object"),
            (line("bob", ", \"scope\": []"), "unknown field `scope`"),
            (line("bob", ", \"scopes\": []"), "scopes must name one"),
            (
                line("bob", ", \"scopes\": [\"root\"]"),
                "expected one of `inference`, `tokenize`, `metrics`, `admin`",
            ),
            (
                line("bob", ", \"requests_per_minute\": 0"),
                "expected a whole number from 1 to 4294967295",
            ),
            (line("bob", ", \"name\": \"c\""), "duplicate field `name`"),
            (line("b b", ""), "name must have 1 to 64"),
            (line("alice", ""), "name \"alice\" is another key's"),
            (
                line("alice", "").replace("alice", "bob"),
                "hash is another key's",
            ),
            ("{\"name\": \"bob\"}".to_owned(), "missing field `hash`"),
            (
                "{\"name\": \"bob\", \"hash\": \"secret\"}".to_owned(),
                "hash must be \"blake3:\"",
            ),
            (line("bob", ", \"cache_salt\": \"\""), "cache_salt must"),
        ] {
            let (number, problem) = parse(&format!("{good}\n{wrong}")).unwrap_err();
            assert_eq!(number, 3, "{wrong}");
            assert!(problem.contains(says), "{wrong}: {problem}");
            assert!(!problem.contains("secret"), "{problem}");
        }
    }

    #[test]
    fn a_file_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, line("alice", "")).unwrap();
        for (mode, is_good) in [(0o600, true), (0o644, true), (0o664, false), (0o646, false)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(read(&path).is_ok(), is_good, "{mode:o}");
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(&path, "# none\n").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("it holds no key"), "{error}");
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("regular file"), "{error}");
        std::fs::write(&path, "\n".repeat(3 << 20)).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("larger than"), "{error}");
    }
}
