//! `strand import`: the command line of the importer.

use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `strand import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The folder or Maildir to import
    pub source: PathBuf,
}

/// Runs the import; the value is the process's exit code.
pub fn run(args: ImportArgs) -> ExitCode {
    let _ = args.source;
    ExitCode::FAILURE
}
