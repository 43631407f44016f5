//! The paths of an archive's entries, as paths of documents.

use crate::container::NAME_BYTES_MAX;

/// Why an entry of an archive cannot become a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathError {
    #[error("the entry has no name")]
    Empty,
    #[error("folders are nested more than {} deep", crate::job::DEPTH_MAX)]
    Depth,
    #[error("the entry's name leads out of the archive")]
    Outside,
    #[error("the entry's name has a zero in it, or a part of more than {NAME_BYTES_MAX} bytes")]
    Name,
}

/// Checks a member's path. Removes a leading slash, `.`, and doubled slashes.
pub(super) fn checked_path(name: &[u8]) -> Result<Vec<u8>, PathError> {
    let names: Vec<&[u8]> = name.split(|b| *b == b'/').filter(|n| !matches!(*n, b"" | b".")).collect();
    if names.is_empty() {
        return Err(PathError::Empty);
    }
    if names.len() > crate::job::DEPTH_MAX {
        return Err(PathError::Depth);
    }
    for part in &names {
        if *part == b".." {
            return Err(PathError::Outside);
        }
        if part.len() > NAME_BYTES_MAX || part.contains(&0) {
            return Err(PathError::Name);
        }
    }
    Ok(names.join(&b'/'))
}

/// Divides a path into folder and name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}
