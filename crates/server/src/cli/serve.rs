//! `strand serve`, with redis-server's command line: a configuration file, then options; `-` reads more options from
//! stdin.
//!
//! The options are a table of the engine, which [`options_help`] prints.

use super::display::print_line;
use crate::driver;
use std::fmt::Write;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use strand_commands::glob;
use strand_engine::Config;
use strand_engine::config::{
    Change, ConfigError, ConfigText, OPTIONS, OptionSpec, text::NoOption, text_of_arguments,
};

/// Maximum length of a configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of files that one `include` with a pattern may match.
const INCLUDED_MAX: usize = 1000;

/// The arguments of `strand serve`, read by the configuration's own table.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// A configuration file, then options and their values; `-` at the end reads more configuration from stdin
    #[arg(value_name = "CONFIG_FILE] [--OPTION VALUE", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// Runs the server. Returns the exit code of the process.
pub fn run(args: ServeArgs) -> ExitCode {
    // As redis-server, which takes the version for an option only if nothing else is given.
    if let [only] = &args.arguments[..]
        && ["--version", "-v", "-V"].contains(&only.as_str())
    {
        print_line(concat!("strand ", env!("CARGO_PKG_VERSION")));
        return ExitCode::SUCCESS;
    }
    let fail = |error: &dyn std::error::Error| {
        say!("strand: {error}");
        ExitCode::FAILURE
    };
    let (config, file) = match configure(&args.arguments) {
        Ok(configured) => configured,
        Err(error) => return fail(&error),
    };
    match driver::serve(config, file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Why the command line or the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
enum ConfigureError {
    #[error("cannot find the configuration file {path}: {error}", path = path.display())]
    Path { path: PathBuf, error: io::Error },
    #[error("cannot read the configuration file {path}: {error}", path = path.display())]
    File { path: PathBuf, error: ConfigReadError },
    #[error("cannot read the configuration from stdin: {0}")]
    Stdin(ConfigReadError),
    #[error("the pattern {pattern:?} matches too many files: expected at most {INCLUDED_MAX}")]
    TooMany { pattern: String },
    #[error("{0}")]
    Arguments(NoOption),
    #[error("{0}")]
    Line(ConfigError),
}

/// Why a configuration cannot be read.
#[derive(Debug, thiserror::Error)]
enum ConfigReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the text is too long: expected at most {FILE_BYTES_MAX} bytes")]
    TooLong,
}

/// Every option with its type, default and meaning, for `strand serve --help`.
pub fn options_help() -> String {
    let mut text = String::from(
        "Configuration options, by redis-server's names. In a file: one `name value` a line, without the dashes; \
         `include FILE` reads another file (or all files that a pattern names). Later values win: file, then stdin, then command \
         line. (*) CONFIG SET can change the option while the server runs.\n",
    );
    for option in OPTIONS.iter().filter(|option| option.no_effect.is_none()) {
        describe(&mut text, option);
    }
    text.push_str(
        "\n\nOptions without effect in this version. They are checked, and CONFIG GET shows them:\n",
    );
    for option in OPTIONS.iter().filter(|option| !option.is_hidden()) {
        if let Some(why) = option.no_effect {
            describe(&mut text, option);
            // Writing to a string cannot fail.
            let _ = write!(text, "\n          No effect: {why}");
        }
    }
    text.push_str(
        "\n\nExit codes: 0 stopped by SHUTDOWN, SIGINT or SIGTERM; 1 cannot start (also after a wrong option), or SIGINT \
         while the server stops.",
    );
    text
}

fn describe(text: &mut String, option: &OptionSpec) {
    let star = if option.change == Change::Startup { "" } else { " (*)" };
    let default = if option.default.is_empty() { "\"\"" } else { option.default };
    let (name, takes, help) = (option.name, option.takes(), option.help);
    let _ = write!(text, "\n  --{name} <{takes}>{star}\n          {help} [default: {default}]");
}

/// Reads the file, then stdin, then the options. Later values win.
fn configure(arguments: &[String]) -> Result<(Config, Option<PathBuf>), ConfigureError> {
    let (mut rest, mut file, mut stdin) = (arguments, None, false);
    if let [first, more @ ..] = rest
        && !first.starts_with('-')
    {
        (file, rest) = (Some(absolute(Path::new(first))?), more);
    }
    match rest {
        [first, more @ ..] if first == "-" => (stdin, rest) = (true, more),
        [more @ .., last] if last == "-" => (stdin, rest) = (true, more),
        _ => {}
    }
    let config = Config::new();
    if let Some(path) = &file {
        load(&config, read(path)?)?;
    }
    if stdin {
        let text = read_bounded(&mut io::stdin().lock()).map_err(ConfigureError::Stdin)?;
        load(&config, ConfigText { name: "stdin".into(), text, is_numbered: true })?;
    }
    let text = text_of_arguments(rest).map_err(ConfigureError::Arguments)?.into_bytes();
    load(&config, ConfigText { name: "command line".into(), text, is_numbered: false })?;
    Ok((config, file))
}

fn load(config: &Config, source: ConfigText) -> Result<(), ConfigureError> {
    let mut include = |path: &str| include(path).map_err(|error| error.to_string());
    config.load(&source, &mut include).map_err(ConfigureError::Line)
}

/// The files that an `include` matches. A pattern may match no file.
fn include(path: &str) -> Result<Vec<ConfigText>, ConfigureError> {
    match path.contains(['*', '?', '[']) {
        true => expand(path)?.iter().map(|path| read(path)).collect(),
        false => Ok(vec![read(Path::new(path))?]),
    }
}

/// The files that a pattern matches, sorted. As in a shell, wildcards match neither a `/` nor a dot at the start
/// of a name.
fn expand(pattern: &str) -> Result<Vec<PathBuf>, ConfigureError> {
    let mut found = vec![PathBuf::from(if pattern.starts_with('/') { "/" } else { "" })];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut deeper = Vec::new();
        for folder in &found {
            if !part.contains(['*', '?', '[']) {
                deeper.push(folder.join(part));
                continue;
            }
            let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            let Ok(entries) = std::fs::read_dir(listed) else { continue };
            for name in entries.flatten().map(|entry| entry.file_name()) {
                let bytes = name.as_bytes();
                let is_seen = !bytes.starts_with(b".") || part.starts_with('.');
                if is_seen && glob::matches(part.as_bytes(), bytes, false) {
                    deeper.push(folder.join(&name));
                }
            }
        }
        if deeper.len() > INCLUDED_MAX {
            return Err(ConfigureError::TooMany { pattern: pattern.to_owned() });
        }
        found = deeper;
    }
    found.retain(|path| path.exists());
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<ConfigText, ConfigureError> {
    let read = || read_bounded(&mut std::fs::File::open(path)?);
    let text = read().map_err(|error| ConfigureError::File { path: path.to_owned(), error })?;
    Ok(ConfigText { name: path.display().to_string(), text, is_numbered: true })
}

/// Reads `from` to its end, but at most [`FILE_BYTES_MAX`] bytes.
fn read_bounded(from: &mut dyn Read) -> Result<Vec<u8>, ConfigReadError> {
    let mut text = Vec::new();
    from.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(ConfigReadError::TooLong),
        false => Ok(text),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, ConfigureError> {
    std::path::absolute(path).map_err(|error| ConfigureError::Path { path: path.to_owned(), error })
}
