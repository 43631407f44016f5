//! Copies of documents within a server: [`Copying`], and the keys of the stash.
//!
//! COPY copies a document that has moved. HSET and HDEL then set the fields that depend on the document's path. A
//! document that is changed before it is copied is stashed first: COPY copies it to a key that no reader of the dataset
//! finds.

use super::{Awaited, Strand};
use crate::ImportError;
use crate::sink::{Place, Rejected};

/// A document that is copied.
#[derive(Debug)]
pub(super) struct Copying {
    pub(super) index: usize,
    /// True when the copy replaces a document.
    pub(super) held: bool,
    /// The fields in which the copy differs from the original. An empty value: the copy does not have the field.
    pub(super) pairs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) key: Vec<u8>,
}

impl Copying {
    /// The HSET of the fields in which the copy differs.
    pub(super) fn set_fields(&self) -> Vec<Vec<u8>> {
        let mut args = vec![b"HSET".to_vec(), self.key.clone()];
        let set = self.pairs.iter().filter(|(_, value)| !value.is_empty());
        args.extend(set.flat_map(|(name, value)| [name.clone(), value.clone()]));
        args
    }
}

impl Strand {
    /// `Sink::copy` in a transaction. The replies arrive only at EXEC, so the key's type is checked before.
    pub(super) fn copy_in_transaction(&mut self, from: &[u8], copy: Copying) -> Result<(), ImportError> {
        if !self.is_free_or_hash(&copy.key)? {
            self.rejected.push(Rejected::not_a_hash(copy.index));
            return Ok(());
        }
        if let Some(transaction) = &mut self.transaction {
            transaction.queue_copy(&[&b"COPY"[..], from, &copy.key, b"REPLACE"])?;
        }
        self.place_copy(&copy, true)
    }

    pub(super) fn send_copy(&mut self, from: &[u8], copy: Copying) -> Result<(), ImportError> {
        let key = copy.key.clone();
        let mut args: Vec<&[u8]> = vec![b"COPY", from, &key];
        args.extend(copy.held.then_some(&b"REPLACE"[..]));
        self.send(&args, Awaited::Copied(copy))
    }

    /// Handles the reply to COPY: sets the fields in which the copy differs.
    pub(super) fn place_copy(&mut self, copy: &Copying, is_copied: bool) -> Result<(), ImportError> {
        let (index, held) = (copy.index, copy.held);
        if !is_copied {
            // The copy failed, so the next run reads the document.
            let reason =
                "its copy at the server failed: a key of this name exists, or the document was deleted there";
            self.rejected.push(Rejected { index, reason: reason.to_owned(), document_may_remain: held });
            return Ok(());
        }
        self.send(&copy.set_fields(), Awaited::Changed { index })?;
        let mut args: Vec<&[u8]> = vec![b"HDEL", &copy.key];
        args.extend(copy.pairs.iter().filter(|(_, value)| value.is_empty()).map(|(name, _)| &name[..]));
        if args.len() == 2 {
            return Ok(());
        }
        self.send(&args, Awaited::Changed { index })
    }

    pub(super) fn place_key(&self, place: &Place) -> Vec<u8> {
        match place {
            Place::Document(path) => self.key(path),
            Place::Stash(number) => self.stash_key(*number),
        }
    }

    /// The key with this number in the stash. It does not have the prefix of the dataset's keys, so no index follows
    /// it. It cannot be a key of another dataset, because the name of a dataset has no control characters.
    pub(super) fn stash_key(&self, number: u32) -> Vec<u8> {
        [&self.dataset[..], format!("\x01aside:{number}").as_bytes()].concat()
    }
}
