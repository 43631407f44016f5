//! [`PasswordDigest`]: the stored form of a password, its SHA-256.
//!
//! redis-server stores the same 64 hexadecimal digits, so ACL files are interchangeable.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// Maximum length of a password in bytes. A worker hashes such a password in well under a millisecond.
pub(crate) const PASSWORD_BYTES_MAX: usize = 64 << 10;

/// The SHA-256 of a password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PasswordDigest([u8; 32]);

impl PasswordDigest {
    /// The digest of a password. `None` when the password is too long.
    pub(crate) fn of(password: &[u8]) -> Option<PasswordDigest> {
        (password.len() <= PASSWORD_BYTES_MAX).then(|| PasswordDigest(Sha256::digest(password).into()))
    }
    /// Reads 64 hexadecimal digits in lower case.
    pub(crate) fn parse(hex: &[u8]) -> Option<PasswordDigest> {
        let digit = |b: u8| match b {
            b'0'..=b'9' => Some(b - b'0'),
            b'a'..=b'f' => Some(b - b'a' + 10),
            _ => None,
        };
        let mut out = [0; 32];
        if hex.len() != 2 * out.len() {
            return None;
        }
        for (byte, pair) in out.iter_mut().zip(hex.chunks(2)) {
            *byte = digit(pair[0])? * 16 + digit(pair[1])?;
        }
        Some(PasswordDigest(out))
    }
    /// The digest as 64 hexadecimal digits.
    pub(crate) fn hex(&self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }
    /// True when this digest is one of `others`. The time of the comparison does not show which bytes or digests match.
    pub(crate) fn is_one_of(&self, others: &[PasswordDigest]) -> bool {
        let found = others.iter().fold(0.into(), |found: subtle::Choice, d| found | self.0.ct_eq(&d.0));
        found.into()
    }
}

/// Digests are not shown in logs.
impl std::fmt::Debug for PasswordDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_everybody() {
        let foo = PasswordDigest::of(b"foo").unwrap();
        assert_eq!(foo.hex(), "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae");
        assert_eq!(PasswordDigest::parse(foo.hex().as_bytes()), Some(foo));
        for bad in [foo.hex().to_uppercase(), foo.hex()[1..].into(), foo.hex() + "0", "g".repeat(64)] {
            assert_eq!(PasswordDigest::parse(bad.as_bytes()), None, "{bad}");
        }
        let bar = PasswordDigest::of(b"bar").unwrap();
        assert!(foo.is_one_of(&[bar, foo]) && !foo.is_one_of(&[bar]) && !foo.is_one_of(&[]));
        assert!(PasswordDigest::of(&vec![0; PASSWORD_BYTES_MAX]).is_some());
        assert!(PasswordDigest::of(&vec![0; PASSWORD_BYTES_MAX + 1]).is_none());
    }
}
