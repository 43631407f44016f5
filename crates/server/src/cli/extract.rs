//! `strand extract`: the process that extracts documents for an import. The import starts it; it is not for users.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use strand_import::extract::child::{ExtractorProgram, serve};

/// This program, even if its file was replaced since the start.
const PROGRAM: &str = "/proc/self/exe";

/// How an import starts the process.
pub fn program() -> ExtractorProgram {
    ExtractorProgram::new(PROGRAM, ["extract".into()])
}

/// Serves the socket on the standard input.
pub fn run() -> ExitCode {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    match socket.and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        // The import notices that it has lost this process, and reports that.
        Err(_) => ExitCode::FAILURE,
    }
}
