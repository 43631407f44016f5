//! [`Outlet`]: a sink that only takes documents, beside the records of what it took.

use super::records::Stored;
use super::{Records, Rejected, Sink};
use crate::ImportError;
use crate::container::Digest;
use crate::fields::Fields;
use std::collections::HashSet;

/// What takes puts and deletes of whole documents.
pub(super) trait Feed {
    /// True when what was put is there for others only after [`Feed::finish`].
    fn is_published_at_end(&self) -> bool;
    /// Puts the document `path` in place of whatever is there. `held`: it replaces one.
    fn put(&mut self, path: &[u8], fields: &Fields, held: bool, index: usize) -> Result<(), ImportError>;
    /// Deletes the document `path`, if it is there.
    fn delete(&mut self, path: &[u8]) -> Result<(), ImportError>;
    /// Waits until everything is taken; gives what was refused.
    fn settle(&mut self) -> Result<Vec<Rejected>, ImportError>;
    /// Publishes what was put.
    fn finish(&mut self) -> Result<(), ImportError>;
}

/// A feed and its records.
pub(super) struct Outlet {
    feed: Box<dyn Feed>,
    records: Stored,
    dry_run: bool,
}

impl Outlet {
    pub(super) fn new(feed: Box<dyn Feed>, records: Stored, dry_run: bool) -> Outlet {
        Outlet { feed, records, dry_run }
    }

    /// What is meant to change is on the disk before anything of it is sent.
    fn before_sending(&mut self) -> Result<(), ImportError> {
        if self.feed.is_published_at_end() { Ok(()) } else { self.records.commit() }
    }
}

impl Records for Outlet {
    fn read(&mut self, names: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, ImportError> {
        names.iter().map(|name| self.records.get(name)).collect()
    }
    /// Nobody but the importer deletes documents there, as far as it knows.
    fn missing<'a>(&mut self, _path: &[u8], _names: &[&'a [u8]]) -> Result<HashSet<&'a [u8]>, ImportError> {
        Ok(HashSet::new())
    }
    fn store(&mut self, name: &[u8], blob: &[u8]) -> Result<(), ImportError> {
        if self.dry_run { Ok(()) } else { self.records.put(name, blob) }
    }
    fn forget(&mut self, names: &[&[u8]]) -> Result<(), ImportError> {
        if self.dry_run { Ok(()) } else { self.records.delete(names) }
    }
}

impl Sink for Outlet {
    fn changes_fields(&self) -> bool {
        false
    }
    fn replace(
        &mut self,
        path: &[u8],
        fields: &Fields,
        held: bool,
        _named: bool,
        index: usize,
    ) -> Result<(), ImportError> {
        if self.dry_run {
            return Ok(());
        }
        self.before_sending()?;
        self.feed.put(path, fields, held, index)
    }
    fn set_field(&mut self, _: &[u8], _: &str, _: &[u8], _: usize) -> Result<(), ImportError> {
        unreachable!("the job asks changes_fields() first")
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
        Err(ImportError::Options("--verify compares with what a Strand server has".to_owned()))
    }
    /// The records last: a run that dies in between is done again, and puts the same once more.
    fn finish(&mut self, _version: Option<&Digest>) -> Result<Option<String>, ImportError> {
        if self.dry_run {
            return Ok(None);
        }
        self.feed.finish()?;
        self.records.commit().map(|()| None)
    }
}
