//! [`RequestTotals`]: counts the HTTP requests of a job's runs by method, host and class of status.

use crate::requests::OTHERS;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Maximum number of rows of a job. Requests to further hosts are counted with the host [`OTHERS`], in one row for each
/// method and class of status.
const ROWS_MAX: usize = 64;
/// Maximum number of bytes of a method and of a host. Longer names are counted as [`OTHERS`].
const NAME_BYTES_MAX: usize = 256;
/// Maximum number of rows that are read of a run's summary.
const ROWS_OF_RUN_MAX: usize = 1024;

/// Method, host and class of status (`2xx`; `none` when there was no response).
type Key = [String; 3];

/// The sums of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) requests: u64,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    /// Time from each request to the head of its response.
    pub(super) seconds: f64,
}

/// The sums of a job, by method, host and class of status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RequestTotals(BTreeMap<Key, Sums>);

impl RequestTotals {
    /// Adds the `requests` of a run's summary. A value that is not a list of requests adds nothing.
    pub(super) fn add(&mut self, requests: &Value) {
        for row in requests.as_array().into_iter().flatten().take(ROWS_OF_RUN_MAX) {
            let name = |what: &str| {
                let name = row[what].as_str().unwrap_or_default();
                if name.len() <= NAME_BYTES_MAX { name.to_owned() } else { OTHERS.to_owned() }
            };
            let class = match row["status"].as_u64() {
                Some(status @ 100..=599) => format!("{}xx", status / 100),
                _ => "none".to_owned(),
            };
            self.put([name("method"), name("host"), class], sums(row));
        }
    }
    fn put(&mut self, mut key: Key, more: Sums) {
        if self.0.len() >= ROWS_MAX && !self.0.contains_key(&key) {
            key[1] = OTHERS.to_owned();
            // A job uses few methods. Many methods are counted together as well.
            if self.0.len() >= ROWS_MAX * 2 && !self.0.contains_key(&key) {
                key[0] = OTHERS.to_owned();
            }
        }
        let sums = self.0.entry(key).or_default();
        sums.requests = sums.requests.saturating_add(more.requests);
        sums.sent_bytes = sums.sent_bytes.saturating_add(more.sent_bytes);
        sums.received_bytes = sums.received_bytes.saturating_add(more.received_bytes);
        sums.seconds += more.seconds;
    }
    /// The rows: the labels of Prometheus, each with a comma before it, and the sums.
    pub(super) fn rows(&self) -> impl Iterator<Item = (String, Sums)> {
        self.0.iter().map(|([method, host, class], sums)| {
            let (method, host) = (label(method), label(host));
            (format!(",method=\"{method}\",host=\"{host}\",status=\"{class}\""), *sums)
        })
    }
    /// The sums as JSON, for [`RequestTotals::restore`].
    pub(super) fn save(&self) -> Value {
        let row = |(key, sums): (&Key, &Sums)| {
            json!([key, [sums.requests, sums.sent_bytes, sums.received_bytes], sums.seconds])
        };
        self.0.iter().map(row).collect()
    }
    /// Reads what [`RequestTotals::save`] returned. Any other value gives empty sums.
    pub(super) fn restore(saved: &Value) -> RequestTotals {
        let mut totals = RequestTotals::default();
        for row in saved.as_array().into_iter().flatten().take(ROWS_OF_RUN_MAX) {
            let Ok(key) = serde_json::from_value::<Key>(row[0].clone()) else { continue };
            let number = |at: usize| row[1][at].as_u64().unwrap_or(0);
            let seconds = seconds(&row[2]);
            totals.put(
                key,
                Sums { requests: number(0), sent_bytes: number(1), received_bytes: number(2), seconds },
            );
        }
        totals
    }
}

fn sums(row: &Value) -> Sums {
    let number = |what: &str| row[what].as_u64().unwrap_or(0);
    Sums {
        requests: number("requests"),
        sent_bytes: number("sent_bytes"),
        received_bytes: number("received_bytes"),
        seconds: seconds(&row["seconds"]),
    }
}

/// Reads a number of seconds. A counter must never decrease, so a negative number counts as 0.
fn seconds(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0).max(0.0)
}

/// Escapes a text for the value of a Prometheus label.
fn label(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(method: &str, host: &str, status: u64) -> Value {
        json!([{"method": method, "host": host, "status": status, "requests": 2, "sent_bytes": 3,
                "received_bytes": 5, "seconds": 0.25}])
    }

    #[test]
    fn requests_are_summed_by_class_and_survive_saving() {
        let mut totals = RequestTotals::default();
        for (host, status) in
            [("s3.test", 200), ("s3.test", 206), ("s3.test", 404), ("s3.test", 0), ("a\"\\\nb", 9999)]
        {
            totals.add(&row("GET", host, status));
        }
        let rows: Vec<_> = totals.rows().collect();
        let labels = |host: &str, class: &str| format!(",method=\"GET\",host=\"{host}\",status=\"{class}\"");
        let once = Sums { requests: 2, sent_bytes: 3, received_bytes: 5, seconds: 0.25 };
        let twice = Sums { requests: 4, sent_bytes: 6, received_bytes: 10, seconds: 0.5 };
        assert_eq!(
            rows,
            [
                (labels(r#"a\"\\\nb"#, "none"), once),
                (labels("s3.test", "2xx"), twice),
                (labels("s3.test", "4xx"), once),
                (labels("s3.test", "none"), once),
            ]
        );
        assert_eq!(RequestTotals::restore(&totals.save()), totals);
    }

    #[test]
    fn an_invalid_list_of_requests_is_empty_and_the_rows_are_limited() {
        let mut totals = RequestTotals::default();
        for odd in [json!(null), json!("x"), json!({"requests": 1}), json!([])] {
            totals.add(&odd);
            assert_eq!(RequestTotals::restore(&odd), RequestTotals::default());
        }
        assert_eq!(totals, RequestTotals::default());
        for i in 0..1_000 {
            totals.add(&row(&format!("M{i}"), &format!("{i}.test"), 200));
        }
        totals.add(&row("GET", &"h".repeat(100_000), 200));
        let all: Vec<_> = totals.rows().collect();
        assert!(all.len() <= ROWS_MAX * 2 + 8, "{}", all.len());
        assert_eq!(all.iter().map(|(_, sums)| sums.requests).sum::<u64>(), 2_002);
        assert!(all.iter().all(|(labels, _)| labels.len() < 2_000));
    }
}
