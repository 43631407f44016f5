//! Reads a password from the terminal without showing it.

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io::{self, BufRead, Write, stderr, stdin};

/// Asks for a password without showing what is typed.
///
/// # Errors
/// When the terminal cannot be read or set.
pub fn ask_password() -> io::Result<Vec<u8>> {
    eprint!("Please input password: ");
    // Ignore a failure to show the prompt, because the password can still be read.
    let _ = stderr().flush();
    let input = stdin().lock();
    let before = tcgetattr(&input).ok();
    if let Some(modes) = &before {
        let mut quiet = modes.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&input, OptionalActions::Flush, &quiet)?;
    }
    let mut line = Vec::new();
    let mut input = input;
    let read = input.read_until(b'\n', &mut line);
    if let Some(modes) = &before {
        tcsetattr(&input, OptionalActions::Flush, modes)?;
    }
    eprintln!();
    read?;
    while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        line.pop();
    }
    Ok(line)
}
