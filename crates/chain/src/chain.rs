//! [`Chain`]: an ordered list of blob ranges with a read position. STARTING VERSION: one `Vec` and blobs between.

use crate::Blob;
use std::collections::VecDeque;
use std::io::IoSlice;

#[derive(Debug, Clone)]
struct Link {
    blob: Blob,
    start: usize,
    end: usize,
}

/// The receive and send buffer.
#[derive(Debug, Default)]
pub struct Chain {
    links: VecDeque<Link>,
    len: usize,
    examined: usize,
}

/// Bytes of one pooled block.
const BLOCK_BYTES: usize = 16 * 1024;

impl Chain {
    /// An empty chain; holds no block.
    pub fn new() -> Chain {
        Chain::default()
    }
    /// Readable bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// True when nothing is readable.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The first contiguous readable bytes (empty only when the chain is empty).
    pub fn front(&self) -> &[u8] {
        self.links.iter().map(|l| &l.blob[l.start..l.end]).find(|s| !s.is_empty()).unwrap_or(&[])
    }
    /// All readable bytes as slices, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.links.iter().map(|l| &l.blob[l.start..l.end]).filter(|s| !s.is_empty())
    }
    /// Fills `out` with the first slices for a vectored write; says how many were set.
    pub fn io_slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut n = 0;
        for (slot, s) in out.iter_mut().zip(self.slices()) {
            *slot = IoSlice::new(s);
            n += 1;
        }
        n
    }
    /// Copies the first `out.len()` bytes into `out` without consuming; false (and `out` unspecified) when there are fewer.
    pub fn peek(&self, out: &mut [u8]) -> bool {
        if self.len < out.len() {
            return false;
        }
        let mut at = 0;
        for s in self.slices() {
            let n = s.len().min(out.len() - at);
            out[at..at + n].copy_from_slice(&s[..n]);
            at += n;
            if at == out.len() {
                break;
            }
        }
        true
    }
    /// Position (from the read position) of the first `byte` at or after the examined mark, searching at most `limit`
    /// bytes from the read position. When it is not found the examined mark moves, so no byte is searched twice.
    pub fn find(&mut self, byte: u8, limit: usize) -> Option<usize> {
        let mut base = 0;
        for l in &self.links {
            let s = &l.blob[l.start..l.end];
            let from = self.examined.saturating_sub(base).min(s.len());
            let to = s.len().min(limit.saturating_sub(base));
            if from < to {
                if let Some(i) = s[from..to].iter().position(|b| *b == byte) {
                    return Some(base + from + i);
                }
            }
            base += s.len();
        }
        self.examined = self.len.min(limit).max(self.examined);
        None
    }
    /// Bytes from the read position that were searched and hold nothing of interest. Reset by `advance`.
    pub fn examined(&self) -> usize {
        self.examined
    }
    /// Consumes `n` bytes.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn advance(&mut self, mut n: usize) {
        assert!(n <= self.len);
        self.len -= n;
        self.examined = self.examined.saturating_sub(n);
        while let Some(l) = self.links.front_mut() {
            let have = l.end - l.start;
            if n < have {
                l.start += n;
                return;
            }
            n -= have;
            self.links.pop_front();
        }
    }
    /// Splits off and returns the first `n` bytes, sharing the blocks.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn split_to(&mut self, n: usize) -> Chain {
        assert!(n <= self.len);
        let mut out = Chain::new();
        let mut left = n;
        for l in &self.links {
            if left == 0 {
                break;
            }
            let take = left.min(l.end - l.start);
            out.links.push_back(Link { blob: l.blob.clone(), start: l.start, end: l.start + take });
            out.len += take;
            left -= take;
        }
        self.advance(n);
        out
    }
    /// Appends a copy of `bytes`.
    pub fn push_slice(&mut self, bytes: &[u8]) {
        if let Some(l) = self.links.back_mut()
            && l.end == l.blob.len()
            && l.blob.is_unique()
            && l.blob.capacity() - l.blob.len() >= bytes.len()
        {
            l.blob.extend_from_slice(bytes);
            l.end += bytes.len();
        } else {
            let mut blob = Blob::with_capacity(BLOCK_BYTES.max(bytes.len()));
            blob.extend_from_slice(bytes);
            self.links.push_back(Link { blob, start: 0, end: bytes.len() });
        }
        self.len += bytes.len();
    }
    /// Appends `blob` without copying it.
    pub fn push_blob(&mut self, blob: Blob) {
        self.len += blob.len();
        let end = blob.len();
        self.links.push_back(Link { blob, start: 0, end });
    }
    /// Appends all of `other`, sharing its blocks.
    pub fn push_chain(&mut self, other: Chain) {
        self.len += other.len;
        self.links.extend(other.links);
    }
    /// A place to read into at the tail: at least 1 byte (a pooled block is taken when the tail is full).
    pub fn spare(&mut self) -> &mut [u8] {
        self.links.push_back(Link { blob: Blob::new(), start: 0, end: 0 });
        let l = self.links.back_mut().expect("just pushed");
        l.blob.resize(BLOCK_BYTES, 0);
        l.blob.make_mut()
    }
    /// Says that `n` bytes of the last `spare()` were filled (0 gives an unused block back).
    ///
    /// # Panics
    /// When `n` is more than that `spare()` gave.
    pub fn filled(&mut self, n: usize) {
        let l = self.links.back_mut().expect("spare() came first");
        assert!(n <= l.blob.len() - l.end);
        l.end += n;
        l.blob.resize(l.end, 0);
        self.len += n;
    }
    /// Drops all readable bytes and gives the blocks back.
    pub fn clear(&mut self) {
        *self = Chain::new();
    }
}
