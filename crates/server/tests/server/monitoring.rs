//! What the package brings for Prometheus and Grafana: every metric that a dashboard or an alert names is there.

use crate::http::site;
use std::collections::BTreeSet;
use std::path::Path;

const FILES: [&str; 3] = ["dashboard.json", "alerts.yml", "alerts.test.yml"];

/// The names of metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("strand_")).collect()
}

#[test]
fn every_metric_of_the_dashboard_and_the_alerts_is_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring");
    let site = site(&["--maxmemory", "1gb"]);
    let mut client = site.server.connect();
    client.call("SET k v", "+OK\r\n");
    // Errors have a series once there was one.
    client.call("SET k", "-ERR wrong number of arguments for 'set' command\r\n");
    let metrics = site.http().get("/metrics").text();
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    let there: BTreeSet<&str> = samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    for file in FILES {
        let text = std::fs::read_to_string(folder.join(file)).expect("it is in the tree");
        let wanted = named(&text);
        assert!(!wanted.is_empty(), "{file} names no metric");
        let missing: Vec<_> = wanted.difference(&there).collect();
        assert!(missing.is_empty(), "{file} names {missing:?}, which /metrics does not have");
    }
    let operations = std::fs::read_to_string(folder.join("../../docs/operations.md")).expect("it is there");
    let alerts = std::fs::read_to_string(folder.join("alerts.yml")).expect("it is in the tree");
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(operations.contains(alert), "docs/operations.md does not say what to do about {alert}");
    }
}
