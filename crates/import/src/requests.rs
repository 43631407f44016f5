//! The HTTP requests that an import sends: to buckets and web servers it reads, and to a Solr server it writes.
//!
//! Each request is noted once its answer's head is there, or it has failed ([`Begun`]). The notes are lines of JSON in
//! a file, where one was opened ([`open_log`]), and sums by method, host and status ([`totals`]). Left out: commands to
//! a Strand server, which counts them itself, and requests of git's and restic's libraries.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maximum number of rows of the sums. Requests to further hosts are counted together, under [`OTHERS`].
const ROWS_MAX: usize = 256;
/// Host of the requests beyond [`ROWS_MAX`].
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
    /// Bytes of the responses' bodies, as far as the HTTP heads tell.
    pub received_bytes: u64,
    /// Sum of the times until the HTTP heads of the responses were there.
    pub took: Duration,
}

/// The sums, each with its method, host and status. Status 0: there was no response.
pub fn totals() -> Vec<(String, String, u16, Sum)> {
    let row = |((method, host, status), sum): (&(String, String, u16), &Sum)| {
        (method.clone(), host.clone(), *status, *sum)
    };
    notes().sums.iter().map(row).collect()
}

/// From now on each request is a line of JSON at the end of this file.
///
/// # Errors
/// When the file cannot be opened.
pub fn open_log(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    notes().log = Some(file);
    Ok(())
}

/// A request that was sent. It is noted when it ends. A request that is given up is noted without a response.
#[derive(Debug)]
pub(crate) struct Begun {
    method: String,
    host: String,
    sent_bytes: u64,
    at: Instant,
    /// The status of the response, and the length of its body.
    answer: Option<(u16, u64)>,
}

impl Begun {
    /// A request to `host`, which may have a port.
    pub(crate) fn new(method: &str, host: &str, sent_bytes: u64) -> Begun {
        Begun { method: method.into(), host: host.into(), sent_bytes, at: Instant::now(), answer: None }
    }
    /// Adds bytes to the body of the request.
    pub(crate) fn sends(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
    }
    /// Notes the request, because the HTTP head of its response is there.
    pub(crate) fn answered(mut self, status: u16, received_bytes: Option<u64>) {
        self.answer = Some((status, received_bytes.unwrap_or(0)));
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let took = self.at.elapsed();
        let (status, received_bytes) = self.answer.unwrap_or((0, 0));
        let notes = &mut *notes();
        let key = |host: &str| (self.method.clone(), host.to_owned(), status);
        let mut place = key(&self.host);
        if notes.sums.len() >= ROWS_MAX && !notes.sums.contains_key(&place) {
            place = key(OTHERS);
        }
        let sum = notes.sums.entry(place).or_default();
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
        // An import does not fail because its log is full.
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
        let mut put = Begun::new("PUT", "solr.test:8983", 5);
        put.sends(2);
        put.answered(200, Some(30));
        Begun::new("GET", "gone.test", 0).answered(404, None);
        drop(Begun::new("GET", "gone.test", 0));
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
        (0..1_000).for_each(|i| Begun::new("GET", &format!("{i}.test"), 0).answered(200, Some(1)));
        assert!(totals().len() <= ROWS_MAX + 2);
        assert!(of("GET", OTHERS, 200).is_some_and(|(requests, _, _)| requests > 700));
    }
}
