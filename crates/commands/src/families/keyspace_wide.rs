//! Commands on a whole database: KEYS, SCAN, RANDOMKEY, DBSIZE, FLUSHDB, FLUSHALL, SWAPDB.
//!
//! KEYS, the flushes and a SCAN with a large COUNT run on the lane, in slices.

use super::listing::{KeySource, Listing, scan_arguments};
use super::scan::{CollectedElements, Filter};
use crate::call::{Call, LaneCall};
use crate::parse;
use crate::{errors, run};
use std::sync::atomic::{AtomicBool, Ordering};
use strand_keyspace::{Keyspace, RecordRef, ScanCursor};
use strand_wire::args::Args;

/// `KEYS pattern`, on the lane. Reply: the matching keys. Other commands run between two slices, so a key that is
/// written meanwhile may or may not be in the reply.
pub(crate) fn keys(call: &mut LaneCall<'_>) {
    Listing::keys(call.args).run(&mut Database::of(call), call.reply);
}

/// KEYS inside EXEC.
pub(crate) fn keys_in_exec(call: &mut Call<'_, '_>) {
    let filter = Filter::new(call.args.at(1));
    let mut found = CollectedElements::new(call.reply);
    call.txn.scan(call.db, 0, usize::MAX, &mut |record| {
        if found.wants(&filter, record.key()) {
            found.encode(|reply| reply.bulk(record.key()));
        }
    });
    found.send_array(call.reply);
}

/// `SCAN cursor [MATCH pattern] [COUNT n] [TYPE name]`. Reply: the next cursor (0 at the end) and some keys. A key that
/// exists from the first call to the last is returned at least once.
pub(crate) fn scan(call: &mut Call<'_, '_>) {
    let (from, options) = match scan_arguments(call.args) {
        Ok(parsed) => parsed,
        Err(text) => return call.reply.error(text),
    };
    let mut found = CollectedElements::new(call.reply);
    let next = call.txn.scan(call.db, from, options.count, &mut |record| {
        if options.is_of_type(&record) && found.wants(&options.filter, record.key()) {
            found.encode_bytes(record.key_bytes());
        }
    });
    found.send(call.reply, next);
}

/// SCAN on the lane: with a large COUNT, or with a pattern that takes long to match.
pub(crate) fn scan_long(call: &mut LaneCall<'_>) {
    match Listing::scan(call.args) {
        Ok(listing) => listing.run(&mut Database::of(call), call.reply),
        Err(text) => call.reply.error(text),
    }
}

/// The keys of a call's database.
struct Database<'a> {
    keyspace: &'a Keyspace,
    db: usize,
    now_ms: i64,
    cancel: &'a AtomicBool,
    yield_now: &'a dyn Fn(),
}

impl<'a> Database<'a> {
    fn of(call: &LaneCall<'a>) -> Database<'a> {
        let LaneCall { keyspace, db, now_ms, cancel, yield_now, .. } = *call;
        Database { keyspace, db, now_ms, cancel, yield_now }
    }
}

impl KeySource for Database<'_> {
    fn step(
        &mut self,
        cursor: ScanCursor,
        count: usize,
        visit: &mut dyn FnMut(&RecordRef<'_>) -> bool,
    ) -> Option<ScanCursor> {
        let is_cancelled = self.cancel.load(Ordering::Relaxed);
        let visit = &mut |record: RecordRef<'_>| _ = visit(&record);
        (!is_cancelled).then(|| self.keyspace.scan(self.db, cursor, count, self.now_ms, visit))
    }
    fn may_continue(&self) -> bool {
        (self.yield_now)();
        !self.cancel.load(Ordering::Relaxed)
    }
}

/// `RANDOMKEY`. Reply: a key, or null in an empty database.
pub(crate) fn randomkey(call: &mut Call<'_, '_>) {
    match call.txn.random_key(call.db, call.rng) {
        Some(key) => call.reply.bulk(&key),
        None => call.reply.null(),
    }
}

/// `DBSIZE`. Reply: the number of keys, including expired ones that are not removed yet.
pub(crate) fn dbsize(call: &mut Call<'_, '_>) {
    call.reply.int(call.txn.len(call.db) as i64);
}

/// `FLUSHDB [ASYNC|SYNC]`, always on the lane: empties the database. Reply: OK.
pub(crate) fn flushdb(call: &mut LaneCall<'_>) {
    flush(call, Some(call.db));
}

/// `FLUSHALL [ASYNC|SYNC]`, always on the lane: empties every database at one moment. Reply: OK.
pub(crate) fn flushall(call: &mut LaneCall<'_>) {
    flush(call, None);
}

/// FLUSHDB inside EXEC.
pub(crate) fn flushdb_in_exec(call: &mut Call<'_, '_>) {
    let db = call.db;
    flush_in_exec(call, [db]);
}

/// FLUSHALL inside EXEC.
pub(crate) fn flushall_in_exec(call: &mut Call<'_, '_>) {
    let all = call.txn.in_use();
    flush_in_exec(call, all);
}

fn flush_in_exec(call: &mut Call<'_, '_>, dbs: impl IntoIterator<Item = usize>) {
    if !are_flush_options(call.args) {
        return call.reply.error(errors::SYNTAX);
    }
    call.txn.flush_later(dbs);
    call.reply.ok();
}

fn are_flush_options(args: Args<'_>) -> bool {
    args.len() == 1 || (args.len() == 2 && (args.is(1, "ASYNC") || args.is(1, "SYNC")))
}

/// Number of bytes of tables that are freed between two pauses: about 50 us.
const FREED_BYTES_PER_PAUSE: usize = 128 * 1024;

/// Empties one database, or all (`None`).
fn flush(call: &mut LaneCall<'_>, only: Option<usize>) {
    if !are_flush_options(call.args) {
        return call.reply.error(errors::SYNTAX);
    }
    let mut txn = call.hold_every_shard();
    let dbs = only.map_or_else(|| txn.in_use(), |db| [db].into());
    let flushed = txn.flush_each(dbs);
    run::end(&mut txn, call.db, call.args);
    drop(txn);
    let mut freed_bytes = 0;
    for mut flushed in flushed {
        while let Some(bytes) = flushed.free_one() {
            freed_bytes += bytes;
            // With a pause after each of 512 empty tables, FLUSHALL took up to a second beside busy programs.
            if freed_bytes >= FREED_BYTES_PER_PAUSE {
                freed_bytes = 0;
                call.pause();
            }
        }
    }
    call.reply.ok();
}

/// `SWAPDB index1 index2`, on the lane: swaps the contents of two databases, at one moment for everybody. Reply: OK.
pub(crate) fn swapdb(call: &mut LaneCall<'_>) {
    match swapped(call.args, call.keyspace) {
        Ok((a, b)) => {
            if a != b {
                let mut txn = call.hold_every_shard();
                txn.swap(a, b);
                run::end(&mut txn, call.db, call.args);
            }
            call.reply.ok();
        }
        Err(text) => call.reply.error(text),
    }
}

/// SWAPDB inside EXEC.
pub(crate) fn swapdb_in_exec(call: &mut Call<'_, '_>) {
    match swapped(call.args, call.txn.keyspace()) {
        Ok((a, b)) => {
            call.txn.swap(a, b);
            call.reply.ok();
        }
        Err(text) => call.reply.error(text),
    }
}

/// The two databases of a SWAPDB.
fn swapped(args: Args<'_>, keyspace: &Keyspace) -> Result<(usize, usize), &'static str> {
    let index = |at: usize, text: &'static str| {
        let n = parse::integer(args.at(at)).ok().and_then(|n| i32::try_from(n).ok());
        n.ok_or(text)
    };
    let (a, b) = (index(1, "ERR invalid first DB index")?, index(2, "ERR invalid second DB index")?);
    let known = |i: i32| usize::try_from(i).ok().filter(|i| *i < keyspace.databases());
    known(a).zip(known(b)).ok_or(errors::DB_INDEX_OUT_OF_RANGE)
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;
    use std::collections::BTreeSet;
    use std::sync::atomic::Ordering;

    /// The keys in a reply, sorted. All keys of these tests begin with `k`.
    fn keys_in(reply: &str) -> BTreeSet<String> {
        reply.split('|').filter(|p| p.starts_with('k')).map(String::from).collect()
    }

    fn fixture_with(keys: usize) -> Fixture {
        let mut f = Fixture::new();
        for n in 0..keys {
            f.run(&format!("SET k{n} v"));
        }
        f
    }

    #[test]
    fn keys_returns_matching_keys_that_have_not_expired() {
        let mut f = fixture_with(30);
        f.script(&[
            ("KEYS k7", "*1|$2|k7|"),
            ("KEYS x*", "*0|"),
            ("HSET k7 f v", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
        assert_eq!(keys_in(&f.run("KEYS k[12]?")).len(), 20);
        assert_eq!(keys_in(&f.run("KEYS *")).len(), 30);
        f.script(&[("EXPIRE k7 10", ":1|")]);
        f.advance_ms(10_000);
        f.script(&[("KEYS k7", "*0|")]);
        assert_eq!(keys_in(&f.run("KEYS *")).len(), 29);
        f.db = 1;
        f.script(&[("KEYS *", "*0|"), ("SET '' v", "+OK|"), ("KEYS *", "*1|$0||"), ("KEYS **", "*0|")]);
        f.cancel.store(true, Ordering::Relaxed);
        f.script(&[("KEYS *", "*0|")]);
    }

    #[test]
    fn expensive_patterns_are_matched_in_parts() {
        let mut f = fixture_with(30);
        let long = format!("k{}", "a".repeat(50_000));
        f.run(&format!("SET {long} v"));
        let (fits, fits_not) = (format!("*{}*", "a".repeat(100)), format!("*{}b*", "a".repeat(100)));
        for command in ["KEYS", "SCAN 0 COUNT 5000 MATCH"] {
            for (pattern, keys) in [(&fits, vec![long.clone()]), (&fits_not, vec![])] {
                f.pauses.take();
                let reply = f.run(&format!("{command} {pattern}"));
                assert_eq!(keys_in(&reply).into_iter().collect::<Vec<_>>(), keys, "{command}");
            }
            // The pattern is tried at 50,000 positions, and at each of them about 100 elements are tried.
            let pauses = f.pauses.take();
            assert!(pauses > 100, "{command}: {pauses}");
        }
        // A long pattern that is easy to match.
        let longest = format!("*{}*", "[a]".repeat(crate::families::scan::PATTERN_BYTES_LOCKED_MAX));
        assert_eq!(keys_in(&f.run(&format!("KEYS {longest}"))).len(), 1);
    }

    #[test]
    fn a_scan_shows_every_key() {
        let mut f = fixture_with(500);
        let (mut cursor, mut seen, mut calls) = (String::from("0"), BTreeSet::new(), 0);
        loop {
            let reply = f.run(&format!("SCAN {cursor} COUNT 7"));
            cursor = reply.split('|').nth(2).expect("a cursor").into();
            seen.extend(keys_in(&reply));
            calls += 1;
            assert!(calls <= 1000, "no end");
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen.len(), 500);
    }

    #[test]
    fn scan_returns_all_keys_that_exist_throughout() {
        for (start, per_call) in [(0, 40), (3_000, -60)] {
            // The keys k0 to k99 stay. The number of other keys grows or shrinks by `per_call` with each call.
            let mut f = fixture_with(100);
            let mut others = start;
            (0..others).for_each(|n| drop(f.run(&format!("SET other{n} v"))));
            let (mut cursor, mut seen, mut calls) = (String::from("0"), BTreeSet::new(), 0);
            loop {
                let reply = f.run(&format!("SCAN {cursor} COUNT 20"));
                cursor = reply.split('|').nth(2).expect("a cursor").into();
                seen.extend(keys_in(&reply));
                for _ in 0..i32::abs(per_call) {
                    if per_call > 0 {
                        f.run(&format!("SET other{others} v"));
                        others += 1;
                    } else if others > 0 {
                        others -= 1;
                        f.run(&format!("DEL other{others}"));
                    }
                }
                calls += 1;
                assert!(calls <= 1000, "no end");
                if cursor == "0" {
                    break;
                }
            }
            assert_eq!(seen.len(), 100, "a key was missed");
        }
    }

    #[test]
    fn scan_filters_by_pattern_and_type() {
        let mut f = fixture_with(20);
        f.run("HSET khash f v");
        let all =
            |f: &mut Fixture, options: &str| keys_in(&f.run(&format!("SCAN 0 COUNT 10000 {options}"))).len();
        assert_eq!(all(&mut f, ""), 21);
        assert_eq!(all(&mut f, "MATCH k1?"), 10);
        assert_eq!(all(&mut f, "match x match *"), 21);
        assert_eq!(all(&mut f, "TYPE HASH"), 1);
        assert_eq!(all(&mut f, "type string MATCH k1"), 1);
        assert_eq!(all(&mut f, "TYPE list"), 0);
        f.script(&[("PEXPIRE k1 5", ":1|")]);
        f.advance_ms(5);
        assert_eq!(all(&mut f, "MATCH k1"), 0);
        f.script(&[
            ("SCAN x FOO", "-ERR invalid cursor|"),
            ("SCAN 0 FOO", "-ERR syntax error|"),
            ("SCAN 0 FOO BAR", "-ERR syntax error|"),
            ("SCAN 0 COUNT", "-ERR syntax error|"),
            ("SCAN 0 COUNT 0", "-ERR syntax error|"),
            ("SCAN 0 COUNT -1 FOO", "-ERR syntax error|"),
            ("SCAN 0 COUNT x FOO", "-ERR value is not an integer or out of range|"),
            ("SCAN", "-ERR wrong number of arguments for 'scan' command|"),
        ]);
    }

    #[test]
    fn sizes_flushes_and_swaps() {
        let mut f = fixture_with(5);
        assert_eq!(keys_in(&f.run("RANDOMKEY")).len(), 1);
        f.script(&[
            ("DBSIZE", ":5|"),
            ("SWAPDB 0 1", "+OK|"),
            ("DBSIZE", ":0|"),
            ("RANDOMKEY", "$-1|"),
            ("SWAPDB 1 1", "+OK|"),
            ("SET a 1", "+OK|"),
            ("FLUSHDB foo", "-ERR syntax error|"),
            ("FLUSHDB ASYNC SYNC", "-ERR syntax error|"),
            ("FLUSHDB async", "+OK|"),
            ("DBSIZE", ":0|"),
            ("SWAPDB x y", "-ERR invalid first DB index|"),
            ("SWAPDB 2147483648 0", "-ERR invalid first DB index|"),
            ("SWAPDB 99 y", "-ERR invalid second DB index|"),
            ("SWAPDB 0 16", "-ERR DB index is out of range|"),
            ("SWAPDB -1 0", "-ERR DB index is out of range|"),
        ]);
        f.db = 1;
        f.script(&[("DBSIZE", ":5|"), ("FLUSHALL SYNC", "+OK|"), ("DBSIZE", ":0|")]);
    }
}
