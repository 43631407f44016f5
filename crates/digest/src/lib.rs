//! [`Digest`]: what a string's bytes are told apart by, as entity tags over HTTP and in SETIF and DELIF.
//!
//! XXH3 of 128 bits, keyed by a seed, in 32 hexadecimal digits; some 0.1 ns a byte. Whoever does not know the seed cannot
//! make two strings of one digest.
//!
//! **Invariant:** knows nothing of ours: HTTP, which must not know commands, and the commands agree on the digest by this crate.

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128_with_seed};

/// The digest of a string that comes in parts.
pub struct Digest(Box<Xxh3>);

impl Digest {
    /// Keyed by `seed`.
    pub fn new(seed: u64) -> Digest {
        Digest(Box::new(Xxh3::with_seed(seed)))
    }
    /// Of bytes that lie in one piece.
    pub fn of(bytes: &[u8], seed: u64) -> String {
        text(xxh3_128_with_seed(bytes, seed))
    }
    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    /// Of all bytes so far.
    pub fn text(&self) -> String {
        text(self.0.digest128())
    }
}

/// XXH3 of 64 bits without a key, in 16 hexadecimal digits: what DIGEST answers, as in Redis. Whoever chooses the bytes can
/// make two strings of one such digest.
pub fn xxh3_text(bytes: &[u8]) -> String {
    format!("{:016x}", xxh3_64(bytes))
}

fn text(hash: u128) -> String {
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_seeds() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
        for n in [0, 1, 16, 240, 5000] {
            let mut digest = Digest::new(7);
            bytes[..n].chunks(100).for_each(|part| digest.update(part));
            assert_eq!(digest.text(), Digest::of(&bytes[..n], 7));
            assert_ne!(digest.text(), Digest::of(&bytes[..n], 8));
            assert_eq!(digest.text().len(), 32);
        }
    }
}
