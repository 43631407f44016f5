//! Reads a password from the terminal without showing it.

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io::{BufRead, Write, stderr, stdin};

/// Asks for a password without showing what is typed.
///
/// # Errors
/// The text for the user.
pub fn ask_password() -> Result<Vec<u8>, String> {
    eprint!("Please input password: ");
    // Without the prompt the password can still be read.
    let _ = stderr().flush();
    let input = stdin().lock();
    let before = tcgetattr(&input).ok();
    if let Some(modes) = &before {
        let mut quiet = modes.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&input, OptionalActions::Flush, &quiet).map_err(|e| e.to_string())?;
    }
    let mut line = Vec::new();
    let mut input = input;
    let read = input.read_until(b'\n', &mut line);
    if let Some(modes) = &before {
        tcsetattr(&input, OptionalActions::Flush, modes).map_err(|e| e.to_string())?;
    }
    eprintln!();
    read.map_err(|e| e.to_string())?;
    while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        line.pop();
    }
    Ok(line)
}
