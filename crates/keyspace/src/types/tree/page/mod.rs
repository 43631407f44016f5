//! [`Page`]: an ordered sequence of short byte strings in one allocation. A leaf of a [`super::Tree`] is a page. A
//! small list and a small sorted set are a single page.
//!
//! Layout: a head of four little-endian `u32` (start of the strings, end of the strings, end of the lengths, number
//! of strings with [`WIDE`] or [`EVEN`]); spare room; the strings in order; spare room; the lengths in *reverse*
//! order; spare room. A length has one byte, or two bytes in a wide page.
//!
//! So a string has an overhead of one byte, and while there is spare room, nothing moves when a string is added at
//! either end. The offset of string `i` is the sum of `i` adjacent bytes. The processor adds 16 of them at a time,
//! so no table of offsets is needed. While all strings have equal lengths, the page is *even*: the head has their
//! length instead of the end of the lengths, and a string has no overhead.
//!
//! Left out: the meaning of the strings, and the maximum size of a page, which the tree decides.

use crate::extendible::class_bytes;
use std::ops::Range;

const HEAD_BYTES: usize = 16;
/// Flag in the number of strings: each length has two bytes.
const WIDE: u32 = 1 << 31;
/// Flag in the number of strings: all strings have equal lengths, and no lengths are stored.
const EVEN: u32 = 1 << 30;
/// Flag in a two-byte length: the string has more bytes outside the page.
const OUTSIDE: usize = 1 << 15;
/// Maximum length of a string in bytes.
pub(crate) const STRING_BYTES_MAX: usize = OUTSIDE - 1;
/// An allocation smaller than this does not shrink.
const SHRUNK_BYTES_MIN: usize = 64;
/// Number of 8-byte words of one-byte lengths whose sums fit into four numbers of 16 bits.
const SUMMED_WORDS: usize = 64;

/// A page smaller than this is searched without a prefetch.
const SEARCHED_BYTES_MIN: usize = 1024;
/// A search prefetches the strings that its first four steps may look at: they divide the page into this many
/// parts.
const SEARCHED_PARTS: usize = 16;

/// An ordered sequence of byte strings in one allocation. There is no allocation while the sequence is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    buffer: Box<[u8]>,
}

/// The decoded head of a page.
#[derive(Clone, Copy)]
struct Head {
    /// Start of the strings in the allocation.
    front: usize,
    /// End of the strings in the allocation.
    end: usize,
    /// End of the lengths in the allocation. Lengths are stored in reverse: the length of the first string is the last.
    lens_end: usize,
    count: usize,
    /// Number of bytes per length. 0 in an even page.
    width: usize,
    /// In an even page, the length of every string.
    common: usize,
}

impl Head {
    fn lens_start(&self) -> usize {
        self.lens_end - self.count * self.width
    }
    /// Number of bytes of the allocation that are in use.
    fn used(&self) -> usize {
        HEAD_BYTES + self.end - self.front + self.count * self.width
    }
    /// See [`Page::fill`].
    fn fill(&self) -> usize {
        let is_of_empty_strings = self.width == 0 && self.common == 0;
        self.used() + if is_of_empty_strings { self.count } else { 0 }
    }
    /// Bytes per length, once a string with this stored length is added.
    #[inline]
    fn width_with(&self, raw: usize) -> usize {
        match self.width {
            0 if self.count == 0 || raw == self.common => 0,
            0 => width_of(raw).max(width_of(self.common)),
            width => width.max(width_of(raw)),
        }
    }
}

/// Which spare room must become larger.
#[derive(Clone, Copy)]
enum Gap {
    /// The room between the strings and the lengths.
    Back,
    /// The room before the page's strings must become larger, for a string of this many bytes.
    Front(usize),
}

impl Page {
    /// Number of strings in the page.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.head().count
    }
    /// Bytes in use, including the head; 0 when there is no allocation.
    #[inline]
    pub(crate) fn used_bytes(&self) -> usize {
        if self.buffer.is_empty() { 0 } else { self.head().used() }
    }
    /// Number of bytes of the allocation.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.buffer.len()
    }
    /// How full the page is: the bytes in use. An empty string that takes no byte counts as one byte, so the number of
    /// strings in a page is limited, too. 0 when there is no allocation.
    #[inline]
    pub(crate) fn fill(&self) -> usize {
        if self.buffer.is_empty() { 0 } else { self.head().fill() }
    }
    /// [`Page::fill`], once a string of `bytes` bytes is added.
    pub(crate) fn fill_with(&self, bytes: usize) -> usize {
        let head = self.head();
        let width = head.width_with(bytes);
        Head { end: head.end + bytes, count: head.count + 1, width, common: bytes, ..head }.fill()
    }
    /// Prefetches the first `bytes` bytes of the allocation.
    #[inline]
    pub(crate) fn prefetch(&self, bytes: usize) {
        strand_chain::prefetch(&*self.buffer, bytes);
    }
    /// Prefetches what [`Page::partition_point`] will read: the lengths, and roughly the strings that its first
    /// steps read (their exact offsets are sums of lengths). Without the prefetch, a search waits for one cache
    /// line after the other, which took a third of ZADD's time (perf, a set of a million).
    #[inline]
    pub(crate) fn prefetch_search(&self) {
        if self.buffer.len() < SEARCHED_BYTES_MIN {
            return;
        }
        let head = self.head();
        let lens = head.lens_start();
        strand_chain::prefetch(&self.buffer[lens..], head.lens_end - lens);
        let part = (head.end - head.front) / SEARCHED_PARTS;
        for i in 1..SEARCHED_PARTS {
            strand_chain::prefetch(&self.buffer[head.front + i * part..], 1);
        }
    }
    /// String `i`. True: the rest of the string is outside the page.
    ///
    /// # Panics
    /// Panics if there is no string `i`. This holds for all methods that take an index.
    #[inline]
    pub(crate) fn get(&self, i: usize) -> (&[u8], bool) {
        self.at(i, self.offset(i))
    }
    /// Offset of string `i` in the allocation, for [`Page::at`]. When `i` is `len`: the end of the last string.
    #[inline]
    pub(crate) fn offset(&self, i: usize) -> usize {
        let head = self.head();
        if i <= head.count / 2 {
            head.front + self.sum(&head, 0..i)
        } else {
            head.end - self.sum(&head, i..head.count)
        }
    }
    /// String `i`, which starts at `offset`. True: the rest of the string is outside the page.
    #[inline]
    pub(crate) fn at(&self, i: usize, offset: usize) -> (&[u8], bool) {
        let len = self.raw(&self.head(), i);
        (&self.buffer[offset..offset + (len & STRING_BYTES_MAX)], len & OUTSIDE != 0)
    }
    /// The number of bytes that string `i` takes.
    #[inline]
    pub(crate) fn bytes_of(&self, i: usize) -> usize {
        self.raw(&self.head(), i) & STRING_BYTES_MAX
    }
    /// Number of strings before string `i` that have a rest outside the page. Reads each length.
    pub(crate) fn outside_before(&self, i: usize) -> usize {
        let head = self.head();
        match head.width {
            0 if head.common & OUTSIDE != 0 => return i,
            0 | 1 => return 0,
            _ => {}
        }
        let lens = &self.buffer[head.lens_end - i * 2..head.lens_end];
        lens.chunks_exact(2).filter(|len| usize::from(len[1]) & OUTSIDE >> 8 != 0).count()
    }
    /// The first index at or after `from` for which `before` is false. `before` must be false for all later ones,
    /// too. It gets the index of a string, the string, and whether the string has a rest outside the page.
    #[inline]
    pub(crate) fn partition_point(
        &self,
        from: usize,
        mut before: impl FnMut(usize, &[u8], bool) -> bool,
    ) -> usize {
        let head = self.head();
        let (mut low, mut high) = (from, head.count);
        let mut low_offset = head.front + self.sum(&head, 0..from);
        while low < high {
            let middle = low + (high - low) / 2;
            let offset = low_offset + self.sum(&head, low..middle);
            let len = self.raw(&head, middle);
            let end = offset + (len & STRING_BYTES_MAX);
            if before(middle, &self.buffer[offset..end], len & OUTSIDE != 0) {
                (low, low_offset) = (middle + 1, end);
            } else {
                high = middle;
            }
        }
        low
    }
    /// The strings, starting at `from`. True: the string has a rest outside the page.
    pub(crate) fn iter(&self, from: usize) -> Strings<'_> {
        Strings { page: self, at: from, offset: self.offset(from), forwards: true }
    }
    /// The strings before `from`, in reverse order.
    pub(crate) fn iter_back(&self, from: usize) -> Strings<'_> {
        Strings { page: self, at: from, offset: self.offset(from), forwards: false }
    }
    /// Inserts a string before string `i`. The string is given as two parts. If the allocation must grow, it gets
    /// `spare` bytes more than needed.
    ///
    /// # Panics
    /// Panics if the string is longer than [`STRING_BYTES_MAX`], or `i` is larger than `len`.
    #[inline]
    pub(crate) fn insert(&mut self, i: usize, [first, second]: [&[u8]; 2], outside: bool, spare: usize) {
        let bytes = first.len() + second.len();
        let raw = raw_of(bytes, outside);
        let mut head = self.head();
        assert!(i <= head.count && bytes <= STRING_BYTES_MAX, "a page's strings are short");
        let width = head.width_with(raw);
        if head.count == 0 {
            head.common = raw;
        }
        let to_front = i == 0 && head.count > 0;
        let has_gap = match to_front {
            _ if head.count == 0 => false,
            true => head.front - HEAD_BYTES >= bytes && self.buffer.len() - head.lens_end >= width,
            false => head.lens_start() - head.end >= bytes + width,
        };
        if !has_gap || width != head.width {
            let gap = if to_front { Gap::Front(bytes) } else { Gap::Back };
            head = self.make_room(head, bytes, width, gap, spare);
        }
        let at = if to_front {
            head.front -= bytes;
            head.lens_end += width;
            head.front
        } else {
            let at = if i == head.count { head.end } else { self.offset(i) };
            self.buffer.copy_within(at..head.end, at + bytes);
            head.end += bytes;
            let lens = head.lens_start();
            self.buffer.copy_within(lens..head.lens_end - i * width, lens - width);
            at
        };
        self.buffer[at..at + first.len()].copy_from_slice(first);
        self.buffer[at + first.len()..at + bytes].copy_from_slice(second);
        head.count += 1;
        self.put_raw(&head, i, raw);
        self.put_head(head);
    }
    /// Removes the strings of `range`. If more than half of the allocation is free then, it shrinks, unless
    /// `keep_room` is set.
    pub(crate) fn remove(&mut self, range: Range<usize>, keep_room: bool) {
        let mut head = self.head();
        assert!(range.start <= range.end && range.end <= head.count, "strings that are there");
        let removed = range.len();
        if removed == head.count {
            *self = Page::default();
            return;
        }
        let bytes = self.sum(&head, range.clone());
        if range.start == 0 {
            head.front += bytes;
            head.lens_end -= removed * head.width;
        } else {
            let at = self.offset(range.start);
            self.buffer.copy_within(at + bytes..head.end, at);
            let lens = head.lens_start();
            let behind = lens..head.lens_end - range.end * head.width;
            self.buffer.copy_within(behind, lens + removed * head.width);
            head.end -= bytes;
        }
        head.count -= removed;
        let used = head.used();
        if !keep_room && used < self.buffer.len() / 2 && self.buffer.len() > SHRUNK_BYTES_MIN {
            self.lay_out(head, head.width, class_bytes(used), 0, 0);
        } else {
            self.put_head(head);
        }
    }
    /// Replaces string `i`. The parameters are those of [`Page::insert`].
    pub(crate) fn replace(&mut self, i: usize, parts: [&[u8]; 2], outside: bool, spare: usize) {
        let head = self.head();
        if self.raw(&head, i) != raw_of(parts[0].len() + parts[1].len(), outside) {
            self.remove(i..i + 1, false);
            return self.insert(i, parts, outside, spare);
        }
        let at = self.offset(i);
        let middle = at + parts[0].len();
        self.buffer[at..middle].copy_from_slice(parts[0]);
        self.buffer[middle..middle + parts[1].len()].copy_from_slice(parts[1]);
    }
    /// Moves the strings from string `i` on to a new page. Both pages get the smallest possible allocation.
    pub(crate) fn split_off(&mut self, i: usize) -> Page {
        let mut right = Page::default();
        right.append_range(self, i..self.len());
        self.remove(i..self.len(), true);
        if self.len() > 0 {
            let head = self.head();
            self.lay_out(head, head.width, class_bytes(head.used()), 0, 0);
        }
        right
    }
    /// Appends the strings of another page.
    pub(crate) fn append(&mut self, other: &Page) {
        self.append_range(other, 0..other.len());
    }
    /// The index at which to split the page into two parts with about equally many bytes, or with equally many empty
    /// strings: at least 1, and below `len`.
    pub(crate) fn middle(&self) -> usize {
        let head = self.head();
        let half = (head.end - head.front + head.count * head.width) / 2;
        let mut bytes = 0;
        let middle = (0..head.count).position(|i| {
            bytes += self.bytes_of(i) + head.width;
            bytes > half
        });
        middle.unwrap_or(head.count / 2).clamp(1, (head.count - 1).max(1))
    }

    fn append_range(&mut self, other: &Page, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let (mut head, from) = (self.head(), other.head());
        if head.count == 0 {
            head.common = from.common;
        }
        let width = match from.width {
            0 => head.width_with(from.common),
            _ if head.count == 0 => from.width,
            width if head.width == 0 => width.max(width_of(head.common)),
            width => width.max(head.width),
        };
        let bytes = other.sum(&from, range.clone());
        let used = HEAD_BYTES + head.end - head.front + bytes + (head.count + range.len()) * width;
        head = self.lay_out(head, width, class_bytes(used), 0, 0);
        let at = other.offset(range.start);
        self.buffer[head.end..head.end + bytes].copy_from_slice(&other.buffer[at..at + bytes]);
        head.end += bytes;
        let first = head.count;
        head.count += range.len();
        for i in range.clone() {
            self.put_raw(&head, first + i - range.start, other.raw(&from, i));
        }
        self.put_head(head);
    }
    /// Makes room for one more string of `bytes` bytes, where `gap` says.
    #[cold]
    fn make_room(&mut self, head: Head, bytes: usize, width: usize, gap: Gap, spare: usize) -> Head {
        let kept = HEAD_BYTES + head.end - head.front + head.count * width;
        let needed = bytes + width;
        let grows = kept + needed > self.buffer.len();
        let capacity = if grows { class_bytes(kept + needed + spare) } else { self.buffer.len() };
        let free = capacity - kept;
        let (front, lens) = match gap {
            Gap::Back => (0, 0),
            Gap::Front(_) => {
                // If the allocation does not grow, leave half of the free room behind the strings.
                let share = if grows { free } else { (free / 2).max(needed) };
                let lens = share * width / needed;
                (share - lens, lens)
            }
        };
        self.lay_out(head, width, capacity, front, lens)
    }
    /// Copies everything to a new allocation, with spare room of `front` bytes before the strings and of `lens`
    /// bytes after the lengths.
    fn lay_out(&mut self, old: Head, width: usize, capacity: usize, front: usize, lens: usize) -> Head {
        let mut buffer = vec![0; capacity].into_boxed_slice();
        let start = HEAD_BYTES + front;
        let end = start + old.end - old.front;
        let head = Head {
            front: start,
            end,
            lens_end: capacity - lens,
            count: old.count,
            width,
            common: old.common,
        };
        if old.count > 0 {
            buffer[start..end].copy_from_slice(&self.buffer[old.front..old.end]);
        }
        if old.count > 0 && width == old.width {
            let lens = &self.buffer[old.lens_start()..old.lens_end];
            buffer[head.lens_start()..head.lens_end].copy_from_slice(lens);
        }
        let narrow = std::mem::replace(self, Page { buffer });
        if width != old.width {
            (0..old.count).for_each(|i| self.put_raw(&head, i, narrow.raw(&old, i)));
        }
        self.put_head(head);
        head
    }
    #[inline]
    fn head(&self) -> Head {
        let Some(head) = self.buffer.first_chunk::<HEAD_BYTES>() else {
            let (at, lens_end) = (HEAD_BYTES, HEAD_BYTES);
            return Head { front: at, end: at, lens_end, count: 0, width: 0, common: 0 };
        };
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let (front, end, third, count) = (word(0) as usize, word(4) as usize, word(8) as usize, word(12));
        if count & EVEN != 0 {
            let (lens_end, count) = (self.buffer.len(), (count & !EVEN) as usize);
            return Head { front, end, lens_end, count, width: 0, common: third };
        }
        let width = 1 + usize::from(count & WIDE != 0);
        Head { front, end, lens_end: third, count: (count & !WIDE) as usize, width, common: 0 }
    }
    #[inline]
    fn put_head(&mut self, head: Head) {
        let (third, form) = match head.width {
            0 => (head.common, EVEN),
            1 => (head.lens_end, 0),
            _ => (head.lens_end, WIDE),
        };
        let words = [head.front as u32, head.end as u32, third as u32, head.count as u32 | form];
        for (to, word) in self.buffer[..HEAD_BYTES].chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
    }
    /// The stored length of string `i`, with the flag [`OUTSIDE`].
    #[inline]
    fn raw(&self, head: &Head, i: usize) -> usize {
        assert!(i < head.count, "a string that is there");
        let at = head.lens_end - (i + 1) * head.width;
        match head.width {
            0 => head.common,
            1 => usize::from(self.buffer[at]),
            _ => usize::from(u16::from_le_bytes([self.buffer[at], self.buffer[at + 1]])),
        }
    }
    #[inline]
    fn put_raw(&mut self, head: &Head, i: usize, raw: usize) {
        let at = head.lens_end - (i + 1) * head.width;
        match head.width {
            0 => debug_assert_eq!(raw, head.common, "an even page"),
            1 => self.buffer[at] = raw as u8,
            _ => self.buffer[at..at + 2].copy_from_slice(&(raw as u16).to_le_bytes()),
        }
    }
    /// Sum of the lengths of the strings in `range`.
    #[inline]
    fn sum(&self, head: &Head, range: Range<usize>) -> usize {
        if head.width == 0 {
            return range.len() * (head.common & STRING_BYTES_MAX);
        }
        if range.is_empty() {
            return 0;
        }
        if head.width == 1 {
            return sum_of_bytes(&self.buffer, head.lens_end - range.end..head.lens_end - range.start);
        }
        let lens = &self.buffer[head.lens_end - range.end * 2..head.lens_end - range.start * 2];
        let len = |len: &[u8]| u32::from(u16::from_le_bytes([len[0], len[1]]) & STRING_BYTES_MAX as u16);
        lens.chunks_exact(2).map(len).sum::<u32>() as usize
    }
}

/// Iterator over the strings of a page.
#[derive(Clone)]
pub(crate) struct Strings<'a> {
    page: &'a Page,
    at: usize,
    offset: usize,
    forwards: bool,
}

impl<'a> Iterator for Strings<'a> {
    type Item = (&'a [u8], bool);
    #[inline]
    fn next(&mut self) -> Option<(&'a [u8], bool)> {
        if self.forwards {
            let string = (self.at < self.page.len()).then(|| self.page.at(self.at, self.offset))?;
            self.at += 1;
            self.offset += string.0.len();
            return Some(string);
        }
        self.at = self.at.checked_sub(1)?;
        self.offset -= self.page.bytes_of(self.at);
        Some(self.page.at(self.at, self.offset))
    }
}

/// The sum of the bytes in `range`, eight at a time. Fewer than eight bytes at the end are also summed as one
/// word, because such an end is common: a search halves its range each time.
#[inline]
fn sum_of_bytes(buffer: &[u8], range: Range<usize>) -> usize {
    /// Mask of every second byte.
    const EVERY_OTHER: u64 = 0x00ff_00ff_00ff_00ff;
    let pairs = |word: u64| (word & EVERY_OTHER) + (word >> 8 & EVERY_OTHER);
    let lanes = |sums: u64| {
        let sums = (sums & 0x0000_ffff_0000_ffff) + (sums >> 16 & 0x0000_ffff_0000_ffff);
        ((sums & 0xffff_ffff) + (sums >> 32)) as usize
    };
    let (words, rest) = buffer[range.clone()].as_chunks::<8>();
    let mut sum = 0;
    for some in words.chunks(SUMMED_WORDS) {
        sum += lanes(some.iter().map(|word| pairs(u64::from_le_bytes(*word))).sum());
    }
    if !rest.is_empty() {
        // The head is before the lengths, so at least eight bytes precede the end of the range.
        let odd = 8 * (8 - rest.len());
        let word = buffer[..range.end].last_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        sum += lanes(pairs(word >> odd));
    }
    sum
}

/// Number of bytes that store this length.
#[inline]
fn width_of(raw: usize) -> usize {
    if raw > usize::from(u8::MAX) { 2 } else { 1 }
}
fn raw_of(bytes: usize, outside: bool) -> usize {
    bytes | if outside { OUTSIDE } else { 0 }
}

#[cfg(test)]
mod tests;
