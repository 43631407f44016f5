//! DUMP payloads: a value's type and bytes, the RDB version (two bytes, little endian), and a checksum of
//! everything before it.
//!
//! The payload does not name the server that wrote it. The version decides which dialect of type numbers applies.

use crate::value::{StreamEntries, ValueKind, ValuePart, ValueReader};
use crate::write::Writer;
use crate::{Crc64, Dialect, Error, Result, lzf, primitive as p, value_type as t};

/// Number of bytes of the version and the checksum.
const FOOTER_BYTES: usize = 2 + 8;

/// A payload with a correct version and checksum.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// The RDB version of the payload.
    pub version: u16,
    /// The dialect of the payload's type numbers.
    pub dialect: Dialect,
    /// The payload's type byte and its value.
    body: &'a [u8],
}

/// Checks the version and the checksum of `payload`.
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
    /// Reads the value: its kind at once, its parts with one call each.
    ///
    /// # Errors
    /// The error in the value's first bytes.
    pub fn value(&self, entries: StreamEntries) -> Result<Value<'a>> {
        let (&value_type, mut rest) = self.body.split_first().ok_or(Error::Truncated)?;
        let mut reader = ValueReader::new(entries);
        let kind = reader.begin(value_type, self.dialect, &mut rest)?;
        Ok(Value { kind, reader, rest })
    }
}

impl<'a> Payload<'a> {
    /// Reads a payload of FUNCTION DUMP: the source texts of libraries.
    ///
    /// # Errors
    /// The error in the payload's bytes; [`Error::Unexpected`] when the payload contains anything but libraries.
    pub fn functions(&self) -> Result<Vec<Vec<u8>>> {
        let (mut rest, mut codes, mut memory) = (self.body, Vec::new(), Vec::new());
        while let Some((&opcode, after)) = rest.split_first() {
            if opcode != crate::file::opcode::FUNCTION {
                return Err(Error::unexpected("the opcode of a library of functions", opcode.into()));
            }
            rest = after;
            memory.clear();
            crate::primitive::string_into(&mut rest, &mut memory)?;
            codes.push(memory.clone());
        }
        Ok(codes)
    }
}

/// An estimate of the work of reading a payload: elements added to a value, and bytes copied or produced. The real
/// numbers may be lower. The estimate takes constant time and checks nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Number of elements, members or fields.
    pub elements: usize,
    /// Number of bytes after decompression, as far as the first bytes of the payload tell.
    pub bytes: usize,
}

impl Weight {
    /// The estimate for `payload`.
    pub fn of(payload: &[u8]) -> Weight {
        /// The decompression of list and stream nodes usually makes them grow by at most this factor.
        const NODES_GROWTH: usize = 8;
        let Some((&value_type, mut rest)) = payload.split_first() else { return Weight::default() };
        let as_size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let (first, is_compressed) = match p::length_or_encoding(&mut rest) {
            Ok(p::Length::Plain(n)) => (as_size(n), false),
            Ok(p::Length::Encoded(_)) => {
                // A compressed string begins with its compressed and its original length. For an integer, this reads
                // a small number.
                let original = p::length(&mut rest).and_then(|_| p::length(&mut rest)).map_or(0, as_size);
                (original.min(payload.len().saturating_mul(lzf::GROWTH_MAX)), true)
            }
            Err(_) => (0, false),
        };
        let grown = payload.len().saturating_mul(NODES_GROWTH);
        match value_type {
            t::STRING => Weight { elements: 1, bytes: if is_compressed { first } else { payload.len() } },
            t::LIST | t::SET | t::ZSET | t::ZSET_2 | t::HASH => {
                Weight { elements: first.min(payload.len()), bytes: grown }
            }
            t::HASH_ZIPMAP
            | t::LIST_ZIPLIST
            | t::SET_INTSET
            | t::ZSET_ZIPLIST
            | t::HASH_ZIPLIST
            | t::HASH_LISTPACK
            | t::ZSET_LISTPACK
            | t::SET_LISTPACK => Weight { elements: first / 2, bytes: first },
            _ => Weight { elements: grown / 2, bytes: grown },
        }
    }
}

/// The value of a payload while it is being read.
pub struct Value<'a> {
    kind: ValueKind,
    reader: ValueReader,
    rest: &'a [u8],
}

impl Value<'_> {
    /// The kind of the value.
    pub fn kind(&self) -> ValueKind {
        self.kind
    }
    /// The number that [`ValueReader::elements_hint`] returns, but at most the number of bytes, because each element
    /// needs at least one byte.
    pub fn elements_hint(&self) -> usize {
        usize::try_from(self.reader.elements_hint()).unwrap_or(usize::MAX).min(self.rest.len())
    }
    /// The next part; `None` after the last. Bytes after the value are ignored, as in redis-server.
    #[expect(
        clippy::should_implement_trait,
        reason = "a part borrows from the reader, which no Iterator can say"
    )]
    pub fn next(&mut self) -> Result<Option<ValuePart<'_>>> {
        self.reader.next(&mut self.rest)
    }
}

/// Completes the payload whose type and value are in `writer`, and returns it.
pub fn seal(mut writer: Writer<'_>, version: u16) -> Vec<u8> {
    writer.version(version);
    writer.checksum();
    writer.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_estimates_its_work() {
        let sealed = |write: &dyn Fn(&mut Writer<'_>)| {
            let mut writer = Writer::new(true);
            write(&mut writer);
            seal(writer, crate::VERSION_WRITTEN)
        };
        let string = |bytes: &[u8]| {
            let payload = sealed(&|w| {
                w.value_type(t::STRING);
                w.string(bytes);
            });
            Weight::of(&payload)
        };
        assert!(string(b"12").bytes < 2000);
        assert_eq!(string(b"hello").bytes, 17);
        assert_eq!(string(&vec![b'x'; 1 << 20]), Weight { elements: 1, bytes: 1 << 20 });
        let ints: Vec<i64> = (0..5000).collect();
        let set = sealed(&|w| {
            w.value_type(t::SET_INTSET);
            w.string(&crate::packed::intset::encode(&ints));
        });
        assert!((5000..6000).contains(&Weight::of(&set).elements), "{:?}", Weight::of(&set));
        let announced = sealed(&|w| {
            w.value_type(t::HASH);
            w.length(u64::MAX);
        });
        assert!(Weight::of(&announced).elements < 30, "limited by the number of bytes");
        for cut in 0..4 {
            Weight::of(&set[..cut]);
        }
    }
}
