//! Zip archives: the central directory, and one entry at a time.
//!
//! [`members`] reads only the directory at the end of the archive, of zip or zip64. Overlapping entries are refused,
//! because zip bombs have them. [`open`] opens one entry. If a name occurs twice, both entries are members.

use super::budget::ArchiveBudget;
use super::bytes::{Decoder, Unpacking, Window, archive_error};
use super::decoders::Codec;
use super::limits::ZIP_DIRECTORY_BYTES_MAX;
use crate::source::Object;
use std::io;
use std::rc::Rc;

const END_BYTES: usize = 22;
const COMMENT_BYTES_MAX: usize = 65_535;
/// Number of bytes at the end of the archive in which the end record is searched.
const TAIL_BYTES_MAX: usize = END_BYTES + COMMENT_BYTES_MAX;
/// Maximum number of places that are tried as the end record.
const END_RECORDS_MAX: usize = 64;
const HEADER_BYTES: usize = 46;
const LOCAL_HEADER_BYTES: usize = 30;
/// Bytes of a member's token.
pub(super) const TOKEN_BYTES: usize = 26;
/// The range of a member's token that stays equal when the member is renamed: its checksum and its size.
pub(super) const IDENTITY: std::ops::Range<usize> = 6..18;
/// The value of a field whose actual value is in the zip64 extension.
const IN_ZIP64: u64 = u32::MAX as u64;

/// An entry of the directory.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The name in the directory. A folder's name ends in a slash.
    pub(super) name: Vec<u8>,
    /// The number of unpacked bytes according to the directory.
    pub(super) size: u64,
    /// The facts about the bytes in the directory: method, time, checksum and sizes.
    pub(super) token: Vec<u8>,
    pub(super) is_link: bool,
    method: u16,
    crc: u32,
    packed: u64,
    header_at: u64,
    is_encrypted: bool,
}

/// The entries, in the order of the directory.
pub(super) fn members(zip: &Window, budget: &ArchiveBudget) -> io::Result<Vec<Member>> {
    let end = End::find(zip)?;
    budget.hold(end.directory_bytes);
    let directory = zip.bytes(end.directory_at, end.directory_bytes as usize)?;
    let (mut members, mut at) = (Vec::new(), 0);
    while let Some(header) = directory.get(at..at + HEADER_BYTES).filter(|h| h.starts_with(b"PK\x01\x02")) {
        let lens = [28, 30, 32].map(|i| usize::from(u16_at(header, i)));
        let names = directory.get(at + HEADER_BYTES..).unwrap_or_default();
        let (Some(name), Some(extra)) = (names.get(..lens[0]), names.get(lens[0]..lens[0] + lens[1])) else {
            return Err(damaged(format_args!("the entry at byte {at} of its directory is cut off")));
        };
        // A folder counts when its first entry is added.
        if !name.ends_with(b"/") {
            budget.list()?;
        }
        members.push(Member::read(header, name, extra, end.shift)?);
        at += HEADER_BYTES + lens.iter().sum::<usize>();
    }
    if members.len() as u64 & u64::from(u16::MAX) != end.count & u64::from(u16::MAX) {
        let (found, said) = (members.len(), end.count);
        return Err(damaged(format_args!("its directory has {found} entries, its end record says {said}")));
    }
    let mut places: Vec<_> = members.iter().map(|m| (m.header_at, m.packed)).collect();
    places.push((end.directory_at, 0));
    places.sort_unstable();
    let apart = |pair: &[(u64, u64)]| {
        pair[0]
            .1
            .checked_add(LOCAL_HEADER_BYTES as u64)
            .and_then(|bytes| pair[0].0.checked_add(bytes))
            .is_some_and(|end| end <= pair[1].0)
    };
    if !places.windows(2).all(apart) {
        return Err(archive_error("entries of the zip overlap".to_owned()));
    }
    Ok(members)
}

/// Opens one entry for reading its unpacked bytes.
pub(super) fn open(zip: &Window, member: &Member, budget: &Rc<ArchiveBudget>) -> io::Result<Box<dyn Object>> {
    if member.is_encrypted {
        return Err(archive_error("the entry is encrypted".to_owned()));
    }
    let header = zip.bytes(member.header_at, LOCAL_HEADER_BYTES)?;
    if !header.starts_with(b"PK\x03\x04") {
        let at = member.header_at;
        return Err(damaged(format_args!("byte {at}: there is no header of the entry")));
    }
    let lens = u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
    let packed = zip.part(member.header_at + LOCAL_HEADER_BYTES as u64 + lens, member.packed)?;
    let unpacked = |codec: Codec| codec.decoder(packed.reader(), codec.bytes_max(), budget);
    let decoder = match member.method {
        0 => Decoder::new(budget, 0, || Ok(packed.reader())),
        8 => unpacked(Codec::Deflate),
        93 => unpacked(Codec::Zstd),
        95 => unpacked(Codec::Xz),
        other => Err(archive_error(format!(
            "the entry is compressed by the method {other}, expected 0 (none), 8 (deflate), 93 (zstd) or 95 (xz)"
        ))),
    };
    // Unpack at most one byte more than the directory says: that byte shows that the size is wrong.
    let decoder = decoder?.take(member.size.saturating_add(1));
    let claimed = Some((member.size, member.crc));
    Ok(Box::new(Unpacking::new(decoder, member.packed, claimed, budget.clone())))
}

impl Member {
    fn read(header: &[u8], name: &[u8], extra: &[u8], shift: u64) -> io::Result<Member> {
        let wide = [24, 20, 42].map(|i| u64::from(u32_at(header, i)));
        let missing = || damaged("the zip64 extension of an entry is missing, or cut off");
        let [size, packed, header_at] = widen(wide, extra).ok_or_else(missing)?;
        let unix = header[5] == 3;
        let mode = u32_at(header, 38) >> 16;
        // Method, time, date and checksum.
        let mut token = header[10..20].to_vec();
        token.extend_from_slice(&size.to_le_bytes());
        token.extend_from_slice(&packed.to_le_bytes());
        Ok(Member {
            name: name.to_vec(),
            size,
            token,
            is_link: unix && mode & 0o170_000 == 0o120_000,
            method: u16_at(header, 10),
            crc: u32_at(header, 16),
            packed,
            header_at: header_at
                .checked_add(shift)
                .ok_or_else(|| damaged("the offset of an entry is too large"))?,
            is_encrypted: header[8] & 1 != 0,
        })
    }
}

/// Replaces the numbers (size, packed size, offset) that do not fit into 32 bits by those of the zip64 extension.
fn widen(mut numbers: [u64; 3], mut extra: &[u8]) -> Option<[u64; 3]> {
    while numbers.contains(&IN_ZIP64) {
        let (header, rest) = extra.split_at_checked(4)?;
        let (mut field, rest) = rest.split_at_checked(usize::from(u16_at(header, 2)))?;
        if u16_at(header, 0) == 1 {
            for number in numbers.iter_mut().filter(|n| **n == IN_ZIP64) {
                let (wide, rest) = field.split_at_checked(8)?;
                *number = u64_at(wide, 0);
                field = rest;
            }
            return Some(numbers);
        }
        extra = rest;
    }
    Some(numbers)
}

/// The record at the end of the archive.
struct End {
    directory_at: u64,
    directory_bytes: u64,
    count: u64,
    /// Number of bytes before the archive's first byte: the program of a self-extracting archive.
    shift: u64,
}

impl End {
    /// Finds the end record. Usually the record and its comment end with the archive. If no record does, bytes follow the
    /// archive, or the comment is cut off. Then the last record counts whose directory is in its place. An archive that is
    /// stored in a cut-off archive has no such record: its directory is in another place than its record says.
    fn find(zip: &Window) -> io::Result<End> {
        let tail_bytes = zip.len().min(TAIL_BYTES_MAX as u64);
        let tail_at = zip.len() - tail_bytes;
        let tail = zip.bytes(tail_at, tail_bytes as usize)?;
        let is_whole = |at: &usize| at + END_BYTES <= tail.len();
        let ends_tail = |at: &usize| at + END_BYTES + usize::from(u16_at(&tail, at + 20)) == tail.len();
        let mut places = memchr::memmem::rfind_iter(&tail, b"PK\x05\x06").filter(is_whole);
        let at_end = places.clone().find(ends_tail);
        let first = at_end.or_else(|| places.clone().next()).ok_or_else(|| {
            damaged(format_args!("there is no end-of-directory record in its last {tail_bytes} bytes"))
        })?;
        let read = |at: usize| End::read(zip, &tail[at..at + END_BYTES], tail_at + at as u64);
        let end = read(first);
        if at_end.is_some() || end.as_ref().is_ok_and(|end| end.shift == 0) {
            return end;
        }
        let exact =
            places.by_ref().take(END_RECORDS_MAX).find_map(|at| read(at).ok().filter(|end| end.shift == 0));
        exact.ok_or_else(|| {
            end.err().unwrap_or_else(|| {
                damaged("bytes follow its end record, and its directory is not in its place")
            })
        })
    }

    /// Reads the end record `end`, which is at `end_at`.
    fn read(zip: &Window, end: &[u8], end_at: u64) -> io::Result<End> {
        let mut count = u64::from(u16_at(end, 10));
        let mut bytes = u64::from(u32_at(end, 12));
        let mut from = u64::from(u32_at(end, 16));
        let mut directory_end = end_at;
        if bytes == IN_ZIP64 || from == IN_ZIP64 || count == u64::from(u16::MAX) {
            let locator = end_at.checked_sub(20).map(|at| zip.bytes(at, 20)).transpose()?.unwrap_or_default();
            if locator.starts_with(b"PK\x06\x07") {
                directory_end = u64_at(&locator, 8);
                let wide = zip.bytes(directory_end, 56)?;
                if !wide.starts_with(b"PK\x06\x06") {
                    return Err(damaged(format_args!("byte {directory_end}: there is no zip64 end record")));
                }
                (count, bytes, from) = (u64_at(&wide, 32), u64_at(&wide, 40), u64_at(&wide, 48));
            }
        }
        if bytes > ZIP_DIRECTORY_BYTES_MAX {
            return Err(archive_error(format!(
                "the zip's directory has {bytes} bytes, at most {ZIP_DIRECTORY_BYTES_MAX} are allowed"
            )));
        }
        let directory_at = directory_end.checked_sub(bytes);
        let not_there = || {
            damaged(format_args!(
                "its end record says that the directory is {bytes} bytes at byte {from}, but the record is at byte \
                 {directory_end}"
            ))
        };
        let shift = directory_at.and_then(|at| at.checked_sub(from)).ok_or_else(not_there)?;
        let directory_at = from + shift;
        if bytes > 0 && !zip.bytes(directory_at, bytes.min(4) as usize)?.starts_with(b"PK\x01\x02") {
            return Err(damaged(format_args!("byte {directory_at}: there is no directory")));
        }
        Ok(End { directory_at, directory_bytes: bytes, count, shift })
    }
}

fn damaged(cause: impl std::fmt::Display) -> io::Error {
    archive_error(format!("the zip is damaged: {cause}"))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
