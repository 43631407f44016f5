//! [`apply`]: a long write whose result is computed with no shard locked.
//!
//! The call clones the values that the result depends on (large values share their parts, so clones are cheap),
//! computes the result, and stores it if none of these values was written meanwhile. So the command is as atomic as in
//! redis-server, and nobody waits for the computation. If a value was written, the call begins anew. After a few tries
//! it locks the shards (announced) and finishes. [`crate::on_copy`] does this with a command's ordinary handler.

use crate::call::LaneCall;
use crate::parse::Text;
use crate::run::{Prepared, end};
use std::ops::Range;
use strand_keyspace::{Db, KeyHash, Keyspace};

/// How often a call begins anew because a value was written meanwhile.
const TRIES: usize = 4;

/// A long write in three steps.
pub(crate) trait Write {
    /// The values that the result depends on.
    type Source;
    /// The result.
    type Outcome;

    /// Fetches what [`Write::read`] is about to read into the processor's cache. No shard is locked.
    fn prefetch(&self, call: &LaneCall<'_>) {
        let _ = call;
    }
    /// Clones the values that the result depends on.
    ///
    /// # Errors
    /// The errors of the command.
    fn read(&self, db: &mut Db<'_, '_>) -> Result<Self::Source, Text>;
    /// True when no value was written between two reads.
    fn is_same(&self, before: &Self::Source, now: &Self::Source) -> bool;
    /// Computes the result. Calls `pause` after each 50 us or so of work.
    ///
    /// # Errors
    /// The errors of the command.
    fn compute(&mut self, source: &Self::Source, pause: &dyn Fn()) -> Result<Self::Outcome, Text>;
    /// Stores the result. If it records no effect, the command as it was sent is the effect.
    fn store(&self, db: &mut Db<'_, '_>, outcome: &Self::Outcome);
    /// True when [`Write::store`] will change something and record no effect. The command is then encoded before the
    /// shards are locked.
    fn is_verbatim(&self, outcome: &Self::Outcome) -> bool {
        let _ = outcome;
        false
    }
    /// The database of the values, when the session has selected `selected`.
    fn database(&self, keyspace: &Keyspace, selected: usize) -> usize {
        let _ = keyspace;
        selected
    }
}

/// Runs `write` on the keys with these hashes. Returns what it stored.
///
/// # Errors
/// The errors of the command.
pub(crate) fn apply<W: Write>(
    call: &mut LaneCall<'_>,
    hashes: &[KeyHash],
    write: &mut W,
) -> Result<W::Outcome, Text> {
    let database = write.database(call.keyspace, call.db);
    for _ in 0..TRIES {
        write.prefetch(call);
        let before = write.read(&mut call.lock(hashes).db(database))?;
        let outcome = write.compute(&before, &|| call.pause())?;
        let prepared = write.is_verbatim(&outcome).then(|| Prepared::new(call));
        write.prefetch(call);
        let mut txn = call.lock(hashes);
        let now = write.read(&mut txn.db(database))?;
        if write.is_same(&before, &now) {
            // While a clone shares the value, a write would copy it.
            drop((before, now));
            if let Some(prepared) = prepared {
                prepared.give(call, &mut txn);
            }
            write.store(&mut txn.db(database), &outcome);
            end(&mut txn, call.db, call.args);
            return Ok(outcome);
        }
    }
    let mut txn = call.hold(hashes);
    let mut db = txn.db(database);
    let source = write.read(&mut db)?;
    let outcome = write.compute(&source, &|| {})?;
    drop(source);
    write.store(&mut db, &outcome);
    end(&mut txn, call.db, call.args);
    Ok(outcome)
}

/// Runs `write` at once, with its shards locked.
///
/// # Errors
/// The errors of the command.
pub(crate) fn apply_at_once<W: Write>(db: &mut Db<'_, '_>, write: &mut W) -> Result<W::Outcome, Text> {
    let source = write.read(db)?;
    let outcome = write.compute(&source, &|| {})?;
    drop(source);
    write.store(db, &outcome);
    Ok(outcome)
}

/// Members visited between two pauses: about 50 us.
const PAUSE_MEMBERS: usize = 256;

/// Elements written between two pauses on a copy. The first write to a segment of a table copies the segment, which
/// takes about 10 us, most of it for the kernel to clear a page. With 256 elements a probe waited 3 to 4 ms beside
/// ZREMRANGEBYRANK.
pub(crate) const PAUSE_WRITES: usize = 32;

/// Calls `rest` after each [`PAUSE_MEMBERS`] members.
pub(crate) struct Pauses<'a> {
    rest: &'a mut dyn FnMut() -> bool,
    left: usize,
}

impl<'a> Pauses<'a> {
    /// A counter with nothing visited yet.
    pub(crate) fn new(rest: &'a mut dyn FnMut() -> bool) -> Pauses<'a> {
        Pauses { rest, left: PAUSE_MEMBERS }
    }
    /// Visits the members of `range` to change them, in pieces of [`PAUSE_WRITES`], the last piece first.
    pub(crate) fn pieces_back(&mut self, range: Range<usize>, mut visit: impl FnMut(Range<usize>)) {
        let mut end = range.end;
        while end > range.start {
            let from = end.saturating_sub(PAUSE_WRITES).max(range.start);
            visit(from..end);
            (self.rest)();
            end = from;
        }
    }
    /// Call this after each member. Returns false when the caller does not want the rest.
    pub(crate) fn goes_on(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return true;
        }
        self.left = PAUSE_MEMBERS;
        (self.rest)()
    }
}
