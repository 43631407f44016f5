//! A plain folder: each regular file is a document, each folder a container, in whatever order the system gives them.
//!
//! Symbolic links are not followed and special files not opened; both are counted. Names are bytes: one that is not UTF-8
//! is a name like any other.

use super::{ListError, Lister, container_error, io_error};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(super) fn list(dir: &Path, lister: &mut Lister) -> Result<(), ListError> {
    for entry in std::fs::read_dir(dir).map_err(io_error(dir))? {
        let entry = entry.map_err(io_error(dir))?;
        let name = entry.file_name();
        let name = name.as_bytes();
        // Does not follow links. Gone since the folder was read: as if it had never been there.
        let meta = match entry.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            other => other.map_err(io_error(&entry.path()))?,
        };
        if meta.is_symlink() {
            lister.skipped.links += 1;
        } else if meta.is_dir() {
            lister.folder(name).map_err(container_error(dir))?;
        } else if meta.is_file() {
            lister.document(name, &meta, None).map_err(container_error(dir))?;
        } else {
            lister.skipped.special += 1;
        }
    }
    Ok(())
}
