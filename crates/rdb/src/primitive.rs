//! RDB's lengths, strings and numbers: the parts of every value.

use strand_wire::digits::Digits;

use crate::source::Source;
use crate::{Error, PLAIN_STRING_BYTES_MAX, Result, STRING_BYTES_MAX, Text, lzf};

/// Strings of at least this length leave the reader as vectors of their own, not as views of the reader's memory.
const OWNED_BYTES_MIN: usize = 64 << 10;

/// A length, or the encoding of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Plain(u64),
    Encoded(u8),
}

/// The encodings of a string that is not stored as its bytes. They follow the two bits `11`.
const INT_8: u8 = 0;
const INT_16: u8 = 1;
const INT_32: u8 = 2;
const LZF: u8 = 3;

/// The first bytes of lengths that have 32 and 64 bits.
const LENGTH_32: u8 = 0x80;
const LENGTH_64: u8 = 0x81;

#[inline]
pub(crate) fn byte(source: &mut impl Source) -> Result<u8> {
    array::<1>(source).map(|[byte]| byte)
}

#[inline]
pub(crate) fn array<const N: usize>(source: &mut impl Source) -> Result<[u8; N]> {
    if let Some(bytes) = source.buffered().first_chunk::<N>() {
        let bytes = *bytes;
        source.consume(N);
        return Ok(bytes);
    }
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let n = ensure_buffered(source)?.min(N - filled);
        bytes[filled..filled + n].copy_from_slice(&source.buffered()[..n]);
        source.consume(n);
        filled += n;
    }
    Ok(bytes)
}

/// The number of bytes that are in memory, at least one: reads more bytes if there are none.
fn ensure_buffered(source: &mut impl Source) -> Result<usize> {
    while source.buffered().is_empty() {
        if !source.refill()? {
            return Err(Error::Truncated);
        }
    }
    Ok(source.buffered().len())
}

/// Appends the next `n` bytes to `out`, which grows as they arrive.
fn append(source: &mut impl Source, mut n: usize, out: &mut Vec<u8>) -> Result<()> {
    while n > 0 {
        let piece = ensure_buffered(source)?.min(n);
        out.extend_from_slice(&source.buffered()[..piece]);
        source.consume(piece);
        n -= piece;
    }
    Ok(())
}

/// Skips `n` bytes of the source.
fn skip(source: &mut impl Source, mut n: usize) -> Result<()> {
    while n > 0 {
        let piece = ensure_buffered(source)?.min(n);
        source.consume(piece);
        n -= piece;
    }
    Ok(())
}

#[inline]
pub(crate) fn length_or_encoding(source: &mut impl Source) -> Result<Length> {
    let first = byte(source)?;
    Ok(Length::Plain(match first >> 6 {
        0 => u64::from(first & 63),
        1 => u64::from(first & 63) << 8 | u64::from(byte(source)?),
        2 => match first {
            LENGTH_32 => u64::from(u32::from_be_bytes(array(source)?)),
            LENGTH_64 => u64::from_be_bytes(array(source)?),
            _ => return Err(Error::unexpected("0x80 or 0x81 before a long length", first.into())),
        },
        _ => return Ok(Length::Encoded(first & 63)),
    }))
}

#[inline]
pub(crate) fn length(source: &mut impl Source) -> Result<u64> {
    match length_or_encoding(source)? {
        Length::Plain(n) => Ok(n),
        Length::Encoded(_) => Err(Error::Corrupt("an encoded string in place of a length")),
    }
}

/// The next 8 bytes as a signed number, little endian.
pub(crate) fn i64_le(source: &mut impl Source) -> Result<i64> {
    array(source).map(i64::from_le_bytes)
}

/// The length of a compressed string, or of its compressed bytes, if the length is within the limit.
fn packed_len(bytes: u64) -> Result<usize> {
    let len = usize::try_from(bytes).ok().filter(|len| *len <= STRING_BYTES_MAX);
    len.ok_or(Error::PackedStringTooLong { bytes })
}

/// The length of a string that is not compressed, if the length is within the limit.
fn plain_len(bytes: u64) -> Result<usize> {
    let len = usize::try_from(bytes).ok().filter(|len| *len <= PLAIN_STRING_BYTES_MAX);
    len.ok_or(Error::StringTooLong { bytes })
}

/// Reads a string stored as an integer.
fn stored_int(encoding: u8, source: &mut impl Source) -> Result<i64> {
    match encoding {
        INT_8 => Ok(i64::from(i8::from_le_bytes(array(source)?))),
        INT_16 => Ok(i64::from(i16::from_le_bytes(array(source)?))),
        INT_32 => Ok(i64::from(i32::from_le_bytes(array(source)?))),
        _ => Err(Error::unexpected("a string encoding from 0 to 3", encoding.into())),
    }
}

/// Reads a string into `out`, whose former content is replaced.
pub(crate) fn string_into(source: &mut impl Source, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    match length_or_encoding(source)? {
        Length::Plain(n) => append(source, plain_len(n)?, out),
        Length::Encoded(LZF) => {
            let from = packed_len(length(source)?)?;
            let len = packed_len(length(source)?)?;
            if source.buffered().len() >= from {
                lzf::decompress(&source.buffered()[..from], len, out)?;
                source.consume(from);
                return Ok(());
            }
            let mut packed = Vec::new();
            append(source, from, &mut packed)?;
            lzf::decompress(&packed, len, out)
        }
        Length::Encoded(encoding) => {
            let n = stored_int(encoding, source)?;
            out.extend_from_slice(Digits::int(n).as_slice());
            Ok(())
        }
    }
}

/// Reads a string into `memory`. Returns the string as a view, or as a vector of its own when it is long.
pub(crate) fn string<'a>(source: &mut impl Source, memory: &'a mut Vec<u8>) -> Result<Text<'a>> {
    string_into(source, memory)?;
    Ok(take_text(memory))
}

/// The string in `memory`. A long string is moved out.
#[inline]
pub(crate) fn take_text(memory: &mut Vec<u8>) -> Text<'_> {
    if memory.len() >= OWNED_BYTES_MIN { Text::Owned(std::mem::take(memory)) } else { Text::Borrowed(memory) }
}

/// Skips a string.
pub(crate) fn skip_string(source: &mut impl Source) -> Result<()> {
    match length_or_encoding(source)? {
        Length::Plain(n) => skip(source, plain_len(n)?),
        Length::Encoded(LZF) => {
            let from = packed_len(length(source)?)?;
            packed_len(length(source)?)?;
            skip(source, from)
        }
        Length::Encoded(encoding) => stored_int(encoding, source).map(drop),
    }
}

/// Reads a double that is stored as eight bytes, little endian.
pub(crate) fn binary_double(source: &mut impl Source) -> Result<f64> {
    array(source).map(f64::from_le_bytes)
}

/// A double as text after its length, as in Redis 3.2 and older.
pub(crate) fn text_double(source: &mut impl Source) -> Result<f64> {
    const NAN: u8 = 253;
    const INFINITY: u8 = 254;
    const NEGATIVE_INFINITY: u8 = 255;
    match byte(source)? {
        NAN => Ok(f64::NAN),
        INFINITY => Ok(f64::INFINITY),
        NEGATIVE_INFINITY => Ok(f64::NEG_INFINITY),
        n => {
            let mut text = Vec::with_capacity(usize::from(n));
            append(source, usize::from(n), &mut text)?;
            parse_double(&text)
        }
    }
}

/// Parses a double in any form that C's printf writes.
pub(crate) fn parse_double(text: &[u8]) -> Result<f64> {
    /// Maximum length of the text of a double.
    const CHARS_MAX: usize = 128;
    std::str::from_utf8(text)
        .ok()
        .filter(|text| text.len() <= CHARS_MAX)
        .and_then(|text| text.parse().ok())
        .ok_or(Error::Corrupt("a score that is not a number"))
}

/// Appends the encoding of a length to `out`.
pub(crate) fn put_length(n: u64, out: &mut Vec<u8>) {
    if n < 1 << 6 {
        out.push(n as u8);
    } else if n < 1 << 14 {
        out.extend_from_slice(&[1 << 6 | (n >> 8) as u8, n as u8]);
    } else if let Ok(n) = u32::try_from(n) {
        out.push(LENGTH_32);
        out.extend_from_slice(&n.to_be_bytes());
    } else {
        out.push(LENGTH_64);
        out.extend_from_slice(&n.to_be_bytes());
    }
}

/// Appends `n` as an encoded string. Returns false and appends nothing when `n` needs more than 32 bits.
pub(crate) fn put_int(n: i64, out: &mut Vec<u8>) -> bool {
    const ENCODED: u8 = 3 << 6;
    if let Ok(n) = i8::try_from(n) {
        out.extend_from_slice(&[ENCODED | INT_8, n as u8]);
    } else if let Ok(n) = i16::try_from(n) {
        out.push(ENCODED | INT_16);
        out.extend_from_slice(&n.to_le_bytes());
    } else if let Ok(n) = i32::try_from(n) {
        out.push(ENCODED | INT_32);
        out.extend_from_slice(&n.to_le_bytes());
    } else {
        return false;
    }
    true
}

/// Appends a string: as an integer if its text is an integer, or compressed if that is smaller.
pub(crate) fn put_string(
    bytes: &[u8],
    compressor: Option<&mut lzf::Compressor>,
    pause: &dyn Fn(),
    out: &mut Vec<u8>,
) {
    /// Maximum length of an integer's text: "-2147483648"
    const INT_CHARS_MAX: usize = 11;
    /// Strings shorter than this are never compressed.
    const COMPRESSED_BYTES_MIN: usize = 21;
    const ENCODED_LZF: u8 = 3 << 6 | LZF;
    if bytes.len() <= INT_CHARS_MAX
        && let Some(n) = crate::text::canonical_int(bytes)
        && put_int(n, out)
    {
        return;
    }
    // The two lengths of a compressed string take up to four bytes more than the length of a plain string.
    if let Some(compressor) = compressor.filter(|_| bytes.len() >= COMPRESSED_BYTES_MIN)
        && let Some(packed) = compressor.compress(bytes, bytes.len() - 4, pause)
    {
        out.push(ENCODED_LZF);
        put_length(packed.len() as u64, out);
        put_length(bytes.len() as u64, out);
        out.extend_from_slice(packed);
        return;
    }
    put_length(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_the_fewest_bytes_and_decode_back() {
        for (n, bytes) in [
            (0, 1),
            (63, 1),
            (64, 2),
            (16_383, 2),
            (16_384, 5),
            (u64::from(u32::MAX), 5),
            (1 << 32, 9),
            (u64::MAX, 9),
        ] {
            let mut out = Vec::new();
            put_length(n, &mut out);
            assert_eq!(out.len(), bytes);
            let mut source = &out[..];
            assert_eq!(length(&mut source).unwrap(), n);
            assert!(source.is_empty());
            for cut in 0..out.len() {
                assert!(matches!(length(&mut &out[..cut]), Err(Error::Truncated)));
            }
        }
        assert!(length(&mut &[0xc0, 1][..]).is_err());
        assert!(length(&mut &[0x82, 1, 1, 1, 1, 1][..]).is_err());
    }

    #[test]
    fn strings_decode_back_in_every_encoding() {
        let mut compressor = lzf::Compressor::new();
        for (text, first) in [
            (&b""[..], 0),
            (b"hello", 5),
            (b"-128", 0xc0),
            (b"128", 0xc1),
            (b"-32769", 0xc2),
            (b"2147483648", 10),
            (b"007", 3),
            (&[b'x'; 20], 20),
            (&[b'x'; 21], 0xc3),
        ] {
            let mut out = Vec::new();
            put_string(text, Some(&mut compressor), &|| {}, &mut out);
            assert_eq!(out[0], first, "{text:?}");
            let (mut source, mut memory) = (&out[..], vec![1, 2, 3]);
            assert_eq!(&*string(&mut source, &mut memory).unwrap(), text);
            assert!(source.is_empty());
            let mut source = &out[..];
            skip_string(&mut source).unwrap();
            assert!(source.is_empty());
        }
        let announced = [0x80, 0x1f, 0xff, 0xff, 0xff, b'a'];
        let mut memory = Vec::new();
        assert!(matches!(string(&mut &announced[..], &mut memory), Err(Error::Truncated)));
        assert!(memory.capacity() < 64, "memory comes with the bytes, not with the length before them");
        let too_long = [0x81, 0, 0, 0, 0x10, 0, 0, 0, 1];
        assert!(
            matches!(string(&mut &too_long[..], &mut memory), Err(Error::StringTooLong { bytes }) if bytes == (64 << 30) + 1)
        );
        let too_long = [0xc3, 1, 0x80, 0x20, 0, 0, 1, 0];
        assert!(
            matches!(string(&mut &too_long[..], &mut memory), Err(Error::PackedStringTooLong { bytes }) if bytes == (512 << 20) + 1)
        );
        // Such a string is not compressed, so only its bytes are missing here.
        let long = [0x80, 0x20, 0, 0, 1];
        assert!(matches!(string(&mut &long[..], &mut memory), Err(Error::Truncated)));
        assert!(string(&mut &[0xc4, 0, 0, 0, 0][..], &mut memory).is_err());
    }

    #[test]
    fn doubles_of_old_files_are_read() {
        for (bytes, value) in [
            (&b"\xfe"[..], f64::INFINITY),
            (b"\xff", f64::NEG_INFINITY),
            (b"\x031.5", 1.5),
            (b"\x02-0", -0.0),
            (b"\x051e+17", 1e17),
        ] {
            let read = text_double(&mut { bytes }).unwrap();
            assert_eq!(read.to_bits(), value.to_bits());
        }
        assert!(text_double(&mut &b"\xfd"[..]).unwrap().is_nan());
        assert!(text_double(&mut &b"\x01x"[..]).is_err());
        assert!(text_double(&mut &b"\x00"[..]).is_err());
        assert!(matches!(text_double(&mut &b"\x09x"[..]), Err(Error::Truncated)));
    }
}
