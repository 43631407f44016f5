//! Copies of documents within a server: [`Copying`], and the keys aside.
//!
//! A document that has moved is copied by COPY, and gets the fields of its new place by HSET and HDEL. A document that
//! loses its place before it is copied is laid aside first, under a key that no reader of the dataset finds.

use super::{Awaited, Strand};
use crate::ImportError;
use crate::sink::{Place, Rejected};

/// A document that is copied.
#[derive(Debug)]
pub(super) struct Copying {
    pub(super) index: usize,
    /// True when the copy replaces a document.
    pub(super) held: bool,
    /// The fields that only the copy has. With an empty value: the copy does not have this field.
    pub(super) pairs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) key: Vec<u8>,
}

impl Copying {
    /// The HSET of the fields that only the copy has.
    pub(super) fn set_fields(&self) -> Vec<Vec<u8>> {
        let mut args = vec![b"HSET".to_vec(), self.key.clone()];
        let set = self.pairs.iter().filter(|(_, value)| !value.is_empty());
        args.extend(set.flat_map(|(name, value)| [name.clone(), value.clone()]));
        args
    }
}

impl Strand {
    /// `Sink::copy` for a transaction, whose replies come at the end. So the key's type is asked for first.
    pub(super) fn copy_at_the_end(&mut self, from: &[u8], copy: Copying) -> Result<(), ImportError> {
        if !self.may_be_ours(&copy.key)? {
            self.rejected.push(Rejected::no_hash(copy.index, !copy.held));
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

    /// Handles the reply to COPY: the copy gets its own fields.
    pub(super) fn place_copy(&mut self, copy: &Copying, is_copied: bool) -> Result<(), ImportError> {
        let (index, held) = (copy.index, copy.held);
        if !is_copied {
            // The copy failed, so the next run reads the document.
            let reason =
                "its copy at the server failed: a key of this name exists, or the document was deleted there";
            self.rejected.push(Rejected { index, reason: reason.to_owned(), was_added: !held, stays: held });
            return Ok(());
        }
        self.send(&copy.set_fields(), Awaited::Changed { index, held })?;
        let mut args: Vec<&[u8]> = vec![b"HDEL", &copy.key];
        args.extend(copy.pairs.iter().filter(|(_, value)| value.is_empty()).map(|(name, _)| &name[..]));
        if args.len() == 2 {
            return Ok(());
        }
        self.send(&args, Awaited::Changed { index, held })
    }

    pub(super) fn place_key(&self, place: &Place) -> Vec<u8> {
        match place {
            Place::Document(path) => self.key(path),
            Place::Aside(number) => self.aside_key(*number),
        }
    }

    /// The key of a document that is laid aside. It does not begin like the dataset's keys, so no index follows it. It
    /// is no key of another dataset, because the name of a dataset has no control characters.
    pub(super) fn aside_key(&self, number: u32) -> Vec<u8> {
        [&self.dataset[..], format!("\x01aside:{number}").as_bytes()].concat()
    }
}
