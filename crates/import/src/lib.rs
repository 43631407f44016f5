//! Import: makes a running server hold the documents of a source (a folder, a Maildir, a git revision and others). Each
//! further run updates them.
//!
//! [`run`] does the whole import, on the client's side. A [`source`] lists a folder as a [`container`]. [`diff`]
//! compares the container with the one that the last run recorded. [`document`] and [`mail`] turn changed files into
//! fields. [`job`] streams the changes to a [`sink`] (a server over a pipelined [`connection`], Solr, a file) in
//! bounded memory, and then records the new version ([`versions`]).
//!
//! **Invariant:** this crate knows neither the engine nor the keyspace. It is a client like any other, and reaches the
//! server by commands only.

pub mod cache;
mod calendar;
pub mod compare;
pub mod connection;
pub mod container;
mod database;
pub mod datasets;
pub mod diff;
pub mod document;
mod error;
pub mod extract;
pub mod fields;
pub mod filter;
#[cfg(test)]
mod fixture;
mod index;
pub mod job;
pub mod jobs;
pub mod mail;
pub mod memory;
mod meter;
pub mod requests;
pub mod sink;
pub mod source;
mod summary;
pub mod temporary;
pub mod versions;

pub use cache::{CacheCounts, CacheOptions};
pub use compare::compare;
pub use error::{Bound, ImportError, Loss, OptionError, SinkError};
pub use filter::FilterOptions;
pub use job::{Forecast, ImportMode, MaxDelete, Pace, check_source, run};
pub use sink::{Destination, Notices};
pub use source::archive::limits::ArchiveLimits;
pub use source::remote::RemoteOptions;
pub use summary::{FAILED_LISTED_MAX, FailedDocument, Summary};

use std::path::PathBuf;
use strand_dial::Tls;

/// Time between two reports of a run's progress to the server.
pub const REPORT_EVERY: std::time::Duration = std::time::Duration::from_millis(500);

/// Versions that the server's text indexes keep by default: the newest and the one before.
pub const KEEP_VERSIONS: u8 = 2;
/// Maximum number of versions that text indexes keep.
pub const KEEP_VERSIONS_MAX: u8 = 64;

/// What to import, and where to.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The folder or Maildir, `git+file:///repository@revision`, `restic:/repository@snapshot`, `s3://bucket/prefix`,
    /// or a URL.
    pub source: PathBuf,
    /// The dataset: documents become hashes at `<into>:<path>`.
    pub into: String,
    /// The sink that gets the documents.
    pub to: Destination,
    /// The folder for the records of a sink that keeps none itself.
    pub state: Option<PathBuf>,
    /// Receives a notice when the run has to wait, for instance for a server.
    pub notices: Notices,
    /// True: wait while another importer of the dataset runs. False: another importer is an error.
    pub wait: bool,
    /// Time between two reports of the run's progress to the server.
    pub report_every: std::time::Duration,
    /// Lends memory to the run.
    pub memory: memory::Memory,
    /// The program that extracts documents in a process of its own. `None`: the run's process extracts them.
    pub extractor: Option<extract::child::ExtractorProgram>,
    /// Maximum number of bytes that are read per second. `None`: no limit.
    pub rate: Option<u64>,
    /// The Strand server: `host:port`, or the path of a Unix socket, which begins with `/`. Used when documents go to a
    /// Strand server.
    pub address: String,
    /// Connect to the Strand server with TLS, if this is given.
    pub tls: Option<Tls>,
    /// User name for AUTH. Used only together with a password.
    pub username: Option<String>,
    /// Password for AUTH.
    pub password: Option<String>,
    /// Number of the database. 0 is the default.
    pub db: u32,
    /// True: report what would change, and change nothing.
    pub dry_run: bool,
    /// Publish all changes at one moment, at the end.
    pub atomic: bool,
    /// Versions of the dataset that the server's text indexes keep for FT.SEARCH and FT.CHANGES.
    pub keep_versions: u8,
    /// Create the text index `<into>` if it does not exist.
    pub index: bool,
    /// True: attachments of mails become documents of their own.
    pub attachments: bool,
    /// True: the run opens every folder, also a folder of git or restic with an unchanged token, and asks the server for
    /// its documents. So it stores what the server has lost.
    pub recheck: bool,
    /// Stop before any change if more documents than this would be removed.
    pub max_delete: MaxDelete,
    /// True: report the cost of the run before it begins. For that the run lists the whole source once more.
    pub forecast: bool,
    /// Import, retry failed documents, or verify.
    pub mode: ImportMode,
    /// How a bucket is reached.
    pub remote: RemoteOptions,
    /// Which documents are wanted. Other documents are removed if an earlier run imported them.
    pub filter: FilterOptions,
    /// The bounds on archives.
    pub archives: ArchiveLimits,
}

impl ImportOptions {
    /// Options with the defaults: 127.0.0.1:6379, database 0, an index.
    pub fn new(source: impl Into<PathBuf>, into: impl Into<String>) -> ImportOptions {
        ImportOptions {
            source: source.into(),
            into: into.into(),
            to: Destination::default(),
            state: None,
            notices: Notices::default(),
            wait: false,
            report_every: REPORT_EVERY,
            memory: memory::Memory::default(),
            extractor: None,
            rate: None,
            address: "127.0.0.1:6379".to_owned(),
            tls: None,
            username: None,
            password: None,
            db: 0,
            dry_run: false,
            atomic: false,
            keep_versions: KEEP_VERSIONS,
            index: true,
            attachments: false,
            recheck: false,
            max_delete: MaxDelete::default(),
            forecast: false,
            mode: ImportMode::default(),
            remote: RemoteOptions::default(),
            filter: FilterOptions::default(),
            archives: ArchiveLimits::default(),
        }
    }
}

/// The outcome of one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The document is new at the server.
    Added,
    /// The document was replaced.
    Updated,
    /// The document was deleted.
    Removed,
    /// The document was left as it is.
    Unchanged,
    /// The document is a failed document, for this reason.
    Failed(&'a str),
}

/// Receives the progress of a run. All methods do nothing by default. `path` is the document's id, perhaps not UTF-8.
pub trait Progress {
    /// Called when a folder was listed. `documents`: the number of documents in the folder itself, without those below
    /// it.
    fn listed(&mut self, path: &[u8], documents: u64) {
        let _ = (path, documents);
    }
    /// Called when a document is done. An addition may still turn out as failed, when the server refuses it.
    fn document(&mut self, path: &[u8], outcome: Outcome<'_>) {
        let _ = (path, outcome);
    }
    /// Called before [`Progress::document`] reports a removed document. The document was the entry `name` of the
    /// container `container`, with this version token.
    fn removed_from(&mut self, container: &[u8], name: &[u8], token: &[u8]) {
        let _ = (container, name, token);
    }
    /// Reports from time to time how far the run is. `path` is the place that it has reached.
    fn pace(&mut self, path: &[u8], pace: &Pace) {
        let _ = (path, pace);
    }
    /// Reports the forecast of the run's cost, before the run changes anything. Only if the options ask for it.
    fn forecast(&mut self, forecast: &Forecast) {
        let _ = forecast;
    }
    /// Called when the text index was created (or would have been, in a dry run).
    fn index_created(&mut self, name: &str) {
        let _ = name;
    }
    /// Called when a text index with this name exists that is not over the keys of the documents.
    fn index_over_other_keys(&mut self, name: &str) {
        let _ = name;
    }
    /// Called when the source has something to say about its root that is no error.
    fn warning(&mut self, text: &str) {
        let _ = text;
    }
}

/// A [`Progress`] that ignores all reports.
#[derive(Debug, Default)]
pub struct Silent;
impl Progress for Silent {}
