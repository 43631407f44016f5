//! The history of a real server: system figures, over HTTP, live, and by the user's rights.

use crate::harness::comes_true;
use crate::http::{Http, Site, site};
use serde_json::Value;

fn json(http: &mut Http, path: &str) -> Value {
    let answer = http.get(path);
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, "application/json"),
        "{}",
        answer.text()
    );
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// Waits until `n` samples were taken.
fn samples(site: &Site, n: usize) {
    let mut http = site.http();
    comes_true(|| json(&mut http, "/v1/series")["levels"][0]["rows"].as_u64() >= Some(n as u64));
}

#[test]
fn the_history_has_figures_of_the_process_and_the_machine() {
    let site = site(&[]);
    let mut client = site.resp();
    samples(&site, 2);
    (0..50).for_each(|_| client.call("PING", "+PONG\r\n"));
    let mut http = site.http();
    // The PINGs ran in one second, or in two.
    comes_true(|| {
        let table = json(&mut http, "/v1/history?series=ops.connection&from=-60");
        let values = table["series"][0]["values"].as_array().cloned().unwrap_or_default();
        values.iter().filter_map(Value::as_f64).sum::<f64>() >= 45.0
    });
    let table = json(&mut http, "/v1/history?points=5");
    let series = table["series"].as_array().expect("series");
    let times = table["times_ms"].as_array().expect("times");
    assert!(!times.is_empty() && times.len() <= 6, "{times:?}");
    assert!(series.iter().all(|s| s["values"].as_array().is_some_and(|v| v.len() == times.len())));
    for name in [
        "cpu.thread.worker-0",
        "cpu.user",
        "memory.rss",
        "disk.free",
        "host.cpu.busy",
        "io.written",
        "switches.voluntary",
    ] {
        let found = series.iter().find(|s| s["name"] == name).unwrap_or_else(|| panic!("{name}"));
        assert!(found["values"].as_array().is_some_and(|v| v.iter().any(Value::is_number)), "{found}");
    }
    let state = json(&mut http, "/v1/series");
    assert!(state["bytes"].as_u64() < Some(2_000_000) && state["figures_without_a_series"] == 0, "{state}");
    assert_eq!(http.get("/v1/history?step=x").status, 400);
}

/// Figures that a control group with limits adds: memory used, its limit, throttling, and memory pressure.
const OF_A_GROUP: usize = 4;

#[test]
fn many_workers_do_not_exceed_the_series_limit() {
    let site = site(&["--workers", "16"]);
    samples(&site, 2);
    let state = json(&mut site.http(), "/v1/series");
    let series = state["series"].as_array().expect("series");
    assert_eq!(state["figures_without_a_series"], 0, "{state}");
    assert!(series.len() + OF_A_GROUP <= strand_diag::history::SERIES_MAX, "{} series", series.len());
    let has = |name: &str| series.iter().any(|series| series["name"] == name);
    assert!(
        has("memory.rss") && has("memory.limit") && has("cpu.thread.others") && has("cpu.thread.worker-0")
    );
}

#[test]
fn live_events_come_each_second_until_the_right_is_removed() {
    let site = site(&[]);
    let mut admin = site.resp();
    admin.call("ACL SETUSER ann on >pw ~* +@all", "+OK\r\n");
    admin.call("ACL SETUSER bob on >pw ~* +@all -diag", "+OK\r\n");
    samples(&site, 1);
    let mut http = site.http();
    for path in ["/v1/history", "/v1/series", "/v1/live"] {
        // This is the login bob:pw.
        let answer = http.ask(&format!("GET {path}"), "Authorization: Basic Ym9iOnB3\r\n", b"");
        assert_eq!((answer.status, answer.text().contains("NOPERM")), (403, true), "{path}");
    }
    // This is the login ann:pw.
    let head = "Host: 127.0.0.1\r\nAuthorization: Basic YW5uOnB3\r\n";
    http.send(format!("GET /v1/live?series=clients.* HTTP/1.1\r\n{head}\r\n").as_bytes());
    let mut text = String::new();
    let mut until = |what: &str, text: &mut String| {
        for _ in 0..1000 {
            if text.contains(what) {
                return;
            }
            text.push_str(&http.raw());
        }
        panic!("{what} is not in {text}");
    };
    until("event: figures\ndata: {", &mut text);
    assert!(text.contains("text/event-stream") && text.contains("clients.connected"), "{text}");
    let first = text.len();
    until("event: figures\ndata: {", &mut text.split_off(first));
    admin.call("ACL SETUSER ann -diag", "+OK\r\n");
    until("event: problem\ndata: ", &mut text);
    assert!(text.contains("NOPERM"), "{text}");
}

#[test]
fn a_stopping_server_ends_live_streams() {
    let mut site = site(&[]);
    samples(&site, 1);
    let mut http = site.http();
    http.send(b"GET /v1/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    assert!(!http.raw().is_empty());
    site.server.signal(rustix::process::Signal::TERM);
    assert!(site.server.end().success());
}
