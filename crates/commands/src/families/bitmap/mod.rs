//! Strings as bitmaps: SETBIT, GETBIT, BITCOUNT and BITPOS. BITFIELD is in [`field`], and BITOP in [`combine`].
//!
//! [`strand_keyspace::types::bits`] computes on bytes. This module parses arguments by redis-server's rules, and
//! extends strings.

mod combine;
mod field;

pub(crate) use combine::{bitop, bitop_long};
pub(crate) use field::{bitfield, bitfield_ro, written_by_bitfield};

use crate::call::Call;
use crate::cost::{ELEMENT_BYTES, LONG_ELEMENTS};
use crate::errors;
use crate::parse::{self, string_of, wrong_type};
use std::ops::Range;
use strand_chain::Blob;
use strand_keyspace::types::bits;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Db, Key, StrRef, ValueRef};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

const BIT_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const BIT_VALUE: &str = "ERR bit is not an integer or out of range";
const BIT_ARGUMENT: &str = "ERR The bit argument must be 1 or 0.";

/// `SETBIT key offset value`. Reply: the former bit.
pub(crate) fn setbit(call: &mut Call<'_, '_>) {
    match set_bit(call) {
        Ok(before) => call.reply.int(before.into()),
        Err(text) => call.reply.error(text),
    }
}

fn set_bit(call: &mut Call<'_, '_>) -> Result<bool, &'static str> {
    let offset = bit_offset(call.args.at(2), call.txn.string_bytes_max())?;
    let bit = match parse_int(call.args.at(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(BIT_VALUE),
    };
    let mut db = call.txn.db(call.db);
    let key = &call.keys[0];
    let is_there = |bytes: &[u8]| (bits::get(bytes, offset) == bit).then_some(bit);
    edit(&mut db, key, bytes_to(offset), is_there, |bytes| bits::set(bytes, offset, bit))
}

/// The range of bytes that SETBIT writes.
pub(crate) fn written_by_setbit(args: Args<'_>) -> Range<usize> {
    // An argument that is no offset gives an error, which is cheap.
    let offset = parse_int(args.at(2)).and_then(|offset| u64::try_from(offset).ok()).unwrap_or(0);
    let end = bytes_to(offset);
    end - 1..end
}

/// `GETBIT key offset`. Reply: the bit, 0 beyond the end.
pub(crate) fn getbit(call: &mut Call<'_, '_>) {
    let offset = match bit_offset(call.args.at(2), call.txn.string_bytes_max()) {
        Ok(offset) => offset,
        Err(text) => return call.reply.error(text),
    };
    let mut db = call.txn.db(call.db);
    match string_of(db.get(&call.keys[0])) {
        Ok(s) => {
            let bit = s.is_some_and(|s| bits::get(s.bytes(&mut [0; 20]), offset));
            call.reply.int(bit.into());
        }
        Err(text) => call.reply.error(text),
    }
}

/// `BITCOUNT key [start end [BYTE | BIT]]`. Reply: the number of 1 bits.
pub(crate) fn bitcount(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.db);
    // When the key is missing, errors in the arguments are not reported, as in redis-server.
    let counted = match string_of(db.get(&call.keys[0])) {
        Ok(None) => Ok(0),
        Ok(Some(s)) => {
            let mut buffer = [0; 20];
            let bytes = s.bytes(&mut buffer);
            let count =
                |range| pieces(range, call.reply).map(|piece| bits::count_within(bytes, piece)).sum::<u64>();
            count_range(call.args, bytes.len()).map(count)
        }
        Err(text) => Err(text),
    };
    match counted {
        Ok(count) => call.reply.int(count as i64),
        Err(text) => call.reply.error(text),
    }
}

/// The work of BITCOUNT, in elements: the bytes of the range.
pub(crate) fn bitcount_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    let ValueRef::Str(s) = value else { return 0 };
    // A call with an error is cheap.
    count_range(args, s.len()).map_or(0, |range| bit_elements(&range))
}
/// The work of BITPOS: the bytes of the range, or only those before the first such bit, if it is near the start.
pub(crate) fn bitpos_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    const LOOKED_AHEAD_BITS: u64 = 8 * 16 * 1024;
    let ValueRef::Str(s) = value else { return 0 };
    let mut buffer = [0; 20];
    let bytes = s.bytes(&mut buffer);
    let (Ok(bit), Ok(range)) = (wanted_bit(args), position_range(args, bytes.len())) else { return 0 };
    let all = bit_elements(&range);
    if all <= LONG_ELEMENTS {
        return all;
    }
    let near = range.start..range.start + LOOKED_AHEAD_BITS;
    bits::find(bytes, bit, near).map_or(all, |at| bit_elements(&(range.start..at)))
}
fn bit_elements(range: &Range<u64>) -> usize {
    let bytes = (range.end - range.start).div_ceil(8);
    usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(ELEMENT_BYTES)
}

/// The range of bits that BITCOUNT counts in a string of `len` bytes.
fn count_range(args: Args<'_>, len: usize) -> Result<Range<u64>, &'static str> {
    match args.len() {
        2 => return Ok(0..len as u64 * 8),
        4 | 5 => {}
        _ => return Err(errors::SYNTAX),
    }
    let (start, end) = (parse::integer(args.at(2))?, parse::integer(args.at(3))?);
    if start < 0 && end < 0 && start > end {
        return Ok(0..0);
    }
    let unit = if args.len() == 5 { unit(args, 4)? } else { 8 };
    Ok(bits_between(start, end, len, unit))
}

/// `BITPOS key bit [start [end [BYTE | BIT]]]`. Reply: the position of the first bit that equals `bit`, or -1.
/// Without `end`, the string counts as followed by zeros.
pub(crate) fn bitpos(call: &mut Call<'_, '_>) {
    match position(call) {
        Ok(at) => call.reply.int(at),
        Err(text) => call.reply.error(text),
    }
}

fn position(call: &mut Call<'_, '_>) -> Result<i64, &'static str> {
    let args = call.args;
    let bit = wanted_bit(args)?;
    let mut db = call.txn.db(call.db);
    let Some(s) = string_of(db.get(&call.keys[0]))? else {
        return Ok(if bit { -1 } else { 0 });
    };
    let mut buffer = [0; 20];
    let bytes = s.bytes(&mut buffer);
    let range = position_range(args, bytes.len())?;
    let all = range.end;
    let is_open = args.len() < 5 && !bit && !range.is_empty();
    let found = pieces(range, call.reply).find_map(|piece| bits::find(bytes, bit, piece));
    Ok(found.map_or(if is_open { all as i64 } else { -1 }, |at| at as i64))
}

/// The bit that BITPOS looks for.
fn wanted_bit(args: Args<'_>) -> Result<bool, &'static str> {
    match parse::integer(args.at(2))? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(BIT_ARGUMENT),
    }
}

/// The range of bits that BITPOS searches in a string of `len` bytes.
fn position_range(args: Args<'_>, len: usize) -> Result<Range<u64>, &'static str> {
    let (start, end, unit) = match args.len() {
        3 => (0, -1, 8),
        4 => (parse::integer(args.at(3))?, -1, 8),
        5 => (parse::integer(args.at(3))?, parse::integer(args.at(4))?, 8),
        6 => {
            let start = parse::integer(args.at(3))?;
            let unit = unit(args, 5)?;
            (start, parse::integer(args.at(4))?, unit)
        }
        _ => return Err(errors::SYNTAX),
    };
    Ok(bits_between(start, end, len, unit))
}

/// Divides a range of bits into pieces of about 50 us. On the lane, pauses between two pieces. Ends early when
/// nobody waits for the reply any more.
fn pieces(range: Range<u64>, reply: &mut Reply<'_>) -> impl Iterator<Item = Range<u64>> {
    const PIECE_BITS: u64 = 8 * 512 * 1024;
    let mut from = range.start;
    std::iter::from_fn(move || {
        if from >= range.end || (from > range.start && !reply.pause()) {
            return None;
        }
        let piece = from..range.end.min(from + PIECE_BITS);
        from = piece.end;
        Some(piece)
    })
}

/// Number of bits per unit (BYTE or BIT) that the argument names.
fn unit(args: Args<'_>, at: usize) -> Result<i64, &'static str> {
    if args.is(at, "BIT") {
        Ok(1)
    } else if args.is(at, "BYTE") {
        Ok(8)
    } else {
        Err(errors::SYNTAX)
    }
}

/// The bits from `start` to `end`, both included, limited to a string of `len` bytes. `start` and `end` are in
/// units of `unit` bits, and count from the end of the string when negative.
fn bits_between(start: i64, end: i64, len: usize, unit: i64) -> Range<u64> {
    let total = len as i64 * 8 / unit;
    let absolute = |i: i64| if i < 0 { i.saturating_add(total).max(0) } else { i };
    let (start, end) = (absolute(start), absolute(end).min(total - 1));
    if start > end { 0..0 } else { (start * unit) as u64..((end + 1) * unit) as u64 }
}

/// Parses an offset in bits. Refuses an offset beyond a string of `bytes_max` bytes.
fn bit_offset(bytes: &[u8], bytes_max: u64) -> Result<u64, &'static str> {
    let offset = parse_int(bytes).and_then(|offset| u64::try_from(offset).ok());
    offset.filter(|offset| is_within(*offset, bytes_max)).ok_or(BIT_OFFSET)
}
/// True when a string of `bytes_max` bytes has this bit.
fn is_within(offset: u64, bytes_max: u64) -> bool {
    offset / 8 < bytes_max
}
/// Length in bytes of a string whose last bit is this one.
fn bytes_to(offset: u64) -> usize {
    (offset / 8) as usize + 1
}

/// Why [`edit`] has not edited a string.
enum Unedited<R> {
    /// The edit changes nothing. This is its result.
    Unchanged(R),
    Failed(&'static str),
}

/// Lets `change` edit the bytes of the string at `key`. Zeros are appended first if the string has fewer than `len`
/// bytes. The encoding becomes `raw`, whatever the length. As in redis-server, an edit that changes no bit is no change
/// of the key: when the string is long enough, `unchanged` returns the result of such an edit.
fn edit<R>(
    db: &mut Db<'_, '_>,
    key: &Key<'_>,
    len: usize,
    unchanged: impl FnOnce(&[u8]) -> Option<R>,
    change: impl FnOnce(&mut [u8]) -> R,
) -> Result<R, &'static str> {
    let mut change = Some(change);
    let mut once = |blob: &mut Blob| (change.take().expect("called once"))(blob.make_mut());
    let edited = db.edit_str(key, |blob| {
        if blob.len() < len {
            blob.try_resize(len, 0).map_err(|_| Unedited::Failed(errors::OUT_OF_MEMORY))?;
        } else if let Some(result) = unchanged(blob) {
            return Err(Unedited::Unchanged(result));
        }
        Ok(once(blob))
    });
    match edited.map_err(wrong_type)? {
        Some(Ok(result)) => return Ok(result),
        Some(Err(Unedited::Unchanged(result))) => {
            db.make_raw(key);
            return Ok(result);
        }
        Some(Err(Unedited::Failed(text))) => return Err(text),
        None => {}
    }
    let mut blob = Blob::try_zeroed(len).map_err(|_| errors::OUT_OF_MEMORY)?;
    let result = once(&mut blob);
    db.set_str(key, StrRef::Blob { blob: &blob, edited: true }, None);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use crate::errors;
    use crate::fixture::Fixture;

    const NO_OFFSET: &str = "-ERR bit offset is not an integer or out of range|";
    const NO_BIT: &str = "-ERR bit is not an integer or out of range|";

    #[test]
    fn bits_are_set_and_read() {
        let mut f = Fixture::new();
        f.script(&[
            ("SETBIT a 7 1", ":0|"),
            ("SETBIT a 7 1", ":1|"),
            ("GET a", "$1|\u{1}|"),
            ("OBJECT ENCODING a", "$3|raw|"),
            ("SETBIT a 20 0", ":0|"),
            ("STRLEN a", ":3|"),
            ("GETBIT a 7", ":1|"),
            ("GETBIT a 8", ":0|"),
            ("GETBIT a 4294967295", ":0|"),
            ("GETBIT a 4294967296", NO_OFFSET),
            ("GETBIT none 5", ":0|"),
            ("SETBIT a -1 1", NO_OFFSET),
            ("SETBIT a x 1", NO_OFFSET),
            ("SETBIT a 4294967296 1", NO_OFFSET),
            ("SETBIT a 0 2", NO_BIT),
            ("SETBIT a 0 x", NO_BIT),
            ("SET n 12 PX 500", "+OK|"),
            ("GETBIT n 2", ":1|"),
            ("SETBIT n 6 0", ":0|"),
            ("OBJECT ENCODING n", "$3|raw|"),
            ("INCR n", ":13|"),
            ("PTTL n", ":500|"),
        ]);
    }

    #[test]
    fn bits_are_counted_and_found() {
        let mut f = Fixture::new();
        f.script(&[
            ("SET a foobar", "+OK|"),
            ("BITCOUNT a", ":26|"),
            ("BITCOUNT a 0 0", ":4|"),
            ("BITCOUNT a 1 1 BYTE", ":6|"),
            ("BITCOUNT a 5 30 bit", ":17|"),
            ("BITCOUNT a -2 -3", ":0|"),
            ("BITCOUNT a 0 -1 bits", "-ERR syntax error|"),
            ("BITCOUNT a 0", "-ERR syntax error|"),
            ("BITCOUNT a x 0", "-ERR value is not an integer or out of range|"),
            ("BITCOUNT none x 0", ":0|"),
            ("SETRANGE b 1 x", ":2|"),
            ("BITPOS b 1", ":9|"),
            ("BITPOS b 0", ":0|"),
            ("BITPOS b 1 2", ":-1|"),
            ("BITPOS b 0 1 -1 BIT", ":1|"),
            ("BITPOS b 2", "-ERR The bit argument must be 1 or 0.|"),
            ("SETBIT ones 0 1", ":0|"),
            ("BITFIELD ones SET u8 0 255", "*1|:128|"),
            ("BITPOS ones 0", ":8|"),
            ("BITPOS ones 0 0", ":8|"),
            ("BITPOS ones 0 0 -1", ":-1|"),
            ("BITPOS ones 0 1", ":-1|"),
            ("BITPOS none 0", ":0|"),
            ("BITPOS none 1", ":-1|"),
        ]);
    }

    #[test]
    fn a_long_string_is_counted_and_searched_in_pieces() {
        let mut f = Fixture::new();
        f.script(&[("SETBIT a 33554432 1", ":0|"), ("SETBIT a 12345678 1", ":0|")]);
        f.pauses.take();
        f.script(&[
            ("BITCOUNT a", ":2|"),
            ("BITCOUNT a 12345678 33554432 BIT", ":2|"),
            ("BITPOS a 1", ":12345678|"),
            ("BITPOS a 1 12345679 -1 BIT", ":33554432|"),
            ("BITPOS a 0 33554432 33554432 BIT", ":-1|"),
        ]);
        assert!(f.pauses.take() >= 2 * 8 + 2 + 5, "{}", f.pauses.get());
    }

    #[test]
    fn every_command_minds_the_type() {
        let mut f = Fixture::new();
        f.run("HSET h f v");
        for line in [
            "SETBIT h 0 1",
            "GETBIT h 0",
            "BITCOUNT h",
            "BITCOUNT h x",
            "BITPOS h 1",
            "BITOP AND d h",
            "BITFIELD h",
            "BITFIELD h SET u8 0 1",
            "BITFIELD_RO h GET u8 0",
        ] {
            assert_eq!(f.run(line), format!("-{}|", errors::WRONG_TYPE), "{line}");
        }
    }

    #[test]
    fn edits_do_not_change_values_that_share_the_bytes() {
        let mut f = Fixture::new();
        f.run(&format!("SET a {}", "a".repeat(2000)));
        f.script(&[("COPY a b", ":1|"), ("SETBIT a 15999 0", ":1|"), ("GETBIT b 15999", ":1|")]);
    }
}
