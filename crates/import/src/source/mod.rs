//! Sources: the places from which documents are imported.
//!
//! [`Source`] is the interface of all sources: list a container, open one of its documents, and say what the version
//! tokens are made of ([`Tokens`]). An open document is an [`Object`], with `stat` and `read_at`.
//!
//! [`folder`] is a local or mounted folder, which may have Maildirs in it. [`git`] is a revision of a git repository,
//! and [`restic`] is a snapshot of a restic repository. [`remote`] is a bucket, or one object of a web server.
//! [`archive`] is a document of another source that holds documents itself. `cached` reads another source through a
//! cache. [`parts`] lists a container with very many documents. [`read`] reads one document completely, in one version.

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

use crate::OptionError;
use crate::cache::CacheUse;
use crate::container::{ContainerError, Entry};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// The metadata key of a document's Maildir flags.
pub const FLAGS_KEY: &[u8] = b"flags";
/// The note with the path of a document within its container, if the path is not the document's name.
pub const LOCATION_NOTE: &[u8] = b"~at";

/// Methods of [`Source`] for a type that wraps another source in its field `source`. Each method calls the method of
/// the same name of the wrapped source.
macro_rules! delegates_to_source {
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

        fn warning(&mut self) -> Option<String> {
            self.source.warning()
        }

        fn prefetch_max(&self) -> usize {
            self.source.prefetch_max()
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
pub(crate) use delegates_to_source;

/// A place from which documents are imported.
pub trait Source {
    /// The facts from which this source makes its version tokens.
    fn tokens(&self) -> Tokens;

    /// Lists the container at `path` (names joined by `/`; empty: the root). If `distrust` is true, a document
    /// that changed so recently that its token may be wrong gets an empty token. The next import then reads it again.
    ///
    /// # Errors
    /// [`ListError`]. A document that vanishes during the listing is not listed. This is no error.
    fn list(&mut self, path: &[u8], distrust: bool) -> Result<Listing, ListError>;

    /// Opens the document `entry` of the container `path`.
    ///
    /// # Errors
    /// [`ReadError`].
    fn open(&mut self, path: &[u8], entry: &Entry<'_>) -> Result<Box<dyn Object>, ReadError>;

    /// True when reading a document takes a request to another machine.
    fn is_remote(&self) -> bool {
        false
    }

    /// What the user should know about the listing of the root, though it is no error. Returns each warning once.
    fn warning(&mut self) -> Option<String> {
        None
    }

    /// Maximum number of documents that [`Source::prefetch`] may announce before they are opened.
    fn prefetch_max(&self) -> usize {
        0
    }

    /// Announces that the document `entry` of the container `path` will be opened soon. Documents are opened in the
    /// order in which they were announced.
    fn prefetch(&mut self, path: &[u8], entry: &Entry<'_>) {
        let _ = (path, entry);
    }

    /// The document's size in bytes, if the source knows the size without opening the document.
    fn size(&mut self, entry: &Entry<'_>) -> Option<u64> {
        Some(entry.size)
    }

    /// A name for the document `entry` of the container `path` in a cache. It is unique among all sources, and name and
    /// token together identify the document's bytes. `None` when a cache would not help, or when the token is not
    /// certain.
    fn cache_name(&self, path: &[u8], entry: &Entry<'_>) -> Option<Vec<u8>> {
        let _ = (path, entry);
        None
    }

    /// The facts about a document that stay equal when it moves within this source. `None` when there are none.
    fn identity(&self, entry: &Entry<'_>) -> Option<Identity> {
        let is_content = self.tokens() == Tokens::Content && !entry.token.is_empty();
        is_content.then(|| Identity { bytes: entry.token.to_vec(), is_certain: true })
    }

    /// The cache in front of this source.
    fn cache(&self) -> Option<&CacheUse> {
        None
    }

    /// True when this source lists very large containers in [`parts`]. It then lists no folder with the name of a part.
    fn makes_parts(&self) -> bool {
        false
    }

    /// Makes the source list the container at `path` in parts from now on, even if the container is small.
    fn keep_parts(&mut self, path: &[u8]) {
        let _ = path;
    }
}

/// Opens a source by its name: a folder's path, `git+file:///repository@revision`, `restic:/repository@snapshot`,
/// `s3://bucket/prefix`, or a URL.
///
/// # Errors
/// The error of the operating system, of the repository or of the server.
pub fn open(name: &Path, options: &remote::RemoteOptions) -> io::Result<Box<dyn Source>> {
    let source = open_bare(name, options)?;
    Ok(match &options.cache {
        Some(cache) => Box::new(cached::Cached::new(source, cache, place(name))),
        None => source,
    })
}

/// True when unequal tokens of content in these two sources mean unequal content: both are git repositories, whose
/// tokens are digests of files, or both are the same restic repository. Each restic repository divides files in its own
/// way, and its tokens are digests of the pieces.
pub(crate) fn are_tokens_comparable(before: &Path, after: &Path) -> bool {
    let both_have = |scheme: &str| {
        [before, after].iter().all(|name| name.as_os_str().as_encoded_bytes().starts_with(scheme.as_bytes()))
    };
    both_have(git::SCHEME) || both_have(restic::SCHEME) && place(before) == place(after)
}

/// The location of a source: its name without the revision or the snapshot.
fn place(name: &Path) -> &[u8] {
    let text = name.to_str().unwrap_or_default();
    let location = [git::SCHEME, restic::SCHEME].iter().find_map(|scheme| text.strip_prefix(scheme));
    location.map_or(name, |location| divide(location, "").0).as_os_str().as_encoded_bytes()
}

fn open_bare(name: &Path, options: &remote::RemoteOptions) -> io::Result<Box<dyn Source>> {
    if let Some(text) = name.to_str() {
        if let Some(location) = text.strip_prefix(remote::s3::SCHEME) {
            return Ok(Box::new(remote::s3::S3::open(location, options)?));
        }
        if remote::http::SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return Ok(Box::new(remote::http::Http::open(text, options.cache.is_some())?));
        }
        if let Some(location) = text.strip_prefix(git::SCHEME) {
            return Ok(Box::new(git::Git::open(location)?));
        }
        if let Some(location) = text.strip_prefix(restic::SCHEME) {
            return Ok(Box::new(restic::Restic::open(location, options)?));
        }
    } else if is_location(name) {
        return Err(io::Error::other(format!("the location is not UTF-8: {}", name.to_string_lossy())));
    }
    match folder::Folder::open(name, options.list_cutoff) {
        Ok(folder) => Ok(Box::new(folder)),
        Err(e) => match name.to_str().and_then(|text| text.split_once("://")) {
            Some((scheme, _)) => Err(io::Error::new(
                e.kind(),
                format!("{e}, and {scheme}:// is not a kind of source: {KINDS}"),
            )),
            None if e.kind() == io::ErrorKind::NotADirectory => Err(io::Error::new(
                e.kind(),
                "SOURCE is a file. Give its folder as SOURCE, and the file's name with --include",
            )),
            None => Err(e),
        },
    }
}

/// What a source may be, for errors.
const KINDS: &str = "expected a folder, s3://, http://, https://, git+file:// or restic:";

const ONLY_S3: &str = "this option is only for a bucket (s3://)";
const ONLY_RESTIC: &str = "this option is only for a restic repository (restic:)";

/// Checks that each option that is given is for one of the sources `names`.
///
/// # Errors
/// [`OptionError::OtherSource`].
pub(crate) fn check_options(names: &[&Path], options: &remote::RemoteOptions) -> Result<(), OptionError> {
    let is_any = |scheme| names.iter().any(|name| has_scheme(name, scheme));
    let (is_s3, is_restic) = (is_any(remote::s3::SCHEME), is_any(restic::SCHEME));
    let wrong = |option, expected| Err(OptionError::OtherSource { option, expected });
    if options.password_file.is_some() && !is_restic {
        return wrong("--password-file", ONLY_RESTIC);
    }
    if options.endpoint.is_some() && !is_s3 {
        return wrong("--endpoint", ONLY_S3);
    }
    if options.region.is_some() && !is_s3 {
        return wrong("--region", ONLY_S3);
    }
    if options.profile.is_some() && !is_s3 {
        return wrong("--profile", ONLY_S3);
    }
    if options.anonymous && !is_s3 {
        return wrong("--anonymous", ONLY_S3);
    }
    if options.as_of.is_some() && !is_s3 {
        return wrong("--as-of", ONLY_S3);
    }
    Ok(())
}

/// True when `name` begins like the name of a source that is not a folder.
fn is_location(name: &Path) -> bool {
    let mut schemes =
        [git::SCHEME, restic::SCHEME, remote::s3::SCHEME].into_iter().chain(remote::http::SCHEMES);
    schemes.any(|scheme| has_scheme(name, scheme))
}

fn has_scheme(name: &Path, scheme: &str) -> bool {
    name.as_os_str().as_encoded_bytes().starts_with(scheme.as_bytes())
}

/// Divides `location` at an `@` into a repository's folder and a revision. The folder and the revision may contain an
/// `@`, too, so the first `@` after the name of an existing folder divides. If there is no such folder, the last `@`
/// divides, so that errors name the folder.
fn divide<'a>(location: &'a str, default_revision: &'a str) -> (&'a Path, &'a str) {
    let divided =
        location.match_indices('@').map(|(at, _)| (Path::new(&location[..at]), &location[at + 1..]));
    let found = divided.into_iter().find(|(path, revision)| path.is_dir() && !revision.is_empty());
    let last = || location.rsplit_once('@').filter(|(_, revision)| !revision.is_empty());
    found.unwrap_or_else(|| match last() {
        Some((path, revision)) if !Path::new(location).exists() => (Path::new(path), revision),
        _ => (Path::new(location), default_revision),
    })
}

/// The facts from which a source makes its version tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// A file system's facts, for instance times. An equal token means that the document was not written. A different
    /// token does not mean that the bytes differ. A container has no token.
    Stamps,
    /// The content. Equal tokens mean equal bytes, and equal tokens of containers mean equal subtrees.
    Content,
}

/// The facts about a document that stay equal when it moves. Two documents with equal identities may have equal bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The bytes of the identity.
    pub bytes: Vec<u8>,
    /// True when two documents with equal identities and equal tokens certainly have equal bytes.
    pub is_certain: bool,
}

/// Size and token of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Size in bytes.
    pub size: u64,
    /// Version token of the bytes.
    pub token: Vec<u8>,
    /// True when the object changed so recently that a further change may leave its token equal.
    pub is_young: bool,
}

/// An open document.
pub trait Object {
    /// The present size and token of the object.
    ///
    /// # Errors
    /// The error of the system or the server.
    fn stat(&self) -> io::Result<Stat>;

    /// True when the object certainly ends at the size that [`Object::stat`] reports. Then the importer does not try to
    /// read beyond that size.
    fn is_exact(&self) -> bool {
        false
    }

    /// Reads bytes at `offset` into `into`. Returns the number of bytes, which is 0 only at the end.
    ///
    /// # Errors
    /// The error of the system or the server.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// A container's listing.
#[derive(Debug)]
pub struct Listing {
    /// The container, as the bytes of a blob.
    pub blob: Vec<u8>,
    /// Counts the files and folders that are not in the listing.
    pub skipped: Skipped,
    /// Nanoseconds after the listing during which a listed document may change without a new token. 0: no document may.
    pub racy_for_ns: i64,
    /// The names of entries that cannot be imported, with the reasons.
    pub refused: Vec<(Vec<u8>, String)>,
}

/// Counts the files and folders that are not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Symbolic links, and hard links of archives that name no entry before them. They are not followed, because they
    /// may lead out of the folder, or in circles.
    pub links: u64,
    /// Sockets, pipes and devices.
    pub special: u64,
    /// Files of a mail program beside the messages of a Maildir, and messages that are not delivered yet.
    pub maildir: u64,
    /// Submodules of a git repository, which are repositories of their own.
    pub submodules: u64,
    /// Folders and documents that the run's filter does not want.
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
    /// The document was listed, and does not exist now.
    #[error("the file vanished during the import")]
    Vanished,
    /// The document is not a regular file any more, or a folder on its path is not a folder.
    #[error("the file is no longer a regular file, or a folder on its path is no longer a folder")]
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
            // A name in the path is a link now, or a name before the last is not a folder now.
            Some(Errno::LOOP | Errno::NOTDIR | Errno::XDEV | Errno::NXIO) => ReadError::Replaced,
            _ => ReadError::Io(error),
        }
    }
}

/// Maximum number of causes of an error that are shown.
const CAUSES_MAX: usize = 10;

/// The text of `error` and of its causes. A cause whose text is already in the text is left out.
pub(crate) fn text_with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    for _ in 0..CAUSES_MAX {
        let Some(inner) = cause else { break };
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_is_named_with_the_kinds_of_sources() {
        let opened = open(Path::new("s4://bucket/folder"), &remote::RemoteOptions::default());
        let text = opened.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(text.contains("s4:// is not a kind of source") && text.contains("s3://"), "{text}");
    }
}
