//! SSCAN, on the worker and on the lane.

use super::{read, send};
use crate::call::{Call, LaneCall};
use crate::families::keyspace_wide::{Found, SLICE_KEYS, ScanOptions, cursor};
use crate::parse::wrong_type;
use std::sync::atomic::Ordering;
use strand_keyspace::{Member, SetValue};

/// `SSCAN key cursor [MATCH pattern] [COUNT n]`. Reply: the next cursor (0 at the end) and members. A small set comes whole.
/// The options of a missing key are not looked at, as in redis-server.
pub(crate) fn sscan(call: &mut Call<'_, '_>) {
    let from = match cursor(call.args.at(2)) {
        Ok(from) => from,
        Err(text) => return call.reply.error(text),
    };
    let options = ScanOptions::parse(call.args.skip(3), false);
    read(call, |set: Option<&SetValue>, reply| {
        let mut found = Found::new(reply);
        let next = match (set, options) {
            (None, _) => 0,
            (Some(_), Err(text)) => return reply.error(text),
            (Some(set), Ok(options)) => {
                set.scan(from, options.count, &mut |member| see(&options, &mut found, member))
            }
        };
        found.send(reply, next);
    });
}

/// SSCAN with a large COUNT, or a pattern that takes long to match (slow lane): in slices, over a snapshot of the set, with
/// nothing held.
pub(crate) fn sscan_long(call: &mut LaneCall<'_>) {
    let from = match cursor(call.args.at(2)) {
        Ok(from) => from,
        Err(text) => return call.reply.error(text),
    };
    let options = ScanOptions::parse(call.args.skip(3), false);
    let key = call.keyspace.key(call.args.at(1));
    let mut txn = call.lock(&[key.hash]);
    txn.set_no_touch(call.no_touch);
    let set = txn.db(call.db).read::<SetValue>(&key).map(|set| set.cloned()).map_err(wrong_type);
    call.lookups = txn.lookups();
    drop(txn);
    let (set, options) = match (set, options) {
        (Err(text), _) | (Ok(Some(_)), Err(text)) => return call.reply.error(text),
        (Ok(None), _) => return Found::new(call.reply).send(call.reply, 0),
        (Ok(Some(set)), Ok(options)) => (set, options),
    };
    let go_on = || {
        (call.yield_now)();
        !call.cancel.load(Ordering::Relaxed)
    };
    let mut found = Found::asking(call.reply, &go_on);
    let (mut next, mut left) = (from, options.count);
    loop {
        let mut visited = 0;
        next = set.scan(next, left.min(SLICE_KEYS), &mut |member| {
            visited += 1;
            see(&options, &mut found, member);
        });
        left = left.saturating_sub(visited.max(1));
        call.pause();
        if next == 0 || left == 0 || call.cancelled() || found.is_over() {
            return found.send(call.reply, next);
        }
    }
}

/// Encodes a member that a scan came by, if it is one of those that are asked for.
fn see(options: &ScanOptions<'_>, found: &mut Found<'_>, member: Member<'_>) {
    if found.wants(&options.filter, member.bytes(&mut [0; 20])) {
        found.encode(|reply| send(reply, member));
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    #[test]
    fn small_sets_come_whole_and_large_ones_in_steps() {
        let mut f = Fixture::new();
        f.script(&[
            ("SADD s 2 1 13", ":3|"),
            ("SSCAN s 0", "*2|$1|0|*3|$1|1|$1|2|$2|13|"),
            ("SSCAN s 0 MATCH 1* COUNT 1", "*2|$1|0|*2|$1|1|$2|13|"),
            ("SSCAN s x", "-ERR invalid cursor|"),
            ("SSCAN s 0 FOO", "-ERR syntax error|"),
            ("SSCAN none 0 FOO", "*2|$1|0|*0|"),
        ]);
        for n in 0..1000 {
            f.run(&format!("SADD big member:{n}"));
        }
        for long in [false, true] {
            f.all_long = long;
            let (mut cursor, mut seen, mut calls) = (String::from("0"), std::collections::BTreeSet::new(), 0);
            while calls == 0 || cursor != "0" {
                let reply = f.run(&format!("SSCAN big {cursor} COUNT 50"));
                let parts: Vec<&str> = reply.split('|').collect();
                cursor = parts[2].into();
                seen.extend(parts.iter().filter(|p| p.starts_with("member:")).map(|p| p.to_string()));
                calls += 1;
                assert!(calls <= 1000, "no end");
            }
            assert!(seen.len() == 1000 && calls > 5, "{} in {calls}", seen.len());
        }
    }
}
