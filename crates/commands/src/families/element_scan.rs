//! HSCAN, SSCAN and ZSCAN: one implementation for the three types, on the worker and on the lane.
//!
//! A type implements [`Scanned`]: how its elements are visited and encoded. SCAN, which visits keys, is in
//! [`super::keyspace_wide`].

use super::collection::read;
use super::listing::SLICE_KEYS;
use super::scan::{CollectedElements, ScanOf, ScanOptions, cursor};
use crate::call::{Call, LaneCall};
use crate::parse::wrong_type;
use std::sync::atomic::Ordering;
use strand_keyspace::Collection;

/// A collection whose elements can be scanned with a cursor.
pub(super) trait Scanned: Collection {
    /// Which options the type's command has.
    const OPTIONS: ScanOf = ScanOf::Members;
    /// Visits about `count` elements, beginning at the cursor `from`, and encodes those that pass the filter in the
    /// options. Returns the next cursor (0 at the end), and the number of elements visited.
    fn scan_into(
        &self,
        from: u64,
        count: usize,
        options: &ScanOptions<'_>,
        found: &mut CollectedElements<'_>,
    ) -> (u64, usize);
}

/// A scan on the worker. A small collection is returned as a whole. When the key is missing, errors in the options
/// are not reported, as in redis-server.
pub(super) fn scan<T: Scanned>(call: &mut Call<'_, '_>) {
    let from = match cursor(call.args.at(2)) {
        Ok(from) => from,
        Err(text) => return call.reply.error(text),
    };
    let options = ScanOptions::parse(call.args.skip(3), T::OPTIONS);
    read(call, |collection: Option<&T>, reply| {
        let mut found = CollectedElements::new(reply);
        let next = match (collection, options) {
            (None, _) => 0,
            (Some(_), Err(text)) => return reply.error(text),
            (Some(collection), Ok(options)) => {
                collection.scan_into(from, options.count, &options, &mut found).0
            }
        };
        found.send(reply, next);
    });
}

/// A scan on the lane, because its COUNT is large or its pattern takes long to match. It runs in slices on a
/// snapshot of the collection, while no shard is locked.
pub(super) fn scan_long<T: Scanned>(call: &mut LaneCall<'_>) {
    let from = match cursor(call.args.at(2)) {
        Ok(from) => from,
        Err(text) => return call.reply.error(text),
    };
    let options = ScanOptions::parse(call.args.skip(3), T::OPTIONS);
    let key = call.keyspace.key(call.args.at(1));
    let mut txn = call.lock(&[key.hash]);
    txn.set_no_touch(call.no_touch);
    let collection = txn.db(call.db).read::<T>(&key).map(|collection| collection.cloned());
    call.lookups = txn.lookups();
    drop(txn);
    let (collection, options) = match (collection.map_err(wrong_type), options) {
        (Err(text), _) | (Ok(Some(_)), Err(text)) => return call.reply.error(text),
        (Ok(None), _) => return CollectedElements::new(call.reply).send(call.reply, 0),
        (Ok(Some(collection)), Ok(options)) => (collection, options),
    };
    let may_continue = || {
        (call.yield_now)();
        !call.cancel.load(Ordering::Relaxed)
    };
    let mut found = CollectedElements::interruptible(call.reply, &may_continue);
    let (mut next, mut left) = (from, options.count);
    loop {
        let visited;
        (next, visited) = collection.scan_into(next, left.min(SLICE_KEYS), &options, &mut found);
        left = left.saturating_sub(visited.max(1));
        call.pause();
        if next == 0 || left == 0 || call.cancelled() || found.is_over() {
            return found.send(call.reply, next);
        }
    }
}
