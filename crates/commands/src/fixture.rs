//! For tests: runs a command line on a small keyspace and returns the bytes of the reply. The test moves the clock.
//!
//! The fixture does what the engine does with `Data` and `Lane` commands: it finds the row and the keys, locks the
//! keys' shards, and runs the handler. The journal is on. When a fixture is dropped, the journal is replayed on
//! another keyspace, and both keyspaces must then have equal data.

use crate::call::{Alone, Call, LaneCall};
use crate::cost::{LONG_ELEMENTS, elements_at};
use crate::replay::tests::replayed;
use crate::spec::{CommandSpec, Exec};
use crate::table::DATA;
use crate::{long, run, serial};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use strand_chain::Chain;
use strand_keyspace::{KeyHash, Keyspace, Lookups, ValueRef};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{Protocol, Reply};

/// Where the fixture's clock starts, in unix milliseconds (2023-11-14 22:13:20).
pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// A keyspace, a session's database and protocol, and a clock that the test moves.
pub(crate) struct Fixture {
    pub(crate) keyspace: Arc<Keyspace>,
    pub(crate) db: usize,
    pub(crate) now_ms: i64,
    pub(crate) protocol: Protocol,
    pub(crate) rng: fastrand::Rng,
    /// The flag `cancel` of lane calls.
    pub(crate) cancel: Arc<AtomicBool>,
    /// True when every call runs as if it were long.
    pub(crate) all_long: bool,
    /// Maximum number of bytes of a reply.
    pub(crate) reply_bytes_max: usize,
    /// Number of pauses between slices so far.
    pub(crate) pauses: Cell<usize>,
    /// The part of the journal that was taken already.
    journal: Chain,
    /// True for the fixture on which another one's journal was replayed.
    is_twin: bool,
}

impl Drop for Fixture {
    /// Replays the journal on another keyspace. Both keyspaces must then have equal data.
    fn drop(&mut self) {
        if std::thread::panicking() || self.is_twin {
            return;
        }
        // Remove the expired keys. The journal has these removals, too.
        while self.keyspace.expire_slice(self.now_ms, usize::MAX).has_more {}
        let shown: String = self.effects().chars().take(4096).collect();
        let twin = self.replayed();
        let twin = &*twin.keyspace;
        let digests = [&*self.keyspace, twin].map(|k| serial::dataset_digest(k, self.now_ms).to_hex());
        assert_eq!(digests[0], digests[1], "the journal makes other data; it begins with {shown}");
        let datasets = [&*self.keyspace, twin].map(|k| datasets(k, self.now_ms));
        assert_eq!(datasets[0], datasets[1], "the journal makes other datasets; it begins with {shown}");
    }
}

/// What the system companions have, sorted: the database, and the dataset, path and container.
fn datasets(keyspace: &Keyspace, now_ms: i64) -> Vec<(usize, [Vec<u8>; 3])> {
    let mut found = Vec::new();
    for db in 0..keyspace.databases() {
        let mut cursor = 0;
        loop {
            cursor = keyspace.scan(keyspace.system_db(db), cursor, 1000, now_ms, &mut |record| {
                let ValueRef::Hash(hash) = record.value() else { panic!("a companion has hashes only") };
                found.extend(
                    hash.iter().map(|(path, one)| (db, [record.key().to_vec(), path.to_vec(), one.to_vec()])),
                );
            });
            if cursor == 0 {
                break;
            }
        }
    }
    found.sort();
    found
}

impl Fixture {
    /// A fixture with 4 shards and 16 databases. RESP2 and database 0 are selected. The seed is 7.
    pub(crate) fn new() -> Fixture {
        Fixture::on(Arc::new(Keyspace::new(4, 16, [1, 2, 3, 4])))
    }
    fn on(keyspace: Arc<Keyspace>) -> Fixture {
        keyspace.switch_journal(true);
        Fixture {
            keyspace,
            db: 0,
            now_ms: START_MS,
            protocol: Protocol::Resp2,
            rng: fastrand::Rng::with_seed(7),
            cancel: Arc::default(),
            all_long: false,
            reply_bytes_max: usize::MAX,
            pauses: Cell::new(0),
            journal: Chain::new(),
            is_twin: false,
        }
    }
    /// A fixture with the data that the journal so far makes, and with this one's clock.
    pub(crate) fn replayed(&mut self) -> Fixture {
        let shown: String = self.effects().chars().take(4096).collect();
        let journal: Vec<u8> = self.journal.slices().flatten().copied().collect();
        let twin = Arc::new(Keyspace::new(4, 16, [5, 6, 7, 8]));
        let mut commands = Chain::new();
        commands.push_slice(&journal);
        if let Err(why) = replayed(commands, &twin, self.now_ms) {
            panic!("the journal cannot be run again: {why}; it begins with {shown}");
        }
        let mut twin = Fixture::on(twin);
        (twin.is_twin, twin.now_ms) = (true, self.now_ms);
        twin
    }
    /// The journal so far, with spaces in place of line ends.
    pub(crate) fn effects(&mut self) -> String {
        let taken = self.keyspace.journal().take(&mut self.journal).end;
        assert_eq!(taken, self.keyspace.journal().tail());
        let bytes: Vec<u8> = self.journal.slices().flatten().copied().collect();
        String::from_utf8_lossy(&bytes).replace("\r\n", " ")
    }
    /// Moves the clock forward.
    pub(crate) fn advance_ms(&mut self, ms: i64) {
        self.now_ms += ms;
    }
    /// Runs a command given as its arguments. Returns the bytes of the reply.
    pub(crate) fn run_args<T: AsRef<[u8]>>(&mut self, args: &[T]) -> Vec<u8> {
        let argv = Argv::from_slices(args);
        let args = argv.args();
        let mut out = Chain::new();
        let mut reply = Reply::bounded(&mut out, self.protocol, self.reply_bytes_max);
        match DATA.resolve(args) {
            Err(text) => reply.error_bytes(&text),
            Ok(found) => match found.spec.exec {
                Exec::Inline(run) | Exec::Estimated(run, ..) if !self.is_long(found.spec, args) => {
                    let keys = run::keys_of(found.spec, args, &self.keyspace);
                    let hashes: Vec<KeyHash> = keys.iter().map(|k| k.hash).collect();
                    let mut txn = match run::needs_all_shards(found.spec) {
                        true => self.keyspace.lock_all(self.now_ms),
                        false => self.keyspace.lock(&hashes, self.now_ms),
                    };
                    let mut call = Call {
                        args,
                        keys: &keys,
                        db: self.db,
                        now_ms: self.now_ms,
                        txn: &mut txn,
                        reply: &mut reply,
                        rng: &mut self.rng,
                        rights: None,
                        wait: None,
                    };
                    run::execute(found.spec, run, &mut call, 1);
                }
                Exec::Estimated(..) | Exec::Walk(_) | Exec::Heavy(_) => {
                    let pauses = &self.pauses;
                    let mut call = LaneCall {
                        spec: Some(found.spec),
                        args,
                        client: 1,
                        runs_on: crate::call::RunsOn::Lane,
                        db: self.db,
                        now_ms: self.now_ms,
                        keyspace: &self.keyspace,
                        long_locks: &Alone,
                        reply: &mut reply,
                        rng: &mut self.rng,
                        cancel: &self.cancel,
                        no_touch: false,
                        rights: None,
                        lookups: Lookups::default(),
                        error_is_counted: false,
                        waits: false,
                        yield_now: &|| pauses.set(pauses.get() + 1),
                    };
                    match found.spec.exec {
                        Exec::Walk(run) | Exec::Heavy(run) => run(&mut call),
                        _ => long::run(found.spec, &mut call),
                    }
                }
                other => panic!("{other:?} is not run by the fixture"),
            },
        }
        out.slices().flatten().copied().collect()
    }
    /// True when the engine would run this call on the lane.
    fn is_long(&self, spec: &'static CommandSpec, args: Args<'_>) -> bool {
        if self.all_long && matches!(spec.exec, Exec::Estimated(..)) {
            return true;
        }
        let at_key = || {
            let keys = run::keys_of(spec, args, &self.keyspace);
            let hashes: Vec<KeyHash> = keys.iter().map(|k| k.hash).collect();
            let mut txn = self.keyspace.lock(&hashes, self.now_ms);
            elements_at(spec.cost(), args, &mut txn, self.db, &keys)
        };
        spec.cost().elements(args, self.keyspace.shards()) > LONG_ELEMENTS
            || (spec.cost().depends_on_data() && at_key() > LONG_ELEMENTS)
    }
    /// True when the engine would run the call of this line on the lane.
    pub(crate) fn is_line_long(&self, line: &str) -> bool {
        let argv = Argv::from_slices(&line.split(' ').collect::<Vec<_>>());
        let found = DATA.resolve(argv.args()).expect("a command");
        self.is_long(found.spec, argv.args())
    }
    /// Runs a command line and returns the reply as text, with CR LF as `|`: `fixture.run("SET a 1")` is `"+OK|"`.
    /// Words are separated by blanks, and `''` is an empty word.
    pub(crate) fn run(&mut self, line: &str) -> String {
        let args: Vec<&str> = line.split_whitespace().map(|w| if w == "''" { "" } else { w }).collect();
        String::from_utf8_lossy(&self.run_args(&args)).replace("\r\n", "|")
    }
    /// Runs lines and compares each reply, so that a test reads like a script: `("GET a", "$1|1|")`.
    #[track_caller]
    pub(crate) fn script(&mut self, steps: &[(&str, &str)]) {
        for (line, want) in steps {
            assert_eq!(self.run(line), *want, "{line}");
        }
    }
}
