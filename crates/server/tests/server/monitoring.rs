//! The package's files for Prometheus and Grafana: every metric in a dashboard or an alert exists.

use crate::http::site;
use std::collections::BTreeSet;
use std::path::Path;

const FILES: [&str; 3] = ["dashboard.json", "alerts.yml", "alerts.test.yml"];

/// The names of metrics in `text`.
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
    // The count of an error has a series after its first occurrence.
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

/// Pages that show the work of all clients.
const REPORTS: [&str; 7] = [
    "/debug/pprof/heap",
    "/debug/pprof/allocs",
    "/debug/pprof/profile?seconds=1",
    "/v1/diag/doctor",
    "/v1/history",
    "/v1/series",
    "/v1/live",
];

#[test]
fn profiles_and_reports_need_the_right_to_them() {
    let site = site(&[]);
    let mut client = site.resp();
    client.call("ACL SETUSER reader on >wonder ~* +@read +ping", "+OK\r\n");
    let mut http = site.http();
    for path in REPORTS {
        // These are the logins reader:wonder and reader:wrong.
        let request = format!("GET {path}");
        let answer = http.ask(&request, "Authorization: Basic cmVhZGVyOndvbmRlcg==\r\n", b"");
        assert_eq!(answer.status, 403, "{path}: {}", answer.text());
        assert!(!answer.text().contains("strand_"), "{path} tells names of functions");
    }
    assert_eq!(http.ask("GET /v1/series", "Authorization: Basic cmVhZGVyOndyb25n\r\n", b"").status, 401);
    // The console's own files contain no data.
    assert_eq!(http.get("/").status, 200);
}

#[test]
fn one_of_ten_concurrent_profile_requests_succeeds() {
    let site = site(&[]);
    let mut client = site.resp();
    let ask = |path: &'static str| {
        let threads: Vec<_> = (0..10)
            .map(|_| {
                let mut http = site.http();
                std::thread::spawn(move || http.get(path).status)
            })
            .collect();
        let mut told: Vec<u16> =
            threads.into_iter().map(|thread| thread.join().expect("each is answered")).collect();
        told.sort_unstable();
        told
    };
    let told = ask("/debug/pprof/profile?seconds=2");
    assert_eq!(told, [[200].as_slice(), &[503; 9]].concat());
    let told = ask("/debug/pprof/heap?format=folded");
    assert!(told[0] == 200 && told.iter().all(|status| matches!(status, 200 | 503)), "{told:?}");
    client.call("PING", "+PONG\r\n");
    assert_eq!(site.http().get("/debug/pprof/heap?format=folded").status, 200, "and it can be had again");
}
