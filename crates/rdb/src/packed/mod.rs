//! Small collections packed into one string: the blobs inside values.
//!
//! A [`Cursor`] walks a blob entry by entry without holding it: the blob is given at each step, so that it can lie in
//! the same reader as its cursor. A step costs no allocation. [`Listpack`] and [`intset`] are also written; ziplists
//! and zipmaps, which only old servers write, are not.

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
pub enum Entry<'a> {
    /// A byte string.
    Bytes(&'a [u8]),
    /// A string that was packed as the integer it spells.
    Int(i64),
}

impl<'a> Entry<'a> {
    /// The entry as a string.
    #[inline]
    pub fn text(self) -> Text<'a> {
        match self {
            Entry::Bytes(bytes) => Text::Borrowed(bytes),
            Entry::Int(n) => Text::Number(Digits::int(n)),
        }
    }
}

/// The forms a blob can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Redis 2.4 to 6.2.
    Ziplist,
    /// Redis 5.0 (streams) and 7.0 onwards.
    Listpack,
    /// Redis 2.4 and older: fields and values by turns.
    Zipmap,
    /// Integers in order.
    Intset,
}

/// A position in a blob.
#[derive(Clone, Copy, Debug)]
pub enum Cursor {
    /// In a ziplist.
    Ziplist(ziplist::Cursor),
    /// In a listpack.
    Listpack(listpack::Cursor),
    /// In a zipmap.
    Zipmap(zipmap::Cursor),
    /// In an intset.
    Intset(intset::Cursor),
}

impl Cursor {
    /// Before the first entry of `blob`, whose header has been checked.
    pub fn new(form: Form, blob: &[u8]) -> Result<Cursor> {
        Ok(match form {
            Form::Ziplist => Cursor::Ziplist(ziplist::Cursor::new(blob)?),
            Form::Listpack => Cursor::Listpack(listpack::Cursor::new(blob)?),
            Form::Zipmap => Cursor::Zipmap(zipmap::Cursor::new(blob)?),
            Form::Intset => Cursor::Intset(intset::Cursor::new(blob)?),
        })
    }

    /// Whether no entry is left in `blob`. [`Cursor::next`] then checks the end and yields `None`.
    #[inline]
    pub fn at_end(&self, blob: &[u8]) -> bool {
        match self {
            Cursor::Ziplist(cursor) => cursor.at_end(blob),
            Cursor::Listpack(cursor) => cursor.at_end(blob),
            Cursor::Zipmap(cursor) => cursor.at_end(blob),
            Cursor::Intset(cursor) => cursor.at_end(blob),
        }
    }

    /// The next entry of `blob`, which must be the one the cursor was made for. `None` at its end, which is checked
    /// against the header's count.
    #[inline]
    pub fn next<'a>(&mut self, blob: &'a [u8]) -> Result<Option<Entry<'a>>> {
        match self {
            Cursor::Ziplist(cursor) => cursor.next(blob),
            Cursor::Listpack(cursor) => cursor.next(blob),
            Cursor::Zipmap(cursor) => cursor.next(blob),
            Cursor::Intset(cursor) => cursor.next(blob),
        }
    }
}
