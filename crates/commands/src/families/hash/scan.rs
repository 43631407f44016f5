//! HSCAN, on the worker and on the lane.

use super::{read, send};
use crate::call::{Call, LaneCall};
use crate::families::keyspace_wide::{Found, SLICE_KEYS, ScanOptions, cursor};
use crate::parse::wrong_type;
use std::sync::atomic::Ordering;
use strand_keyspace::HashValue;
use strand_keyspace::types::Bytes;

/// `HSCAN key cursor [MATCH pattern] [COUNT n]`. Reply: the next cursor (0 at the end) and a flat array of fields and
/// values. A small hash comes whole. The options of a missing key are not looked at, as in redis-server.
pub(crate) fn hscan(call: &mut Call<'_, '_>) {
    let from = match cursor(call.args.at(2)) {
        Ok(from) => from,
        Err(text) => return call.reply.error(text),
    };
    let options = ScanOptions::parse(call.args.skip(3), false);
    read(call, |hash: Option<&HashValue>, reply| {
        let mut found = Found::new(reply);
        let next = match (hash, options) {
            (None, _) => 0,
            (Some(_), Err(text)) => return reply.error(text),
            (Some(hash), Ok(options)) => hash.scan(from, options.count, &mut |field, value| {
                see(&options, &mut found, field, value);
            }),
        };
        found.send(reply, next);
    });
}

/// HSCAN with a large COUNT, or a pattern that takes long to match (slow lane): in slices, over a snapshot of the hash, with
/// nothing held.
pub(crate) fn hscan_long(call: &mut LaneCall<'_>) {
    let from = match cursor(call.args.at(2)) {
        Ok(from) => from,
        Err(text) => return call.reply.error(text),
    };
    let options = ScanOptions::parse(call.args.skip(3), false);
    let key = call.keyspace.key(call.args.at(1));
    let mut txn = call.lock(&[key.hash]);
    txn.set_no_touch(call.no_touch);
    let hash = txn.db(call.db).read::<HashValue>(&key).map(|hash| hash.cloned()).map_err(wrong_type);
    call.lookups = txn.lookups();
    drop(txn);
    let (hash, options) = match (hash, options) {
        (Err(text), _) | (Ok(Some(_)), Err(text)) => return call.reply.error(text),
        (Ok(None), _) => return Found::new(call.reply).send(call.reply, 0),
        (Ok(Some(hash)), Ok(options)) => (hash, options),
    };
    let go_on = || {
        (call.yield_now)();
        !call.cancel.load(Ordering::Relaxed)
    };
    let mut found = Found::asking(call.reply, &go_on);
    let (mut next, mut left) = (from, options.count);
    loop {
        let mut visited = 0;
        next = hash.scan(next, left.min(SLICE_KEYS), &mut |field, value| {
            visited += 1;
            see(&options, &mut found, field, value);
        });
        left = left.saturating_sub(visited.max(1));
        call.pause();
        if next == 0 || left == 0 || call.cancelled() || found.is_over() {
            return found.send(call.reply, next);
        }
    }
}

/// Encodes a pair that a scan came by, if it is one of those that are asked for.
fn see(options: &ScanOptions<'_>, found: &mut Found<'_>, field: Bytes<'_>, value: Bytes<'_>) {
    if found.wants(&options.filter, &field) {
        found.encode(|reply| send(reply, field));
        found.encode(|reply| send(reply, value));
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    #[test]
    fn a_small_hash_is_scanned_whole() {
        let mut f = Fixture::new();
        f.script(&[
            ("HSET h a 1", ":1|"),
            ("HSCAN h 0", "*2|$1|0|*2|$1|a|$1|1|"),
            ("HSCAN h 0 MATCH b*", "*2|$1|0|*0|"),
            ("HSCAN h 0 COUNT 1 MATCH a", "*2|$1|0|*2|$1|a|$1|1|"),
            ("HSCAN none 0 FOO", "*2|$1|0|*0|"),
            ("HSCAN none x", "-ERR invalid cursor|"),
            ("HSCAN h 0 FOO", "-ERR syntax error|"),
            ("HSCAN h 0 TYPE hash", "-ERR syntax error|"),
            ("HSCAN h 0 COUNT 0", "-ERR syntax error|"),
            ("HSCAN h 0 COUNT", "-ERR syntax error|"),
            ("HSCAN h 0 COUNT x", "-ERR value is not an integer or out of range|"),
        ]);
    }

    #[test]
    fn a_large_hash_is_scanned_to_the_end() {
        for all_long in [false, true] {
            scan_to_the_end(all_long);
        }
    }

    fn scan_to_the_end(all_long: bool) {
        let mut f = Fixture::new();
        f.all_long = all_long;
        for n in 0..1000 {
            f.run(&format!("HSET h field:{n} {n}"));
        }
        let (mut cursor, mut seen, mut calls) = (String::from("0"), std::collections::BTreeSet::new(), 0);
        loop {
            let reply = f.run(&format!("HSCAN h {cursor} COUNT 50"));
            let parts: Vec<&str> = reply.split('|').collect();
            cursor = parts[2].into();
            seen.extend(parts.iter().filter(|p| p.starts_with("field:")).map(|p| p.to_string()));
            calls += 1;
            assert!(calls <= 1000, "no end");
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen.len(), 1000);
    }

    #[test]
    fn a_large_count_brings_it_all_in_slices() {
        let mut f = Fixture::new();
        for n in 0..5000 {
            f.run(&format!("HSET h field:{n} {n}"));
        }
        f.pauses.take();
        let reply = f.run("HSCAN h 0 COUNT 4500");
        let seen = reply.matches("|field:").count();
        assert!((4500..4600).contains(&seen) && !reply.starts_with("*2|$1|0|"), "{seen}");
        assert!(f.pauses.take() >= 4500 / 512);
        let reply = f.run("HSCAN h 0 COUNT 9223372036854775807 MATCH field:1*");
        assert!(reply.starts_with("*2|$1|0|*2222|"), "{reply:.40}");
        assert_eq!(f.run("HSCAN h 0 COUNT 5000 FOO"), "-ERR syntax error|");
        assert_eq!(f.run("HSCAN none 0 COUNT 5000 FOO"), "*2|$1|0|*0|");
    }
}
