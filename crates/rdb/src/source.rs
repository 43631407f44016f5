//! Sources of bytes: a slice, or a buffered `Read` with a checksum of the consumed bytes.

use std::io::{ErrorKind, Read};

use crate::{Crc64, Error, Result};

/// Number of bytes that a [`ReadSource`] reads from its reader at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// An ordered sequence of bytes. Bytes in memory can be read, then consumed. When none are in memory, more can be
/// fetched.
pub trait Source {
    /// The bytes of the source that are in memory already.
    fn buffered(&self) -> &[u8];
    /// Consumes `n` bytes, at most the bytes in memory.
    fn consume(&mut self, n: usize);
    /// Fetches more bytes. Call it only when none are in memory. Returns false at the end of the input.
    fn refill(&mut self) -> Result<bool>;
}

/// A slice is a source of its bytes.
impl Source for &[u8] {
    #[inline]
    fn buffered(&self) -> &[u8] {
        self
    }
    #[inline]
    fn consume(&mut self, n: usize) {
        *self = &self[n..];
    }
    fn refill(&mut self) -> Result<bool> {
        Ok(false)
    }
}

impl<S: Source> Source for &mut S {
    #[inline]
    fn buffered(&self) -> &[u8] {
        S::buffered(self)
    }
    #[inline]
    fn consume(&mut self, n: usize) {
        S::consume(self, n);
    }
    fn refill(&mut self) -> Result<bool> {
        S::refill(self)
    }
}

/// A reader that is read in large pieces. Counts the consumed bytes and knows their checksum.
pub struct ReadSource<R> {
    reader: R,
    buffer: Box<[u8]>,
    /// The bytes of `buffer` that were read and not consumed yet are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Checksum of all consumed bytes before `buffer[0]`.
    crc: Crc64,
    /// Number of consumed bytes before `buffer[0]`.
    buffer_offset: u64,
}

impl<R: Read> ReadSource<R> {
    /// A source over `reader`, which needs no buffer of its own.
    pub fn new(reader: R) -> ReadSource<R> {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        ReadSource { reader, buffer, start: 0, end: 0, crc: Crc64::new(), buffer_offset: 0 }
    }
    /// Number of bytes consumed so far.
    pub fn offset(&self) -> u64 {
        self.buffer_offset + self.start as u64
    }
    /// The checksum of the bytes consumed so far.
    pub fn checksum(&self) -> u64 {
        let mut crc = self.crc.clone();
        crc.update(&self.buffer[..self.start]);
        crc.value()
    }
    /// The reader, and the bytes read from it but not consumed.
    pub fn into_parts(self) -> (R, Vec<u8>) {
        (self.reader, self.buffer[self.start..self.end].to_vec())
    }
}

impl<R: Read> Source for ReadSource<R> {
    #[inline]
    fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
    #[inline]
    fn consume(&mut self, n: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end);
    }
    fn refill(&mut self) -> Result<bool> {
        debug_assert_eq!(self.start, self.end);
        self.crc.update(&self.buffer[..self.start]);
        self.buffer_offset += self.start as u64;
        (self.start, self.end) = (0, 0);
        loop {
            match self.reader.read(&mut self.buffer) {
                Ok(n) => {
                    self.end = n;
                    return Ok(n > 0);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::Io(e)),
            }
        }
    }
}
