//! The layout of an item in a segment's heap. Key, value and metadata are stored next to each other, without
//! padding.
//!
//! | part | bytes | when |
//! |---|---|---|
//! | flags | 1 | always |
//! | usage ([`crate::usage`]) | 3 | `USAGE` |
//! | expiry, unix ms, little-endian | 8 | `EXPIRY` |
//! | length of the key, 7 bits per byte, low bits first | 1-2 | always |
//! | key | | always; empty when it lies outside |
//! | value: an integer, little-endian | 8 | kind `INT` |
//! | value: index of an outside value, little-endian | 4 | kind `OUTSIDE` |
//! | value: its length (encoded like the key's) and its bytes | | kind `BYTES` |
//!
//! What lies *outside*, in the segment's list of outside values: a key or value longer than [`INLINE_BYTES_MAX`],
//! and a value that is not a string.

use std::ops::Range;

/// Maximum length of a key, and of a value, in the heap. A split copies a segment's heap: 896 items of twice this
/// size are 920 kB, which takes about 100 us. A longer value has a blob of its own, which replies can share.
pub(crate) const INLINE_BYTES_MAX: usize = 512;

const KIND: u8 = 0b11;
const BYTES: u8 = 0;
const INT: u8 = 1;
const OUTSIDE: u8 = 2;
const EDITED: u8 = 1 << 2;
const KEY_OUTSIDE: u8 = 1 << 3;
const USAGE: u8 = 1 << 4;
const EXPIRY: u8 = 1 << 5;
/// Flag of an entry that is garbage. Such an entry keeps its length, so that a walk over the heap can skip it.
const GARBAGE: u8 = 1 << 6;

const USAGE_BYTES: usize = 3;
const EXPIRY_BYTES: usize = 8;
const INT_BYTES: usize = 8;
const INDEX_BYTES: usize = 4;

/// The part of a value that is stored in the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InlineValue<'a> {
    /// The value is an integer.
    Int(i64),
    /// At most [`INLINE_BYTES_MAX`] bytes. The flag is true when a command edited them in place.
    Bytes(&'a [u8], bool),
    /// Index of a value in the list of outside values. The flag is true when the key lies outside, too.
    Outside(u32, bool),
}

/// All parts of an item that are stored in the heap.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryParts<'a> {
    /// The key. Not stored in the heap when it lies outside.
    pub(super) key: &'a [u8],
    /// 24 bits of usage. `None` in tables that do not keep usage.
    pub(super) usage: Option<u32>,
    /// Expiry in unix milliseconds; `i64::MAX` for never.
    pub(super) expiry_ms: i64,
    pub(super) value: InlineValue<'a>,
}

impl EntryParts<'_> {
    fn flags(&self) -> u8 {
        let kind = match self.value {
            InlineValue::Int(_) => INT,
            InlineValue::Bytes(_, edited) => BYTES | if edited { EDITED } else { 0 },
            InlineValue::Outside(_, key_outside) => OUTSIDE | if key_outside { KEY_OUTSIDE } else { 0 },
        };
        kind | if self.usage.is_some() { USAGE } else { 0 }
            | if self.expiry_ms != i64::MAX { EXPIRY } else { 0 }
    }
    /// Appends the entry to the heap.
    #[inline]
    pub(super) fn push(&self, heap: &mut Vec<u8>) {
        heap.push(self.flags());
        if let Some(usage) = self.usage {
            heap.extend_from_slice(&usage.to_le_bytes()[..USAGE_BYTES]);
        }
        if self.expiry_ms != i64::MAX {
            heap.extend_from_slice(&self.expiry_ms.to_le_bytes());
        }
        match self.value {
            InlineValue::Outside(_, true) => push_len(heap, 0),
            _ => {
                push_len(heap, self.key.len());
                heap.extend_from_slice(self.key);
            }
        }
        match self.value {
            InlineValue::Int(n) => heap.extend_from_slice(&n.to_le_bytes()),
            InlineValue::Outside(index, _) => heap.extend_from_slice(&index.to_le_bytes()),
            InlineValue::Bytes(bytes, _) => {
                push_len(heap, bytes.len());
                heap.extend_from_slice(bytes);
            }
        }
    }
    /// Maximum number of bytes that [`EntryParts::push`] appends.
    #[inline]
    pub(super) fn bytes_max(&self) -> usize {
        const LENGTHS_BYTES: usize = 4;
        let value = match self.value {
            InlineValue::Bytes(bytes, _) => bytes.len(),
            _ => INT_BYTES,
        };
        1 + USAGE_BYTES + EXPIRY_BYTES + LENGTHS_BYTES + self.key.len().min(INLINE_BYTES_MAX) + value
    }
}

/// The part of an entry before the key's length. Its place follows from the flags alone, so reading and writing it takes
/// a third of the instructions of reading the whole [`EntryLayout`] (20 of 60 each, and a GET needs it twice).
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryMetadata {
    flags: u8,
    start: usize,
}

impl EntryMetadata {
    /// The metadata of the entry that starts at `start`.
    #[inline]
    pub(super) fn of(heap: &[u8], start: usize) -> EntryMetadata {
        EntryMetadata { flags: heap[start], start }
    }
    /// Expiry in unix milliseconds; `i64::MAX` for never.
    #[inline]
    pub(super) fn expiry_ms(self, heap: &[u8]) -> i64 {
        if self.flags & EXPIRY == 0 {
            return i64::MAX;
        }
        let at = self.start + metadata_bytes(self.flags) - EXPIRY_BYTES;
        i64::from_le_bytes(to_array(&heap[at..at + EXPIRY_BYTES]))
    }
    /// 24 bits of usage; 0 when the entry keeps no usage.
    #[inline]
    pub(super) fn usage(self, heap: &[u8]) -> u32 {
        if self.flags & USAGE == 0 {
            return 0;
        }
        let at = self.start + 1;
        u32::from_le_bytes([heap[at], heap[at + 1], heap[at + 2], 0])
    }
    /// True when the entry keeps usage.
    pub(super) fn has_usage(self) -> bool {
        self.flags & USAGE != 0
    }
    /// Overwrites the usage, if it is kept.
    #[inline]
    pub(super) fn set_usage(self, heap: &mut [u8], usage: u32) {
        if self.flags & USAGE != 0 {
            let at = self.start + 1;
            heap[at..at + USAGE_BYTES].copy_from_slice(&usage.to_le_bytes()[..USAGE_BYTES]);
        }
    }
    /// True when the entry is garbage.
    #[inline]
    pub(super) fn is_garbage(self) -> bool {
        self.flags & GARBAGE != 0
    }
    /// Marks the entry as garbage.
    #[inline]
    pub(super) fn mark_garbage(self, heap: &mut [u8]) {
        heap[self.start] |= GARBAGE;
    }
}

/// Where the parts of an entry are in the heap.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryLayout {
    pub(super) metadata: EntryMetadata,
    key_start: usize,
    key_end: usize,
    value_start: usize,
    end: usize,
}

impl EntryLayout {
    /// Reads the layout of the entry that starts at `start`.
    #[inline]
    pub(super) fn of(heap: &[u8], start: usize) -> EntryLayout {
        let metadata = EntryMetadata::of(heap, start);
        let key = length_prefixed(heap, start + metadata_bytes(metadata.flags));
        let value = match metadata.flags & KIND {
            INT => key.end..key.end + INT_BYTES,
            OUTSIDE => key.end..key.end + INDEX_BYTES,
            _ => length_prefixed(heap, key.end),
        };
        EntryLayout {
            metadata,
            key_start: key.start,
            key_end: key.end,
            value_start: value.start,
            end: value.end,
        }
    }
    /// Range of the key's bytes in the heap.
    #[inline]
    pub(super) fn key(&self) -> Range<usize> {
        self.key_start..self.key_end
    }
    /// Range of the value's bytes, without the length before them.
    #[inline]
    fn value_range(&self) -> Range<usize> {
        self.value_start..self.end
    }
    /// Range of the whole entry in the heap.
    #[inline]
    pub(super) fn range(&self) -> Range<usize> {
        self.metadata.start..self.end
    }
    /// The part of the value that lies in the heap.
    #[inline]
    pub(super) fn value<'a>(&self, heap: &'a [u8]) -> InlineValue<'a> {
        let value = &heap[self.value_range()];
        match self.metadata.flags & KIND {
            INT => InlineValue::Int(i64::from_le_bytes(to_array(value))),
            OUTSIDE => InlineValue::Outside(
                u32::from_le_bytes(to_array(value)),
                self.metadata.flags & KEY_OUTSIDE != 0,
            ),
            _ => InlineValue::Bytes(value, self.metadata.flags & EDITED != 0),
        }
    }
    /// Overwrites the index of the outside value.
    pub(super) fn set_outside_index(&self, heap: &mut [u8], index: u32) {
        debug_assert_eq!(self.metadata.flags & KIND, OUTSIDE);
        heap[self.value_range()].copy_from_slice(&index.to_le_bytes());
    }
    /// Overwrites the entry by `new`, which has an equal key, if both take equal room. Otherwise changes nothing
    /// and returns false.
    #[inline]
    pub(super) fn overwrite(&self, heap: &mut [u8], new: &EntryParts<'_>) -> bool {
        let same = match new.value {
            InlineValue::Bytes(bytes, _) => {
                bytes.len() == self.value_range().len() && self.metadata.flags & KIND == BYTES
            }
            _ => true,
        };
        // Only the flag for edited bytes may differ, because all other flags decide the layout.
        if !same || (self.metadata.flags ^ new.flags()) & !EDITED != 0 {
            return false;
        }
        heap[self.metadata.start] = new.flags();
        if let Some(usage) = new.usage {
            self.metadata.set_usage(heap, usage);
        }
        if new.expiry_ms != i64::MAX {
            let at = self.metadata.start + metadata_bytes(self.metadata.flags) - EXPIRY_BYTES;
            heap[at..at + EXPIRY_BYTES].copy_from_slice(&new.expiry_ms.to_le_bytes());
        }
        let value = &mut heap[self.value_range()];
        match new.value {
            InlineValue::Int(n) => value.copy_from_slice(&n.to_le_bytes()),
            InlineValue::Outside(index, _) => value.copy_from_slice(&index.to_le_bytes()),
            InlineValue::Bytes(bytes, _) => value.copy_from_slice(bytes),
        }
        true
    }
}

/// True when the entry at `start` has this key in the heap. `None` when the entry's key lies outside.
#[inline]
pub(super) fn key_is(heap: &[u8], start: usize, key: &[u8]) -> Option<bool> {
    let flags = heap[start];
    if flags & KEY_OUTSIDE != 0 {
        return None;
    }
    let range = length_prefixed(heap, start + metadata_bytes(flags));
    Some(heap[range] == *key)
}

/// Number of bytes in an entry before the key's length.
#[inline]
fn metadata_bytes(flags: u8) -> usize {
    let with = |flag: u8, bytes: usize| if flags & flag != 0 { bytes } else { 0 };
    1 + with(USAGE, USAGE_BYTES) + with(EXPIRY, EXPIRY_BYTES)
}
fn push_len(heap: &mut Vec<u8>, len: usize) {
    debug_assert!(len <= INLINE_BYTES_MAX);
    if len >= 0x80 {
        heap.push(len as u8 | 0x80);
        heap.push((len >> 7) as u8);
    } else {
        heap.push(len as u8);
    }
}
/// Range of the bytes that follow their encoded length at `at`.
#[inline]
fn length_prefixed(heap: &[u8], at: usize) -> Range<usize> {
    let low = usize::from(heap[at]);
    if low < 0x80 {
        return at + 1..at + 1 + low;
    }
    let len = low & 0x7f | usize::from(heap[at + 1]) << 7;
    at + 2..at + 2 + len
}
#[inline]
fn to_array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("ranges of entries have their kind's length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_every_form_come_back() {
        let long = [7u8; INLINE_BYTES_MAX];
        let values = [
            InlineValue::Int(i64::MIN),
            InlineValue::Bytes(b"", false),
            InlineValue::Bytes(&long[..127], true),
            InlineValue::Bytes(&long[..128], false),
            InlineValue::Bytes(&long, false),
            InlineValue::Outside(7, false),
            InlineValue::Outside(u32::MAX, true),
        ];
        let mut heap = vec![0xaa; 3];
        for key in [&b""[..], b"key", &long[..128], &long] {
            for usage in [None, Some(0xabcdef)] {
                for expiry_ms in [i64::MAX, i64::MIN, 5] {
                    for value in values {
                        let new = EntryParts { key, usage, expiry_ms, value };
                        let start = heap.len();
                        new.push(&mut heap);
                        assert!(heap.len() - start <= new.bytes_max());
                        let layout = EntryLayout::of(&heap, start);
                        assert_eq!(layout.range(), start..heap.len());
                        assert_eq!(layout.value(&heap), value);
                        assert_eq!(layout.metadata.expiry_ms(&heap), expiry_ms);
                        assert_eq!(layout.metadata.usage(&heap), usage.unwrap_or(0));
                        let inline = !matches!(value, InlineValue::Outside(_, true));
                        assert_eq!(key_is(&heap, start, key), inline.then_some(true));
                        assert_eq!(key_is(&heap, start, b"other"), inline.then_some(false));
                        assert_eq!(&heap[layout.key()], if inline { key } else { b"" });
                    }
                }
            }
        }
    }

    #[test]
    fn overwrite_needs_an_equal_layout() {
        let new = |value, expiry_ms| EntryParts { key: b"k", usage: Some(1), expiry_ms, value };
        let mut heap = Vec::new();
        new(InlineValue::Bytes(b"abc", false), 9).push(&mut heap);
        let before = heap.clone();
        let layout = EntryLayout::of(&heap, 0);
        for other in [
            new(InlineValue::Bytes(b"ab", false), 9),
            new(InlineValue::Bytes(b"abc", false), i64::MAX),
            new(InlineValue::Int(1), 9),
            new(InlineValue::Outside(1, false), 9),
        ] {
            assert!(!layout.overwrite(&mut heap, &other));
            assert_eq!(heap, before);
        }
        assert!(layout.overwrite(
            &mut heap,
            &EntryParts { usage: Some(2), ..new(InlineValue::Bytes(b"xyz", true), 10) }
        ));
        let layout = EntryLayout::of(&heap, 0);
        assert_eq!(
            (layout.value(&heap), layout.metadata.expiry_ms(&heap)),
            (InlineValue::Bytes(b"xyz", true), 10)
        );
        assert_eq!(layout.metadata.usage(&heap), 2);
        layout.metadata.set_usage(&mut heap, 0x123456);
        assert_eq!(EntryMetadata::of(&heap, 0).usage(&heap), 0x123456);
        assert_eq!(key_is(&heap, 0, b"k"), Some(true));
    }
}
