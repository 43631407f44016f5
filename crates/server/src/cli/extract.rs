//! `strand extract`: the process that extracts documents for an import. The import starts it; it is not for users.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use strand_import::extract::child::{ExtractorProgram, serve};

/// Path of the running program. The path stays right even if the program's file was replaced since the start.
const PROGRAM: &str = "/proc/self/exe";

/// The program and arguments with which an import starts the extracting process.
pub fn program() -> ExtractorProgram {
    ExtractorProgram::new(PROGRAM, ["extract".into()])
}

/// Serves the import through the socket that is this process's standard input.
pub fn run() -> ExitCode {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    match socket.and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        // Print nothing, because the import reports that this process has ended.
        Err(_) => ExitCode::FAILURE,
    }
}
