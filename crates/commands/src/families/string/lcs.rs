//! LCS: the longest common subsequence of two strings, by dynamic programming as in Redis.
//!
//! LCS runs on the lane, because its time is proportional to the product of both lengths. Its memory is less than
//! that: see [`Table`].

use crate::call::LaneCall;
use crate::errors;
use crate::parse::{self, string_of};
use std::sync::atomic::Ordering;
use strand_keyspace::Str;

const NOT_STRINGS: &str = "ERR The specified keys must contain string values";
const LEN_AND_IDX: &str = "ERR If you want both the length and indexes, please just use IDX.";
const TOO_LONG: &str = "ERR String too long for LCS";
const TOO_MUCH_MEMORY: &str = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
/// Bytes per cell of Redis's table. Redis limits the memory of that table, and so do we.
const CELL_BYTES: u64 = 4;
/// Number of rows per block. For the longest strings that the limit allows (11.5 KB each), the kept rows take 1 MiB
/// and the bits of one block another 1 MiB. Redis's table takes 512 MiB.
const BLOCK_ROWS: usize = 512;
/// Number of cells computed between two pauses: about 50 us.
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

/// A run of bytes that both strings have: its first and its last position in each string.
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
    let table = Table::new(a, b);
    if options.len {
        let len = table.len(call);
        len.into_iter().for_each(|len| call.reply.int(len.into()));
        return Ok(());
    }
    let Some((common, matches)) = table.walk(call) else { return Ok(()) };
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
        if reply.exceeds_limit() {
            break;
        }
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

/// Clones both strings. Clones share long strings, so the shards are free during the comparison.
fn both(call: &mut LaneCall<'_>) -> Result<[Str; 2], &'static str> {
    let keys = [call.keyspace.key(call.args.at(1)), call.keyspace.key(call.args.at(2))];
    let mut txn = call.lock(&[keys[0].hash, keys[1].hash]);
    let mut db = txn.db(call.db);
    let mut read = |i: usize| -> Result<Str, &'static str> {
        let found = string_of(db.get(&keys[i])).map_err(|_| NOT_STRINGS)?;
        Ok(found.map_or_else(|| Str::from_slice(b""), |s| s.to_str()))
    };
    let both = [read(0), read(1)];
    call.lookups = txn.lookups();
    let [a, b] = both;
    Ok([a?, b?])
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

/// Redis's table of the lengths for all pairs of prefixes. Only a part of it exists at a time: the last row before
/// each block of rows, and one block with one bit per cell. A row stands for a prefix of the longer string. The walk
/// back through the table needs the bits of each block once, so every row is computed twice.
struct Table<'s> {
    /// The longer string, which gives the rows. The other string gives the columns.
    long: &'s [u8],
    short: &'s [u8],
    /// True when the first string gives the columns.
    swapped: bool,
}

impl<'s> Table<'s> {
    fn new(a: &'s [u8], b: &'s [u8]) -> Table<'s> {
        let swapped = a.len() < b.len();
        let (long, short) = if swapped { (b, a) } else { (a, b) };
        Table { long, short, swapped }
    }
    fn first_row(&self) -> Vec<u32> {
        vec![0; self.short.len() + 1]
    }
    /// The length of the subsequence. `None` when nobody waits for the reply.
    fn len(&self, call: &LaneCall<'_>) -> Option<u32> {
        let mut row = self.first_row();
        for i in 0..self.long.len() {
            may_continue(call, i, row.len())?;
            next_row(self.long[i], self.short, &mut row);
        }
        row.last().copied()
    }
    /// The subsequence and its runs. The last run comes first, in the order in which Redis finds them.
    fn walk(&self, call: &LaneCall<'_>) -> Option<(Vec<u8>, Vec<Match>)> {
        let mut row = self.first_row();
        let mut before_blocks = Vec::with_capacity((self.long.len() / BLOCK_ROWS + 1) * row.len());
        for i in 0..self.long.len() {
            if i.is_multiple_of(BLOCK_ROWS) {
                before_blocks.extend_from_slice(&row);
            }
            may_continue(call, i, row.len())?;
            next_row(self.long[i], self.short, &mut row);
        }
        let mut path = Path::default();
        let (mut i, mut j) = (self.long.len(), self.short.len());
        while i > 0 && j > 0 {
            let block = (i - 1) / BLOCK_ROWS;
            let first = block * BLOCK_ROWS;
            let width = row.len();
            row.copy_from_slice(&before_blocks[block * width..][..width]);
            let up = self.block(call, first..i, &mut row)?;
            while i > first && j > 0 {
                if self.long[i - 1] == self.short[j - 1] {
                    (i, j) = (i - 1, j - 1);
                    path.record_match(self.long[i], if self.swapped { (j, i) } else { (i, j) });
                    continue;
                }
                path.in_run = false;
                let cell = (i - 1 - first) * self.short.len() + j - 1;
                match up[cell / 64] >> (cell % 64) & 1 == 1 {
                    true => i -= 1,
                    false => j -= 1,
                }
            }
        }
        path.common.reverse();
        Some((path.common, path.matches))
    }
    /// Computes the bits of a block of these rows. A bit is set where the walk back goes to the row before. `row`
    /// is the row before the block.
    fn block(&self, call: &LaneCall<'_>, rows: std::ops::Range<usize>, row: &mut [u32]) -> Option<Vec<u64>> {
        let width = self.short.len();
        let mut up = vec![0u64; (rows.len() * width).div_ceil(64)];
        let mut above = row.to_vec();
        for i in rows.clone() {
            may_continue(call, i, row.len())?;
            above.copy_from_slice(row);
            next_row(self.long[i], self.short, row);
            let from = (i - rows.start) * width;
            for j in 0..width {
                // If both lengths are equal, the second string gets shorter, as in Redis.
                let (above, left) = (above[j + 1], row[j]);
                let goes_up = if self.swapped { above >= left } else { above > left };
                up[(from + j) / 64] |= u64::from(goes_up) << ((from + j) % 64);
            }
        }
        Some(up)
    }
}

/// What the walk back through the table has found so far.
#[derive(Default)]
struct Path {
    common: Vec<u8>,
    matches: Vec<Match>,
    in_run: bool,
}

impl Path {
    /// Notes that both strings have `byte` at these positions.
    fn record_match(&mut self, byte: u8, (a, b): (usize, usize)) {
        self.common.push(byte);
        match self.matches.last_mut().filter(|_| self.in_run) {
            Some(m) => (m.a.0, m.b.0) = (a, b),
            None => self.matches.push(Match { a: (a, a), b: (b, b) }),
        }
        self.in_run = true;
    }
}

/// Call this before row `i`, which has `width` cells. Pauses now and then. Returns `None` when nobody waits for the
/// reply.
fn may_continue(call: &LaneCall<'_>, i: usize, width: usize) -> Option<()> {
    if i.is_multiple_of(PAUSE_CELLS.div_ceil(width)) {
        call.pause();
    }
    (!call.cancelled()).then_some(())
}

/// Computes the next row from `row`. It stands for a prefix that is longer by the byte `x`.
fn next_row(x: u8, columns: &[u8], row: &mut [u32]) {
    let mut diagonal = 0;
    for (j, y) in columns.iter().enumerate() {
        let above = row[j + 1];
        row[j + 1] = if x == *y { diagonal + 1 } else { above.max(row[j]) };
        diagonal = above;
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

    /// For comparison: computes the whole table and walks back through it, as Redis does.
    fn naive_lcs(a: &[u8], b: &[u8]) -> (Vec<u8>, Vec<[usize; 4]>) {
        let width = b.len() + 1;
        let mut cells = vec![0u32; (a.len() + 1) * width];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                cells[i * width + j] = match a[i - 1] == b[j - 1] {
                    true => cells[(i - 1) * width + j - 1] + 1,
                    false => cells[(i - 1) * width + j].max(cells[i * width + j - 1]),
                };
            }
        }
        let (mut i, mut j, mut path) = (a.len(), b.len(), Path::default());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                path.record_match(a[i], (i, j));
            } else {
                path.in_run = false;
                match cells[(i - 1) * width + j] > cells[i * width + j - 1] {
                    true => i -= 1,
                    false => j -= 1,
                }
            }
        }
        path.common.reverse();
        (path.common, path.matches.iter().map(|m| [m.a.0, m.a.1, m.b.0, m.b.1]).collect())
    }

    #[test]
    fn blocks_give_what_the_whole_table_gives() {
        let seed = 5;
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut f = Fixture::new();
        for round in 0..60 {
            let long = if round % 10 == 0 { 3 * BLOCK_ROWS } else { 40 };
            let mut text = |len| -> Vec<u8> { (0..rng.usize(0..=len)).map(|_| rng.u8(b'a'..b'd')).collect() };
            let (mut a, mut b) = (text(long), text(60));
            if round % 20 == 0 {
                std::mem::swap(&mut a, &mut b);
            }
            f.run_args(&[&b"MSET"[..], b"a", &a, b"b", &b]);
            let (common, matches) = naive_lcs(&a, &b);
            let text = String::from_utf8(common.clone()).expect("letters");
            assert_eq!(f.run("LCS a b"), format!("${}|{text}|", text.len()), "seed {seed}, round {round}");
            assert_eq!(f.run("LCS a b LEN"), format!(":{}|", text.len()), "seed {seed}, round {round}");
            let runs: String =
                matches.iter().map(|[a, b, c, d]| format!("*2|*2|:{a}|:{b}|*2|:{c}|:{d}|")).collect();
            let want = format!("*4|$7|matches|*{}|{runs}$3|len|:{}|", matches.len(), text.len());
            assert_eq!(f.run("LCS a b IDX"), want, "seed {seed}, round {round}");
        }
    }
}
