//! Parts of strings: GETRANGE, SETRANGE, APPEND, and STRLEN.

use crate::call::Call;
use crate::errors;
use crate::parse::{self, string_of, wrong_type};
use std::ops::Range;
use strand_chain::Blob;
use strand_keyspace::StrRef;

/// `STRLEN key`. Reply: the length of the string in bytes, 0 for a missing key.
pub(crate) fn strlen(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.db);
    match string_of(db.get(&call.keys[0])) {
        Ok(s) => call.reply.int(s.map_or(0, |s| s.len()) as i64),
        Err(text) => call.reply.error(text),
    }
}

/// `GETRANGE key start end`. Reply: the bytes from one index to the other, both included.
pub(crate) fn getrange(call: &mut Call<'_, '_>) {
    let bounds =
        parse::integer(call.args.at(2)).and_then(|start| Ok((start, parse::integer(call.args.at(3))?)));
    let (start, end) = match bounds {
        Ok(bounds) => bounds,
        Err(text) => return call.reply.error(text),
    };
    let mut db = call.txn.db(call.db);
    match string_of(db.get(&call.keys[0])) {
        Ok(Some(StrRef::Blob { blob, .. })) => {
            call.reply.bulk_part(blob, slice(start, end, blob.len()));
        }
        Ok(Some(s)) => {
            let mut buffer = [0; 20];
            let bytes = s.bytes(&mut buffer);
            call.reply.bulk(&bytes[slice(start, end, bytes.len())]);
        }
        Ok(None) => call.reply.bulk(b""),
        Err(text) => call.reply.error(text),
    }
}

/// `SUBSTR key start end`: an older name of GETRANGE.
pub(crate) fn substr(call: &mut Call<'_, '_>) {
    getrange(call);
}

/// `SETRANGE key offset value`: writes `value` into the string at `offset`. Reply: the new length.
pub(crate) fn setrange(call: &mut Call<'_, '_>) {
    match overwrite(call) {
        Ok(len) => call.reply.int(len as i64),
        Err(text) => call.reply.error(text),
    }
}

/// `APPEND key value`: adds `value` at the end of the string. Reply: the new length.
pub(crate) fn append(call: &mut Call<'_, '_>) {
    match extend(call) {
        Ok(len) => call.reply.int(len as i64),
        Err(text) => call.reply.error(text),
    }
}

/// The range of bytes from `start` to `end`, both included. Negative numbers count from the end.
fn slice(start: i64, end: i64, len: usize) -> Range<usize> {
    let n = len as i64;
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let absolute = |i: i64| if i < 0 { i.saturating_add(n).max(0) } else { i };
    let (start, end) = (absolute(start), absolute(end).min(n - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

/// The length of a string after `more` bytes are written at `at`.
///
/// # Errors
/// `STRING_TOO_LONG` when the length exceeds `max`.
fn checked_len(max: u64, at: usize, more: usize) -> Result<usize, &'static str> {
    at.checked_add(more).filter(|len| *len as u64 <= max).ok_or(errors::STRING_TOO_LONG)
}

fn overwrite(call: &mut Call<'_, '_>) -> Result<usize, &'static str> {
    let offset = parse::at_least_zero(call.args.at(2), errors::OFFSET_OUT_OF_RANGE)?;
    let (key, bytes, max) = (&call.keys[0], call.args.at(3), call.txn.string_bytes_max());
    let mut db = call.txn.db(call.db);
    if bytes.is_empty() {
        // Nothing is written, so no limit applies.
        return Ok(string_of(db.peek(key))?.map_or(0, |s| s.len()));
    }
    let edited = db.edit_str(key, |blob| {
        let end = checked_len(max, offset, bytes.len())?;
        if blob.len() < end {
            blob.try_resize(end, 0).map_err(|_| errors::OUT_OF_MEMORY)?;
        }
        blob.make_mut()[offset..end].copy_from_slice(bytes);
        Ok(blob.len())
    });
    if let Some(len) = edited.map_err(wrong_type)? {
        return len;
    }
    let end = checked_len(max, offset, bytes.len())?;
    let mut blob = Blob::try_zeroed(end).map_err(|_| errors::OUT_OF_MEMORY)?;
    blob.make_mut()[offset..].copy_from_slice(bytes);
    db.set_str(key, StrRef::Blob { blob: &blob, edited: true }, None);
    Ok(end)
}

fn extend(call: &mut Call<'_, '_>) -> Result<usize, &'static str> {
    let (key, bytes, max) = (&call.keys[0], call.args.at(2), call.txn.string_bytes_max());
    let mut db = call.txn.db(call.db);
    let edited = db.edit_str(key, |blob| {
        let len = checked_len(max, blob.len(), bytes.len())?;
        blob.try_extend_from_slice(bytes).map_err(|_| errors::OUT_OF_MEMORY)?;
        Ok(len)
    });
    if let Some(len) = edited.map_err(wrong_type)? {
        return len;
    }
    db.set_str(key, super::value_of(call.args, 2), None);
    Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn slices_as_redis_does() {
        for (start, end, want) in [
            (0, 3, 0..4),
            (-3, -1, 7..10),
            (0, -1, 0..10),
            (5, 100, 5..10),
            (-100, 2, 0..3),
            (3, 2, 0..0),
            (-1, -3, 0..0),
            (10, 11, 0..0),
            (-100, -200, 0..0),
            (-200, -100, 0..1),
            (i64::MIN, i64::MAX, 0..10),
            (i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(slice(start, end, 10), want, "{start} {end}");
        }
        assert_eq!(slice(0, -1, 0), 0..0);
    }

    #[test]
    fn parts_are_read_and_written() {
        Fixture::new().script(&[
            ("SETRANGE a 0 ''", ":0|"),
            ("GETRANGE a 0 -1", "$0||"),
            ("SETRANGE a 3 xy", ":5|"),
            ("GET a", "$5|\0\0\0xy|"),
            ("SETRANGE a 0 hello-world", ":11|"),
            ("SETRANGE a 6 W", ":11|"),
            ("SETRANGE a 6 ''", ":11|"),
            ("GETRANGE a 6 -1", "$5|World|"),
            ("SUBSTR a 0 4", "$5|hello|"),
            ("SETRANGE a -1 x", "-ERR offset is out of range|"),
            ("SETRANGE a x x", "-ERR value is not an integer or out of range|"),
            ("GETRANGE a x 1", "-ERR value is not an integer or out of range|"),
            ("GETRANGE a 1 x", "-ERR value is not an integer or out of range|"),
            ("APPEND b 12", ":2|"),
            ("OBJECT ENCODING b", "$3|int|"),
            ("APPEND b 34", ":4|"),
            ("OBJECT ENCODING b", "$3|raw|"),
            ("STRLEN b", ":4|"),
            ("GET b", "$4|1234|"),
            ("GETRANGE b 1 2", "$2|23|"),
            ("STRLEN none", ":0|"),
        ]);
    }

    #[test]
    fn no_string_grows_past_the_limit() {
        const TOO_LONG: &str = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|";
        let mut f = Fixture::new();
        f.keyspace.settings().proto_max_bulk_len.store(10, std::sync::atomic::Ordering::Relaxed);
        f.script(&[
            ("SETRANGE a 9 xx", TOO_LONG),
            ("SETRANGE a 9223372036854775807 x", TOO_LONG),
            ("EXISTS a", ":0|"),
            ("SETRANGE a 9 x", ":10|"),
            ("APPEND a x", TOO_LONG),
            ("APPEND a ''", ":10|"),
            ("SETRANGE a 10 ''", ":10|"),
        ]);
    }

    #[test]
    fn writing_keeps_the_expiry_and_other_values_that_share_the_bytes() {
        let mut f = Fixture::new();
        f.script(&[
            ("SET a hello PX 100", "+OK|"),
            ("COPY a b", ":1|"),
            ("APPEND a !", ":6|"),
            ("SETRANGE a 0 J", ":6|"),
        ]);
        f.script(&[("GET a", "$6|Jello!|"), ("GET b", "$5|hello|"), ("PTTL a", ":100|")]);
    }

    #[test]
    fn other_types_are_refused() {
        let mut f = Fixture::new();
        f.run("HSET h f v");
        for line in ["STRLEN h", "GETRANGE h 0 1", "SETRANGE h 0 x", "SETRANGE h 0 ''", "APPEND h x"] {
            assert_eq!(f.run(line), format!("-{}|", errors::WRONG_TYPE), "{line}");
        }
    }
}
