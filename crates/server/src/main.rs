//! The `strand` binary: connects threads, clocks, sockets and files to the state machines of the other crates.
//!
//! [`cli`] is the command line, [`driver`] runs the server, and [`jobs`] runs the service for scheduled imports.
//!
//! **Invariant:** this crate may depend on everything, and decides nothing. `commands` and `engine` define what a
//! command does; this crate only drives them.

/// Writes a line to the standard error, as `eprintln!` does. But if nobody reads the standard error any more, the line is
/// lost and the program goes on: `eprintln!` would panic.
macro_rules! say {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($line)*);
    }};
}

mod bundle;
mod cli;
mod driver;
mod jobs;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::run(cli::parse())
}
