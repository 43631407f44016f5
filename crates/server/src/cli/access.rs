//! The options for reaching a server, shared by the subcommands that ask a server.

use clap::Args;
use std::env::VarError;
use strand_cli::TlsOptions;
use strand_dial::{Tls, TlsError};
use strand_import::ImportError;
use strand_import::connection::{Connection, Target};

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
    /// TLS is requested for a Unix socket.
    #[error("--tls has no effect at a Unix socket")]
    TlsAtSocket,
    /// The certificates cannot be read.
    #[error("--tls: {0}")]
    Tls(TlsError),
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
        let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !address.starts_with('/') && !has_port {
            return Err(AccessError::Server(address));
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
