//! A snapshot of a restic repository: each tree is a container, each file in it a document.
//!
//! [`Restic`] reads a repository of format 1 or 2 in a local folder. It never writes there, not even a lock. A tree's
//! id is the token of its container. A file's token is made of the ids of its blobs. Equal tokens mean equal bytes and
//! equal subtrees. So a tree with an unchanged id is skipped, and an old tree can be listed by its id. Symbolic links
//! and special files are counted, and not imported.

mod crypto;
mod repository;
mod tree;

use super::{ListError, Listing, Object, ReadError, Skipped, Source, Stat, Tokens, divide};
use crate::container::{ContainerBuilder, Entry, EntryKind};
use crate::source::remote::RemoteOptions;
use repository::{Blob, Id, Repository, hex, other};
use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use tree::{NodeKind, Trees};

/// The beginning of the name of a snapshot as a source.
pub const SCHEME: &str = "restic:";
/// The name of the newest snapshot, which is the default.
const LATEST: &str = "latest";

/// A snapshot of a repository as a source.
pub struct Restic {
    repository: Rc<Repository>,
    trees: Trees,
    /// The tree that is the root of the snapshot.
    root: Id,
    /// The source as the user gave it, for messages.
    shown: PathBuf,
}

impl Restic {
    /// Opens `location`, the text after [`SCHEME`]: `/path/of/repository@snapshot` or
    /// `/path/of/repository@snapshot:/folder`. The default snapshot is the newest snapshot.
    ///
    /// # Errors
    /// When there is no repository, no password for it, or no such snapshot or folder.
    pub fn open(location: &str, options: &RemoteOptions) -> io::Result<Restic> {
        let (path, wanted) = divide(location, LATEST);
        let (wanted, folder) = wanted.split_once(':').unwrap_or((wanted, ""));
        let repository = Repository::open(path, &password(options)?)?;
        let mut root = repository.snapshot(if wanted.is_empty() { LATEST } else { wanted })?;
        let mut trees = Trees::default();
        for name in folder.split('/').filter(|name| !name.is_empty()) {
            let tree = trees.get(&repository, &root)?;
            let below = tree.find(name.as_bytes()).and_then(|node| node.subtree());
            root = below.ok_or_else(|| other(format!("the snapshot has no folder {folder:?}")))?;
        }
        let shown = PathBuf::from(format!("{SCHEME}{location}"));
        Ok(Restic { repository: Rc::new(repository), trees, root, shown })
    }

    fn tree_at(&mut self, path: &[u8]) -> io::Result<Rc<tree::Tree>> {
        let mut tree = self.trees.get(&self.repository, &self.root)?;
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            let below = tree.find(name).and_then(|node| node.subtree());
            let below = below.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            tree = self.trees.get(&self.repository, &below)?;
        }
        Ok(tree)
    }
}

/// The password of the repository: from the file in the options, or from restic's environment variables.
fn password(options: &RemoteOptions) -> io::Result<Vec<u8>> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let file = options.password_file.clone().or_else(|| variable("RESTIC_PASSWORD_FILE").map(PathBuf::from));
    if let Some(file) = file {
        let bytes = std::fs::read(&file);
        let bytes = bytes.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", file.display())))?;
        // restic ignores a byte order mark, too.
        return Ok(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes).trim_ascii().to_vec());
    }
    let password = variable("RESTIC_PASSWORD").map(|value| value.into_encoded_bytes());
    password.ok_or_else(|| other("the repository needs a password: --password-file, or RESTIC_PASSWORD"))
}

/// Lists a tree.
fn list_tree(tree: &tree::Tree, shown: PathBuf) -> Result<Listing, ListError> {
    let mut builder = ContainerBuilder::new(0);
    let mut skipped = Skipped::default();
    for node in tree.nodes() {
        let pushed = match &node.kind {
            NodeKind::Folder(below) => builder.push(EntryKind::Container, &node.name, 0, below, []),
            NodeKind::File(_) => {
                let token = node.token().expect("a file has one");
                builder.push(EntryKind::Document, &node.name, node.size, &token, [])
            }
            NodeKind::Link => {
                skipped.links += 1;
                continue;
            }
            NodeKind::Special => {
                skipped.special += 1;
                continue;
            }
        };
        if let Err(error) = pushed {
            return Err(ListError::Container { path: shown, error });
        }
    }
    let blob = builder.finish().map_err(|error| ListError::Container { path: shown, error })?;
    Ok(Listing { blob, skipped, racy_for_ns: 0, refused: Vec::new() })
}

impl Source for Restic {
    fn tokens(&self) -> Tokens {
        Tokens::Content
    }

    fn list(&mut self, path: &[u8], _distrust: bool) -> Result<Listing, ListError> {
        let shown = self.shown.join(String::from_utf8_lossy(path).as_ref());
        match self.tree_at(path) {
            Ok(tree) => list_tree(&tree, shown),
            Err(error) => Err(ListError::Io { path: shown, error }),
        }
    }

    fn open(&mut self, path: &[u8], entry: &Entry<'_>) -> Result<Box<dyn Object>, ReadError> {
        let tree = self.tree_at(path)?;
        let node = tree.find(entry.name).ok_or(ReadError::Vanished)?;
        let NodeKind::File(content) = &node.kind else { return Err(ReadError::Replaced) };
        let (mut parts, mut size) = (Vec::with_capacity(content.len()), 0);
        for id in content {
            let missing = || other(format!("the blob {} is not in the repository's index", hex(id)));
            let blob = self.repository.find(id).ok_or_else(missing)?;
            parts.push((size, blob));
            size += blob.len();
        }
        let token = node.token().expect("a file has one").to_vec();
        let (repository, last) = (self.repository.clone(), RefCell::default());
        Ok(Box::new(Parts { repository, parts, size, token, last }))
    }
}

/// A file of a snapshot.
struct Parts {
    repository: Rc<Repository>,
    /// For each part its offset in the file, and its blob.
    parts: Vec<(u64, Blob)>,
    size: u64,
    token: Vec<u8>,
    /// The part that was read last.
    last: RefCell<Option<(usize, Vec<u8>)>>,
}

impl Object for Parts {
    fn stat(&self) -> io::Result<Stat> {
        Ok(Stat { size: self.size, token: self.token.clone(), is_young: false })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        if offset >= self.size || into.is_empty() {
            return Ok(0);
        }
        let number = self.parts.partition_point(|(start, _)| *start <= offset) - 1;
        let (start, blob) = self.parts[number];
        let mut last = self.last.borrow_mut();
        if last.as_ref().is_none_or(|(read, _)| *read != number) {
            *last = Some((number, self.repository.read(blob)?));
        }
        let (_, bytes) = last.as_ref().expect("just read");
        let rest = bytes.get((offset - start) as usize..).unwrap_or_default();
        if rest.is_empty() {
            return Err(other(format!(
                "the file has fewer than the {} bytes that the repository's index says",
                self.size
            )));
        }
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}
