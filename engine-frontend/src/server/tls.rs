//! HTTPS.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::error::ServeError;

/// What makes connections secure, from a certificate chain and its key in PEM. With `ca_certs`
/// clients must show a certificate that one of these authorities has signed.
pub(super) fn acceptor(
    certfile: &Path,
    keyfile: &Path,
    ca_certs: Option<&Path>,
) -> Result<TlsAcceptor, ServeError> {
    let problem = |path: &Path, problem: String| ServeError::Tls {
        path: path.to_owned(),
        problem,
    };
    let read = |path: &Path| fs::read(path).map_err(|error| problem(path, error.to_string()));
    let chain = CertificateDer::pem_slice_iter(&read(certfile)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| problem(certfile, format!("{error:?}")))?;
    if chain.is_empty() {
        return Err(problem(certfile, "it holds no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(keyfile)?)
        .map_err(|error| problem(keyfile, format!("it holds no private key: {error:?}")))?;
    let clients = match ca_certs {
        None => WebPkiClientVerifier::no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(&read(path)?) {
                let certificate =
                    certificate.map_err(|error| problem(path, format!("{error:?}")))?;
                let added = roots.add(certificate);
                added.map_err(|error| problem(path, error.to_string()))?;
            }
            let provider = Arc::new(ring::default_provider());
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| problem(path, error.to_string()))?
        }
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| problem(certfile, error.to_string()))?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(|error| problem(certfile, error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
