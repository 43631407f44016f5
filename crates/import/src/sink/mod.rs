//! Sinks: where a run's documents go, and where their records are kept.
//!
//! [`Sink`] is what the job needs of each. [`strand`] is a server of ours, which keeps the records itself. Every other
//! sink is an [`outlet`]: a feed of puts and deletes, with [`records`] in a file of ours. The feed is [`lines`] (a file
//! or the standard output, as NDJSON or XML) or [`solr`] (a collection). [`Destination`] is a user's name for a sink.
//!
//! A document is named as about to change before it is sent, and it is recorded only when the sink has taken it. So a
//! run that is cut short loses nothing, and a document that is sent again replaces the first one.

mod destination;
mod lines;
mod outlet;
mod records;
mod solr;
pub(crate) mod strand;
mod transaction;
mod update;

pub use destination::{Destination, Format, Names, SolrTarget};
pub use solr::{BATCH_BYTES_MAX, BATCH_DOCUMENTS_MAX, BATCHES_UNDER_WAY_MAX};

use crate::container::Digest;
use crate::fields::Fields;
use crate::{ImportError, ImportOptions};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A document that the sink refused.
#[derive(Debug)]
pub(crate) struct Rejected {
    /// Position of the document in the container that is being built.
    pub(crate) index: usize,
    /// The reason, in the sink's words.
    pub(crate) reason: String,
    /// True: the document was counted as added. False: as updated.
    pub(crate) was_added: bool,
    /// True when the sink still has the document that was to be replaced.
    pub(crate) stays: bool,
}

impl Rejected {
    /// The rejection of a document whose key exists and is not a hash: somebody else uses the key.
    fn no_hash(index: usize, was_added: bool) -> Rejected {
        let reason = "a key of this name exists and is no hash".to_owned();
        Rejected { index, reason, was_added, stays: false }
    }
}

/// A place where the sink has a document of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The document's own place, by its path.
    Document(Vec<u8>),
    /// A place beside the dataset, by its number. No index and no reader of the dataset finds a document there.
    Aside(u32),
}

/// The records of a dataset.
pub(crate) trait Records {
    /// Reads the containers with these names. Call this only when nothing is under way.
    fn read(&mut self, names: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, ImportError>;

    /// Returns which of the documents `names` of the container `path` are gone, although the records say that the sink
    /// holds them. Call this only when nothing is under way.
    fn missing<'a>(&mut self, path: &[u8], names: &[&'a [u8]]) -> Result<HashSet<&'a [u8]>, ImportError>;

    /// Stores a container.
    fn store(&mut self, name: &[u8], blob: &[u8]) -> Result<(), ImportError>;

    /// Deletes containers.
    fn forget(&mut self, names: &[&[u8]]) -> Result<(), ImportError>;
}

/// Where documents go.
pub(crate) trait Sink: Records {
    /// True when one field of a document can be changed without the others.
    fn changes_fields(&self) -> bool;

    /// Creates the text index of the dataset if there is none. Returns true when the index was missing.
    fn ensure_index(&mut self) -> Result<bool, ImportError> {
        Ok(false)
    }

    /// Replaces the document at `path`. `held`: the sink has the document. `named`: the sink's document may have fields
    /// that are not in the list of fields.
    fn replace(
        &mut self,
        path: &[u8],
        fields: &Fields,
        held: bool,
        named: bool,
        index: usize,
    ) -> Result<(), ImportError>;

    /// True when the sink can copy a document that it has.
    fn copies(&self) -> bool {
        false
    }

    /// Asks whether the sink may copy a document: to another document's place, or `aside`. Call it only if
    /// [`Sink::copies`].
    fn may_copy(&mut self, aside: bool) -> Result<bool, ImportError> {
        let _ = aside;
        Ok(false)
    }

    /// For each place, whether the sink has a document there, and nothing of another kind. Nothing may be under way.
    /// Call it only if [`Sink::copies`].
    fn holds(&mut self, places: &[&Place]) -> Result<Vec<bool>, ImportError> {
        Ok(vec![false; places.len()])
    }

    /// Copies the document at `path` to the place aside with this number. Returns false when it is known now that there
    /// is no document. Call it only after [`Sink::may_copy`] returned true.
    fn lay_aside(&mut self, path: &[u8], number: u32) -> Result<bool, ImportError> {
        let _ = (path, number);
        Ok(false)
    }

    /// Deletes the documents at the first `count` places aside. Call it only if [`Sink::copies`].
    fn clear_aside(&mut self, count: u32) -> Result<(), ImportError> {
        let _ = count;
        Ok(())
    }

    /// Copies the document at `from` to `path`. Sets the `fields` of the copy, and deletes those that are empty here.
    /// `held`: the copy replaces a document. Else the place must be free. Call it only after [`Sink::may_copy`]
    /// returned true.
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

    /// Sets one field, or deletes the field when `value` is empty. Call it only if [`Sink::changes_fields`].
    fn set_field(&mut self, path: &[u8], field: &str, value: &[u8], index: usize) -> Result<(), ImportError>;

    /// Deletes a document.
    fn remove(&mut self, path: &[u8]) -> Result<(), ImportError>;

    /// Waits until the sink has accepted everything. Returns the documents that were refused since the last call.
    fn drain(&mut self) -> Result<Vec<Rejected>, ImportError>;

    /// Compares the sink's document at `path` with `fields`. Returns the difference, or `None` when there is none.
    fn difference(&mut self, path: &[u8], fields: &Fields) -> Result<Option<String>, ImportError>;

    /// Reports the progress of the run to watchers.
    fn report(&mut self, words: &[(&str, Vec<u8>)]) -> Result<(), ImportError> {
        let _ = words;
        Ok(())
    }

    /// Ends the run, and publishes the written data as `version`. Returns the token that clients can wait for, if the
    /// sink has one.
    fn finish(&mut self, version: Option<&Digest>) -> Result<Option<String>, ImportError>;
}

/// Time between two attempts to open a dataset that another importer uses.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// A busy dataset is tried again for this long in any case, because a server notices a moment later that an importer
/// has ended.
const BUSY_GRACE: Duration = Duration::from_secs(2);

/// Opens the sink that the options name. Waits for another importer of the dataset, if the options say so.
pub(crate) fn open(options: &ImportOptions) -> Result<Box<dyn Sink>, ImportError> {
    let (begun, mut is_told) = (Instant::now(), false);
    loop {
        let is_graced = begun.elapsed() < BUSY_GRACE;
        match open_now(options) {
            Err(busy @ ImportError::Busy { .. }) if options.wait || is_graced => {
                if !is_graced && !std::mem::replace(&mut is_told, true) {
                    options.notices.tell(&busy.to_string());
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
            Box::new(lines::Lines::open(*format, path.as_deref(), &options.into, options.dry_run)?)
        }
        Destination::Strand => unreachable!("opened above"),
    };
    Ok(Box::new(outlet::Outlet::new(feed, records, options.dry_run)))
}

/// Receives what a run waits for: a busy sink, or a sink that does not respond.
#[derive(Clone, Default)]
pub struct Notices(pub Option<Arc<Listener>>);

/// Called with each notice.
type Listener = dyn Fn(&str) + Send + Sync;

impl Notices {
    /// Passes on what the run waits for.
    pub(crate) fn tell(&self, what: &str) {
        if let Some(told) = &self.0 {
            told(what);
        }
    }
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Notices(told)" } else { "Notices(untold)" })
    }
}
