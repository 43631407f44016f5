//! Sources: where documents come from, listed as containers.
//!
//! [`Source`] is what every source can do: list a container, open a document of it, and say what its version tokens are
//! made of ([`Tokens`]). An open document is an [`Object`]: bytes at an offset, and `stat`.
//!
//! [`folder`] is a local or mounted folder, in which a Maildir is listed as one. [`git`] is a revision of a repository,
//! and [`restic`] a snapshot of one. [`remote`] is a bucket, or one object of a web server. [`archive`] is a document
//! of another source that holds documents itself. `cached` reads through a cache. [`parts`] lists a container of very
//! many documents. [`read`] reads one document whole, as it is at one moment.

pub mod archive;
mod beneath;
mod cached;
pub mod folder;
pub mod git;
pub mod parts;
pub mod read;
pub mod remote;
pub mod restic;
pub mod stamp;

use crate::cache::CacheUse;
use crate::container::{ContainerError, Entry};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// The metadata key of a document's Maildir flags.
pub const FLAGS_KEY: &[u8] = b"flags";
/// The note with the place of a document below its container, when the place is not the document's name.
pub const AT_NOTE: &[u8] = b"~at";

/// Methods of a source that wraps another source, its field `source`. Each method calls the same method of the wrapped
/// source.
macro_rules! asks_its_source {
    () => {
        fn open(
            &mut self,
            path: &[u8],
            entry: &$crate::container::Entry<'_>,
        ) -> Result<Box<dyn $crate::source::Object>, $crate::source::ReadError> {
            self.source.open(path, entry)
        }

        fn size(&mut self, entry: &$crate::container::Entry<'_>) -> Option<u64> {
            self.source.size(entry)
        }

        fn makes_parts(&self) -> bool {
            self.source.makes_parts()
        }

        fn keep_parts(&mut self, path: &[u8]) {
            self.source.keep_parts(path);
        }

        fn is_remote(&self) -> bool {
            self.source.is_remote()
        }

        fn ahead(&self) -> usize {
            self.source.ahead()
        }

        fn prefetch(&mut self, path: &[u8], entry: &$crate::container::Entry<'_>) {
            self.source.prefetch(path, entry);
        }

        fn cache_name(&self, path: &[u8], entry: &$crate::container::Entry<'_>) -> Option<Vec<u8>> {
            self.source.cache_name(path, entry)
        }

        fn cache(&self) -> Option<&$crate::cache::CacheUse> {
            self.source.cache()
        }

        fn identity(&self, entry: &$crate::container::Entry<'_>) -> Option<$crate::source::Identity> {
            self.source.identity(entry)
        }
    };
}
pub(crate) use asks_its_source;

/// A place with documents.
pub trait Source {
    /// What this source's version tokens are made of.
    fn tokens(&self) -> Tokens;

    /// Lists the container at `path` (names joined by `/`; empty: the root). With `distrust`, documents that are too
    /// young to be trusted get no token, so that the next import looks at them again.
    ///
    /// # Errors
    /// [`ListError`]. A document that vanishes during the listing is left out, without an error.
    fn list(&mut self, path: &[u8], distrust: bool) -> Result<Listing, ListError>;

    /// Opens the document `entry` of the container `path`.
    ///
    /// # Errors
    /// [`ReadError`].
    fn open(&mut self, path: &[u8], entry: &Entry<'_>) -> Result<Box<dyn Object>, ReadError>;

    /// True when each document costs a request to another machine.
    fn is_remote(&self) -> bool {
        false
    }

    /// How many documents [`Source::prefetch`] may announce before they are opened.
    fn ahead(&self) -> usize {
        0
    }

    /// Announces that the document `entry` of the container `path` will be opened, after the documents that were
    /// announced before.
    fn prefetch(&mut self, path: &[u8], entry: &Entry<'_>) {
        let _ = (path, entry);
    }

    /// The document's size in bytes, if the source knows the size without opening the document.
    fn size(&mut self, entry: &Entry<'_>) -> Option<u64> {
        Some(entry.size)
    }

    /// The name of the document `entry` of the container `path` in a cache, unique in the world. Name and token
    /// together say which bytes the document has. `None` where a cache would not help, or where the token is not
    /// certain.
    fn cache_name(&self, path: &[u8], entry: &Entry<'_>) -> Option<Vec<u8>> {
        let _ = (path, entry);
        None
    }

    /// What a document keeps when it moves within this source. `None` where the source knows nothing of that.
    fn identity(&self, entry: &Entry<'_>) -> Option<Identity> {
        let is_content = self.tokens() == Tokens::Content && !entry.token.is_empty();
        is_content.then(|| Identity { bytes: entry.token.to_vec(), is_certain: true })
    }

    /// The cache in front of this source.
    fn cache(&self) -> Option<&CacheUse> {
        None
    }

    /// True when this source lists very large containers in [`parts`]. Such a source has no folder with the name of a
    /// part.
    fn makes_parts(&self) -> bool {
        false
    }

    /// Tells the source that the container at `path` is recorded in parts. It is then listed in parts, however small it
    /// is now.
    fn keep_parts(&mut self, path: &[u8]) {
        let _ = path;
    }

    /// The container that had this token when extractor version `producer` imported it, with every document marked as
    /// held by the server. `None` when the source keeps no old containers, or does not have this one.
    ///
    /// # Errors
    /// [`ListError`].
    fn recall(&mut self, token: &[u8], producer: u16) -> Result<Option<Vec<u8>>, ListError> {
        let _ = (token, producer);
        Ok(None)
    }
}

/// Opens a source by its name: a folder's path, `git+file:///repository@revision`, `restic:/repository@snapshot`,
/// `s3://bucket/prefix`, or a URL.
///
/// # Errors
/// The words of the system or of the repository.
pub fn open(name: &Path, options: &remote::RemoteOptions) -> io::Result<Box<dyn Source>> {
    let source = open_bare(name, options)?;
    Ok(match &options.cache {
        Some(cache) => Box::new(cached::Cached::new(source, cache, place(name))),
        None => source,
    })
}

/// The place of a source: its name, for a repository without the revision or the snapshot.
fn place(name: &Path) -> &[u8] {
    let text = name.to_str().unwrap_or_default();
    let location = [git::SCHEME, restic::SCHEME].iter().find_map(|scheme| text.strip_prefix(scheme));
    location.map_or(name, |location| divide(location, "").0).as_os_str().as_encoded_bytes()
}

fn open_bare(name: &Path, options: &remote::RemoteOptions) -> io::Result<Box<dyn Source>> {
    let text = name.as_os_str().as_encoded_bytes();
    if let Some(text) = name.to_str() {
        if let Some(location) = text.strip_prefix(remote::s3::SCHEME) {
            return Ok(Box::new(remote::s3::S3::open(location, options)?));
        }
        if remote::http::SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return Ok(Box::new(remote::http::Http::open(text, options.cache.is_some())?));
        }
    }
    if let Some(location) = text.strip_prefix(git::SCHEME.as_bytes()) {
        let location =
            std::str::from_utf8(location).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        return Ok(Box::new(git::Git::open(location)?));
    }
    if let Some(location) = name.to_str().and_then(|text| text.strip_prefix(restic::SCHEME)) {
        return Ok(Box::new(restic::Restic::open(location, options)?));
    }
    Ok(Box::new(folder::Folder::open(name, options.list_cutoff)?))
}

/// Divides a repository's folder from the revision in it. Both may hold an `@`. The first `@` with a folder on its left
/// is the border.
fn divide<'a>(location: &'a str, unsaid: &'a str) -> (&'a Path, &'a str) {
    let divided =
        location.match_indices('@').map(|(at, _)| (Path::new(&location[..at]), &location[at + 1..]));
    let found = divided.into_iter().find(|(path, revision)| path.is_dir() && !revision.is_empty());
    found.unwrap_or((Path::new(location), unsaid))
}

/// What a source's version tokens are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// Times and numbers of a file system. An equal token means that nobody touched the document. Another token does
    /// not mean that the bytes differ. A container has no token.
    Stamps,
    /// The bytes themselves. Equal tokens mean equal bytes, and equal tokens of containers mean equal subtrees.
    Content,
}

/// What a document keeps when it moves. Two documents with one identity may have the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The bytes of the identity.
    pub bytes: Vec<u8>,
    /// True: two documents with one identity have the same bytes for certain if their tokens are equal too.
    pub is_certain: bool,
}

/// Size and token of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Size in bytes.
    pub size: u64,
    /// Version token of the bytes that are read now.
    pub token: Vec<u8>,
    /// True when the object changed so recently that its token cannot be trusted yet.
    pub is_young: bool,
}

/// An open document.
pub trait Object {
    /// The object's size and token as they are now.
    ///
    /// # Errors
    /// What the system says.
    fn stat(&self) -> io::Result<Stat>;

    /// True when the object ends at the size that [`Object::stat`] reports. Then no byte behind that size is read.
    fn is_exact(&self) -> bool {
        false
    }

    /// Reads bytes at `offset` into `into`. Returns their number, which is 0 only at the end.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// A container's listing.
#[derive(Debug)]
pub struct Listing {
    /// The container, as the bytes of a blob.
    pub blob: Vec<u8>,
    /// Numbers of things that were left out of the listing.
    pub skipped: Skipped,
    /// For how many nanoseconds after the listing some document is too young to be trusted. 0 when no document is.
    pub racy_for_ns: i64,
    /// Entries that cannot be listed, with the reason.
    pub refused: Vec<(Vec<u8>, String)>,
}

/// Numbers of things in a listing that are not documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Symbolic links. They are not followed, because they lead out of the folder, or in circles.
    pub links: u64,
    /// Sockets, pipes and devices.
    pub special: u64,
    /// Files that a mail program keeps beside the messages of a Maildir, and unfinished deliveries.
    pub maildir: u64,
    /// Submodules of a git repository: repositories of their own.
    pub submodules: u64,
    /// Folders and documents that the filter of the run left out.
    pub filtered: u64,
}

impl Skipped {
    /// The sum of all numbers.
    pub fn total(&self) -> u64 {
        self.links + self.special + self.maildir + self.submodules + self.filtered
    }
    /// Adds the numbers of another listing.
    pub fn add(&mut self, other: Skipped) {
        self.links += other.links;
        self.special += other.special;
        self.maildir += other.maildir;
        self.submodules += other.submodules;
        self.filtered += other.filtered;
    }
}

/// Why a container could not be listed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// The operating system refused the call.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The path of the folder, or of the entry in the folder.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The listing does not fit a container.
    #[error("{path}: {error}", path = path.display())]
    Container {
        /// The path of the folder.
        path: PathBuf,
        /// Why the listing does not fit.
        error: ContainerError,
    },
}

/// Why a document could not be read. The next import tries again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The document was listed, and is gone now.
    #[error("the file vanished during the import")]
    Vanished,
    /// The document is not a regular file any more, or a folder on its path is not a folder.
    #[error("the file became something else during the import")]
    Replaced,
    /// The document changed during every read.
    #[error("the file changed while it was read, {} times", read::READS_MAX)]
    Changing,
    /// The operating system refused the call.
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => ReadError::Vanished,
            // The path has a link in it, or something that is not a folder.
            Some(Errno::LOOP | Errno::NOTDIR | Errno::XDEV | Errno::NXIO) => ReadError::Replaced,
            _ => ReadError::Io(error),
        }
    }
}
