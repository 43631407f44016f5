//! [`Tls`]: the certificates of a client. The cryptography is from ring, as in the server.

use crate::Anchored;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The system's certificate bundles on Debian and other systems.
const SYSTEM_ROOTS: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
/// Maximum number of files that are read from `--cacertdir`.
const CERTIFICATE_FILES_MAX: usize = 10_000;

/// What a client trusts, and with which certificate the client logs in. `default()` trusts the system's certificates.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// The server name to request (SNI), instead of the host's.
    pub sni: Option<String>,
    /// A file of trusted certificates. Without it and `cacertdir`, the system's file is used.
    pub cacert: Option<PathBuf>,
    /// A folder of trusted certificates.
    pub cacertdir: Option<PathBuf>,
    /// Trust any server certificate.
    pub insecure: bool,
    /// The files of the client's certificate and of its private key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The certificates of a client, read from their files.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    sni: Option<String>,
}

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The client's private key cannot be read.
    #[error("Failed to load private key: {}: {why}", file.display())]
    Key {
        /// The file with the key.
        file: PathBuf,
        /// Why the file has no usable key.
        why: rustls::pki_types::pem::Error,
    },
    /// A certificate cannot be read.
    #[error("Failed to load certificate: {}: {why}", file.display())]
    Certificate {
        /// The file with the certificate.
        file: PathBuf,
        /// Why the file has no usable certificate.
        why: rustls::pki_types::pem::Error,
    },
    /// The folder of certificates cannot be read.
    #[error("{}: {why}", folder.display())]
    Folder {
        /// The path of the folder.
        folder: PathBuf,
        /// The system's error.
        why: std::io::Error,
    },
    /// There is neither a trusted certificate nor `--insecure`.
    #[error("no certificate is trusted: see --cacert and --insecure")]
    NoRoots,
    /// The server's name is not a name that TLS accepts.
    #[error(transparent)]
    Name(#[from] rustls::pki_types::InvalidDnsNameError),
    /// rustls refuses the options or the certificates.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    /// The trusted certificates cannot be used.
    #[error(transparent)]
    Verifier(#[from] rustls::client::VerifierBuilderError),
}

impl Tls {
    /// Reads the certificates.
    ///
    /// # Errors
    /// The first setting that does not work.
    pub fn new(settings: &TlsSettings) -> Result<Tls, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = if settings.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        } else {
            let trusted = settings.trusted()?;
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(trusted.iter().cloned());
            if roots.is_empty() {
                return Err(TlsError::NoRoots);
            }
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anchored::new(trusted, verifier)))
        };
        let config = match &settings.identity {
            Some((cert, key)) => {
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|why| TlsError::Key { file: key.clone(), why })?;
                builder.with_client_auth_cert(certificates(cert)?, key)?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Tls { config: Arc::new(config), sni: settings.sni.clone() })
    }
    /// What `config` says. The certificates are read already.
    pub fn of(config: Arc<ClientConfig>) -> Tls {
        Tls { config, sni: None }
    }
    /// The TLS state for a connection to `host`.
    ///
    /// # Errors
    /// [`TlsError::Name`].
    pub(crate) fn connection(&self, host: &str) -> Result<ClientConnection, TlsError> {
        let name = self.sni.as_deref().unwrap_or(host).to_string();
        Ok(ClientConnection::new(self.config.clone(), ServerName::try_from(name)?)?)
    }
}

impl TlsSettings {
    /// The trusted certificates.
    fn trusted(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let mut files: Vec<PathBuf> = self.cacert.iter().cloned().collect();
        if let Some(folder) = &self.cacertdir {
            let entries =
                std::fs::read_dir(folder).map_err(|why| TlsError::Folder { folder: folder.clone(), why })?;
            let paths = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
            files.extend(paths.take(CERTIFICATE_FILES_MAX));
        }
        if files.is_empty() {
            files.extend(SYSTEM_ROOTS.iter().map(PathBuf::from).find(|path| path.exists()));
        }
        let mut trusted = Vec::new();
        for file in files {
            trusted.extend(certificates(&file)?);
        }
        Ok(trusted)
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |why| TlsError::Certificate { file: file.into(), why };
    CertificateDer::pem_file_iter(file).map_err(bad)?.collect::<Result<_, _>>().map_err(bad)
}

/// Trusts any certificate (`--insecure`). Signatures are still checked, so the peer must have the key of its
/// certificate.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
