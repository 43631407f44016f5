//! A byte string returned by a reader: borrowed, formatted from a number, or owned.

use std::ops::Deref;

use strand_wire::digits::Digits;

/// A byte string. Dereferences to its bytes in every form.
#[derive(Debug)]
pub enum Text<'a> {
    /// Borrowed from the reader's memory until its next step.
    Borrowed(&'a [u8]),
    /// Stored as an integer. The bytes are its decimal form.
    Number(Digits),
    /// A long string. [`Text::into_vec`] takes it without a copy.
    Owned(Vec<u8>),
}

impl Text<'_> {
    /// The bytes as a vector. Copies unless the string is owned.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Text::Owned(bytes) => bytes,
            other => other.to_vec(),
        }
    }
}

impl Deref for Text<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Text::Borrowed(bytes) => bytes,
            Text::Number(digits) => digits.as_slice(),
            Text::Owned(bytes) => bytes,
        }
    }
}

/// The integer whose canonical decimal form is `text`: no sign but one `-`, no leading zero, no overflow.
pub(crate) fn canonical_int(text: &[u8]) -> Option<i64> {
    /// Maximum length of an integer's text: "-9223372036854775808"
    const INT_CHARS_MAX: usize = 20;
    if text.is_empty() || text.len() > INT_CHARS_MAX {
        return None;
    }
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    // Count downwards, because the smallest integer has no positive counterpart.
    let mut n: i64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        n = n.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(n) } else { n.checked_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_forms_are_integers() {
        for n in [0, 1, -1, 10, i64::MAX, i64::MIN, i64::MIN + 1, 1 << 31] {
            assert_eq!(canonical_int(n.to_string().as_bytes()), Some(n));
        }
        for text in [
            "",
            "-",
            "-0",
            "00",
            "01",
            "+1",
            " 1",
            "1 ",
            "1a",
            "9223372036854775808",
            "-9223372036854775809",
            "-01",
        ] {
            assert_eq!(canonical_int(text.as_bytes()), None, "{text:?}");
        }
    }
}
