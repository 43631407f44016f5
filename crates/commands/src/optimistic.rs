//! [`apply`]: a long write whose result is computed while no shard is locked.
//!
//! The call clones the values on which the result depends. (Clones are cheap, because large values share their
//! parts.) It computes the result, and stores it if none of these values was written meanwhile. So the command is
//! as atomic as in redis-server, and no other client waits for the computation. If a value was written, the call
//! starts again. After a few attempts it announces a long lock on its shards, locks them, and finishes.
//! [`crate::copy_write`] does this with a command's ordinary handler.

use crate::call::LaneCall;
use crate::parse::Text;
use crate::run::{PreparedEffect, end};
use std::ops::Range;
use strand_keyspace::{Db, KeyHash, Keyspace};

/// Maximum number of attempts while no shard is locked. An attempt fails when a value was written meanwhile.
const TRIES: usize = 4;

/// A long write in three steps.
pub(crate) trait OptimisticWrite {
    /// The values on which the result depends.
    type Source;
    /// The result.
    type Outcome;

    /// Prefetches what [`OptimisticWrite::read`] is about to read. Called while no shard is locked.
    fn prefetch(&self, call: &LaneCall<'_>) {
        let _ = call;
    }
    /// Clones the values on which the result depends.
    ///
    /// # Errors
    /// The error with which the command replies.
    fn read(&self, db: &mut Db<'_, '_>) -> Result<Self::Source, Text>;
    /// True when no value was written between the read of `before` and the read of `now`.
    fn is_same(&self, before: &Self::Source, now: &Self::Source) -> bool;
    /// Computes the result. Calls `pause` after every 50 us or so of work.
    ///
    /// # Errors
    /// The error with which the command replies.
    fn compute(&mut self, source: &Self::Source, pause: &dyn Fn()) -> Result<Self::Outcome, Text>;
    /// Stores the result. If this records no effect, the command as the client sent it is the effect.
    fn store(&self, db: &mut Db<'_, '_>, outcome: &Self::Outcome);
    /// True when [`OptimisticWrite::store`] will change something and record no effect. Then the command is encoded for
    /// the journal before the shards are locked.
    fn is_verbatim(&self, outcome: &Self::Outcome) -> bool {
        let _ = outcome;
        false
    }
    /// The database of the values. `selected` is the session's database.
    fn database(&self, keyspace: &Keyspace, selected: usize) -> usize {
        let _ = keyspace;
        selected
    }
}

/// Runs `write`. `hashes` are the hashes of its keys. Returns the result that was stored.
///
/// # Errors
/// The error with which the command replies.
pub(crate) fn apply<W: OptimisticWrite>(
    call: &mut LaneCall<'_>,
    hashes: &[KeyHash],
    write: &mut W,
) -> Result<W::Outcome, Text> {
    let database = write.database(call.keyspace, call.db);
    for _ in 0..TRIES {
        write.prefetch(call);
        let mut txn = call.lock(hashes);
        let read = write.read(&mut txn.db(database));
        call.lookups = txn.lookups();
        drop(txn);
        let before = read?;
        let outcome = write.compute(&before, &|| call.pause())?;
        let prepared = write.is_verbatim(&outcome).then(|| PreparedEffect::new(call));
        write.prefetch(call);
        let mut txn = call.lock(hashes);
        let now = write.read(&mut txn.db(database))?;
        if write.is_same(&before, &now) {
            // Drop the clones first. A write to a value that a clone shares would copy it.
            drop((before, now));
            if let Some(prepared) = prepared {
                prepared.record_in(&mut txn);
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

/// Runs `write` at once. The shards must be locked.
///
/// # Errors
/// The error with which the command replies.
pub(crate) fn apply_at_once<W: OptimisticWrite>(
    db: &mut Db<'_, '_>,
    write: &mut W,
) -> Result<W::Outcome, Text> {
    let source = write.read(db)?;
    let outcome = write.compute(&source, &|| {})?;
    drop(source);
    write.store(db, &outcome);
    Ok(outcome)
}

/// Number of members visited between two pauses: about 50 us.
const PAUSE_MEMBERS: usize = 256;

/// Number of elements written on a copy between two pauses. The first write to a segment copies the segment. That
/// takes about 10 us, mostly for the kernel to clear a page. With 256 elements between pauses, a probe of another
/// client waited 3 to 4 ms beside ZREMRANGEBYRANK.
pub(crate) const PAUSE_WRITES: usize = 32;

/// Calls `pause` once per [`PAUSE_MEMBERS`] members.
pub(crate) struct Pauses<'a> {
    pause: &'a mut dyn FnMut() -> bool,
    left: usize,
}

impl<'a> Pauses<'a> {
    /// A counter that begins at 0 members.
    pub(crate) fn new(pause: &'a mut dyn FnMut() -> bool) -> Pauses<'a> {
        Pauses { pause, left: PAUSE_MEMBERS }
    }
    /// Visits the members of `range` in pieces of [`PAUSE_WRITES`], the last piece first, for a caller that changes
    /// them. Calls `pause` after each piece.
    pub(crate) fn pieces_back(&mut self, range: Range<usize>, mut visit: impl FnMut(Range<usize>)) {
        let mut end = range.end;
        while end > range.start {
            let from = end.saturating_sub(PAUSE_WRITES).max(range.start);
            visit(from..end);
            (self.pause)();
            end = from;
        }
    }
    /// Call this after each member. Returns false when the caller should stop.
    pub(crate) fn may_continue(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return true;
        }
        self.left = PAUSE_MEMBERS;
        (self.pause)()
    }
}
