//! `strand check aof FILE [--fix]`, like redis-check-aof. Reads a manifest and all its files, or one file, and
//! prints their content, or the place of damage. `--fix` truncates the last file after its last whole command.

use clap::Args;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use strand_aof::check::{Problem, Report, check};
use strand_aof::manifest::{self, Manifest};

/// Number of bytes that are read from a file at a time.
const READ_BYTES: usize = 1 << 20;
/// The first bytes of a manifest. A file of commands starts with other bytes.
const MANIFEST_STARTS: [&[u8]; 2] = [b"file", b"# "];

/// The arguments of `strand check aof`.
#[derive(Debug, Args)]
pub struct AofArgs {
    /// Cut the last file behind its last whole command. Keep a copy before
    #[arg(long)]
    fix: bool,
    /// Do not ask whether to cut
    #[arg(long)]
    yes: bool,
    /// Cut the last file behind what was written up to this time, in unix seconds; needs aof-timestamp-enabled when it was
    /// written
    #[arg(long, value_name = "SECONDS", conflicts_with = "fix")]
    truncate_to_timestamp: Option<i64>,
    /// The manifest (appendonlydir/appendonly.aof.manifest), or a file
    file: PathBuf,
}

/// Runs the check. Exit code 0 when all is whole, or was repaired.
pub fn run(args: &AofArgs) -> ExitCode {
    match check_all(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("strand: {why}");
            ExitCode::FAILURE
        }
    }
}

fn check_all(args: &AofArgs) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", args.file.display());
    let mut head = Vec::new();
    File::open(&args.file).and_then(|file| file.take(16).read_to_end(&mut head)).map_err(failed)?;
    if !MANIFEST_STARTS.iter().any(|start| head.starts_with(start)) {
        check_one(args, &args.file, true)?;
        say(format_args!("{}: valid", args.file.display()));
        return Ok(());
    }
    let mut text = Vec::new();
    File::open(&args.file)
        .and_then(|file| file.take(manifest::BYTES_MAX).read_to_end(&mut text))
        .map_err(failed)?;
    let manifest = Manifest::parse(&text).map_err(|e| format!("{}: {e}", args.file.display()))?;
    let folder = args.file.parent().unwrap_or(Path::new(""));
    let files: Vec<_> = manifest.to_load().collect();
    for (at, file) in files.iter().enumerate() {
        let path = folder.join(&file.name);
        check_one(args, &path, at + 1 == files.len())?;
        let kind = if manifest.base.as_ref() == Some(file) { "base" } else { "increment" };
        say(format_args!("{}: {kind} {}, valid", path.display(), file.seq));
    }
    say(format_args!("{}: all files of the append-only file are valid", args.file.display()));
    Ok(())
}

/// Checks one file, and truncates it on request.
fn check_one(args: &AofArgs, path: &Path, is_last: bool) -> Result<(), String> {
    let shown = path.display();
    let file = File::open(path).map_err(|e| format!("{shown}: {e}"))?;
    let bytes = file.metadata().map_err(|e| format!("{shown}: {e}"))?.len();
    let report = check(BufReader::with_capacity(READ_BYTES, file), args.truncate_to_timestamp);
    if let Some(rdb) = &report.rdb {
        print(&super::check::text(path, rdb));
    }
    say(format_args!(
        "{shown}: {bytes} bytes, {} commands, good up to {}",
        report.commands, report.good_bytes
    ));
    if let Some((first, last)) = report.times {
        say(format_args!("{shown}: written from {first} to {last} (unix seconds)"));
    }
    if let Some(until) = report.until_time.filter(|_| report.problem.is_none()) {
        if !is_last {
            return Err(format!(
                "{shown}: offset {until}: what is later begins here, and this is not the last file; nothing is cut"
            ));
        }
        return cut(args, path, bytes, until);
    }
    let Some(problem) = &report.problem else { return Ok(()) };
    if !args.fix {
        let hint = if can_be_cut(&report) && is_last { "; --fix cuts the rest off" } else { "" };
        return Err(format!("{shown}: not valid: {problem}{hint}"));
    }
    if !can_be_cut(&report) {
        return Err(format!("{shown}: not valid, and cannot be mended by cutting it: {problem}"));
    }
    if !is_last {
        return Err(format!("{shown}: not valid: {problem}; it is not the last file, so it is not cut"));
    }
    say(format_args!("{shown}: {problem}"));
    cut(args, path, bytes, report.good_bytes)
}

/// True when truncation can repair the file. Truncation cannot repair a damaged RDB part.
fn can_be_cut(report: &Report) -> bool {
    !matches!(report.problem, Some(Problem::Rdb { .. }) | None)
}

fn cut(args: &AofArgs, path: &Path, bytes: u64, good_bytes: u64) -> Result<(), String> {
    let shown = path.display();
    say(format_args!(
        "This will shrink {shown} from {bytes} bytes, with {} bytes, to {good_bytes} bytes",
        bytes - good_bytes
    ));
    if !args.yes && !is_agreed() {
        return Err("nothing is changed".into());
    }
    let file = OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(good_bytes).and_then(|()| file.sync_all()))
        .map_err(|e| format!("cannot cut {shown}: {e}"))?;
    say(format_args!("{shown}: cut to {good_bytes} bytes"));
    Ok(())
}

fn is_agreed() -> bool {
    print("Continue? [y/N]: ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if !std::io::stdin().is_terminal() {
        print("\n");
    }
    read.is_ok() && answer.trim_start().to_ascii_lowercase().starts_with('y')
}

fn say(text: std::fmt::Arguments<'_>) {
    print(&format!("{text}\n"));
}

/// Prints to the standard output. Ignores errors, because a reader that wants only the first lines closes the pipe.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
