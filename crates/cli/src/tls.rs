//! [`TlsOptions`]: redis-cli's options for TLS.

use clap::Args;
use std::path::PathBuf;
use strand_dial::{Tls, TlsError, TlsSettings};

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

impl TlsOptions {
    /// True when TLS is requested.
    pub fn is_on(&self) -> bool {
        self.tls
    }
    /// An option that has no effect, because TLS is not requested.
    pub fn idle_option(&self) -> Option<&'static str> {
        let given = [
            ("--sni", self.sni.is_some()),
            ("--cacert", self.cacert.is_some()),
            ("--cacertdir", self.cacertdir.is_some()),
            ("--insecure", self.insecure),
            ("--cert", self.cert.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given && !self.tls).map(|(name, _)| name)
    }
    /// Reads the certificates.
    ///
    /// # Errors
    /// The first option that does not work.
    pub fn read(&self) -> Result<Tls, TlsError> {
        Tls::new(&TlsSettings {
            sni: self.sni.clone(),
            cacert: self.cacert.clone(),
            cacertdir: self.cacertdir.clone(),
            insecure: self.insecure,
            identity: self.cert.clone().zip(self.key.clone()),
        })
    }
    /// The certificates if TLS is requested. `None`: no TLS.
    ///
    /// # Errors
    /// As [`TlsOptions::read`].
    pub fn requested(&self) -> Result<Option<Tls>, TlsError> {
        self.tls.then(|| self.read()).transpose()
    }
}
