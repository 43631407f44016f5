//! [`apply`]: a long write whose result is computed with nothing held.
//!
//! What the result depends on is cloned (large values share their parts, so that costs little), the result is computed, and
//! it is stored if nothing of that was written meanwhile: the command is as atomic as in redis-server, and nobody waits for
//! the computing. Where something was written all begins anew; after some tries the shards are held, announced.

use crate::call::LaneCall;
use crate::parse::Text;
use strand_keyspace::{Db, KeyHash};

/// Times that a long call begins anew because what it depends on has changed meanwhile.
const TRIES: usize = 4;

/// A long write in three steps.
pub(crate) trait Write {
    /// What the result depends on.
    type Source;
    /// What is to be stored.
    type Outcome;

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
    /// Stores the result.
    fn store(&self, db: &mut Db<'_, '_>, outcome: &Self::Outcome);
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
    for _ in 0..TRIES {
        let before = write.read(&mut call.lock(hashes).db(call.db))?;
        let outcome = write.compute(&before, &|| call.pause())?;
        let mut txn = call.lock(hashes);
        let mut db = txn.db(call.db);
        let now = write.read(&mut db)?;
        if write.is_same(&before, &now) {
            // What is shared would be copied by the writing.
            drop((before, now));
            write.store(&mut db, &outcome);
            return Ok(outcome);
        }
    }
    let mut txn = call.hold(hashes);
    let mut db = txn.db(call.db);
    let source = write.read(&mut db)?;
    let outcome = write.compute(&source, &|| {})?;
    drop(source);
    write.store(&mut db, &outcome);
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
