//! What the Hub says of a repository and of its files.

use std::io::Read;

use serde::Deserialize;
use ureq::http::header::{CONTENT_LENGTH, ETAG};
use ureq::http::{HeaderMap, StatusCode};

use crate::client::{Client, Request, RequestError, encoded};
use crate::error::HubError;
use crate::limits::LARGEST_JSON;
use crate::name::{HubName, is_relative_path};
use crate::settings::HubSettings;

/// Attempts to get an answer of the Hub itself. There are few: the cache may have the model.
const ATTEMPTS: u32 = 3;

/// A revision of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The commit, of 40 hexadecimal digits.
    pub(crate) commit: String,
    /// Its files' paths, all of which stay inside of a folder.
    pub(crate) files: Vec<String>,
}

/// What a file is, before any of it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteFile {
    /// Its path in the repository.
    pub(crate) path: String,
    /// Its checksum, or what a mirror has instead. It is the plain name of a file.
    pub(crate) etag: String,
    pub(crate) bytes: u64,
}

#[derive(Deserialize)]
struct ModelInfo {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

/// Asks for a revision's commit and files.
pub(crate) fn list(
    client: &Client,
    settings: &HubSettings,
    name: &HubName,
) -> Result<Listing, HubError> {
    let path = format!(
        "/api/models/{}/revision/{}",
        name.repository,
        encoded(name.revision(), false)
    );
    let nonsense = |why: String| HubError::Nonsense {
        url: format!("{}{path}", settings.endpoint),
        why,
    };
    let info = with_retries(settings, || {
        let response = client.send(&path, Request::Get { from: 0 })?;
        let (parts, body) = response.into_parts();
        check_status(parts.status)?;
        let mut text = Vec::new();
        if parts.status.is_success() {
            let mut body = body.into_reader().take(LARGEST_JSON);
            body.read_to_end(&mut text).map_err(|error| RequestError {
                why: error.to_string(),
                is_transient: true,
            })?;
        }
        Ok((parts.status, parts.headers, text))
    });
    let (status, headers, text) = info.map_err(|error| HubError::Unreachable {
        endpoint: settings.endpoint.clone(),
        why: error.why,
    })?;
    if !status.is_success() {
        return Err(refusal(client, settings, name, status, &headers));
    }
    let info: ModelInfo =
        serde_json::from_slice(&text).map_err(|error| nonsense(error.to_string()))?;
    if !is_commit(&info.sha) {
        return Err(nonsense(format!("{:?} is no commit", info.sha)));
    }
    let files = info.siblings.into_iter().map(|sibling| sibling.rfilename);
    Ok(Listing {
        commit: info.sha,
        // Others would lie outside of the snapshot's folder, and no model has one.
        files: files.filter(|file| is_relative_path(file)).collect(),
    })
}

/// Asks for a file's checksum and size.
pub(crate) fn describe(
    client: &Client,
    settings: &HubSettings,
    name: &HubName,
    commit: &str,
    file: &str,
) -> Result<RemoteFile, HubError> {
    let path = resolve_path(&name.repository, commit, file);
    let nonsense = |why: &str| HubError::Nonsense {
        url: format!("{}{path}", settings.endpoint),
        why: why.to_owned(),
    };
    let answer = with_retries(settings, || {
        let response = client.send(&path, Request::Head)?;
        check_status(response.status())?;
        Ok((response.status(), response.headers().clone()))
    });
    let (status, headers) = answer.map_err(|error| HubError::Unreachable {
        endpoint: settings.endpoint.clone(),
        why: error.why,
    })?;
    if !status.is_success() && !status.is_redirection() {
        return Err(refusal(client, settings, name, status, &headers));
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
    Ok(RemoteFile {
        path: file.to_owned(),
        etag: etag.ok_or_else(|| nonsense("it has no usable ETag"))?,
        bytes: bytes
            .and_then(|bytes| bytes.parse().ok())
            .ok_or_else(|| nonsense("it has no length"))?,
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

/// A status that another attempt may not get is an error of the request.
fn check_status(status: StatusCode) -> Result<(), RequestError> {
    match status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        true => Err(RequestError {
            why: format!("it answers {status}"),
            is_transient: true,
        }),
        false => Ok(()),
    }
}

fn with_retries<T>(
    settings: &HubSettings,
    mut ask: impl FnMut() -> Result<T, RequestError>,
) -> Result<T, RequestError> {
    let mut pause = settings.retry_pause;
    for _ in 1..ATTEMPTS {
        match ask() {
            Err(error) if error.is_transient => std::thread::sleep(pause),
            answered => return answered,
        }
        pause = pause.saturating_mul(2);
    }
    ask()
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

/// Why the Hub doesn't give a repository's listing or file.
pub(crate) fn refusal(
    client: &Client,
    settings: &HubSettings,
    name: &HubName,
    status: StatusCode,
    headers: &HeaderMap,
) -> HubError {
    let repository = name.repository.clone();
    let code = header(headers, "x-error-code").unwrap_or_default();
    match (code, status.as_u16()) {
        ("GatedRepo", _) => HubError::Gated {
            repository,
            has_token: client.has_token(),
        },
        ("RevisionNotFound", _) => HubError::NoRevision {
            repository,
            revision: name.revision().to_owned(),
        },
        // The Hub gives 401 for what doesn't exist as well, to whoever sends no token.
        ("RepoNotFound", _) | (_, 404) => HubError::NotFound {
            repository,
            endpoint: settings.endpoint.clone(),
        },
        (_, status) => HubError::Refused { repository, status },
    }
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
