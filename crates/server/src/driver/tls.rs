//! [`Tls`]: the TLS configuration: certificate, key and trusted authorities, by redis-server's `tls-*` options. The
//! doors have one, and the connection to a primary (`tls-replication`) has another.
//!
//! The configuration is read at the start, at CONFIG SET of one of these options, and at SIGHUP. New connections use
//! the new configuration, and existing ones keep theirs. An unusable configuration changes nothing. The cryptography is
//! ring, which builds in seconds with only a C compiler. aws-lc takes ten times as long and needs cmake.

use parking_lot::{Mutex, RwLock};
use pkcs8::{EncryptedPrivateKeyInfo, SecretDocument};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{
    NoServerSessionStorage, ServerSessionMemoryCache, StoresServerSessions, VerifierBuilderError,
    WebPkiClientVerifier,
};
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strand_dial::Anchored;
use strand_engine::Config;
use strand_engine::config::Opt;

/// Maximum number of certificates in `tls-ca-cert-file` and `tls-ca-cert-dir` together.
const CA_CERTIFICATES_MAX: usize = 10_000;

/// Maximum number of sessions that are kept for resumption, whatever `tls-session-cache-size` is. The room for all
/// sessions is allocated at once, about 25 MB for this number.
const SESSIONS_MAX: i64 = 1 << 18;

/// The first line of an encrypted private key.
const ENCRYPTED_KEY: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";

/// Suites up to TLS 1.2, by OpenSSL's names (`tls-ciphers`).
const CIPHERS: &[(&str, CipherSuite)] = &[
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];
/// Suites of TLS 1.3 (`tls-ciphersuites`).
const CIPHERSUITES: &[(&str, CipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// The current TLS configuration.
#[derive(Default)]
pub struct Tls {
    /// The current configuration. `None` while no door uses TLS.
    current: RwLock<Option<Arc<ServerConfig>>>,
    /// What a connection to a primary uses. `None` without `tls-replication`.
    to_primary: RwLock<Option<strand_dial::Tls>>,
    /// Locked while the TLS files are read again, so that the configuration in use comes from the latest read.
    reloading: Mutex<()>,
}

/// True when a door of `config` uses TLS.
fn has_tls_port(config: &Config) -> bool {
    config.tls_port() > 0 || config.tls_pack4_port() > 0 || config.tls_http_port() > 0
}

impl Tls {
    /// The configuration for the doors of `config` and for `tls-replication`.
    ///
    /// # Errors
    /// When a door or the connection to a primary needs TLS and it is not usable.
    pub fn start(config: &Config) -> Result<Tls, TlsConfigError> {
        let tls = Tls::default();
        tls.read(config, has_tls_port(config))?;
        Ok(tls)
    }
    /// Reads files and options again. Returns false when neither a door nor the connection to a primary uses TLS.
    ///
    /// # Errors
    /// When files or options are unusable. The former configuration stays in use.
    pub fn reload(&self, config: &Config) -> Result<bool, TlsConfigError> {
        let _one = self.reloading.lock();
        self.read(config, has_tls_port(config) || self.current().is_some())
    }
    /// Reads what is used. Without a door and `tls-replication`, reads no file and returns false.
    fn read(&self, config: &Config, has_door: bool) -> Result<bool, TlsConfigError> {
        let replicates = config.number(Opt::TlsReplication) == 1;
        // As in redis-server, the server's own certificate must be usable, too.
        let server = if has_door || replicates { Some(Arc::new(server_config(config)?)) } else { None };
        let client = if replicates { Some(client_config(config)?) } else { None };
        if has_door {
            *self.current.write() = server;
        }
        *self.to_primary.write() = client;
        Ok(has_door || replicates)
    }
    /// What a connection to a primary uses. `None` without `tls-replication`.
    pub fn to_primary(&self) -> Option<strand_dial::Tls> {
        self.to_primary.read().clone()
    }
    /// The configuration for a new connection.
    pub fn current(&self) -> Option<Arc<ServerConfig>> {
        self.current.read().clone()
    }
}

/// Why the TLS configuration cannot be used. Where redis-server has a text, it begins with redis-server's.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// An option that TLS needs is empty.
    #[error("No {0} configured!")]
    NoFile(&'static str),
    /// A name is none of the suites.
    #[error("{option}: '{name}' is not one of {}", known.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(":"))]
    Cipher {
        /// The option.
        option: &'static str,
        /// The name.
        name: String,
        /// The suites that the option may name.
        known: &'static [(&'static str, CipherSuite)],
    },
    /// An old version of TLS.
    #[error("tls-protocols: {0} is insecure and not supported: expected TLSv1.2 or TLSv1.3")]
    OldVersion(String),
    /// A name is no version of TLS.
    #[error("tls-protocols: '{0}' is not a version of TLS: expected TLSv1.2 or TLSv1.3")]
    Version(String),
    /// No suite belongs to one of the versions.
    #[error("no suite of tls-ciphers or tls-ciphersuites belongs to a version of tls-protocols: {0}")]
    Suites(rustls::Error),
    /// Clients need certificates, but no option names the authorities that sign them.
    #[error(
        "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, tls-replication or \
         tls-auth-clients are enabled!"
    )]
    NoAuthorities,
    /// The authorities in a file or folder cannot be read.
    #[error("Failed to configure CA certificate(s): {path}: {error}")]
    Authorities {
        /// The file or folder.
        path: String,
        /// What is wrong.
        error: FileError,
    },
    /// No client certificate can be checked with the authorities.
    #[error("Failed to configure CA certificate(s): {0}")]
    Verifier(VerifierBuilderError),
    /// The server's certificate cannot be read.
    #[error("Failed to load certificate: {path}: {error}")]
    Certificate {
        /// The file.
        path: String,
        /// What is wrong.
        error: FileError,
    },
    /// The server's private key cannot be read.
    #[error("Failed to load private key: {path}: {error}")]
    Key {
        /// The file.
        path: String,
        /// What is wrong.
        error: FileError,
    },
    /// The certificate is of an old version of X.509.
    #[error(
        "the certificate {0} has X.509 version 1 or 2: expected 3 (`openssl x509 -req` makes it with -extfile)"
    )]
    OldCertificate(String),
    /// The certificate and the key do not belong together.
    #[error("the certificate {certificate} and the key {key} do not match: {error}")]
    Pair {
        /// The file of the certificate.
        certificate: String,
        /// The file of the key.
        key: String,
        /// What is wrong.
        error: rustls::Error,
    },
}

/// Why a file of certificates or of a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused the call.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A section of the file is damaged.
    #[error("{0}")]
    Pem(PemError),
    /// The file has no certificate.
    #[error("the file has no certificate: expected -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    /// The file has no private key.
    #[error(
        "the file has no private key: expected -----BEGIN PRIVATE KEY-----, -----BEGIN RSA PRIVATE KEY-----, \
         -----BEGIN EC PRIVATE KEY----- or -----BEGIN ENCRYPTED PRIVATE KEY-----"
    )]
    NoKey,
    /// The certificate cannot be an authority.
    #[error("{0}")]
    Authority(rustls::Error),
    /// The key is encrypted in a format that is not supported.
    #[error("the key is encrypted in OpenSSL's old format: convert the file with `openssl pkcs8 -topk8`")]
    OldEncryption,
    /// The key is encrypted, and no password is configured.
    #[error("the key is encrypted: expected its password in tls-key-file-pass or tls-client-key-file-pass")]
    NoPassword,
    /// The encrypted key is damaged.
    #[error("{0}")]
    EncryptedKey(pkcs8::Error),
    /// The key is encrypted with another password, or in a way that is not supported.
    #[error(
        "the key cannot be decrypted with the password in tls-key-file-pass or tls-client-key-file-pass: {0}"
    )]
    WrongPassword(pkcs8::Error),
}

impl From<PemError> for FileError {
    fn from(error: PemError) -> FileError {
        match error {
            PemError::Io(error) => FileError::Io(error),
            // The functions that read keys handle this error themselves.
            PemError::NoItemsFound => FileError::NoCertificate,
            other => FileError::Pem(other),
        }
    }
}

fn server_config(config: &Config) -> Result<ServerConfig, TlsConfigError> {
    let word = |option: Opt| String::from_utf8_lossy(&config.text(option)).into_owned();
    let (cert_file, key_file) = (word(Opt::TlsCertFile), word(Opt::TlsKeyFile));
    if cert_file.is_empty() {
        return Err(TlsConfigError::NoFile("tls-cert-file"));
    }
    if key_file.is_empty() {
        return Err(TlsConfigError::NoFile("tls-key-file"));
    }
    let provider = Arc::new(provider(&word(Opt::TlsCiphers), &word(Opt::TlsCiphersuites))?);
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(&word(Opt::TlsProtocols))?)
        .map_err(TlsConfigError::Suites)?;
    let auth = word(Opt::TlsAuthClients);
    let builder = if auth == "no" {
        builder.with_no_client_auth()
    } else {
        let (trusted, roots) = authorities(&word(Opt::TlsCaCertFile), &word(Opt::TlsCaCertDir))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = if auth == "optional" { verifier.allow_unauthenticated() } else { verifier };
        let verifier = verifier.build().map_err(TlsConfigError::Verifier)?;
        builder.with_client_cert_verifier(Arc::new(Anchored::new(trusted, verifier)))
    };
    let (chain, key) = pair(&cert_file, &key_file, &config.text(Opt::TlsKeyFilePass))?;
    let mut server = builder.with_single_cert(chain, key).map_err(pair_error(cert_file, key_file))?;
    server.ignore_client_order = config.number(Opt::TlsPreferServerCiphers) == 1;
    server.session_storage = match config.number(Opt::TlsSessionCaching) {
        1 => Arc::new(Sessions {
            cache: ServerSessionMemoryCache::new(
                config.number(Opt::TlsSessionCacheSize).clamp(1, SESSIONS_MAX) as usize,
            ),
            ttl_s: config.number(Opt::TlsSessionCacheTimeout) as u64,
            start: Instant::now(),
        }),
        _ => {
            server.send_tls13_tickets = 0;
            Arc::new(NoServerSessionStorage {})
        }
    };
    Ok(server)
}

/// What a connection to a primary trusts and shows: `tls-client-cert-file`, or else `tls-cert-file`. As in redis-server, the
/// name in the primary's certificate does not matter.
fn client_config(config: &Config) -> Result<strand_dial::Tls, TlsConfigError> {
    let word = |option: Opt| String::from_utf8_lossy(&config.text(option)).into_owned();
    let own = (Opt::TlsCertFile, Opt::TlsKeyFile, Opt::TlsKeyFilePass);
    let of_clients = (Opt::TlsClientCertFile, Opt::TlsClientKeyFile, Opt::TlsClientKeyFilePass);
    let (cert, key, password) = if word(Opt::TlsClientCertFile).is_empty() { own } else { of_clients };
    let (cert_file, key_file) = (word(cert), word(key));
    if key_file.is_empty() {
        return Err(TlsConfigError::NoFile("tls-client-key-file"));
    }
    let provider = Arc::new(provider(&word(Opt::TlsCiphers), &word(Opt::TlsCiphersuites))?);
    let (trusted, roots) = authorities(&word(Opt::TlsCaCertFile), &word(Opt::TlsCaCertDir))?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let verifier = verifier.build().map_err(TlsConfigError::Verifier)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(&word(Opt::TlsProtocols))?)
        .map_err(TlsConfigError::Suites)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anchored::new(trusted, verifier).of_any_name()));
    let (chain, private) = pair(&cert_file, &key_file, &config.text(password))?;
    let client = builder.with_client_auth_cert(chain, private).map_err(pair_error(cert_file, key_file))?;
    Ok(strand_dial::Tls::of(Arc::new(client)))
}

/// A certificate with the certificates that sign it, and its private key.
type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads a certificate and its private key.
fn pair(cert_file: &str, key_file: &str, password: &[u8]) -> Result<Pair, TlsConfigError> {
    let chain = certificates(Path::new(cert_file))
        .map_err(|error| TlsConfigError::Certificate { path: cert_file.to_owned(), error })?;
    let key = private_key(key_file, password)
        .map_err(|error| TlsConfigError::Key { path: key_file.to_owned(), error })?;
    Ok((chain, key))
}

/// The error of a certificate and a key that do not belong together.
fn pair_error(certificate: String, key: String) -> impl FnOnce(rustls::Error) -> TlsConfigError {
    |error| match is_of_old_version(&error) {
        true => TlsConfigError::OldCertificate(certificate),
        false => TlsConfigError::Pair { certificate, key, error },
    }
}

/// True when a certificate has X.509 version 1 or 2. rustls passes this error of its certificate reader on as a value without
/// a public type.
fn is_of_old_version(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(rustls::CertificateError::Other(why))
        if why.to_string().contains("UnsupportedCertVersion"))
}

/// The crypto provider: ring with the suites of `tls-ciphers` and `tls-ciphersuites`, in their order. An empty option
/// means all suites.
fn provider(ciphers: &str, ciphersuites: &str) -> Result<CryptoProvider, TlsConfigError> {
    let mut provider = ring::default_provider();
    let mut wanted = Vec::new();
    for (option, names, known) in
        [("tls-ciphersuites", ciphersuites, CIPHERSUITES), ("tls-ciphers", ciphers, CIPHERS)]
    {
        if names.is_empty() {
            wanted.extend(known.iter().map(|(_, suite)| *suite));
            continue;
        }
        for name in names.split([':', ',', ' ']).filter(|n| !n.is_empty()) {
            let unknown = || TlsConfigError::Cipher { option, name: name.to_owned(), known };
            let suite = known.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).ok_or_else(unknown)?;
            wanted.push(suite.1);
        }
    }
    let find = |suite: &CipherSuite| provider.cipher_suites.iter().find(|s| s.suite() == *suite).copied();
    provider.cipher_suites = wanted.iter().filter_map(find).collect();
    Ok(provider)
}

/// The TLS versions that `tls-protocols` names. An empty option means both versions.
fn versions(names: &str) -> Result<Vec<&'static SupportedProtocolVersion>, TlsConfigError> {
    if names.trim().is_empty() {
        return Ok(vec![&version::TLS13, &version::TLS12]);
    }
    let version = |name: &str| match name.to_ascii_lowercase().as_str() {
        "tlsv1.2" => Ok(&version::TLS12),
        "tlsv1.3" => Ok(&version::TLS13),
        "tlsv1" | "tlsv1.1" => Err(TlsConfigError::OldVersion(name.to_owned())),
        _ => Err(TlsConfigError::Version(name.to_owned())),
    };
    names.split_ascii_whitespace().map(version).collect()
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let found = CertificateDer::pem_file_iter(path)?;
    let found = found.take(CA_CERTIFICATES_MAX).collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() { Err(FileError::NoCertificate) } else { Ok(found) }
}

/// The first private key of a PEM file. `password` decrypts an encrypted key (PKCS #8).
fn private_key(path: &str, password: &[u8]) -> Result<PrivateKeyDer<'static>, FileError> {
    let text = std::fs::read(path)?;
    let text = String::from_utf8_lossy(&text);
    let Some(at) = text.find(ENCRYPTED_KEY) else {
        if text.contains("Proc-Type: 4,ENCRYPTED") {
            return Err(FileError::OldEncryption);
        }
        return PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| match error {
            PemError::NoItemsFound => FileError::NoKey,
            other => other.into(),
        });
    };
    if password.is_empty() {
        return Err(FileError::NoPassword);
    }
    let (_, document) =
        SecretDocument::from_pem(text[at..].trim_end()).map_err(|e| FileError::EncryptedKey(e.into()))?;
    let encrypted =
        EncryptedPrivateKeyInfo::try_from(document.as_bytes()).map_err(FileError::EncryptedKey)?;
    let key = encrypted.decrypt(password).map_err(FileError::WrongPassword)?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

/// The certificates of the authorities that may sign the certificates of peers: all of them, and those that rustls can
/// use as roots.
fn authorities(
    file: &str,
    folder: &str,
) -> Result<(Vec<CertificateDer<'static>>, RootCertStore), TlsConfigError> {
    if file.is_empty() && folder.is_empty() {
        return Err(TlsConfigError::NoAuthorities);
    }
    let failed = |path: &str, error: FileError| TlsConfigError::Authorities { path: path.to_owned(), error };
    let mut trusted = Vec::new();
    if !file.is_empty() {
        let found = certificates(Path::new(file)).map_err(|e| failed(file, e))?;
        for certificate in &found {
            let added = RootCertStore::empty().add(certificate.clone());
            added.map_err(|e| failed(file, FileError::Authority(e)))?;
        }
        trusted = found;
    }
    if !folder.is_empty() {
        let entries = std::fs::read_dir(folder).map_err(|e| failed(folder, e.into()))?;
        for entry in entries.flatten().take(CA_CERTIFICATES_MAX) {
            // The folder may also have keys and certificate revocation lists.
            let Ok(found) = certificates(&entry.path()) else { continue };
            trusted.extend(found.into_iter().take(CA_CERTIFICATES_MAX.saturating_sub(trusted.len())));
        }
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    Ok((trusted, roots))
}

/// Sessions to resume, with a time limit (`tls-session-cache-timeout`). The time at which a session was stored is
/// appended to the session.
#[derive(Debug)]
struct Sessions {
    cache: Arc<ServerSessionMemoryCache>,
    ttl_s: u64,
    start: Instant,
}

impl Sessions {
    fn fresh(&self, mut session: Vec<u8>) -> Option<Vec<u8>> {
        let at = session.split_off(session.len().checked_sub(size_of::<u64>())?);
        let put_s = u64::from_be_bytes(at.try_into().ok()?);
        (self.start.elapsed() < Duration::from_secs(put_s.saturating_add(self.ttl_s))).then_some(session)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, mut session: Vec<u8>) -> bool {
        session.extend_from_slice(&self.start.elapsed().as_secs().to_be_bytes());
        self.cache.put(key, session)
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.fresh(self.cache.get(key)?)
    }
    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.fresh(self.cache.take(key)?)
    }
    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_s_suite_names_are_accepted_and_others_refused_by_name() {
        let suites =
            |a: &str, b: &str| provider(a, b).map(|p| p.cipher_suites.len()).map_err(|e| e.to_string());
        assert_eq!(suites("", ""), Ok(9));
        assert_eq!(suites("ecdhe-rsa-aes128-gcm-sha256", "TLS_AES_128_GCM_SHA256"), Ok(2));
        assert!(suites("DEFAULT:!MEDIUM", "").expect_err("a class").contains("'DEFAULT'"));
        assert_eq!(versions("").expect("both").len(), 2);
        assert_eq!(versions("TLSv1.3").expect("one").len(), 1);
        assert!(
            matches!(versions("TLSv1.1 TLSv1.2"), Err(TlsConfigError::OldVersion(name)) if name == "TLSv1.1")
        );
        assert!(matches!(versions("SSLv3"), Err(TlsConfigError::Version(_))));
    }

    #[test]
    fn a_tls_session_is_forgotten_after_its_time() {
        let sessions =
            |ttl_s| Sessions { cache: ServerSessionMemoryCache::new(100), ttl_s, start: Instant::now() };
        let sessions_cache = sessions(300);
        assert!(sessions_cache.put(b"k".to_vec(), b"session".to_vec()));
        assert_eq!(sessions_cache.get(b"k"), Some(b"session".to_vec()));
        assert_eq!(sessions_cache.take(b"k"), Some(b"session".to_vec()));
        assert_eq!(sessions_cache.take(b"k"), None);
        let gone = sessions(0);
        gone.put(b"k".to_vec(), b"session".to_vec());
        assert_eq!(gone.get(b"k"), None);
    }
}
