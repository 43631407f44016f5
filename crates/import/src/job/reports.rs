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
    /// Documents of the source that were read so far, without those in archives.
    pub(super) read: u64,
    /// When reading began, and how many documents the plan found to read; known where there is a forecast.
    planned: Option<(Instant, u64)>,
}

impl Reports {
    pub(super) fn new(every: Duration) -> Reports {
        Reports { every, begun: Instant::now(), told: None, listed: 0, read: 0, planned: None }
    }

    /// Tells how many documents will be read from now on.
    pub(super) fn plan(&mut self, documents: u64) {
        self.planned = Some((Instant::now(), documents));
    }
}

/// How long the rest takes, when the rest goes as what is done went; `None` before anything is done.
fn remaining(taken: Duration, done: u64, all: u64) -> Option<Duration> {
    let rest = all.saturating_sub(done) as f64;
    (done > 0).then(|| {
        Duration::try_from_secs_f64(taken.as_secs_f64() / done as f64 * rest).unwrap_or(Duration::MAX)
    })
}

impl Job<'_> {
    /// Tells how the run went, whether it is time to or not.
    pub(super) fn report_end(&mut self) -> Result<(), ImportError> {
        self.reports.told = None;
        self.report(b"")
    }

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
            ("opened", summary.opened),
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
        if let Some(cache) = self.source.cache() {
            let counts = cache.counts();
            let counts = [("cache_hits", counts.hits + counts.texts), ("cache_misses", counts.misses)];
            words.extend(counts.map(|(name, number)| (name, number.to_string().into_bytes())));
        }
        if let Some((began, all)) = reports.planned {
            words.push(("to_read", all.to_string().into_bytes()));
            if let Some(rest) = remaining(began.elapsed(), reports.read, all) {
                words.push(("remaining_milliseconds", rest.as_millis().to_string().into_bytes()));
            }
        }
        words.push(("path", path[..path.len().min(PATH_BYTES_MAX)].to_vec()));
        self.sink.report(&words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done() {
        let second = Duration::from_secs(1);
        assert_eq!(remaining(second, 0, 9), None);
        assert_eq!(remaining(second, 2, 8), Some(3 * second));
        // What the plan did not foresee is no reason to count backwards.
        assert_eq!(remaining(second, 9, 8), Some(Duration::ZERO));
        assert_eq!(remaining(Duration::MAX, 1, u64::MAX), Some(Duration::MAX));
    }
}
