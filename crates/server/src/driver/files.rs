//! The process's limits and folder: open files for the clients, and the working folder.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Number of descriptors that the server needs besides its clients: listeners, log, files that are read.
const RESERVED: u64 = 64;
/// Number of descriptors of each worker: its event queue, its ring and their wake-ups.
const RESERVED_PER_WORKER: u64 = 8;

/// Raises the limit of open files for `wanted` clients, as far as the system allows. Returns the possible number
/// of clients.
pub fn clients_max(wanted: usize, workers: usize) -> usize {
    let reserved = RESERVED + RESERVED_PER_WORKER * workers as u64;
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

/// Changes the working folder to `path`, unless it is empty. Returns the absolute path of the working folder.
///
/// # Errors
/// Errors of the system.
pub fn change_dir(path: &[u8]) -> std::io::Result<Vec<u8>> {
    if !path.is_empty() {
        std::env::set_current_dir(OsStr::from_bytes(path))?;
    }
    Ok(std::env::current_dir()?.into_os_string().into_vec())
}
