//! What the Hub says of a repository and of its files.

use std::collections::HashMap;
use std::io::Read;
use std::time::Duration;

use serde::Deserialize;
use ureq::http::header::{CONTENT_LENGTH, ETAG};
use ureq::http::{HeaderMap, StatusCode};

use crate::client::{Client, Request, encoded};
use crate::digest::{blob_name, is_checksum};
use crate::error::HubError;
use crate::limits::{LARGEST_JSON, QUESTION_ATTEMPTS, READ_TIMEOUT};
use crate::name::{HubName, is_relative_path};
use crate::refusal::refusal;
use crate::retry::{RequestError, Retry};
use crate::settings::HubSettings;

/// A revision of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The commit, of 40 hexadecimal digits.
    pub(crate) commit: String,
    /// Its files' paths, all of which stay inside of a folder.
    pub(crate) files: Vec<String>,
    /// The files whose checksum and length the listing has. A mirror's may have none.
    pub(crate) known: HashMap<String, RemoteFile>,
}

/// What a file is, before any of it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteFile {
    /// Its path in the repository.
    pub(crate) path: String,
    /// Name of its content in the cache, by [`blob_name`].
    pub(crate) blob: String,
    pub(crate) bytes: u64,
}

#[derive(Deserialize)]
struct ModelInfo {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
}

impl Sibling {
    /// Its checksum and length, if both are said.
    fn known(&self) -> Option<RemoteFile> {
        let lfs = self.lfs.as_ref().and_then(|lfs| lfs.sha256.as_ref());
        let checksum = match self.lfs {
            Some(_) => lfs,
            None => self.blob_id.as_ref(),
        };
        Some(RemoteFile {
            path: self.rfilename.clone(),
            blob: checksum.filter(|text| is_checksum(text))?.clone(),
            bytes: self.size?,
        })
    }
}

/// How long the Hub is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) attempts: u32,
    pub(crate) pause: Duration,
    /// Time for the head of an answer.
    pub(crate) timeout: Duration,
}

impl Patience {
    /// Patience of someone who has the model already, or who needs the Hub.
    pub(crate) fn new(settings: &HubSettings, has_model: bool) -> Self {
        Self {
            attempts: if has_model { 1 } else { QUESTION_ATTEMPTS },
            pause: settings.retry_pause,
            timeout: if has_model {
                settings.answer_timeout
            } else {
                READ_TIMEOUT
            },
        }
    }
}

/// Asks for a revision's commit and files.
pub(crate) fn list(
    client: &Client,
    patience: Patience,
    name: &HubName,
) -> Result<Listing, HubError> {
    let path = format!(
        "/api/models/{}/revision/{}?blobs=true",
        name.repository,
        encoded(name.revision(), false)
    );
    let nonsense = |why: String| HubError::Nonsense {
        url: client.shown_url(&path),
        why,
    };
    let (status, headers, text) = ask(client, patience, || {
        let response = client.send(&path, Request::Get { from: 0 }, patience.timeout)?;
        let (parts, body) = response.into_parts();
        let mut text = Vec::new();
        if parts.status.is_success() {
            let mut body = body.into_reader().take(LARGEST_JSON);
            let read = body.read_to_end(&mut text);
            read.map_err(|error| RequestError::transient(error.to_string()))?;
        }
        Ok((parts.status, parts.headers, text))
    })?;
    if !status.is_success() {
        return Err(refusal(client, name, None, status, &headers));
    }
    let info: ModelInfo =
        serde_json::from_slice(&text).map_err(|error| nonsense(error.to_string()))?;
    if !is_commit(&info.sha) {
        return Err(nonsense(format!("{:?} is no commit", info.sha)));
    }
    let siblings = info.siblings.into_iter();
    // Others would lie outside of the snapshot's folder, and no model has one.
    let siblings = siblings.filter(|sibling| is_relative_path(&sibling.rfilename));
    let (mut files, mut known) = (Vec::new(), HashMap::new());
    for sibling in siblings {
        if let Some(file) = sibling.known() {
            known.insert(sibling.rfilename.clone(), file);
        }
        files.push(sibling.rfilename);
    }
    Ok(Listing {
        commit: info.sha,
        files,
        known,
    })
}

/// Asks for a file's checksum and size, where the listing has none.
pub(crate) fn describe(
    client: &Client,
    patience: Patience,
    name: &HubName,
    commit: &str,
    file: &str,
) -> Result<RemoteFile, HubError> {
    let path = resolve_path(&name.repository, commit, file);
    let nonsense = |why: &str| HubError::Nonsense {
        url: client.shown_url(&path),
        why: why.to_owned(),
    };
    let (status, headers, ()) = ask(client, patience, || {
        let response = client.send(&path, Request::Head, patience.timeout)?;
        Ok((response.status(), response.headers().clone(), ()))
    })?;
    if !status.is_success() && !status.is_redirection() {
        return Err(refusal(client, name, Some(file), status, &headers));
    }
    if header(&headers, "x-repo-commit").is_some_and(|other| other != commit) {
        return Err(nonsense("it has another commit than was asked for"));
    }
    let etag = header(&headers, "x-linked-etag").or_else(|| header(&headers, ETAG.as_str()));
    let etag = etag.and_then(plain_etag);
    let length = match status.is_redirection() {
        // Its length is that of the redirect.
        true => None,
        false => header(&headers, CONTENT_LENGTH.as_str()),
    };
    let bytes = header(&headers, "x-linked-size").or(length);
    let etag = etag.ok_or_else(|| nonsense("it has no usable ETag"))?;
    let bytes = bytes.and_then(|bytes| bytes.parse().ok());
    let bytes = bytes.ok_or_else(|| nonsense("it has no length"))?;
    Ok(RemoteFile {
        path: file.to_owned(),
        blob: blob_name(etag, file, bytes),
        bytes,
    })
}

/// The path of a file's content at the endpoint.
pub(crate) fn resolve_path(repository: &str, commit: &str, file: &str) -> String {
    format!("/{repository}/resolve/{commit}/{}", encoded(file, true))
}

/// True for 40 hexadecimal digits.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Asks until the Hub is not busy.
fn ask<T>(
    client: &Client,
    patience: Patience,
    mut once: impl FnMut() -> Result<(StatusCode, HeaderMap, T), RequestError>,
) -> Result<(StatusCode, HeaderMap, T), HubError> {
    let mut retry = Retry::new(patience.attempts, patience.pause);
    let endpoint = client.shown_endpoint();
    loop {
        let error = match once() {
            Ok(answer) => match RequestError::of_busy(answer.0, &answer.1) {
                Some(busy) => busy,
                None => return Ok(answer),
            },
            Err(error) => error,
        };
        if retry.wait(&format!("the Hub at {endpoint}"), &error) {
            continue;
        }
        return Err(match error.busy {
            Some(status) => HubError::Busy {
                endpoint,
                status: status.to_string(),
                retry_after: error.retry_after,
                wants_token: status == StatusCode::TOO_MANY_REQUESTS
                    && client.token_source().is_none(),
            },
            None => HubError::Unreachable {
                endpoint,
                why: error.why,
            },
        });
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// An ETag without its quotes, if it can name a file.
fn plain_etag(etag: &str) -> Option<String> {
    const LONGEST: usize = 128;
    let etag = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let is_name = !etag.is_empty() && etag.len() <= LONGEST && etag.bytes().all(is_plain);
    is_name.then(|| etag.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_are_names_of_files_or_nothing() {
        for (etag, name) in [
            ("\"abc-1\"", Some("abc-1")),
            ("W/\"abc\"", Some("abc")),
            ("abc", Some("abc")),
            ("\"\"", None),
            ("\"../abc\"", None),
            ("\"a.incomplete\"", None),
        ] {
            assert_eq!(plain_etag(etag).as_deref(), name, "{etag}");
        }
        assert_eq!(plain_etag(&"a".repeat(129)), None);
        assert!(is_commit(&"0a".repeat(20)));
        assert!(!is_commit(&"0A".repeat(20)) && !is_commit("abc"));
    }
}
