//! [`ByteSize`]: a number of bytes as people write it.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: `4096`, `4k`, `4KiB`, `1.5M`, `2G`, `1T`. The letters stand for powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// The error for a text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a size: expected a number of bytes, or a number followed by k, M, G or T")]
pub struct SizeError(String);

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<ByteSize, SizeError> {
        let bad = || SizeError(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let plain = lower.strip_suffix("ib").or(lower.strip_suffix('b')).unwrap_or(&lower);
        let shift = match plain.as_bytes().last() {
            Some(b'k') => 10,
            Some(b'm') => 20,
            Some(b'g') => 30,
            Some(b't') => 40,
            _ => 0,
        };
        let number = if shift > 0 { &plain[..plain.len() - 1] } else { plain };
        if let Ok(whole) = number.parse::<u64>() {
            let bytes = whole.checked_mul(1 << shift).ok_or_else(bad)?;
            return Ok(ByteSize(bytes));
        }
        let is_decimal = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let value: f64 = number.parse().ok().filter(|_| is_decimal && shift > 0).ok_or_else(bad)?;
        let bytes = value * (1u64 << shift) as f64;
        // Above 2^53 a fraction cannot be kept.
        if bytes <= (1u64 << 53) as f64 { Ok(ByteSize(bytes.round() as u64)) } else { Err(bad()) }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.iter().find(|(shift, _)| self.0 >= 1 << shift) {
            Some((shift, unit)) => write!(f, "{:.1} {unit}", self.0 as f64 / (1u64 << shift) as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("4KiB", 4096),
            ("4KB", 4096),
            ("1.5M", 3 << 19),
            ("2g", 2 << 30),
            ("1T", 1 << 40),
            ("7b", 7),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in
            ["", "k", "x", "-1", "1.5", "1e3k", "99999999999999999999", "99999999T", ".k", "1..2k", "inf"]
        {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_fits() {
        assert_eq!(ByteSize(1023).to_string(), "1023 bytes");
        assert_eq!(ByteSize(3 << 19).to_string(), "1.5 MiB");
    }
}
