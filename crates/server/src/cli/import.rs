//! `strand import`: the command line of the importer, its progress display and its exit codes.
//!
//! The job itself is `strand_import::run`. The last line on the standard output is the summary; everything else that is
//! said (progress, skipped files, dead letters, errors) goes to the standard error, except the changes a dry run lists.

use clap::{ArgAction, Args};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use strand_import::{ImportOptions, MaxDelete, Outcome, Progress, Summary};

/// What `strand import --help` says below the options.
const AFTER_HELP: &str = "\
The dataset becomes exactly what SOURCE holds: documents that are not there any more are removed, also when SOURCE is \
another folder than at the last run. Only what changed since then is read and sent.

A document is a hash at NAME:path. What is in archives (zip, tar, gz, xz, zstd, mbox, in one another too) are documents \
with the archive's path before their own, and in their field parent; the archive is a document as well. Mail (RFC 5322, \
with or without an mbox 'From ' line) has the fields message_id, date (Unix seconds), from, from_address, to, to_address, \
cc, subject, body and attachments, and in a Maildir flags; every document has path, name, kind (mail, file, archive or \
mailbox) and size. A file that claims to be mail (.eml, in a Maildir, or by its first line) and \
cannot be read as such is a dead letter: it is listed at the end and counted as failed, the others \
go on.

Exit codes: 0 done; 1 stopped by an error, or (with --strict) documents failed; 2 wrong usage.";

/// The least time between two plain progress lines.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Options of `strand import`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ImportArgs {
    /// The folder or Maildir to import, or a revision of a git repository: git+file:///path/of/repository@main
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// The dataset: documents become hashes at NAME:path, the text index is called NAME
    #[arg(long, value_name = "NAME")]
    pub into: String,
    /// The server to send to
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    pub server: String,
    /// The password of the server; better kept in the environment variable STRAND_PASSWORD than on a command line
    #[arg(long, value_name = "PASSWORD")]
    pub password: Option<String>,
    /// The user to authenticate as, with a password
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// The database to import into; other than 0 only with --no-index
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub db: u32,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Exit with 1 when a document failed
    #[arg(long)]
    pub strict: bool,
    /// Do not create the text index
    #[arg(long = "no-index", action = ArgAction::SetFalse)]
    pub index: bool,
    /// Make documents of mails' attachments too
    #[arg(long)]
    pub attachments: bool,
    /// Stop before anything is changed when more documents than this would be removed: a number, or a share of those that
    /// are held (a share allows up to 100 documents in any case)
    #[arg(long, value_name = "NUMBER or SHARE", default_value = "20%")]
    pub max_delete: MaxDelete,
    /// Print no progress, only the summary, dead letters and errors
    #[arg(long, short, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print each change, and what the run read
    #[arg(long, short)]
    pub verbose: bool,
}

/// Runs the import; the value is the process's exit code.
pub fn run(args: ImportArgs) -> ExitCode {
    let password = args.password.or_else(|| std::env::var("STRAND_PASSWORD").ok());
    let options = ImportOptions {
        source: args.source,
        into: args.into,
        address: args.server,
        username: args.user,
        password,
        db: args.db,
        dry_run: args.dry_run,
        index: args.index,
        attachments: args.attachments,
        max_delete: args.max_delete,
    };
    let mut display = Display::new(&options, args.quiet, args.verbose);
    let result = strand_import::run(&options, &mut display);
    display.finish();
    match result {
        Ok(summary) => {
            report(&summary, args.verbose);
            ExitCode::from(u8::from(args.strict && summary.failed > 0))
        }
        Err(error @ strand_import::ImportError::Options(_)) => {
            eprintln!("strand import: {}", safe(&error.to_string()));
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("strand import: {}", safe(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

/// What is said at the end.
fn report(summary: &Summary, verbose: bool) {
    let skipped = summary.skipped;
    if skipped.links + skipped.special + skipped.submodules > 0 {
        let submodules = match skipped.submodules {
            0 => String::new(),
            n => format!(", {n} submodules"),
        };
        eprintln!("skipped: {} symbolic links, {} special files{submodules}", skipped.links, skipped.special);
    }
    if verbose {
        eprintln!(
            "opened {} documents ({} bytes), listed {} folders, recorded {}",
            summary.opened, summary.bytes_read, summary.containers, summary.recorded
        );
        if summary.containers_skipped > 0 {
            eprintln!("skipped {} folders whose trees are unchanged", summary.containers_skipped);
        }
    }
    if summary.failed > 0 {
        eprintln!("failed:");
        for letter in &summary.dead_letters {
            eprintln!("  {}: {}", printable(&letter.path), safe(&letter.reason));
        }
        let unlisted = summary.failed - summary.dead_letters.len() as u64;
        if unlisted > 0 {
            eprintln!("  and {unlisted} more");
        }
    }
    print_line(&summary.to_string());
}

/// Prints to the standard output; a reader that has gone away is no reason to panic.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A path for people: what is not UTF-8 is replaced, the rest made [`safe`].
fn printable(path: &[u8]) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    safe(&String::from_utf8_lossy(path))
}

/// Text from outside (a server's words, a file's name) as it may go to a terminal: control characters, and those that
/// turn the direction of writing or break lines, are escaped.
fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.extend(c.escape_default())
            }
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Progress: a bar on a terminal, a plain line now and then elsewhere, nothing when quiet.
struct Display {
    into: String,
    dry_run: bool,
    verbose: bool,
    bar: Option<ProgressBar>,
    lines: bool,
    listed: u64,
    done: u64,
    last_line: Instant,
}

impl Display {
    fn new(options: &ImportOptions, quiet: bool, verbose: bool) -> Display {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !quiet).then(|| {
            let style =
                ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} documents, {rate} {wide_msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
            let style = style.with_key("rate", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                let _ = write!(out, "{:.0}/s", state.per_sec());
            });
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()).with_style(style);
            bar.set_prefix(options.into.clone());
            bar
        });
        Display {
            into: options.into.clone(),
            dry_run: options.dry_run,
            verbose,
            lines: !quiet && !terminal,
            bar,
            listed: 0,
            done: 0,
            last_line: Instant::now(),
        }
    }
    /// A line on the standard output that the bar does not overwrite.
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| print_line(line)),
            None => print_line(line),
        }
    }
    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Display {
    fn listed(&mut self, path: &[u8], documents: u64) {
        self.listed += documents;
        if let Some(bar) = &self.bar {
            bar.set_length(self.listed);
            bar.set_message(if path.is_empty() { String::new() } else { printable(path) });
        }
    }
    fn document(&mut self, path: &[u8], outcome: Outcome<'_>) {
        let sign = match outcome {
            Outcome::Added => "+",
            Outcome::Updated => "~",
            Outcome::Removed => "-",
            Outcome::Failed(_) => "!",
            Outcome::Unchanged => "",
        };
        if (self.dry_run || self.verbose) && !sign.is_empty() {
            self.say(&format!("{sign} {}", printable(path)));
        }
        if outcome != Outcome::Removed {
            self.done += 1;
            if let Some(bar) = &self.bar {
                bar.inc(1);
            }
        }
        if self.lines && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            eprintln!("{}: {} of {} documents listed so far", self.into, self.done, self.listed);
        }
    }
    fn index_created(&mut self, name: &str) {
        if self.dry_run {
            self.say(&format!("+ index {name}"));
        } else if self.lines {
            eprintln!("{name}: created the text index {name}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn paths_are_safe_to_print() {
        assert_eq!(printable(b"a\x1b[31m\nb"), "a\\u{1b}[31m\\nb");
        assert_eq!(printable(b"caf\xe9"), "caf\u{fffd}");
        assert_eq!(printable(b""), ".");
        assert_eq!(printable("a\u{202e}fdp.exe\u{9b}1m".as_bytes()), "a\\u{202e}fdp.exe\\u{9b}1m");
    }
}
