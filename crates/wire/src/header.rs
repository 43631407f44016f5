//! Header lines of requests: a kind, a number and a line end.
//!
//! [`short_number`] reads a number that lies whole in a slice. [`Header`] reads a line byte by byte, in pieces of
//! any size, and accepts the numbers that redis-server accepts. The decoder knows the meaning and the limits of the
//! number.

use strand_chain::Chain;

/// Reads a length in its usual form at `at`: 1 to 7 digits without a leading zero, then CRLF. Also returns the
/// position after it. `None` for any other form and for an incomplete line.
#[inline(always)]
pub(crate) fn short_number(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    const DIGITS_MAX: usize = 7;
    let mut n = 0;
    for (i, &b) in bytes.get(at..)?.iter().take(DIGITS_MAX + 1).enumerate() {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            let usual = b == b'\r' && i > 0 && (i == 1 || bytes[at] != b'0') && at + i + 1 < bytes.len();
            return usual.then_some((n, at + i + 2));
        }
        n = n * 10 + usize::from(digit);
    }
    None
}

/// An incomplete header line: its first byte and the number after it, read byte by byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    first: u8,
    /// Number of bytes seen before the CR, including the first byte.
    bytes_seen: usize,
    negative: bool,
    /// Magnitude of the number that was read so far.
    value: u64,
    /// True when redis-server would not accept the number, or it is out of range.
    is_invalid: bool,
    /// True after the CR was read. One more byte ends the line.
    is_cr_read: bool,
}

/// The error when a header line exceeds its limit.
pub(crate) struct TooLong;

impl Header {
    /// Consumes bytes from `input`. Returns true when the line is complete.
    pub(crate) fn take(&mut self, input: &mut Chain, bytes_max: usize) -> Result<bool, TooLong> {
        while !input.is_empty() {
            let front = input.front();
            let mut used = 0;
            for &b in front {
                used += 1;
                if self.is_cr_read {
                    input.advance(used);
                    return Ok(true);
                }
                if b == b'\r' {
                    if self.bytes_seen == 0 {
                        self.first = b;
                    }
                    self.is_cr_read = true;
                    continue;
                }
                self.digit(b);
                if self.bytes_seen > bytes_max {
                    return Err(TooLong);
                }
            }
            input.advance(used);
        }
        Ok(false)
    }

    fn digit(&mut self, b: u8) {
        self.bytes_seen += 1;
        match (self.bytes_seen, b) {
            (1, first) => self.first = first,
            (2, b'-') => self.negative = true,
            (_, b'0'..=b'9') => {
                // Zero is only valid alone: `0` is valid, `-0` and `05` are not.
                let after_zero =
                    self.value == 0 && self.bytes_seen > 2 && !(self.bytes_seen == 3 && self.negative);
                self.is_invalid |= after_zero || (b == b'0' && self.negative && self.bytes_seen == 3);
                let next = self.value.checked_mul(10).and_then(|v| v.checked_add(u64::from(b - b'0')));
                self.is_invalid |= next.is_none();
                self.value = next.unwrap_or(0);
            }
            _ => self.is_invalid = true,
        }
    }

    /// The line's first byte; the CR when the line is empty.
    pub(crate) fn first(&self) -> u8 {
        self.first
    }
    /// The number of a complete line; `None` when it is malformed or exceeds 64 bits.
    pub(crate) fn number(&self) -> Option<i64> {
        let empty = self.bytes_seen < 2 || (self.negative && self.bytes_seen < 3);
        if self.is_invalid || empty {
            return None;
        }
        if self.negative { 0i64.checked_sub_unsigned(self.value) } else { i64::try_from(self.value).ok() }
    }
}
