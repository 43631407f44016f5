//! HSCAN, SSCAN and ZSCAN: one implementation for three types, on the worker and on the lane.
//!
//! With [`Scanned`] a type says how its elements are visited and encoded. SCAN, over keys, is in
//! [`super::keyspace_wide`].

use super::collection::read;
use super::keyspace_wide::{Found, SLICE_KEYS, ScanOf, ScanOptions, cursor};
use crate::call::{Call, LaneCall};
use crate::parse::wrong_type;
use std::sync::atomic::Ordering;
use strand_keyspace::Collection;

/// A collection whose elements a cursor walks.
pub(super) trait Scanned: Collection {
    /// The options of the type's command.
    const OPTIONS: ScanOf = ScanOf::Members;
    /// Visits about `count` elements from `from` on, and encodes those that pass the filter of the options. Returns the
    /// next cursor (0 at the end) and the number of visited elements.
    fn scan_into(
        &self,
        from: u64,
        count: usize,
        options: &ScanOptions<'_>,
        found: &mut Found<'_>,
    ) -> (u64, usize);
}

/// A scan on the worker. A small collection is returned whole. As in redis-server, a missing key hides errors in the
/// options.
pub(super) fn scan<T: Scanned>(call: &mut Call<'_, '_>) {
    let from = match cursor(call.args.at(2)) {
        Ok(from) => from,
        Err(text) => return call.reply.error(text),
    };
    let options = ScanOptions::parse(call.args.skip(3), T::OPTIONS);
    read(call, |collection: Option<&T>, reply| {
        let mut found = Found::new(reply);
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

/// A scan with a large COUNT, or with a pattern that takes long to match, on the lane: in slices over a snapshot of the
/// collection, with no shard locked.
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
        (Ok(None), _) => return Found::new(call.reply).send(call.reply, 0),
        (Ok(Some(collection)), Ok(options)) => (collection, options),
    };
    let go_on = || {
        (call.yield_now)();
        !call.cancel.load(Ordering::Relaxed)
    };
    let mut found = Found::asking(call.reply, &go_on);
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
