//! [`ContainerError`].

use super::{ContainerDigest, FORMAT_VERSION, MAGIC};

/// The reason why a blob is not a container, or why an entry cannot be added to one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// The blob is shorter than the smallest container, or shorter than its header says.
    #[error("the container has {len} bytes where at least {need} are needed")]
    Short {
        /// Length of the blob in bytes.
        len: usize,
        /// Minimum length in bytes.
        need: usize,
    },
    /// The blob does not begin with [`MAGIC`].
    #[error("the blob is not a container: it begins with {0:02x?}, not {MAGIC:02x?}")]
    Magic([u8; 4]),
    /// Another version of the format wrote the blob.
    #[error("the container has format version {0}, this program reads version {FORMAT_VERSION}")]
    Version(u8),
    /// The flags byte is not zero.
    #[error("the container has the flags {0:#04x}, expected 0x00")]
    Flags(u8),
    /// The lengths of header, entries, offsets and checksum do not add up to the actual length.
    #[error("the container's parts add up to {expected} bytes, but the container has {len}")]
    Length {
        /// Sum of the lengths of the parts.
        expected: u64,
        /// Actual length in bytes.
        len: usize,
    },
    /// The checksum does not match, so bytes have changed since the container was written.
    #[error(
        "the container's checksum is {stored:02x?}, but its other bytes have the checksum {computed:02x?}"
    )]
    Checksum {
        /// The checksum in the container.
        stored: ContainerDigest,
        /// The checksum of the container's bytes.
        computed: ContainerDigest,
    },
    /// The list of offsets has an offset at which no whole entry is.
    #[error("entry {index} of the container, at byte {offset}, is not within the container's entries")]
    Bounds {
        /// Position of the entry in the sorted list.
        index: usize,
        /// The offset of the entry in the blob.
        offset: usize,
    },
    /// The kind byte is unknown.
    #[error("entry {index} of the container has the unknown kind {kind}")]
    UnknownKind {
        /// Position of the entry in the sorted list.
        index: usize,
        /// The kind byte.
        kind: u8,
    },
    /// The names do not ascend strictly. This check also finds duplicate names.
    #[error("entries {} and {index} of the container are not in the order of their names", index - 1)]
    Order {
        /// Position of the entry in the sorted list.
        index: usize,
    },
    /// A name is empty, too long, `.`, `..`, or holds `/` or NUL.
    #[error("a container cannot hold the name {:?}", String::from_utf8_lossy(.0))]
    Name(Vec<u8>),
    /// Two entries have the same name.
    #[error("a container cannot hold the name {:?} twice", String::from_utf8_lossy(.0))]
    Duplicate(Vec<u8>),
    /// A token, a pair or the container itself exceeds a limit of this module.
    #[error("{what} of a container: {found}, at most {max} are allowed")]
    Limit {
        /// What is too large, in words with the unit.
        what: &'static str,
        /// The number of these things or bytes.
        found: usize,
        /// The limit.
        max: usize,
    },
}
