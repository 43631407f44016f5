//! [`TlsOptions`]: redis-cli's options for TLS. The cryptography is from ring, as in the server.

use clap::Args;
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

/// The TLS options.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "TLS")]
pub struct TlsOptions {
    /// Speak TLS
    #[arg(long)]
    tls: bool,
    /// The server name to request (SNI)
    #[arg(long, value_name = "HOST")]
    sni: Option<String>,
    /// A file of trusted certificates; default without --cacertdir: the system's
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// A folder of trusted certificates
    #[arg(long, value_name = "FOLDER")]
    cacertdir: Option<PathBuf>,
    /// Trust any server certificate
    #[arg(long)]
    insecure: bool,
    /// The client's certificate
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The client's private key
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
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
}

impl TlsOptions {
    /// True when TLS is requested.
    pub fn is_on(&self) -> bool {
        self.tls
    }
    /// The TLS state for a connection to `host`.
    ///
    /// # Errors
    /// The first option that does not work.
    pub fn connection(&self, host: &str) -> Result<ClientConnection, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = if self.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        } else {
            builder.with_root_certificates(self.roots()?)
        };
        let config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|why| TlsError::Key { file: key.clone(), why })?;
                builder.with_client_auth_cert(certificates(cert)?, key)?
            }
            _ => builder.with_no_client_auth(),
        };
        let name = self.sni.as_deref().unwrap_or(host).to_string();
        Ok(ClientConnection::new(Arc::new(config), ServerName::try_from(name)?)?)
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
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
        let mut roots = RootCertStore::empty();
        for file in files {
            roots.add_parsable_certificates(certificates(&file)?);
        }
        match roots.is_empty() {
            true => Err(TlsError::NoRoots),
            false => Ok(roots),
        }
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
