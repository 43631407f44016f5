//! The progress of a run, reported to its [`Progress`](crate::Progress) and to the server. Clients ask the server for
//! it by `IMPORT.STATUS` and `/v1/import`.
//!
//! The plan of a run ([`super::budget`]) compares the listings with the records before anything is read. So each run
//! but a dataset's first knows how many documents it will read. A new folder has no record. Its documents are added
//! when the run lists the folder, or by the plan if a forecast is wanted.

use super::Job;
use crate::{ImportError, Summary};
use std::time::{Duration, Instant};

/// Longest path in a report, in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// The progress of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Documents that were listed.
    pub listed: u64,
    /// Documents that are done.
    pub done: u64,
    /// Documents of the source that were read, without those in archives.
    pub read: u64,
    /// Bytes of the documents that were read.
    pub bytes_read: u64,
    /// Documents that the run will have read at its end. `None` while the number is unknown.
    pub to_read: Option<u64>,
    /// Estimated time until the run ends, at the speed so far. `None` before any document is done.
    pub rest: Option<Duration>,
}

/// The result of a run's plan.
#[derive(Clone, Copy)]
struct Planned {
    /// The time at which the plan was done.
    at: Instant,
    /// The time that the plan's listings took, and the number of these listings.
    listing: Duration,
    containers: u64,
    documents: u64,
    /// True when the documents of new folders are counted too.
    is_whole: bool,
}

/// The times at which progress is reported, and the numbers from which it is computed.
pub(super) struct Reports {
    every: Duration,
    begun: Instant,
    told: Option<Instant>,
    /// Documents that were listed so far.
    pub(super) listed: u64,
    /// Documents of the source that were read so far, without those in archives.
    pub(super) read: u64,
    planned: Option<Planned>,
}

impl Reports {
    pub(super) fn new(every: Duration) -> Reports {
        Reports { every, begun: Instant::now(), told: None, listed: 0, read: 0, planned: None }
    }

    /// Notes the plan's result: `documents` to read in `containers`. Its listings took `listing`. `is_whole`: the plan
    /// listed the folders that are new, too.
    pub(super) fn plan(&mut self, documents: u64, containers: u64, listing: Duration, is_whole: bool) {
        self.planned = Some(Planned { at: Instant::now(), listing, containers, documents, is_whole });
    }

    /// Notes that a container without a record was listed, and that it has this number of documents.
    pub(super) fn found(&mut self, documents: u64) {
        if let Some(planned) = self.planned.as_mut().filter(|planned| !planned.is_whole) {
            planned.documents += documents;
        }
    }

    /// The progress of the run, of which `summary` has the results so far.
    fn pace(&self, summary: &Summary) -> Pace {
        let rest = self.planned.and_then(|planned| {
            let containers = summary.containers + summary.containers_skipped;
            planned.rest(planned.at.elapsed(), self.read, containers)
        });
        Pace {
            listed: self.listed,
            done: summary.told(),
            read: self.read,
            bytes_read: summary.bytes_read,
            to_read: self.planned.map(|planned| planned.documents),
            rest,
        }
    }
}

impl Planned {
    /// Estimated time until the run ends, after `taken`. So far `read` documents were read and `listed` containers
    /// listed.
    fn rest(self, taken: Duration, read: u64, listed: u64) -> Option<Duration> {
        match self.documents {
            // Only listings are left. Each takes as long as a listing of the plan did.
            0 => {
                let share = self.containers.saturating_sub(listed) as f64 / self.containers.max(1) as f64;
                Some(self.listing.mul_f64(share))
            }
            all => remaining(taken, read, all),
        }
    }
}

/// Estimated time until all are done, at the speed so far. `None` before anything is done.
fn remaining(taken: Duration, done: u64, all: u64) -> Option<Duration> {
    let rest = all.saturating_sub(done) as f64;
    (done > 0).then(|| {
        Duration::try_from_secs_f64(taken.as_secs_f64() / done as f64 * rest).unwrap_or(Duration::MAX)
    })
}

impl Job<'_> {
    /// Reports the end of the run, at once.
    pub(super) fn report_end(&mut self) -> Result<(), ImportError> {
        self.tell(b"").map(drop)
    }

    /// Reports the progress if a report is due. Returns true when the sink then has another command under way.
    pub(super) fn report(&mut self, path: &[u8]) -> Result<bool, ImportError> {
        let reports = &mut self.reports;
        if reports.told.is_some_and(|told| told.elapsed() < reports.every) {
            return Ok(false);
        }
        reports.told = Some(Instant::now());
        self.progress.pace(path, &self.reports.pace(&self.summary));
        self.tell(path)?;
        Ok(true)
    }

    fn tell(&mut self, path: &[u8]) -> Result<(), ImportError> {
        let (reports, summary) = (&self.reports, &self.summary);
        let pace = reports.pace(summary);
        let numbers = [
            ("listed", pace.listed),
            ("done", pace.done),
            ("added", summary.added),
            ("updated", summary.updated),
            ("removed", summary.removed),
            ("unchanged", summary.unchanged),
            ("failed", summary.failed),
            ("containers", summary.containers),
            ("opened", summary.opened),
            ("read", pace.read),
            ("bytes_read", pace.bytes_read),
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
        let rest_ms = pace.rest.map(|rest| rest.as_millis() as u64);
        for (name, number) in [("to_read", pace.to_read), ("remaining_milliseconds", rest_ms)] {
            if let Some(number) = number {
                words.push((name, number.to_string().into_bytes()));
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
        // The plan may have foreseen fewer documents than there are. Then the remaining time is zero, never negative.
        assert_eq!(remaining(second, 9, 8), Some(Duration::ZERO));
        assert_eq!(remaining(Duration::MAX, 1, u64::MAX), Some(Duration::MAX));
    }

    #[test]
    fn what_only_lists_takes_as_long_as_the_plan_did() {
        let second = Duration::from_secs(1);
        let plan = |documents| {
            let mut reports = Reports::new(second);
            reports.plan(documents, 4, 8 * second, false);
            reports
        };
        let planned = |documents| plan(documents).planned.expect("just made");
        assert_eq!(planned(0).rest(second, 0, 1), Some(6 * second));
        assert_eq!(planned(0).rest(second, 0, 9), Some(Duration::ZERO));
        assert_eq!((planned(5).rest(second, 0, 1), planned(5).rest(second, 1, 1)), (None, Some(4 * second)));
        // New folders are added here if the plan has not listed them.
        let mut reports = plan(5);
        reports.found(2);
        assert_eq!(reports.pace(&Summary::default()).to_read, Some(7));
        reports.plan(5, 4, second, true);
        reports.found(2);
        assert_eq!(reports.pace(&Summary::default()).to_read, Some(5));
    }
}
