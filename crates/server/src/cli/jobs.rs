//! `strand jobs`: what was imported into a server, and what failed of it.

use super::display::{print_line, printable, safe};
use super::import::exit_code;
use super::json;
use clap::{Args, Subcommand};
use std::process::ExitCode;
use strand_import::connection::Target;
use strand_import::datasets;

/// What `strand jobs --help` says below the options.
const AFTER_HELP: &str = "\
A job is called as the dataset that it imports into. To read again what failed: strand import SOURCE --into NAME --retry-failed

Exit codes: 0 done; 1 stopped by an error; 2 wrong usage.";

/// Options of `strand jobs`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct JobsArgs {
    /// What to tell.
    #[command(subcommand)]
    pub command: JobsCommand,
    /// The server to ask
    #[arg(long, global = true, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    pub server: String,
    /// The password of the server; better kept in the environment variable STRAND_PASSWORD than on a command line
    #[arg(long, global = true, value_name = "PASSWORD")]
    pub password: Option<String>,
    /// The user to authenticate as, with a password
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// The database that was imported into
    #[arg(long, global = true, value_name = "NUMBER", default_value_t = 0)]
    pub db: u32,
    /// Print one JSON object a line
    #[arg(long, global = true)]
    pub json: bool,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// List the datasets with their numbers of documents
    List,
    /// List the documents of a dataset that failed, with the reason
    Errors {
        /// The dataset
        #[arg(value_name = "NAME")]
        dataset: String,
    },
}

/// Asks and prints; the value is the process's exit code.
pub fn run(args: JobsArgs) -> ExitCode {
    let password = args.password.or_else(|| std::env::var("STRAND_PASSWORD").ok());
    let target = Target {
        address: &args.server,
        username: args.user.as_deref(),
        password: password.as_deref(),
        db: args.db,
    };
    let done = match &args.command {
        JobsCommand::List => {
            datasets::list(&target).map(|all| all.iter().for_each(|d| print_dataset(d, args.json)))
        }
        JobsCommand::Errors { dataset } => {
            let told = datasets::errors(&target, dataset, &mut |path, reason| match args.json {
                true => json::print_failed(path, reason),
                false => print_line(&format!("{}: {}", printable(path), safe(reason))),
            });
            told.map(|dataset| print_dataset(&dataset, args.json))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let (message, code) = (safe(&error.to_string()), exit_code(&error));
            if args.json {
                json::print_error(&message, code);
            }
            eprintln!("strand jobs: {message}");
            ExitCode::from(code)
        }
    }
}

fn print_dataset(dataset: &datasets::Dataset, is_json: bool) {
    if is_json {
        return json::print_dataset(dataset);
    }
    let datasets::Dataset { name, containers, documents, failed, interrupted } = dataset;
    let cut = if *interrupted { ", the last run was cut short" } else { "" };
    print_line(&format!(
        "{}: {documents} documents in {containers} containers, {failed} failed{cut}",
        safe(name)
    ));
}
