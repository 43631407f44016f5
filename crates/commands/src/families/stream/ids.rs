//! Parses IDs of streams, by redis-server's rules.

use crate::errors;
use crate::parse::Text;
use strand_keyspace::types::stream::Id;
use strand_keyspace::types::string::parse_int;

/// The error text for an argument that is no ID.
pub(super) const INVALID_ID: &str = "ERR Invalid stream ID specified as stream command argument";
/// Maximum length of an ID. A longer text is no ID.
const ID_BYTES_MAX: usize = 127;

/// Parses `ms-seq`, or only `ms`, which gets the sequence number `missing_seq`.
pub(super) fn strict(bytes: &[u8], missing_seq: u64) -> Result<Id, &'static str> {
    let text = checked(bytes)?;
    if matches!(text, b"-" | b"+") {
        return Err(INVALID_ID);
    }
    id(text, missing_seq)
}

/// Like [`strict`], and `-` is the lowest ID, `+` the highest.
pub(super) fn any(bytes: &[u8], missing_seq: u64) -> Result<Id, &'static str> {
    match checked(bytes)? {
        b"-" => Ok(Id::MIN),
        b"+" => Ok(Id::MAX),
        text => id(text, missing_seq),
    }
}

/// Parses the ID of XADD, like [`strict`] with sequence number 0 for `ms` alone; the second value is true. For
/// `ms-*` returns `ms-0` and false: the caller must choose the sequence number.
pub(super) fn for_add(bytes: &[u8]) -> Result<(Id, bool), &'static str> {
    let text = checked(bytes)?;
    match text.strip_suffix(b"-*") {
        Some(ms) if !ms.contains(&b'-') => Ok((Id::new(number(ms).ok_or(INVALID_ID)?, 0), false)),
        _ => Ok((strict(bytes, 0)?, true)),
    }
}

/// Parses the start of a range. If `(` is before the ID, the ID itself is excluded.
pub(super) fn start(bytes: &[u8]) -> Result<Id, Text> {
    match exclusive(bytes) {
        Some(rest) => strict(rest, 0)?.next().ok_or("ERR invalid start ID for the interval".into()),
        None => Ok(any(bytes, 0)?),
    }
}

/// Parses the end of a range. If `(` is before the ID, the ID itself is excluded.
pub(super) fn end(bytes: &[u8]) -> Result<Id, Text> {
    match exclusive(bytes) {
        Some(rest) => strict(rest, u64::MAX)?.previous().ok_or("ERR invalid end ID for the interval".into()),
        None => Ok(any(bytes, u64::MAX)?),
    }
}

fn exclusive(bytes: &[u8]) -> Option<&[u8]> {
    bytes.strip_prefix(b"(").filter(|rest| !rest.is_empty())
}

fn checked(bytes: &[u8]) -> Result<&[u8], &'static str> {
    if bytes.len() > ID_BYTES_MAX { Err(INVALID_ID) } else { Ok(errors::c_text(bytes)) }
}

fn id(text: &[u8], missing_seq: u64) -> Result<Id, &'static str> {
    let (ms, seq) = match text.iter().position(|b| *b == b'-') {
        Some(dash) => (number(&text[..dash]), number(&text[dash + 1..])),
        None => (number(text), Some(missing_seq)),
    };
    Ok(Id::new(ms.ok_or(INVALID_ID)?, seq.ok_or(INVALID_ID)?))
}

/// Parses a number as redis-server does. It is an integer of 64 bits, or a text that C's `strtoull` accepts: blanks
/// and a sign before the digits, leading zeros, and negative numbers, which wrap around.
fn number(text: &[u8]) -> Option<u64> {
    if let Some(n) = parse_int(text) {
        return u64::try_from(n).ok();
    }
    let blanks = text.iter().take_while(|b| matches!(b, b' ' | b'\t'..=b'\r')).count();
    let (negative, digits) = match &text[blanks..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let n = digits.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })?;
    Some(if negative { n.wrapping_neg() } else { n })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        let max = u64::MAX;
        for (text, want) in [
            ("5", Some(Id::new(5, 7))),
            ("5-1", Some(Id::new(5, 1))),
            ("007-01", Some(Id::new(7, 1))),
            ("+5- 6", Some(Id::new(5, 6))),
            ("5--03", Some(Id::new(5, max - 2))),
            ("5--3", None),
            ("5-", None),
            ("-5", None),
            ("", None),
            ("-", None),
            ("+", None),
            ("0x5", None),
            ("5-*", None),
            ("5\0x", Some(Id::new(5, 7))),
            ("18446744073709551615-18446744073709551615", Some(Id::MAX)),
            ("18446744073709551616", None),
        ] {
            assert_eq!(strict(text.as_bytes(), 7).ok(), want, "{text:?}");
        }
        assert_eq!(strict(&[b'0'; 127], 0), Ok(Id::MIN));
        assert_eq!(strict(&[b'0'; 128], 0), Err(INVALID_ID));
    }

    #[test]
    fn intervals_and_ids_to_add() {
        assert_eq!((start(b"-"), end(b"+")), (Ok(Id::MIN), Ok(Id::MAX)));
        assert_eq!((start(b"5"), end(b"5")), (Ok(Id::new(5, 0)), Ok(Id::new(5, u64::MAX))));
        assert_eq!((start(b"(5-1"), end(b"(5-0")), (Ok(Id::new(5, 2)), Ok(Id::new(4, u64::MAX))));
        assert!(start(b"(-").is_err() && start(b"(").is_err() && end(b"(+").is_err());
        let top = b"(18446744073709551615-18446744073709551615";
        assert_eq!(start(top), Err("ERR invalid start ID for the interval".into()));
        assert_eq!(end(b"(0-0"), Err("ERR invalid end ID for the interval".into()));
        assert_eq!(for_add(b"5-*"), Ok((Id::new(5, 0), false)));
        assert_eq!(for_add(b"5"), Ok((Id::new(5, 0), true)));
        assert!(for_add(b"*").is_err() && for_add(b"-*").is_err() && for_add(b"5-1-*").is_err());
    }
}
