//! Why there is no model.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::limits::NAMES_IN_ERRORS;

/// Why a name on the Hub gives no model. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// No variable says where the cache is.
    #[error("there is no folder for the Hub's cache: set HF_HOME, or HOME")]
    NoHome,
    /// `HF_ENDPOINT` is no address.
    #[error("HF_ENDPOINT is {endpoint:?}; it must begin with https:// or http://")]
    Endpoint {
        /// Its value.
        endpoint: String,
    },
    /// The network may not be used, and the cache lacks something.
    #[error(
        "HF_HUB_OFFLINE is set, and {missing} of {name} is not in the cache {}: unset it, or run \
         `formwork pull {name}` where there is a network",
        .cache.display()
    )]
    Offline {
        /// The name asked for.
        name: String,
        /// "the revision main", "model.safetensors".
        missing: String,
        /// The cache.
        cache: PathBuf,
    },
    /// The token has characters that no token has.
    #[error(
        "the token of {source_name} is none: it has a space, a line end or a character that is not ASCII; copy \
         it anew from https://huggingface.co/settings/tokens"
    )]
    BrokenToken {
        /// The variable or file that has it.
        source_name: String,
    },
    /// The Hub has no such token.
    #[error(
        "the Hub at {endpoint} doesn't know the token of {source_name}: make another at \
         https://huggingface.co/settings/tokens, or unset it"
    )]
    UnknownToken {
        /// The Hub's address.
        endpoint: String,
        /// The variable or file that has it.
        source_name: String,
    },
    /// Nothing on this machine says which servers to trust.
    #[error(
        "this machine has no certificates of authorities to know the Hub at {endpoint} by: install the package \
         ca-certificates, or name a file of them in SSL_CERT_FILE"
    )]
    NoCertificates {
        /// The Hub's address.
        endpoint: String,
    },
    /// The Hub has no time.
    #[error(
        "the Hub at {endpoint} answers {status}: try again {}{}",
        when(*.retry_after),
        if *.wants_token { "; with a token in HF_TOKEN it answers more often" } else { "" }
    )]
    Busy {
        /// The Hub's address.
        endpoint: String,
        /// HTTP's status.
        status: String,
        /// Time after which it wants to be asked again, where it says one.
        retry_after: Option<Duration>,
        /// True if a token would help.
        wants_token: bool,
    },
    /// The Hub doesn't answer.
    #[error(
        "can't reach the Hub at {endpoint}: {why}; a model that is in the cache, in a folder or in a GGUF \
         file needs no network, and HF_ENDPOINT names another address"
    )]
    Unreachable {
        /// The Hub's address.
        endpoint: String,
        /// What went wrong.
        why: String,
    },
    /// There is no such repository, or nobody is told that there is.
    #[error(
        "the Hub at {endpoint} has no model {repository}, or it is private: check the name, and for a \
         private repository set HF_TOKEN to a token that may read it"
    )]
    NotFound {
        /// The repository.
        repository: String,
        /// The Hub's address.
        endpoint: String,
    },
    /// The repository has no such branch, tag or commit.
    #[error("{repository} has no revision {revision:?}: it is a branch, a tag or a commit")]
    NoRevision {
        /// The repository.
        repository: String,
        /// What was asked for.
        revision: String,
    },
    /// The repository's owner wants its licence accepted first.
    #[error(
        "{repository} is gated: accept its licence at https://huggingface.co/{repository}, then set \
         HF_TOKEN to a token of yours{}",
        if *.has_token { " (the one that was sent may not read it)" } else { "" }
    )]
    Gated {
        /// The repository.
        repository: String,
        /// True if a token was sent.
        has_token: bool,
    },
    /// The Hub refuses without a reason that is known here.
    #[error(
        "the Hub refuses {repository} ({status}{words}): check the name and HF_TOKEN; a gated model's licence is \
         accepted at https://huggingface.co/{repository}"
    )]
    Refused {
        /// The repository.
        repository: String,
        /// HTTP's status.
        status: u16,
        /// The Hub's own words, behind a comma.
        words: String,
    },
    /// The repository is no model that Formwork reads.
    #[error("{repository} has no {missing}{}", gguf_advice(.repository, .gguf_files))]
    NotAModel {
        /// The repository.
        repository: String,
        /// The file that a model has.
        missing: String,
        /// Its GGUF files.
        gguf_files: Vec<String>,
    },
    /// The repository lacks the file that was named.
    #[error("{repository} has no file {file}{}", gguf_advice(.repository, .gguf_files))]
    NoFile {
        /// The repository.
        repository: String,
        /// What was asked for.
        file: String,
        /// Its GGUF files.
        gguf_files: Vec<String>,
    },
    /// The repository has more than one GGUF file of a tag.
    #[error("{repository} has several files for {tag}{}", gguf_advice(.repository, .gguf_files))]
    ManyFiles {
        /// The repository.
        repository: String,
        /// What was asked for.
        tag: String,
        /// The files.
        gguf_files: Vec<String>,
    },
    /// The server's answer isn't one of a Hub.
    #[error("{url} doesn't answer as the Hub does: {why}")]
    Nonsense {
        /// What was asked.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// A file has another length than was announced.
    #[error(
        "{file} of {repository}: the server has {found} bytes, and the Hub announces {announced}; run the \
         same command again, and if it comes again look at the proxy or mirror in between"
    )]
    Length {
        /// The repository.
        repository: String,
        /// Its file.
        file: String,
        /// Bytes that the Hub says it has.
        announced: u64,
        /// Bytes that the download has, or says it has.
        found: u64,
    },
    /// A file is not what the Hub's checksum says.
    #[error(
        "{file} of {repository} arrived damaged: its {kind} is {found}, and the Hub announces \
         {announced}; it was thrown away, so run the same command again, and if it comes again look at the \
         proxy or mirror in between"
    )]
    Checksum {
        /// The repository.
        repository: String,
        /// Its file.
        file: String,
        /// Which checksum.
        kind: &'static str,
        /// As the Hub has it.
        announced: String,
        /// Of what arrived.
        found: String,
    },
    /// The connection was lost again and again.
    #[error(
        "{file} of {repository} can't be downloaded (attempts: {attempts}): {why}; the same command \
         goes on where it ended"
    )]
    Interrupted {
        /// The repository.
        repository: String,
        /// Its file.
        file: String,
        /// Attempts without progress.
        attempts: u32,
        /// What ended the last one.
        why: String,
    },
    /// The disk is full, or would be.
    #[error(
        "no room for {what}: {missing} more bytes are needed in {}{}; free some, or set \
         HF_HOME to a folder on another disk, and the same command goes on",
        .cache.display(),
        .free.map(|free| format!(", where {free} are free")).unwrap_or_default()
    )]
    DiskFull {
        /// The repository, or a file of it.
        what: String,
        /// Bytes that are still to come.
        missing: u64,
        /// Bytes that are free, if it was asked before.
        free: Option<u64>,
        /// The cache.
        cache: PathBuf,
    },
    /// The cache can't be read or written.
    #[error(
        "can't use {}: {source}; the Hub's cache may be elsewhere, by HF_HOME",
        .path.display()
    )]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is nothing to remove.
    #[error("{name} is not in the cache {}; `formwork list` says what is", .cache.display())]
    NotCached {
        /// What was to be removed.
        name: String,
        /// The cache.
        cache: PathBuf,
    },
    /// Another process writes to what is to be removed.
    #[error("{repository} is being downloaded by another process: end that first")]
    InUse {
        /// The repository.
        repository: String,
    },
    /// Another file's download failed first, and its error is the one to tell.
    #[error("stopped, since another file can't be downloaded")]
    Stopped,
}

/// "in 7 s", or "later".
fn when(retry_after: Option<Duration>) -> String {
    match retry_after {
        Some(after) => format!("in {} s", after.as_secs()),
        None => "later".to_owned(),
    }
}

/// Says which GGUF files there are instead.
fn gguf_advice(repository: &str, files: &[String]) -> String {
    let Some(first) = files.first() else {
        return ", so Formwork can't run it".to_owned();
    };
    let shown: Vec<&str> = files
        .iter()
        .take(NAMES_IN_ERRORS)
        .map(String::as_str)
        .collect();
    let more = match files.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "; its GGUF files are {}{more}: name one, as in {repository}:{first}",
        shown.join(", ")
    )
}
