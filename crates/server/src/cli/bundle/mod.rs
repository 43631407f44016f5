//! `strand bundle`, which makes a bundle ([`crate::bundle`]), and `strand bundle show`. [`console`] shows a bundle in a
//! browser.

mod console;

use super::access::ServerArgs;
use super::display::{print_bytes, print_line, safe};
use super::error::CliError;
use crate::bundle::archive::Bundle;
use crate::bundle::contents::{QUERIES, assemble};
use clap::{Args, Subcommand};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use strand_cli::TlsOptions;
use strand_import::ImportError;
use strand_wire::client::Value as Reply;

/// Options of `strand bundle`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BundleArgs {
    /// What to do with an existing bundle.
    #[command(subcommand)]
    pub command: Option<BundleCommand>,
    /// How the server is reached.
    #[command(flatten)]
    pub server: ServerArgs,
    /// The file to write; it must not exist yet
    #[arg(long, value_name = "FILE", default_value = "strand-bundle.tar.zst")]
    pub output: PathBuf,
    /// Include the arguments of slow commands, which are data of clients
    #[arg(long)]
    pub with_arguments: bool,
    /// The options of TLS.
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum BundleCommand {
    /// Check a bundle and list its entries
    Show {
        /// The bundle
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print the content of this entry
        #[arg(long, value_name = "NAME", conflicts_with = "console")]
        entry: Option<String>,
        /// Refuse the bundle unless its manifest has this digest, which was printed when the bundle was made
        #[arg(long, value_name = "DIGEST")]
        digest: Option<String>,
        /// Serve the console at this loopback address, to show the bundle in a browser, until this command is ended
        #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:0")]
        console: Option<SocketAddr>,
    },
}

/// Makes or shows a bundle. Returns the exit code of the process.
pub fn run(args: BundleArgs) -> ExitCode {
    let done = match &args.command {
        Some(BundleCommand::Show { file, entry, digest, console }) => {
            show(file, entry.as_deref(), digest.as_deref(), *console)
        }
        None => make(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say!("strand bundle: {}", safe(&why.to_string()));
            why.exit_code()
        }
    }
}

fn make(args: BundleArgs) -> Result<(), CliError> {
    let access = args.server.access(&args.tls)?;
    let mut connection = access.connect()?;
    let (mut replies, mut refusals) = (Vec::new(), Vec::new());
    for asked in QUERIES {
        replies.push(match connection.call(asked.args) {
            // A bundle without some of its entries is better than none, for example while a script makes the server busy.
            Err(ImportError::Refused { text, .. }) if !is_about_server(&text) => {
                refusals.push(text.clone());
                Reply::Error(text.into_bytes())
            }
            reply => reply?,
        });
    }
    if let Some(text) = refusals.first() {
        let all = QUERIES.len();
        say!("strand bundle: {} of {all} commands were refused, the first: {}", refusals.len(), safe(text));
        if refusals.len() == all {
            return Err(CliError::NothingToBundle);
        }
    }
    let secrets = access.password.map(String::into_bytes).into_iter().collect();
    let bundle = assemble(replies, secrets, args.with_arguments);
    let written = bundle.write(&args.output);
    let bytes = written.map_err(|error| CliError::Write { path: args.output.clone(), error })?;
    print_line(&format!("{}: {} entries, {bytes} bytes", args.output.display(), bundle.entries.len()));
    print_line(&format!("digest {}", bundle.digest()));
    Ok(())
}

/// The date and the time of day in UTC, such as `2026-11-30T19:26:40Z`.
fn utc(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|unix_s| jiff::Timestamp::from_second(unix_s).ok());
    time.map_or_else(|| format!("{unix_s} (Unix time)"), |time| time.to_string())
}

/// True for an error that every command of a bundle would get: the client has not logged in, or the server is not Strand.
fn is_about_server(error: &str) -> bool {
    error.starts_with("NOAUTH") || error.starts_with("ERR unknown command")
}

fn show(
    file: &std::path::Path,
    entry: Option<&str>,
    digest: Option<&str>,
    console: Option<SocketAddr>,
) -> Result<(), CliError> {
    let failed = |error| CliError::Bundle { path: file.to_owned(), error };
    let bundle = Bundle::read(file).map_err(failed)?;
    if digest.is_some_and(|digest| digest != bundle.digest()) {
        return Err(CliError::Digest { path: file.to_owned(), digest: bundle.digest() });
    }
    if let Some(listen) = console {
        let name = file.display().to_string();
        let ready = |address| print_line(&format!("http://{address}/ shows {}", safe(&name)));
        return console::serve(bundle, listen, ready);
    }
    if let Some(name) = entry {
        let found = bundle.entries.iter().find(|entry| entry.name == name);
        let found = found.ok_or_else(|| CliError::NoEntry(name.to_owned()))?;
        print_bytes(&found.bytes);
        return Ok(());
    }
    print_line(&format!(
        "made by strand {} at {}; digest {}",
        bundle.version,
        utc(bundle.made_s),
        bundle.digest()
    ));
    for entry in &bundle.entries {
        print_line(&format!("{:>10}  {}", entry.bytes.len(), safe(&entry.name)));
    }
    let doctor = bundle.entries.iter().find(|entry| entry.name == "diag/doctor.json");
    let doctor: Value =
        doctor.and_then(|entry| serde_json::from_slice(&entry.bytes).ok()).unwrap_or_default();
    doctor["text"].as_str().unwrap_or_default().lines().for_each(|line| print_line(&safe(line)));
    Ok(())
}
