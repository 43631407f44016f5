//! What a run tells the server of how it goes, for those who ask there (`IMPORT.VERSION STATUS`, `/v1/import`).

use super::Job;
use crate::ImportError;
use std::time::{Duration, Instant};

/// Longest path in a report, in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// When was told, and what was listed.
pub(super) struct Reports {
    every: Duration,
    begun: Instant,
    told: Option<Instant>,
    /// Documents that were listed so far.
    pub(super) listed: u64,
}

impl Reports {
    pub(super) fn new(every: Duration) -> Reports {
        Reports { every, begun: Instant::now(), told: None, listed: 0 }
    }
}

impl Job<'_> {
    /// Tells how the run goes, when it is time to.
    pub(super) fn report(&mut self, path: &[u8]) -> Result<(), ImportError> {
        let reports = &mut self.reports;
        if reports.told.is_some_and(|told| told.elapsed() < reports.every) {
            return Ok(());
        }
        reports.told = Some(Instant::now());
        let summary = &self.summary;
        let numbers = [
            ("listed", reports.listed),
            ("done", summary.told()),
            ("added", summary.added),
            ("updated", summary.updated),
            ("removed", summary.removed),
            ("unchanged", summary.unchanged),
            ("failed", summary.failed),
            ("containers", summary.containers),
            ("bytes_read", summary.bytes_read),
            ("milliseconds", reports.begun.elapsed().as_millis() as u64),
        ];
        let source = self.options.source.to_string_lossy();
        let source: String = source.chars().take(PATH_BYTES_MAX / 4).collect();
        // A URL may hold a password.
        let source = match source.split_once("://") {
            Some((scheme, rest)) => match rest.split_once('@').filter(|(user, _)| !user.contains('/')) {
                Some((_, rest)) => format!("{scheme}://{rest}"),
                None => source,
            },
            None => source,
        };
        let mut words: Vec<(&str, Vec<u8>)> = vec![("source", source.into_bytes())];
        words.extend(numbers.map(|(name, number)| (name, number.to_string().into_bytes())));
        words.push(("path", path[..path.len().min(PATH_BYTES_MAX)].to_vec()));
        self.sink.report(&words)
    }
}
