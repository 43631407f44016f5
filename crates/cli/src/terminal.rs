//! The terminal: reads a password without showing it, and ends the process when the terminal is gone.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::io::{self, BufRead, Read, Stdin, Write, stderr, stdin};

const CTRL_C: u8 = 0x03;
const CTRL_D: u8 = 0x04;
const CTRL_U: u8 = 0x15;
const BACKSPACE: [u8; 2] = [0x08, 0x7f];

/// Asks for a password without showing what is typed. Without a terminal, reads a line of the standard input.
///
/// # Errors
/// When the terminal cannot be read or set, or when the person has pressed Ctrl-C.
pub fn ask_password() -> io::Result<Vec<u8>> {
    let input = stdin();
    let typed = match tcgetattr(&input) {
        Ok(modes) => {
            let typed = silently(&input, &modes);
            let _ = writeln!(stderr());
            tcsetattr(&input, OptionalActions::Flush, &modes)?;
            typed
        }
        Err(_) => {
            show_prompt();
            let mut line = Vec::new();
            input.lock().read_until(b'\n', &mut line).map(|_| line)
        }
    };
    let mut line = typed?;
    while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
        line.pop();
    }
    Ok(line)
}

/// Ends the process as soon as the terminal is gone. Otherwise, in a process that ignores SIGHUP, the editor would read the
/// end of the terminal again and again.
pub fn end_with_the_terminal() {
    let wait = || {
        loop {
            let input = stdin();
            let mut events = [PollFd::new(&input, PollFlags::empty())];
            match poll(&mut events, None) {
                Ok(_) if events[0].revents().contains(PollFlags::HUP) => std::process::exit(1),
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    };
    // Ignore a failure: a terminal is seldom gone without SIGHUP.
    let _ = std::thread::Builder::new().name("terminal".into()).spawn(wait);
}

fn show_prompt() {
    // Ignore a failure, because the password can still be read.
    let _ = write!(stderr(), "Please input password: ").and_then(|()| stderr().flush());
}

/// Reads a line byte by byte, so that also Ctrl-C is a byte, and the caller can restore the terminal.
fn silently(input: &Stdin, modes: &Termios) -> io::Result<Vec<u8>> {
    let mut quiet = modes.clone();
    quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
    quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
    quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(input, OptionalActions::Flush, &quiet)?;
    // The terminal is silent before the person begins to type.
    show_prompt();
    let mut line = Vec::new();
    for byte in input.lock().bytes() {
        match byte? {
            b'\n' | b'\r' | CTRL_D => break,
            CTRL_C => return Err(io::Error::new(io::ErrorKind::Interrupted, "no password was entered")),
            CTRL_U => line.clear(),
            byte if BACKSPACE.contains(&byte) => {
                // A character of UTF-8 goes with its continuation bytes.
                while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            byte if byte.is_ascii_control() => {}
            byte => line.push(byte),
        }
    }
    Ok(line)
}
