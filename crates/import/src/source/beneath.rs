//! Opens files and folders beneath a folder, and never outside of it.
//!
//! [`open`] follows no symbolic link, and does not wait for a pipe. If a folder is replaced by a link between listing
//! and reading, the open fails, whatever the link points to. One system call (openat2) does all this. If the kernel
//! lacks the call, or the path is too long for it, [`open_stepwise`] opens folder by folder.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::io;

/// Opens `path` (names joined by `/`; empty: the folder itself) beneath `folder` for reading.
///
/// # Errors
/// The system's error. A link in the path is `ELOOP` or `ENOTDIR`.
pub(super) fn open(folder: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(folder, path, flags, Mode::empty(), beneath) {
        // The kernel or a sandbox does not allow the call, the path is too long for it, or a folder was renamed during
        // it.
        Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG | Errno::AGAIN) => {
            open_stepwise(folder, path, flags)
        }
        other => Ok(other?),
    }
}

/// Does the work of [`open`] with one call for each name.
fn open_stepwise(folder: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let mut names = path.split(|b| *b == b'/');
    let last = names.next_back().unwrap_or(b".");
    let mut at: Option<OwnedFd> = None;
    for name in names {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = Some(openat(at.as_ref().map_or(folder, |fd| fd.as_fd()), checked(name)?, flags, Mode::empty())?);
    }
    Ok(openat(at.as_ref().map_or(folder, |fd| fd.as_fd()), checked(last)?, flags, Mode::empty())?)
}

fn checked(name: &[u8]) -> io::Result<&[u8]> {
    if name == b".." { Err(Errno::XDEV.into()) } else { Ok(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TempDir;
    use std::fs::File;
    use std::os::unix::fs::symlink;

    #[test]
    fn both_ways_to_open_stay_beneath_the_folder() {
        let dir = TempDir::new("beneath");
        dir.write("a/b/c", b"inside");
        symlink("/etc", dir.path().join("out")).unwrap();
        symlink("a", dir.path().join("in")).unwrap();
        let folder = File::open(dir.path()).unwrap();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        for walked in [false, true] {
            let open = |path: &str| match walked {
                true => open_stepwise(folder.as_fd(), path.as_bytes(), flags),
                false => open(folder.as_fd(), path.as_bytes()),
            };
            let text = io::read_to_string(File::from(open("a/b/c").unwrap())).unwrap();
            assert_eq!(text, "inside");
            assert!(open("a/b").is_ok() && open("a/x").is_err());
            for refused in ["out/hostname", "in/b/c", "in", "../x", "a/../../x"] {
                assert!(open(refused).is_err(), "{refused}, walked: {walked}");
            }
        }
    }

    #[test]
    fn a_path_longer_than_path_max_is_opened_stepwise() {
        let dir = TempDir::new("long");
        let mut at = File::open(dir.path()).unwrap().into();
        let name = "n".repeat(200);
        for _ in 0..30 {
            rustix::fs::mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
            at = open(OwnedFd::as_fd(&at), name.as_bytes()).unwrap();
        }
        let path = vec![name; 30].join("/");
        assert!(path.len() > 4096 && open(File::open(dir.path()).unwrap().as_fd(), path.as_bytes()).is_ok());
    }
}
