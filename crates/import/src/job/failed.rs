//! Runs that are not a whole import: a retry of the failed documents ([`ImportMode::RetryFailed`]), and a comparison of the
//! server with the source, which changes nothing ([`ImportMode::Verify`]).

use super::{ERROR_NOTE, Job, nested, view};
use crate::container::{ContainerBuilder, Entry, EntryKind};
use crate::document::EXTRACTOR_VERSION;
use crate::source::{FLAGS_KEY, LOCATION_NOTE, ListError, Listing, Skipped, Tokens};
use crate::versions::{self, DIGEST_NOTE, INNER_NOTE, KnownContainer};
use crate::{ImportError, OptionError};

/// The purpose of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImportMode {
    /// Makes the dataset equal to the source.
    #[default]
    Import,
    /// Reads the failed documents again, and no others.
    RetryFailed,
    /// Compares every document of the source with the server's document, and changes nothing. A document that differs
    /// counts as failed.
    Verify,
}

/// True when a retry must read the document of the entry again.
pub(super) fn has_failed(entry: &Entry<'_>) -> bool {
    let inner = entry.get(INNER_NOTE).map_or(0, |note| nested::counts(note).1);
    entry.kind == EntryKind::Document
        && (entry.get(ERROR_NOTE).is_some() || entry.get(DIGEST_NOTE).is_none() || inner > 0)
}

impl Job<'_> {
    /// Checks that the failed documents are known: the last run was not cut short and had the extractor of this run.
    ///
    /// # Errors
    /// [`OptionError::NothingToRetry`].
    pub(super) fn check_retry(&self, known: &KnownContainer) -> Result<(), ImportError> {
        let old = view(&known.blob);
        if known.recorded && !known.interrupted && versions::extractor(old) == EXTRACTOR_VERSION {
            return Ok(());
        }
        Err(OptionError::NothingToRetry { dataset: self.options.into.clone() }.into())
    }

    /// Returns the recorded container as a listing, with the source's present entries for the failed documents. Lists
    /// the source only if documents have failed.
    pub(super) fn list_failed(&mut self, path: &[u8], known: &KnownContainer) -> Result<Listing, ListError> {
        let old = view(&known.blob);
        let now = match old.iter().any(|entry| has_failed(&entry)) {
            true => Some(self.list(path, &known.blob)?),
            false => None,
        };
        let now = now.as_ref().map(|listing| view(&listing.blob));
        let mut builder = ContainerBuilder::with_capacity(0, old.len(), known.blob.len());
        for entry in old.iter() {
            let found = now.and_then(|now| now.find(entry.name)).filter(|f| f.kind == EntryKind::Document);
            let pushed = match (entry.kind, found) {
                // Without content tokens, a token does not show whether a document below failed. So open the child.
                (EntryKind::Container, _) if self.source.tokens() == Tokens::Stamps => {
                    builder.push(EntryKind::Container, entry.name, 0, &[], [])
                }
                (EntryKind::Document, Some(found)) if has_failed(&entry) => {
                    builder.push(found.kind, found.name, found.size, found.token, found.pairs())
                }
                _ => {
                    let pairs = entry.pairs().filter(|(key, _)| [FLAGS_KEY, LOCATION_NOTE].contains(key));
                    builder.push(entry.kind, entry.name, entry.size, entry.token, pairs)
                }
            };
            pushed.map_err(|error| container_error(path, error))?;
        }
        let blob = builder.finish().map_err(|error| container_error(path, error))?;
        Ok(Listing { blob, skipped: Skipped::default(), racy_for_ns: 0, refused: Vec::new() })
    }
}

fn container_error(path: &[u8], error: crate::container::ContainerError) -> ListError {
    ListError::Container { path: String::from_utf8_lossy(path).into_owned().into(), error }
}
