//! The metrics of all jobs in Prometheus's text format.

use super::requests::{RequestTotals, Sums};
use super::{Board, Totals};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The numbers in a run's summary that are added up.
const COUNTED: [&str; 8] =
    ["added", "updated", "removed", "unchanged", "failed", "opened", "bytes_read", "containers"];
/// The numbers of the cache in a run's summary that are added up, each with its name in the metrics.
const COUNTED_OF_CACHE: [(&str, &str); 3] =
    [("hits", "cache_hits"), ("texts", "cache_texts"), ("misses", "cache_misses")];

/// A series: its name, its type, its help text, and its values, each with a label.
type Series = (&'static str, &'static str, &'static str, Vec<(String, f64)>);

impl Totals {
    /// Adds a run with this outcome and the numbers in its summary.
    pub(super) fn add(&mut self, outcome: &str, summary: Option<&Map<String, Value>>) {
        *self.outcomes.entry(outcome.to_owned()).or_default() += 1;
        let Some(summary) = summary else { return };
        let mut add = |name: &str, number: &Value| {
            let total = self.counted.entry(name.to_owned()).or_default();
            *total = total.saturating_add(number.as_u64().unwrap_or(0));
        };
        COUNTED.iter().for_each(|name| add(name, summary.get(*name).unwrap_or(&Value::Null)));
        self.requests.add(summary.get("requests").unwrap_or(&Value::Null));
        if let Some(cache) = summary.get("cache") {
            COUNTED_OF_CACHE.iter().for_each(|(name, here)| add(here, &cache[*name]));
        }
    }

    /// The sums as JSON, for [`Totals::restore`].
    pub(super) fn save(&self) -> Value {
        let requests = self.requests.save();
        serde_json::json!({"outcomes": self.outcomes, "counted": self.counted, "requests": requests})
    }

    /// Reads what [`Totals::save`] returned. Any other value gives empty sums.
    pub(super) fn restore(saved: &Value) -> Totals {
        let numbers = |of: &Value| -> BTreeMap<String, u64> {
            let pairs = of.as_object().into_iter().flatten();
            pairs.filter_map(|(name, number)| Some((name.clone(), number.as_u64()?))).collect()
        };
        Totals {
            outcomes: numbers(&saved["outcomes"]),
            counted: numbers(&saved["counted"]),
            requests: RequestTotals::restore(&saved["requests"]),
        }
    }
}

impl Board {
    /// All metrics in Prometheus's text format (0.0.4). The documents of a run are counted when the run has reported
    /// its summary.
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        let alone = |n: f64| vec![(String::new(), n)];
        let (budget, held) = (self.ledger.budget() as f64, self.ledger.held() as f64);
        let documents = |name| self.counted(name, &format!(",outcome=\"{name}\""));
        let outcomes = ["added", "updated", "removed", "unchanged", "failed"];
        let series: Vec<Series> = vec![
            ("memory_budget_bytes", "gauge", "what all jobs together may hold", alone(budget)),
            ("memory_held_bytes", "gauge", "what they hold", alone(held)),
            ("running", "gauge", "1 while the job runs", self.each(|job| f64::from(job.running.is_some()))),
            ("waiting", "gauge", "1 while a run waits", self.each(|job| f64::from(job.queued.is_some()))),
            ("paused", "gauge", "1 while the job is paused", self.each(|job| f64::from(job.is_paused))),
            (
                "failures",
                "gauge",
                "documents that failed in the last run",
                self.each(|j| j.failures() as f64),
            ),
            ("last_seconds", "gauge", "duration of the last run", self.each(|j| number(&j.last["seconds"]))),
            (
                "last_start_timestamp_seconds",
                "gauge",
                "when the last run began",
                self.each(|job| job.last_start_ms.unwrap_or(0) as f64 / 1000.0),
            ),
            ("runs_total", "counter", "runs by what came of them", self.runs()),
            (
                "documents_total",
                "counter",
                "documents by what became of them",
                outcomes.into_iter().flat_map(documents).collect(),
            ),
            ("objects_opened_total", "counter", "documents that were read", self.counted("opened", "")),
            ("bytes_read_total", "counter", "their bytes", self.counted("bytes_read", "")),
            ("containers_total", "counter", "folders listed", self.counted("containers", "")),
            ("cache_hits_total", "counter", "parts read from the cache", self.counted("cache_hits", "")),
            ("cache_texts_total", "counter", "texts read from the cache", self.counted("cache_texts", "")),
            ("cache_misses_total", "counter", "parts read from the source", self.counted("cache_misses", "")),
            (
                "http_requests_total",
                "counter",
                "HTTP requests to buckets, web servers and Solr",
                self.requested(|sums| sums.requests as f64),
            ),
            (
                "http_sent_bytes_total",
                "counter",
                "bytes of their bodies",
                self.requested(|sums| sums.sent_bytes as f64),
            ),
            (
                "http_received_bytes_total",
                "counter",
                "bytes of the answers' bodies, as their heads tell",
                self.requested(|sums| sums.received_bytes as f64),
            ),
            (
                "http_seconds_total",
                "counter",
                "time until the heads of the answers",
                self.requested(|sums| sums.seconds),
            ),
        ];
        for (name, kind, about, values) in series {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# HELP strand_job_{name} {about}\n# TYPE strand_job_{name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(out, "strand_job_{name}{labels} {value}");
            }
        }
        out
    }

    fn each(&self, of: impl Fn(&super::Job) -> f64) -> Vec<(String, f64)> {
        self.jobs.iter().map(|(name, job)| (format!("{{job=\"{name}\"}}"), of(job))).collect()
    }

    fn counted(&self, what: &str, more: &str) -> Vec<(String, f64)> {
        let total = |job: &super::Job| job.totals.counted.get(what).copied().unwrap_or(0) as f64;
        self.jobs.iter().map(|(name, job)| (format!("{{job=\"{name}\"{more}}}"), total(job))).collect()
    }

    fn requested(&self, of: impl Fn(&Sums) -> f64) -> Vec<(String, f64)> {
        let of = &of;
        let rows = |(name, job): (&String, &super::Job)| -> Vec<_> {
            let rows = job.totals.requests.rows();
            rows.map(|(labels, sums)| (format!("{{job=\"{name}\"{labels}}}"), of(&sums))).collect()
        };
        self.jobs.iter().flat_map(rows).collect()
    }

    fn runs(&self) -> Vec<(String, f64)> {
        let of = |(name, job): (&String, &super::Job)| -> Vec<_> {
            let line = |(outcome, n): (&String, &u64)| {
                (format!("{{job=\"{name}\",outcome=\"{outcome}\"}}"), *n as f64)
            };
            job.totals.outcomes.iter().map(line).collect()
        };
        self.jobs.iter().flat_map(of).collect()
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}
