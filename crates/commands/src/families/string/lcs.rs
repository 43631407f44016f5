//! LCS: the longest common subsequence of two strings, by the plain dynamic programme that Redis uses.
//!
//! It runs on the slow lane: its time is the product of the two lengths.

use crate::call::LaneCall;
use crate::errors;
use crate::parse::{self, string_of};
use std::sync::atomic::Ordering;
use strand_keyspace::Str;

const NOT_STRINGS: &str = "ERR The specified keys must contain string values";
const LEN_AND_IDX: &str = "ERR If you want both the length and indexes, please just use IDX.";
const TOO_LONG: &str = "ERR String too long for LCS";
const TOO_MUCH_MEMORY: &str = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
const NO_MEMORY: &str = "ERR Insufficient memory, failed allocating transient memory for LCS";
/// Bytes of one cell of Redis's table: its memory bound is in these.
const CELL_BYTES: u64 = 4;
/// Cells between two pauses: some 50 us.
const PAUSE_CELLS: usize = 64 * 1024;

/// `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]`
pub(crate) fn lcs(call: &mut LaneCall<'_>) {
    if let Err(text) = run(call) {
        call.reply.error(text);
    }
}

#[derive(Default)]
struct Options {
    len: bool,
    idx: bool,
    match_bytes_min: i64,
    with_match_len: bool,
}

/// A run that both strings share: first and last position in each.
struct Match {
    a: (usize, usize),
    b: (usize, usize),
}

fn run(call: &mut LaneCall<'_>) -> Result<(), &'static str> {
    let [a, b] = both(call)?;
    let options = options(call)?;
    let (mut a_buffer, mut b_buffer) = ([0; 20], [0; 20]);
    let (a, b) = (a.bytes(&mut a_buffer), b.bytes(&mut b_buffer));
    if a.len() >= u32::MAX as usize - 1 || b.len() >= u32::MAX as usize - 1 {
        return Err(TOO_LONG);
    }
    let memory_max = call.keyspace.settings().proto_max_bulk_len.load(Ordering::Relaxed);
    if u128::from(CELL_BYTES) * (a.len() as u128 + 1) * (b.len() as u128 + 1) > u128::from(memory_max) {
        return Err(TOO_MUCH_MEMORY);
    }
    if options.len {
        let len = last_row(call, a, b);
        call.reply.int(len.into());
        return Ok(());
    }
    let table = Table::fill(call, a, b).ok_or(NO_MEMORY)?;
    let (common, matches) = table.walk(a, b);
    if !options.idx {
        call.reply.bulk(&common);
        return Ok(());
    }
    let shown: Vec<&Match> =
        matches.iter().filter(|m| (m.a.1 - m.a.0 + 1) as u64 >= options.match_bytes_min as u64).collect();
    let reply = &mut *call.reply;
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(shown.len());
    for m in shown {
        reply.array(if options.with_match_len { 3 } else { 2 });
        for (first, last) in [m.a, m.b] {
            reply.array(2);
            reply.int(first as i64);
            reply.int(last as i64);
        }
        if options.with_match_len {
            reply.int((m.a.1 - m.a.0 + 1) as i64);
        }
    }
    reply.bulk(b"len");
    reply.int(common.len() as i64);
    Ok(())
}

/// Both strings; a long one is shared, not copied, so that the shards are free while it is compared.
fn both(call: &LaneCall<'_>) -> Result<[Str; 2], &'static str> {
    let keys = [call.keyspace.key(call.args.at(1)), call.keyspace.key(call.args.at(2))];
    let mut locked = call.lock(&[keys[0].hash, keys[1].hash]);
    let mut db = locked.db(call.db);
    let mut read = |i: usize| -> Result<Str, &'static str> {
        let found = string_of(db.get(&keys[i])).map_err(|_| NOT_STRINGS)?;
        Ok(found.map_or_else(|| Str::from_slice(b""), |s| s.to_str()))
    };
    Ok([read(0)?, read(1)?])
}

fn options(call: &LaneCall<'_>) -> Result<Options, &'static str> {
    let (args, mut options) = (call.args, Options::default());
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "IDX") {
            options.idx = true;
        } else if args.is(at, "LEN") {
            options.len = true;
        } else if args.is(at, "WITHMATCHLEN") {
            options.with_match_len = true;
        } else if args.is(at, "MINMATCHLEN") && at + 1 < args.len() {
            options.match_bytes_min = parse::integer(args.at(at + 1))?.max(0);
            at += 1;
        } else {
            return Err(errors::SYNTAX);
        }
        at += 1;
    }
    if options.idx && options.len { Err(LEN_AND_IDX) } else { Ok(options) }
}

/// Only the length: two rows are enough.
fn last_row(call: &LaneCall<'_>, a: &[u8], b: &[u8]) -> u32 {
    let mut row = vec![0u32; b.len() + 1];
    for (i, x) in a.iter().enumerate() {
        if !goes_on(call, i, row.len()) {
            break;
        }
        next_row(*x, b, &mut row);
    }
    row[b.len()]
}

/// Before row `i`, whose length is `width`: lets others go on now and then; false when nobody waits for the answer.
fn goes_on(call: &LaneCall<'_>, i: usize, width: usize) -> bool {
    if i.is_multiple_of(PAUSE_CELLS.div_ceil(width)) {
        call.pause();
    }
    !call.cancelled()
}

/// Turns the row of one prefix of `a` into the row of the prefix that is longer by `x`.
fn next_row(x: u8, b: &[u8], row: &mut [u32]) {
    let mut diagonal = 0;
    for (j, y) in b.iter().enumerate() {
        let above = row[j + 1];
        row[j + 1] = if x == *y { diagonal + 1 } else { above.max(row[j]) };
        diagonal = above;
    }
}

/// Lengths for every pair of prefixes.
struct Table {
    cells: Vec<u32>,
    width: usize,
}

impl Table {
    /// `None` when there is no memory for it, or nobody waits.
    fn fill(call: &LaneCall<'_>, a: &[u8], b: &[u8]) -> Option<Table> {
        let width = b.len() + 1;
        let mut cells: Vec<u32> = Vec::new();
        cells.try_reserve_exact((a.len() + 1) * width).ok()?;
        cells.resize(width, 0);
        for (i, x) in a.iter().enumerate() {
            if !goes_on(call, i, width) {
                return None;
            }
            cells.extend_from_within(i * width..);
            next_row(*x, b, &mut cells[(i + 1) * width..]);
        }
        Some(Table { cells, width })
    }
    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }
    /// Walks back from the end: the subsequence, and the runs it is made of, last first.
    fn walk(&self, a: &[u8], b: &[u8]) -> (Vec<u8>, Vec<Match>) {
        let (mut i, mut j) = (a.len(), b.len());
        let mut common = Vec::with_capacity(self.at(i, j) as usize);
        let mut matches: Vec<Match> = Vec::new();
        let mut in_run = false;
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                common.push(a[i]);
                match matches.last_mut().filter(|_| in_run) {
                    Some(m) => (m.a.0, m.b.0) = (i, j),
                    None => matches.push(Match { a: (i, i), b: (j, j) }),
                }
                in_run = true;
            } else {
                in_run = false;
                if self.at(i - 1, j) > self.at(i, j - 1) {
                    i -= 1;
                } else {
                    j -= 1;
                }
            }
        }
        common.reverse();
        (common, matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn finds_the_text_the_length_and_the_runs() {
        let mut f = Fixture::new();
        f.run("MSET k1 ohmytext k2 mynewtext n 123");
        f.script(&[
            ("LCS k1 k2", "$6|mytext|"),
            ("LCS k1 k2 LEN", ":6|"),
            ("LCS k1 none", "$0||"),
            ("LCS none none LEN", ":0|"),
            ("LCS n n", "$3|123|"),
            ("LCS k1 k2 IDX", "*4|$7|matches|*2|*2|*2|:4|:7|*2|:5|:8|*2|*2|:2|:3|*2|:0|:1|$3|len|:6|"),
            (
                "LCS k1 k2 IDX MINMATCHLEN 4 WITHMATCHLEN",
                "*4|$7|matches|*1|*3|*2|:4|:7|*2|:5|:8|:4|$3|len|:6|",
            ),
            (
                "LCS k1 k2 IDX MINMATCHLEN -4",
                "*4|$7|matches|*2|*2|*2|:4|:7|*2|:5|:8|*2|*2|:2|:3|*2|:0|:1|$3|len|:6|",
            ),
            ("LCS k1 none IDX", "*4|$7|matches|*0|$3|len|:0|"),
        ]);
        f.protocol = strand_wire::reply::Protocol::Resp3;
        f.script(&[("LCS k1 none IDX", "%2|$7|matches|*0|$3|len|:0|")]);
    }

    #[test]
    fn errors_in_redis_order() {
        let mut f = Fixture::new();
        f.run("MSET a abc b abd");
        f.run("HSET h f v");
        for (line, text) in [
            ("LCS a h FOO", NOT_STRINGS),
            ("LCS a b FOO", errors::SYNTAX),
            ("LCS a b MINMATCHLEN", errors::SYNTAX),
            ("LCS a b MINMATCHLEN x", errors::NOT_AN_INTEGER),
            ("LCS a b LEN IDX", LEN_AND_IDX),
        ] {
            assert_eq!(f.run(line), format!("-{text}|"), "{line}");
        }
        f.keyspace.settings().proto_max_bulk_len.store(63, Ordering::Relaxed);
        assert_eq!(f.run("LCS a b LEN"), format!("-{TOO_MUCH_MEMORY}|"));
        f.keyspace.settings().proto_max_bulk_len.store(64, Ordering::Relaxed);
        assert_eq!(f.run("LCS a b LEN"), ":2|");
    }
}
