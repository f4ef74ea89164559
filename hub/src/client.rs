//! Requests to the Hub, and to where it redirects.
//!
//! Redirects are followed here rather than by the library, since two things hang on them: the token goes
//! to the endpoint's own host alone, and a redirect to another host ends a question about a file, whose
//! answer is the Hub's.

use std::sync::Arc;
use std::time::Duration;

use ureq::http::header::{ACCEPT_ENCODING, AUTHORIZATION, LOCATION, RANGE};
use ureq::http::{Response, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::error::HubError;
use crate::limits::{CONNECT_TIMEOUT, READ_TIMEOUT, REDIRECTS};
use crate::retry::RequestError;
use crate::settings::HubSettings;

/// How a request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// For the headers alone. A redirect to another host is the answer.
    Head,
    /// For the body from this byte on. Redirects are followed wherever they lead.
    Get { from: u64 },
}

/// An HTTP client of one Hub.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    endpoint: String,
    /// The whole value of the header.
    authorization: Option<String>,
    /// The variable or file that has the token.
    token_source: Option<String>,
}

impl Client {
    /// A client with the settings' token. Nothing is asked yet.
    ///
    /// # Errors
    /// The token can't be sent, or no certificate is there to know the Hub by.
    pub(crate) fn new(settings: &HubSettings) -> Result<Self, HubError> {
        let token = settings.token.as_ref();
        let authorization = token.map(|token| token.authorization()).transpose()?;
        let certificates = rustls_native_certs::load_native_certs().certs;
        if certificates.is_empty() && settings.endpoint.starts_with("https://") {
            return Err(HubError::NoCertificates {
                endpoint: shown(&settings.endpoint),
            });
        }
        let certificates: Vec<Certificate<'static>> = certificates
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned())
            .collect();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(certificates)))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let mut config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_per_read(Some(READ_TIMEOUT))
            .user_agent(concat!("formwork/", env!("CARGO_PKG_VERSION")));
        if !settings.uses_proxy {
            config = config.proxy(None);
        }
        Ok(Self {
            agent: config.build().new_agent(),
            endpoint: settings.endpoint.clone(),
            authorization,
            token_source: token.map(|token| token.source().to_owned()),
        })
    }

    /// The variable or file that has the token, if requests to the endpoint bring one.
    pub(crate) fn token_source(&self) -> Option<&str> {
        self.token_source.as_deref()
    }

    /// The endpoint as errors have it.
    pub(crate) fn shown_endpoint(&self) -> String {
        shown(&self.endpoint)
    }

    /// An address below the endpoint as errors have it.
    pub(crate) fn shown_url(&self, path: &str) -> String {
        shown(&format!("{}{path}", self.endpoint))
    }

    /// Asks for an address below the endpoint, `path` being encoded. The response is of whatever status, and
    /// its head has come within `timeout`.
    pub(crate) fn send(
        &self,
        path: &str,
        request: Request,
        timeout: Duration,
    ) -> Result<Response<Body>, RequestError> {
        let mut url = format!("{}{path}", self.endpoint);
        for _ in 0..REDIRECTS {
            let response = self.send_once(&url, request, timeout)?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let location = response.headers().get(LOCATION);
            let Some(location) = location.and_then(|location| location.to_str().ok()) else {
                return Ok(response);
            };
            let next = resolved(&url, location).ok_or_else(|| RequestError {
                why: format!("{} redirects to {:?}", shown(&url), shown(location)),
                ..RequestError::default()
            })?;
            if request == Request::Head && host_of(&next) != host_of(&url) {
                return Ok(response);
            }
            url = next;
        }
        Err(RequestError {
            why: format!(
                "more than {REDIRECTS} redirects, the last to {}",
                shown(&url)
            ),
            ..RequestError::default()
        })
    }

    fn send_once(
        &self,
        url: &str,
        request: Request,
        timeout: Duration,
    ) -> Result<Response<Body>, RequestError> {
        let mut builder = match request {
            Request::Head => self.agent.head(url),
            Request::Get { .. } => self.agent.get(url),
        };
        // Lengths are then those of the file.
        builder = builder.header(ACCEPT_ENCODING, "identity");
        if let Request::Get { from: from @ 1.. } = request {
            builder = builder.header(RANGE, format!("bytes={from}-"));
        }
        if let Some(authorization) = &self.authorization
            && host_of(url) == host_of(&self.endpoint)
        {
            builder = builder.header(AUTHORIZATION, authorization);
        }
        let builder = builder
            .config()
            .timeout_connect(Some(timeout.min(CONNECT_TIMEOUT)))
            .timeout_recv_response(Some(timeout));
        Ok(builder.build().call()?)
    }
}

/// An address without what is secret: the password before its host, and the signature behind its path.
pub(crate) fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// Scheme, host and port of an address.
fn host_of(url: &str) -> Option<(String, String)> {
    let uri: Uri = url.parse().ok()?;
    Some((
        uri.scheme_str()?.to_owned(),
        uri.authority()?.as_str().to_ascii_lowercase(),
    ))
}

/// The address that a redirect from `url` leads to. `None` if it is none, or one without TLS from one
/// with.
fn resolved(url: &str, location: &str) -> Option<String> {
    let (scheme, authority) = host_of(url)?;
    if location.starts_with('/') && !location.starts_with("//") {
        return Some(format!("{scheme}://{authority}{location}"));
    }
    let (next, _) = host_of(location)?;
    let is_safe = next == "https" || (next == "http" && scheme == "http");
    is_safe.then(|| location.to_owned())
}

/// A part of a path, encoded for an address. `keeps_slashes` for the path of a file.
pub(crate) fn encoded(text: &str, keeps_slashes: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            b'/' if keeps_slashes => encoded.push('/'),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_to_addresses_and_never_out_of_tls() {
        let from = "https://hub.example/o/n/resolve/main/f";
        for (location, next) in [
            ("/api/x?y=1", Some("https://hub.example/api/x?y=1")),
            ("https://cdn.example/f", Some("https://cdn.example/f")),
            ("http://cdn.example/f", None),
            ("//cdn.example/f", None),
            ("ftp://cdn.example/f", None),
            ("f", None),
        ] {
            assert_eq!(resolved(from, location).as_deref(), next, "{location}");
        }
        let plain = resolved("http://127.0.0.1:1/f", "http://127.0.0.1:2/f");
        assert_eq!(plain.as_deref(), Some("http://127.0.0.1:2/f"));
    }

    #[test]
    fn secrets_of_addresses_are_not_shown() {
        for (url, text) in [
            ("http://u:p@h:1", "http://h:1"),
            ("https://u:p@ss@h/a@b?X-Signature=s", "https://h/a@b"),
            ("https://h/f#x", "https://h/f"),
            ("/f?s", "/f"),
        ] {
            assert_eq!(shown(url), text);
        }
    }

    #[test]
    fn another_port_is_another_host() {
        assert_ne!(host_of("http://h:1/f"), host_of("http://h:2/f"));
        assert_ne!(host_of("http://h/f"), host_of("https://h/f"));
        assert_eq!(host_of("http://H:1/f"), host_of("http://h:1"));
    }

    #[test]
    fn names_are_encoded() {
        assert_eq!(encoded("refs/pr/1", false), "refs%2Fpr%2F1");
        assert_eq!(encoded("a b/é?.json", true), "a%20b/%C3%A9%3F.json");
    }
}
