//! The types of values. A value begins in a compact form, and changes to its large form at Redis's thresholds.

pub mod bits;
mod collection;
mod fields;
pub mod geo;
pub mod hash;
pub mod hyperloglog;
pub mod list;
mod packed;
pub mod set;
pub mod stream;
pub mod string;
#[allow(dead_code, unused_imports)]
pub(crate) mod tree;
mod wanted;
pub mod zset;

pub use collection::{AsValue, Changed, Collection, OnGone, Parts, Piece};
pub use wanted::{PUBLISHED_FIELD, Wanted};

use strand_chain::Blob;

/// Some bytes of a value: a slice of a larger allocation, or a blob of their own, which a reply may share.
#[derive(Clone, Copy, Debug)]
pub enum Bytes<'a> {
    /// A part of a larger allocation.
    Slice(&'a [u8]),
    /// A blob that holds exactly these bytes.
    Shared(&'a Blob),
}

impl Bytes<'_> {
    /// The bytes as a blob: the blob itself, or a copy of the slice.
    pub fn to_blob(&self) -> Blob {
        match self {
            Bytes::Slice(bytes) => Blob::from(*bytes),
            Bytes::Shared(blob) => (*blob).clone(),
        }
    }
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes::Slice(bytes)
    }
}
impl<'a, const N: usize> From<&'a [u8; N]> for Bytes<'a> {
    fn from(bytes: &'a [u8; N]) -> Bytes<'a> {
        Bytes::Slice(bytes)
    }
}
impl<'a> From<&'a Blob> for Bytes<'a> {
    fn from(blob: &'a Blob) -> Bytes<'a> {
        Bytes::Shared(blob)
    }
}

impl std::ops::Deref for Bytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Slice(s) => s,
            Bytes::Shared(b) => b,
        }
    }
}
