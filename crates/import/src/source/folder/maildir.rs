//! A Maildir: a folder with `cur`, `new` and `tmp`.
//!
//! A document's name is the unique part of the file name, before `:2,flags`: so a message keeps its id when it is read,
//! flagged, or moves from `new` to `cur`. Its flags are metadata: a change of flags is an update that does not read the
//! message. Deliveries in `tmp` are left out, and so is what mail programs keep beside the messages. Folders in the
//! Maildir, `.Sub` as Maildir++ has them or without the dot, are containers.

use super::{FoundAs, ListError, Lister};
use crate::source::beneath;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::Dir;
use std::collections::HashSet;

const PARTS: [&str; 3] = ["cur", "new", "tmp"];
/// Maximum number of times that `cur` is read again because messages moved meanwhile.
const RELISTS_MAX: usize = 3;
/// The text between the unique part and the flags of a file name.
const INFO: &[u8] = b":2,";

/// True when `dir` has the three folders of a Maildir.
pub(super) fn is_maildir(dir: BorrowedFd<'_>) -> bool {
    PARTS.iter().all(|part| matches!(FoundAs::look(dir, part.as_bytes()), Ok(FoundAs::Folder)))
}

/// The unique part of a message's file name, and its flags.
pub fn split_name(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().position(|b| *b == b':') {
        Some(at) => (&name[..at], name[at..].strip_prefix(INFO).unwrap_or_default()),
        None => (name, &[]),
    }
}

pub(super) fn list(dir: BorrowedFd<'_>, lister: &mut Lister) -> Result<(), ListError> {
    // A message that moves from `new` to `cur` meanwhile is found twice. With the other order of reading it might not
    // be found at all.
    let mut seen = HashSet::new();
    let mut moved =
        list_messages(dir, "new", &mut seen, lister)? | list_messages(dir, "cur", &mut seen, lister)?;
    // A change of flags renames a message. A message that was gone when it was looked at is in `cur` under its new
    // name, which the reading may have missed. The message must not count as removed.
    for _ in 0..RELISTS_MAX {
        if !moved {
            break;
        }
        moved = list_messages(dir, "cur", &mut seen, lister)?;
    }
    for entry in Dir::read_from(dir).map_err(|e| lister.io_error(b"", e.into()))? {
        let entry = entry.map_err(|e| lister.io_error(b"", e.into()))?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        match FoundAs::look(dir, name).map_err(|e| lister.io_error(name, e))? {
            FoundAs::Nothing => {}
            FoundAs::Link => lister.skipped.links += 1,
            FoundAs::Folder if PARTS.iter().any(|part| name == part.as_bytes()) => {}
            FoundAs::Folder => lister.folder(name)?,
            FoundAs::File(_) | FoundAs::Special => lister.skipped.maildir += 1,
        }
    }
    Ok(())
}

/// True when a message went away between being listed and being looked at.
fn list_messages(
    dir: BorrowedFd<'_>,
    part: &str,
    seen: &mut HashSet<Vec<u8>>,
    lister: &mut Lister,
) -> Result<bool, ListError> {
    let mut moved = false;
    let folder = beneath::open(dir, part.as_bytes()).map_err(|e| lister.io_error(part.as_bytes(), e))?;
    for entry in Dir::read_from(&folder).map_err(|e| lister.io_error(part.as_bytes(), e.into()))? {
        let entry = entry.map_err(|e| lister.io_error(part.as_bytes(), e.into()))?;
        let file_name = entry.file_name().to_bytes();
        if matches!(file_name, b"." | b"..") {
            continue;
        }
        let at = [part.as_bytes(), b"/", file_name].concat();
        let (unique, flags) = split_name(file_name);
        match FoundAs::look(folder.as_fd(), file_name).map_err(|e| lister.io_error(&at, e))? {
            FoundAs::Nothing => moved = true,
            FoundAs::Link => lister.skipped.links += 1,
            FoundAs::File(stamp) if !file_name.starts_with(b".") && !unique.is_empty() => {
                if seen.insert(unique.to_vec()) {
                    lister.document(unique, &stamp, Some((&at, flags)))?;
                }
            }
            _ => lister.skipped.maildir += 1,
        }
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unique_part_ends_at_the_colon() {
        assert_eq!(split_name(b"1700.M1P2.host:2,FS"), (&b"1700.M1P2.host"[..], &b"FS"[..]));
        assert_eq!(split_name(b"1700.M1P2.host,S=12:2,"), (&b"1700.M1P2.host,S=12"[..], &b""[..]));
        assert_eq!(split_name(b"1700.M1P2.host"), (&b"1700.M1P2.host"[..], &b""[..]));
        assert_eq!(split_name(b"1700.M1P2.host:1,x"), (&b"1700.M1P2.host"[..], &b""[..]));
    }
}
