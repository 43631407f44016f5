//! [`Chain`]: an ordered list of blob ranges with a read position. Used as receive buffer and as send buffer.
//!
//! Bytes are appended in three ways: by copy into a pooled block at the tail, by reading into that block, or as
//! whole shared blobs. They leave at the front: read in place, consumed, or split off with shared blocks. A block
//! returns to its thread's pool when its last byte is consumed, so an empty chain holds no block. The examined
//! position, up to which the bytes were searched, is separate from the read position.

use crate::{Blob, pool};
use std::collections::VecDeque;
use std::io::IoSlice;

/// A tail with less room than this stays as it is, and reading continues in a new block.
const SPARE_BYTES_MIN: usize = 4 * 1024;
/// Chains up to this length are appended by copy. Otherwise each short reply would keep a whole block allocated. So a
/// chain takes at most four times its readable bytes.
const COPY_CHAIN_BYTES_MAX: usize = 4 * 1024;
/// Room left in front of the first bytes of an empty chain, for `push_front`.
const FRONT_ROOM_BYTES: usize = 256;
/// Maximum number of bytes that [`Chain::room`] can return.
pub const ROOM_BYTES_MAX: usize = 4 * 1024;

/// The range `start..end` of a blob. Empty only at the tail, between `spare()` and `filled()`. While the blob is
/// unique, its bytes outside the range may be written, because no other link or handle sees them.
#[derive(Debug)]
struct Link {
    blob: Blob,
    start: usize,
    end: usize,
}

impl Link {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.blob[self.start..self.end]
    }
    #[inline]
    fn len(&self) -> usize {
        self.end - self.start
    }
    /// The writable bytes after the range.
    #[inline]
    fn room(&mut self) -> Option<&mut [u8]> {
        let end = self.end;
        self.blob.get_mut().map(|all| &mut all[end..])
    }
}

/// The receive and send buffer.
#[derive(Debug, Default)]
pub struct Chain {
    links: VecDeque<Link>,
    len: usize,
    examined: usize,
}

impl Chain {
    /// An empty chain. It has no block.
    pub fn new() -> Chain {
        Chain::default()
    }
    /// Number of readable bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }
    /// True when nothing is readable.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The first contiguous readable bytes. Empty only when the chain is empty.
    #[inline]
    pub fn front(&self) -> &[u8] {
        self.links.front().map_or(&[], Link::bytes)
    }
    /// All readable bytes as slices, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.links.iter().map(Link::bytes).filter(|s| !s.is_empty())
    }
    /// Fills `out` with the first slices for a vectored write, up to `bytes_max` bytes. Returns the number of
    /// slices.
    pub fn io_slices<'a>(&'a self, out: &mut [IoSlice<'a>], bytes_max: usize) -> usize {
        let (mut n, mut left) = (0, bytes_max);
        for (slot, s) in out.iter_mut().zip(self.slices()) {
            if left == 0 {
                break;
            }
            let s = &s[..s.len().min(left)];
            *slot = IoSlice::new(s);
            left -= s.len();
            n += 1;
        }
        n
    }
    /// Copies the first `out.len()` bytes into `out` without consuming them. Returns false, with unspecified `out`,
    /// when there are fewer.
    pub fn peek(&self, out: &mut [u8]) -> bool {
        if self.len < out.len() {
            return false;
        }
        let mut rest = out;
        for s in self.slices() {
            let n = s.len().min(rest.len());
            rest[..n].copy_from_slice(&s[..n]);
            rest = &mut rest[n..];
            if rest.is_empty() {
                break;
            }
        }
        true
    }
    /// Searches `byte` from the examined position, up to `limit` bytes after the read position. Returns its distance
    /// from the read position. When the byte is not found, the examined position moves, so no byte is searched twice.
    /// Call [`Chain::advance`] before a search for another byte.
    pub fn find(&mut self, byte: u8, limit: usize) -> Option<usize> {
        let mut base = 0;
        for link in &self.links {
            let s = link.bytes();
            let from = self.examined.saturating_sub(base).min(s.len());
            let to = s.len().min(limit.saturating_sub(base));
            if from < to
                && let Some(i) = memchr::memchr(byte, &s[from..to])
            {
                return Some(base + from + i);
            }
            base += s.len();
            if base >= limit {
                break;
            }
        }
        self.examined = self.len.min(limit).max(self.examined);
        None
    }
    /// Bytes after the read position that were searched without a match. Decreases with `advance`.
    pub fn examined(&self) -> usize {
        self.examined
    }
    /// Consumes `n` bytes. Blocks without readable bytes return to the pool.
    ///
    /// # Panics
    /// Panics if there are fewer bytes.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.len, "advance past the end");
        self.len -= n;
        self.examined = self.examined.saturating_sub(n);
        match self.links.front_mut() {
            Some(link) if n < link.len() => link.start += n,
            _ => self.pop_links(n),
        }
    }
    /// Splits off and returns the first `n` bytes. Blocks are shared.
    ///
    /// # Panics
    /// Panics if there are fewer bytes.
    pub fn split_to(&mut self, n: usize) -> Chain {
        assert!(n <= self.len, "split past the end");
        let mut out = Chain::new();
        let mut left = n;
        while left > 0 {
            let link = self.links.front_mut().expect("links hold `len` bytes");
            let len = link.len();
            if left < len {
                let end = link.start + left;
                out.links.push_back(Link { blob: link.blob.clone(), start: link.start, end });
                link.start = end;
                break;
            }
            out.links.extend(self.links.pop_front());
            left -= len;
        }
        out.len = n;
        self.len -= n;
        self.examined = self.examined.saturating_sub(n);
        out
    }
    /// Appends a copy of `bytes`.
    #[inline]
    pub fn push_slice(&mut self, bytes: &[u8]) {
        if let Some(link) = self.links.back_mut()
            && let Some(room) = link.room()
            && bytes.len() <= room.len()
        {
            room[..bytes.len()].copy_from_slice(bytes);
            link.end += bytes.len();
            self.len += bytes.len();
        } else {
            self.push_beyond_tail(bytes);
        }
    }
    /// Appends `blob` without a copy.
    pub fn push_blob(&mut self, blob: Blob) {
        let whole = 0..blob.len();
        self.push_part(blob, whole);
    }
    /// Appends a part of a blob without a copy.
    ///
    /// # Panics
    /// Panics if the part exceeds the blob.
    pub fn push_part(&mut self, blob: Blob, part: std::ops::Range<usize>) {
        self.drop_empty_tail();
        assert!(part.start <= part.end && part.end <= blob.len(), "a part of the blob");
        if !part.is_empty() {
            self.len += part.len();
            self.links.push_back(Link { blob, start: part.start, end: part.end });
        }
    }
    /// Appends `other` and shares its blocks. Up to 4 KiB are copied instead.
    pub fn push_chain(&mut self, other: Chain) {
        if other.len <= COPY_CHAIN_BYTES_MAX {
            return other.slices().for_each(|s| self.push_slice(s));
        }
        self.push_links(other);
    }
    /// Appends `other` and shares its blocks, also if it has few bytes.
    pub fn push_links(&mut self, mut other: Chain) {
        self.drop_empty_tail();
        other.drop_empty_tail();
        self.len += std::mem::take(&mut other.len);
        self.links.append(&mut other.links);
    }
    /// Does what [`Chain::push_chain`] does, and leaves `other` empty. `other` keeps its block, if its bytes were
    /// copied.
    pub fn push_all_of(&mut self, other: &mut Chain) {
        if other.len > COPY_CHAIN_BYTES_MAX {
            return self.push_chain(std::mem::take(other));
        }
        other.slices().for_each(|s| self.push_slice(s));
        other.rewind();
    }
    /// The same bytes in memory that waits: up to 4 KiB are copied into a blob without spare bytes, and the blocks return
    /// to the pool.
    pub fn fitted(mut self) -> Chain {
        if self.is_empty() || self.len > COPY_CHAIN_BYTES_MAX {
            return self;
        }
        let mut blob = Blob::with_capacity(self.len);
        self.slices().for_each(|bytes| blob.extend_from_slice(bytes));
        self.clear();
        let mut fitted = Chain::new();
        fitted.push_blob(blob);
        fitted
    }
    /// Puts a copy of `bytes` in front. If the first block is unique and has enough consumed bytes, `bytes` replace
    /// them. So bytes that were taken can be put back without more memory.
    pub fn push_front(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let first = self.len == 0;
        self.len += bytes.len();
        self.examined = 0;
        if let Some(link) = self.links.front_mut()
            && bytes.len() <= link.start
            && let Some(all) = link.blob.get_mut()
        {
            let start = link.start - bytes.len();
            all[start..link.start].copy_from_slice(bytes);
            link.start = start;
        } else {
            self.push_front_beyond(bytes, first);
        }
    }
    /// A second chain of the same bytes, with shared blocks. Appending to one chain or consuming from it does not
    /// change the other.
    pub fn share(&self) -> Chain {
        let links = self.links.iter().filter(|link| link.len() > 0);
        let links = links.map(|l| Link { blob: l.blob.clone(), start: l.start, end: l.end }).collect();
        Chain { links, len: self.len, examined: self.examined }
    }
    /// Memory to read into at the tail: at least 4 KiB. A pooled block is added when the tail has less room. The
    /// memory is initialised; its content has no meaning.
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        self.room(SPARE_BYTES_MIN)
    }
    /// Does what [`Chain::spare`] does, with at least `n` bytes, for an encoder that writes in place.
    ///
    /// # Panics
    /// Panics if `n` exceeds [`ROOM_BYTES_MAX`].
    #[inline]
    pub fn room(&mut self, n: usize) -> &mut [u8] {
        assert!(n <= ROOM_BYTES_MAX, "n exceeds ROOM_BYTES_MAX");
        let enough = self.links.back_mut().and_then(Link::room).is_some_and(|room| room.len() >= n);
        if !enough {
            self.push_block();
        }
        let link = self.links.back_mut().expect("a tail exists or was just pushed");
        link.room().expect("a tail with room is unique")
    }
    /// Marks `n` bytes of the last `spare()` or `room()` as filled. With 0 an unused block returns to the pool.
    ///
    /// # Panics
    /// Panics if `n` exceeds the length of that `spare()` or `room()`.
    #[inline]
    pub fn filled(&mut self, n: usize) {
        if n == 0 {
            return self.drop_empty_tail();
        }
        let link = self.links.back_mut().expect("spare() came first");
        assert!(n <= link.blob.len() - link.end, "filled more than spare() gave");
        link.end += n;
        self.len += n;
    }
    /// Drops all readable bytes and returns the blocks to the pool.
    pub fn clear(&mut self) {
        self.len = 0;
        self.examined = 0;
        self.links.drain(..).for_each(|link| pool::give(link.blob));
    }
    /// Does what [`Chain::clear`] does, but keeps the block of a chain of one block, for the next bytes.
    pub fn rewind(&mut self) {
        let one = self.links.len() == 1;
        if one
            && let Some(link) = self.links.back_mut()
            && link.blob.len() == pool::BLOCK_BYTES
            && link.blob.get_mut().is_some()
        {
            (link.start, link.end) = (0, 0);
            (self.len, self.examined) = (0, 0);
        } else {
            self.clear();
        }
    }
    /// Heap bytes held by the chain, shared blobs included.
    pub fn heap_bytes(&self) -> usize {
        let blobs: usize = self.links.iter().map(|l| l.blob.heap_bytes()).sum();
        blobs + self.links.capacity() * size_of::<Link>()
    }

    /// The slow part of `advance`: the end of a link is reached.
    #[inline(never)]
    fn pop_links(&mut self, mut n: usize) {
        while n > 0 {
            let link = self.links.front_mut().expect("links hold `len` bytes");
            let len = link.len();
            if n < len {
                link.start += n;
                return;
            }
            n -= len;
            self.links.pop_front().into_iter().for_each(|link| pool::give(link.blob));
        }
    }
    /// The slow part of `push_slice`: the tail has not enough room.
    #[inline(never)]
    fn push_beyond_tail(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let room = self.links.back_mut().and_then(Link::room).map_or(0, |room| room.len());
        // A long slice becomes one blob. Filling the rest of the tail would not be worth a second copy.
        if bytes.len() > pool::BLOCK_BYTES {
            return self.push_blob(Blob::from(bytes));
        }
        let (now, later) = bytes.split_at(room);
        if room > 0 {
            self.push_slice(now);
        }
        self.push_block();
        self.push_slice(later);
    }
    /// The slow part of `push_front`: the front has not enough room. In an empty chain, the new block is also the
    /// tail, and some room is left for further bytes in front.
    #[inline(never)]
    fn push_front_beyond(&mut self, bytes: &[u8], first: bool) {
        if bytes.len() > pool::BLOCK_BYTES {
            return self.links.push_front(Link { blob: Blob::from(bytes), start: 0, end: bytes.len() });
        }
        let mut blob = pool::take();
        let room = pool::BLOCK_BYTES - bytes.len();
        let start = if first { room.min(FRONT_ROOM_BYTES) } else { room };
        blob.get_mut().expect("a block is unique")[start..][..bytes.len()].copy_from_slice(bytes);
        self.links.push_front(Link { blob, start, end: start + bytes.len() });
    }
    #[cold]
    fn push_block(&mut self) {
        self.drop_empty_tail();
        self.links.push_back(Link { blob: pool::take(), start: 0, end: 0 });
    }
    /// Removes the block that `spare()` added at the tail, if it is still empty.
    #[inline]
    fn drop_empty_tail(&mut self) {
        if self.links.back().is_some_and(|link| link.len() == 0) {
            self.links.pop_back().into_iter().for_each(|link| pool::give(link.blob));
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fitted_chain_gives_its_block_back() {
        let mut chain = Chain::new();
        chain.push_slice(b"reply");
        let free = pool::free_blocks();
        let mut fitted = chain.fitted();
        assert_eq!((fitted.front(), fitted.len(), pool::free_blocks()), (&b"reply"[..], 5, free + 1));
        assert!(fitted.heap_bytes() < 256, "{}", fitted.heap_bytes());
        fitted.push_slice(b"s");
        assert_eq!(fitted.slices().collect::<Vec<_>>().concat(), b"replys");
        let mut long = Chain::new();
        long.push_slice(&[b'x'; COPY_CHAIN_BYTES_MAX + 1]);
        assert_eq!(long.fitted().len(), COPY_CHAIN_BYTES_MAX + 1);
        assert!(Chain::new().fitted().is_empty());
    }
    #[test]
    fn an_empty_chain_holds_no_block() {
        let free = pool::free_blocks();
        let mut chain = Chain::new();
        chain.push_slice(b"some bytes");
        chain.spare()[0] = b'!';
        chain.filled(1);
        let block = chain.front().as_ptr();
        chain.advance(11);
        assert_eq!((chain.heap_bytes() / pool::BLOCK_BYTES, pool::free_blocks()), (0, free + 1));
        chain.spare();
        assert_eq!(pool::free_blocks(), free, "the block is taken again");
        chain.filled(0);
        assert_eq!(pool::free_blocks(), free + 1, "an unused block is given back");
        chain.push_slice(b"x");
        assert_eq!(chain.front().as_ptr(), block);
        chain.clear();
        assert_eq!(pool::free_blocks(), free + 1);
        chain.push_slice(b"");
        assert_eq!(pool::free_blocks(), free + 1, "nothing to hold");
    }

    #[test]
    fn a_chain_of_one_block_keeps_the_block_when_it_is_emptied() {
        let (mut out, mut chain) = (Chain::new(), Chain::new());
        for text in [&b"first"[..], b"second", b""] {
            chain.push_slice(text);
            let block = chain.front().as_ptr();
            out.push_all_of(&mut chain);
            assert!(chain.is_empty() && chain.slices().next().is_none());
            chain.push_slice(b"x");
            assert!(chain.front().as_ptr() == block && chain.front() == b"x");
            chain.rewind();
        }
        assert_eq!(out.front(), b"firstsecond");
        // What is shared, or lies in another blob, goes.
        chain.push_slice(b"shared");
        let share = chain.share();
        chain.rewind();
        assert_eq!((chain.heap_bytes() / pool::BLOCK_BYTES, share.front()), (0, &b"shared"[..]));
        for len in [100, COPY_CHAIN_BYTES_MAX + 1] {
            chain.push_blob(Blob::from(&vec![7; len][..]));
            out.push_all_of(&mut chain);
            assert!(chain.is_empty() && chain.slices().next().is_none());
        }
        assert_eq!(out.len(), 11 + 101 + COPY_CHAIN_BYTES_MAX);
    }

    #[test]
    fn a_shared_tail_is_not_written() {
        let mut chain = Chain::new();
        chain.push_slice(b"headtail");
        let head = chain.split_to(4);
        chain.push_slice(b"more");
        assert_eq!(
            chain.slices().collect::<Vec<_>>(),
            [b"tail", b"more"],
            "the block is shared: a new one is begun"
        );
        drop(chain);
        let mut head = head;
        head.push_slice(b"er");
        assert_eq!(head.front(), b"header", "unique again: the bytes after the range are free");
    }

    #[test]
    fn consumed_bytes_can_be_put_back_in_place() {
        let mut chain = Chain::new();
        chain.push_slice(b"header and body");
        let front = chain.front().as_ptr();
        chain.advance(7);
        chain.push_front(b"other ");
        assert_eq!((chain.front(), chain.slices().count()), (&b"other and body"[..], 1));
        assert_eq!(chain.front().as_ptr(), front.wrapping_add(1));
        let copy = chain.share();
        chain.advance(6);
        chain.push_front(b"an");
        assert_eq!(chain.slices().collect::<Vec<_>>(), [&b"an"[..], b"and body"], "the block is shared");
        drop(copy);
        chain.clear();
        for part in [b"3", b"2", b"1"] {
            chain.push_front(part);
        }
        chain.push_slice(b"4");
        assert_eq!((chain.front(), chain.slices().count()), (&b"1234"[..], 1), "all in one block");
        chain.push_front(&[0; 20_000]);
        assert_eq!(chain.slices().map(<[u8]>::len).collect::<Vec<_>>(), [20_000, 4]);
    }

    #[test]
    fn a_share_outlives_its_chain() {
        let mut chain = Chain::new();
        chain.push_slice(b"some");
        chain.push_blob(Blob::from(vec![b'v'; 5000]));
        chain.advance(1);
        let mut share = chain.share();
        assert!(share.slices().zip(chain.slices()).all(|(a, b)| std::ptr::eq(a, b)));
        chain.push_slice(b"more");
        chain.clear();
        share.push_slice(b"!");
        assert_eq!((share.len(), share.front()), (5004, &b"ome"[..]));
        assert_eq!(share.slices().last(), Some(&b"!"[..]));
    }

    #[test]
    fn blobs_and_long_chains_are_appended_without_copying() {
        let blob = Blob::from(vec![b'v'; 5000]);
        let mut chain = Chain::new();
        chain.push_slice(b"x");
        chain.push_blob(blob.clone());
        let mut all = Chain::new();
        all.push_slice(b"y");
        all.push_chain(chain);
        assert!(all.slices().any(|s| std::ptr::eq(s, blob.as_slice())));
        let mut short = Chain::new();
        short.push_slice(b"z");
        all.push_chain(short);
        all.push_slice(b"z");
        assert_eq!(all.slices().map(<[u8]>::len).collect::<Vec<_>>(), [1, 1, 5000, 2]);
        let mut slots = [IoSlice::new(&[]); 3];
        assert_eq!(all.io_slices(&mut slots, usize::MAX), 3);
        assert_eq!(slots.map(|s| s.len()), [1, 1, 5000]);
        assert_eq!(all.io_slices(&mut slots, 1000), 3);
        assert_eq!(slots.map(|s| s.len()), [1, 1, 998], "bounded in bytes too");
        assert_eq!(all.io_slices(&mut slots, 2), 2);
    }

    #[test]
    fn find_continues_after_the_examined_bytes() {
        let mut chain = Chain::new();
        chain.push_slice(b"abc");
        assert_eq!((chain.find(b'\n', 100), chain.examined()), (None, 3));
        chain.push_blob(Blob::from("de\nf\n"));
        assert_eq!(chain.find(b'\n', 5), None, "not within the limit");
        assert_eq!(chain.find(b'\n', 100), Some(5));
        chain.advance(6);
        assert_eq!((chain.examined(), chain.find(b'\n', 100)), (0, Some(1)));
    }
}
