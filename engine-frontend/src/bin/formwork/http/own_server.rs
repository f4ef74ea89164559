//! A secure connection to a server on this machine, to ask how it is.
//!
//! Its certificate names a host by which others reach it, and is often signed for them by an authority
//! that this machine doesn't know; so it is not asked for a name. The address is from a file that the
//! server wrote, and the question holds no secret: whoever stood in the server's place could do no more
//! than to answer it.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, version};

/// Takes any certificate whose key the server has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// With TLS 1.2, where a server that wants a certificate says so before the question is sent: then
/// nothing that is on its way can push its answer out.
pub(super) fn client_config() -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(AnyCertificate(provider.clone()));
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS12])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// Whether the server answered, but not to somebody without a certificate: there is nothing else in
/// [`client_config`] that it could refuse.
pub(crate) fn wants_certificate(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let inner = cause.downcast_ref().and_then(io::Error::get_ref);
        let tls = inner.and_then(|inner| inner.downcast_ref());
        matches!(tls, Some(Error::AlertReceived(_)))
    })
}
