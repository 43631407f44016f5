//! The command line: `strand serve`, `strand import`, `strand diff`, `strand cli`, `strand check` and others, with
//! their help and exit codes.
//!
//! [`Cli`] is the whole grammar. `serve` takes redis-server's own options, which are a table of the engine, so
//! clap passes them through unread. Each subcommand has a module.

pub mod access;
pub mod bundle;
pub mod check;
mod check_aof;
pub mod diff;
pub mod display;
pub mod doctor;
pub mod error;
mod extract;
pub mod filters;
pub mod import;
pub mod jobs;
pub mod json;
mod pages;
pub mod profile;
pub mod remote;
pub mod serve;
pub mod supervised;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Text of `strand --help` below the subcommands.
const AFTER_HELP: &str = "Try: strand serve --port 6379, then redis-cli ping.
Exit codes: 0 done; 1 failed, with the reason on the standard error; 2 wrong usage (of serve: 1).
Some subcommands have further codes: see their --help.
`strand serve --help` lists every configuration option.";

/// An in-memory data server that speaks Redis, imports mail archives and folders, and searches them.
#[derive(Debug, Parser)]
#[command(name = "strand", version, after_help = AFTER_HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server
    Serve(serve::ServeArgs),
    /// Import documents (mail, folders, git, buckets, archives) into a running server; later runs update them
    Import(Box<import::ImportArgs>),
    /// Show how two sources differ: what an import of the second would change after an import of the first
    Diff(diff::DiffArgs),
    /// List imported datasets and failed documents; run a service that imports on a schedule
    Jobs(jobs::JobsArgs),
    /// Run commands on a server, or open an editor for them, with redis-cli's options and its output
    Cli(Box<strand_cli::CliArgs>),
    /// Collect everything about a running server into one file, or show such a file
    Bundle(bundle::BundleArgs),
    /// Show where a running server allocated its memory, or where its processor time goes
    Profile(profile::ProfileArgs),
    /// Show what is wrong with a running server, what it did about that, and what to do
    Doctor(doctor::DoctorArgs),
    /// Read a data file to its end, and show what is in it or where it is damaged
    Check(check::CheckArgs),
    /// Print the script that makes a shell complete this command
    Completions(pages::CompletionsArgs),
    /// Extract documents for an import that started this process
    #[command(hide = true)]
    Extract,
    /// Write the man pages of this command and its subcommands to a folder
    Man(pages::ManArgs),
}

/// The whole grammar, with what the derived structs do not say.
fn grammar() -> clap::Command {
    Cli::command()
        .mut_subcommand("serve", |serve| serve.after_help(serve::options_help()))
        .mut_subcommand("jobs", jobs_grammar)
}

/// The grammar of `jobs`. Its options may stand before or after its subcommand. The help of a subcommand leaves out the options
/// that the subcommand refuses.
fn jobs_grammar(jobs: clap::Command) -> clap::Command {
    let jobs = jobs.mut_args(|arg| arg.global(true));
    let options: Vec<clap::Arg> = jobs.get_arguments().cloned().collect();
    jobs.mut_subcommands(|subcommand| {
        let name = subcommand.get_name().to_owned();
        let refused = options.iter().filter(|option| jobs::is_refused(&name, option.get_id().as_str()));
        // A subcommand's own copy of an option replaces the copy that clap would make.
        subcommand.args(refused.map(|option| option.clone().hide(true)))
    })
}

/// Parses the command line. Exits after printing help, the version, or an error in the command line.
pub fn parse() -> Cli {
    let matches = grammar().try_get_matches().unwrap_or_else(|error| exit(error));
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| exit(error))
}

/// Prints the help, the version, or the error in the command line, and ends the process.
fn exit(error: clap::Error) -> ! {
    if error.use_stderr() {
        masked(error).exit();
    }
    display::print_line(error.render().to_string().trim_end_matches('\n'));
    std::process::exit(i32::from(has_output_error()))
}

/// True when the output could not be written. Then says why.
fn has_output_error() -> bool {
    let error = display::output_error();
    if let Some(error) = error {
        say!("strand: cannot write the output: {error}");
    }
    error.is_some()
}

/// The error without the password in the value that it quotes: a sink may be a URL with a user.
fn masked(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        let shown = without_password(value);
        error.insert(ContextKind::InvalidValue, ContextValue::String(shown));
    }
    error
}

/// The text with `***` in the place of everything between the colon after a user's name and the last `@`, or of the user
/// without a password. The text is not a valid URL, so a password in it may have any characters.
fn without_password(text: &str) -> String {
    let user_at = text.find("://").map_or(0, |at| at + 3);
    let (before, rest) = text.split_at(user_at);
    let Some((user, after)) = rest.rsplit_once('@') else { return text.to_owned() };
    match user.split_once(':') {
        Some((name, _)) => format!("{before}{name}:***@{after}"),
        None if user_at > 0 => format!("{before}***@{after}"),
        None => text.to_owned(),
    }
}

/// Checks the arguments of `strand`, from `import` on.
///
/// # Errors
/// What is wrong, in one line.
pub fn check_import(arguments: Vec<String>) -> Result<(), String> {
    let words = std::iter::once("strand".to_owned()).chain(arguments);
    let error = match Cli::try_parse_from(words) {
        Ok(Cli { command: Command::Import(args) }) => return args.check(),
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let text = masked(error).to_string();
    let line = text.lines().next().unwrap_or_default();
    Err(line.strip_prefix("error: ").unwrap_or(line).to_owned())
}

/// Runs the subcommand. Returns the exit code of the process.
pub fn run(cli: Cli) -> ExitCode {
    // The codes of a result, which the output has. A code of an error stays.
    let (results, stopped): (&[u8], u8) = match &cli.command {
        Command::Diff(_) => (&[0, 1, 3], diff::EXIT_STOPPED),
        Command::Import(_) => (&[0, import::DOCUMENTS_FAILED], 1),
        Command::Doctor(_) => (&[0, doctor::HAS_FINDINGS], 1),
        _ => (&[0], 1),
    };
    let code = run_command(cli.command);
    let is_result = results.iter().any(|result| code == ExitCode::from(*result));
    if has_output_error() && is_result { ExitCode::from(stopped) } else { code }
}

fn run_command(command: Command) -> ExitCode {
    match command {
        Command::Serve(args) => serve::run(args),
        Command::Import(args) => import::run(*args),
        Command::Diff(args) => diff::run(args),
        Command::Jobs(args) => jobs::run(args),
        Command::Cli(args) => strand_cli::run(*args, strand_engine::TABLE.rows()),
        Command::Bundle(args) => bundle::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Check(args) => check::run(args),
        Command::Completions(args) => pages::completions(args),
        Command::Extract => extract::run(),
        Command::Man(args) => pages::man(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_a_subcommand_of_jobs_has_no_option_that_the_subcommand_refuses() {
        for (subcommand, has, lacks) in [
            ("list", &["--service", "--server", "--user", "--tls", "--db", "--json"][..], &[][..]),
            (
                "serve",
                &["--json"],
                &["--service", "--server", "--user", "--password", "--tls", "--cacert", "--db"],
            ),
            ("run", &["--service", "--wait"], &["--server", "--user", "--tls", "--cacert", "--db"]),
            (
                "add",
                &["--service", "--server", "--db", "--every"],
                &["--user", "--password", "--tls", "--cacert"],
            ),
        ] {
            let asked = grammar().try_get_matches_from(["strand", "jobs", subcommand, "--help"]);
            let help = asked.expect_err("help ends the parsing").to_string();
            let named = |option: &&&str| {
                help.contains(&format!("{option} ")) || help.contains(&format!("{option}\n"))
            };
            assert_eq!(has.iter().find(|option| !named(option)), None, "{subcommand}: {help}");
            assert_eq!(lacks.iter().find(named), None, "{subcommand}: {help}");
        }
        // The options still have their values, before and after the subcommand.
        for words in [["--service", "h:1", "run", "j"], ["run", "j", "--user", "ann"]] {
            let matches =
                grammar().try_get_matches_from(["strand", "jobs"].iter().chain(&words)).expect("valid");
            let Command::Jobs(jobs) = Cli::from_arg_matches(&matches).expect("valid").command else {
                panic!("jobs")
            };
            assert_eq!(jobs.service.is_some(), words[0] == "--service");
            assert_eq!(jobs.server.user.is_some(), words[0] == "run");
        }
    }

    #[test]
    fn an_error_quotes_no_password() {
        for (to, shown) in [
            ("solr+http://ann:s3cr/et?#@h/x", "solr+http://ann:***@h/x"),
            ("solr+ann:s3cret@h", "solr+ann:***@h"),
            ("file:x.y", "file:x.y"),
        ] {
            let words = ["import", "/s", "--into", "d", "--to", to].map(str::to_owned);
            let error = check_import(words.to_vec()).expect_err("it is no sink");
            assert!(error.contains(shown) && !error.contains("s3cr"), "{error}");
        }
    }
}
