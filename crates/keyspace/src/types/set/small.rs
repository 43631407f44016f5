//! [`Small`]: the members of a small set in one allocation. They are either integers of 2, 4 or 8 bytes each in
//! ascending order, with binary search, or short strings in the order of insertion, with linear search.
//!
//! Layout: offset of the end of the members, 4 bytes little-endian; bytes per integer, 1 byte, 0 for strings;
//! number of strings, 3 bytes. Then the integers, little-endian, or per string its length in one byte and its
//! bytes. The rest of the allocation is spare room.

use super::Member;

const HEAD_BYTES: usize = 8;
/// Possible numbers of bytes per integer. A set uses the smallest number that fits all members, and never
/// reduces it later.
const WIDTHS: [usize; 3] = [2, 4, 8];

/// Members in one allocation. An empty set of integers has no allocation.
#[derive(Debug, Clone, Default)]
pub(super) struct Small {
    bytes: Box<[u8]>,
}

impl Small {
    /// An empty set of strings.
    pub(super) fn strings() -> Small {
        let mut small = Small::default();
        small.reserve(0);
        small.bytes[4] = 0;
        small
    }
    pub(super) fn is_integers(&self) -> bool {
        self.width() > 0
    }
    pub(super) fn len(&self) -> usize {
        match self.width() {
            0 => u32::from_le_bytes([self.bytes[5], self.bytes[6], self.bytes[7], 0]) as usize,
            width => self.end().saturating_sub(HEAD_BYTES) / width,
        }
    }
    /// Number of bytes of the allocation that are in use.
    pub(super) fn used_bytes(&self) -> usize {
        self.end()
    }
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.len()
    }
    /// True when both sets store equal members in the same encoding.
    pub(super) fn is_same(&self, other: &Small) -> bool {
        self.bytes.get(..self.end()) == other.bytes.get(..other.end())
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = Member<'_>> {
        let width = self.width();
        let mut at = HEAD_BYTES;
        std::iter::from_fn(move || {
            if at >= self.end() {
                return None;
            }
            let member = match width {
                0 => {
                    let to = at + 1 + usize::from(self.bytes[at]);
                    let member = Member::Bytes(&self.bytes[at + 1..to]);
                    at = to;
                    member
                }
                width => {
                    at += width;
                    Member::Int(read(&self.bytes[at - width..at]))
                }
            };
            Some(member)
        })
    }
    pub(super) fn nth(&self, n: usize) -> Option<Member<'_>> {
        match self.width() {
            0 => self.iter().nth(n),
            _ => (n < self.len()).then(|| Member::Int(self.int(n))),
        }
    }
    /// Prefetches the first bytes of the allocation.
    #[inline]
    pub(super) fn prefetch(&self) {
        strand_chain::prefetch(&*self.bytes, 2 * strand_chain::CACHE_LINE_BYTES);
    }

    /// Index of an integer. `Err`: the index at which to insert it.
    pub(super) fn find_int(&self, n: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        // Compare with the largest member first, because new integers are usually larger.
        if high > 0 && self.int(high - 1) < n {
            return Err(high);
        }
        while low < high {
            let middle = low.midpoint(high);
            match self.int(middle).cmp(&n) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }
    /// Adds an integer to a set of integers. Returns true when it is new.
    pub(super) fn add_int(&mut self, n: i64) -> bool {
        let Err(at) = self.find_int(n) else { return false };
        self.widen(width_of(n));
        let width = self.width();
        self.reserve(width);
        let (from, end) = (HEAD_BYTES + at * width, self.end());
        self.bytes.copy_within(from..end, from + width);
        self.bytes[from..from + width].copy_from_slice(&n.to_le_bytes()[..width]);
        self.set_end(end + width);
        true
    }
    /// Removes an integer from a set of integers. Returns true when it existed.
    pub(super) fn remove_int(&mut self, n: i64) -> bool {
        let Ok(at) = self.find_int(n) else { return false };
        let width = self.width();
        self.cut(HEAD_BYTES + at * width, width);
        true
    }

    /// Offset of the entry of the string `member`.
    pub(super) fn find(&self, member: &[u8]) -> Option<usize> {
        let (mut at, end) = (HEAD_BYTES, self.end());
        while at < end {
            let to = at + 1 + usize::from(self.bytes[at]);
            if self.bytes[at + 1..to] == *member {
                return Some(at);
            }
            at = to;
        }
        None
    }
    /// Adds a new string to a set of strings.
    ///
    /// # Panics
    /// Panics if `member` has more than 255 bytes.
    pub(super) fn push(&mut self, member: &[u8]) {
        self.reserve(1 + member.len());
        let end = self.end();
        self.bytes[end] = u8::try_from(member.len()).expect("short strings are packed");
        self.bytes[end + 1..end + 1 + member.len()].copy_from_slice(member);
        self.set_end(end + 1 + member.len());
        self.set_count(self.len() + 1);
    }
    /// Removes a string from a set of strings. Returns true when it existed.
    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(at) = self.find(member) else { return false };
        self.set_count(self.len() - 1);
        self.cut(at, 1 + member.len());
        true
    }

    fn int(&self, n: usize) -> i64 {
        let width = self.width();
        let at = HEAD_BYTES + n * width;
        read(&self.bytes[at..at + width])
    }
    /// Number of bytes per integer; 0 in a set of strings.
    fn width(&self) -> usize {
        self.bytes.get(4).map_or(WIDTHS[0], |width| usize::from(*width))
    }
    fn end(&self) -> usize {
        match self.bytes.first_chunk::<4>() {
            Some(end) => u32::from_le_bytes(*end) as usize,
            None => 0,
        }
        .max(HEAD_BYTES)
        .min(self.bytes.len())
    }
    fn set_end(&mut self, end: usize) {
        self.bytes[..4].copy_from_slice(&(end as u32).to_le_bytes());
    }
    fn set_count(&mut self, count: usize) {
        self.bytes[5..8].copy_from_slice(&(count as u32).to_le_bytes()[..3]);
    }
    /// Stores all integers with `width` bytes each, if they have fewer now.
    fn widen(&mut self, width: usize) {
        let old = self.width();
        if width <= old {
            return;
        }
        let ints: Vec<i64> = (0..self.len()).map(|n| self.int(n)).collect();
        let mut wider = Small::default();
        wider.reserve(ints.len() * width);
        wider.bytes[4] = width as u8;
        for (at, n) in ints.iter().enumerate() {
            let from = HEAD_BYTES + at * width;
            wider.bytes[from..from + width].copy_from_slice(&n.to_le_bytes()[..width]);
        }
        wider.set_end(HEAD_BYTES + ints.len() * width);
        *self = wider;
    }
    /// Removes `bytes` bytes at `at`. Shrinks the allocation if more than half of it is free then.
    fn cut(&mut self, at: usize, bytes: usize) {
        let end = self.end();
        self.bytes.copy_within(at + bytes..end, at);
        self.set_end(end - bytes);
        if self.end() < self.bytes.len() / 2 {
            self.reallocate(self.end());
        }
    }
    /// Makes room for `more` bytes of members.
    fn reserve(&mut self, more: usize) {
        let used = self.end().max(HEAD_BYTES);
        if self.bytes.len() < used + more {
            // Do not double the size as `Vec` does, because most sets are filled once and kept.
            self.reallocate(used + more + used / 8);
        }
    }
    /// Moves to a new allocation of `bytes` bytes, which must be enough.
    fn reallocate(&mut self, bytes: usize) {
        let mut new = vec![0; bytes].into_boxed_slice();
        let end = self.end();
        if self.bytes.is_empty() {
            new[..4].copy_from_slice(&(HEAD_BYTES as u32).to_le_bytes());
            new[4] = WIDTHS[0] as u8;
        } else {
            new[..end].copy_from_slice(&self.bytes[..end]);
        }
        self.bytes = new;
    }
}

/// The smallest number of bytes that hold this integer.
fn width_of(n: i64) -> usize {
    if i16::try_from(n).is_ok() {
        WIDTHS[0]
    } else if i32::try_from(n).is_ok() {
        WIDTHS[1]
    } else {
        WIDTHS[2]
    }
}

fn read(bytes: &[u8]) -> i64 {
    match *bytes {
        [a, b] => i16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => i32::from_le_bytes([a, b, c, d]).into(),
        _ => i64::from_le_bytes(bytes.try_into().expect("one of the widths")),
    }
}
