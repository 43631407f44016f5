//! `strand check aof FILE [--fix]`, like redis-check-aof. Reads a manifest and all its files, or one file, and
//! prints their content, or the place of damage. `--fix` truncates the last file after its last whole command.

use clap::{ArgGroup, Args};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use strand_aof::check::{CheckProblem, check};
use strand_aof::manifest::{self, InvalidManifest, Manifest};

/// Number of bytes that are read from a file at a time.
const READ_BYTES: usize = 1 << 20;
/// The first bytes of a manifest. A file of commands starts with other bytes.
const MANIFEST_STARTS: [&[u8]; 2] = [b"file", b"# "];

/// The arguments of `strand check aof`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("cut").args(["fix", "truncate_to_timestamp"]))]
pub struct AofArgs {
    /// Cut the last file after its last whole command. Make a copy of the file first
    #[arg(long)]
    fix: bool,
    /// Cut without asking for confirmation
    #[arg(long, requires = "cut")]
    yes: bool,
    /// Cut the last file after the commands that were written up to this time, in unix seconds. Works only for a file
    /// that was written with aof-timestamp-enabled
    #[arg(long, value_name = "SECONDS")]
    truncate_to_timestamp: Option<i64>,
    /// The folder (appendonlydir), its manifest (appendonly.aof.manifest), or a file
    file: PathBuf,
}

/// Runs the check. Exit code 0 when all is whole, or was repaired.
pub fn run(args: &AofArgs) -> ExitCode {
    match check_all(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say!("strand check: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Why an append-only file is not valid, or not repaired.
#[derive(Debug, thiserror::Error)]
enum AofError {
    #[error("cannot read {path}: {error}", path = path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("the folder {path} has {manifests} manifests: expected one file appendonly.aof.manifest", path = path.display())]
    Folder { path: PathBuf, manifests: usize },
    #[error("{path}: {error}", path = path.display())]
    Manifest { path: PathBuf, error: InvalidManifest },
    #[error(
        "{path}: offset {offset}: the first command after the timestamp is here. Only the last file can be cut, and this is \
         not the last file. Nothing is changed",
        path = path.display()
    )]
    LaterElsewhere { path: PathBuf, offset: u64 },
    #[error("{path}: no command was written before timestamp {until_s}; the file is not changed", path = path.display())]
    NothingBefore { path: PathBuf, until_s: i64 },
    #[error("{path}: not valid: {problem}{hint}", path = path.display())]
    Invalid { path: PathBuf, problem: CheckProblem, hint: String },
    #[error("{path}: not valid, and cutting cannot repair it (restore a backup): {problem}", path = path.display())]
    Unmendable { path: PathBuf, problem: CheckProblem },
    #[error("not confirmed: nothing is changed")]
    NotConfirmed,
    #[error(
        "{path}: a server writes to this append-only file ({lock} is locked); nothing is changed",
        path = path.display(),
        lock = lock.display()
    )]
    InUse { path: PathBuf, lock: PathBuf },
    #[error("cannot cut {path}: {error}", path = path.display())]
    Cut { path: PathBuf, error: io::Error },
}

fn check_all(args: &AofArgs) -> Result<(), AofError> {
    let path = &file_to_check(&args.file)?;
    let failed = |error| AofError::Read { path: path.clone(), error };
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(16).read_to_end(&mut head)).map_err(failed)?;
    let is_manifest = path.extension().is_some_and(|extension| extension == "manifest")
        || MANIFEST_STARTS.iter().any(|start| head.starts_with(start));
    if !is_manifest {
        check_one(args, path, true)?;
        say(format_args!("{}: valid", path.display()));
        return Ok(());
    }
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(manifest::BYTES_MAX).read_to_end(&mut text))
        .map_err(failed)?;
    let manifest =
        Manifest::parse(&text).map_err(|error| AofError::Manifest { path: path.clone(), error })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let files: Vec<_> = manifest.to_load().collect();
    for (at, file) in files.iter().enumerate() {
        let path = folder.join(&file.name);
        check_one(args, &path, at + 1 == files.len())?;
        let kind = if manifest.base.as_ref() == Some(file) { "base" } else { "increment" };
        say(format_args!("{}: {kind} {}, valid", path.display(), file.seq));
    }
    say(format_args!("{}: all files of the append-only file are valid", path.display()));
    Ok(())
}

/// The file to check: `path` itself, or the manifest in the folder `path`.
fn file_to_check(path: &Path) -> Result<PathBuf, AofError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let failed = |error| AofError::Read { path: path.to_owned(), error };
    let mut manifests = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|extension| extension == "manifest") {
            manifests.push(file);
        }
    }
    match &manifests[..] {
        [manifest] => Ok(manifest.clone()),
        others => Err(AofError::Folder { path: path.to_owned(), manifests: others.len() }),
    }
}

/// Checks one file, and truncates it on request.
fn check_one(args: &AofArgs, path: &Path, is_last: bool) -> Result<(), AofError> {
    let display = path.display();
    let failed = |error| AofError::Read { path: path.to_owned(), error };
    // No server may write to the file between this check and the cut.
    let cuts = args.fix || args.truncate_to_timestamp.is_some();
    let _locks = if cuts { locks_of(path)? } else { Vec::new() };
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    // As in redis-check-aof, 0 means no timestamp.
    let until_s = args.truncate_to_timestamp.filter(|until_s| *until_s != 0);
    let report = check(BufReader::with_capacity(READ_BYTES, file), until_s);
    if let Some(rdb) = &report.rdb {
        print(&super::check::text(path, rdb));
    }
    say(format_args!(
        "{display}: {bytes} bytes, {} commands, good up to {}",
        report.commands, report.good_bytes
    ));
    if let Some((first, last)) = report.times {
        say(format_args!("{display}: written from {first} to {last} (unix seconds)"));
    }
    if is_last && until_s.is_some() && report.times.is_none() {
        say(format_args!("{display}: nothing to cut: the file has no timestamps (aof-timestamp-enabled)"));
    }
    // A problem behind the place of the cut is cut off, too.
    if let (Some(until), Some(until_s)) = (report.until_time, until_s) {
        if until == 0 {
            return Err(AofError::NothingBefore { path: path.to_owned(), until_s });
        }
        if !is_last {
            return Err(AofError::LaterElsewhere { path: path.to_owned(), offset: until });
        }
        return truncate(args, path, bytes, until);
    }
    let Some(problem) = report.problem else { return Ok(()) };
    let can_truncate = can_truncate(&problem);
    let path = path.to_owned();
    if !args.fix {
        let hint = if !can_truncate || !is_last {
            String::new()
        } else if report.commands == 0 {
            "; the file has no whole command: is it an append-only file?".into()
        } else {
            format!("; --fix cuts the file at offset {}, after the last whole command", report.good_bytes)
        };
        return Err(AofError::Invalid { path, problem, hint });
    }
    if !can_truncate {
        return Err(AofError::Unmendable { path, problem });
    }
    if !is_last {
        let hint = "; nothing is cut, because only the last file can be cut".into();
        return Err(AofError::Invalid { path, problem, hint });
    }
    say(format_args!("{display}: {problem}"));
    truncate(args, &path, bytes, report.good_bytes)
}

/// True when truncation can repair the file. Truncation cannot repair a damaged RDB part.
fn can_truncate(problem: &CheckProblem) -> bool {
    !matches!(problem, CheckProblem::Rdb { .. })
}

fn truncate(args: &AofArgs, path: &Path, bytes: u64, good_bytes: u64) -> Result<(), AofError> {
    let display = path.display();
    say(format_args!(
        "This will shrink {display} from {bytes} bytes, with {} bytes, to {good_bytes} bytes",
        bytes - good_bytes
    ));
    if !args.yes && !is_confirmed() {
        return Err(AofError::NotConfirmed);
    }
    let file = OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(good_bytes).and_then(|()| file.sync_all()))
        .map_err(|error| AofError::Cut { path: path.to_owned(), error })?;
    say(format_args!("{display}: cut to {good_bytes} bytes"));
    Ok(())
}

/// Locks the lock files of a server that may write to `path`: `appendonly.aof.lock` for `appendonly.aof.1.incr.aof`. They
/// stay locked until the result is dropped. There is none where no server of Strand has been.
fn locks_of(path: &Path) -> Result<Vec<File>, AofError> {
    let failed = |error| AofError::Read { path: path.to_owned(), error };
    // A symbolic link lies elsewhere.
    let place = path.canonicalize().map_err(failed)?;
    let name = place.file_name().unwrap_or_default().as_encoded_bytes();
    let mut locks = Vec::new();
    for entry in std::fs::read_dir(place.parent().unwrap_or(&place)).map_err(failed)? {
        let lock = entry.map_err(failed)?.path();
        let of = lock.file_name().and_then(|lock| lock.as_encoded_bytes().strip_suffix(b".lock"));
        if of.is_none_or(|of| !name.starts_with(of)) {
            continue;
        }
        let file = File::open(&lock).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => locks.push(file),
            Err(TryLockError::WouldBlock) => return Err(AofError::InUse { path: path.to_owned(), lock }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
    Ok(locks)
}

fn is_confirmed() -> bool {
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
