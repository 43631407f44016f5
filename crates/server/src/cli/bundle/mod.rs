//! `strand bundle`: all that a server knows about itself in one file, for inspection elsewhere, and `strand bundle
//! show`.
//!
//! [`archive`] is the file: a tar file compressed with zstd, with a manifest of digests. [`console`] shows a
//! bundle in a browser. This module chooses the content and keeps secrets out. It leaves out the values of secret
//! options, the digests of passwords, and the arguments of slow commands. Then it searches every entry for the
//! known secrets before anything is written.

mod archive;
mod console;

use super::display::{print_line, safe};
use super::doctor::{ServerArgs, text};
use archive::{Bundle, Entry};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use strand_engine::config::OPTIONS;
use strand_import::ImportError;
use strand_import::connection::Connection;
use strand_wire::client::Value as Reply;

/// Text in place of a secret.
const REDACTED: &str = "(redacted)";
/// Shorter secrets are not searched for, because they would match parts of any number.
const SECRET_BYTES_MIN: usize = 4;

/// Options of `strand bundle`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BundleArgs {
    /// What to do with a bundle that is there.
    #[command(subcommand)]
    pub command: Option<BundleCommand>,
    /// How the server is reached.
    #[command(flatten)]
    pub server: ServerArgs,
    /// The file to write; it must not be there yet
    #[arg(long, value_name = "FILE", default_value = "strand-bundle.tar.zst")]
    pub output: PathBuf,
    /// Also take the arguments of slow commands, which are data of clients
    #[arg(long)]
    pub with_arguments: bool,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum BundleCommand {
    /// Check a bundle and say what is in it
    Show {
        /// The bundle
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print this entry, as it is
        #[arg(long, value_name = "NAME")]
        entry: Option<String>,
        /// Refuse a bundle whose manifest has another digest than was printed when it was made
        #[arg(long, value_name = "DIGEST")]
        digest: Option<String>,
        /// Show it in a browser, in the console of a server, until this is ended; at an address of this machine
        #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:0")]
        console: Option<SocketAddr>,
    },
}

/// Makes or shows a bundle. Returns the exit code of the process.
pub fn run(args: BundleArgs) -> ExitCode {
    let done = match &args.command {
        Some(BundleCommand::Show { file, entry, digest, console }) => {
            show(file, entry.as_deref(), digest.as_deref(), *console)
        }
        None => make(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("strand bundle: {}", safe(&why));
            ExitCode::FAILURE
        }
    }
}

fn make(args: &BundleArgs) -> Result<(), String> {
    let failed = |e: ImportError| e.to_string();
    let mut connection = args.server.connect().map_err(failed)?;
    let mut secrets = Vec::new();
    let given = args.server.password.clone().or_else(|| std::env::var("STRAND_PASSWORD").ok());
    secrets.extend(given.map(String::into_bytes));
    let mut entries = gather(&mut connection, args.with_arguments, &mut secrets).map_err(failed)?;
    let redacted: usize = entries.iter_mut().map(|entry| redact(&mut entry.bytes, &secrets)).sum();
    let bundle = Bundle::new(entries, redacted);
    let bytes =
        bundle.write(&args.output).map_err(|e| format!("cannot write {}: {e}", args.output.display()))?;
    print_line(&format!("{}: {} entries, {bytes} bytes", args.output.display(), bundle.entries.len()));
    print_line(&format!("digest {}", bundle.digest()));
    Ok(())
}

/// Queries the server for everything. The error of a single command (a missing right) becomes an entry, and is not
/// a failure.
fn gather(
    connection: &mut Connection,
    with_arguments: bool,
    secrets: &mut Vec<Vec<u8>>,
) -> Result<Vec<Entry>, ImportError> {
    let mut entries = Vec::new();
    for (name, args) in [
        ("info.txt", &["INFO", "everything"][..]),
        ("history/seconds.json", &["DIAG", "HISTORY", "FROM", "-900", "STEP", "1", "POINTS", "10000"]),
        ("history/day.json", &["DIAG", "HISTORY", "FROM", "-86400", "STEP", "15", "POINTS", "10000"]),
        ("history/month.json", &["DIAG", "HISTORY", "FROM", "-2592000", "STEP", "300", "POINTS", "10000"]),
        ("history/state.json", &["DIAG", "SERIES"]),
        ("diag/bigkeys.json", &["DIAG", "BIGKEYS"]),
        ("diag/doctor.json", &["DIAG", "DOCTOR"]),
        ("diag/hotkeys.json", &["DIAG", "HOTKEYS"]),
        ("diag/memory.json", &["DIAG", "MEMORY"]),
        ("diag/phases.json", &["DIAG", "PHASES"]),
        ("diag/log.txt", &["DIAG", "LOG"]),
        ("diag/system.json", &["DIAG", "SYSTEM"]),
        ("clients.txt", &["CLIENT", "LIST"]),
        ("allocator.txt", &["MEMORY", "MALLOC-STATS"]),
        ("latency.txt", &["LATENCY", "DOCTOR"]),
    ] {
        let bytes = match text(connection, args) {
            Ok(bytes) => bytes,
            Err(ImportError::Options(why)) => why.into_bytes(),
            Err(e) => return Err(e),
        };
        entries.push(Entry { name: name.into(), bytes });
    }
    for (name, args) in [
        ("search/indexes.json", &["FT._LIST"][..]),
        ("search/patterns.json", &["RX.LIST"]),
        ("imports.json", &["IMPORT.VERSION", "DATASETS"]),
    ] {
        let reply = connection.call(args)?;
        entries.push(Entry { name: name.into(), bytes: shown(&reply).to_string().into_bytes() });
    }
    entries.push(Entry { name: "config.json".into(), bytes: config(connection, secrets)? });
    entries.push(Entry { name: "acl.json".into(), bytes: acl(connection)? });
    entries.push(Entry { name: "diag/slowlog.json".into(), bytes: slow_log(connection, with_arguments)? });
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// The configuration. Collects the values of secret options, to search all entries for them.
fn config(connection: &mut Connection, secrets: &mut Vec<Vec<u8>>) -> Result<Vec<u8>, ImportError> {
    let values: Vec<Vec<u8>> = match connection.call(&["CONFIG", "GET", "*"])? {
        Reply::Array(all) => all.into_iter().map(bytes_of).collect(),
        Reply::Map(all) => {
            all.into_iter().flat_map(|(name, value)| [bytes_of(name), bytes_of(value)]).collect()
        }
        other => vec![b"refused".to_vec(), shown(&other).to_string().into_bytes()],
    };
    let mut all = serde_json::Map::new();
    for pair in values.chunks_exact(2) {
        let name = String::from_utf8_lossy(&pair[0]).into_owned();
        let is_secret = OPTIONS.iter().any(|option| option.name == name && option.is_secret());
        let value = match is_secret && !pair[1].is_empty() {
            true => {
                secrets.push(pair[1].clone());
                REDACTED.into()
            }
            false => String::from_utf8_lossy(&pair[1]).into_owned(),
        };
        all.insert(name, value.into());
    }
    Ok(Value::Object(all).to_string().into_bytes())
}

/// The users, without the digests of their passwords.
fn acl(connection: &mut Connection) -> Result<Vec<u8>, ImportError> {
    let users = match connection.call(&["ACL", "LIST"])? {
        Reply::Array(users) => users.into_iter().map(bytes_of).collect(),
        other => vec![shown(&other).to_string().into_bytes()],
    };
    let users = users.iter().map(|user| {
        let user = String::from_utf8_lossy(user);
        let word =
            |word: &str| if word.starts_with('#') { "#(digest)".to_string() } else { word.to_string() };
        user.split(' ').map(word).collect::<Vec<_>>().join(" ")
    });
    Ok(json!(users.collect::<Vec<_>>()).to_string().into_bytes())
}

/// Slow commands, without their arguments unless `with_arguments`.
fn slow_log(connection: &mut Connection, with_arguments: bool) -> Result<Vec<u8>, ImportError> {
    let log = match text(connection, &["DIAG", "SLOWLOG"]) {
        Ok(log) => log,
        Err(ImportError::Options(why)) => return Ok(why.into_bytes()),
        Err(e) => return Err(e),
    };
    let mut log: Value = serde_json::from_slice(&log).unwrap_or_default();
    for list in ["slow", "waited"] {
        for entry in log[list].as_array_mut().into_iter().flatten().filter(|_| !with_arguments) {
            if let Some(args) = entry["args"].as_array_mut() {
                let (name, left_out) = (args.first().cloned(), args.len().saturating_sub(1));
                entry["args"] = json!([name, format!("({left_out} arguments left out)")]);
            }
        }
    }
    Ok(log.to_string().into_bytes())
}

fn bytes_of(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Bulk(bytes) | Reply::Simple(bytes) | Reply::Verbatim(_, bytes) => bytes,
        other => shown(&other).to_string().into_bytes(),
    }
}

/// A reply as JSON.
fn shown(reply: &Reply) -> Value {
    let text = |bytes: &[u8]| Value::String(String::from_utf8_lossy(bytes).into_owned());
    match reply {
        Reply::Simple(bytes) | Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) | Reply::BigNumber(bytes) => {
            text(bytes)
        }
        Reply::Error(bytes) => json!({ "error": text(bytes) }),
        Reply::Int(n) => json!(n),
        Reply::Double(n) => json!(n),
        Reply::DoubleText(bytes) => text(bytes),
        Reply::Bool(b) => json!(b),
        Reply::Null => Value::Null,
        Reply::Array(all) | Reply::Set(all) | Reply::Push(all) => all.iter().map(shown).collect(),
        Reply::Map(all) => all.iter().map(|(name, value)| json!([shown(name), shown(value)])).collect(),
    }
}

/// Removes the secrets from an entry, and returns their number.
fn redact(bytes: &mut Vec<u8>, secrets: &[Vec<u8>]) -> usize {
    let mut found = 0;
    for secret in secrets.iter().filter(|secret| secret.len() >= SECRET_BYTES_MIN) {
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        while let Some(at) = rest.windows(secret.len()).position(|part| part == secret.as_slice()) {
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(REDACTED.as_bytes());
            rest = &rest[at + secret.len()..];
            found += 1;
        }
        out.extend_from_slice(rest);
        *bytes = out;
    }
    found
}

fn show(
    file: &std::path::Path,
    entry: Option<&str>,
    digest: Option<&str>,
    console: Option<SocketAddr>,
) -> Result<(), String> {
    let bundle = Bundle::read(file).map_err(|why| format!("{}: {why}", file.display()))?;
    if digest.is_some_and(|digest| digest != bundle.digest()) {
        return Err(format!("{}: the manifest's digest is {}", file.display(), bundle.digest()));
    }
    if let Some(listen) = console {
        let name = file.display().to_string();
        let ready = |address| print_line(&format!("http://{address}/ shows {}", safe(&name)));
        return console::serve(bundle, listen, ready);
    }
    if let Some(name) = entry {
        let found = bundle.entries.iter().find(|entry| entry.name == name);
        let found = found.ok_or_else(|| format!("there is no entry {name:?}"))?;
        print_line(&String::from_utf8_lossy(&found.bytes));
        return Ok(());
    }
    print_line(&format!(
        "made by strand {} at {} (Unix time); digest {}",
        bundle.version,
        bundle.made_s,
        bundle.digest()
    ));
    for entry in &bundle.entries {
        print_line(&format!("{:>10}  {}", entry.bytes.len(), safe(&entry.name)));
    }
    let doctor = bundle.entries.iter().find(|entry| entry.name == "diag/doctor.json");
    let doctor: Value =
        doctor.and_then(|entry| serde_json::from_slice(&entry.bytes).ok()).unwrap_or_default();
    doctor["text"].as_str().unwrap_or_default().lines().for_each(|line| print_line(&safe(line)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_taken_out_wherever_it_stands() {
        let secrets = [b"s3cret".to_vec(), b"abc".to_vec(), b"other-one".to_vec()];
        let mut bytes = b"s3crets3cret x abc y=other-one\xff s3cre".to_vec();
        assert_eq!(redact(&mut bytes, &secrets), 3);
        assert_eq!(bytes, b"(redacted)(redacted) x abc y=(redacted)\xff s3cre");
    }
}
