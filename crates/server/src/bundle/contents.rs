//! The content of a bundle: the commands that are sent to the server ([`QUERIES`]), and the entries that are made of
//! their replies ([`assemble`]).
//!
//! `strand bundle` sends the commands over a connection. For `GET /v1/bundle`, the session of the HTTP connection
//! runs them. The bundle has what the rights of the user allow: when a command is refused, its error reply becomes
//! the entry.

use super::archive::{Bundle, BundleFile};
use serde_json::{Value, json};
use strand_engine::config::OPTIONS;
use strand_wire::client::Value as Reply;

/// Text that replaces a secret.
const REDACTED: &str = "(redacted)";
/// Secrets with fewer bytes are not searched for, because they would match parts of ordinary numbers.
const SECRET_BYTES_MIN: usize = 4;

/// A command, and the entry that its reply becomes.
#[derive(Clone, Copy, Debug)]
pub struct BundleQuery {
    name: &'static str,
    /// The command whose reply becomes an entry.
    pub args: &'static [&'static str],
    form: EntryForm,
}

/// EntryForm a reply becomes an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryForm {
    /// The entry has the bytes of a string.
    Text,
    /// The entry has any reply, as JSON.
    Json,
    /// The entry has the reply of CONFIG GET. Values of secret options are replaced, here and in all other entries.
    Config,
    /// The entry has the users, without the digests of their passwords.
    Users,
    /// The reply is a list of the memory profiles of one moment. Each becomes an entry of [`PROFILES`].
    Profiles,
    /// The entry has the slow commands. Their arguments are left out unless the caller wants them.
    SlowLog,
}

const fn query(name: &'static str, form: EntryForm, args: &'static [&'static str]) -> BundleQuery {
    BundleQuery { name, args, form }
}

/// All commands that are sent, in the order of the entries' names.
pub const QUERIES: &[BundleQuery] = &[
    query("acl.json", EntryForm::Users, &["ACL", "LIST"]),
    query("allocator.txt", EntryForm::Text, &["MEMORY", "MALLOC-STATS"]),
    query("clients.txt", EntryForm::Text, &["CLIENT", "LIST"]),
    query("config.json", EntryForm::Config, &["CONFIG", "GET", "*"]),
    query("diag/bigkeys.json", EntryForm::Text, &["DIAG", "BIGKEYS"]),
    query("diag/doctor.json", EntryForm::Text, &["DIAG", "DOCTOR"]),
    query("diag/hotkeys.json", EntryForm::Text, &["DIAG", "HOTKEYS"]),
    query("diag/log.txt", EntryForm::Text, &["DIAG", "LOG"]),
    query("diag/memory.json", EntryForm::Text, &["DIAG", "MEMORY"]),
    query("diag/phases.json", EntryForm::Text, &["DIAG", "PHASES"]),
    query("diag/slowlog.json", EntryForm::SlowLog, &["DIAG", "SLOWLOG"]),
    query("diag/system.json", EntryForm::Text, &["DIAG", "SYSTEM"]),
    query(
        "history/day.json",
        EntryForm::Text,
        &["DIAG", "HISTORY", "FROM", "-86400", "STEP", "15", "POINTS", "10000"],
    ),
    query(
        "history/month.json",
        EntryForm::Text,
        &["DIAG", "HISTORY", "FROM", "-2592000", "STEP", "300", "POINTS", "10000"],
    ),
    query(
        "history/seconds.json",
        EntryForm::Text,
        &["DIAG", "HISTORY", "FROM", "-900", "STEP", "1", "POINTS", "10000"],
    ),
    query("history/state.json", EntryForm::Text, &["DIAG", "SERIES"]),
    query("imports.json", EntryForm::Json, &["IMPORT.VERSION", "DATASETS"]),
    query("info.txt", EntryForm::Text, &["INFO", "everything"]),
    query("latency.json", EntryForm::Json, &["LATENCY", "LATEST"]),
    query("latency.txt", EntryForm::Text, &["LATENCY", "DOCTOR"]),
    query("profiles", EntryForm::Profiles, &["DIAG", "PROFILE", "MEMORY"]),
    query("search/indexes.json", EntryForm::Json, &["FT._LIST"]),
    query("search/patterns.json", EntryForm::Json, &["RX.LIST"]),
];

/// The entries of the memory profiles, in the order of the reply.
const PROFILES: [&str; 4] = [
    "profiles/allocs.folded.txt",
    "profiles/allocs.pb.gz",
    "profiles/heap.folded.txt",
    "profiles/heap.pb.gz",
];

/// Makes a bundle of the replies to [`QUERIES`], in their order. `secrets`: the passwords that the caller knows; each
/// entry is searched for these and for the secrets in the configuration. `with_arguments`: the arguments of slow
/// commands are taken, too.
pub fn assemble(replies: Vec<Reply>, mut secrets: Vec<Vec<u8>>, with_arguments: bool) -> Bundle {
    let mut entries = Vec::new();
    for (query, reply) in QUERIES.iter().zip(replies) {
        let bytes = match (query.form, reply) {
            (EntryForm::Profiles, reply) => {
                entries.extend(profiles(reply));
                continue;
            }
            (EntryForm::Json, reply) => to_json(&reply).to_string().into_bytes(),
            (_, Reply::Error(why)) => why,
            (EntryForm::Text, reply) => bytes_of(reply),
            (EntryForm::Config, reply) => config(reply, &mut secrets),
            (EntryForm::Users, reply) => users(reply),
            (EntryForm::SlowLog, reply) => slow_log(&bytes_of(reply), with_arguments),
        };
        entries.push(BundleFile { name: query.name.into(), bytes });
    }
    let redacted = entries.iter_mut().map(|entry| redact(&mut entry.bytes, &secrets)).sum();
    Bundle::new(entries, redacted)
}

/// Makes the entries of the memory profiles. A reply that is no list of profiles, such as an error, becomes each of
/// the entries.
fn profiles(reply: Reply) -> Vec<BundleFile> {
    let texts: Vec<Vec<u8>> = match reply {
        Reply::Array(profiles) if profiles.len() == PROFILES.len() => {
            profiles.into_iter().map(bytes_of).collect()
        }
        Reply::Error(why) => vec![why; PROFILES.len()],
        other => vec![bytes_of(other); PROFILES.len()],
    };
    PROFILES.iter().zip(texts).map(|(name, bytes)| BundleFile { name: (*name).into(), bytes }).collect()
}

/// Makes the entry of the configuration, and adds the values of secret options to `secrets`.
fn config(reply: Reply, secrets: &mut Vec<Vec<u8>>) -> Vec<u8> {
    let values: Vec<Vec<u8>> = match reply {
        Reply::Array(all) => all.into_iter().map(bytes_of).collect(),
        Reply::Map(all) => {
            all.into_iter().flat_map(|(name, value)| [bytes_of(name), bytes_of(value)]).collect()
        }
        other => return bytes_of(other),
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
    Value::Object(all).to_string().into_bytes()
}

/// Makes the entry of the users, without the digests of their passwords.
fn users(reply: Reply) -> Vec<u8> {
    let users = match reply {
        Reply::Array(users) => users.into_iter().map(bytes_of).collect(),
        other => vec![bytes_of(other)],
    };
    let users = users.iter().map(|user| {
        let user = String::from_utf8_lossy(user);
        let word =
            |word: &str| if word.starts_with('#') { "#(digest)".to_string() } else { word.to_string() };
        user.split(' ').map(word).collect::<Vec<_>>().join(" ")
    });
    json!(users.collect::<Vec<_>>()).to_string().into_bytes()
}

/// Makes the entry of the slow commands, without their arguments unless `with_arguments` is set.
fn slow_log(log: &[u8], with_arguments: bool) -> Vec<u8> {
    let mut log: Value = serde_json::from_slice(log).unwrap_or_default();
    for list in ["slow", "waited"] {
        for entry in log[list].as_array_mut().into_iter().flatten().filter(|_| !with_arguments) {
            if let Some(args) = entry["args"].as_array_mut() {
                let (name, left_out) = (args.first().cloned(), args.len().saturating_sub(1));
                entry["args"] = json!([name, format!("({left_out} arguments left out)")]);
            }
        }
    }
    log.to_string().into_bytes()
}

fn bytes_of(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Bulk(bytes) | Reply::Simple(bytes) | Reply::Verbatim(_, bytes) => bytes,
        other => to_json(&other).to_string().into_bytes(),
    }
}

/// Converts a reply to JSON.
fn to_json(reply: &Reply) -> Value {
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
        Reply::Null | Reply::NullBulk | Reply::NullArray => Value::Null,
        Reply::Array(all) | Reply::Set(all) | Reply::Push(all) => all.iter().map(to_json).collect(),
        Reply::Map(all) => all.iter().map(|(name, value)| json!([to_json(name), to_json(value)])).collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_dumped_once_and_an_error_becomes_each_of_its_entries() {
        let memory = QUERIES.iter().filter(|query| query.args.contains(&"PROFILE"));
        assert_eq!(memory.map(|query| query.name).collect::<Vec<_>>(), ["profiles"]);
        let text = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let names =
            |entries: &[BundleFile]| entries.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
        let four = profiles(Reply::Array(["a", "b", "c", "d"].map(text).to_vec()));
        assert_eq!(
            (names(&four), four[2].bytes.as_slice()),
            (PROFILES.map(String::from).to_vec(), &b"c"[..])
        );
        for reply in [Reply::Error(b"NOPERM".to_vec()), text("NOPERM"), Reply::Simple(b"NOPERM".to_vec())] {
            let entries = profiles(reply);
            assert_eq!(names(&entries), PROFILES);
            assert!(entries.iter().all(|entry| entry.bytes == b"NOPERM"));
        }
        assert_eq!(profiles(Reply::Array(vec![text("alone")])).len(), 4);
    }

    #[test]
    fn secrets_are_redacted_in_every_entry() {
        let secrets = [b"s3cret".to_vec(), b"abc".to_vec(), b"other-one".to_vec()];
        let mut bytes = b"s3crets3cret x abc y=other-one\xff s3cre".to_vec();
        assert_eq!(redact(&mut bytes, &secrets), 3);
        assert_eq!(bytes, b"(redacted)(redacted) x abc y=(redacted)\xff s3cre");
    }
}
