//! Counts and logs the HTTP requests of an import: to buckets and web servers that it reads, and to a Solr server.
//!
//! A request is noted when the head of its response arrives, or when the request fails ([`SentRequest`]). Each note is
//! a line of JSON in a file, if a file was opened ([`open_log`]). Each note is also added to the sums by method, host
//! and status ([`totals`]). Not noted are commands to a Strand server, which counts them itself, and the requests of
//! the libraries for git and restic.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maximum number of sums. Beyond it, requests to further hosts are counted together under [`OTHERS`].
const ROWS_MAX: usize = 256;
/// The host in sums of requests beyond [`ROWS_MAX`].
pub const OTHERS: &str = "others";

/// The log file and the sums of this process.
static NOTES: Mutex<Notes> = Mutex::new(Notes { log: None, sums: BTreeMap::new() });

struct Notes {
    log: Option<File>,
    sums: BTreeMap<(String, String, u16), Sum>,
}

fn notes() -> MutexGuard<'static, Notes> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests with one method, host and status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of requests.
    pub requests: u64,
    /// Bytes of the requests' bodies.
    pub sent_bytes: u64,
    /// Bytes of the responses' bodies, from `Content-Length`. A response without this header counts 0.
    pub received_bytes: u64,
    /// Sum of the times from each request to the head of its response.
    pub took: Duration,
}

/// The sums, each with its method, host and status. Status 0: there was no response.
pub fn totals() -> Vec<(String, String, u16, Sum)> {
    let row = |((method, host, status), sum): (&(String, String, u16), &Sum)| {
        (method.clone(), host.clone(), *status, *sum)
    };
    notes().sums.iter().map(row).collect()
}

/// From now on, each request appends a line of JSON to this file.
///
/// # Errors
/// When the file cannot be opened.
pub fn open_log(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    notes().log = Some(file);
    Ok(())
}

/// A request that was sent. The drop notes the request: with its response if [`SentRequest::answered`] was called, else
/// without a response.
#[derive(Debug)]
pub(crate) struct SentRequest {
    method: String,
    host: String,
    sent_bytes: u64,
    at: Instant,
    /// The status of the response, and the length of its body.
    answer: Option<(u16, u64)>,
}

impl SentRequest {
    /// A request to `host`, with or without a port.
    pub(crate) fn new(method: &str, host: &str, sent_bytes: u64) -> SentRequest {
        SentRequest { method: method.into(), host: host.into(), sent_bytes, at: Instant::now(), answer: None }
    }
    /// Adds `bytes` to the number of bytes of the request's body.
    pub(crate) fn add_sent_bytes(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
    }
    /// Notes the request with the status of its response. `received_bytes`: the length of the response's body, if
    /// known.
    pub(crate) fn answered(mut self, status: u16, received_bytes: Option<u64>) {
        self.answer = Some((status, received_bytes.unwrap_or(0)));
    }
}

impl Drop for SentRequest {
    fn drop(&mut self) {
        let took = self.at.elapsed();
        let (status, received_bytes) = self.answer.unwrap_or((0, 0));
        let notes = &mut *notes();
        let key = |host: &str| (self.method.clone(), host.to_owned(), status);
        let mut sum_key = key(&self.host);
        if notes.sums.len() >= ROWS_MAX && !notes.sums.contains_key(&sum_key) {
            sum_key = key(OTHERS);
        }
        let sum = notes.sums.entry(sum_key).or_default();
        sum.requests += 1;
        sum.sent_bytes += self.sent_bytes;
        sum.received_bytes += received_bytes;
        sum.took += took;
        let Some(log) = &mut notes.log else { return };
        let unix_ms =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let line = serde_json::json!({
            "unix_ms": unix_ms,
            "method": self.method,
            "host": self.host,
            "status": status,
            "sent_bytes": self.sent_bytes,
            "received_bytes": received_bytes,
            "microseconds": took.as_micros() as u64,
        });
        // Ignore the error: a full disk of the log must not make the import fail.
        let _ = writeln!(log, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_a_line_and_sums_are_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("requests.ndjson");
        open_log(&path).expect("the folder is ours");
        let mut put = SentRequest::new("PUT", "solr.test:8983", 5);
        put.add_sent_bytes(2);
        put.answered(200, Some(30));
        SentRequest::new("GET", "gone.test", 0).answered(404, None);
        drop(SentRequest::new("GET", "gone.test", 0));
        let of = |method: &str, host: &str, status: u16| {
            let all = totals();
            let found =
                all.iter().find(|row| (row.0.as_str(), row.1.as_str(), row.2) == (method, host, status));
            found.map(|row| (row.3.requests, row.3.sent_bytes, row.3.received_bytes))
        };
        assert_eq!(of("PUT", "solr.test:8983", 200), Some((1, 7, 30)));
        assert_eq!(
            (of("GET", "gone.test", 404), of("GET", "gone.test", 0)),
            (Some((1, 0, 0)), Some((1, 0, 0)))
        );
        let text = std::fs::read_to_string(&path).expect("it was written");
        let ours: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .filter(|line: &serde_json::Value| line["host"].as_str().is_some_and(|h| h.contains(".test")))
            .collect();
        assert_eq!(ours.len(), 3, "{text}");
        assert_eq!(
            (&ours[0]["method"], &ours[0]["sent_bytes"], &ours[2]["status"]),
            (&"PUT".into(), &7.into(), &0.into())
        );
        // An unbounded number of hosts takes bounded memory.
        (0..1_000).for_each(|i| SentRequest::new("GET", &format!("{i}.test"), 0).answered(200, Some(1)));
        assert!(totals().len() <= ROWS_MAX + 2);
        assert!(of("GET", OTHERS, 200).is_some_and(|(requests, _, _)| requests > 700));
    }
}
