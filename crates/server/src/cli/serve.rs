//! `strand serve`: redis-server's command line: a configuration file, options, `-` for more of them on stdin.
//!
//! The options themselves are the engine's table; [`options_help`] prints it.

use crate::driver;
use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use strand_engine::Config;
use strand_engine::config::{Change, Kind, OPTIONS, OptionSpec, text_of_arguments};

/// The arguments of `strand serve`, read by the configuration's own table.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// A configuration file, then options and their values; `-` at the end reads more configuration from stdin
    #[arg(value_name = "CONFIG_FILE] [--OPTION VALUE", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// Runs the server; the value is the process's exit code.
pub fn run(args: ServeArgs) -> ExitCode {
    let served = configure(&args.arguments).and_then(|(config, file)| driver::serve(config, file));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("strand: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Every option with its type, default and meaning, for `strand serve --help`.
pub fn options_help() -> String {
    let mut text = String::from(
        "Configuration options, by redis-server's names. In a file: one `name value` a line, without the dashes; \
         `include FILE` reads another one. Later ones win: file, then stdin, then command line. (*) CONFIG SET can \
         change it while the server runs.\n",
    );
    for option in OPTIONS {
        let star = if option.change == Change::Anytime { " (*)" } else { "" };
        let default = if option.default.is_empty() { "\"\"" } else { option.default };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n  --{} {}{star}\n          {} [default: {default}]",
            option.name,
            value_help(option),
            option.help
        );
        match option.kind {
            Kind::Choice(words) => {
                let _ = write!(text, "\n          One of: {}", words.join(", "));
            }
            Kind::Fixed(why) => {
                let _ = write!(text, "\n          Only the default is taken: {why}");
            }
            _ => {}
        }
    }
    text.push_str("\n\nExit codes: 0 stopped by SHUTDOWN, SIGINT or SIGTERM; 1 cannot start, or told twice to stop; 2 wrong usage.");
    text
}

fn value_help(option: &OptionSpec) -> String {
    match option.kind {
        Kind::Integer(least, most) if most >= i32::MAX.into() => format!("<number from {least}>"),
        Kind::Integer(least, most) => format!("<number, {least} to {most}>"),
        Kind::Memory(..) => "<bytes, or with k, kb, m, mb, g, gb>".into(),
        Kind::Bool => "<yes|no>".into(),
        Kind::Choice(_) => "<word>".into(),
        Kind::Text => "<text>".into(),
        Kind::Words => "<word> ...".into(),
        Kind::OutputLimits => "<class hard soft seconds> ...".into(),
        Kind::Fixed(_) => format!("<{}>", if option.default.is_empty() { "\"\"" } else { option.default }),
    }
}

/// Reads the file, then stdin, then the options: the later wins.
fn configure(arguments: &[String]) -> Result<(Config, Option<PathBuf>), String> {
    let (mut rest, mut file, mut stdin) = (arguments, None, false);
    if let [first, more @ ..] = rest
        && !first.starts_with('-')
    {
        (file, rest) = (Some(absolute(Path::new(first))?), more);
    }
    if let [more @ .., last] = rest
        && last == "-"
    {
        (stdin, rest) = (true, more);
    }
    let config = Config::new();
    if let Some(path) = &file {
        load(&config, &read(path)?, &path.display().to_string())?;
    }
    if stdin {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|e| format!("cannot read the configuration from stdin: {e}"))?;
        load(&config, &text, "stdin")?;
    }
    load(&config, &text_of_arguments(rest)?, "the command line")?;
    Ok((config, file))
}

fn load(config: &Config, text: &str, source: &str) -> Result<(), String> {
    let mut include = |path: &str| read(Path::new(path));
    config.load(text, &mut include).map_err(|e| match source {
        "the command line" => format!("bad option in the command line: '{}': {}", e.text, e.reason),
        _ => format!("bad configuration in {source}, line {}: '{}': {}", e.line, e.text, e.reason),
    })
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path)
        .map_err(|e| format!("cannot read the configuration file {}: {e}", path.display()))
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path)
        .map_err(|e| format!("cannot find the configuration file {}: {e}", path.display()))
}
