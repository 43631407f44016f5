//! [`Replay`]: runs the commands of a journal on a keyspace.
//!
//! During the replay no key expires by the clock, because the journal itself has the removals of expired keys. A
//! transaction runs when its EXEC arrives. So a transaction whose end is missing changes nothing.
//!
//! Left out: reading files, and commands that are not about keys. The caller runs such commands ([`RunOther`]).

use crate::dispatch;
use crate::run::{self, Context};
use crate::serial::system;
use crate::spec::{CommandSpec, Exec, Flags};
use crate::table::Table;
use strand_chain::Chain;
use strand_keyspace::journal::decode_fields_expired;
use strand_keyspace::types::hash::HashValue;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Collection, KeyHash, Keyspace, Txn};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::Protocol;

/// Maximum number of bytes of a reply. Replies are not used, so a longer one is cut.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// Maximum number of bytes of an error text that are shown.
const SHOWN_BYTES_MAX: usize = 200;

/// Why a command of a journal is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// There is no such command, or not with this number of arguments. The text is redis-server's.
    #[error("{0}")]
    Unknown(String),
    /// MULTI after a MULTI, without an EXEC between them.
    #[error("MULTI before the EXEC of the previous MULTI")]
    Nested,
    /// EXEC without a MULTI before it.
    #[error("EXEC without MULTI")]
    NoMulti,
    /// SELECT names a database that the server does not have.
    #[error("SELECT {selected}: no such database; the server has {databases} databases")]
    Database {
        /// The argument of SELECT.
        selected: String,
        /// Number of databases of the server.
        databases: usize,
    },
    /// The command changes no data, or needs a client.
    #[error("{0} cannot be run from a file")]
    Refused(String),
}

impl ReplayError {
    /// The error for a command that must not be in a file.
    pub fn refused(spec: &CommandSpec, args: Args<'_>) -> ReplayError {
        let container = String::from_utf8_lossy(args.at(0)).to_ascii_lowercase();
        ReplayError::Refused(match container == spec.name {
            true => container,
            false => format!("{container} {}", spec.name),
        })
    }
}

/// Runs a command that is not about keys (or a script) on the selected database. Returns `Ok(Some(text))` if the
/// reply is the error `text`.
///
/// # Errors
/// Fails if the journal may not contain this command.
pub type RunOther<'o> =
    &'o mut dyn FnMut(&'static CommandSpec, Args<'_>, usize) -> Result<Option<String>, ReplayError>;

/// The state of a replay: the selected database, and the transaction that has begun, if any.
#[derive(Debug)]
pub struct Replay {
    table: &'static Table,
    db: usize,
    /// The commands since MULTI. `None` outside of a transaction.
    queue: Option<Vec<(&'static CommandSpec, Argv)>>,
    rng: fastrand::Rng,
    out: Chain,
    /// Number of commands that were run.
    pub commands: u64,
    /// Number of commands that replied with an error.
    pub failed: u64,
    /// The first error reply.
    pub first_error: Option<String>,
    /// The latest command. `None` if its name is unknown.
    pub latest: Option<&'static CommandSpec>,
}

impl Replay {
    /// A replay that is at the beginning of a journal. `table` has the commands of the journal.
    pub fn new(table: &'static Table, seed: u64) -> Replay {
        Replay {
            table,
            db: 0,
            queue: None,
            rng: fastrand::Rng::with_seed(seed),
            out: Chain::new(),
            commands: 0,
            failed: 0,
            first_error: None,
            latest: None,
        }
    }
    /// True between MULTI and EXEC.
    pub fn in_multi(&self) -> bool {
        self.queue.is_some()
    }
    /// The commands since MULTI.
    pub fn queued(&self) -> impl Iterator<Item = (&'static CommandSpec, Args<'_>)> {
        self.queue.iter().flatten().map(|(spec, argv)| (*spec, argv.args()))
    }
    /// Selects a database, for a journal that continues another one.
    pub fn set_db(&mut self, db: usize) {
        self.db = db;
    }
    /// The database that is selected.
    pub fn db(&self) -> usize {
        self.db
    }
    /// Runs a command, or queues it until EXEC. May take the arguments out of `argv`. `now_ms` is the time of the
    /// replay.
    ///
    /// # Errors
    /// Fails if the journal may not contain this command.
    pub fn command(
        &mut self,
        keyspace: &Keyspace,
        argv: &mut Argv,
        now_ms: i64,
        run_other: RunOther<'_>,
    ) -> Result<(), ReplayError> {
        let args = argv.args();
        self.latest = None;
        let spec = self.table.resolve(args).map_err(|text| ReplayError::Unknown(shown(&text)))?.spec;
        self.latest = Some(spec);
        let own = if matches!(spec.exec, Exec::Session(_)) { spec.name } else { "" };
        match (own, &mut self.queue) {
            ("multi", Some(_)) => Err(ReplayError::Nested),
            ("multi", none) => {
                *none = Some(Vec::new());
                Ok(())
            }
            ("exec", queue) => {
                let Some(queue) = queue.take() else { return Err(ReplayError::NoMulti) };
                self.transaction(keyspace, &queue, now_ms, run_other)
            }
            (_, Some(queue)) => {
                queue.push((spec, std::mem::take(argv)));
                Ok(())
            }
            (_, None) => self.run(keyspace, spec, args, now_ms, run_other),
        }
    }

    /// Runs the commands of a transaction. Clients see the changes of all of them at one moment, if all are commands on
    /// keys.
    fn transaction(
        &mut self,
        keyspace: &Keyspace,
        queue: &[(&'static CommandSpec, Argv)],
        now_ms: i64,
        run_other: RunOther<'_>,
    ) -> Result<(), ReplayError> {
        let is_on_keys =
            |(spec, _): &(&'static CommandSpec, Argv)| run::handler(spec).is_some() || is_select(spec);
        if !queue.iter().all(is_on_keys) {
            return queue
                .iter()
                .try_for_each(|(spec, argv)| self.run(keyspace, spec, argv.args(), now_ms, run_other));
        }
        let mut txn = lock(keyspace, queue.iter().map(|(spec, argv)| (*spec, argv.args())), now_ms);
        for (spec, argv) in queue {
            self.commands += 1;
            let error = match is_select(spec) {
                true => {
                    self.select(keyspace, argv.args())?;
                    None
                }
                false => self.on_keys(spec, argv.args(), &mut txn),
            };
            self.note(error);
        }
        Ok(())
    }
    /// Counts the error reply of a command.
    fn note(&mut self, error: Option<String>) {
        if let Some(text) = error {
            self.failed += 1;
            self.first_error.get_or_insert(text);
        }
    }
    fn run(
        &mut self,
        keyspace: &Keyspace,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now_ms: i64,
        run_other: RunOther<'_>,
    ) -> Result<(), ReplayError> {
        self.commands += 1;
        if is_select(spec) {
            return self.select(keyspace, args);
        }
        let error = if run::handler(spec).is_some() {
            self.with_keys(keyspace, spec, args, now_ms)
        } else {
            match Echo::decode(spec, args) {
                Some(Echo::FieldsExpired { until_ms, key }) => {
                    self.expire_fields(keyspace, key, until_ms, now_ms);
                    None
                }
                Some(Echo::Import(words)) => self.import(keyspace, &words, now_ms)?,
                None => run_other(spec, args, self.db)?,
            }
        };
        self.note(error);
        Ok(())
    }
    /// Removes the fields of a hash whose expiry is `until_ms` or earlier.
    fn expire_fields(&self, keyspace: &Keyspace, key: &[u8], until_ms: i64, now_ms: i64) {
        let key = keyspace.key(key);
        let mut txn = keyspace.lock(&[key.hash], now_ms);
        txn.set_replaying();
        // The error is that the key is no hash. Then it has no fields.
        let _ = txn.db(self.db).change(&key, |hash: &mut HashValue| {
            // The first call counts all fields, and each call frees some.
            let expired = hash.expire_fields(until_ms, None);
            while hash.hidden_fields() > 0 {
                hash.expire_fields(until_ms, None);
            }
            ((), (expired > 0).into())
        });
    }
    /// Runs a command about imported datasets, for which an ECHO stands. If the reply is an error, returns its text.
    fn import(
        &mut self,
        keyspace: &Keyspace,
        words: &[&[u8]],
        now_ms: i64,
    ) -> Result<Option<String>, ReplayError> {
        let argv = Argv::from_slices(words);
        let found = self.table.resolve(argv.args()).map_err(|text| ReplayError::Unknown(shown(&text)))?;
        let spec = found.spec;
        if spec.group != "import" || !spec.flags.has(Flags::WRITE) {
            return Err(ReplayError::refused(spec, argv.args()));
        }
        Ok(self.with_keys(keyspace, spec, argv.args(), now_ms))
    }
    fn select(&mut self, keyspace: &Keyspace, args: Args<'_>) -> Result<(), ReplayError> {
        let databases = keyspace.databases();
        let db = parse_int(args.at(1)).and_then(|db| usize::try_from(db).ok()).filter(|db| *db < databases);
        self.db = db.ok_or_else(|| ReplayError::Database { selected: shown(args.at(1)), databases })?;
        Ok(())
    }
    /// Runs a command on keys. If the reply is an error, returns its text.
    fn with_keys(
        &mut self,
        keyspace: &Keyspace,
        spec: &CommandSpec,
        args: Args<'_>,
        now_ms: i64,
    ) -> Option<String> {
        let mut txn = lock(keyspace, std::iter::once((spec, args)), now_ms);
        self.on_keys(spec, args, &mut txn)
    }
    /// Runs a command on keys whose shards are held. If the reply is an error, returns its text.
    fn on_keys(&mut self, spec: &CommandSpec, args: Args<'_>, txn: &mut Txn<'_>) -> Option<String> {
        let context = Context {
            db: self.db,
            protocol: Protocol::Resp2,
            reply_bytes_max: REPLY_BYTES_MAX,
            rng: &mut self.rng,
            rights: None,
            client: 0,
        };
        let error = run::to_end(spec, args, txn, &mut self.out, context);
        let text = error.map(|_| {
            let mut line = vec![0; self.out.len().min(SHOWN_BYTES_MAX)];
            self.out.peek(&mut line);
            shown(line.trim_ascii())
        });
        let bytes = self.out.len();
        self.out.advance(bytes);
        text
    }
}

/// Locks the shards that commands on keys need.
fn lock<'k, 'a>(
    keyspace: &'k Keyspace,
    commands: impl Iterator<Item = (&'a CommandSpec, Args<'a>)>,
    now_ms: i64,
) -> Txn<'k> {
    let mut hashes: smallvec::SmallVec<[KeyHash; 4]> = smallvec::SmallVec::new();
    let mut needs_all = false;
    for (spec, args) in commands {
        needs_all |= run::needs_all_shards(spec);
        hashes.extend(dispatch::keys_to_lock(spec, args).iter().map(|at| keyspace.key(args.at(*at)).hash));
    }
    let mut txn = if needs_all { keyspace.lock_all(now_ms) } else { keyspace.lock(&hashes, now_ms) };
    txn.set_replaying();
    txn
}

fn is_select(spec: &CommandSpec) -> bool {
    matches!(spec.exec, Exec::Session(_)) && spec.name == "select"
}

/// An ECHO of a journal that stands for something else.
enum Echo<'a> {
    /// The fields of `key` expired whose expiry is `until_ms` or earlier.
    FieldsExpired { until_ms: i64, key: &'a [u8] },
    /// The words of a command about imported datasets.
    Import(Vec<&'a [u8]>),
}

impl Echo<'_> {
    /// `None` for another command or another ECHO.
    fn decode<'a>(spec: &CommandSpec, args: Args<'a>) -> Option<Echo<'a>> {
        let message = args.get(1).filter(|_| spec.name == "echo")?;
        let expired =
            decode_fields_expired(message).map(|(until_ms, key)| Echo::FieldsExpired { until_ms, key });
        expired.or_else(|| system::decode_import_echo(message).map(Echo::Import))
    }
}

/// Bytes as text for a message: escaped, and cut to [`SHOWN_BYTES_MAX`].
pub fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::table::{GROUPS, IMPORT_VERSION, MEMORY};
    use strand_keyspace::types::stream::{Id, StreamValue};
    use strand_wire::resp::{Decoded, Decoder, RequestLimits};

    /// The rows of this crate, and rows of the other commands that a journal may have. No test here runs those.
    static TABLE: Table = crate::table!(&[crate::rows!(GROUPS), &[MEMORY, IMPORT_VERSION], OTHERS]);
    const OTHERS: &[CommandSpec] =
        &[other("echo", 2), other("exec", 1), other("multi", 1), other("select", 2), other("subscribe", -2)];

    const fn other(name: &'static str, arity: i32) -> CommandSpec {
        CommandSpec::new(name, "transactions", "1.2.0", "O(1)", "Is in a journal.")
            .arity(arity)
            .exec(Exec::Session(&()))
    }

    /// Refuses every other command: a journal of commands on keys has none.
    fn none(spec: &'static CommandSpec, args: Args<'_>, _db: usize) -> Result<Option<String>, ReplayError> {
        Err(ReplayError::refused(spec, args))
    }

    /// Runs the bytes of a journal.
    ///
    /// # Errors
    /// The command that could not run, and why.
    pub(crate) fn replayed(stream: Chain, into: &Keyspace, now_ms: i64) -> Result<(), String> {
        let (mut input, mut decoder, mut replay) =
            (stream, Decoder::new(RequestLimits::FULL), Replay::new(&TABLE, 0));
        let mut argv = Argv::new();
        loop {
            match decoder.decode(&mut input, &mut argv).expect("a journal is a stream of requests") {
                Decoded::Command => {
                    replay.command(into, &mut argv, now_ms, &mut none).map_err(|why| why.to_string())?;
                    argv = Argv::new();
                }
                Decoded::LimitReached => {}
                Decoded::NeedsBytes => break,
            }
        }
        assert!(input.is_empty(), "{} bytes are left", input.len());
        assert!(!replay.in_multi());
        replay.first_error.map_or(Ok(()), Err)
    }

    fn run(keyspace: &Keyspace, replay: &mut Replay, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split(' ').collect();
        let ran = replay.command(keyspace, &mut Argv::from_slices(&words), 1_000, &mut none);
        ran.map_err(|why| why.to_string())?;
        replay.first_error.take().map_or(Ok(()), Err)
    }

    #[test]
    fn nothing_expires_while_a_journal_is_read() {
        let keyspace = Keyspace::new(4, 16, [1, 2, 3, 4]);
        let mut replay = Replay::new(&TABLE, 0);
        for line in ["SELECT 2", "SET k v PXAT 10", "APPEND k w", "PEXPIREAT k 5", "PERSIST k", "SELECT 0"] {
            run(&keyspace, &mut replay, line).expect(line);
        }
        let mut txn = keyspace.lock(&[keyspace.key(b"k").hash], 1_000);
        let mut db = txn.db(2);
        let record = db.peek(&keyspace.key(b"k")).expect("it did not expire");
        assert_eq!(record.expire_at_ms(), None);
        assert_eq!(replay.db(), 0);
    }

    #[test]
    fn strings_above_the_limit_of_now_are_replayed() {
        let keyspace = Keyspace::new(4, 16, [1, 2, 3, 4]);
        keyspace.settings().proto_max_bulk_len.store(10, std::sync::atomic::Ordering::Relaxed);
        let mut replay = Replay::new(&TABLE, 0);
        let lines = [
            "SET a 0123456789",
            "APPEND a x",
            "SETRANGE b 20 x",
            "SETBIT c 800 1",
            "BITFIELD d SET u8 800 1",
        ];
        for line in lines {
            run(&keyspace, &mut replay, line).expect(line);
        }
        // The commands of clients are limited as before.
        assert_eq!(keyspace.lock_all(1_000).string_bytes_max(), 10);
    }

    #[test]
    fn truncated_transaction_changes_nothing() {
        let keyspace = Keyspace::new(4, 16, [1, 2, 3, 4]);
        let mut replay = Replay::new(&TABLE, 0);
        for line in ["MULTI", "SET a 1", "SET b 2"] {
            run(&keyspace, &mut replay, line).expect(line);
        }
        assert!(replay.in_multi());
        assert!(keyspace.is_empty(0));
        run(&keyspace, &mut replay, "EXEC").expect("it is whole");
        assert_eq!(keyspace.len(0), 2);
    }

    #[test]
    fn error_names_the_command_that_cannot_be_replayed() {
        let keyspace = Keyspace::new(4, 16, [1, 2, 3, 4]);
        for (line, says) in [
            ("FROB a", "unknown command"),
            ("SET a", "wrong number of arguments"),
            ("SUBSCRIBE a", "subscribe cannot be run from a file"),
            ("SELECT 99", "SELECT 99: no such database; the server has 16 databases"),
            ("EXEC", "EXEC without MULTI"),
            ("LPUSH a 1", "WRONGTYPE"),
        ] {
            let mut replay = Replay::new(&TABLE, 0);
            run(&keyspace, &mut replay, "SET a x").expect("a string");
            let why = run(&keyspace, &mut replay, line).expect_err(line);
            assert!(why.contains(says), "{line}: {why}");
        }
    }
    /// The forms in which redis-server writes trims to a file. It leaves the LIMIT that the client sent.
    #[test]
    fn replayed_trims_ignore_limit() {
        let keyspace = Keyspace::new(4, 16, [1, 2, 3, 4]);
        let mut replay = Replay::new(&TABLE, 0);
        for line in [
            "XADD a 1-1 f v",
            "XADD a LIMIT 10 MAXLEN = 5 2-1 f v",
            "XADD a MAXLEN = 2 NOMKSTREAM LIMIT 10 3-1 f v",
            "XADD a NOMKSTREAM LIMIT 10 MINID = 3-0 4-1 f v",
            "XADD b 1-1 MAXLEN = x LIMIT y z",
            "XADD c 1-1 f v",
            "XADD c 2-1 f v",
            "XTRIM c LIMIT 10 MAXLEN = 1",
        ] {
            run(&keyspace, &mut replay, line).expect(line);
        }
        let mut txn = keyspace.lock_all(1_000);
        let mut shown = |key: &[u8]| {
            let mut db = txn.db(0);
            let stream =
                db.peek_at::<StreamValue>(&keyspace.key(key)).expect("a stream").expect("it is there");
            let entries = stream.entries().range(Id::MIN, Id::MAX);
            entries.map(|entry| format!("{} {}", entry.id(), entry.len())).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shown(b"a"), "3-1 1, 4-1 1");
        assert_eq!(shown(b"b"), "1-1 3");
        assert_eq!(shown(b"c"), "2-1 1");
    }
}
