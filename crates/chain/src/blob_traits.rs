//! The traits of a [`Blob`]: slice, map key, printing, conversions.

use crate::Blob;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// Maximum number of bytes shown by the `Debug` form of a blob.
const DEBUG_BYTES_MAX: usize = 32;

impl Default for Blob {
    #[inline]
    fn default() -> Blob {
        Blob::new()
    }
}
impl From<&[u8]> for Blob {
    /// Copies the bytes, without spare capacity. Running out of memory ends the process.
    #[inline]
    fn from(bytes: &[u8]) -> Blob {
        let mut blob = Blob::with_capacity(bytes.len());
        blob.extend_from_slice(bytes);
        blob
    }
}
impl From<&str> for Blob {
    #[inline]
    fn from(text: &str) -> Blob {
        Blob::from(text.as_bytes())
    }
}
impl From<Vec<u8>> for Blob {
    /// Copies the bytes, because a blob's header precedes them in memory.
    fn from(bytes: Vec<u8>) -> Blob {
        Blob::from(bytes.as_slice())
    }
}
impl std::ops::Deref for Blob {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}
impl AsRef<[u8]> for Blob {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}
impl Borrow<[u8]> for Blob {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}
impl PartialEq for Blob {
    #[inline]
    fn eq(&self, other: &Blob) -> bool {
        self.as_slice() == other.as_slice()
    }
}
impl Eq for Blob {}
impl PartialOrd for Blob {
    fn partial_cmp(&self, other: &Blob) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Blob {
    fn cmp(&self, other: &Blob) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}
impl Hash for Blob {
    /// Hashes the blob as its bytes, so that a map keyed by blobs can be queried with a slice.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}
impl std::fmt::Debug for Blob {
    /// Prints the length and an escaped prefix. Values may be long and do not belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = self[..self.len().min(DEBUG_BYTES_MAX)].escape_ascii();
        let more = if self.len() > DEBUG_BYTES_MAX { "..." } else { "" };
        write!(f, "Blob({} bytes, \"{prefix}{more}\")", self.len())
    }
}
