//! Writes numbers as text to the stack: integers, and doubles as redis-server prints them.
//!
//! [`Digits`] holds the text of one number. Nothing is allocated. Parsing is not here, because each command has its
//! own rules.

use std::io::Write;

/// Maximum length of a number's text: 17 digits with sign, point, and the four zeros or five exponent bytes of
/// `%.17g`.
const TEXT_BYTES_MAX: usize = 32;
/// Number of significant digits of a printed double.
const DOUBLE_DIGITS: i32 = 17;
/// The two digits of each number from 0 to 99.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

/// The text of one number.
#[derive(Clone, Copy)]
pub struct Digits {
    text: [u8; TEXT_BYTES_MAX],
    end: u8,
}

impl Digits {
    /// The number `n` in decimal form.
    #[inline]
    pub fn int(n: i64) -> Digits {
        let mut digits = Digits { text: [0; TEXT_BYTES_MAX], end: 0 };
        digits.end = put_int(&mut digits.text, n) as u8;
        digits
    }
    /// The number `n` in decimal form.
    #[inline]
    pub fn unsigned(n: u64) -> Digits {
        let mut digits = Digits { text: [0; TEXT_BYTES_MAX], end: 0 };
        digits.end = put_unsigned(&mut digits.text, n) as u8;
        digits
    }
    /// Prints `x` as redis-server 7.0 prints scores and other doubles: C's `%.17g`, and `inf`, `-inf`, `nan`.
    pub fn double(x: f64) -> Digits {
        // A whole number below 10^17 has no digits after the point. Minus zero keeps its sign.
        if x.trunc() == x && x.abs() < 1e17 && (x != 0.0 || x.is_sign_positive()) {
            return Digits::int(x as i64);
        }
        let mut digits = Digits { text: [0; TEXT_BYTES_MAX], end: 0 };
        if !x.is_finite() {
            digits.put(if x.is_nan() { b"nan" } else { b"inf" }, x == f64::NEG_INFINITY);
            return digits;
        }
        // d.dddddddddddddddde-ddd, correctly rounded.
        let mut scientific = [0u8; TEXT_BYTES_MAX];
        let mut rest = &mut scientific[..];
        write!(rest, "{:.*e}", DOUBLE_DIGITS as usize - 1, x.abs()).expect("at most 23 bytes");
        let unused = rest.len();
        let scientific = &scientific[..TEXT_BYTES_MAX - unused];
        let mut figures = [0u8; DOUBLE_DIGITS as usize];
        figures[0] = scientific[0];
        figures[1..].copy_from_slice(&scientific[2..=DOUBLE_DIGITS as usize]);
        let exponent_text = &scientific[DOUBLE_DIGITS as usize + 2..];
        let exponent = std::str::from_utf8(exponent_text).ok().and_then(|e| e.parse::<i32>().ok());
        digits.general(&figures, exponent.expect("an exponent follows"), x.is_sign_negative());
        digits
    }
    /// The text of the number.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.text[..usize::from(self.end)]
    }

    /// Formats `figures` like `%g`: the point follows the first figure, times ten to the power of `exponent`.
    fn general(&mut self, figures: &[u8], exponent: i32, negative: bool) {
        let used = figures.iter().rposition(|d| *d != b'0').map_or(1, |last| last + 1);
        let figures = &figures[..used];
        self.put(b"", negative);
        if !(-4..DOUBLE_DIGITS).contains(&exponent) {
            self.put(&figures[..1], false);
            if used > 1 {
                self.put(b".", false);
                self.put(&figures[1..], false);
            }
            self.put(if exponent < 0 { b"e-" } else { b"e+" }, false);
            let size = exponent.unsigned_abs();
            if size >= 100 {
                self.put(&[b'0' + (size / 100) as u8], false);
            }
            self.put(&PAIRS[(size % 100) as usize], false);
        } else if exponent < 0 {
            self.put(b"0.", false);
            self.put(&b"000"[..(-exponent - 1) as usize], false);
            self.put(figures, false);
        } else {
            let whole = exponent as usize + 1;
            self.put(&figures[..used.min(whole)], false);
            (used..whole).for_each(|_| self.put(b"0", false));
            if used > whole {
                self.put(b".", false);
                self.put(&figures[whole..], false);
            }
        }
    }
    fn put(&mut self, bytes: &[u8], minus_first: bool) {
        for b in minus_first.then_some(&b'-').into_iter().chain(bytes) {
            self.text[usize::from(self.end)] = *b;
            self.end += 1;
        }
    }
}

/// Writes the decimal form of `n` to the start of `to`. Returns its length.
///
/// # Panics
/// Panics if `to` is too short (20 bytes are always enough).
#[inline]
pub(crate) fn put_int(to: &mut [u8], n: i64) -> usize {
    if n >= 0 {
        return put_unsigned(to, n as u64);
    }
    to[0] = b'-';
    1 + put_unsigned(&mut to[1..], n.unsigned_abs())
}

/// Does what [`put_int`] does, for unsigned numbers.
#[inline]
pub(crate) fn put_unsigned(to: &mut [u8], n: u64) -> usize {
    if n < 10 {
        to[0] = b'0' + n as u8;
        return 1;
    }
    let len = n.ilog10() as usize + 1;
    let (to, mut end, mut left) = (&mut to[..len], len, n);
    while left >= 100 {
        end -= 2;
        to[end..end + 2].copy_from_slice(&PAIRS[(left % 100) as usize]);
        left /= 100;
    }
    if left >= 10 {
        to[..2].copy_from_slice(&PAIRS[left as usize]);
    } else {
        to[0] = b'0' + left as u8;
    }
    len
}

impl std::fmt::Debug for Digits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_their_decimal_digits() {
        for n in [0, 1, 9, 10, 99, 100, 101, 12345, i64::MAX, -1, -10, i64::MIN, i64::MIN + 1] {
            assert_eq!(Digits::int(n).as_slice(), n.to_string().as_bytes());
        }
        let mut n = u64::MAX;
        while n > 0 {
            assert_eq!(Digits::unsigned(n).as_slice(), n.to_string().as_bytes());
            n /= 3;
        }
    }

    /// Most expected texts are replies of redis-server 7.0.15 to ZSCORE. The last six are from C's printf.
    #[test]
    fn doubles_as_redis_prints_them() {
        for (x, text) in [
            (2.5, "2.5"),
            (0.1, "0.10000000000000001"),
            (0.3, "0.29999999999999999"),
            (1e17, "1e+17"),
            (1e20, "1e+20"),
            (123456789012345678.0, "1.2345678901234568e+17"),
            (1e300, "1.0000000000000001e+300"),
            (5e-324, "4.9406564584124654e-324"),
            (1e-5, "1.0000000000000001e-05"),
            (1e-4, "0.0001"),
            (0.0, "0"),
            (17.0, "17"),
            (-5.0, "-5"),
            (4503599627370495.0, "4503599627370495"),
            (9007199254740993.0, "9007199254740992"),
            (1.5e-7, "1.4999999999999999e-07"),
            (2.2250738585072014e-308, "2.2250738585072014e-308"),
            (f64::MAX, "1.7976931348623157e+308"),
            (100000.5, "100000.5"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (-0.0, "-0"),
            (-1.25e-3, "-0.00125"),
            (99999999999999984.0, "99999999999999984"),
            (-1234567890123456.5, "-1234567890123456.5"),
            (-f64::MIN_POSITIVE, "-2.2250738585072014e-308"),
            (123456789.0625, "123456789.0625"),
        ] {
            assert_eq!(format!("{:?}", Digits::double(x)), text);
        }
    }
}
