//! Where a server is, and the way there.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, bail};
use hyper::Uri;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

/// A server's address.
#[derive(Debug)]
pub(crate) struct Server {
    place: Place,
    /// For the header `Host`.
    pub(super) host: String,
    /// What stands before every path; without `/v1`, which paths bring.
    pub(super) prefix: String,
    config: OnceLock<Arc<ClientConfig>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    Unix(PathBuf),
    Tcp { host: String, port: u16, tls: bool },
}

/// TCP or Unix, secure or not.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> ByteStream for S {}

impl Server {
    /// Reads a URL.
    ///
    /// # Errors
    /// It isn't one of a server.
    pub(crate) fn parse(url: &str) -> anyhow::Result<Self> {
        if let Some(path) = url.strip_prefix("unix:") {
            return Ok(Self::new(Place::Unix(path.into()), "localhost", ""));
        }
        let with_scheme = match url.contains("://") {
            true => url.to_owned(),
            false => format!("http://{url}"),
        };
        let uri: Uri = with_scheme.parse().ok().with_context(|| {
            format!("{url:?} is no URL such as http://localhost:8000/v1 or unix:/run/formwork.sock")
        })?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!("{url:?} begins with neither http:, https: nor unix:"),
        };
        let authority = uri
            .authority()
            .with_context(|| format!("{url:?} names no host"))?;
        // An IPv6 address stands in brackets.
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let host = match host {
            // "All of this machine's", which a server may print: one of them.
            "0.0.0.0" => "127.0.0.1",
            "::" => "::1",
            host => host,
        };
        let place = Place::Tcp {
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            tls,
        };
        let prefix = uri.path().trim_end_matches('/');
        let prefix = prefix.strip_suffix("/v1").unwrap_or(prefix);
        Ok(Self::new(place, authority.as_str(), prefix))
    }

    fn new(place: Place, host: &str, prefix: &str) -> Self {
        Self {
            place,
            host: host.to_owned(),
            prefix: prefix.to_owned(),
            config: OnceLock::new(),
        }
    }

    /// The same server, trusted as `config` says.
    pub(super) fn with_tls(self, config: ClientConfig) -> Self {
        Self {
            config: OnceLock::from(Arc::new(config)),
            ..self
        }
    }

    /// A connection.
    pub(super) async fn connect(&self) -> anyhow::Result<Pin<Box<dyn ByteStream>>> {
        match &self.place {
            Place::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                let stream =
                    stream.with_context(|| format!("can't connect to {}", path.display()))?;
                Ok(Box::pin(stream))
            }
            Place::Tcp { host, port, tls } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = stream.with_context(|| format!("can't connect to {host}:{port}"))?;
                stream.set_nodelay(true)?;
                if !tls {
                    return Ok(Box::pin(stream));
                }
                let name = ServerName::try_from(host.clone())?;
                let stream = self.connector()?.connect(name, stream).await;
                Ok(Box::pin(stream.with_context(|| {
                    format!("no secure connection to {host}:{port}")
                })?))
            }
        }
    }

    /// Trusts whom the system trusts, or `SSL_CERT_FILE`.
    fn connector(&self) -> anyhow::Result<TlsConnector> {
        if let Some(config) = self.config.get() {
            return Ok(TlsConnector::from(config.clone()));
        }
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let reason = found.errors.into_iter().next();
            let reason = reason.map_or_else(|| io::Error::other("none is there"), io::Error::other);
            return Err(reason).context("can't read this system's certificates");
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let config = self.config.get_or_init(|| Arc::new(config));
        Ok(TlsConnector::from(config.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, tls: bool) -> Place {
        let host = host.to_owned();
        Place::Tcp { host, port, tls }
    }

    #[test]
    fn urls_as_people_write_them() {
        for (url, place, prefix) in [
            ("http://localhost:8000", tcp("localhost", 8000, false), ""),
            (
                "http://localhost:8000/v1",
                tcp("localhost", 8000, false),
                "",
            ),
            (
                "http://localhost:8000/v1/",
                tcp("localhost", 8000, false),
                "",
            ),
            ("localhost:8000", tcp("localhost", 8000, false), ""),
            (
                "https://example.com/llm/v1",
                tcp("example.com", 443, true),
                "/llm",
            ),
            ("http://[::1]:80", tcp("::1", 80, false), ""),
            ("http://0.0.0.0:8000", tcp("127.0.0.1", 8000, false), ""),
            ("http://[::]:8000", tcp("::1", 8000, false), ""),
            ("unix:/run/f.sock", Place::Unix("/run/f.sock".into()), ""),
        ] {
            let server = Server::parse(url).unwrap();
            assert_eq!(
                (server.place, server.prefix.as_str()),
                (place, prefix),
                "{url}"
            );
        }
        for url in ["", "ftp://a", "http://", "http://a b"] {
            assert!(Server::parse(url).is_err(), "{url}");
        }
    }
}
