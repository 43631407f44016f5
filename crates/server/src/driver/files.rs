//! The process's limits and folder, and the files of its configuration: open files for the clients, the working folder,
//! and the replacement of small files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Number of descriptors that the server needs besides its clients: listeners, log, files that are read.
const RESERVED: u64 = 64;
/// Number of descriptors of each worker: its event queue, its ring and their wake-ups, and four HTTP connections at
/// `maxclients`.
const RESERVED_PER_WORKER: u64 = 8;

/// Raises the limit of open files for `wanted` clients, as far as the system allows. Returns the possible number
/// of clients.
pub fn clients_max(wanted: usize, workers: usize) -> usize {
    let reserved = reserved(workers);
    let needed = (wanted as u64).saturating_add(reserved);
    let limit = getrlimit(Resource::Nofile);
    let Some(mut files) = limit.current.filter(|have| *have < needed) else { return wanted };
    let raised = limit.maximum.map_or(needed, |most| most.min(needed));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum }).is_ok() {
        files = raised;
    }
    // Allow at least one client.
    files.saturating_sub(reserved).clamp(1, wanted.max(1) as u64) as usize
}

/// The limit of open files, and a limit that is enough for one client.
pub fn open_files(workers: usize) -> (u64, u64) {
    (getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), reserved(workers) + 1)
}

fn reserved(workers: usize) -> u64 {
    RESERVED + RESERVED_PER_WORKER * workers as u64
}

/// Changes the working folder to `path`, unless it is empty. Returns the absolute path of the working folder.
///
/// # Errors
/// Errors of the system.
pub fn change_dir(path: &[u8]) -> io::Result<Vec<u8>> {
    if !path.is_empty() {
        std::env::set_current_dir(OsStr::from_bytes(path))?;
    }
    Ok(std::env::current_dir()?.into_os_string().into_vec())
}

/// Replaces a file's text in one step. A reader sees the old text or the new text, even after a crash.
///
/// # Errors
/// Errors of the system.
pub fn rewrite(path: &Path, edit: &dyn Fn(&str) -> String) -> io::Result<()> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(e),
    };
    replace(path, edit(&text).as_bytes(), CONFIG_FILE_MODE)
}

/// Permissions of a new ACL file. Only the server may read the digests of passwords.
pub const ACL_FILE_MODE: u32 = 0o600;
/// Permissions of a new configuration file.
const CONFIG_FILE_MODE: u32 = 0o666;

/// Replaces a file by `text`, and keeps its permissions. A new file gets `mode`, minus the process's umask. The
/// temporary file has an unpredictable name and is created with O_EXCL, so existing files and links in the folder
/// are never written through.
///
/// # Errors
/// Errors of the system.
pub fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(&name).suffix(".tmp").permissions(fs::Permissions::from_mode(mode));
    // The temporary file is removed on drop unless it is persisted.
    let mut file = builder.tempfile_in(folder)?;
    if let Ok(old) = fs::metadata(path) {
        file.as_file().set_permissions(old.permissions())?;
    }
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // The file's new name must be on the disk, too.
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_link_at_a_temporary_name_is_not_written_through() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, victim) = (folder.path().join("users.acl"), folder.path().join("victim"));
        fs::write(&victim, "precious").expect("a file");
        // A former name of the temporary file, which was predictable.
        let waiting = folder.path().join(format!("users.acl.{}.tmp", std::process::id()));
        std::os::unix::fs::symlink(&victim, &waiting).expect("a link");
        replace(&path, b"user default on\n", ACL_FILE_MODE).expect("replaced");
        assert_eq!(fs::read_to_string(&victim).expect("there"), "precious");
        assert_eq!(fs::read_to_string(&path).expect("there"), "user default on\n");
        let meta = fs::symlink_metadata(&path).expect("there");
        assert!(meta.is_file() && meta.permissions().mode() & 0o777 == 0o600, "{meta:?}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
        replace(&path, b"user default off\n", ACL_FILE_MODE).expect("replaced again");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o640);
    }
}
