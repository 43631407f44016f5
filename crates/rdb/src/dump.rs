//! DUMP payloads: a value's type and bytes, the RDB version (two bytes, little endian), and a checksum of all that.
//!
//! The payload does not say who made it. The version tells whose type numbers it uses.

use crate::value::{Kind, Part, StreamEntries, ValueReader};
use crate::write::Writer;
use crate::{Crc64, Dialect, Error, Result, lzf, primitive as p, value_type as t};

/// Version and checksum.
const FOOTER_BYTES: usize = 2 + 8;

/// A payload whose version and checksum were right.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// The RDB version it was written in.
    pub version: u16,
    /// Whose type numbers it uses.
    pub dialect: Dialect,
    /// Type byte and value.
    body: &'a [u8],
}

/// Checks version and checksum of `payload`.
///
/// # Errors
/// [`Error::Truncated`], [`Error::Version`], [`Error::Checksum`].
pub fn open(payload: &[u8]) -> Result<Payload<'_>> {
    let body_len = payload.len().checked_sub(FOOTER_BYTES).ok_or(Error::Truncated)?;
    let (body, footer) = payload.split_at(body_len);
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let dialect = Dialect::of_version(version).ok_or(Error::Version { version })?;
    let stored = footer[2..].try_into().map(u64::from_le_bytes).map_err(|_| Error::Truncated)?;
    let computed = Crc64::of(&payload[..payload.len() - 8]);
    if stored != computed {
        return Err(Error::Checksum { computed, stored });
    }
    Ok(Payload { version, dialect, body })
}

impl<'a> Payload<'a> {
    /// Reads the value: what it is, and its parts, one call each.
    ///
    /// # Errors
    /// What is wrong with the value's first bytes.
    pub fn value(&self, entries: StreamEntries) -> Result<Value<'a>> {
        let (&value_type, mut rest) = self.body.split_first().ok_or(Error::Truncated)?;
        let mut reader = ValueReader::new(entries);
        let kind = reader.begin(value_type, self.dialect, &mut rest)?;
        Ok(Value { kind, reader, rest })
    }
}

/// About how many elements the value in `payload` has, or more: for who must know before reading. Costs nothing that grows
/// with the payload. Nothing is checked.
pub fn elements(payload: &[u8]) -> usize {
    let Some((&value_type, rest)) = payload.split_first() else { return 0 };
    let first = match p::length_or_encoding(&mut { rest }) {
        Ok(p::Length::Plain(n)) => usize::try_from(n).unwrap_or(usize::MAX),
        // A compressed blob: no element of it is shorter than two bytes.
        Ok(p::Length::Encoded(_)) => payload.len().saturating_mul(lzf::GROWTH_MAX) / 2,
        Err(_) => 0,
    };
    match value_type {
        t::STRING => 1,
        t::LIST | t::SET | t::ZSET | t::ZSET_2 | t::HASH => first.min(payload.len()),
        t::HASH_ZIPMAP
        | t::LIST_ZIPLIST
        | t::SET_INTSET
        | t::ZSET_ZIPLIST
        | t::HASH_ZIPLIST
        | t::HASH_LISTPACK
        | t::ZSET_LISTPACK
        | t::SET_LISTPACK => first / 2,
        // Nodes of some kilobytes, which may be compressed by half and more.
        _ => payload.len(),
    }
}

/// The value of a payload, while it is read.
pub struct Value<'a> {
    kind: Kind,
    reader: ValueReader,
    rest: &'a [u8],
}

impl Value<'_> {
    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }
    /// See [`ValueReader::elements_hint`]; no value can have more elements than its bytes.
    pub fn elements_hint(&self) -> usize {
        usize::try_from(self.reader.elements_hint()).unwrap_or(usize::MAX).min(self.rest.len())
    }
    /// The next part; `None` behind the last. Bytes behind the value are ignored, as redis-server does.
    #[expect(
        clippy::should_implement_trait,
        reason = "a part borrows from the reader, which no Iterator can say"
    )]
    pub fn next(&mut self) -> Result<Option<Part<'_>>> {
        self.reader.next(&mut self.rest)
    }
}

/// Closes the payload whose type and value `writer` has, and takes it out.
pub fn seal(mut writer: Writer<'_>, version: u16) -> Vec<u8> {
    writer.version(version);
    writer.checksum();
    writer.take()
}
