//! [`Anchored`]: also trusts a peer whose own certificate is one of the trusted certificates.
//!
//! `openssl req -x509` makes a self-signed certificate that may sign others (CA:TRUE). OpenSSL, and so redis-server,
//! accepts this certificate from a peer if the certificate itself is trusted. webpki refuses an authority's certificate
//! from a peer before it looks at the trusted certificates.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// A verifier that asks `V` first.
#[derive(Debug)]
pub struct Anchored<V: ?Sized> {
    trusted: Vec<CertificateDer<'static>>,
    verifier: Arc<V>,
    /// The name in a server's certificate matters.
    checks_name: bool,
}

/// The extension "extended key usage" (RFC 5280, section 4.2.1.12), as an object identifier in DER.
const EXTENDED_KEY_USAGE: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x25];
/// The purpose "any".
const ANY_PURPOSE: [u8; 6] = [0x06, 0x04, 0x55, 0x1d, 0x25, 0x00];
/// The purposes of a peer: to be a server, and to be a client.
const SERVER: [u8; 10] = [0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT: [u8; 10] = [0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

impl<V: ?Sized> Anchored<V> {
    /// Trusts what `verifier` trusts, and a peer whose certificate is in `trusted`.
    pub fn new(trusted: Vec<CertificateDer<'static>>, verifier: Arc<V>) -> Anchored<V> {
        Anchored { trusted, verifier, checks_name: true }
    }
    /// Trusts a server whatever name its certificate has.
    #[must_use]
    pub fn of_any_name(mut self) -> Anchored<V> {
        self.checks_name = false;
        self
    }
    /// True when the peer's certificate is refused only because it may sign others, and is itself trusted for this
    /// purpose. webpki checks the certificate's period of validity before CA:TRUE, and its purposes after it.
    fn is_own_anchor(&self, peer: &CertificateDer<'_>, purpose: &[u8], refusal: &Error) -> bool {
        may_sign_others(refusal)
            && self.trusted.iter().any(|trusted| trusted == peer)
            && may_serve(peer, purpose)
    }
}

/// True when the certificate names no purposes, or this one. The bytes of the names are searched in the whole certificate,
/// whose content is trusted.
fn may_serve(certificate: &[u8], purpose: &[u8]) -> bool {
    let has = |name: &[u8]| certificate.windows(name.len()).any(|bytes| bytes == name);
    !has(&EXTENDED_KEY_USAGE) || has(purpose) || has(&ANY_PURPOSE)
}

/// True when `refusal` says that the peer's certificate is one of an authority (CA:TRUE).
pub fn may_sign_others(refusal: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(other)) = refusal else { return false };
    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// The methods about signatures, which both traits have. The inner verifier checks signatures.
macro_rules! forward_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.verifier.verify_tls12_signature(message, certificate, signature)
        }
        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.verifier.verify_tls13_signature(message, certificate, signature)
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.verifier.supported_verify_schemes()
        }
    };
}

impl ServerCertVerifier for Anchored<WebPkiServerVerifier> {
    fn verify_server_cert(
        &self,
        peer: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.verifier.verify_server_cert(peer, intermediates, name, ocsp_response, now) {
            Err(refusal) if self.is_own_anchor(peer, &SERVER, &refusal) => {
                if self.checks_name {
                    verify_server_name(&ParsedCertificate::try_from(peer)?, name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            // rustls checks the name last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }
    forward_signatures!();
}

impl ClientCertVerifier for Anchored<dyn ClientCertVerifier> {
    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }
    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }
    fn verify_client_cert(
        &self,
        peer: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.verifier.verify_client_cert(peer, intermediates, now) {
            Err(refusal) if self.is_own_anchor(peer, &CLIENT, &refusal) => {
                Ok(ClientCertVerified::assertion())
            }
            verified => verified,
        }
    }
    forward_signatures!();
}
