//! [`Summary`]: the results of a run as numbers, as failed documents, and as one line.

use crate::Outcome;
use crate::cache::CacheCounts;
use crate::container::ContainerDigest;
use crate::source::Skipped;
use std::fmt;
use std::time::Duration;

/// Maximum length of the reason of a failed document, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;
/// Failed documents that are kept with their reasons. Further ones are only counted.
pub const FAILED_LISTED_MAX: usize = 100;

/// A document that could not be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedDocument {
    /// The document's path within the source.
    pub path: Vec<u8>,
    /// The reason.
    pub reason: String,
}

/// The results of a run. Its text is the line `mail: 500 added, 50 updated, 250 removed, 2200 unchanged, 0 failed (1.3
/// s)`.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The dataset.
    pub into: String,
    /// Documents that are new at the server.
    pub added: u64,
    /// The documents of `added` that moved within the source. The server copied them from their old keys.
    pub moved: u64,
    /// Documents that were replaced.
    pub updated: u64,
    /// Documents that were deleted.
    pub removed: u64,
    /// Documents that were left as they were.
    pub unchanged: u64,
    /// Documents and folders that could not be imported. Every document of the source counts in exactly one of `added`,
    /// `updated`, `unchanged` and `failed`.
    pub failed: u64,
    /// The first [`FAILED_LISTED_MAX`] of the documents and folders in `failed`.
    pub failed_documents: Vec<FailedDocument>,
    /// Documents that were opened.
    pub opened: u64,
    /// Bytes that were read of documents and archives of the source. The bytes that an archive unpacks to do not count.
    pub bytes_read: u64,
    /// Processes that were started to extract documents.
    pub extractors: u64,
    /// Containers that were listed.
    pub containers: u64,
    /// Containers that were not listed, because their tokens show that nothing below has changed.
    pub containers_skipped: u64,
    /// Containers whose new version was recorded.
    pub recorded: u64,
    /// Reads and writes of the cache, if there is one.
    pub cache: Option<CacheCounts>,
    /// Numbers of things that were left out of the listings.
    pub skipped: Skipped,
    /// The dataset's new version: the digest of its root container.
    pub version: Option<ContainerDigest>,
    /// The token of the version at a Strand server: what `IMPORT.VERSION WAIT` and `FT.SEARCH VERSION` take.
    pub token: Option<String>,
    /// How long the run took.
    pub took: Duration,
}

impl Summary {
    /// Number of documents of the source that the run is done with: `added`, `updated`, `unchanged` and `failed`.
    pub(crate) fn processed(&self) -> u64 {
        self.added + self.updated + self.unchanged + self.failed
    }
    /// Counts the outcome of the document at `path`.
    pub(crate) fn count(&mut self, path: &[u8], outcome: Outcome<'_>) {
        match outcome {
            Outcome::Added => self.added += 1,
            Outcome::Updated => self.updated += 1,
            Outcome::Removed => self.removed += 1,
            Outcome::Unchanged => self.unchanged += 1,
            Outcome::Failed(reason) => self.fail(path, reason),
        }
    }
    pub(crate) fn fail(&mut self, path: &[u8], reason: &str) {
        let reason = short_reason(reason);
        self.failed += 1;
        if self.failed_documents.len() < FAILED_LISTED_MAX {
            self.failed_documents.push(FailedDocument { path: path.to_vec(), reason: reason.to_owned() });
        }
    }
}

/// The beginning of a reason, at most [`REASON_BYTES_MAX`] bytes. A reason may quote a document or a server's page, which
/// have any length, and a container has no room for long notes.
pub(crate) fn short_reason(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { into, added, updated, removed, unchanged, failed, .. } = self;
        let seconds = self.took.as_secs_f64();
        write!(
            f,
            "{into}: {added} added, {updated} updated, {removed} removed, {unchanged} unchanged, {failed} failed ({seconds:.1} s)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line() {
        let summary = Summary {
            into: "mail".into(),
            added: 500,
            updated: 50,
            removed: 250,
            unchanged: 2200,
            took: Duration::from_millis(1300),
            ..Summary::default()
        };
        let expected = "mail: 500 added, 50 updated, 250 removed, 2200 unchanged, 0 failed (1.3 s)";
        assert_eq!(summary.to_string(), expected);
    }

    #[test]
    fn failed_documents_are_counted_beyond_the_bound() {
        let mut summary = Summary::default();
        (0..FAILED_LISTED_MAX + 5).for_each(|i| summary.fail(i.to_string().as_bytes(), "no"));
        assert_eq!(summary.failed as usize, FAILED_LISTED_MAX + 5);
        assert_eq!(summary.failed_documents.len(), FAILED_LISTED_MAX);
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let mut summary = Summary::default();
        summary.fail(b"a", &"\u{e4}".repeat(70_000));
        summary.fail(b"b", &format!("x{}", "\u{e4}".repeat(70_000)));
        let lengths: Vec<_> = summary.failed_documents.iter().map(|failed| failed.reason.len()).collect();
        assert_eq!(lengths, [REASON_BYTES_MAX, REASON_BYTES_MAX - 1]);
        assert_eq!(short_reason("short"), "short");
    }
}
