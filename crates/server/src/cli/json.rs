//! `--json`: the output of an importer run as one JSON object per line (NDJSON) on the standard output.
//!
//! Each line has `event`: `container`, `document`, `index`, and at the end `summary` or `error`. For a path that
//! is not UTF-8, `path` has replacement characters and `path_hex` has the exact bytes. docs/importing.md describes
//! the lines.

use super::display::print_line;
use super::import::allocations;
use crate::driver::allocator::peak_bytes;
use serde_json::{Map, Value};
use strand_import::datasets::Dataset;
use strand_import::requests::{self, Sum};
use strand_import::{CacheCounts, Forecast, Outcome, Pace, Progress, Summary};

/// A [`Progress`] that prints lines of JSON.
pub struct JsonLines {
    /// Also print a line for unchanged documents.
    pub unchanged: bool,
    /// Container, name and token of the next removed document.
    pub removed: Option<(Vec<u8>, Vec<u8>, String)>,
}

impl Progress for JsonLines {
    fn listed(&mut self, path: &[u8], documents: u64) {
        let mut line = event("container");
        add_path(&mut line, path);
        line.insert("documents".to_owned(), documents.into());
        print(line);
    }
    fn removed_from(&mut self, container: &[u8], name: &[u8], token: &[u8]) {
        self.removed = Some((container.to_vec(), name.to_vec(), hex(token)));
    }
    fn document(&mut self, path: &[u8], outcome: Outcome<'_>) {
        let word = match outcome {
            Outcome::Added => "added",
            Outcome::Updated => "updated",
            Outcome::Removed => "removed",
            Outcome::Unchanged if !self.unchanged => return,
            Outcome::Unchanged => "unchanged",
            Outcome::Failed(_) => "failed",
        };
        let mut line = event("document");
        add_path(&mut line, path);
        line.insert("outcome".to_owned(), word.into());
        if let (Outcome::Removed, Some((container, name, token))) = (outcome, self.removed.take()) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            line.insert("container".to_owned(), text(&container).into());
            line.insert("entry".to_owned(), text(&name).into());
            line.insert("token".to_owned(), token.into());
        }
        if let Outcome::Failed(reason) = outcome {
            line.insert("reason".to_owned(), reason.into());
        }
        print(line);
    }
    fn pace(&mut self, path: &[u8], pace: &Pace) {
        pace_line(pace).path(path).print();
    }
    fn forecast(&mut self, forecast: &Forecast) {
        print_forecast(forecast);
    }
    fn index_created(&mut self, name: &str) {
        print_name("index", name);
    }
    fn index_over_other_keys(&mut self, name: &str) {
        print_name("index_over_other_keys", name);
    }
    fn warning(&mut self, text: &str) {
        let mut line = event("warning");
        line.insert("message".to_owned(), text.into());
        print(line);
    }
}

/// Prints what a run will cost.
pub fn print_forecast(forecast: &Forecast) {
    let mut line = event("forecast");
    for (name, number) in [
        ("containers", forecast.containers),
        ("documents", forecast.documents),
        ("bytes", forecast.bytes),
        ("removed", forecast.removed),
        ("memory_bytes", forecast.memory_bytes),
    ] {
        line.insert(name.to_owned(), number.into());
    }
    line.insert("seconds".to_owned(), forecast.time.as_secs_f64().into());
    print(line);
}

/// Creates the line with the progress of a run.
pub fn pace_line(pace: &Pace) -> Line {
    let Pace { listed, done, read, bytes_read, to_read, remaining } = *pace;
    let mut line = Line::event("progress");
    let remaining_ms = remaining.map(|remaining| u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX));
    for (name, number) in [
        ("listed", Some(listed)),
        ("done", Some(done)),
        ("read", Some(read)),
        ("bytes_read", Some(bytes_read)),
        ("to_read", to_read),
        ("remaining_milliseconds", remaining_ms),
    ] {
        if let Some(number) = number {
            line = line.number(name, number);
        }
    }
    line
}

/// The row for the HTTP requests of a run that share one method, host and status.
fn requests_row((method, host, status, sum): (String, String, u16, Sum)) -> Value {
    serde_json::json!({
        "method": method,
        "host": host,
        "status": status,
        "requests": sum.requests,
        "sent_bytes": sum.sent_bytes,
        "received_bytes": sum.received_bytes,
        "seconds": sum.took.as_secs_f64(),
    })
}

/// Prints the last line of a run that finished.
pub fn print_summary(summary: &Summary, dry_run: bool) {
    let mut line = event("summary");
    line.insert("dataset".to_owned(), summary.into.as_str().into());
    line.insert("dry_run".to_owned(), dry_run.into());
    let skipped = summary.skipped;
    for (name, number) in [
        ("added", summary.added),
        ("moved", summary.moved),
        ("updated", summary.updated),
        ("removed", summary.removed),
        ("unchanged", summary.unchanged),
        ("failed", summary.failed),
        ("opened", summary.opened),
        ("bytes_read", summary.bytes_read),
        ("extractors", summary.extractors),
        ("containers", summary.containers),
        ("containers_skipped", summary.containers_skipped),
        ("recorded", summary.recorded),
        ("skipped_links", skipped.links),
        ("skipped_special", skipped.special),
        ("skipped_maildir", skipped.maildir),
        ("skipped_submodules", skipped.submodules),
        ("skipped_by_filter", skipped.filtered),
    ] {
        line.insert(name.to_owned(), number.into());
    }
    if let Some(cache) = &summary.cache {
        line.insert("cache".to_owned(), cache_counts(cache));
    }
    if let Some(version) = &summary.version {
        line.insert("version".to_owned(), hex(version).into());
    }
    if let Some(token) = &summary.token {
        line.insert("token".to_owned(), token.as_str().into());
    }
    line.insert("allocations".to_owned(), allocations().into());
    line.insert("peak_memory_bytes".to_owned(), peak_bytes().into());
    line.insert("seconds".to_owned(), summary.took.as_secs_f64().into());
    add_requests(&mut line);
    print(line);
}

/// Adds the sums of the HTTP requests, if there were any.
fn add_requests(line: &mut Map<String, Value>) {
    let requests: Vec<Value> = requests::totals().into_iter().map(requests_row).collect();
    if !requests.is_empty() {
        line.insert("requests".to_owned(), requests.into());
    }
}

fn cache_counts(cache: &CacheCounts) -> Value {
    let mut counts = Map::new();
    for (name, number) in [
        ("hits", cache.hits),
        ("hit_bytes", cache.hit_bytes),
        ("misses", cache.misses),
        ("texts", cache.texts),
        ("stored_bytes", cache.stored_bytes),
        ("refused", cache.refused),
        ("culled", cache.culled),
    ] {
        counts.insert(name.to_owned(), number.into());
    }
    if let Some(why) = &cache.disabled_reason {
        counts.insert("aside".to_owned(), why.as_str().into());
    }
    Value::Object(counts)
}

/// Prints the last line of a run that had to stop.
pub fn print_error(message: &str, exit_code: u8) {
    let mut line = event("error");
    line.insert("message".to_owned(), message.into());
    line.insert("exit_code".to_owned(), exit_code.into());
    add_requests(&mut line);
    print(line);
}

/// Prints what the run waits for.
pub fn print_waiting(what: &str) {
    let mut line = event("waiting");
    line.insert("what".to_owned(), what.into());
    print(line);
}

/// Prints a failed document.
pub fn print_failed(path: &[u8], reason: &str) {
    JsonLines { unchanged: false, removed: None }.document(path, Outcome::Failed(reason));
}

/// Prints the record of a dataset.
pub fn print_dataset(dataset: &Dataset) {
    let mut line = event("dataset");
    line.insert("name".to_owned(), dataset.name.as_str().into());
    let numbers = [
        ("containers", dataset.containers),
        ("documents", dataset.documents),
        ("failed", dataset.failed),
        ("interrupted", dataset.interrupted),
    ];
    for (name, number) in numbers {
        line.insert(name.to_owned(), number.into());
    }
    if let Some(running) = &dataset.running {
        let words = running.iter().map(|(name, value)| {
            let number = value.parse::<u64>().ok().filter(|_| !matches!(&name[..], "path" | "source"));
            (name.clone(), number.map_or_else(|| value.as_str().into(), Value::from))
        });
        line.insert("running".to_owned(), Value::Object(words.collect()));
    }
    print(line);
}

/// A line of JSON under construction.
pub struct Line(Map<String, Value>);

impl Line {
    /// Starts a line for this event.
    pub fn event(name: &str) -> Line {
        Line(event(name))
    }
    /// Adds a number to the line.
    pub fn number(mut self, key: &str, number: u64) -> Line {
        self.0.insert(key.to_owned(), number.into());
        self
    }
    /// Adds a path to the line.
    pub fn path(mut self, path: &[u8]) -> Line {
        add_path(&mut self.0, path);
        self
    }
    /// Prints the line.
    pub fn print(self) {
        print(self.0);
    }
}

fn event(name: &str) -> Map<String, Value> {
    Map::from_iter([("event".to_owned(), name.into())])
}

fn print_name(of: &str, name: &str) {
    let mut line = event(of);
    line.insert("name".to_owned(), name.into());
    print(line);
}

fn add_path(line: &mut Map<String, Value>, path: &[u8]) {
    let text = String::from_utf8_lossy(path);
    if text.as_bytes() != path {
        line.insert("path_hex".to_owned(), hex(path).into());
    }
    line.insert("path".to_owned(), text.into_owned().into());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn print(line: Map<String, Value>) {
    print_line(&Value::Object(line).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_not_utf8_is_also_printed_in_hexadecimal() {
        let mut line = event("document");
        add_path(&mut line, b"caf\xe9");
        let line = Value::Object(line).to_string();
        assert_eq!(line, "{\"event\":\"document\",\"path\":\"caf\u{fffd}\",\"path_hex\":\"636166e9\"}");
        let mut line = event("document");
        add_path(&mut line, "caf\u{e9}\n".as_bytes());
        assert_eq!(Value::Object(line).to_string(), "{\"event\":\"document\",\"path\":\"caf\u{e9}\\n\"}");
    }
}
