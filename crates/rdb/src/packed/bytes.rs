//! Reads at a position of a blob. No read leaves the blob.

use crate::{Error, Result};

/// The error for a blob that ends inside an entry.
const CUT: Error = Error::Corrupt("a packed collection that ends inside an entry");

/// The `n` bytes of `blob` at offset `at`.
#[inline]
pub(super) fn slice(blob: &[u8], at: usize, n: usize) -> Result<&[u8]> {
    blob.get(at..).and_then(|rest| rest.get(..n)).ok_or(CUT)
}

/// The `N` bytes of `blob` at offset `at`.
#[inline]
pub(super) fn array<const N: usize>(blob: &[u8], at: usize) -> Result<[u8; N]> {
    blob.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(CUT)
}

/// The little-endian number of `N` bytes at `at`, sign-extended.
#[inline]
pub(super) fn signed<const N: usize>(blob: &[u8], at: usize) -> Result<i64> {
    let bytes: [u8; N] = array(blob, at)?;
    let mut wide = [0; 8];
    wide[8 - N..].copy_from_slice(&bytes);
    Ok(i64::from_le_bytes(wide) >> (64 - 8 * N))
}
