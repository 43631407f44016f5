//! [`apply`]: a long write whose result is computed with nothing held.
//!
//! What the result depends on is cloned (large values share their parts, so that costs little), the result is computed, and
//! it is stored if nothing of that was written meanwhile: the command is as atomic as in redis-server, and nobody waits for
//! the computing. Where something was written all begins anew; after some tries the shards are held, announced.
//! [`crate::on_copy`] does that with a command's ordinary handler.

use crate::call::LaneCall;
use crate::parse::Text;
use crate::run::{Prepared, end};
use std::ops::Range;
use strand_keyspace::{Db, KeyHash, Keyspace};

/// Times that a long call begins anew because what it depends on has changed meanwhile.
const TRIES: usize = 4;

/// A long write in three steps.
pub(crate) trait Write {
    /// What the result depends on.
    type Source;
    /// What is to be stored.
    type Outcome;

    /// Fetches into the processor's cache what [`Write::read`] is about to read. Nothing is held.
    fn prefetch(&self, call: &LaneCall<'_>) {
        let _ = call;
    }
    /// Clones what the result depends on.
    ///
    /// # Errors
    /// Those of the command.
    fn read(&self, db: &mut Db<'_, '_>) -> Result<Self::Source, Text>;
    /// True when nothing was written between two reads.
    fn is_same(&self, before: &Self::Source, now: &Self::Source) -> bool;
    /// Computes the result. Calls `pause` between pieces of work of some 50 us.
    ///
    /// # Errors
    /// Those of the command.
    fn compute(&mut self, source: &Self::Source, pause: &dyn Fn()) -> Result<Self::Outcome, Text>;
    /// Stores the result. Unless it says what its effect is, that is the command as it was sent.
    fn store(&self, db: &mut Db<'_, '_>, outcome: &Self::Outcome);
    /// True when [`Write::store`] will change something and say no effect: then the command is encoded before the shards are held.
    fn is_verbatim(&self, outcome: &Self::Outcome) -> bool {
        let _ = outcome;
        false
    }
    /// The database of the values, when `selected` is the one of the session.
    fn database(&self, keyspace: &Keyspace, selected: usize) -> usize {
        let _ = keyspace;
        selected
    }
}

/// Runs `write` on the keys with these hashes; what it stored.
///
/// # Errors
/// Those of the command.
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
            // What is shared would be copied by the writing.
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

/// Runs `write` at once, with its shards held.
///
/// # Errors
/// Those of the command.
pub(crate) fn apply_at_once<W: Write>(db: &mut Db<'_, '_>, write: &mut W) -> Result<W::Outcome, Text> {
    let source = write.read(db)?;
    let outcome = write.compute(&source, &|| {})?;
    drop(source);
    write.store(db, &outcome);
    Ok(outcome)
}

/// Members looked at between two pauses: some 50 us.
const PAUSE_MEMBERS: usize = 256;

/// Elements written between two pauses on a copy. The first write to a segment of a table copies the segment: some 10 us, most
/// of which the kernel takes to clear a page. With 256 elements a probe waited 3 to 4 ms beside ZREMRANGEBYRANK.
pub(crate) const PAUSE_WRITES: usize = 32;

/// Calls `rest` each [`PAUSE_MEMBERS`] members.
pub(crate) struct Pauses<'a> {
    rest: &'a mut dyn FnMut() -> bool,
    left: usize,
}

impl<'a> Pauses<'a> {
    /// With nothing visited yet.
    pub(crate) fn new(rest: &'a mut dyn FnMut() -> bool) -> Pauses<'a> {
        Pauses { rest, left: PAUSE_MEMBERS }
    }
    /// Visits the members of `range`, to change them, in pieces of [`PAUSE_WRITES`] from the last on.
    pub(crate) fn pieces_back(&mut self, range: Range<usize>, mut visit: impl FnMut(Range<usize>)) {
        let mut end = range.end;
        while end > range.start {
            let from = end.saturating_sub(PAUSE_WRITES).max(range.start);
            visit(from..end);
            (self.rest)();
            end = from;
        }
    }
    /// After each member: false when nobody wants the rest.
    pub(crate) fn goes_on(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return true;
        }
        self.left = PAUSE_MEMBERS;
        (self.rest)()
    }
}
