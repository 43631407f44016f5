//! [`Codec`]: the decoders of compressed streams, and the memory that each decoder needs.
//!
//! The first header of an xz or zstd stream says how much memory the decoder needs. The run borrows this much. A later
//! header of the stream may need more. Then the decoder fails, and the caller tries again with the maximum.

use super::budget::ArchiveBudget;
use super::bytes::{Decoder, archive_error};
use super::limits::{XZ_MEMORY_BYTES_MAX, ZSTD_WINDOW_LOG_MAX};
use flate2::bufread::GzDecoder;
use std::io::{self, BufReader, ErrorKind, Read};

/// Number of bytes at the beginning of a stream that [`Codec::stated_bytes`] needs.
pub(super) const HEADER_BYTES: usize = 64;
/// Memory of a decoder in addition to its window: tables, and a block of input. xz needs 65,592 bytes (`xz -lvv`).
const TABLES_BYTES: u64 = 256 << 10;

/// The method by which a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Deflate,
    Gzip,
    Xz,
    Zstd,
}

impl Codec {
    /// Maximum memory of the decoder in bytes.
    pub(super) fn bytes_max(self) -> u64 {
        match self {
            Codec::Deflate | Codec::Gzip => TABLES_BYTES,
            Codec::Xz => XZ_MEMORY_BYTES_MAX,
            Codec::Zstd => (1 << ZSTD_WINDOW_LOG_MAX) + TABLES_BYTES,
        }
    }

    /// The memory in bytes that the decoder needs according to the beginning of the stream.
    pub(super) fn stated_bytes(self, beginning: &[u8]) -> u64 {
        let window = match self {
            Codec::Deflate | Codec::Gzip => Some(0),
            Codec::Xz => xz_dictionary_bytes(beginning),
            Codec::Zstd => zstd_window_bytes(beginning),
        };
        window.map_or(u64::MAX, |bytes| bytes.saturating_add(TABLES_BYTES)).min(self.bytes_max())
    }

    /// A decoder of the stream `packed` that takes up to `bytes` of memory.
    pub(super) fn decoder(
        self,
        packed: impl Read + 'static,
        bytes: u64,
        budget: &ArchiveBudget,
    ) -> io::Result<Decoder> {
        match self {
            Codec::Deflate => Decoder::new(budget, bytes, || Ok(flate2::read::DeflateDecoder::new(packed))),
            Codec::Gzip => Decoder::new(budget, bytes, || Ok(Gzip::new(packed))),
            Codec::Xz => Decoder::new(budget, bytes, || {
                let flags = liblzma::stream::CONCATENATED;
                let stream = liblzma::stream::Stream::new_stream_decoder(bytes, flags);
                let stream = stream.map_err(|error| archive_error(error.to_string()))?;
                Ok(liblzma::read::XzDecoder::new_stream(packed, stream))
            }),
            Codec::Zstd => Decoder::new(budget, bytes, || {
                let mut reader = zstd::stream::read::Decoder::new(packed)?;
                let window = bytes.saturating_sub(TABLES_BYTES).max(1 << 10);
                reader.window_log_max(window.next_power_of_two().ilog2().min(ZSTD_WINDOW_LOG_MAX))?;
                Ok(reader)
            }),
        }
    }

    /// True when `error` means that the decoder needs more memory than it may use. The libraries have no error type for
    /// this. The text of both has the word "memory"; a test below sees both texts.
    pub(super) fn needs_more(error: &io::Error) -> bool {
        error.kind() == ErrorKind::Other && error.to_string().contains("memory")
    }
}

/// The first bytes of a member of a gzip stream.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The bytes of a gzip stream from a member on. The first bytes were read to see whether they begin a member.
type GzipBytes<R> = io::Chain<io::Cursor<Vec<u8>>, BufReader<R>>;

/// A decoder of all members of a gzip stream. Bytes behind the last member that begin no member are ignored, as gzip
/// does: tapes and some downloads fill the last block with zeros, and some programs append bytes of their own.
struct Gzip<R> {
    /// The decoder of the current member. `None` at the end.
    member: Option<GzDecoder<GzipBytes<R>>>,
}

impl<R: Read> Gzip<R> {
    fn new(packed: R) -> Gzip<R> {
        Gzip { member: Some(member(Vec::new(), BufReader::new(packed))) }
    }
}

/// The decoder of the member that begins with the bytes `first`.
fn member<R: Read>(first: Vec<u8>, rest: BufReader<R>) -> GzDecoder<GzipBytes<R>> {
    GzDecoder::new(io::Cursor::new(first).chain(rest))
}

impl<R: Read> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Each round but the last reads at least the header of a member.
        while let Some(current) = &mut self.member {
            let got = current.read(into)?;
            if got > 0 || into.is_empty() {
                return Ok(got);
            }
            let Some(current) = self.member.take() else { break };
            let (_, mut rest) = current.into_inner().into_inner();
            let mut first = Vec::new();
            rest.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut first)?;
            if first == GZIP_MAGIC {
                self.member = Some(member(first, rest));
            } else {
                // Read to the end, because an outer archive's checksum is compared there.
                io::copy(&mut rest, &mut io::sink())?;
            }
        }
        Ok(0)
    }
}

/// The size in bytes of the dictionary, from the header of an xz stream's first block. `None` when the header has
/// another form. Source: <https://tukaani.org/xz/xz-file-format.txt>, sections 3.1 and 5.3.1.
fn xz_dictionary_bytes(stream: &[u8]) -> Option<u64> {
    const STREAM_HEADER_BYTES: usize = 12;
    const LZMA2: u8 = 0x21;
    let block = stream.get(STREAM_HEADER_BYTES..)?;
    let (size, flags) = (*block.first()?, *block.get(1)?);
    if size == 0 {
        // The index follows: the stream is empty.
        return Some(0);
    }
    let mut rest = block.get(2..)?;
    let mut skip_number = || {
        let end = rest.iter().position(|byte| byte & 0x80 == 0)?;
        rest = rest.get(end + 1..)?;
        Some(())
    };
    // The packed and the unpacked size of the block may precede the filters.
    for flag in [0x40, 0x80] {
        if flags & flag != 0 {
            skip_number()?;
        }
    }
    // A filter is an id, the length of its properties, and the properties. LZMA2 is the last filter.
    for _ in 0..=flags & 3 {
        let (&id, after_id) = rest.split_first()?;
        let (&len, after_len) = after_id.split_first()?;
        let properties = after_len.get(..usize::from(len))?;
        if id == LZMA2 {
            return match *properties.first()? {
                bits @ 0..40 => Some((2 | u64::from(bits) & 1) << (bits / 2 + 11)),
                _ => None,
            };
        }
        rest = after_len.get(usize::from(len)..)?;
    }
    None
}

/// The size in bytes of the window, from the header of a zstd stream's first frame. `None` when the header has another
/// form.
/// Source: RFC 8878, section 3.1.1.1.
fn zstd_window_bytes(stream: &[u8]) -> Option<u64> {
    let header = stream.strip_prefix(b"\x28\xb5\x2f\xfd")?;
    let descriptor = *header.first()?;
    if descriptor & 0x20 == 0 {
        let byte = *header.get(1)?;
        let base = 1u64 << (10 + (byte >> 3));
        return Some(base + base / 8 * u64::from(byte & 7));
    }
    // The whole content is the window. Its size follows the id of the dictionary.
    let id_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_bytes = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let field = header.get(1 + id_bytes..)?.get(..size_bytes)?;
    let size = field.iter().rev().fold(0, |size, byte| size << 8 | u64::from(*byte));
    Some(if size_bytes == 2 { size + 256 } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A short text, compressed by xz at `level`.
    fn xz(level: u32) -> Vec<u8> {
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), level);
        encoder.write_all(b"text").unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(level: i32, text: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level).unwrap();
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn bytes_behind_the_last_member_of_a_gzip_stream_are_ignored() {
        let member = |text: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let read = |stream: Vec<u8>| {
            let budget = ArchiveBudget::for_bytes(1 << 30);
            let mut decoder = Codec::Gzip.decoder(io::Cursor::new(stream), TABLES_BYTES, &budget).unwrap();
            let mut text = Vec::new();
            decoder.read_to_end(&mut text).map(|_| text)
        };
        let both = [member(b"one "), member(b""), member(b"two")].concat();
        for zeros in [0, 1, 20_000] {
            assert_eq!(read([both.clone(), vec![0; zeros]].concat()).unwrap(), b"one two", "{zeros} zeros");
        }
        for behind in [&b"\0\0x"[..], b"words", b"x", b"junk", b"\x1f", b"\x1f\x8c\x08\0", &[b'x'; 100_000]] {
            assert_eq!(read([&both[..], behind].concat()).unwrap(), b"one two", "{behind:?}");
        }
        // A member that is cut off, and a stream that begins with no member.
        for cut in [1, 5, member(b"two").len() - 2] {
            assert!(read(both[..both.len() - cut].to_vec()).is_err(), "{cut}");
        }
        assert!(read([&both[..], b"\x1f\x8b\x08"].concat()).is_err() && read(b"words".to_vec()).is_err());
    }

    #[test]
    fn the_memory_of_a_decoder_follows_from_the_header() {
        for (level, dictionary_bytes) in [(0, 256 << 10), (6, 8 << 20), (9, 64 << 20)] {
            assert_eq!(Codec::Xz.stated_bytes(&xz(level)), dictionary_bytes + TABLES_BYTES, "xz -{level}");
        }
        // A stream of unknown length names its window. The library's tables of levels say how large the window is.
        assert_eq!(Codec::Zstd.stated_bytes(&zstd(3, b"text")), (2 << 20) + TABLES_BYTES);
        let whole = zstd::bulk::compress(&[7; 300], 3).unwrap();
        assert_eq!(Codec::Zstd.stated_bytes(&whole), 300 + TABLES_BYTES);
        for (codec, odd) in [(Codec::Xz, &b"\xfd7zXZ\0"[..]), (Codec::Zstd, b"\x50\x2a\x4d\x18")] {
            assert_eq!(codec.stated_bytes(odd), codec.bytes_max(), "{odd:?}");
        }
    }

    #[test]
    fn a_stream_that_needs_more_than_its_first_header_says_has_its_own_error() {
        let budget = ArchiveBudget::for_bytes(1 << 30);
        let both = [xz(0), xz(9)].concat();
        let long: Vec<u8> =
            (0..3u32 << 20).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let frames = [zstd(1, b"text"), zstd(19, &long)].concat();
        for (codec, stream) in [(Codec::Xz, both), (Codec::Zstd, frames)] {
            let read = |bytes| {
                let packed = io::Cursor::new(stream.clone());
                io::copy(&mut codec.decoder(packed, bytes, &budget).unwrap(), &mut io::sink())
            };
            let stated = codec.stated_bytes(&stream);
            assert!(Codec::needs_more(&read(stated).unwrap_err()), "{codec:?}");
            assert!(read(codec.bytes_max()).is_ok(), "{codec:?}");
        }
    }
}
