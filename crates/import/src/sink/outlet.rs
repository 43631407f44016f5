//! [`Outlet`]: a sink that only accepts documents. The importer stores the records in a local file.

use super::records::Stored;
use super::{Records, Rejected, Sink};
use crate::container::ContainerDigest;
use crate::fields::Fields;
use crate::{ImportError, OptionError};
use std::collections::{HashMap, HashSet};

/// A receiver of whole documents, by puts and deletes.
pub(super) trait Feed {
    /// True when readers see the documents only after [`Feed::finish`].
    fn is_published_at_end(&self) -> bool;
    /// True when documents may be lost after [`Feed::settle`], because their reader may fail: it is behind a pipe.
    fn may_lose_accepted(&self) -> bool {
        false
    }
    /// Puts the document `path`. `held`: the receiver has an older version, which is replaced.
    fn put(&mut self, path: &[u8], fields: &Fields, held: bool, index: usize) -> Result<(), ImportError>;
    /// Deletes the document `path`, if it exists.
    fn delete(&mut self, path: &[u8]) -> Result<(), ImportError>;
    /// Waits until every put and delete is accepted or refused. Returns the refused documents.
    fn settle(&mut self) -> Result<Vec<Rejected>, ImportError>;
    /// Publishes the documents.
    fn finish(&mut self) -> Result<(), ImportError>;
}

/// A feed and its records.
pub(super) struct Outlet {
    feed: Box<dyn Feed>,
    records: Stored,
    /// For a feed that may lose what it has accepted: the changes of records until the end of the run. `None`: the record
    /// is removed. Intents that are stored are not here: they are on the disk before a document is sent.
    held: HashMap<Vec<u8>, Option<Vec<u8>>>,
    dry_run: bool,
}

impl Outlet {
    pub(super) fn new(feed: Box<dyn Feed>, records: Stored, dry_run: bool) -> Outlet {
        Outlet { feed, records, held: HashMap::new(), dry_run }
    }

    /// Writes the intents to the disk before a change is sent.
    fn before_sending(&mut self) -> Result<(), ImportError> {
        if self.feed.is_published_at_end() { Ok(()) } else { self.records.commit() }
    }
}

impl Records for Outlet {
    fn read(&mut self, names: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, ImportError> {
        let read = |name: &Vec<u8>| match self.held.get(name) {
            Some(held) => Ok(held.clone()),
            None => self.records.get(name),
        };
        names.iter().map(read).collect()
    }
    /// Always empty: the importer does not ask the sink which documents exist.
    fn missing<'a>(&mut self, _path: &[u8], _names: &[&'a [u8]]) -> Result<HashSet<&'a [u8]>, ImportError> {
        Ok(HashSet::new())
    }
    fn store(&mut self, name: &[u8], blob: &[u8]) -> Result<(), ImportError> {
        if self.dry_run {
            return Ok(());
        }
        if !name.ends_with(b"/") && self.feed.may_lose_accepted() {
            self.held.insert(name.to_vec(), Some(blob.to_vec()));
            return Ok(());
        }
        self.held.remove(name);
        self.records.put(name, blob)
    }
    fn forget(&mut self, names: &[&[u8]]) -> Result<(), ImportError> {
        if self.dry_run {
            return Ok(());
        }
        if self.feed.may_lose_accepted() {
            self.held.extend(names.iter().map(|name| (name.to_vec(), None)));
            return Ok(());
        }
        self.records.delete(names)
    }
}

impl Sink for Outlet {
    fn can_set_fields(&self) -> bool {
        false
    }
    fn replace(
        &mut self,
        path: &[u8],
        fields: &Fields,
        held: bool,
        _may_have_extra_fields: bool,
        index: usize,
    ) -> Result<(), ImportError> {
        if self.dry_run {
            return Ok(());
        }
        self.before_sending()?;
        self.feed.put(path, fields, held, index)
    }
    fn set_field(&mut self, _: &[u8], _: &str, _: &[u8], _: usize) -> Result<(), ImportError> {
        unreachable!("the job asks can_set_fields() first")
    }
    fn remove(&mut self, path: &[u8]) -> Result<(), ImportError> {
        if self.dry_run {
            return Ok(());
        }
        self.before_sending()?;
        self.feed.delete(path)
    }
    fn drain(&mut self) -> Result<Vec<Rejected>, ImportError> {
        let rejected = self.feed.settle()?;
        self.before_sending()?;
        Ok(rejected)
    }
    fn difference(&mut self, _path: &[u8], _fields: &Fields) -> Result<Option<String>, ImportError> {
        Err(OptionError::VerifyElsewhere.into())
    }
    /// The records are written last. If the run dies before that, the next run puts the same documents again.
    fn finish(&mut self, _version: Option<&ContainerDigest>) -> Result<Option<String>, ImportError> {
        if self.dry_run {
            return Ok(None);
        }
        self.feed.finish()?;
        for (name, blob) in self.held.drain() {
            match blob {
                Some(blob) => self.records.put(&name, &blob)?,
                None => self.records.delete(&[&name])?,
            }
        }
        self.records.commit().map(|()| None)
    }
}
