//! [`Body`]: the memory for one value of declared length, filled as bytes arrive.
//!
//! A declared length proves nothing. Until [`TRUSTED_AFTER_BYTES`] have arrived, the allocation grows geometrically with
//! the received bytes. A peer that has sent this much gets the whole length at once. That costs only address space,
//! because untouched pages are not resident. Each byte is copied at most twice. In a value longer than twice
//! [`TRUSTED_AFTER_BYTES`], few bytes are copied at all.

use crate::Blob;
use crate::blob::OutOfMemory;

/// After this many received bytes, the rest of the declared length is reserved at once. The received bytes are then
/// copied into fresh memory: for 1 MiB this took a worker 1.2 ms.
pub const TRUSTED_AFTER_BYTES: usize = 256 << 10;
/// Number of bytes that are reserved first for a value that is longer than this.
const FIRST_BYTES: usize = 64 * 1024;
/// Memory is initialised at most this far ahead of the received bytes, so one read fills it while it is in the
/// cache.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// Receives one value of declared length into its final allocation. Resident memory grows only with the received
/// bytes, not with the declared length.
#[derive(Debug)]
pub struct Body {
    /// The blob that is filled. Its length covers all initialised bytes: the received ones and the last result of
    /// [`Body::spare`].
    blob: Blob,
    filled: usize,
    len: usize,
}

impl Body {
    /// A body of `len` bytes. Allocates nothing yet.
    pub fn new(len: usize) -> Body {
        Body { blob: Blob::new(), filled: 0, len }
    }
    /// Number of bytes that have not arrived.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.len - self.filled
    }
    /// Memory to read into: at least 1 byte while `remaining() > 0`, at most `remaining()`. Its content has no
    /// meaning.
    ///
    /// # Panics
    /// Panics if the allocator has no memory; see [`Body::try_spare`].
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        let len = self.len;
        match self.try_spare() {
            Ok(spare) => spare,
            Err(OutOfMemory) => panic!("no memory for a value of {len} bytes"),
        }
    }
    /// Does what [`Body::spare`] does, but may fail.
    ///
    /// # Errors
    /// Fails if the allocator has no memory. The received bytes are kept.
    #[inline]
    pub fn try_spare(&mut self) -> Result<&mut [u8], OutOfMemory> {
        if self.filled == self.blob.len() && self.filled < self.len {
            self.open_window()?;
        }
        Ok(&mut self.blob.make_mut()[self.filled..])
    }
    /// Marks `n` bytes of the last `spare()` as filled.
    ///
    /// # Panics
    /// Panics if `n` exceeds the length of that `spare()`.
    #[inline]
    pub fn filled(&mut self, n: usize) {
        assert!(n <= self.blob.len() - self.filled, "filled more than spare() gave");
        self.filled += n;
    }
    /// Copies as much of `bytes` as the body still needs. Returns the number of bytes copied.
    ///
    /// # Panics
    /// Panics if the allocator has no memory; see [`Body::try_fill_from`].
    pub fn fill_from(&mut self, bytes: &[u8]) -> usize {
        let len = self.len;
        self.try_fill_from(bytes).unwrap_or_else(|OutOfMemory| panic!("no memory for a value of {len} bytes"))
    }
    /// Does what [`Body::fill_from`] does, but may fail.
    ///
    /// # Errors
    /// Fails if the allocator has no memory. The received bytes are kept.
    pub fn try_fill_from(&mut self, bytes: &[u8]) -> Result<usize, OutOfMemory> {
        let bytes = &bytes[..bytes.len().min(self.remaining())];
        let mut left = bytes;
        while !left.is_empty() {
            // Fill the initialised part first, then append: no byte is initialised twice.
            let open = self.blob.len() - self.filled;
            let room = if open > 0 { open } else { self.make_room()? };
            let (now, later) = left.split_at(left.len().min(room));
            if open > 0 {
                self.blob.make_mut()[self.filled..][..now.len()].copy_from_slice(now);
            } else {
                self.blob.try_extend_from_slice(now)?;
            }
            self.filled += now.len();
            left = later;
        }
        Ok(bytes.len())
    }
    /// The complete value.
    ///
    /// # Panics
    /// Panics if bytes are missing.
    pub fn into_blob(self) -> Blob {
        assert_eq!(self.remaining(), 0, "bytes of the value are missing");
        debug_assert_eq!(self.blob.len(), self.len, "a window never reaches past the value");
        self.blob
    }

    /// Initialises a part of the room after the received bytes.
    #[cold]
    fn open_window(&mut self) -> Result<(), OutOfMemory> {
        let room = self.make_room()?;
        self.blob.try_resize(self.filled + room.min(AHEAD_BYTES_MAX), 0)
    }
    /// Makes initialised room after the received bytes. Returns its length, at most the missing bytes.
    fn make_room(&mut self) -> Result<usize, OutOfMemory> {
        let capacity = self.blob.capacity();
        if self.filled == capacity && capacity < self.len {
            let next = if capacity < TRUSTED_AFTER_BYTES {
                (2 * capacity).clamp(FIRST_BYTES, TRUSTED_AFTER_BYTES)
            } else {
                self.len
            };
            self.blob.try_set_capacity(next.min(self.len))?;
        }
        Ok(self.blob.capacity() - self.filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(i: usize) -> u8 {
        (i * 7 + i / 251) as u8
    }

    #[test]
    #[cfg_attr(miri, ignore = "megabytes; no unsafe of its own")]
    fn memory_follows_the_received_bytes_until_the_proof() {
        let len = 20 * TRUSTED_AFTER_BYTES;
        let mut body = Body::new(len);
        assert_eq!(body.blob.heap_bytes(), 0, "a claim costs nothing");
        let mut arrived = 0;
        while arrived < TRUSTED_AFTER_BYTES {
            let n = body.spare().len().min(10_000);
            body.filled(n);
            arrived += n;
            let bound = (2 * arrived).clamp(FIRST_BYTES, TRUSTED_AFTER_BYTES);
            assert!(body.blob.capacity() <= bound, "{} held, {arrived} arrived", body.blob.capacity());
        }
        body.spare();
        assert_eq!(body.blob.capacity(), len, "the rest at once");
        assert!(body.blob.len() - body.filled <= AHEAD_BYTES_MAX, "but not initialised far ahead");
    }

    #[test]
    fn every_way_of_filling_gives_the_value() {
        for len in [0, 1, 5, FIRST_BYTES - 1, FIRST_BYTES, FIRST_BYTES + 1, 3 * FIRST_BYTES] {
            for chunk in [1usize, 4096, 100_000] {
                if cfg!(miri) && (len / chunk > 100 || len > FIRST_BYTES + 1) {
                    continue;
                }
                let value: Vec<u8> = (0..len).map(byte).collect();
                let mut body = Body::new(len);
                let mut turn = 0;
                while body.remaining() > 0 {
                    let at = len - body.remaining();
                    turn += 1;
                    if turn % 2 == 0 {
                        let end = len.min(at + chunk);
                        assert_eq!(body.fill_from(&value[at..end]), end - at);
                    } else {
                        let spare = body.spare();
                        let n = spare.len().min(chunk);
                        spare[..n].copy_from_slice(&value[at..at + n]);
                        body.filled(n);
                    }
                }
                assert_eq!(body.fill_from(b"more"), 0);
                assert!(body.spare().is_empty());
                assert_eq!(body.into_blob().as_slice(), value, "{len} bytes in chunks of {chunk}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "megabytes; no unsafe of its own")]
    fn an_impossible_length_is_an_error_once_proven() {
        let mut body = Body::new(usize::MAX / 2);
        while body.blob.capacity() < TRUSTED_AFTER_BYTES
            || body.remaining() > usize::MAX / 2 - TRUSTED_AFTER_BYTES
        {
            let n = body.try_spare().expect("the claim is still small").len();
            body.filled(n);
        }
        assert_eq!(body.try_spare(), Err(OutOfMemory));
        assert_eq!(body.try_fill_from(b"x"), Err(OutOfMemory));
    }
}
