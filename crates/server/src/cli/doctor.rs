//! `strand doctor`: what is wrong with a running server, what it did about it, and what to do.

use super::display::{print_line, safe};
use clap::Args;
use std::process::ExitCode;
use strand_import::ImportError;
use strand_import::connection::{Connection, Target};
use strand_wire::client::Value;

/// What `strand doctor --help` says below the options.
const AFTER_HELP: &str =
    "Exit codes: 0 nothing is wrong; 1 the server cannot be asked; 2 wrong usage; 3 something is wrong.";
/// The exit code when something is wrong.
const SOMETHING: u8 = 3;

/// How a server is reached, for what asks it about itself.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// The server to ask
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    pub server: String,
    /// The password of the server; better kept in the environment variable STRAND_PASSWORD than on a command line
    #[arg(long, value_name = "PASSWORD")]
    pub password: Option<String>,
    /// The user to authenticate as, with a password
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}

impl ServerArgs {
    /// Connects.
    ///
    /// # Errors
    /// [`ImportError`].
    pub fn connect(&self) -> Result<Connection, ImportError> {
        let password = self.password.clone().or_else(|| std::env::var("STRAND_PASSWORD").ok());
        Connection::open(&Target {
            address: &self.server,
            username: self.user.as_deref(),
            password: password.as_deref(),
            db: 0,
        })
    }
}

/// Calls a command whose reply is a string.
///
/// # Errors
/// [`ImportError`]; the server's error as one, too.
pub fn text(connection: &mut Connection, args: &[&str]) -> Result<Vec<u8>, ImportError> {
    match connection.call(args)? {
        Value::Bulk(text) | Value::Simple(text) => Ok(text),
        Value::Verbatim(_, text) => Ok(text),
        Value::Error(why) => {
            Err(ImportError::Options(format!("{}: {}", args.join(" "), String::from_utf8_lossy(&why))))
        }
        _ => Err(ImportError::Options(format!("{}: the answer is no text", args.join(" ")))),
    }
}

/// Options of `strand doctor`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DoctorArgs {
    /// How the server is reached.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// Asks and prints; the value is the process's exit code.
pub fn run(args: DoctorArgs) -> ExitCode {
    let asked = args.server.connect().and_then(|mut connection| text(&mut connection, &["DIAG", "DOCTOR"]));
    let answer = match asked {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("strand doctor: {}", safe(&error.to_string()));
            return ExitCode::FAILURE;
        }
    };
    let json: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
    if args.json {
        print_line(&json.to_string());
    } else {
        json["text"].as_str().unwrap_or_default().lines().for_each(|line| print_line(&safe(line)));
    }
    match json["findings"].as_array().is_some_and(|found| found.is_empty()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(SOMETHING),
    }
}
