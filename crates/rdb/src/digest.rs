//! Redis's digests of values and databases (DEBUG DIGEST-VALUE, DEBUG DIGEST): SHA-1 folded in two ways.
//!
//! *Mixing* depends on the order of the parts; *adding* does not. So a list mixes its elements, and a set adds its
//! members. [`ValueDigest`] takes a value piece by piece, [`DatasetDigest`] the digests of keys.

use crate::value::ValueKind;
use sha1::{Digest as _, Sha1};
use strand_wire::digits::Digits;

use crate::value::StreamId;

/// The digest of a value or a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugDigest(pub [u8; 20]);

impl DebugDigest {
    /// The digest as forty hexadecimal digits.
    pub fn to_hex(self) -> String {
        use std::fmt::Write as _;
        self.0.iter().fold(String::with_capacity(40), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Adds `bytes` to the digest. The order of additions has no effect.
    fn add(&mut self, bytes: &[u8]) {
        let hash: [u8; 20] = Sha1::digest(bytes).into();
        self.0.iter_mut().zip(hash).for_each(|(a, b)| *a ^= b);
    }

    /// Mixes `bytes` in. The order of mixing matters.
    fn mix(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = Sha1::digest(self.0).into();
    }
}

/// Computes the digest of a value piece by piece. Call only the methods for the value's type.
#[derive(Clone, Debug)]
pub struct ValueDigest(DebugDigest);

impl ValueDigest {
    /// The digest of a value alone (DEBUG DIGEST-VALUE).
    pub fn new(kind: ValueKind) -> ValueDigest {
        ValueDigest::start_with(DebugDigest::default(), kind)
    }
    /// The digest of a key and its value, as a part of a dataset (DEBUG DIGEST).
    pub fn of_key(key: &[u8], kind: ValueKind) -> ValueDigest {
        let mut digest = DebugDigest::default();
        digest.mix(key);
        ValueDigest::start_with(digest, kind)
    }
    fn start_with(mut digest: DebugDigest, kind: ValueKind) -> ValueDigest {
        digest.mix(&kind.number().to_be_bytes());
        ValueDigest(digest)
    }

    /// Adds the value of a whole string to the digest.
    pub fn string(&mut self, value: &[u8]) {
        self.0.mix(value);
    }
    /// Adds the next element of a list, from head to tail.
    pub fn element(&mut self, element: &[u8]) {
        self.0.mix(element);
    }
    /// Adds a member of a set to the digest.
    pub fn member(&mut self, member: &[u8]) {
        self.0.add(member);
    }
    /// Adds a member of a sorted set. The score counts in the form that redis-server 7.0 prints here: `%.17g`.
    pub fn scored(&mut self, member: &[u8], score: f64) {
        let mut pair = DebugDigest::default();
        pair.mix(member);
        pair.mix(score_text(score).as_slice());
        self.0.add(&pair.0);
    }
    /// Adds a field of a hash. Whether the field expires counts, but not when.
    pub fn field(&mut self, field: &[u8], value: &[u8], expires: bool) {
        let mut pair = DebugDigest::default();
        pair.mix(field);
        pair.mix(value);
        if expires {
            pair.add(b"!!hexpire!!");
        }
        self.0.add(&pair.0);
    }
    /// Adds the next entry of a stream. Its fields follow, each with [`ValueDigest::entry_field`]. Groups do not
    /// count.
    pub fn entry(&mut self, id: StreamId) {
        let mut text = Digits::unsigned(id.ms).as_slice().to_vec();
        text.push(b'.');
        text.extend_from_slice(Digits::unsigned(id.seq).as_slice());
        self.0.mix(&text);
    }
    /// Adds a field of the latest stream entry to the digest.
    pub fn entry_field(&mut self, field: &[u8], value: &[u8]) {
        self.0.mix(field);
        self.0.mix(value);
    }

    /// Returns the digest. Whether the key expires counts, but not when.
    pub fn finish(mut self, expires: bool) -> DebugDigest {
        if expires {
            self.0.add(b"!!expire!!");
        }
        self.0
    }
}

/// Computes the digest of all databases. Pass them in ascending order and leave out empty ones.
#[derive(Clone, Debug, Default)]
pub struct DatasetDigest(DebugDigest);

impl DatasetDigest {
    /// Starts database `number`. Its keys follow.
    pub fn database(&mut self, number: u32) {
        self.0.mix(&number.to_be_bytes());
    }
    /// Adds a key's digest, from [`ValueDigest::of_key`]. Keys of one database may come in any order.
    pub fn key(&mut self, key: DebugDigest) {
        self.0.add(&key.0);
    }
    /// The digest of the dataset; zero when it is empty.
    pub fn finish(self) -> DebugDigest {
        self.0
    }
}

/// A score in the form of C's `%.17g`.
fn score_text(score: f64) -> Digits {
    Digits::double(score)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_digests_to_zero() {
        assert_eq!(DatasetDigest::default().finish().to_hex(), "0".repeat(40));
    }

    #[test]
    fn a_string_as_redis_digests_it() {
        // The reply of redis-server 7.0.15 to DEBUG DIGEST-VALUE for the value " 12".
        let mut digest = ValueDigest::new(ValueKind::String);
        digest.string(b" 12");
        assert_eq!(digest.finish(false).to_hex(), "2e1c70e3fbfc6405ec4d3a063f9d75522701079c");
    }
}
