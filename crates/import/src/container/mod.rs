//! Containers: one folder's listing as one binary blob, read in place.
//!
//! [`Container`] is the reader. It checks the whole blob once, then returns entries that borrow from the blob, and
//! allocates nothing. [`ContainerBuilder`] is the writer. Entries are appended in any order, and the *offset list* is sorted,
//! never the entries. docs/formats/container.md describes the bytes, and a golden test freezes them. The source says
//! what tokens and pairs mean ([`crate::source`]).

mod error;

pub use error::ContainerError;
use std::cmp::Ordering;

/// The first four bytes of every container.
pub const MAGIC: [u8; 4] = *b"STCN";
/// The version of the format that this code writes. It reads no other version.
pub const FORMAT_VERSION: u8 = 1;
/// Longest name of an entry in bytes (an object store's key may have 1024).
pub const NAME_BYTES_MAX: usize = 1024;
/// Longest version token in bytes.
pub const TOKEN_BYTES_MAX: usize = 255;
/// Maximum number of metadata pairs of one entry.
pub const PAIRS_MAX: usize = 255;
/// Longest metadata key in bytes.
pub const KEY_BYTES_MAX: usize = 255;
/// Longest metadata value in bytes.
pub const VALUE_BYTES_MAX: usize = 65_535;
/// Largest container in bytes: the longest value on the wire (`proto-max-bulk-len`).
pub const CONTAINER_BYTES_MAX: usize = 512 << 20;
/// A metadata key that begins with this byte is a note of the importer. It is stored, and the diff never compares it.
pub const NOTE: u8 = b'~';

const HEADER_BYTES: usize = 16;
const ENTRY_HEADER_BYTES: usize = 13;
const DIGEST_BYTES: usize = 16;

/// A short BLAKE3 digest. It is the checksum of a container and the content hash of a document. An equal digest skips
/// work. So the hash is a cryptographic one: with a plain checksum the author of two documents could hide the second
/// one.
pub type ContainerDigest = [u8; DIGEST_BYTES];

/// The digest of `bytes`.
pub fn digest(bytes: &[u8]) -> ContainerDigest {
    let mut out = ContainerDigest::default();
    out.copy_from_slice(&blake3::hash(bytes).as_bytes()[..DIGEST_BYTES]);
    out
}

/// The digest of all bytes that were put into `hasher`.
pub fn digest_of(hasher: &blake3::Hasher) -> ContainerDigest {
    let mut out = ContainerDigest::default();
    out.copy_from_slice(&hasher.finalize().as_bytes()[..DIGEST_BYTES]);
    out
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A document: bytes that become one hash.
    Document,
    /// Another container.
    Container,
}

impl EntryKind {
    fn byte(self) -> u8 {
        match self {
            EntryKind::Document => 1,
            EntryKind::Container => 2,
        }
    }
    fn from_byte(byte: u8) -> Option<EntryKind> {
        match byte {
            1 => Some(EntryKind::Document),
            2 => Some(EntryKind::Container),
            _ => None,
        }
    }
}

/// A container that is read in place. It is a checked view of the blob, so it is `Copy`.
#[derive(Clone, Copy)]
pub struct Container<'a> {
    blob: &'a [u8],
    list_at: usize,
    len: usize,
}

impl<'a> Container<'a> {
    /// Checks `blob` (lengths, checksum, bounds of every entry, names, their strict order) and returns the view. Takes
    /// time linear in the blob, and allocates nothing.
    ///
    /// # Errors
    /// A [`ContainerError`] for the first thing that is wrong.
    pub fn parse(blob: &'a [u8]) -> Result<Container<'a>, ContainerError> {
        let need = HEADER_BYTES + DIGEST_BYTES;
        if blob.len() < need {
            return Err(ContainerError::Short { len: blob.len(), need });
        }
        if blob.len() > CONTAINER_BYTES_MAX {
            let (found, max) = (blob.len(), CONTAINER_BYTES_MAX);
            return Err(ContainerError::Limit { what: "bytes", found, max });
        }
        let magic = [blob[0], blob[1], blob[2], blob[3]];
        if magic != MAGIC {
            return Err(ContainerError::Magic(magic));
        }
        if blob[4] != FORMAT_VERSION {
            return Err(ContainerError::Version(blob[4]));
        }
        if blob[5] != 0 {
            return Err(ContainerError::Flags(blob[5]));
        }
        let (count, list_at) = (read_u32(blob, 8), read_u32(blob, 12));
        let expected = u64::from(list_at) + 4 * u64::from(count) + DIGEST_BYTES as u64;
        if expected != blob.len() as u64 || (list_at as usize) < HEADER_BYTES {
            return Err(ContainerError::Length { expected, len: blob.len() });
        }
        let (checked, stored) = blob.split_last_chunk().expect("the blob is longer than a checksum");
        let computed = digest(checked);
        if computed != *stored {
            return Err(ContainerError::Checksum { stored: *stored, computed });
        }
        let this = Container { blob, list_at: list_at as usize, len: count as usize };
        this.check_entries()?;
        Ok(this)
    }

    fn check_entries(&self) -> Result<(), ContainerError> {
        let mut entry_bytes = 0u64;
        let mut previous: &[u8] = &[];
        for index in 0..self.len {
            let at = self.offset(index);
            let entry = parse_entry(self.blob, at, self.list_at, index)?;
            check_name(entry.name)?;
            if index > 0 && previous >= entry.name {
                return Err(ContainerError::Order { index });
            }
            previous = entry.name;
            entry_bytes += entry.bytes() as u64;
        }
        let expected = HEADER_BYTES as u64 + entry_bytes;
        if expected != self.list_at as u64 {
            return Err(ContainerError::Length { expected, len: self.list_at });
        }
        Ok(())
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }
    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The version of the extractor that made the documents' fields. A run with another version reads all documents
    /// again.
    pub fn producer(&self) -> u16 {
        u16::from_le_bytes([self.blob[6], self.blob[7]])
    }
    /// The checksum of the container. Equal checksums mean equal containers.
    pub fn digest(&self) -> ContainerDigest {
        let mut out = ContainerDigest::default();
        out.copy_from_slice(&self.blob[self.blob.len() - DIGEST_BYTES..]);
        out
    }
    /// The whole blob.
    pub fn blob(&self) -> &'a [u8] {
        self.blob
    }
    /// Entry `i` in the order of names (bytewise).
    ///
    /// # Panics
    /// When `i >= len()`.
    pub fn entry(&self, i: usize) -> Entry<'a> {
        assert!(i < self.len, "entry {i} of {}", self.len);
        parse_entry(self.blob, self.offset(i), self.list_at, i).expect("checked by parse()")
    }
    /// The entries in the order of names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Entry<'a>> + use<'a> {
        let this = *self;
        (0..this.len).map(move |i| this.entry(i))
    }
    /// The entry called `name`, by binary search.
    pub fn find(&self, name: &[u8]) -> Option<Entry<'a>> {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry(middle);
            match entry.name.cmp(name) {
                Ordering::Equal => return Some(entry),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        None
    }
    fn offset(&self, i: usize) -> usize {
        read_u32(self.blob, self.list_at + 4 * i) as usize
    }
}

impl std::fmt::Debug for Container<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Container({} entries, {} bytes)", self.len, self.blob.len())
    }
}

/// One entry, borrowed from its container.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// The kind of the entry.
    pub kind: EntryKind,
    /// The name within the container. It is not empty, and has no `/` and no NUL. It need not be UTF-8.
    pub name: &'a [u8],
    /// The size in bytes that the source reports. 0 for containers.
    pub size: u64,
    /// The version token. Equal tokens mean that nothing changed. Empty: unknown, so the run must read the entry.
    pub token: &'a [u8],
    pairs: &'a [u8],
    pair_count: u8,
}

impl<'a> Entry<'a> {
    /// The metadata, in the order of writing.
    pub fn pairs(&self) -> Pairs<'a> {
        Pairs { bytes: self.pairs, left: self.pair_count }
    }
    /// The first value under `key`.
    pub fn get(&self, key: &[u8]) -> Option<&'a [u8]> {
        self.pairs().find(|(k, _)| *k == key).map(|(_, value)| value)
    }
    /// True when both entries have equal metadata. Notes (see [`NOTE`]) are not compared. Allocates nothing.
    pub fn same_metadata(&self, other: &Entry<'_>) -> bool {
        let compared = |pair: &(&[u8], &[u8])| pair.0.first() != Some(&NOTE);
        self.pairs().filter(compared).eq(other.pairs().filter(compared))
    }
    fn bytes(&self) -> usize {
        ENTRY_HEADER_BYTES + self.name.len() + self.token.len() + self.pairs.len()
    }
}

impl std::fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}({:?}, {} bytes)", self.kind, String::from_utf8_lossy(self.name), self.size)
    }
}

/// The metadata of one entry.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    bytes: &'a [u8],
    left: u8,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let (key_len, value_len) = pair_lengths(self.bytes)?;
        let (key, rest) = self.bytes[3..].split_at_checked(key_len)?;
        let (value, rest) = rest.split_at_checked(value_len)?;
        self.bytes = rest;
        Some((key, value))
    }
}

/// Writes a container. Add entries in any order, then call [`ContainerBuilder::finish`].
#[derive(Debug)]
pub struct ContainerBuilder {
    buffer: Vec<u8>,
    offsets: Vec<u32>,
    producer: u16,
}

impl ContainerBuilder {
    /// A container without entries.
    pub fn empty(producer: u16) -> Vec<u8> {
        ContainerBuilder::new(producer).finish().expect("nothing in it")
    }
    /// A builder for the documents of extractor version `producer`.
    pub fn new(producer: u16) -> ContainerBuilder {
        ContainerBuilder::with_capacity(producer, 0, 0)
    }
    /// A builder for `entries` entries of `entry_bytes` bytes together. It allocates only twice.
    pub fn with_capacity(producer: u16, entries: usize, entry_bytes: usize) -> ContainerBuilder {
        let mut buffer = Vec::with_capacity(HEADER_BYTES + entry_bytes + 4 * entries + DIGEST_BYTES);
        buffer.extend_from_slice(&[0; HEADER_BYTES]);
        ContainerBuilder { buffer, offsets: Vec::with_capacity(entries), producer }
    }
    /// Number of entries so far.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }
    /// Bytes of the entries so far.
    pub fn bytes(&self) -> usize {
        self.buffer.len() - HEADER_BYTES
    }
    /// True when nothing was added.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }
    /// Adds an entry. An error leaves the builder unchanged.
    ///
    /// # Errors
    /// [`ContainerError::Name`] and [`ContainerError::Limit`].
    pub fn push<'p>(
        &mut self,
        kind: EntryKind,
        name: &[u8],
        size: u64,
        token: &[u8],
        pairs: impl IntoIterator<Item = (&'p [u8], &'p [u8])>,
    ) -> Result<(), ContainerError> {
        check_name(name)?;
        limit("bytes of a token", token.len(), TOKEN_BYTES_MAX)?;
        let start = self.buffer.len();
        self.buffer.push(kind.byte());
        self.buffer.push(0); // The number of pairs, known below.
        self.buffer.extend_from_slice(&(name.len() as u16).to_le_bytes());
        self.buffer.extend_from_slice(&size.to_le_bytes());
        self.buffer.push(token.len() as u8);
        self.buffer.extend_from_slice(name);
        self.buffer.extend_from_slice(token);
        if let Err(error) = self.push_pairs(start, pairs) {
            self.buffer.truncate(start);
            return Err(error);
        }
        self.offsets.push(start as u32);
        Ok(())
    }
    fn push_pairs<'p>(
        &mut self,
        start: usize,
        pairs: impl IntoIterator<Item = (&'p [u8], &'p [u8])>,
    ) -> Result<(), ContainerError> {
        let mut count = 0usize;
        for (key, value) in pairs {
            count += 1;
            limit("metadata pairs of an entry", count, PAIRS_MAX)?;
            limit("bytes of a metadata key", key.len(), KEY_BYTES_MAX)?;
            limit("bytes of a metadata value", value.len(), VALUE_BYTES_MAX)?;
            self.buffer.push(key.len() as u8);
            self.buffer.extend_from_slice(&(value.len() as u16).to_le_bytes());
            self.buffer.extend_from_slice(key);
            self.buffer.extend_from_slice(value);
        }
        self.buffer[start + 1] = count as u8;
        let total = self.buffer.len() + 4 * (self.offsets.len() + 1) + DIGEST_BYTES;
        limit("bytes", total, CONTAINER_BYTES_MAX)
    }
    /// Sorts the offset list over the buffer and returns the blob.
    ///
    /// # Errors
    /// [`ContainerError::Duplicate`] when two entries have the same name.
    pub fn finish(mut self) -> Result<Vec<u8>, ContainerError> {
        let buffer = &self.buffer;
        self.offsets.sort_unstable_by(|a, b| name_at(buffer, *a).cmp(name_at(buffer, *b)));
        for pair in self.offsets.windows(2) {
            if name_at(buffer, pair[0]) == name_at(buffer, pair[1]) {
                return Err(ContainerError::Duplicate(name_at(buffer, pair[0]).to_vec()));
            }
        }
        let list_at = self.buffer.len() as u32;
        self.buffer[..4].copy_from_slice(&MAGIC);
        self.buffer[4] = FORMAT_VERSION;
        self.buffer[6..8].copy_from_slice(&self.producer.to_le_bytes());
        self.buffer[8..12].copy_from_slice(&(self.offsets.len() as u32).to_le_bytes());
        self.buffer[12..16].copy_from_slice(&list_at.to_le_bytes());
        for offset in &self.offsets {
            self.buffer.extend_from_slice(&offset.to_le_bytes());
        }
        let checksum = digest(&self.buffer);
        self.buffer.extend_from_slice(&checksum);
        Ok(self.buffer)
    }
}

fn parse_entry(blob: &[u8], at: usize, end: usize, index: usize) -> Result<Entry<'_>, ContainerError> {
    let outside = ContainerError::Bounds { index, offset: at };
    let Some(bytes) = blob[..end].get(at..).filter(|b| at >= HEADER_BYTES && b.len() >= ENTRY_HEADER_BYTES)
    else {
        return Err(outside);
    };
    let (head, rest) = bytes.split_at(ENTRY_HEADER_BYTES);
    let Some(kind) = EntryKind::from_byte(head[0]) else {
        return Err(ContainerError::UnknownKind { index, kind: head[0] });
    };
    let name_len = usize::from(u16::from_le_bytes([head[2], head[3]]));
    let size = u64::from_le_bytes(head[4..12].try_into().expect("eight bytes"));
    let split = || {
        let (name, rest) = rest.split_at_checked(name_len)?;
        let (token, rest) = rest.split_at_checked(usize::from(head[12]))?;
        let mut pairs_len = 0;
        for _ in 0..head[1] {
            let (key_len, value_len) = pair_lengths(&rest[pairs_len..])?;
            pairs_len += 3 + key_len + value_len;
            rest.get(..pairs_len)?;
        }
        Some(Entry { kind, name, size, token, pairs: &rest[..pairs_len], pair_count: head[1] })
    };
    split().ok_or(outside)
}

fn pair_lengths(bytes: &[u8]) -> Option<(usize, usize)> {
    let head = bytes.first_chunk::<3>()?;
    Some((usize::from(head[0]), usize::from(u16::from_le_bytes([head[1], head[2]]))))
}

/// The name of an entry that this builder wrote.
fn name_at(buffer: &[u8], offset: u32) -> &[u8] {
    let at = offset as usize;
    let len = usize::from(u16::from_le_bytes([buffer[at + 2], buffer[at + 3]]));
    &buffer[at + ENTRY_HEADER_BYTES..at + ENTRY_HEADER_BYTES + len]
}

fn check_name(name: &[u8]) -> Result<(), ContainerError> {
    let bad = name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || name == b"."
        || name == b".."
        || memchr::memchr2(b'/', 0, name).is_some();
    if bad { Err(ContainerError::Name(name[..name.len().min(NAME_BYTES_MAX + 1)].to_vec())) } else { Ok(()) }
}

fn limit(what: &'static str, found: usize, max: usize) -> Result<(), ContainerError> {
    if found > max { Err(ContainerError::Limit { what, found, max }) } else { Ok(()) }
}

fn read_u32(blob: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(blob[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Vec<u8> {
        let mut builder = ContainerBuilder::new(7);
        builder.push(EntryKind::Document, b"b.eml", 1234, &[1, 2, 3], [(&b"flags"[..], &b"S"[..])]).unwrap();
        builder.push(EntryKind::Container, b"a", 0, &[], []).unwrap();
        builder.finish().unwrap()
    }

    /// The frozen bytes of format version 1. If this test fails, the format has changed: raise `FORMAT_VERSION`, and
    /// keep the code that reads version 1.
    #[test]
    fn golden_bytes() {
        let hex: String = sample().iter().map(|b| format!("{b:02x}")).collect();
        let expected = concat!(
            "5354434e",
            "01",
            "00",
            "0700",
            "02000000",
            "3c000000", // header
            "01",
            "01",
            "0500",
            "d204000000000000",
            "03",
            "622e656d6c",
            "010203", // b.eml
            "05",
            "0100",
            "666c616773",
            "53", // flags = S
            "02",
            "00",
            "0100",
            "0000000000000000",
            "00",
            "61", // a
            "2e000000",
            "10000000", // a, then b.eml
        );
        assert_eq!(&hex[..expected.len()], expected);
        assert_eq!(&hex[expected.len()..], "a2a761ae081c53f2198376a6f9375af1");
    }

    #[test]
    fn reads_what_it_wrote() {
        let blob = sample();
        let container = Container::parse(&blob).unwrap();
        assert_eq!((container.len(), container.producer()), (2, 7));
        let names: Vec<_> = container.iter().map(|e| e.name).collect();
        assert_eq!(names, [&b"a"[..], b"b.eml"]);
        let entry = container.find(b"b.eml").unwrap();
        assert_eq!((entry.kind, entry.size, entry.token), (EntryKind::Document, 1234, &[1u8, 2, 3][..]));
        assert_eq!(entry.get(b"flags"), Some(&b"S"[..]));
        assert!(container.find(b"c").is_none() && container.find(b"").is_none());
    }

    #[test]
    fn an_empty_container_is_one() {
        let blob = ContainerBuilder::new(1).finish().unwrap();
        assert!(Container::parse(&blob).unwrap().is_empty());
    }

    #[test]
    fn refuses_bad_entries_and_stays_usable() {
        let mut builder = ContainerBuilder::new(1);
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; NAME_BYTES_MAX + 1]] {
            assert!(matches!(
                builder.push(EntryKind::Document, name, 0, &[], []),
                Err(ContainerError::Name(_))
            ));
        }
        let long = [0u8; VALUE_BYTES_MAX + 1];
        assert!(matches!(
            builder.push(EntryKind::Document, b"x", 0, &[], [(&b"k"[..], &long[..])]),
            Err(ContainerError::Limit { .. })
        ));
        let many = std::iter::repeat_n((&b"k"[..], &b"v"[..]), PAIRS_MAX + 1);
        assert!(matches!(
            builder.push(EntryKind::Document, b"x", 0, &[], many),
            Err(ContainerError::Limit { .. })
        ));
        builder.push(EntryKind::Document, b"x", 0, &[], []).unwrap();
        builder.push(EntryKind::Container, b"x", 0, &[], []).unwrap();
        assert_eq!(builder.finish(), Err(ContainerError::Duplicate(b"x".to_vec())));
    }

    /// Corrects the checksum of a changed blob, so that a test reaches the checks after it.
    fn resealed(mut blob: Vec<u8>) -> Vec<u8> {
        let at = blob.len() - DIGEST_BYTES;
        let sum = digest(&blob[..at]);
        blob[at..].copy_from_slice(&sum);
        blob
    }

    #[test]
    fn says_what_is_wrong() {
        let with = |at: usize, byte: u8| {
            let mut blob = sample();
            blob[at] = byte;
            blob
        };
        let error = |blob: &[u8]| Container::parse(blob).unwrap_err();
        assert!(matches!(error(&[]), ContainerError::Short { .. }));
        assert_eq!(error(&with(0, b'X')), ContainerError::Magic(*b"XTCN"));
        assert_eq!(error(&with(4, 9)), ContainerError::Version(9));
        assert_eq!(error(&with(5, 1)), ContainerError::Flags(1));
        assert!(matches!(error(&with(8, 3)), ContainerError::Length { .. }));
        assert!(matches!(error(&with(20, 0)), ContainerError::Checksum { .. }));
        assert_eq!(error(&resealed(with(16, 9))), ContainerError::UnknownKind { index: 1, kind: 9 });
        assert!(matches!(error(&resealed(with(18, 200))), ContainerError::Bounds { index: 1, .. }));
        assert!(matches!(error(&resealed(with(29, b'/'))), ContainerError::Name(_)));
        let mut swapped = sample();
        let list = 0x3c;
        let (a, b) = swapped[list..list + 8].split_at_mut(4);
        a.swap_with_slice(b);
        assert_eq!(error(&resealed(swapped)), ContainerError::Order { index: 1 });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), seal in any::<bool>()) {
            if seal && bytes.len() > 40 {
                bytes[..6].copy_from_slice(b"STCN\x01\x00");
                let count = bytes[8] % 4;
                let list_at = (bytes.len() - 16 - 4 * count as usize) as u32;
                bytes[8..12].copy_from_slice(&u32::from(count).to_le_bytes());
                bytes[12..16].copy_from_slice(&list_at.to_le_bytes());
                bytes = resealed(bytes);
            }
            if let Ok(container) = Container::parse(&bytes) {
                container.iter().for_each(|e| { e.pairs().count(); });
            }
        }

        #[test]
        fn every_bit_flip_is_found(bit in 0usize..8, at in any::<proptest::sample::Index>()) {
            let mut blob = sample();
            let at = at.index(blob.len());
            blob[at] ^= 1 << bit;
            prop_assert!(Container::parse(&blob).is_err());
        }

        #[test]
        fn a_resealed_change_never_panics(at in any::<proptest::sample::Index>(), byte in any::<u8>()) {
            let mut blob = sample();
            let at = at.index(blob.len());
            blob[at] = byte;
            let blob = resealed(blob);
            if let Ok(container) = Container::parse(&blob) {
                container.iter().for_each(|e| { e.pairs().count(); });
            }
        }
    }
}
