//! A Maildir: a folder with `cur`, `new` and `tmp`.
//!
//! A document's name is the unique part of the file name, before `:2,flags`: so a message keeps its id when it is read,
//! flagged, or moves from `new` to `cur`. Its flags are metadata: a change of flags is an update that does not read the
//! message. Deliveries in `tmp` are left out, and so is what mail programs keep beside the messages. Folders in the
//! Maildir, `.Sub` as Maildir++ has them or without the dot, are containers.

use super::{ListError, Lister, container_error, io_error};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const PARTS: [&str; 3] = ["cur", "new", "tmp"];
/// Times that `cur` is read again because messages moved meanwhile.
const RELISTS_MAX: usize = 3;
/// What stands between the unique part and the flags.
const INFO: &[u8] = b":2,";

/// True when `dir` has the three folders of a Maildir.
pub fn is_maildir(dir: &Path) -> bool {
    PARTS.iter().all(|part| dir.join(part).symlink_metadata().is_ok_and(|meta| meta.is_dir()))
}

/// The unique part of a message's file name, and its flags.
pub fn split_name(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().position(|b| *b == b':') {
        Some(at) => (&name[..at], name[at..].strip_prefix(INFO).unwrap_or_default()),
        None => (name, &[]),
    }
}

pub(super) fn list(dir: &Path, lister: &mut Lister) -> Result<(), ListError> {
    // A message that moves from `new` to `cur` meanwhile is met twice, or, read in the other order, not at all.
    let mut seen = HashSet::new();
    let mut moved =
        list_messages(dir, "new", &mut seen, lister)? | list_messages(dir, "cur", &mut seen, lister)?;
    // A change of flags renames a message: one that was gone when it was looked at is in `cur` by its new name, which that
    // reading may have missed. It must not count as removed.
    for _ in 0..RELISTS_MAX {
        if !moved {
            break;
        }
        moved = list_messages(dir, "cur", &mut seen, lister)?;
    }
    for entry in std::fs::read_dir(dir).map_err(io_error(dir))? {
        let entry = entry.map_err(io_error(dir))?;
        let kind = entry.file_type().map_err(io_error(&entry.path()))?;
        let name = entry.file_name();
        if kind.is_symlink() {
            lister.skipped.links += 1;
        } else if !kind.is_dir() {
            lister.skipped.maildir += 1;
        } else if !PARTS.iter().any(|part| name == *part) {
            lister.folder(name.as_bytes()).map_err(container_error(dir))?;
        }
    }
    Ok(())
}

/// True when a message went away between being listed and being looked at.
fn list_messages(
    dir: &Path,
    part: &str,
    seen: &mut HashSet<Vec<u8>>,
    lister: &mut Lister,
) -> Result<bool, ListError> {
    let mut moved = false;
    let folder = dir.join(part);
    for entry in std::fs::read_dir(&folder).map_err(io_error(&folder))? {
        let entry = entry.map_err(io_error(&folder))?;
        let file_name = entry.file_name();
        let file_name = file_name.as_bytes();
        let meta = match entry.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                moved = true;
                continue;
            }
            other => other.map_err(io_error(&entry.path()))?,
        };
        let (unique, flags) = split_name(file_name);
        if meta.is_symlink() {
            lister.skipped.links += 1;
        } else if !meta.is_file() || file_name.starts_with(b".") || unique.is_empty() {
            lister.skipped.maildir += 1;
        } else if seen.insert(unique.to_vec()) {
            let at = [part.as_bytes(), b"/", file_name].concat();
            lister.document(unique, &meta, Some((&at, flags))).map_err(container_error(dir))?;
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
