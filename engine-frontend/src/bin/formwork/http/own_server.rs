//! A secure connection to a server on this machine, to ask how it is.
//!
//! Its certificate names a host by which others reach it, and is often signed for them by an authority
//! that this machine doesn't know; so it is not asked for a name. The address is from a file that the
//! server wrote, and the question holds no secret: whoever stood in the server's place could do no more
//! than to answer it.

use std::io;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, Error, version};

use super::verifier::{Accepted, Verifier};

/// With TLS 1.2, where a server that wants a certificate says so before the question is sent: then
/// nothing that is on its way can push its answer out.
pub(super) fn client_config() -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Verifier::new(provider.clone(), Accepted::Any));
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
