//! Runs commands line by line: from a person at a terminal, through the [`editor`](crate::editor), or from the
//! standard input.

use crate::client::{Client, write_stdout};
use crate::editor::{Editor, Line};
use crate::format::OutputFormat;
use crate::terminal;
use std::io::{BufRead, IsTerminal, stdin, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use strand_wire::inline::words;

/// A person sees the duration of a command that took longer than this.
const SLOW: Duration = Duration::from_millis(500);

/// Reads and runs lines until the input ends.
pub fn run(mut client: Client) -> ExitCode {
    client.set_interactive();
    // Ignore the error: it has been printed, and the next command connects again.
    let _ = client.connect();
    // The editor asks the terminal where the cursor is. A file would not answer.
    if stdin().is_terminal() && stdout().is_terminal() {
        return run_interactive(client);
    }
    let mut input = stdin().lock();
    loop {
        let mut line = Vec::new();
        match input.read_until(b'\n', &mut line) {
            Ok(0) => return ExitCode::SUCCESS,
            Ok(_) => {}
            Err(e) => {
                complain!("Error reading from stdin: {e}");
                return ExitCode::FAILURE;
            }
        }
        while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
            line.pop();
        }
        if run_line(&mut client, &line, None).is_break() {
            return ExitCode::SUCCESS;
        }
    }
}

fn run_interactive(mut client: Client) -> ExitCode {
    terminal::end_with_the_terminal();
    let mut editor = Editor::new(client.rows());
    loop {
        match editor.read(&client.prompt()) {
            Ok(Line::Text(line)) => {
                if run_line(&mut client, line.as_bytes(), Some(&mut editor)).is_break() {
                    return ExitCode::SUCCESS;
                }
            }
            Ok(Line::Abandoned) => {}
            Ok(Line::End) => return ExitCode::SUCCESS,
            Err(e) => {
                complain!("strand: the terminal cannot be read: {e}");
                return ExitCode::FAILURE;
            }
        }
    }
}

/// True when the first word of a line says how many times the command runs.
pub fn is_repeat_count(word: &[u8]) -> bool {
    word.strip_prefix(b"-").unwrap_or(word).iter().all(u8::is_ascii_digit)
}

/// Runs a line. Returns `Break` when the line ends the client.
fn run_line(client: &mut Client, line: &[u8], editor: Option<&mut Editor>) -> std::ops::ControlFlow<()> {
    use std::ops::ControlFlow::{Break, Continue};
    let Some(mut args) = words(line) else {
        write_stdout(b"Invalid argument(s)\n");
        return Continue(());
    };
    let Some(first) = args.first().cloned() else { return Continue(()) };
    let mut repeat = 1;
    if args.len() > 1 && is_repeat_count(&first) {
        repeat = std::str::from_utf8(&first).ok().and_then(|t| t.parse().ok()).unwrap_or(0);
        if repeat <= 0 {
            write_stdout(b"Invalid redis-cli repeat command option value.\n");
            return Continue(());
        }
        args.remove(0);
    }
    let is = |word: &str| first.eq_ignore_ascii_case(word.as_bytes());
    if is("quit") || is("exit") {
        return Break(());
    }
    match (args.len(), editor) {
        (2, Some(editor)) if first == b":set" => match args[1].as_slice() {
            b"hints" => editor.show_hints(true),
            b"nohints" => editor.show_hints(false),
            other => complain!("unknown preference '{}'", String::from_utf8_lossy(other)),
        },
        (2, None) if first == b":set" => {}
        _ if first.starts_with(b":") => {
            complain!("unknown internal command '{}'", String::from_utf8_lossy(&first));
        }
        (1, _) if is("clear") => write_stdout(b"\x1b[H\x1b[2J"),
        (3, _) if is("connect") => match String::from_utf8_lossy(&args[2]).parse() {
            Ok(port) => client.connect_to(String::from_utf8_lossy(&args[1]).into_owned(), port),
            Err(_) => write_stdout(b"Invalid argument(s)\n"),
        },
        _ => {
            let started = Instant::now();
            // Ignore the error, which has been printed.
            let _ = client.run(&args, repeat);
            let took = started.elapsed();
            if took >= SLOW && client.options.output_format == OutputFormat::Standard {
                write_stdout(format!("({:.2}s)\n", took.as_secs_f64()).as_bytes());
            }
        }
    }
    Continue(())
}
