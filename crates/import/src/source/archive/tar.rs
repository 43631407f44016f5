//! Tar archives: headers one after the other, each with its bytes behind it.
//!
//! [`members`] walks over the headers (ustar, pax, GNU's long names) and returns the place of each file's bytes. The bytes
//! are read for their digest, and not kept. Links, devices and sparse files are counted and left out.

use super::budget::Budget;
use super::bytes::{Window, refused};
use super::limits::TAR_HEADER_BYTES_MAX;
use std::io;

const BLOCK_BYTES: u64 = 512;
/// Where the header of a sparse file says that a block of its map follows (1), and where that block says so for the next
/// (GNU tar's old format: `struct oldgnu_header` and `struct sparse_header`).
const SPARSE_GOES_ON: usize = 482;
const SPARSE_BLOCK_GOES_ON: usize = 504;
/// Maximum number of blocks of a sparse file's map: 21 parts of the file each.
const SPARSE_BLOCKS_MAX: usize = 1 << 16;

/// A file in the archive.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: Vec<u8>,
    pub(super) at: u64,
    pub(super) size: u64,
}

/// The content of an archive.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) files: Vec<Member>,
    pub(super) links: u64,
    pub(super) special: u64,
}

/// True when the bytes begin with a header.
pub(super) fn is_tar(beginning: &[u8]) -> bool {
    beginning.get(257..262) == Some(b"ustar") && beginning.get(..512).is_some_and(checksum_fits)
}

/// The files, in their order.
pub(super) fn members(tar: &Window, budget: &Budget) -> io::Result<Members> {
    let mut members = Members::default();
    let (mut at, mut long_name, mut long_size, mut is_sparse) = (0u64, None, None, false);
    while at + BLOCK_BYTES <= tar.len() {
        let header = tar.bytes(at, BLOCK_BYTES as usize)?;
        at += BLOCK_BYTES;
        // Two blocks of zeros end the archive. One is enough here.
        if header.iter().all(|b| *b == 0) {
            break;
        }
        if !checksum_fits(&header) {
            return Err(refused("the tar is damaged: a header's checksum differs".to_owned()));
        }
        let kind = header[156];
        let is_extended = matches!(kind, b'x' | b'g' | b'L' | b'K');
        let size = number(&header[124..136])
            .ok_or_else(|| refused("the tar is damaged: a size is no number".to_owned()))?;
        let size = match kind {
            _ if is_extended => size,
            // No data follows links, devices and folders, whatever size they name (POSIX, ustar).
            b'1'..=b'6' => {
                long_size = None;
                0
            }
            _ => long_size.take().unwrap_or(size),
        };
        if kind == b'S' && header[SPARSE_GOES_ON] == 1 {
            at = after_sparse_map(tar, at)?;
        }
        let behind = size.checked_next_multiple_of(BLOCK_BYTES).and_then(|bytes| at.checked_add(bytes));
        let behind = behind.filter(|_| at + size <= tar.len());
        let behind = behind.ok_or_else(|| refused("the tar ends within an entry".to_owned()))?;
        if is_extended {
            if size > TAR_HEADER_BYTES_MAX {
                return Err(refused(format!(
                    "a header of the tar has more than {TAR_HEADER_BYTES_MAX} bytes"
                )));
            }
            let text = tar.bytes(at, size as usize)?;
            match kind {
                b'L' => long_name = Some(text.split(|b| *b == 0).next().unwrap_or_default().to_vec()),
                b'x' => {
                    for (key, value) in pax_records(&text) {
                        match key {
                            b"path" => long_name = Some(value.to_vec()),
                            b"size" => {
                                long_size = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok())
                            }
                            _ => is_sparse |= key.starts_with(b"GNU.sparse."),
                        }
                    }
                }
                _ => {}
            }
            at = behind;
            continue;
        }
        let name = long_name.take().unwrap_or_else(|| short_name(&header));
        match kind {
            _ if std::mem::take(&mut is_sparse) => members.special += 1,
            0 | b'0' | b'7' if !name.ends_with(b"/") => {
                budget.list()?;
                members.files.push(Member { name, at, size });
            }
            b'1' | b'2' => members.links += 1,
            b'5' | 0 | b'0' => {}
            _ => members.special += 1,
        }
        at = behind;
    }
    Ok(members)
}

/// The place after the further blocks of a sparse file's map, the first of which is at `at` (GNU tar's old format).
fn after_sparse_map(tar: &Window, mut at: u64) -> io::Result<u64> {
    for _ in 0..SPARSE_BLOCKS_MAX {
        if at + BLOCK_BYTES > tar.len() {
            return Err(refused("the tar ends within the map of a sparse file".to_owned()));
        }
        let block = tar.bytes(at, BLOCK_BYTES as usize)?;
        at += BLOCK_BYTES;
        if block[SPARSE_BLOCK_GOES_ON] != 1 {
            return Ok(at);
        }
    }
    Err(refused(format!("the map of a sparse file in the tar has more than {SPARSE_BLOCKS_MAX} blocks")))
}

/// True when the header's checksum is the sum of its bytes, with blanks in place of the checksum.
fn checksum_fits(header: &[u8]) -> bool {
    let sum: u64 = header.iter().map(|b| u64::from(*b)).sum();
    let own: u64 = header[148..156].iter().map(|b| u64::from(*b)).sum();
    number(&header[148..156]) == Some(sum - own + 8 * u64::from(b' '))
}

/// A number in octal digits, or with the first bit set in base 256.
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

fn short_name(header: &[u8]) -> Vec<u8> {
    let until_nul = |field: &[u8]| field.split(|b| *b == 0).next().unwrap_or_default().to_vec();
    let name = until_nul(&header[..100]);
    // GNU's own headers have times in the place of ustar's first part of the name.
    let prefix = if &header[257..263] == b"ustar\0" { until_nul(&header[345..500]) } else { Vec::new() };
    if prefix.is_empty() { name } else { [&prefix[..], b"/", &name].concat() }
}

/// Reads lines `length key=value\n`. Ends at the first malformed one.
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
