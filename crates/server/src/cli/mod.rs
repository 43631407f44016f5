//! The command line: `strand serve` and `strand import`, their help and their exit codes.
//!
//! [`Cli`] is the whole grammar. `serve` takes redis-server's own options, which are a table of the engine: clap hands
//! them through unread. What a subcommand does lives in its own module.

pub mod import;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// An in-memory data server that speaks Redis, imports mail archives and folders, and searches them.
#[derive(Debug, Parser)]
#[command(name = "strand", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a running server hold the documents of a folder or Maildir, and keep it so at each further run
    Import(import::ImportArgs),
}

/// Runs the subcommand; the value is the process's exit code.
pub fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Import(args) => import::run(args),
    }
}
