//! [`Replay`]: runs the commands of a journal again, on the keyspace of who reads it.
//!
//! Nothing expires by the clock meanwhile: the journal says what expired. A transaction is run when its EXEC has come, so that
//! one that is cut off has done nothing.
//!
//! Left out: reading files, and commands about the server (FUNCTION), which the caller runs.

use crate::dispatch;
use crate::run::{self, Context};
use crate::spec::CommandSpec;
use strand_chain::Chain;
use strand_keyspace::Keyspace;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::{Args, Argv};
use strand_wire::reply::Protocol;

/// Most commands in one transaction of a journal.
pub const QUEUED_MAX: usize = 1 << 24;

/// A reader's state: the database that is selected, and the transaction that has begun.
#[derive(Debug)]
pub struct Replay {
    db: usize,
    queued: Option<Vec<Argv>>,
    rng: fastrand::Rng,
}

/// Why a command of a journal could not be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotRun {
    /// The command is none of the table's, has a wrong number of arguments, or is no command on keys.
    Unknown(Vec<u8>),
    /// The command answered with this error.
    Failed(Vec<u8>),
}

impl Default for Replay {
    fn default() -> Replay {
        Replay { db: 0, queued: None, rng: fastrand::Rng::with_seed(0) }
    }
}

impl Replay {
    /// Takes the next command of the journal; `now_ms` is the reader's clock.
    ///
    /// # Errors
    /// [`NotRun`]; what the journal says is not this keyspace's any more.
    pub fn apply(&mut self, keyspace: &Keyspace, argv: Argv, now_ms: i64) -> Result<(), NotRun> {
        let args = argv.args();
        if args.is(0, "MULTI") && self.queued.is_none() {
            self.queued = Some(Vec::new());
            return Ok(());
        }
        if args.is(0, "EXEC")
            && let Some(queued) = self.queued.take()
        {
            return queued.iter().try_for_each(|argv| self.run(keyspace, argv.args(), now_ms));
        }
        match &mut self.queued {
            Some(queued) if queued.len() < QUEUED_MAX => {
                queued.push(argv);
                Ok(())
            }
            Some(_) => Err(NotRun::Failed(b"ERR the transaction has too many commands".to_vec())),
            None => self.run(keyspace, args, now_ms),
        }
    }
    /// True when a transaction has begun that has not come to its EXEC.
    pub fn is_in_transaction(&self) -> bool {
        self.queued.is_some()
    }
    /// The database that is selected.
    pub fn db(&self) -> usize {
        self.db
    }

    fn run(&mut self, keyspace: &Keyspace, args: Args<'_>, now_ms: i64) -> Result<(), NotRun> {
        if args.is(0, "SELECT") && args.len() == 2 {
            let db = parse_int(args.at(1)).and_then(|db| usize::try_from(db).ok());
            let db = db.filter(|db| *db < keyspace.databases());
            self.db = db.ok_or_else(|| NotRun::Failed(b"ERR DB index is out of range".to_vec()))?;
            return Ok(());
        }
        let found = dispatch::resolve(args).map_err(NotRun::Unknown)?;
        if run::handler(found.spec).is_none() {
            let head: &[u8] = b"ERR a journal cannot have the command ";
            return Err(NotRun::Unknown([head, found.spec.name.as_bytes()].concat()));
        }
        self.run_on_keys(found.spec, keyspace, args, now_ms)
    }
    fn run_on_keys(
        &mut self,
        spec: &CommandSpec,
        keyspace: &Keyspace,
        args: Args<'_>,
        now_ms: i64,
    ) -> Result<(), NotRun> {
        let mut txn = match run::needs_all_shards(spec) {
            true => keyspace.lock_all(now_ms),
            false => {
                let positions = dispatch::keys_to_lock(spec, args);
                let hashes: Vec<_> = positions.iter().map(|at| keyspace.key(args.at(*at)).hash).collect();
                keyspace.lock(&hashes, now_ms)
            }
        };
        txn.set_replaying();
        let mut out = Chain::new();
        let context = Context {
            db: self.db,
            protocol: Protocol::Resp2,
            reply_bytes_max: usize::MAX,
            rng: &mut self.rng,
            rights: None,
            client: 0,
        };
        match run::whole(spec, args, &mut txn, &mut out, context) {
            None => Ok(()),
            Some(_) => Err(NotRun::Failed(error_text(&out))),
        }
    }
}

/// The text of an error reply, which is `-text\r\n`.
fn error_text(out: &Chain) -> Vec<u8> {
    let line: Vec<u8> = out.slices().flatten().copied().collect();
    line.get(1..).unwrap_or_default().trim_ascii_end().to_vec()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use strand_wire::resp::Limits;
    use strand_wire::resp::{Decoder, Progress};

    /// Runs the bytes of a journal again.
    pub(crate) fn replayed(stream: Chain, into: &Keyspace, now_ms: i64) -> Result<(), NotRun> {
        let (mut input, mut decoder, mut replay) = (stream, Decoder::new(Limits::FULL), Replay::default());
        let mut argv = Argv::new();
        loop {
            match decoder.decode(&mut input, &mut argv).expect("a journal is a stream of requests") {
                Progress::Command => replay.apply(into, std::mem::take(&mut argv), now_ms)?,
                Progress::More => {}
                Progress::Incomplete => break,
            }
        }
        assert!(input.is_empty(), "{} bytes are left", input.len());
        assert!(!replay.is_in_transaction());
        Ok(())
    }

    fn run(keyspace: &Keyspace, replay: &mut Replay, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split(' ').collect();
        let applied = replay.apply(keyspace, Argv::from_slices(&words), 1_000);
        applied.map_err(|why| format!("{why:?}"))
    }

    #[test]
    fn nothing_expires_while_a_journal_is_read() {
        let keyspace = Keyspace::new(4, 16, [1, 2, 3, 4]);
        let mut replay = Replay::default();
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
    fn a_transaction_that_is_cut_off_does_nothing() {
        let keyspace = Keyspace::new(4, 16, [1, 2, 3, 4]);
        let mut replay = Replay::default();
        for line in ["MULTI", "SET a 1", "SET b 2"] {
            run(&keyspace, &mut replay, line).expect(line);
        }
        assert!(replay.is_in_transaction());
        assert!(keyspace.is_empty(0));
        run(&keyspace, &mut replay, "EXEC").expect("it is whole");
        assert_eq!(keyspace.len(0), 2);
    }

    #[test]
    fn what_is_no_change_is_named() {
        let keyspace = Keyspace::new(4, 16, [1, 2, 3, 4]);
        let mut replay = Replay::default();
        for (line, says) in [
            ("FROB a", "unknown command"),
            ("SET a", "wrong number of arguments"),
            ("SUBSCRIBE a", "cannot have the command subscribe"),
            ("SELECT 99", "out of range"),
            ("INCR a b", "wrong number of arguments"),
        ] {
            let refused = run(&keyspace, &mut replay, line);
            let (NotRun::Unknown(text) | NotRun::Failed(text)) = replay
                .apply(&keyspace, Argv::from_slices(&line.split(' ').collect::<Vec<_>>()), 1_000)
                .expect_err(line);
            assert!(refused.is_err());
            assert!(String::from_utf8_lossy(&text).contains(says), "{line}: {}", text.escape_ascii());
        }
        run(&keyspace, &mut replay, "SET a x").expect("a string");
        assert!(matches!(
            replay.apply(&keyspace, Argv::from_slices(&["INCR", "a"]), 0),
            Err(NotRun::Failed(text)) if text == b"ERR value is not an integer or out of range"
        ));
    }
}
