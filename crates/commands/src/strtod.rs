//! C's `strtod`, with which redis-server reads scores and ranges of scores: decimal, hexadecimal, `inf` and `nan`,
//! rounded to the nearest double.
//!
//! [`Number::read`] is `strtod` itself. [`parse`] reads a whole argument as redis-server reads a score.

/// If an exponent is beyond this, the number is infinite or zero, whatever its mantissa is.
const EXPONENT_MAX: i64 = 100_000;
/// The exponent of the smallest double above 0.
const EXPONENT_MIN: i64 = -1074;
/// Number of bits of a hexadecimal mantissa that are kept. One more bit stands for all later bits.
const MANTISSA_BITS: u32 = 63;

/// The result of `strtod`: a number at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Number {
    /// The number; 0 when there is no number.
    pub(crate) value: f64,
    /// Number of bytes that were read, including blanks before the number. 0 when there is no number.
    pub(crate) used: usize,
    range: Range,
}

/// How a double holds the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    /// Rounded to the usual number of bits, or exactly.
    Normal,
    /// Rounded to fewer bits, because the number is close to 0. C's `strtod` reports such a number, too.
    Subnormal,
    /// Not at all: the number is too large, or so small that it became 0.
    Outside,
}

/// Parses a whole argument as a number. Refuses blanks, NaN, and numbers outside the range of a double.
pub(crate) fn parse(text: &[u8]) -> Option<f64> {
    let number = Number::read(text);
    let whole = !text.is_empty() && !is_space(text[0]) && number.used == text.len();
    (whole && number.range != Range::Outside && !number.value.is_nan()).then_some(number.value)
}

/// Parses a weight of SORT. Like [`parse`], but allows blanks before the number, and refuses subnormal numbers.
pub(crate) fn parse_weight(text: &[u8]) -> Option<f64> {
    let number = Number::read(text);
    let whole = number.used > 0 && number.used == text.len();
    (whole && number.range == Range::Normal && !number.value.is_nan()).then_some(number.value)
}

impl Number {
    /// Reads a number at the start of a text.
    pub(crate) fn read(text: &[u8]) -> Number {
        let blanks = text.iter().take_while(|b| is_space(**b)).count();
        let (negative, sign) = match text.get(blanks) {
            Some(b'-') => (true, 1),
            Some(b'+') => (false, 1),
            _ => (false, 0),
        };
        let body = &text[blanks + sign..];
        let (value, used, range) = word(body).or_else(|| hexadecimal(body)).unwrap_or_else(|| decimal(body));
        if used == 0 {
            return Number { value: 0.0, used: 0, range: Range::Normal };
        }
        let value = if negative { -value } else { value };
        Number { value, used: blanks + sign + used, range }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Reads `inf`, `infinity`, `nan` or `nan(...)`.
fn word(text: &[u8]) -> Option<(f64, usize, Range)> {
    let begins = |word: &[u8]| text.get(..word.len()).is_some_and(|front| front.eq_ignore_ascii_case(word));
    if begins(b"infinity") {
        return Some((f64::INFINITY, 8, Range::Normal));
    }
    if begins(b"inf") {
        return Some((f64::INFINITY, 3, Range::Normal));
    }
    if !begins(b"nan") {
        return None;
    }
    let inside = text[3..].iter().skip(1).take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
    let closed = text.get(3) == Some(&b'(') && text.get(4 + inside) == Some(&b')');
    Some((f64::NAN, if closed { 5 + inside } else { 3 }, Range::Normal))
}

/// Reads a decimal number: digits, a point, digits, an exponent.
fn decimal(text: &[u8]) -> (f64, usize, Range) {
    let (whole, fraction) = mantissa(text, u8::is_ascii_digit);
    if whole + fraction == 0 {
        return (0.0, 0, Range::Normal);
    }
    let mut used = whole + if fraction > 0 || text.get(whole) == Some(&b'.') { 1 + fraction } else { 0 };
    let is_zero = !text[..used].iter().any(|b| matches!(b, b'1'..=b'9'));
    used += exponent(&text[used..], b'e').1;
    let value = std::str::from_utf8(&text[..used]).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    // A decimal number that a subnormal double holds exactly has hundreds of digits.
    (value, used, range(value, is_zero, false))
}

/// Reads a hexadecimal number: `0x`, digits, a point, digits, an exponent of two.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize, Range)> {
    let [b'0', b'x' | b'X', body @ ..] = text else { return None };
    let (whole, fraction) = mantissa(body, u8::is_ascii_hexdigit);
    if whole + fraction == 0 {
        return None; // The 0 in front of the x is a number.
    }
    let end = whole + if fraction > 0 || body.get(whole) == Some(&b'.') { 1 + fraction } else { 0 };
    let (given, exponent_bytes) = exponent(&body[end..], b'p');
    let (mut bits, mut shift) = (0u64, given - 4 * fraction as i64);
    for digit in body[..end].iter().filter_map(|b| char::from(*b).to_digit(16)) {
        if bits >> (MANTISSA_BITS - 4) == 0 {
            bits = bits << 4 | u64::from(digit);
        } else {
            bits |= u64::from(digit != 0);
            shift += 4;
        }
    }
    let value = scaled(bits, shift);
    let is_exact = shift + i64::from(bits.trailing_zeros()) >= EXPONENT_MIN;
    Some((value, 2 + end + exponent_bytes, range(value, bits == 0, is_exact)))
}

/// The range of a number that became `value`. `is_zero`: the number is 0. `is_exact`: no bit of the number was lost.
fn range(value: f64, is_zero: bool, is_exact: bool) -> Range {
    match value {
        _ if value.is_infinite() || (value == 0.0 && !is_zero) => Range::Outside,
        _ if value.is_subnormal() && !is_exact => Range::Subnormal,
        _ => Range::Normal,
    }
}

/// Number of digits before the point, and number of digits after it.
fn mantissa(text: &[u8], is_digit: fn(&u8) -> bool) -> (usize, usize) {
    let whole = text.iter().take_while(|b| is_digit(b)).count();
    let fraction = match text.get(whole) {
        Some(b'.') => text[whole + 1..].iter().take_while(|b| is_digit(b)).count(),
        _ => 0,
    };
    (whole, fraction)
}

/// The exponent after `letter`, and its length in bytes. Both are 0 when there is no digit.
fn exponent(text: &[u8], letter: u8) -> (i64, usize) {
    if !text.first().is_some_and(|b| b.eq_ignore_ascii_case(&letter)) {
        return (0, 0);
    }
    let (negative, sign) = match text.get(1) {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let digits = text[1 + sign..].iter().take_while(|b| b.is_ascii_digit());
    let (mut n, mut count) = (0i64, 0);
    for digit in digits {
        n = (n * 10 + i64::from(digit - b'0')).min(EXPONENT_MAX);
        count += 1;
    }
    if count == 0 { (0, 0) } else { (if negative { -n } else { n }, 1 + sign + count) }
}

/// `bits * 2^shift` as a double, rounded once.
fn scaled(bits: u64, shift: i64) -> f64 {
    if bits == 0 {
        return 0.0;
    }
    // The highest bit of the number has the value 2^top.
    let top = i64::from(63 - bits.leading_zeros()) + shift;
    // Below the smallest normal number, a double has fewer bits.
    let kept = if top < -1022 { (53 - (-1022 - top)).max(0) } else { 53 };
    let width = i64::from(64 - bits.leading_zeros());
    let dropped = (width - kept).max(0);
    if top < -1075 {
        return 0.0;
    }
    if top > 1023 {
        return f64::INFINITY;
    }
    let (mut rounded, rest) = match dropped {
        64 => (0, bits),
        n => (bits >> n, bits & ((1 << n) - 1)),
    };
    if dropped > 0 {
        let half = 1u64 << (dropped - 1);
        rounded += u64::from(rest > half || (rest == half && rounded & 1 == 1));
    }
    // From here on the arithmetic is exact, because it multiplies at most 53 bits by a power of two. It multiplies in
    // two steps, so that each power of two is within the range of a double.
    let power = shift + dropped;
    let first = power.clamp(-1000, 900);
    rounded as f64 * 2f64.powi(first as i32) * 2f64.powi((power - first) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_argument_must_be_a_number() {
        for (text, want) in [
            ("0", 0.0),
            ("1.", 1.0),
            (".5", 0.5),
            ("-2.25e1", -22.5),
            ("+3", 3.0),
            ("1e400", f64::NAN),
            ("1e-400", f64::NAN),
            ("0e-400", 0.0),
            ("4.9e-324", 4.9e-324),
            ("1e-320", 1e-320),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("+INF", f64::INFINITY),
            ("nan", f64::NAN),
            ("0x10", 16.0),
            ("-0X1.8p3", -12.0),
            ("0x.8", 0.5),
            ("0x1p-1074", 4.9e-324),
            ("0x1p-1080", f64::NAN),
            ("0x1p1024", f64::NAN),
            ("0x1.fffffffffffff8p0", 2.0),
            ("0x1.fffffffffffff7fffffffffffffffp0", 1.999_999_999_999_999_8),
            ("0x20000000000001", 9007199254740992.0),
            ("0x20000000000003", 9007199254740996.0),
            ("0x", f64::NAN),
            ("", f64::NAN),
            (" 1", f64::NAN),
            ("1 ", f64::NAN),
            ("1e", f64::NAN),
            ("1e+", f64::NAN),
            ("e5", f64::NAN),
            (".", f64::NAN),
            ("-", f64::NAN),
            ("infi", f64::NAN),
            ("1_0", f64::NAN),
            ("0.1", 0.1),
            ("17179869184.000001", 17179869184.000001),
        ] {
            assert_eq!(parse(text.as_bytes()), (!want.is_nan()).then_some(want), "{text}");
        }
        assert_eq!(parse(b"-0").map(f64::to_bits), Some((-0.0f64).to_bits()));
        assert_eq!(parse(b"1\0"), None);
    }

    #[test]
    fn numbers_close_to_zero_are_no_weights() {
        for text in
            ["4.9e-324", "1e-310", "-1e-310", "2.2250738585072011e-308", "0x1.8p-1074", "0x1p-1080", "1e400"]
        {
            assert_eq!(parse_weight(text.as_bytes()), None, "{text}");
        }
        for text in ["2.2250738585072014e-308", "0x1p-1074", "0x1.8p-1073", "0e-999", "0x0p-2000", " -1e-300"]
        {
            assert!(parse_weight(text.as_bytes()).is_some(), "{text}");
        }
    }

    #[test]
    fn numbers_end_where_they_end() {
        for (text, value, used) in [
            ("", 0.0, 0),
            ("  12abc", 12.0, 4),
            ("\t-1.5e3e", -1500.0, 7),
            ("1e+x", 1.0, 1),
            ("0xg", 0.0, 1),
            ("infinit", f64::INFINITY, 3),
            ("1.e2", 100.0, 4),
            ("+", 0.0, 0),
            ("abc", 0.0, 0),
        ] {
            let number = Number::read(text.as_bytes());
            assert_eq!((number.value, number.used), (value, used), "{text:?}");
        }
        for (text, used) in [("nan", 3), ("NaN(ab_1)x", 9), ("nan(", 3), ("-nan(a-)", 4)] {
            let number = Number::read(text.as_bytes());
            assert!(number.value.is_nan() && number.used == used, "{text}: {number:?}");
        }
    }
}
