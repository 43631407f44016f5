//! A revision of a git repository: each tree is a container, each file in it a document.
//!
//! [`Git`] reads a local repository, bare or not, through gix, without the user's configuration. A tree's id is the
//! token of its container, and a blob's id is the token of its document. So equal tokens mean equal bytes and equal
//! subtrees. Symbolic links and submodules are counted, and not imported.

use super::{ListError, Listing, Object, ReadError, Skipped, Source, Stat, Tokens, divide, text_with_causes};
use crate::container::{ContainerBuilder, Entry, EntryKind};
use gix::ObjectId;
use gix::objs::TreeRefIter;
use std::io;
use std::path::{Path, PathBuf};

/// The beginning of the name of a revision as a source.
pub const SCHEME: &str = "git+file://";
/// Maximum number of bytes of a blob. A packed blob can only be read whole.
pub const BLOB_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of bytes of a tree.
pub const TREE_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of bytes of unpacked objects in memory. Other objects are deltas of these objects.
const OBJECT_CACHE_BYTES: usize = 16 << 20;

/// A revision of a repository as a source.
#[derive(Debug)]
pub struct Git {
    repository: gix::Repository,
    /// The tree of the revision.
    tree: ObjectId,
    /// The source as the user gave it, for messages.
    shown: PathBuf,
}

impl Git {
    /// Opens `location`, the text after [`SCHEME`]: `/path/of/repository@revision`. The default revision is `HEAD`. A
    /// revision has git's syntax: a branch, a tag, an id, `main~3`, `HEAD@{1}`.
    ///
    /// # Errors
    /// When there is no repository, or no such revision in it.
    pub fn open(location: &str) -> io::Result<Git> {
        let (path, revision) = divide(location, "HEAD");
        if matches!(path.try_exists(), Ok(false)) {
            let hint = if path.is_relative() { "; the path of a repository begins with /" } else { "" };
            return Err(other(format!("there is no folder {}{hint}", path.display())));
        }
        // With replacements (`git replace`), an id would not mean its bytes, and a token would not tell that they changed.
        let options = gix::open::Options::isolated().config_overrides(["core.useReplaceRefs=false"]);
        let opened = gix::open_opts(path, options);
        let mut repository = opened.map_err(|error| match has_sha256_ids(path) {
            true => other("the repository has SHA-256 ids, which strand cannot read"),
            false => failed(error),
        })?;
        repository.object_cache_size(OBJECT_CACHE_BYTES);
        let found = repository.rev_parse_single(revision).map_err(|error| {
            let why = match repository.head() {
                Ok(head) if head.is_unborn() && revision == "HEAD" => ": it has no commits".into(),
                _ if repository.is_shallow().unwrap_or(false) => {
                    format!(", which is a shallow clone: {}", text_with_causes(&error))
                }
                _ => format!(": {}", text_with_causes(&error)),
            };
            other(format!("there is no revision {revision:?} in the repository {}{why}", path.display()))
        })?;
        let tree = found.object().map_err(failed)?.peel_to_tree().map_err(failed)?.id;
        Ok(Git { repository, tree, shown: PathBuf::from(format!("{SCHEME}{location}")) })
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        self.shown.join(String::from_utf8_lossy(path).as_ref())
    }

    /// The bytes of the object `id`. `None` when the repository does not have it.
    fn bytes(&self, id: ObjectId, kind: gix::objs::Kind, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(header) = self.repository.try_find_header(id).map_err(failed)? else { return Ok(None) };
        if header.kind() != kind {
            return Err(other(format!("the object {id} is a {}, not a {kind}", header.kind())));
        }
        if header.size() > bytes_max {
            return Err(other(format!("the {kind} has {} bytes, more than {bytes_max}", header.size())));
        }
        let object = self.repository.try_find_object(id).map_err(failed)?;
        Ok(object.map(|object| object.detach().data))
    }

    fn tree(&self, id: ObjectId) -> io::Result<Option<Vec<u8>>> {
        self.bytes(id, gix::objs::Kind::Tree, TREE_BYTES_MAX)
    }

    /// The tree at `path`.
    fn tree_at(&self, path: &[u8]) -> io::Result<(ObjectId, Vec<u8>)> {
        let mut id = self.tree;
        let mut bytes = self.tree(id)?.ok_or_else(|| missing(id))?;
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            let mut found = None;
            for entry in TreeRefIter::from_bytes(&bytes, id.kind()) {
                let entry = entry.map_err(failed)?;
                if entry.mode.is_tree() && entry.filename == name {
                    found = Some(entry.oid.to_owned());
                    break;
                }
            }
            id = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            bytes = self.tree(id)?.ok_or_else(|| missing(id))?;
        }
        Ok((id, bytes))
    }

    /// Lists the tree `bytes`.
    fn list_tree(&self, bytes: &[u8], shown: PathBuf) -> Result<Listing, ListError> {
        let mut builder = ContainerBuilder::with_capacity(0, 0, bytes.len() * 2);
        let mut skipped = Skipped::default();
        for entry in TreeRefIter::from_bytes(bytes, self.tree.kind()) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Err(ListError::Io { path: shown, error: failed(error) }),
            };
            let (name, token) = (entry.filename, entry.oid.as_bytes());
            let pushed = if entry.mode.is_tree() {
                builder.push(EntryKind::Container, name, 0, token, [])
            } else if entry.mode.is_link() {
                skipped.links += 1;
                continue;
            } else if entry.mode.is_commit() {
                skipped.submodules += 1;
                continue;
            } else {
                builder.push(EntryKind::Document, name, 0, token, [])
            };
            if let Err(error) = pushed {
                return Err(ListError::Container { path: shown, error });
            }
        }
        let blob = builder.finish().map_err(|error| ListError::Container { path: shown, error })?;
        Ok(Listing { blob, skipped, racy_for_ns: 0, refused: Vec::new() })
    }
}

impl Source for Git {
    fn tokens(&self) -> Tokens {
        Tokens::Content
    }

    fn list(&mut self, path: &[u8], _distrust: bool) -> Result<Listing, ListError> {
        let shown = self.shown(path);
        match self.tree_at(path) {
            Ok((_, bytes)) => self.list_tree(&bytes, shown),
            Err(error) => Err(ListError::Io { path: shown, error }),
        }
    }

    fn open(&mut self, _path: &[u8], entry: &Entry<'_>) -> Result<Box<dyn Object>, ReadError> {
        let id = ObjectId::try_from(entry.token).map_err(|error| ReadError::Io(failed(error)))?;
        let bytes = self.bytes(id, gix::objs::Kind::Blob, BLOB_BYTES_MAX).map_err(ReadError::Io)?;
        let bytes = bytes.ok_or_else(|| ReadError::Io(missing(id)))?;
        Ok(Box::new(Blob { bytes, token: entry.token.to_vec() }))
    }

    fn size(&mut self, entry: &Entry<'_>) -> Option<u64> {
        let id = ObjectId::try_from(entry.token).ok()?;
        Some(self.repository.try_find_header(id).ok()??.size())
    }
}

/// A blob's bytes.
#[derive(Debug)]
struct Blob {
    bytes: Vec<u8>,
    token: Vec<u8>,
}

impl Object for Blob {
    fn stat(&self) -> io::Result<Stat> {
        Ok(Stat { size: self.bytes.len() as u64, token: self.token.clone(), is_young: false })
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let at = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let len = into.len().min(self.bytes.len() - at);
        into[..len].copy_from_slice(&self.bytes[at..at + len]);
        Ok(len)
    }
}

fn missing(id: ObjectId) -> io::Error {
    other(format!(
        "the object {id} is not in the repository (a shallow or partial clone has not all of them)"
    ))
}

/// True when the configuration of the repository at `path` says that its ids are digests of SHA-256.
fn has_sha256_ids(path: &Path) -> bool {
    let is_sha256 = |file: &str| {
        let config = gix::config::File::from_path_no_includes(path.join(file), gix::config::Source::Local);
        let format =
            config.ok().and_then(|config| Some(config.string("extensions.objectFormat")?.to_string()));
        format.is_some_and(|format| format.eq_ignore_ascii_case("sha256"))
    };
    ["config", ".git/config"].into_iter().any(is_sha256)
}

/// The error for a failure of the library, with its causes.
fn failed(error: impl std::error::Error) -> io::Error {
    other(text_with_causes(&error))
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TempDir;

    #[test]
    fn the_path_of_the_repository_ends_at_a_folder() {
        let dir = TempDir::new("at");
        dir.write("a@b/x", b"");
        let at = dir.path().join("a@b");
        let at = at.to_str().unwrap();
        assert_eq!(divide(at, "HEAD"), (Path::new(at), "HEAD"));
        for revision in ["main", "HEAD@{1}", "feature/x~2", "refs/tags/v@1"] {
            assert_eq!(divide(&format!("{at}@{revision}"), "HEAD"), (Path::new(at), revision));
        }
    }
}
