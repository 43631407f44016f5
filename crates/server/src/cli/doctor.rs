//! `strand doctor`: problems of a running server, what the server did about them, and what to do.

use super::access::{ServerArgs, text_of};
use super::display::{print_line, safe};
use clap::Args;
use std::process::ExitCode;
use strand_cli::TlsOptions;
use strand_import::ImportError;
use strand_import::connection::Connection;
use strand_wire::client::Value;

/// Text of `strand doctor --help` below the options.
const AFTER_HELP: &str =
    "Exit codes: 0 nothing is wrong; 1 the server cannot be asked; 2 wrong usage; 3 something is wrong.";
/// The exit code when the server has findings.
pub(super) const HAS_FINDINGS: u8 = 3;

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
    /// The options of TLS.
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// Queries the server and prints its findings. Returns the exit code of the process.
pub fn run(args: DoctorArgs) -> ExitCode {
    let access = match args.server.access(&args.tls) {
        Ok(access) => access,
        Err(error) => {
            say!("strand doctor: {}", safe(&error.to_string()));
            return ExitCode::from(2);
        }
    };
    let asked = access.connect().and_then(|mut connection| text(&mut connection, &["DIAG", "DOCTOR"]));
    let answer = match asked {
        Ok(answer) => answer,
        Err(error) => {
            say!("strand doctor: {}", safe(&text_of(&error, access.tls.is_some())));
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
