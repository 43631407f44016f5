//! The `strand` binary: joins threads, clocks, sockets and files to the machines of the other crates.
//!
//! [`cli`] is the command line, [`driver`] runs the server, [`jobs`] the service that imports by itself.
//!
//! **Invariant:** nothing is forbidden here, and nothing is decided here: what a command does is in `commands` and
//! `engine`, this crate only drives them.

mod cli;
mod driver;
mod jobs;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::run(cli::parse())
}
