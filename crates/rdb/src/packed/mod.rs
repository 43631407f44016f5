//! Small collections packed into one string: the blobs inside values.
//!
//! A [`Cursor`] walks a blob entry by entry and does not hold it: each step gets the blob as an argument, so one
//! reader can own both. A step does not allocate. [`Listpack`] and [`intset`] can also be written. Ziplists and
//! zipmaps cannot, because only old servers write them.

mod bytes;
pub mod intset;
pub mod listpack;
mod ziplist;
mod zipmap;

pub use listpack::Listpack;

use strand_wire::digits::Digits;

use crate::{Result, Text};

/// One entry of a blob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PackedEntry<'a> {
    /// The entry is a byte string.
    Bytes(&'a [u8]),
    /// A string packed as the integer that it spells.
    Int(i64),
}

impl<'a> PackedEntry<'a> {
    /// The entry as a string.
    #[inline]
    pub fn text(self) -> Text<'a> {
        match self {
            PackedEntry::Bytes(bytes) => Text::Borrowed(bytes),
            PackedEntry::Int(n) => Text::Number(Digits::int(n)),
        }
    }
}

/// The formats of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackedFormat {
    /// A ziplist, from Redis 2.4 to 6.2.
    Ziplist,
    /// A listpack, from Redis 5.0 (streams) and 7.0 (other types) on.
    Listpack,
    /// A zipmap, from Redis 2.4 and older: fields and values alternate.
    Zipmap,
    /// An intset: sorted integers.
    Intset,
}

/// A position in a blob.
#[derive(Clone, Copy, Debug)]
pub enum Cursor {
    /// A position in a ziplist.
    Ziplist(ziplist::Cursor),
    /// A position in a listpack.
    Listpack(listpack::Cursor),
    /// A position in a zipmap.
    Zipmap(zipmap::Cursor),
    /// A position in an intset.
    Intset(intset::Cursor),
}

impl Cursor {
    /// A position before the first entry of `blob`, whose header has been checked.
    pub fn new(form: PackedFormat, blob: &[u8]) -> Result<Cursor> {
        Ok(match form {
            PackedFormat::Ziplist => Cursor::Ziplist(ziplist::Cursor::new(blob)?),
            PackedFormat::Listpack => Cursor::Listpack(listpack::Cursor::new(blob)?),
            PackedFormat::Zipmap => Cursor::Zipmap(zipmap::Cursor::new(blob)?),
            PackedFormat::Intset => Cursor::Intset(intset::Cursor::new(blob)?),
        })
    }

    /// True when no entry is left in `blob`. [`Cursor::next`] then checks the end and returns `None`.
    #[inline]
    pub fn at_end(&self, blob: &[u8]) -> bool {
        match self {
            Cursor::Ziplist(cursor) => cursor.at_end(blob),
            Cursor::Listpack(cursor) => cursor.at_end(blob),
            Cursor::Zipmap(cursor) => cursor.at_end(blob),
            Cursor::Intset(cursor) => cursor.at_end(blob),
        }
    }

    /// The next entry of `blob`, which must be the cursor's blob. `None` at the end; the number of entries is then
    /// compared with the header.
    #[inline]
    pub fn next<'a>(&mut self, blob: &'a [u8]) -> Result<Option<PackedEntry<'a>>> {
        match self {
            Cursor::Ziplist(cursor) => cursor.next(blob),
            Cursor::Listpack(cursor) => cursor.next(blob),
            Cursor::Zipmap(cursor) => cursor.next(blob),
            Cursor::Intset(cursor) => cursor.next(blob),
        }
    }
}
