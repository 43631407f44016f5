//! ZSCAN, on the worker and on the lane.

use crate::call::{Call, LaneCall};
use crate::families::collection::{read, send};
use crate::families::keyspace_wide::{Found, SLICE_KEYS, ScanOptions, cursor};
use crate::parse::wrong_type;
use std::sync::atomic::Ordering;
use strand_keyspace::ZSetValue;
use strand_keyspace::types::Bytes;
use strand_wire::digits::Digits;

/// `ZSCAN key cursor [MATCH pattern] [COUNT n]`. Reply: the next cursor (0 at the end) and a flat array of members and
/// scores. A small sorted set comes whole. The options of a missing key are not looked at, as in redis-server.
pub(crate) fn zscan(call: &mut Call<'_, '_>) {
    let from = match cursor(call.args.at(2)) {
        Ok(from) => from,
        Err(text) => return call.reply.error(text),
    };
    let options = ScanOptions::parse(call.args.skip(3), false);
    read(call, |zset: Option<&ZSetValue>, reply| {
        let mut found = Found::new(reply);
        let next = match (zset, options) {
            (None, _) => 0,
            (Some(_), Err(text)) => return reply.error(text),
            (Some(zset), Ok(options)) => zset.scan(from, options.count, &mut |member, score| {
                see(&options, &mut found, member, score);
            }),
        };
        found.send(reply, next);
    });
}

/// ZSCAN with a large COUNT, or a pattern that takes long to match (slow lane): in slices, over a snapshot of the sorted
/// set, with nothing held.
pub(crate) fn zscan_long(call: &mut LaneCall<'_>) {
    let from = match cursor(call.args.at(2)) {
        Ok(from) => from,
        Err(text) => return call.reply.error(text),
    };
    let options = ScanOptions::parse(call.args.skip(3), false);
    let key = call.keyspace.key(call.args.at(1));
    let mut txn = call.lock(&[key.hash]);
    txn.set_no_touch(call.no_touch);
    let zset = txn.db(call.db).read::<ZSetValue>(&key).map(|zset| zset.cloned());
    call.lookups = txn.lookups();
    drop(txn);
    let (zset, options) = match (zset.map_err(wrong_type), options) {
        (Err(text), _) | (Ok(Some(_)), Err(text)) => return call.reply.error(text),
        (Ok(None), _) => return Found::new(call.reply).send(call.reply, 0),
        (Ok(Some(zset)), Ok(options)) => (zset, options),
    };
    let go_on = || {
        (call.yield_now)();
        !call.cancel.load(Ordering::Relaxed)
    };
    let mut found = Found::asking(call.reply, &go_on);
    let (mut next, mut left) = (from, options.count);
    loop {
        let mut visited = 0;
        next = zset.scan(next, left.min(SLICE_KEYS), &mut |member, score| {
            visited += 1;
            see(&options, &mut found, member, score);
        });
        left = left.saturating_sub(visited.max(1));
        call.pause();
        if next == 0 || left == 0 || call.cancelled() || found.is_over() {
            return found.send(call.reply, next);
        }
    }
}

/// Encodes a member that a scan came by, if it is one of those that are asked for.
fn see(options: &ScanOptions<'_>, found: &mut Found<'_>, member: Bytes<'_>, score: f64) {
    if found.wants(&options.filter, &member) {
        found.encode(|reply| send(reply, member));
        found.encode(|reply| reply.bulk(Digits::double(score).as_slice()));
    }
}
