//! [`ArchiveLimits`]: the bounds on archives. They are checked against the actual bytes, not against what an archive
//! says.

use crate::filter::{ByteSize, SizeError};
use std::str::FromStr;

/// Maximum depth of archives in archives, by default.
pub const DEPTH_MAX: usize = 16;
/// Maximum number of entries of an archive and all archives in it together, by default. The folders in the names of
/// entries count, too.
pub const ENTRIES_MAX: u64 = 100_000;
/// Maximum ratio of an entry's unpacked bytes to its packed bytes, by default. It applies beyond [`RATIO_FREE_BYTES`].
pub const RATIO_MAX: u64 = 100;
/// Maximum number of unpacked bytes of an archive and all archives in it together, by default.
pub const BYTES_MAX: u64 = 16 << 30;
/// Maximum depth that a user can choose. Each level needs stack and memory.
pub const DEPTH_CHOSEN_MAX: usize = 32;
/// Number of unpacked bytes of an entry that are allowed at any ratio.
pub const RATIO_FREE_BYTES: u64 = 1 << 20;
/// Largest directory of a zip in bytes.
pub const ZIP_DIRECTORY_BYTES_MAX: u64 = 64 << 20;
/// Largest extended header of a tar in bytes.
pub const TAR_HEADER_BYTES_MAX: u64 = 1 << 20;
/// Maximum memory in bytes to unpack an xz stream. The output of `xz -9` needs 67,174,456 (`xz -lvv`).
pub const XZ_MEMORY_BYTES_MAX: u64 = 66 << 20;
/// Largest window of a zstd stream, as a power of two.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// The bounds that a user can choose. The text form is `depth=16,entries=100000,ratio=100,bytes=16GB`. A bound that the
/// text does not name has its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// Maximum depth of archives in archives.
    pub depth: usize,
    /// Maximum number of entries of an archive and all archives in it together. The folders in the names of entries
    /// count, too.
    pub entries: u64,
    /// Maximum ratio of an entry's unpacked bytes to its packed bytes, beyond [`RATIO_FREE_BYTES`].
    pub ratio: u64,
    /// Maximum number of unpacked bytes of an archive and all archives in it together.
    pub bytes: u64,
}

impl Default for ArchiveLimits {
    fn default() -> ArchiveLimits {
        ArchiveLimits { depth: DEPTH_MAX, entries: ENTRIES_MAX, ratio: RATIO_MAX, bytes: BYTES_MAX }
    }
}

/// Why a text is not an [`ArchiveLimits`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveLimitsError {
    /// A part between two commas is not a name with a value.
    #[error("{0:?}: expected NAME=VALUE, as depth=16")]
    Pair(String),
    /// No bound has this name.
    #[error("{0:?}: expected depth, entries, ratio or bytes")]
    Name(String),
    /// The value of a bound is not a number.
    #[error("{name}: expected a number, not {value:?}")]
    Number {
        /// The name of the bound.
        name: String,
        /// The value.
        value: String,
    },
    /// The depth is larger than [`DEPTH_CHOSEN_MAX`].
    #[error("depth: expected a number up to {DEPTH_CHOSEN_MAX}, not {0}")]
    Depth(u64),
    /// The value of `bytes` is not a size.
    #[error("bytes: {0}")]
    Bytes(SizeError),
}

impl FromStr for ArchiveLimits {
    type Err = ArchiveLimitsError;

    fn from_str(text: &str) -> Result<ArchiveLimits, ArchiveLimitsError> {
        let mut limits = ArchiveLimits::default();
        for pair in text.split(',') {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(ArchiveLimitsError::Pair(pair.to_owned()));
            };
            let no_number = |_| ArchiveLimitsError::Number { name: name.to_owned(), value: value.to_owned() };
            let number = || value.parse::<u64>().map_err(no_number);
            match name {
                "depth" => {
                    let given = number()?;
                    let depth = usize::try_from(given).ok().filter(|depth| *depth <= DEPTH_CHOSEN_MAX);
                    limits.depth = depth.ok_or(ArchiveLimitsError::Depth(given))?;
                }
                "entries" => limits.entries = number()?,
                "ratio" => limits.ratio = number()?,
                "bytes" => limits.bytes = value.parse::<ByteSize>().map_err(ArchiveLimitsError::Bytes)?.0,
                _ => return Err(ArchiveLimitsError::Name(name.to_owned())),
            }
        }
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_by_name() {
        let limits: ArchiveLimits = "entries=7,bytes=2k,depth=3,ratio=9".parse().unwrap();
        assert_eq!(limits, ArchiveLimits { depth: 3, entries: 7, ratio: 9, bytes: 2048 });
        assert_eq!("depth=1".parse(), Ok(ArchiveLimits { depth: 1, ..ArchiveLimits::default() }));
        for bad in ["", "depth", "depth=33", "depth=-1", "entries=x", "bytes=much", "size=1", "depth=1,,"] {
            assert!(bad.parse::<ArchiveLimits>().is_err(), "{bad:?}");
        }
    }
}
