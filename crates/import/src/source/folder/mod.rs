//! A folder on a mounted file system: each regular file is a document, each folder a container.
//!
//! Files are opened only beneath the root ([`super::beneath`]). Symbolic links and special files are counted, and not
//! opened. Names are bytes, and need not be UTF-8. A Maildir is listed by [`maildir`].

pub mod maildir;

use super::parts::{self, Parted, Spill};
use super::stamp::{self, Stamp};
use super::{
    FLAGS_KEY, Identity, LOCATION_NOTE, ListError, Listing, Object, ReadError, Skipped, Source, Stat, Tokens,
    beneath,
};
use crate::container::{Container, ContainerBuilder, ContainerError, Entry, EntryKind};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, fstat, statat};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A folder as a source.
pub struct Folder {
    /// The folder as the user gave it, for messages.
    root: PathBuf,
    folder: OwnedFd,
    parted: Parted,
}

impl Folder {
    /// Opens the folder `root`, which may be a symbolic link. Folders with more documents than `list_cutoff` are listed
    /// in parts.
    ///
    /// # Errors
    /// When it does not exist, cannot be read, or is not a folder.
    pub fn open(root: &Path, list_cutoff: Option<usize>) -> io::Result<Folder> {
        // Check the type first: opening a pipe would wait.
        if !std::fs::metadata(root)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let parted = Parted::new(list_cutoff);
        Ok(Folder { root: root.to_path_buf(), folder: File::open(root)?.into(), parted })
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
        if let Some((above, part)) = parts::divide(path) {
            let listed = match self.parted.part(above, part) {
                Some(listed) => listed,
                None => {
                    self.parted.keep(above);
                    self.list(above, distrust)?;
                    let listed = self.parted.part(above, part);
                    listed.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
                }
            };
            return listed.map_err(parts::failed(shown));
        }
        let mut lister = Lister::new(shown, distrust, self.parted.begin(path));
        let dir = beneath::open(self.folder.as_fd(), path).map_err(|error| io_error(&lister.shown, error))?;
        match maildir::is_maildir(dir.as_fd()).map_err(|error| io_error(&lister.shown, error))? {
            true => maildir::list(dir.as_fd(), &mut lister)?,
            false => list_plain(dir.as_fd(), &mut lister)?,
        }
        lister.finish(path, &mut self.parted)
    }

    fn makes_parts(&self) -> bool {
        true
    }

    fn keep_parts(&mut self, path: &[u8]) {
        self.parted.keep(path);
    }

    fn open(&mut self, path: &[u8], entry: &Entry<'_>) -> Result<Box<dyn Object>, ReadError> {
        let at = entry.get(LOCATION_NOTE).unwrap_or(entry.name);
        let path = crate::job::join(path, at);
        let file = File::from(beneath::open(self.folder.as_fd(), &path)?);
        let opened = fstat(&file).map_err(io::Error::from)?;
        // The file may have been replaced by a pipe. `beneath::open` does not wait for a pipe.
        if FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile {
            return Err(ReadError::Replaced);
        }
        let opened = Cell::new(Some(Stamp::of_stat(&opened)));
        Ok(Box::new(LocalFile { file, opened, in_maildir: entry.get(FLAGS_KEY).is_some() }))
    }

    fn identity(&self, entry: &Entry<'_>) -> Option<Identity> {
        // The token of a message of a Maildir has no ctime, so a new message may get the token of a deleted one: its
        // inode, its size, and a time that a program has set.
        let is_certain = entry.get(FLAGS_KEY).is_none();
        stamp::identity(entry.token).map(|bytes| Identity { bytes, is_certain })
    }

    /// Documents of a folder are cached too, because the folder may be on another machine (NFS, for instance).
    fn cache_name(&self, path: &[u8], entry: &Entry<'_>) -> Option<Vec<u8>> {
        let root = self.root.canonicalize().ok()?;
        let at = crate::job::join(path, entry.get(LOCATION_NOTE).unwrap_or(entry.name));
        Some([b"file\0", root.as_os_str().as_bytes(), b"\0", &at].concat())
    }
}

/// An open file.
#[derive(Debug)]
struct LocalFile {
    file: File,
    /// The stamp when the file was opened. [`Object::stat`] returns it once.
    opened: Cell<Option<Stamp>>,
    in_maildir: bool,
}

impl Object for LocalFile {
    fn stat(&self) -> io::Result<Stat> {
        let stamp = match self.opened.take() {
            Some(opened) => opened,
            None => Stamp::of_stat(&fstat(&self.file)?),
        };
        let token = stamp.token(self.in_maildir).to_vec();
        Ok(Stat { size: stamp.size, token, is_young: stamp.racy_for_ns(now_ns()) > 0 })
    }
    /// Always true: a file that grows during the read has another stamp afterwards.
    fn is_exact(&self) -> bool {
        true
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
            // The file was removed after the folder was read, so it is not listed.
            FoundAs::Nothing => {}
            FoundAs::Link => lister.skipped.links += 1,
            FoundAs::Folder => lister.folder(name)?,
            FoundAs::File(stamp) => lister.document(name, &stamp, None)?,
            FoundAs::Special => lister.skipped.special += 1,
        }
    }
    Ok(())
}

/// The kind of a folder's entry.
enum FoundAs {
    Nothing,
    Link,
    Folder,
    File(Stamp),
    Special,
}

impl FoundAs {
    /// Looks up an entry of the folder `dir`, without following a link.
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

/// Builds the container of a folder while the folder is listed.
struct Lister {
    /// The folder as the user gave it, for messages.
    shown: PathBuf,
    builder: ContainerBuilder,
    /// Maximum number of documents in the builder. If there are more, all documents go to the spill.
    listed_max: usize,
    listed: usize,
    spill: Option<Spill>,
    folders: BTreeSet<Vec<u8>>,
    refused: Vec<(Vec<u8>, String)>,
    skipped: Skipped,
    racy_for_ns: i64,
    now_ns: i64,
    distrust: bool,
}

impl Lister {
    fn new(shown: PathBuf, distrust: bool, listed_max: usize) -> Lister {
        let (builder, skipped) = (ContainerBuilder::new(0), Skipped::default());
        let (folders, refused) = (BTreeSet::new(), Vec::new());
        let (spill, now_ns) = (None, now_ns());
        Lister {
            shown,
            builder,
            listed_max,
            listed: 0,
            spill,
            folders,
            refused,
            skipped,
            racy_for_ns: 0,
            now_ns,
            distrust,
        }
    }
    /// Adds a document. `maildir`: for a message of a Maildir, its path within the folder, and its flags.
    fn document(
        &mut self,
        name: &[u8],
        stamp: &Stamp,
        maildir: Option<(&[u8], &[u8])>,
    ) -> Result<(), ListError> {
        if parts::number(name).is_some() {
            self.refused.push((name.to_vec(), parts::RESERVED.to_owned()));
            return Ok(());
        }
        let racy_for_ns = stamp.racy_for_ns(self.now_ns);
        self.racy_for_ns = self.racy_for_ns.max(racy_for_ns);
        let token = stamp.token(maildir.is_some());
        let token = if self.distrust && racy_for_ns > 0 { &[][..] } else { &token[..] };
        let pairs = maildir.map(|(at, flags)| [(FLAGS_KEY, flags), (LOCATION_NOTE, at)]);
        let pairs = pairs.into_iter().flatten();
        self.listed += 1;
        if self.listed > self.listed_max && self.spill.is_none() {
            self.spill = Some(self.spilled().map_err(|error| self.io_error(b"", error))?);
        }
        if let Some(spill) = &mut self.spill {
            return spill.push(name, stamp.size, token, pairs).map_err(|error| self.io_error(name, error));
        }
        let pushed = self.builder.push(EntryKind::Document, name, stamp.size, token, pairs);
        pushed.map_err(|error| self.container_error(error))
    }
    /// Moves the documents from the builder to a new spill.
    fn spilled(&mut self) -> io::Result<Spill> {
        let mut spill = Spill::new()?;
        let listed = std::mem::replace(&mut self.builder, ContainerBuilder::new(0)).finish();
        let listed = listed.map_err(io::Error::other)?;
        for entry in Container::parse(&listed).map_err(io::Error::other)?.iter() {
            match entry.kind {
                EntryKind::Container => drop(self.folders.insert(entry.name.to_vec())),
                EntryKind::Document => spill.push(entry.name, entry.size, entry.token, entry.pairs())?,
            }
        }
        Ok(spill)
    }
    /// Adds a folder, without a token: a file system's facts about a folder do not show a change below the folder.
    fn folder(&mut self, name: &[u8]) -> Result<(), ListError> {
        if parts::number(name).is_some() {
            self.refused.push((name.to_vec(), parts::RESERVED.to_owned()));
            return Ok(());
        }
        if self.spill.is_some() {
            self.folders.insert(name.to_vec());
            return Ok(());
        }
        let pushed = self.builder.push(EntryKind::Container, name, 0, &[], []);
        pushed.map_err(|error| self.container_error(error))
    }
    fn finish(mut self, at: &[u8], parted: &mut Parted) -> Result<Listing, ListError> {
        // A container that was recorded in parts stays in parts, even if it has no documents now.
        if self.spill.is_none() && self.listed_max == 0 {
            self.spill = Some(self.spilled().map_err(|error| self.io_error(b"", error))?);
        }
        let Lister { shown: path, builder, spill, folders, refused, skipped, racy_for_ns, .. } = self;
        let blob = match spill {
            Some(spill) => parted.finish(at, spill, &folders).map_err(parts::failed(path))?,
            None => builder.finish().map_err(|error| ListError::Container { path, error })?,
        };
        debug_assert!(Container::parse(&blob).is_ok());
        Ok(Listing { blob, skipped, racy_for_ns, refused })
    }
    /// The error for the entry at the path `below` in the folder. Empty: for the folder itself.
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
        let mut builder = ContainerBuilder::new(0);
        builder.push(EntryKind::Document, name, 0, b"t", []).unwrap();
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
        let mut folder = Folder::open(dir.path(), None).unwrap();
        assert_eq!(Container::parse(&folder.list(b"sub", false).unwrap().blob).unwrap().len(), 1);
        std::fs::rename(dir.path().join("sub"), dir.path().join("away")).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("sub")).unwrap();
        assert!(matches!(folder.list(b"sub", false), Err(ListError::Io { .. })));
        assert!(matches!(entry_of(&mut folder, b"sub", b"a"), Err(ReadError::Replaced)));
        assert!(matches!(entry_of(&mut folder, b"sub", b"secret"), Err(ReadError::Replaced)));
        assert!(entry_of(&mut folder, b"away", b"a").is_ok());
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_does_not_block() {
        let dir = TempDir::new("replaced");
        dir.write("f", b"file");
        let mut folder = Folder::open(dir.path(), None).unwrap();
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
