//! Sources: where documents come from, listed as containers.
//!
//! [`Folder`] is a local (or mounted) folder; a folder inside it that is a Maildir is listed as one ([`maildir`]), any
//! other as it lies ([`folder`]). [`Stamp`] is what the file system says of a file: its version token, and how young is
//! too young to be trusted ([`Stamp::racy_for_ns`]). Reading one document is in [`read`].

pub mod folder;
pub mod maildir;
pub mod read;

use crate::container::{Builder, Container, ContainerError, Entry};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file whose times are younger than this could change again without a new time: file systems stamp with a clock that
/// ticks every 1 to 10 ms. Such a file is listed again after the window.
pub const RACY_WINDOW_FINE_NS: i64 = 50_000_000;
/// The same for a file system that keeps whole seconds only (the time has no fraction): two of them, for FAT.
pub const RACY_WINDOW_COARSE_NS: i64 = 2_100_000_000;
/// The metadata key of a document's Maildir flags.
pub const FLAGS_KEY: &[u8] = b"flags";
/// The note that says where a document lies below its container, when that is not its name.
pub const AT_NOTE: &[u8] = b"~at";

/// What the file system says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the bytes, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Last change of bytes, name or rights, nanoseconds since 1970; no program can set it back.
    pub ctime_ns: i64,
    /// The file's number.
    pub inode: u64,
}

impl Stamp {
    /// From what `stat` gave.
    pub fn of(meta: &Metadata) -> Stamp {
        let ns = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns);
        Stamp {
            size: meta.size(),
            mtime_ns: ns(meta.mtime(), meta.mtime_nsec()),
            ctime_ns: ns(meta.ctime(), meta.ctime_nsec()),
            inode: meta.ino(),
        }
    }
    /// The version token. In a Maildir the time of the last rename is left out: a message's bytes never change there, and
    /// a change of flags is a rename.
    pub fn token(&self, in_maildir: bool) -> Token {
        let ctime_ns = if in_maildir { 0 } else { self.ctime_ns };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.mtime_ns.to_le_bytes());
        bytes[16..24].copy_from_slice(&ctime_ns.to_le_bytes());
        bytes[24..].copy_from_slice(&self.inode.to_le_bytes());
        bytes
    }
    /// For how many nanoseconds from `now_ns` on the file may still change without showing it; 0 when its token can be
    /// trusted. A time in the future (clocks that disagree) counts one window from now.
    pub fn racy_for_ns(&self, now_ns: i64) -> i64 {
        // A program may set the mtime anywhere, also into the far future: only the ctime tells when a file was touched.
        let window_ns = match self.ctime_ns % 1_000_000_000 {
            0 => RACY_WINDOW_COARSE_NS,
            _ => RACY_WINDOW_FINE_NS,
        };
        self.ctime_ns.saturating_add(window_ns).saturating_sub(now_ns).clamp(0, window_ns)
    }
}

/// A version token of this source.
pub type Token = [u8; 32];

/// A folder could not be listed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// The file system refused.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The folder or the entry in it.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The listing does not fit a container.
    #[error("{path}: {error}", path = path.display())]
    Container {
        /// The folder.
        path: PathBuf,
        /// What does not fit.
        error: ContainerError,
    },
}

/// How many things in a listing are no documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Symbolic links: not followed, because what they lead to is not the folder's own (and may lead in circles).
    pub links: u64,
    /// Sockets, pipes and devices.
    pub special: u64,
    /// What a mail program keeps beside the messages of a Maildir, and deliveries that are not finished.
    pub maildir: u64,
}

impl Skipped {
    /// All together.
    pub fn total(&self) -> u64 {
        self.links + self.special + self.maildir
    }
    /// Adds those of another listing.
    pub fn add(&mut self, other: Skipped) {
        self.links += other.links;
        self.special += other.special;
        self.maildir += other.maildir;
    }
}

/// A folder's listing.
#[derive(Debug)]
pub struct Listing {
    /// The container's blob.
    pub blob: Vec<u8>,
    /// What was left out.
    pub skipped: Skipped,
    /// For how long from the listing on some file is too young to be trusted; 0 when none is.
    pub racy_for_ns: i64,
}

/// A folder on a mounted file system.
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// At `root`, which may itself be a symbolic link.
    ///
    /// # Errors
    /// When it does not exist, cannot be read, or is no folder.
    pub fn open(root: &Path) -> io::Result<Folder> {
        if !std::fs::metadata(root)?.is_dir() {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        std::fs::read_dir(root)?;
        Ok(Folder { root: root.to_path_buf() })
    }
    /// Lists the folder at `path` (empty: the root). With `distrust`, files that are too young at `now_ns` get no token, so
    /// that the next import looks at them again.
    ///
    /// # Errors
    /// [`ListError`]; a file that vanishes meanwhile is no error, it is left out.
    pub fn list(&self, path: &[u8], now_ns: i64, distrust: bool) -> Result<Listing, ListError> {
        let dir = self.path_of(path);
        let mut lister = Lister::new(now_ns, distrust);
        let done = match maildir::is_maildir(&dir) {
            true => maildir::list(&dir, &mut lister),
            false => folder::list(&dir, &mut lister),
        };
        done.and_then(|()| lister.finish(&dir))
    }
    /// Where the document `entry` of the container `path` lies.
    pub fn document_path(&self, path: &[u8], entry: &Entry<'_>) -> PathBuf {
        self.path_of(path).join(OsStr::from_bytes(entry.get(AT_NOTE).unwrap_or(entry.name)))
    }
    fn path_of(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(OsStr::from_bytes(path)) }
    }
}

/// A container as the sources fill it.
struct Lister {
    builder: Builder,
    skipped: Skipped,
    racy_for_ns: i64,
    now_ns: i64,
    distrust: bool,
}

impl Lister {
    fn new(now_ns: i64, distrust: bool) -> Lister {
        Lister { builder: Builder::new(0), skipped: Skipped::default(), racy_for_ns: 0, now_ns, distrust }
    }
    /// Adds a document; `maildir` is its place below the folder and its flags.
    fn document(
        &mut self,
        name: &[u8],
        meta: &Metadata,
        maildir: Option<(&[u8], &[u8])>,
    ) -> Result<(), ContainerError> {
        let stamp = Stamp::of(meta);
        let racy_for_ns = stamp.racy_for_ns(self.now_ns);
        self.racy_for_ns = self.racy_for_ns.max(racy_for_ns);
        let token = stamp.token(maildir.is_some());
        let token = if self.distrust && racy_for_ns > 0 { &[][..] } else { &token[..] };
        let kind = crate::container::Kind::Document;
        match maildir {
            None => self.builder.push(kind, name, stamp.size, token, []),
            Some((at, flags)) => {
                self.builder.push(kind, name, stamp.size, token, [(FLAGS_KEY, flags), (AT_NOTE, at)])
            }
        }
    }
    /// Adds a folder. It has no token: nothing that the file system says of a folder tells whether anything below changed.
    fn folder(&mut self, name: &[u8]) -> Result<(), ContainerError> {
        self.builder.push(crate::container::Kind::Container, name, 0, &[], [])
    }
    fn finish(self, dir: &Path) -> Result<Listing, ListError> {
        let blob =
            self.builder.finish().map_err(|error| ListError::Container { path: dir.to_path_buf(), error })?;
        debug_assert!(Container::parse(&blob).is_ok());
        Ok(Listing { blob, skipped: self.skipped, racy_for_ns: self.racy_for_ns })
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> ListError {
    let path = path.to_path_buf();
    |error| ListError::Io { path, error }
}

fn container_error(path: &Path) -> impl FnOnce(ContainerError) -> ListError {
    let path = path.to_path_buf();
    |error| ListError::Container { path, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { size: 1, mtime_ns: 5, ctime_ns: 3_000_000_001, inode: 9 };

    #[test]
    fn a_young_file_is_not_trusted() {
        assert_eq!(STAMP.racy_for_ns(3_000_000_001), RACY_WINDOW_FINE_NS);
        assert_eq!(STAMP.racy_for_ns(3_050_000_000), 1);
        assert_eq!(STAMP.racy_for_ns(3_050_000_001), 0);
        assert_eq!(STAMP.racy_for_ns(1), RACY_WINDOW_FINE_NS, "a clock that is behind waits one window");
        let whole_seconds = Stamp { ctime_ns: 3_000_000_000, ..STAMP };
        assert_eq!(whole_seconds.racy_for_ns(3_000_000_000), RACY_WINDOW_COARSE_NS);
    }

    #[test]
    fn every_part_is_in_the_token_but_renames_in_a_maildir() {
        let others = [
            Stamp { size: 2, ..STAMP },
            Stamp { mtime_ns: 6, ..STAMP },
            Stamp { inode: 8, ..STAMP },
            Stamp { ctime_ns: 4, ..STAMP },
        ];
        for (i, other) in others.iter().enumerate() {
            assert_ne!(other.token(false), STAMP.token(false));
            assert_eq!(other.token(true) == STAMP.token(true), i == 3);
        }
    }
}
