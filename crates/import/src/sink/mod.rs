//! Sinks: the receivers of a run's documents, and the stores of the run's records.
//!
//! [`Sink`] is the interface that the job uses. [`strand`] is a Strand server, which stores the records too. Every
//! other sink is an [`outlet`]: a feed of puts and deletes, with [`records`] in a local file. The feed is [`lines`] (a
//! file or the standard output, as NDJSON or XML) or [`solr`] (a collection). [`Destination`] is a user's name for a
//! sink.
//!
//! The run stores an intent before it sends a document, and records the document when the sink has accepted it. So
//! after a run that is cut short, the next run sends the doubtful documents again. A document that is sent twice
//! replaces itself.

mod destination;
mod lines;
mod outlet;
mod records;
mod solr;
pub(crate) mod strand;
mod transaction;
mod update;

pub use destination::{Destination, FieldNames, Format, SolrTarget};
pub(crate) use lines::{folder_of, temporary_name};
pub use solr::{BATCH_BYTES_MAX, BATCH_DOCUMENTS_MAX, BATCHES_UNDER_WAY_MAX};

use crate::container::ContainerDigest;
use crate::fields::Fields;
use crate::index::TextIndex;
use crate::{ImportError, ImportOptions};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A document that the sink refused.
#[derive(Debug)]
pub(crate) struct Rejected {
    /// Position of the document in the container that is being built.
    pub(crate) index: usize,
    /// The reason: the sink's error text, or ours.
    pub(crate) reason: String,
    /// True when the sink may have a document at this place: the old one, which the refused document should replace, or
    /// the refused document itself.
    pub(crate) document_may_remain: bool,
}

impl Rejected {
    /// The rejection of a document whose key exists and is not a hash: another client uses the key.
    fn not_a_hash(index: usize) -> Rejected {
        let reason = "a key of this name exists and is not a hash".to_owned();
        Rejected { index, reason, document_may_remain: false }
    }
}

/// A place where the sink has a document of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The key of the document with this path.
    Document(Vec<u8>),
    /// The key with this number in the stash, outside of the dataset's keys. No index and no reader of the dataset
    /// finds a document there.
    Stash(u32),
}

/// The records of a dataset.
pub(crate) trait Records {
    /// Reads the containers with these names. Call this only when no command waits for a reply.
    fn read(&mut self, names: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, ImportError>;

    /// Returns which of the documents `names` of the container `path` are missing in the sink, although they are
    /// recorded. `None`: the sink cannot tell. Call this only when no command waits for a reply.
    fn missing<'a>(
        &mut self,
        path: &[u8],
        names: &[&'a [u8]],
    ) -> Result<Option<HashSet<&'a [u8]>>, ImportError>;

    /// Stores a container.
    fn store(&mut self, name: &[u8], blob: &[u8]) -> Result<(), ImportError>;

    /// Deletes the containers with these names.
    fn forget(&mut self, names: &[&[u8]]) -> Result<(), ImportError>;
}

/// The receiver of a run's documents. `index` is a document's position in the container that is being built, for
/// [`Rejected::index`].
pub(crate) trait Sink: Records {
    /// True when the sink can change one field of a document and keep the other fields.
    fn can_set_fields(&self) -> bool;

    /// After `error`: true when the database was flushed or swapped during the run, so that the sink has lost its
    /// intents. New intents belong to the new data. The replies to all commands are dropped.
    fn is_flushed(&mut self, _error: &ImportError) -> bool {
        false
    }

    /// Creates the text index of the dataset if there is none.
    fn ensure_index(&mut self) -> Result<TextIndex, ImportError> {
        Ok(TextIndex::Existed)
    }

    /// Puts the document at `path`, or replaces it. `held`: the sink has the document. `may_have_extra_fields`: the
    /// sink's document may have fields that are not in the list of fields.
    fn replace(
        &mut self,
        path: &[u8],
        fields: &Fields,
        held: bool,
        may_have_extra_fields: bool,
        index: usize,
    ) -> Result<(), ImportError>;

    /// True when the sink can copy a document that it has.
    fn can_copy(&self) -> bool {
        false
    }

    /// Asks whether the sink allows copies: to the stash, or to the key of another document. Call this only if
    /// [`Sink::can_copy`].
    fn may_copy(&mut self, to_stash: bool) -> Result<bool, ImportError> {
        let _ = to_stash;
        Ok(false)
    }

    /// Returns for each place whether the sink has a document there. Call this only if [`Sink::can_copy`], and only when
    /// no command waits for a reply.
    fn holds(&mut self, places: &[&Place]) -> Result<Vec<bool>, ImportError> {
        Ok(vec![false; places.len()])
    }

    /// Copies the document at `path` to the key with this number in the stash. Returns false when the sink knows
    /// already that there is no document at `path`. Call this only after [`Sink::may_copy`] returned true.
    fn stash(&mut self, path: &[u8], number: u32) -> Result<bool, ImportError> {
        let _ = (path, number);
        Ok(false)
    }

    /// Deletes the first `count` documents of the stash. Call this only if [`Sink::can_copy`].
    fn clear_stash(&mut self, count: u32) -> Result<(), ImportError> {
        let _ = count;
        Ok(())
    }

    /// Copies the document at `from` to `path`. Then sets the `fields` of the copy, and deletes the fields with an
    /// empty value. `held`: the copy replaces a document. Otherwise the key must be free. Call this only after
    /// [`Sink::may_copy`] returned true.
    fn copy(
        &mut self,
        from: &Place,
        path: &[u8],
        fields: &[(&str, &[u8])],
        held: bool,
        index: usize,
    ) -> Result<(), ImportError> {
        let _ = (from, path, fields, held, index);
        Ok(())
    }

    /// Sets one field, or deletes the field when `value` is empty. Call this only if [`Sink::can_set_fields`].
    fn set_field(&mut self, path: &[u8], field: &str, value: &[u8], index: usize) -> Result<(), ImportError>;

    /// Deletes a document.
    fn remove(&mut self, path: &[u8]) -> Result<(), ImportError>;

    /// Waits for the replies to all commands. Returns the documents that the sink refused since the last call.
    fn drain(&mut self) -> Result<Vec<Rejected>, ImportError>;

    /// Compares the sink's document at `path` with `fields`. Returns the difference, or `None` when there is none.
    fn difference(&mut self, path: &[u8], fields: &Fields) -> Result<Option<String>, ImportError>;

    /// Sends a report of the run's progress, for clients that ask the server for it.
    fn report(&mut self, words: &[(&str, Vec<u8>)]) -> Result<(), ImportError> {
        let _ = words;
        Ok(())
    }

    /// Ends the run, and publishes the written data as `version`. Returns the token that clients can wait for, if the
    /// sink has one.
    fn finish(&mut self, version: Option<&ContainerDigest>) -> Result<Option<String>, ImportError>;
}

/// Time between two attempts to open a dataset that another importer uses.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Time for which a busy dataset is tried again even without [`ImportOptions::wait`]: a server notices the end of an
/// importer a moment later.
const BUSY_GRACE: Duration = Duration::from_secs(2);

/// Opens the sink that the options name. If the options say so, waits while another importer uses the dataset.
pub(crate) fn open(options: &ImportOptions) -> Result<Box<dyn Sink>, ImportError> {
    let (begun, mut is_notified) = (Instant::now(), false);
    loop {
        let in_grace_time = begun.elapsed() < BUSY_GRACE;
        match open_now(options) {
            Err(busy @ ImportError::Busy { .. }) if options.wait || in_grace_time => {
                if !in_grace_time && !std::mem::replace(&mut is_notified, true) {
                    options.notices.notify(&busy.to_string());
                }
                std::thread::sleep(BUSY_PAUSE);
            }
            opened => return opened,
        }
    }
}

fn open_now(options: &ImportOptions) -> Result<Box<dyn Sink>, ImportError> {
    let records = match &options.to {
        Destination::Strand => return Ok(Box::new(strand::Strand::open(options)?)),
        _ => records::Stored::open(options)?,
    };
    let feed: Box<dyn outlet::Feed> = match &options.to {
        Destination::Solr(target) => {
            Box::new(solr::Solr::open(target, &options.into, options.notices.clone())?)
        }
        Destination::Lines { format, path } => {
            Box::new(lines::TextFile::open(*format, path.as_deref(), &options.into, options.dry_run)?)
        }
        Destination::Strand => unreachable!("opened above"),
    };
    Ok(Box::new(outlet::Outlet::new(feed, records, options.dry_run)))
}

/// Receives a notice when a run has to wait: for a busy sink, or for a sink that does not respond.
#[derive(Clone, Default)]
pub struct Notices(pub Option<Arc<Listener>>);

/// The function that gets each notice.
type Listener = dyn Fn(&str) + Send + Sync;

impl Notices {
    /// Passes a notice to the listener, if there is one.
    pub(crate) fn notify(&self, notice: &str) {
        if let Some(listener) = &self.0 {
            listener(notice);
        }
    }
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Notices(listener)" } else { "Notices(no listener)" })
    }
}
