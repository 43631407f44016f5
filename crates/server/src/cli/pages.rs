//! `strand completions` and `strand man`: files that a package installs beside the program, generated from the
//! grammar of the command line.

use super::grammar;
use clap::{Arg, Args, ValueHint};
use clap_complete::Shell;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use strand_engine::config::{OPTIONS, ValueType};

/// The arguments of `strand completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell that is to complete `strand`
    #[arg(value_enum)]
    shell: Shell,
}

/// The arguments of `strand man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The folder that the pages are written to
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Prints the script for a shell.
pub fn completions(args: CompletionsArgs) -> ExitCode {
    let mut text = Vec::new();
    let mut grammar = grammar().mut_subcommand("serve", with_options);
    clap_complete::generate(args.shell, &mut grammar, "strand", &mut text);
    super::display::print_bytes(&text);
    ExitCode::SUCCESS
}

/// Ends of the names of options whose value is the path of a file or folder.
const PATHS: [&str; 3] = ["file", "dir", "unixsocket"];

/// The grammar of `serve` with every configuration option. `strand serve` itself finds these options in the table of
/// options.
fn with_options(serve: clap::Command) -> clap::Command {
    let shown = OPTIONS.iter().filter(|option| option.no_effect.is_none() && !option.is_hidden());
    serve.args(shown.map(|option| {
        let arg = Arg::new(option.name).long(option.name).help(option.help);
        match option.kind {
            ValueType::Bool => arg.value_parser(["yes", "no"]),
            ValueType::Choice(words) | ValueType::Flags(words) => arg.value_parser(words.to_vec()),
            ValueType::Text if PATHS.iter().any(|end| option.name.ends_with(end)) => {
                arg.value_hint(ValueHint::AnyPath)
            }
            _ => arg.value_hint(ValueHint::Other),
        }
    }))
}

/// Writes `strand.1` and one page for each subcommand, also for subcommands of subcommands (`strand-jobs-add.1`).
pub fn man(args: ManArgs) -> ExitCode {
    exit_code(write_all(&args.folder))
}

fn write_all(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| at(folder, &e))?;
    // `build` copies inherited settings and global options to the subcommands.
    let mut whole = grammar().disable_help_subcommand(true);
    whole.build();
    write_pages(folder, &whole, "strand")
}

fn write_pages(folder: &Path, command: &clap::Command, name: &str) -> io::Result<()> {
    write_page(folder, command, name)?;
    let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    shown.into_iter().try_for_each(|sub| write_pages(folder, sub, &format!("{name}-{}", sub.get_name())))
}

fn write_page(folder: &Path, command: &clap::Command, name: &str) -> io::Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).manual("Strand").render(&mut page)?;
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, page).map_err(|e| at(&path, &e))
}

/// The error with the path at which it happened.
fn at(path: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

fn exit_code(outcome: io::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say!("strand: {e}");
            ExitCode::FAILURE
        }
    }
}
