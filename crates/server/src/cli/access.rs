//! The options for reaching a server, shared by the subcommands that ask a server.

use clap::Args;
use std::env::VarError;
use std::num::IntErrorKind;
use strand_cli::TlsOptions;
use strand_dial::{Tls, TlsError};
use strand_import::connection::{Connection, Target};
use strand_import::{ImportError, Loss};

/// The environment variable with the password of the server.
pub const PASSWORD_VARIABLE: &str = "STRAND_PASSWORD";

/// The server that is asked when no option names one.
const SERVER_DEFAULT: &str = "127.0.0.1:6379";

/// The server, and the user who asks. [`TlsOptions`] are separate, because their heading applies to all options after
/// them.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// The server: HOST:PORT, or the path of a Unix socket, which begins with / [default: 127.0.0.1:6379]
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,
    /// The password of the server; better kept in the environment variable STRAND_PASSWORD than on a command line
    #[arg(long, value_name = "PASSWORD")]
    pub password: Option<String>,
    /// The user to authenticate as, with a password
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}

/// What is needed to connect, read from the options and from the environment.
#[derive(Clone, Debug)]
pub struct Access {
    /// `HOST:PORT`, or the path of a Unix socket.
    pub address: String,
    /// The user name for AUTH.
    pub user: Option<String>,
    /// The password for AUTH.
    pub password: Option<String>,
    /// The certificates, if TLS is requested.
    pub tls: Option<Tls>,
}

/// Why a server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// There is a user without a password.
    #[error("--user needs a password: --password, or the variable STRAND_PASSWORD")]
    NoPassword,
    /// The variable with the password is not UTF-8.
    #[error("the variable STRAND_PASSWORD is not UTF-8: expected a password in UTF-8, or --password")]
    PasswordEncoding,
    /// An option of TLS is given without `--tls`.
    #[error("{0} has no effect without --tls")]
    NoTls(&'static str),
    /// The server's address has no port.
    #[error("--server {0}: expected HOST:PORT, or the path of a Unix socket, which begins with /")]
    Server(String),
    /// The port is too large.
    #[error("--server {0}: the port is too large: expected a port from 0 to 65535")]
    Port(String),
    /// TLS is requested for a Unix socket.
    #[error("--tls has no effect at a Unix socket")]
    TlsAtSocket,
    /// The certificates cannot be read.
    #[error("--tls: {0}")]
    Tls(TlsError),
}

/// The error's text. A server closes a connection at a port with TLS when it gets other bytes, so then the text has advice.
pub fn text_of(error: &ImportError, has_tls: bool) -> String {
    match error {
        ImportError::Lost { address, reason: Loss::Closed } if !has_tls && !address.starts_with('/') => {
            format!("{error} (if this is a TLS port, use --tls)")
        }
        _ => error.to_string(),
    }
}

impl ServerArgs {
    /// Reads the certificates and the environment.
    ///
    /// # Errors
    /// [`AccessError`]: an option that has no effect, or does not work.
    pub fn access(self, tls: &TlsOptions) -> Result<Access, AccessError> {
        let password = match (self.password, std::env::var(PASSWORD_VARIABLE)) {
            (Some(password), _) => Some(password),
            (None, Ok(password)) => Some(password),
            (None, Err(VarError::NotPresent)) => None,
            (None, Err(VarError::NotUnicode(_))) => return Err(AccessError::PasswordEncoding),
        };
        let password = password.filter(|password| !password.is_empty());
        if self.user.is_some() && password.is_none() {
            return Err(AccessError::NoPassword);
        }
        if let Some(option) = tls.idle_option() {
            return Err(AccessError::NoTls(option));
        }
        let address = self.server.unwrap_or_else(|| SERVER_DEFAULT.to_owned());
        if tls.is_on() && address.starts_with('/') {
            return Err(AccessError::TlsAtSocket);
        }
        if !address.starts_with('/') {
            let port = address.rsplit_once(':').map_or("", |(_, port)| port);
            match port.parse::<u16>() {
                Ok(_) => {}
                Err(why) if *why.kind() == IntErrorKind::PosOverflow => {
                    return Err(AccessError::Port(address));
                }
                Err(_) => return Err(AccessError::Server(address)),
            }
        }
        let tls = tls.requested().map_err(AccessError::Tls)?;
        Ok(Access { address, user: self.user, password, tls })
    }
    /// An option that names the server or the user, if one is given.
    pub fn given(&self) -> Option<&'static str> {
        let options = [("--server", &self.server), ("--password", &self.password), ("--user", &self.user)];
        options.into_iter().find(|(_, value)| value.is_some()).map(|(name, _)| name)
    }
}

impl Access {
    /// The server and the user, with a database.
    pub fn target(&self, db: u32) -> Target<'_> {
        Target {
            address: &self.address,
            tls: self.tls.as_ref(),
            username: self.user.as_deref(),
            password: self.password.as_deref(),
            db,
        }
    }
    /// Connects to database 0.
    ///
    /// # Errors
    /// [`ImportError`].
    pub fn connect(&self) -> Result<Connection, ImportError> {
        Connection::open(&self.target(0))
    }
}
