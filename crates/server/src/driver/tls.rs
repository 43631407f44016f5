//! [`Tls`]: the TLS configuration: certificate, key and trusted authorities, by redis-server's `tls-*` options.
//!
//! The configuration is read at the start, at CONFIG SET of one of these options, and at SIGHUP. New connections use
//! the new configuration, and existing ones keep theirs. An unusable configuration changes nothing. The cryptography is
//! ring, which builds in seconds with only a C compiler. aws-lc takes ten times as long and needs cmake.

use parking_lot::{Mutex, RwLock};
use pkcs8::{EncryptedPrivateKeyInfo, SecretDocument};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{
    NoServerSessionStorage, ServerSessionMemoryCache, StoresServerSessions, WebPkiClientVerifier,
};
use rustls::{CipherSuite, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
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
    /// Locked while the TLS files are read again, so that the configuration in use comes from the latest read.
    reloading: Mutex<()>,
}

impl Tls {
    /// The configuration for the doors of `config`.
    ///
    /// # Errors
    /// When a door needs TLS and it is not usable. The text is for the user.
    pub fn start(config: &Config) -> Result<Tls, String> {
        let tls = Tls::default();
        if config.tls_port() > 0 || config.tls_pack4_port() > 0 || config.tls_http_port() > 0 {
            *tls.current.write() = Some(Arc::new(server_config(config)?));
        }
        Ok(tls)
    }
    /// Reads files and options again. Returns false when no door uses TLS.
    ///
    /// # Errors
    /// When files or options are unusable. The former configuration stays in use.
    pub fn reload(&self, config: &Config) -> Result<bool, String> {
        let _one = self.reloading.lock();
        if self.current().is_none() {
            return Ok(false);
        }
        let new = Arc::new(server_config(config)?);
        *self.current.write() = Some(new);
        Ok(true)
    }
    /// The configuration for a new connection.
    pub fn current(&self) -> Option<Arc<ServerConfig>> {
        self.current.read().clone()
    }
}

fn server_config(config: &Config) -> Result<ServerConfig, String> {
    let word = |option: Opt| String::from_utf8_lossy(&config.text(option)).into_owned();
    let (cert_file, key_file) = (word(Opt::TlsCertFile), word(Opt::TlsKeyFile));
    if cert_file.is_empty() {
        return Err("No tls-cert-file configured!".into());
    }
    if key_file.is_empty() {
        return Err("No tls-key-file configured!".into());
    }
    let provider = Arc::new(provider(&word(Opt::TlsCiphers), &word(Opt::TlsCiphersuites))?);
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(&word(Opt::TlsProtocols))?)
        .map_err(|e| format!("tls-protocols and tls-ciphers do not go together: {e}"))?;
    let auth = word(Opt::TlsAuthClients);
    let builder = if auth == "no" {
        builder.with_no_client_auth()
    } else {
        let roots = Arc::new(roots(&word(Opt::TlsCaCertFile), &word(Opt::TlsCaCertDir))?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let verifier = if auth == "optional" { verifier.allow_unauthenticated() } else { verifier };
        builder.with_client_cert_verifier(
            verifier.build().map_err(|e| format!("Failed to configure CA certificate(s): {e}"))?,
        )
    };
    let chain = certificates(Path::new(&cert_file))
        .map_err(|e| format!("Failed to load certificate: {cert_file}: {e}"))?;
    let key = private_key(&key_file, &config.text(Opt::TlsKeyFilePass))
        .map_err(|e| format!("Failed to load private key: {key_file}: {e}"))?;
    let mut server = builder
        .with_single_cert(chain, key)
        .map_err(|e| format!("{cert_file} and {key_file} cannot be used: {e}"))?;
    server.ignore_client_order = config.number(Opt::TlsPreferServerCiphers) == 1;
    server.session_storage = match config.number(Opt::TlsSessionCaching) {
        1 => Arc::new(Sessions {
            kept: ServerSessionMemoryCache::new(
                config.number(Opt::TlsSessionCacheSize).clamp(1, SESSIONS_MAX) as usize,
            ),
            kept_s: config.number(Opt::TlsSessionCacheTimeout) as u64,
            start: Instant::now(),
        }),
        _ => {
            server.send_tls13_tickets = 0;
            Arc::new(NoServerSessionStorage {})
        }
    };
    Ok(server)
}

/// The crypto provider: ring with the suites of `tls-ciphers` and `tls-ciphersuites`, in their order. An empty option
/// means all suites.
fn provider(ciphers: &str, ciphersuites: &str) -> Result<CryptoProvider, String> {
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
            let suite = known.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).ok_or_else(|| {
                let all: Vec<&str> = known.iter().map(|(n, _)| *n).collect();
                format!("{option}: '{name}' is none of {}", all.join(":"))
            })?;
            wanted.push(suite.1);
        }
    }
    let find = |suite: &CipherSuite| provider.cipher_suites.iter().find(|s| s.suite() == *suite).copied();
    provider.cipher_suites = wanted.iter().filter_map(find).collect();
    Ok(provider)
}

/// The TLS versions that `tls-protocols` names. An empty option means both versions.
fn versions(names: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    if names.trim().is_empty() {
        return Ok(vec![&version::TLS13, &version::TLS12]);
    }
    let version = |name: &str| match name.to_ascii_lowercase().as_str() {
        "tlsv1.2" => Ok(&version::TLS12),
        "tlsv1.3" => Ok(&version::TLS13),
        "tlsv1" | "tlsv1.1" => Err(format!("tls-protocols: {name} is broken and not supported")),
        _ => Err(format!("tls-protocols: '{name}' is none of TLSv1.2, TLSv1.3")),
    };
    names.split_ascii_whitespace().map(version).collect()
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).map_err(explain)?;
    let found = found.take(CA_CERTIFICATES_MAX).collect::<Result<Vec<_>, _>>().map_err(explain)?;
    if found.is_empty() { Err("no certificate in it".into()) } else { Ok(found) }
}

/// The first private key of a PEM file. `password` decrypts an encrypted key (PKCS #8).
fn private_key(path: &str, password: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let text = std::fs::read(path).map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&text);
    let Some(at) = text.find(ENCRYPTED_KEY) else {
        if text.contains("Proc-Type: 4,ENCRYPTED") {
            return Err(
                "encrypted in OpenSSL's old way: `openssl pkcs8 -topk8` makes a file that can be read".into(),
            );
        }
        return PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(explain);
    };
    if password.is_empty() {
        return Err("it is encrypted, and there is no tls-key-file-pass".into());
    }
    let (_, document) = SecretDocument::from_pem(text[at..].trim_end()).map_err(|e| e.to_string())?;
    let encrypted = EncryptedPrivateKeyInfo::try_from(document.as_bytes()).map_err(|e| e.to_string())?;
    let key = encrypted.decrypt(password).map_err(|_| "tls-key-file-pass does not open it".to_string())?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

fn explain(error: PemError) -> String {
    match error {
        PemError::Io(e) => e.to_string(),
        PemError::NoItemsFound => "no such PEM section in it".into(),
        other => other.to_string(),
    }
}

/// The authorities that may sign client certificates.
fn roots(file: &str, folder: &str) -> Result<RootCertStore, String> {
    if file.is_empty() && folder.is_empty() {
        return Err("Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, \
                    tls-replication or tls-auth-clients are enabled!"
            .into());
    }
    let failed = |path: &str, e: String| format!("Failed to configure CA certificate(s): {path}: {e}");
    let mut roots = RootCertStore::empty();
    if !file.is_empty() {
        let found = certificates(Path::new(file)).map_err(|e| failed(file, e))?;
        for certificate in found {
            roots.add(certificate).map_err(|e| failed(file, e.to_string()))?;
        }
    }
    if !folder.is_empty() {
        let entries = std::fs::read_dir(folder).map_err(|e| failed(folder, e.to_string()))?;
        for entry in entries.flatten().take(CA_CERTIFICATES_MAX) {
            // The folder may also have keys and certificate revocation lists.
            let Ok(found) = certificates(&entry.path()) else { continue };
            roots.add_parsable_certificates(found.into_iter().take(CA_CERTIFICATES_MAX - roots.len()));
        }
    }
    Ok(roots)
}

/// Sessions to resume, with a time limit (`tls-session-cache-timeout`). The time at which a session was stored is
/// appended to the session.
#[derive(Debug)]
struct Sessions {
    kept: Arc<ServerSessionMemoryCache>,
    kept_s: u64,
    start: Instant,
}

impl Sessions {
    fn fresh(&self, mut session: Vec<u8>) -> Option<Vec<u8>> {
        let at = session.split_off(session.len().checked_sub(size_of::<u64>())?);
        let put_s = u64::from_be_bytes(at.try_into().ok()?);
        (self.start.elapsed() < Duration::from_secs(put_s.saturating_add(self.kept_s))).then_some(session)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, mut session: Vec<u8>) -> bool {
        session.extend_from_slice(&self.start.elapsed().as_secs().to_be_bytes());
        self.kept.put(key, session)
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.fresh(self.kept.get(key)?)
    }
    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.fresh(self.kept.take(key)?)
    }
    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_redis_s_and_others_are_refused_by_name() {
        let suites = |a: &str, b: &str| provider(a, b).map(|p| p.cipher_suites.len());
        assert_eq!(suites("", ""), Ok(9));
        assert_eq!(suites("ecdhe-rsa-aes128-gcm-sha256", "TLS_AES_128_GCM_SHA256"), Ok(2));
        assert!(suites("DEFAULT:!MEDIUM", "").expect_err("a class").contains("'DEFAULT'"));
        assert_eq!(versions("").map(|v| v.len()), Ok(2));
        assert_eq!(versions("TLSv1.3").map(|v| v.len()), Ok(1));
        assert!(versions("TLSv1.1 TLSv1.2").expect_err("old").contains("not supported"));
        assert!(versions("SSLv3").is_err());
    }

    #[test]
    fn a_tls_session_is_forgotten_after_its_time() {
        let sessions =
            |kept_s| Sessions { kept: ServerSessionMemoryCache::new(100), kept_s, start: Instant::now() };
        let kept = sessions(300);
        assert!(kept.put(b"k".to_vec(), b"session".to_vec()));
        assert_eq!(kept.get(b"k"), Some(b"session".to_vec()));
        assert_eq!(kept.take(b"k"), Some(b"session".to_vec()));
        assert_eq!(kept.take(b"k"), None);
        let gone = sessions(0);
        gone.put(b"k".to_vec(), b"session".to_vec());
        assert_eq!(gone.get(b"k"), None);
    }
}
