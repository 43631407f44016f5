//! Redis's listpack: a sequence of small integers and byte strings that can be read from both ends. The blocks of a
//! stream are listpacks. So they have the sizes that they have in Redis, are split where Redis splits them, and can
//! be dumped unchanged.
//!
//! Layout: total bytes (4, little-endian), number of items (2; 65535 means "many"), the items, 0xff. An item is an
//! integer, or a string's header and bytes. After the item comes its own length, in groups of 7 bits that are read
//! backwards.
//!
//! Reading never panics. A walk ends at a truncated item. [`check`] tells whether all items are complete.

use crate::types::string::parse_int;

/// Number of bytes before the first item.
pub(super) const HEAD_BYTES: usize = 6;
const END: u8 = 0xff;
/// The header's number of items stops at this value: it means "this many items or more".
const MANY: u16 = u16::MAX;
/// Maximum number of bytes of an integer item: its kind, its 8 bytes, and the length at its end.
const INT_BYTES_MAX: usize = 1 + 8 + 1;
/// Maximum number of bytes of the length at the end of an item.
const BACK_MAX: usize = 5;

/// One item of a listpack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An integer, or a string that is the text of an integer.
    Int(i64),
    /// The item has any other bytes.
    Text(&'a [u8]),
}

impl Item<'_> {
    /// True when the item equals `bytes`, which a client has sent.
    pub(super) fn is(&self, bytes: &[u8]) -> bool {
        match self {
            Item::Int(n) => parse_int(bytes) == Some(*n),
            Item::Text(text) => *text == bytes,
        }
    }
    /// The bytes that a client sends for this item.
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Item::Int(n) => n.to_string().into_bytes(),
            Item::Text(text) => text.to_vec(),
        }
    }
}

/// An empty listpack.
pub(super) fn new() -> Vec<u8> {
    vec![HEAD_BYTES as u8 + 1, 0, 0, 0, 0, 0, END]
}

/// Appends items to a listpack. Dropping it writes the header.
pub(super) struct Appender<'l> {
    list: &'l mut Vec<u8>,
    items: usize,
}

impl<'l> Appender<'l> {
    pub(super) fn new(list: &'l mut Vec<u8>) -> Appender<'l> {
        list.pop();
        Appender { list, items: 0 }
    }
    pub(super) fn int(&mut self, n: i64) {
        let (item, len) = int_item(n);
        self.list.extend_from_slice(&item[..len]);
        self.items += 1;
    }
    /// Appends bytes. They are stored as an integer if they are the text of one.
    pub(super) fn text(&mut self, bytes: &[u8]) {
        if let Some(n) = parse_int(bytes) {
            return self.int(n);
        }
        let before = self.list.len();
        match bytes.len() {
            len if len < 64 => self.list.push(0x80 | len as u8),
            len if len < 4096 => self.list.extend([0xe0 | (len >> 8) as u8, len as u8]),
            len => {
                self.list.push(0xf0);
                self.list.extend((len as u32).to_le_bytes());
            }
        }
        self.list.extend_from_slice(bytes);
        let len = self.list.len() - before;
        put_back(self.list, len);
        self.items += 1;
    }
}

impl Drop for Appender<'_> {
    fn drop(&mut self) {
        self.list.push(END);
        let items = u16::from_le_bytes([self.list[4], self.list[5]]);
        // Once the number in the header is [`MANY`], it never changes.
        let items = usize::from(items).saturating_add(self.items).min(usize::from(MANY)) as u16;
        self.list[4..6].copy_from_slice(&items.to_le_bytes());
        put_total(self.list);
    }
}

/// The item at `at`, and the offset of the next item. `None` at the end, or when the item is not complete.
#[inline]
pub(super) fn read(list: &[u8], at: usize) -> Option<(Item<'_>, usize)> {
    let rest = list.get(at..)?;
    let le = |from: usize, bytes: usize| -> Option<i64> {
        let mut wide = [0; 8];
        wide[8 - bytes..].copy_from_slice(rest.get(from..from + bytes)?);
        // The value is in the upper bytes, so that the right shift extends its sign.
        Some(i64::from_le_bytes(wide) >> (64 - 8 * bytes))
    };
    let first = *rest.first()?;
    let (item, len) = match first {
        0..0x80 => (Item::Int(first.into()), 1),
        0x80..0xc0 => text(rest, 1, usize::from(first & 0x3f))?,
        0xc0..0xe0 => {
            let raw = i64::from(first & 0x1f) << 8 | i64::from(*rest.get(1)?);
            (Item::Int(if raw >= 1 << 12 { raw - (1 << 13) } else { raw }), 2)
        }
        0xe0..0xf0 => text(rest, 2, usize::from(first & 0x0f) << 8 | usize::from(*rest.get(1)?))?,
        0xf0 => {
            let len = rest.get(1..5)?.try_into().ok()?;
            text(rest, 5, u32::from_le_bytes(len) as usize)?
        }
        0xf1 => (Item::Int(le(1, 2)?), 3),
        0xf2 => (Item::Int(le(1, 3)?), 4),
        0xf3 => (Item::Int(le(1, 4)?), 5),
        0xf4 => (Item::Int(le(1, 8)?), 9),
        _ => return None,
    };
    Some((item, at + len + back_bytes(len)))
}

fn text(rest: &[u8], head: usize, len: usize) -> Option<(Item<'_>, usize)> {
    Some((Item::Text(rest.get(head..head.checked_add(len)?)?), head + len))
}

/// The offset of the item before `at`. `None` at the first item.
pub(super) fn before(list: &[u8], at: usize) -> Option<usize> {
    let (mut len, mut end) = (0usize, at);
    for shift in 0..BACK_MAX {
        end = end.checked_sub(1)?;
        let byte = *list.get(end)?;
        len |= usize::from(byte & 0x7f) << (7 * shift);
        if byte & 0x80 == 0 {
            return end.checked_sub(len).filter(|start| *start >= HEAD_BYTES && len > 0);
        }
    }
    None
}

/// The offset of the item after the item at `at`.
pub(super) fn skip(list: &[u8], at: usize) -> Option<usize> {
    read(list, at).map(|(_, next)| next)
}

/// The integer at `at`, and the offset of the next item.
pub(super) fn int(list: &[u8], at: usize) -> Option<(i64, usize)> {
    match read(list, at)? {
        (Item::Int(n), next) => Some((n, next)),
        (Item::Text(_), _) => None,
    }
}

/// Replaces the item at `at` by an integer. Does nothing when there is no complete item.
pub(super) fn replace_int(list: &mut Vec<u8>, at: usize, n: i64) {
    let Some(next) = skip(list, at).filter(|next| *next <= end(list)) else { return };
    let (item, len) = int_item(n);
    if len == next - at {
        list[at..next].copy_from_slice(&item[..len]);
    } else {
        list.splice(at..next, item[..len].iter().copied());
        put_total(list);
    }
}

/// Offset of the last byte, 0xff.
pub(super) fn end(list: &[u8]) -> usize {
    list.len() - 1
}

/// True when `list` is a complete listpack: a correct header, complete items, and the correct length after each
/// item.
pub(super) fn check(list: &[u8]) -> bool {
    if list.len() <= HEAD_BYTES || list.len() > u32::MAX as usize {
        return false;
    }
    let (total, items) = list.split_at(4);
    let items = u16::from_le_bytes([items[0], items[1]]);
    if total != (list.len() as u32).to_le_bytes() || list[list.len() - 1] != END {
        return false;
    }
    let (mut at, mut count) = (HEAD_BYTES, 0usize);
    while at < end(list) {
        match skip(list, at) {
            Some(next) if next <= end(list) && before(list, next) == Some(at) => at = next,
            _ => return false,
        }
        count += 1;
    }
    items == MANY || usize::from(items) == count
}

fn put_total(list: &mut [u8]) {
    let total = list.len() as u32;
    list[..4].copy_from_slice(&total.to_le_bytes());
}

/// An integer in its smallest encoding, with its length at the end.
fn int_item(n: i64) -> ([u8; INT_BYTES_MAX], usize) {
    let mut item = [0; INT_BYTES_MAX];
    let bytes = n.to_le_bytes();
    let len = match n {
        0..=0x7f => {
            item[0] = n as u8;
            1
        }
        -0x1000..=0xfff => {
            item[0] = 0xc0 | (n >> 8) as u8 & 0x1f;
            item[1] = n as u8;
            2
        }
        _ => {
            let (kind, len) = match n {
                -0x8000..=0x7fff => (0xf1, 2),
                -0x80_0000..=0x7f_ffff => (0xf2, 3),
                -0x8000_0000..=0x7fff_ffff => (0xf3, 4),
                _ => (0xf4, 8),
            };
            item[0] = kind;
            item[1..=len].copy_from_slice(&bytes[..len]);
            1 + len
        }
    };
    item[len] = len as u8;
    (item, len + 1)
}

/// Number of bytes that store an item's length after the item.
fn back_bytes(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

fn put_back(list: &mut Vec<u8>, len: usize) {
    let bytes = back_bytes(len);
    for i in (0..bytes).rev() {
        let more = if i + 1 == bytes { 0 } else { 0x80 };
        list.push((len >> (7 * i)) as u8 & 0x7f | more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            3 => any::<i64>().prop_map(|n| n.to_string().into_bytes()),
            3 => (-70_000..70_000i64).prop_map(|n| n.to_string().into_bytes()),
            1 => (-9_000_000..9_000_000i64).prop_map(|n| n.to_string().into_bytes()),
            3 => prop::collection::vec(any::<u8>(), 0..80),
            1 => (4090..4100usize).prop_map(|n| vec![b'x'; n]),
            1 => (16_370..16_390usize).prop_map(|n| vec![b'y'; n]),
        ]
    }

    proptest! {
        #[test]
        fn items_are_read_from_both_ends(
            items in prop::collection::vec(item(), 0..60),
            at in any::<prop::sample::Index>(),
            n in any::<i64>(),
        ) {
            let mut list = new();
            {
                let mut end = Appender::new(&mut list);
                items.iter().for_each(|item| end.text(item));
            }
            prop_assert!(check(&list));
            let (mut from, mut starts) = (HEAD_BYTES, Vec::new());
            for want in &items {
                let (item, next) = read(&list, from).expect("it is there");
                prop_assert!(item.is(want) && item.to_vec() == *want);
                starts.push(from);
                from = next;
            }
            prop_assert!(from == end(&list) && read(&list, from).is_none());
            for start in starts.iter().rev() {
                from = before(&list, from).expect("it is there");
                prop_assert_eq!(from, *start);
            }
            prop_assert!(before(&list, from).is_none());
            if !starts.is_empty() {
                let start = starts[at.index(starts.len())];
                replace_int(&mut list, start, n);
                prop_assert!(check(&list) && int(&list, start).map(|i| i.0) == Some(n));
            }
        }
        #[test]
        fn any_bytes_are_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), whole in any::<bool>()) {
            if whole && bytes.len() > HEAD_BYTES {
                put_total(&mut bytes);
                bytes[4..6].copy_from_slice(&[0xff, 0xff]);
                *bytes.last_mut().expect("not empty") = END;
            }
            check(&bytes);
            for at in 0..bytes.len() {
                read(&bytes, at);
                before(&bytes, at);
            }
        }
    }

    #[test]
    fn bytes_are_those_of_redis() {
        let mut list = new();
        {
            let mut end = Appender::new(&mut list);
            for item in ["hello", "127", "128", "-1", "40000", "007"] {
                end.text(item.as_bytes());
            }
        }
        // The bytes that redis-server 7.0 writes for a list of these (DEBUG LISTPACK, DUMP).
        let want = b"\x85hello\x06\x7f\x01\xc0\x80\x02\xdf\xff\x02\xf2\x40\x9c\x00\x04\x83007\x04\xff";
        assert_eq!((list[4], &list[HEAD_BYTES..]), (6, &want[..]));
    }
}
