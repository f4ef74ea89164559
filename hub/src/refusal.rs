//! The Hub's refusals, told apart by status, `X-Error-Code` and `X-Error-Message`.

use ureq::http::{HeaderMap, StatusCode};

use crate::client::Client;
use crate::error::HubError;
use crate::name::HubName;

/// The message by which a token is refused that the Hub doesn't know. A status 401 without it hides a
/// repository.
const UNKNOWN_TOKEN: &str = "Invalid credentials in Authorization header";

/// The error that the Hub's answer is about a repository, or about one file of it.
pub(crate) fn refusal(
    client: &Client,
    name: &HubName,
    file: Option<&str>,
    status: StatusCode,
    headers: &HeaderMap,
) -> HubError {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let words = header("x-error-message").unwrap_or_default();
    let code = header("x-error-code").unwrap_or_default();
    let repository = name.repository.clone();
    match (code, status.as_u16(), file) {
        ("GatedRepo", ..) => HubError::Gated {
            repository,
            has_token: client.token_source().is_some(),
        },
        ("RevisionNotFound", ..) => HubError::NoRevision {
            repository,
            revision: name.revision().to_owned(),
        },
        ("EntryNotFound", _, Some(file)) | ("", 404, Some(file)) => HubError::NoFile {
            repository,
            file: file.to_owned(),
            gguf_files: Vec::new(),
        },
        (_, 401, _) if words == UNKNOWN_TOKEN => HubError::UnknownToken {
            endpoint: client.shown_endpoint(),
            source_name: client.token_source().unwrap_or("HF_TOKEN").to_owned(),
        },
        // The Hub gives 401 for what doesn't exist as well, often without a code.
        ("RepoNotFound", ..) | ("", 401 | 404, _) => HubError::NotFound {
            repository,
            endpoint: client.shown_endpoint(),
        },
        (_, status, _) => HubError::Refused {
            repository,
            status,
            words: match words {
                "" => String::new(),
                words => format!(", {words}"),
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{HubSettings, Token};

    #[test]
    fn each_refusal_says_what_to_do() {
        let client = |token| {
            Client::new(&HubSettings {
                endpoint: "http://u:p@h".to_owned(),
                token,
                ..HubSettings::for_tests()
            })
            .unwrap()
        };
        let name = HubName::parse("o/n@v1").unwrap();
        for (status, code, words, file, told) in [
            (403, "GatedRepo", "", None, "o/n is gated: "),
            (
                404,
                "RevisionNotFound",
                "",
                None,
                "o/n has no revision \"v1\": ",
            ),
            (404, "EntryNotFound", "", Some("f"), "o/n has no file f, "),
            (404, "", "", Some("f"), "o/n has no file f, "),
            (
                401,
                "",
                UNKNOWN_TOKEN,
                None,
                "the Hub at http://h doesn't know the token of HF_TOKEN",
            ),
            (
                401,
                "",
                "Invalid username or password.",
                None,
                "the Hub at http://h has no model o/n, ",
            ),
            (
                401,
                "RepoNotFound",
                "",
                None,
                "the Hub at http://h has no model o/n, ",
            ),
            (404, "", "", None, "the Hub at http://h has no model o/n, "),
            (
                403,
                "DisabledRepo",
                "Access to this resource is disabled.",
                None,
                "the Hub refuses o/n (403, Access to this resource is disabled.): ",
            ),
            (400, "", "", None, "the Hub refuses o/n (400): "),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [("x-error-code", code), ("x-error-message", words)] {
                if !value.is_empty() {
                    headers.insert(name, value.parse().unwrap());
                }
            }
            let status = StatusCode::from_u16(status).unwrap();
            for token in [None, Some(Token::new("t", "HF_TOKEN"))] {
                let error = refusal(&client(token), &name, file, status, &headers).to_string();
                assert!(error.starts_with(told), "{error}");
            }
        }
    }
}
