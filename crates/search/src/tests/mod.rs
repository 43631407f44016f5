//! Tests of the service over a real keyspace: commands in, replies out. The tests move the clock.

mod commands;
mod following;
mod grep;
mod limits;
mod model;
mod regexes;
mod replies;
mod trigrams;
mod versions;

use crate::Search;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use strand_chain::Chain;
use strand_commands::call::{KeyRights, LaneCall, RunsOn, ServiceOutcome, Services};
use strand_commands::spec::{Access, Exec};
use strand_commands::table::Table;
use strand_keyspace::{Changed, HashValue, Keyspace, Str, Value as Stored};
use strand_wire::args::Argv;
use strand_wire::client::{ReplyParser, Value};
use strand_wire::reply::{Protocol, Reply};

/// The commands of this crate.
pub(crate) static TABLE: Table = strand_commands::table!(crate::GROUPS);

/// The services of a process whose only service is search.
struct Only<'s>(&'s Search);

impl Services for Only<'_> {
    fn search(&self) -> &dyn Any {
        self.0
    }
    fn migrate(&self, _call: &mut LaneCall<'_>) -> ServiceOutcome {
        panic!("MIGRATE is no command of this crate")
    }
}

/// Start of the clock, in unix milliseconds.
const START_MS: i64 = 1_700_000_000_000;

/// A keyspace with a search service.
struct World {
    keyspace: Arc<Keyspace>,
    search: Arc<Search>,
    now_ms: i64,
    protocol: Protocol,
    db: usize,
    cancel: Arc<AtomicBool>,
    rights: Option<Rights>,
    runs_on: RunsOn,
    client: u64,
}

/// Rights on keys with this prefix.
struct Prefix(&'static str, Access);

/// Allows what at least one of these rights allows.
struct Rights(Vec<Prefix>);

impl KeyRights for Rights {
    fn allows(&self, key: &[u8], access: Access) -> bool {
        self.0.iter().any(|Prefix(prefix, may)| {
            key.starts_with(prefix.as_bytes()) && (may.read || !access.read) && (may.write || !access.write)
        })
    }
    fn allows_prefix(&self, prefix: &[u8], access: Access) -> bool {
        self.allows(prefix, access)
    }
}

impl World {
    fn new() -> World {
        let keyspace = Arc::new(Keyspace::new(8, 16, [1, 2, 3, 4]));
        let search = Search::new(keyspace.clone());
        let cancel = Arc::default();
        World {
            keyspace,
            search,
            now_ms: START_MS,
            protocol: Protocol::Resp2,
            db: 0,
            cancel,
            rights: None,
            runs_on: RunsOn::Lane,
            client: 1,
        }
    }

    /// Runs a command and returns its reply. The command must finish where it starts or on the hard lane.
    fn run<T: AsRef<[u8]>>(&self, args: &[T]) -> Value {
        match self.serve(args, self.runs_on) {
            Ok(value) => value,
            Err(_) => self.serve(args, RunsOn::Hard).expect("the hard lane runs everything"),
        }
    }

    /// Runs a command at a place. Returns its reply, or the place to which the command must move.
    fn serve<T: AsRef<[u8]>>(&self, args: &[T], runs_on: RunsOn) -> Result<Value, ServiceOutcome> {
        let argv = Argv::from_slices(args);
        match TABLE.resolve(argv.args()).map(|found| found.spec.exec) {
            Ok(exec) => self.execute(exec, args, runs_on),
            Err(text) => Ok(Value::Error(text)),
        }
    }

    /// Runs the command `exec` at a place, as [`World::serve`] does.
    fn execute<T: AsRef<[u8]>>(
        &self,
        exec: Exec,
        args: &[T],
        runs_on: RunsOn,
    ) -> Result<Value, ServiceOutcome> {
        let (Exec::Service(run) | Exec::ServiceOnText(run, _)) = exec else { panic!("{exec:?}") };
        let argv = Argv::from_slices(args);
        let mut out = Chain::new();
        let mut reply = Reply::new(&mut out, self.protocol);
        let served = run(
            &Only(&self.search),
            &mut LaneCall {
                spec: None,
                args: argv.args(),
                client: self.client,
                runs_on,
                db: self.db,
                now_ms: self.now_ms,
                keyspace: &self.keyspace,
                long_locks: &strand_commands::call::Alone,
                reply: &mut reply,
                rng: &mut fastrand::Rng::with_seed(7),
                cancel: &self.cancel,
                no_touch: false,
                rights: self.rights.as_ref().map(|r| r as &dyn KeyRights),
                lookups: Default::default(),
                error_is_counted: false,
                waits: false,
                yield_now: &|| {},
            },
        );
        if served != ServiceOutcome::Done {
            assert_eq!(out.len(), 0, "nothing is written");
            return Err(served);
        }
        let value = ReplyParser::new().next(&mut out).expect("RESP").expect("one whole reply");
        assert_eq!(out.len(), 0, "more than one reply");
        Ok(value)
    }

    /// Does what [`World::run`] does, with a line: words are separated by blanks, and `'...'` is one word.
    fn line(&self, line: &str) -> Value {
        self.run(&words(line))
    }

    /// The error text of a line that must fail.
    #[track_caller]
    fn error(&self, line: &str) -> String {
        match self.line(line) {
            Value::Error(text) => String::from_utf8(text).expect("UTF-8"),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[track_caller]
    fn ok(&self, line: &str) {
        assert_eq!(self.line(line), Value::Simple(b"OK".to_vec()), "{line}");
    }

    /// The total and the keys that `FT.SEARCH <line> NOCONTENT` finds, in order.
    #[track_caller]
    fn keys(&self, line: &str) -> (i64, Vec<String>) {
        match self.line(&format!("FT.SEARCH {line} NOCONTENT")) {
            Value::Array(all) => {
                let Value::Int(total) = all[0] else { panic!("{line}: {all:?}") };
                (total, all[1..].iter().map(text).collect())
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    /// The keys that a query finds, sorted and joined by blanks.
    #[track_caller]
    fn found(&self, index: &str, query: &str) -> String {
        let Value::Array(all) = self.run(&["FT.SEARCH", index, query, "NOCONTENT", "LIMIT", "0", "1000"])
        else {
            panic!("{query}: {:?}", self.run(&["FT.SEARCH", index, query]))
        };
        let mut keys: Vec<String> = all[1..].iter().map(text).collect();
        assert_eq!(all[0], Value::Int(keys.len() as i64), "{query}: the total");
        keys.sort();
        keys.join(" ")
    }

    /// Runs HSET in the test's keyspace.
    fn hset(&self, key: &str, pairs: &[(&str, &str)]) {
        let key = self.keyspace.key(key.as_bytes());
        let mut locked = self.keyspace.lock(&[key.hash], self.now_ms);
        let mut db = locked.db(self.db);
        let settings = self.keyspace.settings();
        let set = |hash: &mut HashValue| {
            for (f, v) in pairs {
                hash.set(f.as_bytes(), v.as_bytes(), settings);
            }
            ((), Changed::Yes)
        };
        if db.change_or_create(&key, set).is_err() {
            let mut hash = HashValue::new();
            let ((), _) = set(&mut hash);
            db.insert(&key, Stored::Hash(hash), None);
        }
    }

    /// Runs SET in the test's keyspace.
    fn set(&self, key: &str, value: &[u8]) {
        let key = self.keyspace.key(key.as_bytes());
        let mut locked = self.keyspace.lock(&[key.hash], self.now_ms);
        locked.db(self.db).insert(&key, Stored::Str(Str::from_slice(value)), None);
    }

    /// Runs DEL in the test's keyspace.
    fn del(&self, key: &str) {
        let key = self.keyspace.key(key.as_bytes());
        self.keyspace.lock(&[key.hash], self.now_ms).db(self.db).remove(&key);
    }

    /// Runs HDEL on one field of a hash that has several fields.
    fn hdel(&self, key: &str, field: &str) {
        let key = self.keyspace.key(key.as_bytes());
        let mut locked = self.keyspace.lock(&[key.hash], self.now_ms);
        let mut db = locked.db(self.db);
        let remove = |hash: &mut HashValue| ((), hash.remove(field.as_bytes()).into());
        db.change(&key, remove).expect("a hash").expect("a key");
    }

    /// Runs PEXPIREAT in the test's keyspace.
    fn expire_at(&self, key: &str, at_ms: Option<i64>) {
        let key = self.keyspace.key(key.as_bytes());
        self.keyspace.lock(&[key.hash], self.now_ms).db(self.db).set_expiry(&key, at_ms);
    }

    /// Runs HPEXPIREAT on one field in the test's keyspace.
    fn expire_field_at(&self, key: &str, field: &str, at_ms: i64) {
        let key = self.keyspace.key(key.as_bytes());
        let mut locked = self.keyspace.lock(&[key.hash], self.now_ms);
        let settings = self.keyspace.settings();
        let expire = |hash: &mut HashValue| {
            assert!(hash.set_expiry(field.as_bytes(), Some(at_ms), settings));
            ((), Changed::Yes)
        };
        locked.db(self.db).change(&key, expire).expect("a hash").expect("a key");
    }

    /// Runs RENAME in the test's keyspace.
    fn rename(&self, from: &str, to: &str) {
        let (from, to) = (self.keyspace.key(from.as_bytes()), self.keyspace.key(to.as_bytes()));
        let mut locked = self.keyspace.lock(&[from.hash, to.hash], self.now_ms);
        let mut db = locked.db(self.db);
        let record = db.remove(&from).expect("a key");
        let expire_at_ms = record.expire_at_ms;
        db.insert(&to, record.value, expire_at_ms);
    }
}

/// The rights of a user who has only this right.
fn only(right: Prefix) -> Option<Rights> {
    Some(Rights(vec![right]))
}

/// The text of a reply that is a string.
fn text(value: &Value) -> String {
    match value {
        Value::Bulk(b) | Value::Simple(b) => String::from_utf8_lossy(b).into_owned(),
        other => panic!("{other:?}"),
    }
}

fn words(line: &str) -> Vec<String> {
    let (mut out, mut rest) = (Vec::new(), line.trim_start());
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').expect("a closing quote"),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        out.push(word.to_string());
        rest = after.trim_start();
    }
    out
}
