//! [`LongDouble`]: the x87 extended double, with which redis-server computes INCRBYFLOAT and HINCRBYFLOAT.
//!
//! A number has a significand of 64 bits and an exponent from -16445 to 16383. Results are rounded to the nearest
//! number, half to even. Numbers are read as `strtold` reads them, and printed as `%.17Lf` prints them, without
//! trailing zeros. All arithmetic uses integers, so all platforms give the same bytes.

mod wide;

use wide::Wide;

/// Maximum length in bytes of a text that is read as a number (Redis's `MAX_LONG_DOUBLE_CHARS` without the zero
/// byte).
pub(crate) const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;
/// The exponent that the lowest bit of the smallest subnormal number has.
const EXPONENT_MIN: i32 = -16445;
/// The exponent that the lowest bit of the largest number has.
const EXPONENT_MAX: i32 = 16384 - 64;
/// Number of digits after the point in a printed number.
const DECIMALS: usize = 17;
/// If a decimal exponent is beyond this, the number is infinite or zero, whatever its digits are (there are at most
/// 5119).
const DECIMAL_EXPONENT_BOUND: i64 = 20_000;

/// A finite or infinite x87 extended double; never a NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LongDouble {
    negative: bool,
    /// 64 bits. The top bit is set, except in 0 and in subnormal numbers.
    significand: u64,
    /// The exponent of the significand's lowest bit. `i32::MAX` for infinity.
    exponent: i32,
}

impl LongDouble {
    /// Zero.
    pub(crate) const ZERO: LongDouble =
        LongDouble { negative: false, significand: 0, exponent: EXPONENT_MIN };

    /// Parses the whole `text` as Redis's `string2ld` does: decimal, hexadecimal (`0x1.8p3`) or `inf`. Refuses
    /// blanks, NaN, and numbers that overflow or become zero by rounding.
    pub(crate) fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (negative, body) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        let magnitude = if body.eq_ignore_ascii_case(b"inf") || body.eq_ignore_ascii_case(b"infinity") {
            LongDouble { exponent: i32::MAX, ..LongDouble::ZERO }
        } else if let [b'0', b'x' | b'X', hex @ ..] = body {
            parse_hex(hex)?
        } else {
            parse_decimal(body)?
        };
        Some(LongDouble { negative, ..magnitude })
    }

    /// The exact value of an integer.
    pub(crate) fn from_int(n: i64) -> LongDouble {
        let magnitude = round(u128::from(n.unsigned_abs()), 0, false).expect("64 bits are in range");
        LongDouble { negative: n < 0, ..magnitude }
    }

    /// The sum, rounded. `None` when the sum is not finite.
    pub(crate) fn add(self, other: LongDouble) -> Option<LongDouble> {
        if self.is_infinite() || other.is_infinite() {
            return None;
        }
        if self.significand == 0 || other.significand == 0 {
            return Some(match (self.significand, other.significand) {
                (0, 0) => LongDouble { negative: self.negative && other.negative, ..LongDouble::ZERO },
                (0, _) => other,
                _ => self,
            });
        }
        let (large, small) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        // The significand of the number with the larger exponent is shifted to bits 62..126. If low bits of the
        // other number are lost by its shift, `lost` is true.
        let a = u128::from(large.significand) << 62;
        let wide = u128::from(small.significand) << 62;
        let shift = large.exponent.abs_diff(small.exponent);
        let (b, lost) =
            if shift < 128 { (wide >> shift, wide & !(u128::MAX << shift) != 0) } else { (0, true) };
        let exponent = large.exponent - 62;
        if large.negative == small.negative {
            let sum = round(a + b, exponent, lost)?;
            return Some(LongDouble { negative: large.negative, ..sum });
        }
        // `large` may be subnormal and smaller than `small` only if both exponents are equal. Then no bit was lost.
        let (difference, negative) = if a >= b {
            // The lost bits make the difference slightly smaller. So subtract one, and keep `lost`.
            (a - b - u128::from(lost), large.negative)
        } else {
            (b - a, small.negative)
        };
        let sum = round(difference, exponent, lost)?;
        Some(LongDouble { negative: negative && difference != 0, ..sum })
    }

    /// The number times a thousand, rounded like every product, and then rounded up to an integer. `None` when the
    /// result does not fit into an `i64`.
    pub(crate) fn thousandfold_ceil(self) -> Option<i64> {
        if self.is_infinite() {
            return None;
        }
        let product = round(u128::from(self.significand) * 1000, self.exponent, false)?;
        let (whole, rest) = match product.exponent {
            _ if product.significand == 0 => (0, false),
            // The integer has at least 64 bits.
            0.. => return None,
            small if small <= -64 => (0, true),
            small => (
                product.significand >> small.unsigned_abs(),
                product.significand << (64 - small.unsigned_abs()) != 0,
            ),
        };
        let whole = i64::try_from(whole).ok()?;
        if self.negative { Some(-whole) } else { whole.checked_add(i64::from(rest)) }
    }

    /// True for plus and minus infinity.
    pub(crate) fn is_infinite(self) -> bool {
        self.exponent == i32::MAX
    }

    /// The text that Redis prints: as `%.17Lf`, without trailing zeros, and never `-0`.
    pub(crate) fn to_text(self) -> String {
        if self.is_infinite() {
            return if self.negative { "-inf" } else { "inf" }.into();
        }
        let digits = if self.exponent >= 0 {
            let mut wide = Wide::from(u128::from(self.significand));
            wide.shift_left(self.exponent.unsigned_abs());
            wide.to_decimal()
        } else {
            self.with_decimals()
        };
        if self.negative && digits != "0" { format!("-{digits}") } else { digits }
    }

    /// The text of a number with a negative exponent: 17 decimals, rounded half to even, without trailing zeros.
    fn with_decimals(self) -> String {
        let shift = self.exponent.unsigned_abs();
        // 64 bits of significand times 57 bits of 10^17 fit into 128 bits.
        let scaled = u128::from(self.significand) * 10u128.pow(DECIMALS as u32);
        let rounded = if shift >= 128 {
            0
        } else {
            let (whole, rest, half) = (scaled >> shift, scaled & !(u128::MAX << shift), 1u128 << (shift - 1));
            whole + u128::from(rest > half || (rest == half && whole & 1 == 1))
        };
        let one = 10u128.pow(DECIMALS as u32);
        let text = format!("{}.{:0width$}", rounded / one, rounded % one, width = DECIMALS);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// Rounds `bits * 2^exponent` to 64 bits, half to even. `sticky`: the exact number is slightly larger. `None` on
/// overflow.
fn round(mut bits: u128, mut exponent: i32, mut sticky: bool) -> Option<LongDouble> {
    if bits == 0 {
        // Only `sticky` may be left of the number. Callers keep enough bits, so it is 0 or underflows to 0.
        return Some(LongDouble::ZERO);
    }
    let excess = 128 - bits.leading_zeros() as i32 - 64;
    let drop = excess.max(EXPONENT_MIN - exponent);
    if drop > 0 {
        if drop > 128 {
            return Some(LongDouble::ZERO);
        }
        let (half_bit, below) = (bits >> (drop - 1) & 1 == 1, bits & !(u128::MAX << (drop - 1)) != 0);
        sticky |= below;
        bits = if drop == 128 { 0 } else { bits >> drop };
        exponent += drop;
        if half_bit && (sticky || bits & 1 == 1) {
            bits += 1;
        }
        if bits >> 64 != 0 {
            bits >>= 1;
            exponent += 1;
        }
    } else {
        // Shift the significand up until its top bit is set, or the smallest exponent is reached.
        let up = (-excess).min(exponent - EXPONENT_MIN).max(0);
        bits <<= up;
        exponent -= up;
    }
    if exponent > EXPONENT_MAX {
        return None;
    }
    let significand = u64::try_from(bits).expect("cut to 64 bits above");
    Some(if significand == 0 {
        LongDouble::ZERO
    } else {
        LongDouble { negative: false, significand, exponent }
    })
}

/// Parses `digits[.digits][e[sign]digits]`. There must be a digit before the `e`.
fn parse_decimal(text: &[u8]) -> Option<LongDouble> {
    let (mantissa, exponent) = match text.iter().position(|b| matches!(b, b'e' | b'E')) {
        Some(at) => (&text[..at], decimal_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (digits, decimals) = digits_of(mantissa, u8::is_ascii_digit)?;
    let significant = digits.iter().position(|d| *d != b'0').unwrap_or(digits.len());
    let digits = &digits[significant..];
    if digits.is_empty() {
        return Some(LongDouble::ZERO);
    }
    let power = exponent - decimals as i64;
    if digits.len() <= 19 && (-18..=19).contains(&power) {
        return nonzero(short_decimal(digits, power as i32)?);
    }
    if power.abs() > DECIMAL_EXPONENT_BOUND {
        return None;
    }
    let mut top = Wide::from_decimal(digits);
    let mut bottom = Wide::from(1);
    if power >= 0 { &mut top } else { &mut bottom }.scale_by_ten(power.unsigned_abs() as u32);
    nonzero(quotient(top, bottom)?)
}

/// Converts a number of at most 19 digits with a small power of ten, in 128 bits.
fn short_decimal(digits: &[u8], power: i32) -> Option<LongDouble> {
    let n = digits.iter().fold(0u64, |n, d| n * 10 + u64::from(d - b'0'));
    if power >= 0 {
        // 64 bits times at most 64 bits of 10^19.
        return round(u128::from(n) * 10u128.pow(power.unsigned_abs()), 0, false);
    }
    // The dividend has its top bit set, and the divisor has less than 60 bits, so the quotient has at least 68
    // bits.
    let up = u128::from(n).leading_zeros();
    let (top, divisor) = (u128::from(n) << up, 10u128.pow(power.unsigned_abs()));
    round(top / divisor, -(up as i32), top % divisor != 0)
}

/// `top / bottom`, rounded. A long division computes 66 bits.
fn quotient(mut top: Wide, mut bottom: Wide) -> Option<LongDouble> {
    // Align the top bits of both, so that the quotient is between 1/2 and 2.
    let shift = i64::from(bottom.bits()) - i64::from(top.bits());
    if shift >= 0 { &mut top } else { &mut bottom }.shift_left(shift.unsigned_abs() as u32);
    let mut bits = 0u128;
    for _ in 0..66 {
        bits <<= 1;
        if top >= bottom {
            top.subtract(&bottom);
            bits |= 1;
        }
        top.shift_left(1);
    }
    round(bits, -(shift as i32) - 65, !top.is_zero())
}

/// Parses `digits[.digits][p[sign]digits]`, which follow the `0x`.
fn parse_hex(text: &[u8]) -> Option<LongDouble> {
    let (mantissa, exponent) = match text.iter().position(|b| matches!(b, b'p' | b'P')) {
        Some(at) => (&text[..at], decimal_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (digits, decimals) = digits_of(mantissa, u8::is_ascii_hexdigit)?;
    let (mut bits, mut exponent, mut sticky) = (0u128, exponent - 4 * decimals as i64, false);
    for d in digits {
        let d = char::from(d).to_digit(16).expect("a hexadecimal digit");
        if bits >> 120 == 0 {
            bits = bits << 4 | u128::from(d);
        } else {
            sticky |= d != 0;
            exponent += 4;
        }
    }
    if bits == 0 {
        return Some(LongDouble::ZERO);
    }
    let exponent = i32::try_from(exponent.clamp(-DECIMAL_EXPONENT_BOUND * 4, DECIMAL_EXPONENT_BOUND * 4))
        .expect("clamped");
    nonzero(round(bits, exponent, sticky)?)
}

/// The digits without the point, and the number of digits after the point.
fn digits_of(text: &[u8], is_digit: fn(&u8) -> bool) -> Option<(Vec<u8>, usize)> {
    let (whole, decimals) = match text.iter().position(|b| *b == b'.') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[][..]),
    };
    let digits = [whole, decimals].concat();
    (!digits.is_empty() && digits.iter().all(is_digit)).then_some((digits, decimals.len()))
}

/// A decimal exponent, limited to bounds far beyond every finite number.
fn decimal_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let n = digits.iter().fold(0i64, |n, d| (n * 10 + i64::from(d - b'0')).min(1 << 40));
    Some(if negative { -n } else { n })
}

/// Returns `x`, or `None` when `x` is 0. Callers have parsed a number other than 0. If rounding makes it 0, the number
/// is out of range.
fn nonzero(x: LongDouble) -> Option<LongDouble> {
    (x.significand != 0).then_some(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(s: &str) -> Option<String> {
        LongDouble::parse(s.as_bytes()).map(LongDouble::to_text)
    }
    fn sum(a: &str, b: &str) -> Option<String> {
        let read = |s: &str| LongDouble::parse(s.as_bytes()).expect("a number");
        read(a).add(read(b)).map(LongDouble::to_text)
    }

    #[test]
    fn reads_and_prints_as_redis_does() {
        for (given, want) in [
            ("0", "0"),
            ("-0", "0"),
            ("10.50", "10.5"),
            ("3.0e3", "3000"),
            ("5.", "5"),
            (".5", "0.5"),
            ("+1", "1"),
            ("0.1", "0.1"),
            ("1e-18", "0"),
            ("-1e-18", "0"),
            ("0x1.8p3", "12"),
            ("0X10", "16"),
            ("inf", "inf"),
            ("-Infinity", "-inf"),
            ("1e22", "10000000000000000000000"),
            ("1e30", "1000000000000000000024696061952"),
            ("123456789012345678901234567890", "123456789012345678899921813504"),
            ("0e99999999999999999999", "0"),
            ("1e-4950", "0"),
        ] {
            assert_eq!(text(given).as_deref(), Some(want), "{given}");
        }
        for bad in [
            "",
            " 1",
            "1 ",
            "x",
            "1e",
            "1e+",
            ".",
            "0x",
            "0x.p1",
            "nan",
            "--1",
            "+-1",
            "1e5000",
            "1e-4952",
            "1.2.3",
            "1,5",
            "e5",
            "0x1p99999",
            "infinit",
            "1e99999999999999999999",
            "1e-99999999999999999999",
        ] {
            assert_eq!(text(bad), None, "{bad}");
        }
        assert_eq!(text(&"1".repeat(TEXT_BYTES_MAX + 1)), None);
        assert!(text(&format!("0.{}", "1".repeat(TEXT_BYTES_MAX - 2))).is_some());
    }

    #[test]
    fn gives_the_bytes_that_redis_gave() {
        let golden = include_str!("golden.txt");
        for line in golden.lines().filter(|l| !l.starts_with('#')) {
            let [a, b, want] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("three words: {line}") };
            assert_eq!(sum(a, b).as_deref(), Some(want), "{line}");
        }
    }

    #[test]
    fn adds_and_rounds_half_to_even() {
        assert_eq!(sum("0.1", "0.2").as_deref(), Some("0.3"));
        assert_eq!(sum("3", "-3").as_deref(), Some("0"));
        assert_eq!(sum("5.0e3", "2.0e2").as_deref(), Some("5200"));
        assert_eq!(sum("18446744073709551615", "0.5").as_deref(), Some("18446744073709551616"));
        assert_eq!(sum("18446744073709551614", "0.5").as_deref(), Some("18446744073709551614"));
        assert_eq!(sum("1e4000", "-1").as_deref(), text("1e4000").as_deref());
        assert_eq!(sum("inf", "1"), None);
        assert_eq!(sum("1e4932", "1e4932"), None);
    }

    #[test]
    fn short_decimals_equal_the_general_algorithm() {
        let seed = 11;
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..2000 {
            let length = rng.u32(1..19);
            let digits = rng.u64(1..10u64.pow(length)).to_string();
            let power = rng.i32(-18..=19);
            let short = short_decimal(digits.as_bytes(), power);
            let (mut top, mut bottom) = (Wide::from_decimal(digits.as_bytes()), Wide::from(1));
            if power >= 0 { &mut top } else { &mut bottom }.scale_by_ten(power.unsigned_abs());
            assert_eq!(short, quotient(top, bottom), "seed {seed}: {digits}e{power}");
        }
    }

    #[test]
    fn integers_are_exact() {
        for n in [0, 1, -1, i64::MAX, i64::MIN, 1 << 53] {
            assert_eq!(LongDouble::from_int(n).to_text(), n.to_string());
            assert_eq!(LongDouble::parse(n.to_string().as_bytes()), Some(LongDouble::from_int(n)));
        }
    }
}
