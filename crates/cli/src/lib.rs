//! The command-line client, `strand cli`, for machines without redis-cli. Its options and output follow redis-cli.
//!
//! [`options`] parses the command line. [`client`] runs commands over a [`connection`] and shows replies in a
//! [`mod@format`]. [`repl`] reads commands line by line: from a person through the [`editor`] (completion and hints by
//! [`help`], from the command table), or from the standard input. [`modes`] and [`largest`] are the modes that do
//! not run a single command (`--stat`, `--latency`, `--pipe`, `--scan`, `--bigkeys`).
//!
//! **Invariant:** this crate knows no server. Of Strand's crates it uses only the protocol and the command table.

/// Writes a line to the standard error. A standard error that is full or closed does not stop the client.
macro_rules! complain {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod client;
mod connection;
mod editor;
mod format;
mod help;
mod interrupts;
mod largest;
mod modes;
mod options;
mod repl;
mod replica;
mod terminal;
mod tls;

use client::{Client, Failed};
pub use options::CliArgs;
use options::{CliMode, FromStdin, Options};
use std::io::{Read, stdin};
use std::path::Path;
use std::process::ExitCode;
use strand_commands::spec::CommandSpec;
pub use tls::TlsOptions;

/// Runs the client; `rows` is the command table, for its help. Returns the exit code of the process.
pub fn run(args: CliArgs, rows: &'static [CommandSpec]) -> ExitCode {
    let options = match args.resolve(help::Rows(rows)) {
        Ok(options) => options,
        Err(text) => {
            complain!("{text}");
            return ExitCode::FAILURE;
        }
    };
    let repeat = options.repeat;
    let command = match options.mode.clone() {
        CliMode::Commands(words) if words.is_empty() => return repl::run(Client::new(options)),
        CliMode::Commands(words) => arguments(words, &options),
        CliMode::Eval(file, words) => script(&file, words),
        _ => return modes::run(options),
    };
    let outcome = command.map(|args| {
        if help::is_help(&args) {
            options.rows.print(&args[1..]);
            return Ok(());
        }
        let is_script = matches!(options.mode, CliMode::Eval(..));
        let mut client = Client::new(options);
        // As redis-cli, the client sends a single command also after a refused login.
        let connected = if is_script { client.connect_as_wanted() } else { client.connect() };
        connected.and(Ok(())).and_then(|()| client.run(&args, repeat))
    });
    match outcome {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(Failed)) => ExitCode::FAILURE,
        Err((text, is_error)) => {
            match is_error {
                true => complain!("{text}"),
                false => client::write_stdout(format!("{text}\n").as_bytes()),
            }
            ExitCode::FAILURE
        }
    }
}

/// The arguments of the command. An error is its text, and whether the text goes to the standard error.
fn arguments(mut words: Vec<Vec<u8>>, options: &Options) -> Result<Vec<Vec<u8>>, (String, bool)> {
    if options.quoted_input {
        words = words
            .iter()
            .map(|word| options::unquoted(word))
            .collect::<Option<_>>()
            .ok_or_else(|| ("Invalid quoted string".to_string(), false))?;
    }
    let read = || {
        let mut text = Vec::new();
        stdin()
            .lock()
            .read_to_end(&mut text)
            .map_err(|e| (format!("Error reading from stdin: {e}"), true))?;
        Ok(text)
    };
    match &options.from_stdin {
        FromStdin::None => {}
        FromStdin::Last => words.push(read()?),
        FromStdin::Tag(tag) => match words.iter_mut().find(|word| *word == tag) {
            Some(word) => *word = read()?,
            None => return Err(("Using -X option but stdin tag not match.".into(), true)),
        },
    }
    Ok(words)
}

/// EVAL with the text of a file. A comma separates the keys from the other arguments.
fn script(file: &Path, words: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, (String, bool)> {
    let text = std::fs::read(file).map_err(|e| {
        let why = e.to_string();
        let why = why.split(" (os error ").next().unwrap_or(&why).to_string();
        (format!("Can't open file '{}': {why}", file.display()), true)
    })?;
    let keys = words.iter().position(|word| word == b",").unwrap_or(words.len());
    let mut args = vec![b"EVAL".to_vec(), text, keys.to_string().into_bytes()];
    // Only the first comma separates the keys from the arguments.
    args.extend(words.into_iter().enumerate().filter(|(i, _)| *i != keys).map(|(_, word)| word));
    Ok(args)
}
