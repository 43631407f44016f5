//! `strand check rdb FILE`: reads a whole RDB file and prints its content, or the place of damage. Changes
//! nothing. `strand check aof FILE` is in [`aof`](super::check_aof).

use super::check_aof::{self, AofArgs};
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use strand_rdb::check::{Report, check};

/// The arguments of `strand check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Which kind of file is checked.
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A snapshot of redis-server, Valkey or Strand (dump.rdb)
    Rdb {
        /// The file.
        file: PathBuf,
    },
    /// An append-only file of redis-server, Valkey or Strand: its manifest, or one of its files
    Aof(AofArgs),
}

/// Runs the check. Exit code 0 when the file is whole, 1 when it is damaged or unreadable.
pub fn run(args: CheckArgs) -> ExitCode {
    let file = match args.what {
        What::Rdb { file } => file,
        What::Aof(args) => return check_aof::run(&args),
    };
    let opened = match File::open(&file) {
        Ok(opened) => opened,
        Err(e) => {
            say!("strand check: cannot read {}: {e}", file.display());
            return ExitCode::FAILURE;
        }
    };
    let (report, done) = check(opened, unix_ms(), &mut |_| {});
    let mut shown = text(&file, &report);
    if done.is_ok() {
        let _ = writeln!(shown, "{}: whole", file.display());
    }
    // Ignore a broken pipe: a reader that wants only the first lines closes the pipe.
    if let Err(e) = std::io::stdout().lock().write_all(shown.as_bytes())
        && e.kind() != ErrorKind::BrokenPipe
    {
        say!("strand check: standard output: {e}");
        return ExitCode::FAILURE;
    }
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let key = report.key.map_or(String::new(), |key| format!(", at or after key \"{key}\""));
            say!("strand check: {}: offset {}{key}: {e}", file.display(), report.bytes);
            ExitCode::FAILURE
        }
    }
}

/// The current time in unix milliseconds. A clock before 1970 counts as 1970.
fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// What the check found in the file, as text with one fact per line.
pub(super) fn text(file: &Path, report: &Report) -> String {
    let mut out = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{text}");
    };
    if report.version == 0 {
        return out;
    }
    let of = if report.valkey { " (Valkey)" } else { "" };
    line(format_args!("{}: RDB version {}{of}, {} bytes read", file.display(), report.version, report.bytes));
    report.aux.iter().for_each(|(name, value)| line(format_args!("  {name}: {value}")));
    for (db, (keys, expiring)) in &report.databases {
        line(format_args!("database {db}: {keys} keys, {expiring} with an expiry"));
    }
    for (name, (keys, elements)) in &report.types {
        line(format_args!("type {name}: {keys} keys, {elements} elements"));
    }
    if report.functions > 0 {
        line(format_args!("functions: {} libraries", report.functions));
    }
    for (module, count) in &report.modules {
        line(format_args!("module {module}: {count} values"));
    }
    line(format_args!("checksum: {}", if report.checksum_verified { "right" } else { "not verified" }));
    out
}
