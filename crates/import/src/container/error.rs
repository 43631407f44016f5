//! [`ContainerError`].

use super::{ContainerDigest, FORMAT_VERSION, MAGIC, NAME_BYTES_MAX};

/// Maximum number of characters of a name that an error shows.
const SHOWN_CHARACTERS_MAX: usize = 60;

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
    #[error("a container cannot hold the name {}: {}", shown(.0), reason(.0))]
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

/// The beginning of a name.
fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// What is wrong with a name, and what was expected.
fn reason(name: &[u8]) -> String {
    match name {
        b"" => format!("it is empty, expected 1 to {NAME_BYTES_MAX} bytes"),
        b"." | b".." => "the names . and .. are reserved".to_owned(),
        name if name.len() > NAME_BYTES_MAX => {
            format!("it is too long, expected at most {NAME_BYTES_MAX} bytes")
        }
        name if name.contains(&b'/') => "it has a slash, expected one part of a path".to_owned(),
        _ => "it has a zero byte, expected none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_name_says_what_is_wrong_and_stays_short() {
        for (name, expected) in [
            (&b""[..], "\"\": it is empty, expected 1 to 1024 bytes"),
            (b"..", "\"..\": the names . and .. are reserved"),
            (b"a/b", "\"a/b\": it has a slash, expected one part of a path"),
            (b"a\0b", "\"a\\0b\": it has a zero byte, expected none"),
            (&[b'n'; NAME_BYTES_MAX + 1], "nnn\"...: it is too long, expected at most 1024 bytes"),
        ] {
            let text = ContainerError::Name(name.to_vec()).to_string();
            assert!(text.ends_with(expected) && text.len() < 200, "{text}");
        }
    }
}
