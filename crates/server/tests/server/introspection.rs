//! What a server says about itself, beside what redis-server says of the same doings: LATENCY, INFO, SLOWLOG.

use crate::harness::{STRAND, comes_true};
use std::path::Path;
use strand_testkit::client::Client;
use strand_testkit::process::Server;
use strand_wire::client::Value;

/// Strand and redis-server, with one connection to each.
struct Both {
    servers: [Server; 2],
    links: [Client; 2],
}

fn both(options: &[&str]) -> Both {
    let strand = Server::strand(Path::new(STRAND), options, None).expect("strand starts");
    let redis = Server::redis(options, None).expect("redis-server is installed (make setup) and starts");
    let links = [strand.connect().expect("it listens"), redis.connect().expect("it listens")];
    Both { servers: [strand, redis], links }
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn text(value: Value) -> String {
    match value {
        Value::Bulk(b) | Value::Simple(b) | Value::Error(b) | Value::Verbatim(_, b) => {
            String::from_utf8_lossy(&b).into_owned()
        }
        other => format!("{other:?}"),
    }
}

impl Both {
    /// Sends the lines to both; every reply must be the same.
    #[track_caller]
    fn same(&mut self, lines: &[&str]) {
        for line in lines {
            let [ours, theirs] = self.replies(line);
            assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "{line}");
        }
    }
    #[track_caller]
    fn replies(&mut self, line: &str) -> [Value; 2] {
        self.links.each_mut().map(|link| link.call(&words(line)).expect("a reply"))
    }
    #[track_caller]
    fn texts(&mut self, line: &str) -> [String; 2] {
        self.replies(line).map(text)
    }
}

/// Numbers in an array of arrays.
fn numbers(value: &Value) -> Vec<i64> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        Value::Int(n) => vec![*n],
        _ => Vec::new(),
    }
}

#[test]
fn latency_says_what_redis_says() {
    let mut both = both(&["--enable-debug-command", "yes"]);
    both.same(&[
        "LATENCY LATEST",
        "LATENCY RESET",
        "LATENCY HISTORY command",
        "LATENCY GRAPH command",
        "LATENCY GRAPH nosuch",
        "LATENCY HISTOGRAM nosuch",
        "LATENCY",
        "LATENCY FOO",
        "LATENCY GRAPH",
        "LATENCY HISTORY",
        "LATENCY LATEST x",
        "LATENCY DOCTOR x",
        "CONFIG SET latency-monitor-threshold 20",
        "CONFIG GET latency-monitor-threshold",
        "DEBUG SLEEP 0.25",
        "LATENCY HISTORY fast-command",
    ]);
    for latest in both.replies("LATENCY LATEST") {
        let found = numbers(&latest);
        // Redis stops for the sleep; nothing else is promised on a machine that others use, but for its length.
        let Value::Array(events) = &latest else { panic!("{latest:?}") };
        let is_command =
            |event: &Value| matches!(event, Value::Array(e) if e[0] == Value::Bulk(b"command".to_vec()));
        assert!(events.iter().any(is_command) && found.iter().any(|ms| *ms >= 250), "{latest:?}");
    }
    for graph in both.texts("LATENCY GRAPH command") {
        let lines: Vec<&str> = graph.lines().collect();
        assert!(lines[0].starts_with("command - high ") && lines[0].ends_with(" ms)"), "{graph}");
        assert_eq!((lines[1], lines[5]), (&*"-".repeat(80), "_"), "{graph}");
    }
    both.same(&["LATENCY RESET command", "LATENCY HISTORY command", "LATENCY RESET command"]);
}

#[test]
fn calls_and_times_are_counted_as_in_redis() {
    let mut both = both(&[]);
    for link in &mut both.links {
        link.call(&["CONFIG", "RESETSTAT"]).expect("a reply");
        for i in 0..50 {
            link.send(&[b"SET".to_vec(), b"k".to_vec(), vec![b'v'; i]]).expect("it is taken");
            link.send(&[b"GET".to_vec(), b"k".to_vec()]).expect("it is taken");
        }
        (0..100).for_each(|_| _ = link.reply().expect("a reply"));
        for line in ["HSET k f v", "GET", "CLIENT ID", "MULTI", "INCR n", "EXEC", "BLPOP nosuch 0.01"] {
            link.call(&words(line)).expect("a reply");
        }
        link.call(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"]).expect("a reply");
    }
    let parse = |text: String| -> Vec<(String, Vec<f64>)> {
        let line = |line: &str| {
            let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let number = |field: &str| field.split_once('=')?.1.parse().ok();
            Some((
                name.to_string(),
                fields.split(',').map(|field| number(field).expect("a number")).collect(),
            ))
        };
        text.lines().filter_map(line).collect()
    };
    let [ours, theirs] = both.texts("INFO commandstats").map(parse);
    assert_eq!(theirs.len(), 10, "{theirs:?}");
    for (name, [calls, _, _, rejected, failed]) in
        theirs.iter().map(|(name, n)| (name, <[f64; 5]>::try_from(n.as_slice()).expect("five fields")))
    {
        let found = ours.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name} in {ours:?}"));
        assert_eq!([found.1[0], found.1[3], found.1[4]], [calls, rejected, failed], "{name}");
        if calls > 0.0 && name != "config|resetstat" {
            assert!((found.1[1] / calls - found.1[2]).abs() <= 1.0, "{found:?}");
        }
    }
    let names = |text: String| -> Vec<String> {
        let mut names: Vec<String> =
            text.lines().filter_map(|l| Some(l.split_once(':')?.0.to_string())).collect();
        // One that has waited counts here by what it did before, there once it is served.
        names.retain(|name| !name.ends_with("_blpop"));
        names.sort();
        names
    };
    let [ours, theirs] = both.texts("INFO latencystats").map(names);
    assert_eq!(ours, theirs);
    for line in ["LATENCY HISTOGRAM set GET", "LATENCY HISTOGRAM client"] {
        let [ours, theirs] = both.replies(line).map(|histogram| {
            let Value::Array(of_commands) = histogram else { panic!("{histogram:?}") };
            let shape = |command: &[Value]| {
                let Value::Array(fields) = &command[1] else { panic!("{command:?}") };
                let last = numbers(&fields[3]).last().copied();
                (format!("{:?} {:?} {:?}", command[0], fields[0], fields[2]), numbers(&fields[1]), last)
            };
            of_commands.chunks(2).map(shape).collect::<Vec<_>>()
        });
        assert_eq!(ours, theirs, "{line}");
    }
    both.same(&["CONFIG SET latency-tracking no", "INFO latencystats", "CONFIG SET latency-tracking yes"]);
    let _ = &both.servers;
    comes_true(|| both.texts("INFO latencystats").iter().all(|text| text.contains("usec_get:p50=")));
}
