//! Tar archives: a sequence of headers. The bytes of each file follow its header.
//!
//! [`members`] reads the headers (ustar, pax, GNU's long names) and returns where each file's bytes are, and which entry
//! a hard link names. Symbolic links, devices and sparse files are counted, and not imported.

use super::budget::ArchiveBudget;
use super::bytes::{Window, archive_error};
use super::limits::TAR_HEADER_BYTES_MAX;
use std::io;

const BLOCK_BYTES: u64 = 512;
/// Number of blocks of zeros that end a tar. A tar without entries has no other blocks.
const EMPTY_BLOCKS: usize = 2;
/// Maximum number of bytes of a tar without entries. GNU tar writes 10,240 bytes, and one record with `-b`, whose largest
/// usual size is 1 MiB.
const EMPTY_BYTES_MAX: u64 = 1 << 20;
/// Number of bytes at the beginning that decide whether a document is a tar.
pub(super) const BEGINNING_BYTES: usize = EMPTY_BLOCKS * BLOCK_BYTES as usize;
/// Offset of the byte `isextended` in the header of a sparse file (GNU tar's old format, `struct oldgnu_header`). 1: a
/// block of the sparse map follows the header.
const SPARSE_HEADER_EXTENDED: usize = 482;
/// Offset of the byte `isextended` in a block of the sparse map (`struct sparse_header`). 1: another block follows.
const SPARSE_BLOCK_EXTENDED: usize = 504;
/// The range of a link's target in a header.
const LINK_NAME: std::ops::Range<usize> = 157..257;
/// Maximum number of blocks of a sparse map. Each block describes 21 parts of the file.
const SPARSE_BLOCKS_MAX: usize = 1 << 16;

/// A file in the archive.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: Vec<u8>,
    pub(super) content: Content,
}

/// Where the bytes of a file are.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// At this offset in the archive.
    Here { offset: u64, size: u64 },
    /// In an earlier entry, whose name is this: the file is a hard link.
    In(Vec<u8>),
}

/// The content of an archive.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) files: Vec<Member>,
    pub(super) links: u64,
    pub(super) special: u64,
}

/// True when the bytes begin with a tar header. `is_named_tar`: the name says that the document is a tar. Then the header
/// may also be of the format v7, which has no magic. And the document may consist of blocks of zeros: a tar without
/// entries. `beginning` has the first
/// [`BEGINNING_BYTES`], or the whole document if it is shorter.
pub(super) fn is_tar(beginning: &[u8], is_named_tar: bool) -> bool {
    const BLOCK: usize = BLOCK_BYTES as usize;
    let Some(header) = beginning.get(..BLOCK) else { return false };
    let has_magic = header.get(257..262) == Some(b"ustar");
    let is_empty = || {
        let blocks = beginning.len() / BLOCK;
        beginning.len().is_multiple_of(BLOCK) && blocks >= EMPTY_BLOCKS && beginning.iter().all(|b| *b == 0)
    };
    (has_magic || is_named_tar) && checksum_fits(header) || is_named_tar && is_empty()
}

/// The files of the archive, in the order of their headers.
pub(super) fn members(tar: &Window, budget: &ArchiveBudget) -> io::Result<Members> {
    let mut members = Members::default();
    let (mut at, mut long_name, mut long_size, mut is_sparse) = (0u64, None, None, false);
    let mut long_link = None;
    while at != tar.len() {
        // A tar without blocks of zeros at its end is accepted, because some programs write none.
        if at + BLOCK_BYTES > tar.len() {
            return Err(cut_off(tar, "within a header, or before the end of an entry's last block"));
        }
        let header = tar.bytes(at, BLOCK_BYTES as usize)?;
        at += BLOCK_BYTES;
        // Two blocks of zeros end the archive. One is enough here.
        if header.iter().all(|b| *b == 0) {
            return if at == BLOCK_BYTES { check_empty(tar).map(|()| members) } else { Ok(members) };
        }
        if !checksum_fits(&header) {
            let header_at = at - BLOCK_BYTES;
            return Err(archive_error(format!(
                "the tar is damaged: byte {header_at}: a header's checksum is wrong"
            )));
        }
        let kind = header[156];
        let is_extended = matches!(kind, b'x' | b'g' | b'L' | b'K');
        let size = number(&header[124..136]).ok_or_else(|| {
            let header_at = at - BLOCK_BYTES;
            archive_error(format!(
                "the tar is damaged: byte {header_at}: the size in a header is not a number"
            ))
        })?;
        let size = match kind {
            _ if is_extended => size,
            // No data follows the header of a link, device or folder, even if the header has a size (POSIX, ustar).
            b'1'..=b'6' => {
                long_size = None;
                0
            }
            _ => long_size.take().unwrap_or(size),
        };
        if kind == b'S' && header[SPARSE_HEADER_EXTENDED] == 1 {
            at = after_sparse_map(tar, at)?;
        }
        let next_header_at =
            size.checked_next_multiple_of(BLOCK_BYTES).and_then(|bytes| at.checked_add(bytes));
        let next_header_at = next_header_at.filter(|_| at + size <= tar.len()).ok_or_else(|| {
            let len = tar.len();
            archive_error(format!(
                "the tar ends at byte {len}, within the {size} bytes of the entry at byte {at}"
            ))
        })?;
        if is_extended {
            if size > TAR_HEADER_BYTES_MAX {
                return Err(archive_error(format!(
                    "byte {at}: a header of the tar has {size} bytes, at most {TAR_HEADER_BYTES_MAX} are allowed"
                )));
            }
            let text = tar.bytes(at, size as usize)?;
            match kind {
                b'L' => long_name = Some(until_nul(&text)),
                b'K' => long_link = Some(until_nul(&text)),
                b'x' => {
                    for (key, value) in pax_records(&text) {
                        match key {
                            b"path" => long_name = Some(value.to_vec()),
                            b"linkpath" => long_link = Some(value.to_vec()),
                            b"size" => {
                                long_size = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok())
                            }
                            _ => is_sparse |= key.starts_with(b"GNU.sparse."),
                        }
                    }
                }
                _ => {}
            }
            at = next_header_at;
            continue;
        }
        let name = long_name.take().unwrap_or_else(|| short_name(&header));
        let link = long_link.take();
        match kind {
            _ if std::mem::take(&mut is_sparse) => members.special += 1,
            0 | b'0' | b'7' if !name.ends_with(b"/") => {
                budget.list()?;
                members.files.push(Member { name, content: Content::Here { offset: at, size } });
            }
            b'1' if !budget.has_room_for_link(0) => members.links += 1,
            b'1' => {
                budget.list()?;
                let target = link.unwrap_or_else(|| until_nul(&header[LINK_NAME]));
                members.files.push(Member { name, content: Content::In(target) });
            }
            b'2' => members.links += 1,
            b'5' | 0 | b'0' => {}
            _ => members.special += 1,
        }
        at = next_header_at;
    }
    // A long name or a size describes the entry behind it.
    match long_name.is_none() && long_link.is_none() && long_size.is_none() && !is_sparse {
        true => Ok(members),
        false => Err(cut_off(tar, "after an extended header, before the entry of this header")),
    }
}

/// Checks that a tar which begins with zeros is a tar without entries. A download that was cut off may have zeros in
/// place of its first bytes, or consist of zeros.
fn check_empty(tar: &Window) -> io::Result<()> {
    let len = tar.len();
    if len > EMPTY_BYTES_MAX {
        return Err(archive_error(format!(
            "the tar begins with zeros and has {len} bytes; a tar without entries has at most {EMPTY_BYTES_MAX}"
        )));
    }
    match tar.bytes(0, len as usize)?.iter().position(|b| *b != 0) {
        None => Ok(()),
        Some(at) => Err(archive_error(format!("the tar begins with zeros, and byte {at} is not zero"))),
    }
}

fn cut_off(tar: &Window, place: &str) -> io::Error {
    archive_error(format!("the tar ends at byte {}, {place}", tar.len()))
}

/// The offset after the sparse map whose first block is at `at` (GNU tar's old format).
fn after_sparse_map(tar: &Window, mut at: u64) -> io::Result<u64> {
    for _ in 0..SPARSE_BLOCKS_MAX {
        if at + BLOCK_BYTES > tar.len() {
            return Err(cut_off(tar, "within the map of a sparse file"));
        }
        let block = tar.bytes(at, BLOCK_BYTES as usize)?;
        at += BLOCK_BYTES;
        if block[SPARSE_BLOCK_EXTENDED] != 1 {
            return Ok(at);
        }
    }
    Err(archive_error(format!(
        "the map of a sparse file in the tar has more than {SPARSE_BLOCKS_MAX} blocks"
    )))
}

/// True when the checksum in the header is right: the sum of the header's bytes, with blanks in place of the checksum.
fn checksum_fits(header: &[u8]) -> bool {
    let sum: u64 = header.iter().map(|b| u64::from(*b)).sum();
    let own: u64 = header[148..156].iter().map(|b| u64::from(*b)).sum();
    number(&header[148..156]) == Some(sum - own + 8 * u64::from(b' '))
}

/// Reads a number: octal digits, or base 256 if the first bit of the field is set. `None` if the field is neither.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let mut bytes = field.iter();
        let first = u64::from(bytes.next()? & 0x7f);
        return bytes.try_fold(first, |n, b| n.checked_mul(256)?.checked_add(u64::from(*b)));
    }
    let text = field.split(|b| *b == 0).next()?.trim_ascii();
    text.iter().try_fold(0u64, |n, b| match b {
        b'0'..=b'7' => n.checked_mul(8)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

/// The bytes in front of the first zero.
fn until_nul(field: &[u8]) -> Vec<u8> {
    field.split(|b| *b == 0).next().unwrap_or_default().to_vec()
}

/// The name in the header itself, which a long name in a header before it replaces.
fn short_name(header: &[u8]) -> Vec<u8> {
    let name = until_nul(&header[..100]);
    // Only ustar has the first part of a long name here. GNU's headers have times here.
    let prefix = if &header[257..263] == b"ustar\0" { until_nul(&header[345..500]) } else { Vec::new() };
    if prefix.is_empty() { name } else { [&prefix[..], b"/", &name].concat() }
}

/// Reads the pax records `length key=value\n`. Ends at the first malformed record.
fn pax_records(mut text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let blank = memchr::memchr(b' ', text)?;
        let len: usize = std::str::from_utf8(&text[..blank]).ok()?.parse().ok()?;
        let record = text.get(blank + 1..len)?.strip_suffix(b"\n")?;
        text = &text[len..];
        let equals = memchr::memchr(b'=', record)?;
        Some((&record[..equals], &record[equals + 1..]))
    })
}
