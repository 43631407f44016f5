//! [`Body`]: the reservation for one value of known length, filled as bytes arrive. STARTING VERSION.

use crate::Blob;

/// Receives one value of declared length into its final allocation. A declared length is not trusted with memory:
/// resident memory grows only as bytes really arrive.
#[derive(Debug)]
pub struct Body {
    blob: Blob,
    filled: usize,
    len: usize,
}

impl Body {
    /// Starts a body of `len` bytes.
    pub fn new(len: usize) -> Body {
        Body { blob: Blob::new(), filled: 0, len }
    }
    /// Bytes still to come.
    pub fn remaining(&self) -> usize {
        self.len - self.filled
    }
    /// A place to read into: at least 1 byte while `remaining() > 0`, at most `remaining()`.
    pub fn spare(&mut self) -> &mut [u8] {
        let want = self.remaining().min(256 * 1024);
        self.blob.resize(self.filled + want, 0);
        &mut self.blob.make_mut()[self.filled..self.filled + want]
    }
    /// Says that `n` bytes of the last `spare()` were filled.
    ///
    /// # Panics
    /// When `n` is more than that `spare()` gave.
    pub fn filled(&mut self, n: usize) {
        assert!(self.filled + n <= self.blob.len());
        self.filled += n;
    }
    /// Copies from `bytes` what still fits; says how much.
    pub fn fill_from(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() && self.remaining() > 0 {
            let spare = self.spare();
            let n = spare.len().min(bytes.len() - done);
            spare[..n].copy_from_slice(&bytes[done..done + n]);
            self.filled(n);
            done += n;
        }
        done
    }
    /// The finished value.
    ///
    /// # Panics
    /// When bytes are still missing.
    pub fn into_blob(mut self) -> Blob {
        assert_eq!(self.remaining(), 0);
        self.blob.resize(self.len, 0);
        self.blob
    }
}
