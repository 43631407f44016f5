//! Moves: a document that is gone at one place and new at another one is copied at the server, not parsed again.
//!
//! The walk that counts deletions before the run ([`super::budget`]) notes each document that will be removed
//! ([`Job::note_removed`]). A document that is added meanwhile is looked up among the noted ones ([`Job::moved`]). In
//! each container removals come after additions, and containers with removals come last ([`Moves::loses`]), so the
//! document is usually still at the server. Equal tokens mean equal bytes, so a document with an equal token is not
//! even read. A file that was renamed has another token and its former identity ([`Source::identity`]). It is read, and
//! its digest decides.
//!
//! Left out: a document that comes to a folder above its own, which stays; one of two documents that change places between two
//! folders; archives and what is in them; a run that may remove everything, because it makes no such walk; sinks that cannot
//! copy. All these documents are parsed again.
//!
//! [`Source::identity`]: crate::source::Source::identity

use super::Job;
use crate::ImportError;
use crate::cache::texts;
use crate::container::{Container, Entry, Kind};
use crate::diff::{Change, diff};
use crate::source::parts;
use crate::versions::{DIGEST_NOTE, INNER_NOTE, MAYBE_NOTE};
use std::collections::{HashMap, HashSet};

/// Most bytes that are kept of documents which may have moved. Of more documents the rest is parsed again.
pub const MOVES_BYTES_MAX: usize = 16 << 20;
/// What a document costs besides its words.
const MOVED_BYTES: usize = 256;

/// A document that is about to be removed.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    /// Its id.
    pub(super) path: Vec<u8>,
    pub(super) token: Vec<u8>,
    pub(super) digest: Vec<u8>,
    pub(super) size: u64,
    /// Its hash has fields outside of the list.
    pub(super) more: bool,
    /// By what the extractor chooses, besides the bytes.
    kind: Vec<u8>,
}

/// The documents that will be removed, by identity.
#[derive(Debug, Default)]
pub(super) struct Moves {
    removed: HashMap<Vec<u8>, Moved>,
    /// The paths of the containers in which, or below which, one of these documents is.
    losing: HashSet<Vec<u8>>,
    bytes: usize,
}

impl Moves {
    /// True when documents will be removed from the container at `path`, or below it.
    pub(super) fn loses(&self, path: &[u8]) -> bool {
        self.losing.contains(path)
    }

    fn add(&mut self, identity: Vec<u8>, moved: Moved) {
        let words = [&identity, &moved.path, &moved.token, &moved.digest, &moved.kind];
        self.bytes += words.iter().map(|word| word.len()).sum::<usize>() + MOVED_BYTES;
        let slashes = moved.path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        for (at, _) in slashes {
            // A container that is there already has all those above it there.
            if !self.losing.insert(moved.path[..at].to_vec()) {
                break;
            }
            self.bytes += at + MOVED_BYTES;
        }
        self.removed.insert(identity, moved);
    }
}

impl Job<'_> {
    /// Notes a document that will be removed, when the server has all of it. `path` is its id.
    pub(super) fn note_removed(&mut self, path: Vec<u8>, entry: &Entry<'_>) {
        let doubts = [super::ERROR_NOTE, MAYBE_NOTE, INNER_NOTE];
        let is_whole = doubts.iter().all(|note| entry.get(note).is_none());
        let Some(digest) = entry.get(DIGEST_NOTE).filter(|_| is_whole) else { return };
        if self.moves.bytes >= MOVES_BYTES_MAX || !self.sink.copies() {
            return;
        }
        let Some(identity) = self.source.identity(entry) else { return };
        let moved = Moved {
            path,
            token: entry.token.to_vec(),
            digest: digest.to_vec(),
            size: entry.size,
            more: entry.get(super::documents::MORE_NOTE).is_some(),
            kind: texts::kind(entry),
        };
        self.moves.add(identity, moved);
    }

    /// The noted documents that the new documents of a container may have been, by the new names. The server still has them.
    pub(super) fn moved(
        &mut self,
        old: Container<'_>,
        new: Container<'_>,
    ) -> Result<HashMap<Vec<u8>, Moved>, ImportError> {
        let mut found = HashMap::new();
        if self.moves.removed.is_empty() || self.within.parent().is_some() {
            return Ok(found);
        }
        for change in diff(old, new) {
            let Change::Added(entry) = change else { continue };
            let is_document = entry.kind == Kind::Document;
            let Some(identity) = self.source.identity(&entry).filter(|_| is_document) else { continue };
            let moved = self.moves.removed.get(&identity);
            if let Some(moved) = moved.filter(|moved| moved.kind == texts::kind(&entry)) {
                found.insert(entry.name.to_vec(), moved.clone());
            }
        }
        if found.is_empty() {
            return Ok(found);
        }
        self.drain()?;
        let paths: Vec<&[u8]> = found.values().map(|moved| &moved.path[..]).collect();
        let missing = self.sink.missing(b"", &paths)?.into_iter().map(<[u8]>::to_vec);
        let missing: HashSet<Vec<u8>> = missing.collect();
        found.retain(|_, moved| !missing.contains(&moved.path));
        Ok(found)
    }
}

/// True when a container that is gone must be removed before anything is added: what is in a new archive of its name has the
/// ids of what was in the container. Where documents are listed in parts, a part of another name may hold the new archive.
pub(super) fn removes_first(old: Container<'_>, new: Container<'_>, name: &[u8]) -> bool {
    let is_document = || new.find(name).is_some_and(|entry| entry.kind == Kind::Document);
    parts::has_parts(old) || parts::has_parts(new) || is_document()
}
