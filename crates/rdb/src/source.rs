//! Where bytes come from: a slice, or a `Read` with a buffer before it and a checksum of what was consumed.

use std::io::{ErrorKind, Read};

use crate::{Crc64, Error, Result};

/// Bytes read from a [`ReadSource`]'s reader at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Bytes in order. What is at hand can be looked at, then consumed; when nothing is at hand, more can be fetched.
pub trait Source {
    /// The next bytes, as far as they are in memory.
    fn at_hand(&self) -> &[u8];
    /// Passes `n` bytes, at most as many as are at hand.
    fn consume(&mut self, n: usize);
    /// Fetches more; called only when nothing is at hand. False at the end of the input.
    fn refill(&mut self) -> Result<bool>;
}

/// A slice is a source of its bytes.
impl Source for &[u8] {
    #[inline]
    fn at_hand(&self) -> &[u8] {
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
    fn at_hand(&self) -> &[u8] {
        S::at_hand(self)
    }
    #[inline]
    fn consume(&mut self, n: usize) {
        S::consume(self, n);
    }
    fn refill(&mut self) -> Result<bool> {
        S::refill(self)
    }
}

/// A reader, read in large pieces. Counts what was consumed and knows its checksum.
pub struct ReadSource<R> {
    reader: R,
    buffer: Box<[u8]>,
    /// The bytes at hand are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Of the bytes before `buffer[0]`.
    crc: Crc64,
    /// Bytes before `buffer[0]`.
    passed: u64,
}

impl<R: Read> ReadSource<R> {
    /// Reads from `reader`, which needs no buffer of its own.
    pub fn new(reader: R) -> ReadSource<R> {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        ReadSource { reader, buffer, start: 0, end: 0, crc: Crc64::new(), passed: 0 }
    }
    /// Bytes consumed so far.
    pub fn offset(&self) -> u64 {
        self.passed + self.start as u64
    }
    /// The checksum of the bytes consumed so far.
    pub fn checksum(&self) -> u64 {
        let mut crc = self.crc.clone();
        crc.update(&self.buffer[..self.start]);
        crc.value()
    }
    /// The reader, and the bytes that were read from it but not consumed.
    pub fn into_parts(self) -> (R, Vec<u8>) {
        (self.reader, self.buffer[self.start..self.end].to_vec())
    }
}

impl<R: Read> Source for ReadSource<R> {
    #[inline]
    fn at_hand(&self) -> &[u8] {
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
        self.passed += self.start as u64;
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
