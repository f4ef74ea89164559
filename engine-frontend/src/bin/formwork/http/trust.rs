//! Which certificates a client takes from a server.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::verifier::{Accepted, Verifier};

/// Flags for servers with HTTPS, named as curl's.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TrustArgs {
    /// Certificates of authorities, PEM, that may have signed the server's; the system's where absent
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) cacert: Option<PathBuf>,
    /// Take any certificate. Whoever stands between here and the server can then read all of it
    #[arg(long)]
    pub(crate) insecure: bool,
}

impl TrustArgs {
    /// True if a flag is given.
    pub(crate) fn is_given(&self) -> bool {
        self.insecure || self.cacert.is_some()
    }

    /// A configuration that trusts as the flags say; `None` to trust whom the system trusts.
    ///
    /// # Errors
    /// The file can't be read, or has no certificate.
    pub(super) fn client_config(&self) -> anyhow::Result<Option<ClientConfig>> {
        if !self.is_given() {
            return Ok(None);
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?;
        let accepted = match &self.cacert {
            Some(path) => given(path, provider.clone())?,
            None => Accepted::Any,
        };
        let verifier = Verifier::new(provider, accepted);
        Ok(Some(
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth(),
        ))
    }
}

fn given(path: &Path, provider: Arc<CryptoProvider>) -> anyhow::Result<Accepted> {
    let problem = || format!("can't use --cacert {}", path.display());
    let pem = fs::read(path).with_context(problem)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .with_context(problem)?;
    if certificates.is_empty() {
        bail!("{}: it has no certificate in PEM", problem());
    }
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone()).with_context(problem)?;
    }
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    Ok(Accepted::Given {
        certificates,
        authorities: builder.build().with_context(problem)?,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused_by_name() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"no certificate\n").unwrap();
        let of = |path: &Path| TrustArgs {
            cacert: Some(path.to_owned()),
            insecure: false,
        };
        let error = of(file.path()).client_config().unwrap_err().to_string();
        assert!(error.ends_with("it has no certificate in PEM"), "{error}");
        let nowhere = of(Path::new("/nonexistent")).client_config().unwrap_err();
        assert_eq!(nowhere.to_string(), "can't use --cacert /nonexistent");
        assert!(TrustArgs::default().client_config().unwrap().is_none());
    }
}
