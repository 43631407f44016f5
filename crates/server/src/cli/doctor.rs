//! `strand doctor`: problems of a running server, what the server did about them, and what to do.

use super::display::{print_line, safe};
use clap::Args;
use std::process::ExitCode;
use strand_import::ImportError;
use strand_import::connection::{Connection, Target};
use strand_wire::client::Value;

/// Text of `strand doctor --help` below the options.
const AFTER_HELP: &str =
    "Exit codes: 0 nothing is wrong; 1 the server cannot be asked; 2 wrong usage; 3 something is wrong.";
/// The exit code when the server has findings.
const HAS_FINDINGS: u8 = 3;

/// How to reach a server, for subcommands that query it.
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
    /// Connects to the server.
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

/// Calls a command with a string reply.
///
/// # Errors
/// [`ImportError`], also for an error reply of the server.
pub fn text(connection: &mut Connection, args: &[&str]) -> Result<Vec<u8>, ImportError> {
    match connection.call(args)? {
        Value::Bulk(text) | Value::Simple(text) => Ok(text),
        Value::Verbatim(_, text) => Ok(text),
        _ => {
            let text = "unexpected reply: expected a string".to_owned();
            Err(ImportError::Refused { command: args.join(" "), text })
        }
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

/// Queries the server and prints its findings. Returns the exit code of the process.
pub fn run(args: DoctorArgs) -> ExitCode {
    let asked = args.server.connect().and_then(|mut connection| text(&mut connection, &["DIAG", "DOCTOR"]));
    let answer = match asked {
        Ok(answer) => answer,
        Err(error) => {
            say!("strand doctor: {}", safe(&error.to_string()));
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
        false => ExitCode::from(HAS_FINDINGS),
    }
}
