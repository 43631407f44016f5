//! Reports the progress of a run to its [`Progress`](crate::Progress) and to the server. Clients read the server's
//! report with `IMPORT.STATUS` and `/v1/import`.
//!
//! The plan of a run ([`super::budget`]) compares the listings with the records before documents are read, so each run
//! except the first run of a dataset knows how many documents it will read. A new folder has no record: its documents
//! are added when the run lists the folder. With a forecast, the plan lists new folders and adds their documents.

use super::Job;
use crate::source::remote::http;
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
    pub remaining: Option<Duration>,
}

/// The result of a run's plan.
#[derive(Clone, Copy)]
struct Planned {
    /// When the plan was complete.
    at: Instant,
    /// Time that the plan's listings took.
    listing: Duration,
    /// Number of these listings.
    containers: u64,
    /// Number of documents that the run will read.
    documents: u64,
    /// True when the documents of new folders are counted too.
    is_whole: bool,
}

/// The times at which progress is reported, and the numbers from which it is computed.
pub(super) struct Reports {
    /// Minimum time between two reports.
    every: Duration,
    begun: Instant,
    last_report: Option<Instant>,
    /// Documents that were listed so far.
    pub(super) listed: u64,
    /// Documents of the source that were read so far, without those in archives.
    pub(super) read: u64,
    planned: Option<Planned>,
}

impl Reports {
    pub(super) fn new(every: Duration) -> Reports {
        Reports { every, begun: Instant::now(), last_report: None, listed: 0, read: 0, planned: None }
    }

    /// Notes the plan's result: the run reads `documents` and lists `containers`. The plan's listings took `listing`.
    /// `is_whole`: the plan listed new folders too.
    pub(super) fn plan(&mut self, documents: u64, containers: u64, listing: Duration, is_whole: bool) {
        self.planned = Some(Planned { at: Instant::now(), listing, containers, documents, is_whole });
    }

    /// Notes that the run listed a container without a record, with this number of documents.
    pub(super) fn found(&mut self, documents: u64) {
        if let Some(planned) = self.planned.as_mut().filter(|planned| !planned.is_whole) {
            planned.documents += documents;
        }
    }

    /// The progress of the run, of which `summary` has the results so far.
    fn pace(&self, summary: &Summary) -> Pace {
        let remaining = self.planned.and_then(|planned| {
            let containers = summary.containers + summary.containers_skipped;
            planned.remaining(planned.at.elapsed(), self.read, containers)
        });
        Pace {
            listed: self.listed,
            done: summary.processed(),
            read: self.read,
            bytes_read: summary.bytes_read,
            to_read: self.planned.map(|planned| planned.documents),
            remaining,
        }
    }
}

impl Planned {
    /// Estimates the time until the run ends. So far `read` documents were read and `listed` containers were listed, in
    /// the time `taken`.
    fn remaining(self, taken: Duration, read: u64, listed: u64) -> Option<Duration> {
        match self.documents {
            // No document is read, so only listings remain. Assume that each takes as long as a listing of the plan.
            0 => {
                let share = self.containers.saturating_sub(listed) as f64 / self.containers.max(1) as f64;
                Some(self.listing.mul_f64(share))
            }
            all => remaining(taken, read, all),
        }
    }
}

/// Estimates the time until `all` documents are done, when `done` documents took `taken`. `None` while `done` is 0.
fn remaining(taken: Duration, done: u64, all: u64) -> Option<Duration> {
    let rest = all.saturating_sub(done) as f64;
    (done > 0).then(|| {
        Duration::try_from_secs_f64(taken.as_secs_f64() / done as f64 * rest).unwrap_or(Duration::MAX)
    })
}

impl Job<'_> {
    /// Reports the end of the run, even if no report is due.
    pub(super) fn report_end(&mut self) -> Result<(), ImportError> {
        self.send_report(b"").map(drop)
    }

    /// Reports the progress if a report is due. Returns true if it sent a report: then a command waits for a reply.
    pub(super) fn report(&mut self, path: &[u8]) -> Result<bool, ImportError> {
        let reports = &mut self.reports;
        if reports.last_report.is_some_and(|at| at.elapsed() < reports.every) {
            return Ok(false);
        }
        reports.last_report = Some(Instant::now());
        self.progress.pace(path, &self.reports.pace(&self.summary));
        self.send_report(path)?;
        Ok(true)
    }

    fn send_report(&mut self, path: &[u8]) -> Result<(), ImportError> {
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
        let source = http::shown(&self.options.source.to_string_lossy());
        let source: String = source.chars().take(PATH_BYTES_MAX / 4).collect();
        let mut words: Vec<(&str, Vec<u8>)> = vec![("source", source.into_bytes())];
        words.extend(numbers.map(|(name, number)| (name, number.to_string().into_bytes())));
        if let Some(cache) = self.source.cache() {
            let counts = cache.counts();
            let counts = [("cache_hits", counts.hits + counts.texts), ("cache_misses", counts.misses)];
            words.extend(counts.map(|(name, number)| (name, number.to_string().into_bytes())));
        }
        let remaining_ms = pace.remaining.map(|time| time.as_millis() as u64);
        for (name, number) in [("to_read", pace.to_read), ("remaining_milliseconds", remaining_ms)] {
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
    fn the_remaining_time_follows_the_pace_so_far() {
        let second = Duration::from_secs(1);
        assert_eq!(remaining(second, 0, 9), None);
        assert_eq!(remaining(second, 2, 8), Some(3 * second));
        // The plan may have foreseen fewer documents than there are. Then the remaining time is zero, never negative.
        assert_eq!(remaining(second, 9, 8), Some(Duration::ZERO));
        assert_eq!(remaining(Duration::MAX, 1, u64::MAX), Some(Duration::MAX));
    }

    #[test]
    fn a_run_that_only_lists_takes_as_long_as_its_plan() {
        let second = Duration::from_secs(1);
        let plan = |documents| {
            let mut reports = Reports::new(second);
            reports.plan(documents, 4, 8 * second, false);
            reports
        };
        let planned = |documents| plan(documents).planned.expect("just made");
        assert_eq!(planned(0).remaining(second, 0, 1), Some(6 * second));
        assert_eq!(planned(0).remaining(second, 0, 9), Some(Duration::ZERO));
        assert_eq!(
            (planned(5).remaining(second, 0, 1), planned(5).remaining(second, 1, 1)),
            (None, Some(4 * second))
        );
        // New folders are added here if the plan has not listed them.
        let mut reports = plan(5);
        reports.found(2);
        assert_eq!(reports.pace(&Summary::default()).to_read, Some(7));
        reports.plan(5, 4, second, true);
        reports.found(2);
        assert_eq!(reports.pace(&Summary::default()).to_read, Some(5));
    }
}
