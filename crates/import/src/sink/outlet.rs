//! [`Outlet`]: a sink that only accepts documents. The importer stores the records in a local file.

use super::records::Stored;
use super::{Records, Rejected, Sink};
use crate::container::ContainerDigest;
use crate::fields::Fields;
use crate::{ImportError, OptionError};
use std::collections::HashSet;

/// A receiver of whole documents, by puts and deletes.
pub(super) trait Feed {
    /// When the receiver has the documents.
    fn receipt(&self) -> Receipt;
    /// Puts the document `path`, or replaces it.
    fn put(&mut self, path: &[u8], fields: &Fields, index: usize) -> Result<(), ImportError>;
    /// Deletes the document `path`, if it exists.
    fn delete(&mut self, path: &[u8]) -> Result<(), ImportError>;
    /// Waits until every put and delete is accepted or refused. Returns the refused documents.
    fn settle(&mut self) -> Result<Vec<Rejected>, ImportError>;
    /// Publishes the documents.
    fn finish(&mut self) -> Result<(), ImportError>;
}

/// When a receiver has the documents that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    /// After [`Feed::settle`]: a server that has accepted a document keeps it.
    WhenSettled,
    /// Some at any time, and all after [`Feed::finish`]: the reader of a pipe may fail before.
    ByTheEnd,
    /// All at [`Feed::finish`], and none before: a file that gets its name at the end.
    AtTheEnd,
}

/// A feed and its records.
///
/// The intents are on the disk before the receiver may have a document, and the records of what was sent count only when
/// the receiver has everything. So after a run that was cut short, the next run knows every document that may be at the
/// receiver.
pub(super) struct Outlet {
    feed: Box<dyn Feed>,
    records: Stored,
    dry_run: bool,
}

impl Outlet {
    pub(super) fn new(feed: Box<dyn Feed>, records: Stored, dry_run: bool) -> Outlet {
        Outlet { feed, records, dry_run }
    }

    /// Writes the intents to the disk before a change is sent.
    fn before_sending(&mut self) -> Result<(), ImportError> {
        match self.feed.receipt() {
            Receipt::WhenSettled | Receipt::ByTheEnd => self.records.commit(),
            Receipt::AtTheEnd => Ok(()),
        }
    }
}

impl Records for Outlet {
    fn read(&mut self, names: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, ImportError> {
        names.iter().map(|name| self.records.get(name)).collect()
    }
    /// Always `None`: the importer does not ask the receiver which documents exist.
    fn missing<'a>(
        &mut self,
        _path: &[u8],
        _names: &[&'a [u8]],
    ) -> Result<Option<HashSet<&'a [u8]>>, ImportError> {
        Ok(None)
    }
    fn store(&mut self, name: &[u8], blob: &[u8]) -> Result<(), ImportError> {
        let is_intent = name.ends_with(b"/");
        match self.feed.receipt() {
            _ if self.dry_run => Ok(()),
            Receipt::ByTheEnd | Receipt::AtTheEnd if !is_intent => {
                self.records.change_later(name, Some(blob))
            }
            _ => self.records.put(name, blob),
        }
    }
    fn forget(&mut self, names: &[&[u8]]) -> Result<(), ImportError> {
        match self.feed.receipt() {
            _ if self.dry_run => Ok(()),
            Receipt::WhenSettled => self.records.delete(names),
            Receipt::ByTheEnd | Receipt::AtTheEnd => {
                names.iter().try_for_each(|name| self.records.change_later(name, None))
            }
        }
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
        _held: bool,
        _may_have_extra_fields: bool,
        index: usize,
    ) -> Result<(), ImportError> {
        if self.dry_run {
            return Ok(());
        }
        self.before_sending()?;
        self.feed.put(path, fields, index)
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
    fn finish(&mut self, _version: Option<&ContainerDigest>) -> Result<Option<String>, ImportError> {
        if self.dry_run {
            return Ok(None);
        }
        self.records.commit()?;
        self.feed.finish()?;
        self.records.apply_later()?;
        self.records.commit().map(|()| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::ContainerBuilder;
    use crate::{Destination, ImportOptions};

    /// A receiver that takes everything, and then fails if it must.
    struct Receiver(Receipt, bool);

    impl Feed for Receiver {
        fn receipt(&self) -> Receipt {
            self.0
        }
        fn put(&mut self, _: &[u8], _: &Fields, _: usize) -> Result<(), ImportError> {
            Ok(())
        }
        fn delete(&mut self, _: &[u8]) -> Result<(), ImportError> {
            Ok(())
        }
        fn settle(&mut self) -> Result<Vec<Rejected>, ImportError> {
            Ok(Vec::new())
        }
        fn finish(&mut self) -> Result<(), ImportError> {
            if self.1 { Err(OptionError::VerifyElsewhere.into()) } else { Ok(()) }
        }
    }

    #[test]
    fn a_run_that_ends_after_the_receiver_has_everything_leaves_its_intents() {
        let container = |producer| ContainerBuilder::empty(producer);
        for receipt in [Receipt::ByTheEnd, Receipt::AtTheEnd] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut options = ImportOptions::new("nowhere", "d");
            options.to = Destination::Lines { format: super::super::Format::Ndjson, path: None };
            options.state = Some(folder.path().into());
            let run = |number: u16, fails: bool| {
                let records = Stored::open(&options).expect("records");
                let mut outlet = Outlet::new(Box::new(Receiver(receipt, fails)), records, false);
                let found = outlet.read(&[b"a".to_vec(), b"a/".to_vec()]).expect("readable");
                outlet.store(b"a/", &container(number)).expect("stored");
                outlet.remove(b"a/x").expect("sent");
                outlet.store(b"a", &container(number)).expect("stored");
                outlet.forget(&[b"a/"]).expect("forgotten");
                // The run itself sees what it has stored.
                let own = outlet.read(&[b"a".to_vec(), b"a/".to_vec()]).expect("readable");
                assert_eq!(own, [Some(container(number)), None]);
                assert_eq!(outlet.finish(None).is_err(), fails);
                found
            };
            assert_eq!(run(1, false), [None, None]);
            assert_eq!(run(2, true), [Some(container(1)), None]);
            assert_eq!(run(3, true), [Some(container(1)), Some(container(2))], "{receipt:?}");
            assert_eq!(run(4, false), [Some(container(1)), Some(container(3))]);
            assert_eq!(run(5, false), [Some(container(4)), None]);
        }
    }
}
