//! A folder on a mounted file system: each regular file is a document, each folder a container.
//!
//! Everything is opened beneath the root ([`super::beneath`]): symbolic links are not followed and special files not
//! opened; both are counted. Names are bytes: one that is not UTF-8 is a name like any other. A folder inside that is a
//! Maildir is listed as one ([`maildir`]).

pub mod maildir;

use super::stamp::Stamp;
use super::{
    AT_NOTE, FLAGS_KEY, ListError, Listing, Object, ReadError, Skipped, Source, Stat, Tokens, beneath,
};
use crate::container::{Builder, Container, ContainerError, Entry, Kind};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A folder as a source.
#[derive(Debug)]
pub struct Folder {
    /// As given, for messages.
    root: PathBuf,
    folder: OwnedFd,
}

impl Folder {
    /// At `root`, which may itself be a symbolic link.
    ///
    /// # Errors
    /// When it does not exist, cannot be read, or is no folder.
    pub fn open(root: &Path) -> io::Result<Folder> {
        // The system's call waits for nothing here: what is no folder is not opened.
        if !std::fs::metadata(root)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Folder { root: root.to_path_buf(), folder: File::open(root)?.into() })
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(OsStr::from_bytes(path)) }
    }
}

impl Source for Folder {
    fn tokens(&self) -> Tokens {
        Tokens::Stamps
    }

    fn list(&mut self, path: &[u8], distrust: bool) -> Result<Listing, ListError> {
        let shown = self.shown(path);
        let dir = beneath::open(self.folder.as_fd(), path).map_err(|error| io_error(&shown, error))?;
        let mut lister = Lister::new(shown, distrust);
        match maildir::is_maildir(dir.as_fd()) {
            true => maildir::list(dir.as_fd(), &mut lister)?,
            false => list_plain(dir.as_fd(), &mut lister)?,
        }
        lister.finish()
    }

    fn open(&mut self, path: &[u8], entry: &Entry<'_>) -> Result<Box<dyn Object>, ReadError> {
        let at = entry.get(AT_NOTE).unwrap_or(entry.name);
        let path = if path.is_empty() { at.to_vec() } else { [path, b"/", at].concat() };
        let file = File::from(beneath::open(self.folder.as_fd(), &path)?);
        // Opened without waiting: what took the file's place may be a pipe.
        if !file.metadata()?.is_file() {
            return Err(ReadError::Replaced);
        }
        Ok(Box::new(LocalFile { file, in_maildir: entry.get(FLAGS_KEY).is_some() }))
    }

    /// A folder may lie on another machine.
    fn cache_name(&self, path: &[u8], entry: &Entry<'_>) -> Option<Vec<u8>> {
        let root = self.root.canonicalize().ok()?;
        let at = crate::job::join(path, entry.get(AT_NOTE).unwrap_or(entry.name));
        Some([b"file\0", root.as_os_str().as_bytes(), b"\0", &at].concat())
    }
}

/// An open file.
#[derive(Debug)]
struct LocalFile {
    file: File,
    in_maildir: bool,
}

impl Object for LocalFile {
    fn stat(&self) -> io::Result<Stat> {
        let stamp = Stamp::of(&self.file.metadata()?);
        let token = stamp.token(self.in_maildir).to_vec();
        Ok(Stat { size: stamp.size, token, is_young: stamp.racy_for_ns(now_ns()) > 0 })
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(into, offset)
    }
}

fn list_plain(dir: BorrowedFd<'_>, lister: &mut Lister) -> Result<(), ListError> {
    let entries = Dir::read_from(dir).map_err(|e| lister.io_error(b"", e.into()))?;
    for entry in entries {
        let entry = entry.map_err(|e| lister.io_error(b"", e.into()))?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        match FoundAs::look(dir, name).map_err(|e| lister.io_error(name, e))? {
            // Gone since the folder was read: as if it had never been there.
            FoundAs::Nothing => {}
            FoundAs::Link => lister.skipped.links += 1,
            FoundAs::Folder => lister.folder(name)?,
            FoundAs::File(stamp) => lister.document(name, &stamp, None)?,
            FoundAs::Special => lister.skipped.special += 1,
        }
    }
    Ok(())
}

/// What lies under a name.
enum FoundAs {
    Nothing,
    Link,
    Folder,
    File(Stamp),
    Special,
}

impl FoundAs {
    /// Looks without following a link.
    fn look(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<FoundAs> {
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(FoundAs::Nothing),
            other => other?,
        };
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => FoundAs::Link,
            FileType::Directory => FoundAs::Folder,
            FileType::RegularFile => FoundAs::File(Stamp::of_stat(&stat)),
            _ => FoundAs::Special,
        })
    }
}

/// A container while a folder is listed into it.
struct Lister {
    /// For messages.
    shown: PathBuf,
    builder: Builder,
    skipped: Skipped,
    racy_for_ns: i64,
    now_ns: i64,
    distrust: bool,
}

impl Lister {
    fn new(shown: PathBuf, distrust: bool) -> Lister {
        let (builder, skipped) = (Builder::new(0), Skipped::default());
        Lister { shown, builder, skipped, racy_for_ns: 0, now_ns: now_ns(), distrust }
    }
    /// Adds a document; `maildir` is its place below the folder and its flags.
    fn document(
        &mut self,
        name: &[u8],
        stamp: &Stamp,
        maildir: Option<(&[u8], &[u8])>,
    ) -> Result<(), ListError> {
        let racy_for_ns = stamp.racy_for_ns(self.now_ns);
        self.racy_for_ns = self.racy_for_ns.max(racy_for_ns);
        let token = stamp.token(maildir.is_some());
        let token = if self.distrust && racy_for_ns > 0 { &[][..] } else { &token[..] };
        let pushed = match maildir {
            None => self.builder.push(Kind::Document, name, stamp.size, token, []),
            Some((at, flags)) => {
                let pairs = [(FLAGS_KEY, flags), (AT_NOTE, at)];
                self.builder.push(Kind::Document, name, stamp.size, token, pairs)
            }
        };
        pushed.map_err(|error| self.container_error(error))
    }
    /// Adds a folder. It has no token: nothing that the file system says of a folder tells whether anything below changed.
    fn folder(&mut self, name: &[u8]) -> Result<(), ListError> {
        let pushed = self.builder.push(Kind::Container, name, 0, &[], []);
        pushed.map_err(|error| self.container_error(error))
    }
    fn finish(self) -> Result<Listing, ListError> {
        let Lister { shown: path, builder, skipped, racy_for_ns, .. } = self;
        let blob = builder.finish().map_err(|error| ListError::Container { path, error })?;
        debug_assert!(Container::parse(&blob).is_ok());
        Ok(Listing { blob, skipped, racy_for_ns, refused: Vec::new() })
    }
    /// The error for what lies at `below` (empty: for the folder itself).
    fn io_error(&self, below: &[u8], error: io::Error) -> ListError {
        io_error(&self.shown.join(OsStr::from_bytes(below)), error)
    }
    fn container_error(&self, error: ContainerError) -> ListError {
        ListError::Container { path: self.shown.clone(), error }
    }
}

fn io_error(path: &Path, error: io::Error) -> ListError {
    ListError::Io { path: path.to_path_buf(), error }
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TempDir;

    fn entry_of(folder: &mut Folder, path: &[u8], name: &[u8]) -> Result<Box<dyn Object>, ReadError> {
        let mut builder = Builder::new(0);
        builder.push(Kind::Document, name, 0, b"t", []).unwrap();
        let blob = builder.finish().unwrap();
        let entry = Container::parse(&blob).unwrap().entry(0);
        folder.open(path, &entry)
    }

    #[test]
    fn a_folder_exchanged_for_a_link_is_not_followed() {
        let (dir, outside) = (TempDir::new("exchanged"), TempDir::new("outside"));
        dir.write("sub/a", b"inside");
        outside.write("a", b"outside");
        outside.write("secret", b"outside");
        let mut folder = Folder::open(dir.path()).unwrap();
        assert_eq!(Container::parse(&folder.list(b"sub", false).unwrap().blob).unwrap().len(), 1);
        std::fs::rename(dir.path().join("sub"), dir.path().join("away")).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("sub")).unwrap();
        assert!(matches!(folder.list(b"sub", false), Err(ListError::Io { .. })));
        assert!(matches!(entry_of(&mut folder, b"sub", b"a"), Err(ReadError::Replaced)));
        assert!(matches!(entry_of(&mut folder, b"sub", b"secret"), Err(ReadError::Replaced)));
        assert!(entry_of(&mut folder, b"away", b"a").is_ok());
    }

    #[test]
    fn what_took_a_files_place_is_not_waited_for() {
        let dir = TempDir::new("replaced");
        dir.write("f", b"file");
        let mut folder = Folder::open(dir.path()).unwrap();
        assert!(entry_of(&mut folder, b"", b"f").is_ok());
        assert!(matches!(entry_of(&mut folder, b"", b"none"), Err(ReadError::Vanished)));
        let path = dir.path().join("f");
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(matches!(entry_of(&mut folder, b"", b"f"), Err(ReadError::Replaced)));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(matches!(entry_of(&mut folder, b"", b"f"), Err(ReadError::Replaced)));
    }
}
