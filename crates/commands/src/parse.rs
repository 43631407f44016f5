//! Arguments of commands as numbers and expiries: parsed by Redis's rules, with Redis's error texts.

use crate::errors;
use crate::long_double::LongDouble;
use std::borrow::Cow;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{OtherType, RecordRef, StrRef, ValueRef};

/// An error text: a constant, or one made for a single error.
pub(crate) type Text = Cow<'static, str>;

/// Parses an `i64` in canonical decimal form.
pub(crate) fn integer(bytes: &[u8]) -> Result<i64, &'static str> {
    parse_int(bytes).ok_or(errors::NOT_AN_INTEGER)
}

/// Parses an `i64` between `low` and `high`, inclusive.
pub(crate) fn integer_in(bytes: &[u8], low: i64, high: i64) -> Result<i64, Text> {
    let n = integer(bytes)?;
    if (low..=high).contains(&n) {
        return Ok(n);
    }
    Err(format!("ERR value is out of range, value must between {low} and {high}").into())
}

/// Parses an `i64` of at least 0. `text` is the error text for a negative number.
pub(crate) fn at_least_zero(bytes: &[u8], text: &'static str) -> Result<usize, &'static str> {
    usize::try_from(integer(bytes)?).map_err(|_| text)
}

/// Parses a long double, as INCRBYFLOAT and HINCRBYFLOAT read their increments.
pub(crate) fn long_double(bytes: &[u8]) -> Result<LongDouble, &'static str> {
    LongDouble::parse(bytes).ok_or(errors::NOT_A_FLOAT)
}

/// The unit of an expiry, and whether the expiry counts from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpiryUnit {
    /// Seconds from now: EX, SETEX.
    Seconds,
    /// Milliseconds from now: PX, PSETEX.
    Millis,
    /// Unix time in seconds: EXAT.
    UnixSeconds,
    /// Unix time in milliseconds: PXAT.
    UnixMillis,
}

impl ExpiryUnit {
    /// The unit that `EX`, `PX`, `EXAT` or `PXAT` names.
    pub(crate) fn from_option(word: &[u8]) -> Option<ExpiryUnit> {
        let is = |w: &str| word.eq_ignore_ascii_case(w.as_bytes());
        match word.len() {
            2 if is("EX") => Some(ExpiryUnit::Seconds),
            2 if is("PX") => Some(ExpiryUnit::Millis),
            4 if is("EXAT") => Some(ExpiryUnit::UnixSeconds),
            4 if is("PXAT") => Some(ExpiryUnit::UnixMillis),
            _ => None,
        }
    }
}

/// Converts an expiry argument of SET, GETEX, SETEX or PSETEX to unix milliseconds. The argument must be positive.
/// `command` is the command's name for the error text.
pub(crate) fn expiry_ms(bytes: &[u8], unit: ExpiryUnit, now_ms: i64, command: &str) -> Result<i64, Text> {
    let given = integer(bytes)?;
    let at = match unit {
        _ if given <= 0 => None,
        ExpiryUnit::Seconds => given.checked_mul(1000).and_then(|ms| ms.checked_add(now_ms)),
        ExpiryUnit::Millis => given.checked_add(now_ms),
        ExpiryUnit::UnixSeconds => given.checked_mul(1000),
        ExpiryUnit::UnixMillis => Some(given),
    };
    // A record with the expiry `i64::MAX` never expires.
    at.map(|at| at.min(i64::MAX - 1)).ok_or_else(|| errors::invalid_expire_time(command).into())
}

/// The string in a record. `None` when there is no record.
///
/// # Errors
/// The WRONGTYPE error text, when the record is of another type.
#[inline]
pub(crate) fn string_of(record: Option<RecordRef<'_>>) -> Result<Option<StrRef<'_>>, &'static str> {
    match record.map(|r| r.value()) {
        None => Ok(None),
        Some(ValueRef::Str(s)) => Ok(Some(s)),
        Some(_) => Err(errors::WRONG_TYPE),
    }
}

/// The WRONGTYPE error text, for [`Result::map_err`].
pub(crate) fn wrong_type(_: OtherType) -> &'static str {
    errors::WRONG_TYPE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_positive_and_does_not_overflow() {
        use ExpiryUnit::*;
        let now = 1_700_000_000_000;
        let at = |text: &str, unit| expiry_ms(text.as_bytes(), unit, now, "set");
        assert_eq!(at("10", Seconds), Ok(now + 10_000));
        assert_eq!(at("10", Millis), Ok(now + 10));
        assert_eq!(at("10", UnixSeconds), Ok(10_000));
        assert_eq!(at("10", UnixMillis), Ok(10));
        assert_eq!(at("9223372036854775807", UnixMillis), Ok(i64::MAX - 1));
        let invalid = Err(Text::from("ERR invalid expire time in 'set' command"));
        for unit in [Seconds, Millis, UnixSeconds, UnixMillis] {
            assert_eq!(at("0", unit), invalid);
            assert_eq!(at("-1", unit), invalid);
            assert_eq!(at("x", unit), Err(errors::NOT_AN_INTEGER.into()));
            assert_eq!(at(" 1", unit), Err(errors::NOT_AN_INTEGER.into()));
            if unit != UnixMillis {
                assert_eq!(at("9223372036854775807", unit), invalid);
            }
        }
    }

    #[test]
    fn options_name_units() {
        assert_eq!(ExpiryUnit::from_option(b"ex"), Some(ExpiryUnit::Seconds));
        assert_eq!(ExpiryUnit::from_option(b"Px"), Some(ExpiryUnit::Millis));
        assert_eq!(ExpiryUnit::from_option(b"EXAT"), Some(ExpiryUnit::UnixSeconds));
        assert_eq!(ExpiryUnit::from_option(b"pxat"), Some(ExpiryUnit::UnixMillis));
        assert_eq!(ExpiryUnit::from_option(b"exa"), None);
    }
}
