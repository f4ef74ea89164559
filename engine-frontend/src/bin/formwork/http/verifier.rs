//! Servers' certificates that the system's authorities didn't sign.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// Takes certificates whose key the server has, of those that are accepted.
#[derive(Debug)]
pub(super) struct Verifier {
    provider: Arc<CryptoProvider>,
    accepted: Accepted,
}

/// The certificates that a [`Verifier`] takes.
#[derive(Debug)]
pub(super) enum Accepted {
    /// All.
    Any,
    /// These, and those that the authorities among them signed for the server's name.
    Given {
        certificates: Vec<CertificateDer<'static>>,
        authorities: Arc<WebPkiServerVerifier>,
    },
}

impl Verifier {
    pub(super) fn new(provider: Arc<CryptoProvider>, accepted: Accepted) -> Self {
        Self { provider, accepted }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.accepted {
            Accepted::Any => Ok(ServerCertVerified::assertion()),
            // A server's own certificate, which `openssl req -x509` makes an authority's, is no end
            // entity for webpki. Whoever names it means it.
            Accepted::Given { certificates, .. } if certificates.contains(certificate) => {
                Ok(ServerCertVerified::assertion())
            }
            Accepted::Given { authorities, .. } => {
                authorities.verify_server_cert(certificate, intermediates, name, ocsp, now)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
