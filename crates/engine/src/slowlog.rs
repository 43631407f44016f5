//! The slow log (SLOWLOG): the slowest commands, shared by all doors and threads.
//!
//! Each thread that executes a command times it and reports a slow one. The slow log cuts the command to a bounded
//! size, removes passwords, and keeps the newest `slowlog-max-len` commands. It is locked only for a slow command or
//! a query. Entries come from `session/laps.rs` (commands that executed long) and `session/phases.rs` (commands that
//! waited long).

use crate::Now;
use crate::clients::Client;
use crate::config::{Config, Opt, SECRET};
use crate::session::Waits;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strand_wire::args::Args;

/// Maximum number of arguments of an entry, including a note about the rest.
pub(crate) const ARGS_MAX: usize = 32;
/// Maximum number of bytes of an argument, without the note about the rest.
pub(crate) const ARG_BYTES_MAX: usize = 128;

/// Maximum number of commands that are kept because of a long wait.
const WAITED_MAX: usize = 128;

/// Number of the newest entries that are searched for one whose replies are not sent yet.
const FLUSHING_SEARCHED_MAX: usize = 64;

/// An entry of the slow log: one slow command.
#[derive(Debug)]
pub(crate) struct SlowLogEntry {
    pub(crate) id: u64,
    /// The id of the client.
    pub(crate) client: u64,
    /// The entry's number, which is unique in both lists and rises with each entry.
    pub(crate) seq: u64,
    pub(crate) unix_s: i64,
    /// When the command ended, in microseconds since 1970.
    pub(crate) unix_us: i64,
    pub(crate) took_us: u64,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) addr: String,
    pub(crate) name: String,
    /// The times that the command waited before it ran.
    pub(crate) waits: Waits,
    /// Microseconds for which the command's replies have waited for the client so far.
    pub(crate) flushing_us: AtomicU64,
}

/// All entries of both lists, the newest first.
pub(crate) struct SlowLog {
    entries: Mutex<(VecDeque<Arc<SlowLogEntry>>, u64)>,
    /// Commands that waited for long before they ran, the newest first. SLOWLOG does not show them: it shows long
    /// executions.
    waited: Mutex<VecDeque<Arc<SlowLogEntry>>>,
    seq: AtomicU64,
    /// `slowlog-log-slower-than`. The largest number means never.
    slow_us: AtomicU64,
}

impl Default for SlowLog {
    fn default() -> SlowLog {
        SlowLog {
            entries: Mutex::default(),
            waited: Mutex::default(),
            seq: 0.into(),
            slow_us: u64::MAX.into(),
        }
    }
}

impl SlowLog {
    /// Sets `slowlog-log-slower-than`. Below 0 means never.
    pub(crate) fn set_slow_us(&self, slow_us: i64) {
        self.slow_us.store(u64::try_from(slow_us).unwrap_or(u64::MAX), Relaxed);
    }
    /// `slowlog-log-slower-than`. `None`: never.
    pub(crate) fn slow_us(&self) -> Option<u64> {
        Some(self.slow_us.load(Relaxed)).filter(|us| *us < u64::MAX)
    }
    /// True when a command with this duration is kept.
    #[inline]
    pub(crate) fn is_slow(&self, took_us: u64) -> bool {
        took_us >= self.slow_us.load(Relaxed)
    }
    /// Keeps a command of `client` that took `took_us` microseconds.
    #[cold]
    pub(crate) fn note(
        &self,
        config: &Config,
        client: &Client,
        args: Args<'_>,
        now: Now,
        took_us: u64,
        waits: Waits,
    ) {
        let (args, name) = (shown(args), client.texts().name);
        let (entries, next) = &mut *self.entries.lock();
        let id = *next;
        *next += 1;
        let (unix_us, seq) = (now.unix_us, self.seq.fetch_add(1, Relaxed));
        let unix_s = now.unix_s();
        let addr = client.peer.addr.clone();
        let (client, flushing_us) = (client.id, AtomicU64::new(0));
        entries.push_front(Arc::new(SlowLogEntry {
            id,
            client,
            seq,
            unix_s,
            unix_us,
            took_us,
            args,
            addr,
            name,
            waits,
            flushing_us,
        }));
        entries.truncate(config.number(Opt::SlowlogMaxLen) as usize);
    }
    /// Keeps a command of `client` that waited for long.
    #[cold]
    pub(crate) fn note_wait(&self, client: &Client, args: Args<'_>, now: Now, waits: &Waits) {
        let (addr, name) = (client.peer.addr.clone(), client.texts().name);
        let (args, waits) = (shown(args), waits.clone());
        let (unix_s, unix_us, seq) = (now.unix_s(), now.unix_us, self.seq.fetch_add(1, Relaxed));
        let (id, took_us, flushing_us) = (client.id, 0, AtomicU64::new(0));
        let entry = SlowLogEntry {
            id,
            client: id,
            seq,
            unix_s,
            unix_us,
            took_us,
            args,
            addr,
            name,
            waits,
            flushing_us,
        };
        let mut waited = self.waited.lock();
        waited.push_front(Arc::new(entry));
        waited.truncate(WAITED_MAX);
    }
    /// Adds the flushing time to the client's newest slow command: the client has taken its replies, `took_us` after
    /// the socket was full.
    pub(crate) fn note_flushing(&self, client: u64, took_us: u64) {
        let entries = self.entries.lock();
        let newest = entries.0.iter().take(FLUSHING_SEARCHED_MAX).find(|entry| entry.client == client);
        if let Some(entry) = newest {
            entry.flushing_us.fetch_add(took_us, Relaxed);
        }
    }
    /// The newest commands that waited for long.
    pub(crate) fn waited(&self) -> Vec<Arc<SlowLogEntry>> {
        self.waited.lock().iter().cloned().collect()
    }
    /// The newest `count` entries.
    pub(crate) fn newest(&self, count: usize) -> Vec<Arc<SlowLogEntry>> {
        self.entries.lock().0.iter().take(count).cloned().collect()
    }
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().0.len()
    }
    /// Empties the log. The caller frees the returned entries where that may take long.
    pub(crate) fn reset(&self) -> VecDeque<Arc<SlowLogEntry>> {
        self.waited.lock().clear();
        std::mem::take(&mut self.entries.lock().0)
    }
}

/// A command's arguments in the form that is kept.
fn shown(args: Args<'_>) -> Vec<Vec<u8>> {
    let kept = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let mut out: Vec<Vec<u8>> = (0..kept).map(|i| argument(args, i)).collect();
    if kept < args.len() {
        out.push(format!("... ({} more arguments)", args.len() - kept).into_bytes());
    }
    out
}

fn argument(args: Args<'_>, i: usize) -> Vec<u8> {
    if is_secret(args, i) {
        return b"(redacted)".to_vec();
    }
    let (kept, rest) = args.at(i).split_at(args.at(i).len().min(ARG_BYTES_MAX));
    match rest.len() {
        0 => kept.to_vec(),
        more => [kept, format!("... ({more} more bytes)").as_bytes()].concat(),
    }
}

/// Maximum number of commands around a quoted command whose secrets are searched for.
const QUOTES_MAX: usize = 4;
/// The index of the first option of MIGRATE.
const MIGRATE_OPTIONS: usize = 6;

/// True for a secret argument. As in redis-server: passwords, the names beside them, and rules of users, also in a
/// command that another command quotes. Every argument is secret of a command that is quoted deeper than [`QUOTES_MAX`].
pub(crate) fn is_secret(mut args: Args<'_>, mut i: usize) -> bool {
    for _ in 0..=QUOTES_MAX {
        match quoting_args(args) {
            0 => return is_secret_of(args, i),
            quotes if i <= quotes => return false,
            quotes => (args, i) = (args.skip(quotes), i - quotes),
        }
    }
    true
}

/// Number of arguments before the command that this command quotes. 0 when it quotes none.
fn quoting_args(args: Args<'_>) -> usize {
    if args.is(0, "ACL") && args.is(1, "DRYRUN") {
        3
    } else if args.is(0, "COMMAND") && (args.is(1, "GETKEYS") || args.is(1, "GETKEYSANDFLAGS")) {
        2
    } else {
        0
    }
}

/// True for a secret argument of a command that quotes no other.
fn is_secret_of(args: Args<'_>, i: usize) -> bool {
    let secret = |at: usize| args.is(at, "masteruser") || SECRET.iter().any(|name| args.is(at, name));
    match i {
        0 => false,
        _ if args.is(0, "AUTH") => true,
        // MIGRATE host port key db timeout [COPY] [REPLACE] [AUTH password | AUTH2 name password] [KEYS key ...]
        _ if args.is(0, "MIGRATE") && i > MIGRATE_OPTIONS => {
            let of_auth = args.is(i - 1, "AUTH") || args.is(i - 1, "AUTH2") || args.is(i - 2, "AUTH2");
            // The words COPY, REPLACE, AUTH2 and its two arguments may come before KEYS.
            let last = i.min(MIGRATE_OPTIONS + 6);
            of_auth && !(MIGRATE_OPTIONS..last).any(|at| args.is(at, "KEYS"))
        }
        _ if args.is(0, "HELLO") => args.is(i - 1, "AUTH") || (i > 2 && args.is(i - 2, "AUTH")),
        _ if args.is(0, "CONFIG") && args.is(1, "SET") => i > 2 && i % 2 == 1 && secret(i - 1),
        _ => i > 1 && args.is(0, "ACL") && args.is(1, "SETUSER"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strand_wire::args::Argv;

    fn kept(words: &[&str]) -> Vec<String> {
        let argv = Argv::from_slices(words);
        shown(argv.args()).into_iter().map(|a| String::from_utf8(a).expect("text")).collect()
    }

    #[test]
    fn the_kept_entries_are_bounded() {
        let long = "x".repeat(200);
        assert_eq!(kept(&["SET", "k", &long])[2], format!("{}... (72 more bytes)", "x".repeat(128)));
        let many: Vec<&str> = std::iter::repeat_n("k", 40).collect();
        assert_eq!((kept(&many).len(), &*kept(&many)[31]), (32, "... (9 more arguments)"));
        assert_eq!(kept(&many[..32]).len(), 32);
    }

    #[test]
    fn secrets_are_not_kept() {
        for (words, shown) in [
            ("AUTH pw", "AUTH (redacted)"),
            ("auth user pw", "auth (redacted) (redacted)"),
            ("HELLO 3 AUTH user pw SETNAME n", "HELLO 3 AUTH (redacted) (redacted) SETNAME n"),
            ("CONFIG SET hz 10 requirepass pw", "CONFIG SET hz 10 requirepass (redacted)"),
            ("CONFIG SET tls-client-key-file-pass pw", "CONFIG SET tls-client-key-file-pass (redacted)"),
            ("CONFIG GET requirepass", "CONFIG GET requirepass"),
            ("ACL SETUSER u >pw", "ACL SETUSER (redacted) (redacted)"),
            ("SET AUTH v", "SET AUTH v"),
            ("ACL DRYRUN u HELLO 3 AUTH u pw", "ACL DRYRUN u HELLO 3 AUTH (redacted) (redacted)"),
            ("COMMAND GETKEYS auth u pw", "COMMAND GETKEYS auth (redacted) (redacted)"),
            ("ACL DRYRUN u ACL DRYRUN u AUTH pw", "ACL DRYRUN u ACL DRYRUN u AUTH (redacted)"),
            (
                "COMMAND GETKEYS COMMAND GETKEYS COMMAND GETKEYS COMMAND GETKEYS COMMAND GETKEYS SET k",
                "COMMAND GETKEYS COMMAND GETKEYS COMMAND GETKEYS COMMAND GETKEYS COMMAND GETKEYS SET (redacted)",
            ),
        ] {
            assert_eq!(kept(&words.split(' ').collect::<Vec<_>>()).join(" "), shown);
        }
    }

    #[test]
    fn passwords_of_other_servers_are_not_shown() {
        let line = |words: &str| kept(&words.split(' ').collect::<Vec<_>>()).join(" ");
        for (sent, shown) in [
            ("MIGRATE h 1 k 0 9 AUTH pw", "MIGRATE h 1 k 0 9 AUTH (redacted)"),
            (
                "MIGRATE h 1 k 0 9 COPY REPLACE AUTH2 me pw KEYS auth b",
                "MIGRATE h 1 k 0 9 COPY REPLACE AUTH2 (redacted) (redacted) KEYS auth b",
            ),
            ("MIGRATE", "MIGRATE"),
            (
                "CONFIG SET masterauth pw masteruser me",
                "CONFIG SET masterauth (redacted) masteruser (redacted)",
            ),
        ] {
            assert_eq!(line(sent), shown);
        }
    }
}
