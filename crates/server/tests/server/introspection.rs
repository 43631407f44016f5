//! A server's reports about itself, compared with redis-server after equal actions: LATENCY, INFO, SLOWLOG.

use crate::harness::{STRAND, comes_true};
use std::path::Path;
use strand_testkit::client::Client;
use strand_testkit::process::Server;
use strand_wire::client::Value;

/// Strand and redis-server, with one connection to each.
pub struct Both {
    servers: [Server; 2],
    links: [Client; 2],
}

pub fn both(options: &[&str]) -> Both {
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
    /// Sends the lines to both servers. Every reply must be equal.
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
    pub fn texts(&mut self, line: &str) -> [String; 2] {
        self.replies(line).map(text)
    }
}

/// The numbers in an array of arrays.
fn numbers(value: &Value) -> Vec<i64> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        Value::Int(n) => vec![*n],
        _ => Vec::new(),
    }
}

#[test]
fn latency_replies_equal_redis_server_s() {
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
        // redis-server blocks during the sleep. On a shared machine, only the duration of the sleep is certain.
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
        // For a blocked command, Strand counts the work before it blocked, and redis-server counts it after it was
        // served.
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

#[test]
fn the_commands_and_errors_of_scripts_are_counted_as_in_redis() {
    let mut both = both(&[]);
    let scripts = [
        // The first run of this script uses an undeclared key, so it runs twice, and counts once.
        "redis.pcall('get') redis.pcall('nosuch') redis.pcall('lpush', 's', 'x') return 1",
        "return redis.call('lpush', KEYS[1], 'x')",
        "return redis.pcall('lpush', KEYS[1], 'x')",
        "local e = redis.pcall('lpush', KEYS[1], 'x') return {err = e.err}",
        "local e = redis.pcall('lpush', KEYS[1], 'x') e.err = 'FOO x' return e",
        "local e = redis.pcall('lpush', KEYS[1], 'x') error(e)",
        "redis.call('ping') redis.call('publish', 'a', 'b') redis.pcall('select', '99') return 1",
        "return redis.call('object', 'freq')",
        "return redis.call('subscribe', 'x')",
        "return redis.call()",
        "return redis.error_reply('MINE x')",
        "error('boom')",
        "error({err = 'OWN z'})",
        "no syntax",
        "#!lua flags=no-writes\nreturn redis.call('set', 'a', 'b')",
    ];
    for link in &mut both.links {
        link.call(&["SET", "s", "text"]).expect("a reply");
        link.call(&["CONFIG", "RESETSTAT"]).expect("a reply");
    }
    let mut same = |command: &[&str]| {
        let [ours, theirs] = both.links.each_mut().map(|link| link.call(command).expect("a reply"));
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "{command:?}");
    };
    for script in scripts {
        same(&["EVAL", script, "1", "s"]);
    }
    for command in [&["MULTI"][..], &["EVAL", scripts[1], "1", "s"], &["EVAL", scripts[11], "0"], &["EXEC"]] {
        same(command);
    }
    let sorted = |text: String| {
        let mut lines: Vec<String> = text
            .lines()
            // Strand counts this call of INFO already.
            .filter(|line| !line.starts_with("cmdstat_info:"))
            // The times differ.
            .map(|line| {
                line.split(',').filter(|field| !field.starts_with("usec")).collect::<Vec<_>>().join(",")
            })
            .collect();
        lines.sort();
        lines
    };
    for section in ["INFO errorstats", "INFO commandstats"] {
        let [ours, theirs] = both.texts(section).map(sorted);
        assert_eq!(ours, theirs, "{section}");
    }
    let errors =
        |text: String| text.lines().find(|line| line.starts_with("total_error_replies")).map(String::from);
    let [ours, theirs] = both.texts("INFO stats").map(errors);
    assert!(ours.is_some() && ours == theirs, "{ours:?} {theirs:?}");
}

/// Fields of redis-server's INFO that Strand does not have, each with its reason. docs/differences.md lists them
/// too.
const LEFT_OUT: &[(&str, &str)] = &[
    ("redis_build_id", "a hash over the sources of redis-server"),
    ("atomicvar_api", "of a compiler for C"),
    ("gcc_version", "of a compiler for C"),
    ("used_memory_vm_eval", "interpreters run scripts and functions alike"),
    ("used_memory_vm_functions", "interpreters run scripts and functions alike"),
    ("mem_cluster_links", "there is no cluster"),
    ("unexpected_error_replies", "of a replica"),
    ("expired_stale_perc", "expired keys are found by their bounds and not by samples"),
    ("migrate_cached_sockets", "there is no MIGRATE"),
    ("active_defrag_hits", "the allocator needs no defragmentation by the server"),
    ("active_defrag_misses", "as above"),
    ("active_defrag_key_hits", "as above"),
    ("active_defrag_key_misses", "as above"),
    ("total_active_defrag_time", "as above"),
    ("current_active_defrag_time", "as above"),
    ("dump_payload_sanitizations", "every payload is checked whole"),
    ("total_writes_processed", "writes of many clients are one system call"),
    ("io_threaded_reads_processed", "there are no such threads"),
    ("io_threaded_writes_processed", "there are no such threads"),
    ("reply_buffer_shrinks", "there is no such buffer"),
    ("reply_buffer_expands", "there is no such buffer"),
    ("used_cpu_sys_main_thread", "there is no thread that does all"),
    ("used_cpu_user_main_thread", "there is no thread that does all"),
];

#[test]
fn every_field_of_redis_server_s_info_exists_or_is_listed_as_omitted() {
    let mut both = both(&[]);
    for link in &mut both.links {
        for line in ["SET k v EX 100", "GET nosuch", "HSET k f v", "EVAL return(1) 0", "SELECT 9", "SET k v"]
        {
            link.call(&words(line)).expect("a reply");
        }
    }
    let parse = |text: String| -> Vec<(String, String)> {
        let pair =
            |line: &str| line.split_once(':').map(|(name, value)| (name.to_string(), value.to_string()));
        text.lines().filter_map(pair).collect()
    };
    let [ours, theirs] = both.texts("INFO everything").map(parse);
    let is_number = |text: &str| text.trim_end_matches(['%', 'B', 'K', 'M', 'G', 'T']).parse::<f64>().is_ok();
    for (name, value) in &theirs {
        let found = ours.iter().find(|(n, _)| n == name);
        let left_out = LEFT_OUT.iter().find(|(n, _)| n == name);
        match (found, left_out) {
            (None, None) => panic!("{name}:{value} is missing"),
            (Some(_), Some(_)) => panic!("{name} is here, and said to be left out"),
            (None, Some(_)) => {}
            (Some((_, own)), None) => {
                assert_eq!(is_number(own), is_number(value), "{name}:{own}, {value} there")
            }
        }
    }
    for (name, _) in LEFT_OUT {
        assert!(theirs.iter().any(|(n, _)| n == name), "redis-server has no {name}");
    }
    // These fields must be exactly equal after equal actions.
    let of = |all: &[(String, String)], name: &str| {
        all.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone()).unwrap_or_default()
    };
    for name in [
        "redis_mode",
        "arch_bits",
        "connected_clients",
        "maxclients",
        "blocked_clients",
        "maxmemory",
        "maxmemory_policy",
        "loading",
        "keyspace_hits",
        "keyspace_misses",
        "total_error_replies",
        "errorstat_WRONGTYPE",
        "number_of_cached_scripts",
        "expired_keys",
        "evicted_keys",
        "rejected_connections",
        "role",
        "cluster_enabled",
    ] {
        assert_eq!(of(&ours, name), of(&theirs, name), "{name}");
    }
    for name in ["db0", "db9"] {
        let [our, their] = [&ours, &theirs].map(|all| of(all, name));
        assert!(our.starts_with(their.split(",avg").next().expect("a part")), "{name}:{our}, {their} there");
    }
    both.same(&[
        "INFO nosuch",
        "INFO cluster",
        "INFO modules",
        "INFO nosuch cluster modules",
        "CONFIG RESETSTAT x",
    ]);
}

/// What both servers send to a MONITOR client for these commands, without times and addresses.
fn watched(both: &mut Both, requests: &[Vec<Vec<u8>>]) -> [Vec<String>; 2] {
    let mut watchers = both.servers.each_ref().map(|server| server.connect().expect("it listens"));
    for watcher in &mut watchers {
        assert_eq!(text(watcher.call(&["MONITOR"]).expect("a reply")), "OK");
    }
    for link in &mut both.links {
        for request in requests {
            link.send(request).expect("it is taken");
            link.reply().expect("a reply");
        }
        link.call(&["ECHO", "the last"]).expect("a reply");
    }
    watchers.map(|mut watcher| {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.contains("the last")) {
            let line = text(watcher.reply().expect("a line"));
            let (time, rest) = line.split_once(' ').expect("a time");
            assert!(time.parse::<f64>().is_ok_and(|s| s > 1.6e9), "{line}");
            let (head, args) = rest.split_once(']').expect("a place");
            let (db, who) = head.split_once(' ').expect("a database and an address");
            let who = if who == "lua" { "lua" } else { who.split_once(':').expect("a port").0 };
            lines.push(format!("{db} {who}]{args}"));
        }
        lines
    })
}

#[test]
fn monitor_shows_redis_server_s_lines() {
    let mut both = both(&[]);
    let mut requests: Vec<Vec<Vec<u8>>> = [
        "SET a b",
        "sEt a",
        "NOSUCH a",
        "GET a",
        "AUTH secret",
        "auth user secret",
        "HELLO 2 AUTH user secret SETNAME n",
        "CONFIG GET requirepass",
        "CONFIG SET requirepass secret",
        "CONFIG SET requirepass \"\"",
        "ACL SETUSER other on >secret",
        "ACL WHOAMI",
        "SELECT 3",
        "LPUSH l 1 2 3",
        "LPUSH l",
        "HSET l f v",
        "MULTI",
        "INCR n",
        "SET n x EX",
        "DISCARD",
        "MULTI",
        "INCR n",
        "LRANGE l 0 -1",
        "EXEC",
        "WATCH n",
        "EXEC",
        "BLPOP nosuch 0.01",
        "BLPOP l 0",
        "SORT l",
        "KEYS *",
        "OBJECT ENCODING n",
        "DEL n a",
        "CLIENT SETNAME me",
        "CLIENT LIST",
        "INFO server",
        "SLOWLOG LEN",
        "MEMORY USAGE l",
        "COMMAND COUNT",
        "PING",
        "TIME",
        "PUBLISH c m",
        "SCAN 0",
        "FLUSHDB",
        "SELECT 99",
    ]
    .iter()
    .map(|line| words(line).iter().map(|word| word.trim_matches('"').as_bytes().to_vec()).collect())
    .collect();
    let script = "redis.call('SET', KEYS[1], ARGV[1]); return redis.pcall('HGET', KEYS[1], 'f')";
    requests.push([&b"EVAL"[..], script.as_bytes(), b"1", b"k", b"v w"].map(<[u8]>::to_vec).into());
    requests.push([&b"SET"[..], b"k\x00\xff \"\\", b"\r\n\t\x07\x08\x7f"].map(<[u8]>::to_vec).into());
    // A client sets the password, and a client that knows the password removes it.
    let [ours, theirs] = watched(&mut both, &requests);
    assert_eq!(ours, theirs);
    assert!(!ours.iter().any(|line| line.contains("secret")), "{ours:?}");
}

#[test]
fn a_monitor_that_does_not_read_is_closed_and_delays_nobody() {
    let mut both = both(&[]);
    let limit = &["CONFIG", "SET", "client-output-buffer-limit", "normal 1mb 0 0"];
    assert!(both.links.iter_mut().all(|link| text(link.call(limit).expect("a reply")) == "OK"));
    let [strand, _] = &both.servers;
    let mut watcher = strand.connect().expect("it listens");
    assert_eq!(text(watcher.call(&["MONITOR"]).expect("a reply")), "OK");
    let [link, _] = &mut both.links;
    let value = "x".repeat(100_000);
    comes_true(|| {
        link.call(&["SET", "k", &value]).expect("a reply");
        text(link.call(&["CLIENT", "LIST"]).expect("a reply")).lines().count() == 1
    });
    assert!(
        text(link.call(&["INFO", "stats"]).expect("a reply"))
            .contains("output_buffer_limit_disconnections:1")
    );
    drop(watcher);
    // RESET ends MONITOR.
    let mut watcher = strand.connect().expect("it listens");
    assert_eq!(text(watcher.call(&["MONITOR"]).expect("a reply")), "OK");
    assert!(text(link.call(&["CLIENT", "LIST"]).expect("a reply")).contains(" flags=O "));
    watcher.send(&[b"RESET".to_vec()]).expect("it is taken");
    comes_true(|| text(watcher.reply().expect("a line")) == "RESET");
    link.call(&["SET", "k", "v"]).expect("a reply");
    assert_eq!(text(watcher.call(&["ECHO", "nothing between"]).expect("a reply")), "nothing between");
}

#[test]
fn debug_replies_equal_redis_server_s() {
    let mut both = both(&["--enable-debug-command", "yes"]);
    both.same(&[
        "DEBUG",
        "DEBUG NOSUCH",
        "DEBUG POPULATE 10",
        "DBSIZE",
        "GET key:3",
        "DEBUG POPULATE 3 pre 20",
        "GET pre:2",
        "DEBUG POPULATE 4 pre 30",
        "GET pre:2",
        "GET pre:3",
        "DEBUG POPULATE 3 short 1",
        "GET short:1",
        "DEBUG POPULATE x",
        "DEBUG POPULATE -1",
        "DEBUG POPULATE 3 p -1",
        "DEBUG POPULATE",
        "DEBUG POPULATE 1 2 3 4",
        "DBSIZE",
        "DEBUG DIGEST",
        "FLUSHALL",
        "RPUSH l 1 2 3",
        "HSET h a 1",
        "SET s v",
        "ZADD z 1 a",
        "DEBUG LISTPACK nosuch",
        "DEBUG LISTPACK s",
        "DEBUG LISTPACK l",
        "DEBUG LISTPACK h",
        "DEBUG LISTPACK z",
        "DEBUG LISTPACK",
        "DEBUG QUICKLIST nosuch",
        "DEBUG QUICKLIST h",
        "DEBUG QUICKLIST l",
        "DEBUG QUICKLIST l 1",
        "DEBUG HTSTATS",
        "DEBUG HTSTATS x",
        "DEBUG HTSTATS 99",
        "DEBUG HTSTATS -1",
        "DEBUG HTSTATS-KEY nosuch",
        "DEBUG HTSTATS-KEY s",
        "DEBUG HTSTATS-KEY h",
        "DEBUG HTSTATS-KEY z",
        "DEBUG QUICKLIST-PACKED-THRESHOLD 100b",
        "DEBUG QUICKLIST-PACKED-THRESHOLD 5gb",
        "DEBUG QUICKLIST-PACKED-THRESHOLD x",
        "DEBUG QUICKLIST-PACKED-THRESHOLD 0",
        "DEBUG QUICKLIST-PACKED-THRESHOLD",
        "DEBUG REPLYBUFFER",
        "DEBUG REPLYBUFFER NOSUCH 1",
        "DEBUG REPLYBUFFER RESIZING 0",
        "DEBUG REPLYBUFFER RESIZING 1",
        "DEBUG REPLYBUFFER PEAK-RESET-TIME 100",
        "DEBUG REPLYBUFFER PEAK-RESET-TIME NEVER",
        "DEBUG REPLYBUFFER PEAK-RESET-TIME RESET",
        "DEBUG REPLYBUFFER PEAK-RESET-TIME x",
        "DEBUG PAUSE-CRON 1",
        "DEBUG PAUSE-CRON 0",
        "DEBUG PAUSE-CRON",
        "DEBUG LOG hello",
        "DEBUG LOG",
        "DEBUG CHANGE-REPL-ID x",
        "DEBUG SET-DISABLE-DENY-SCRIPTS",
        "DEBUG JMAP",
        "DEBUG STRINGMATCH-LEN 10 a*",
    ]);
    // Both servers report a large table, each in its own format.
    let field = "f".repeat(100);
    both.same(&[&format!("HSET h {field} v"), "OBJECT ENCODING h"]);
    for line in ["DEBUG HTSTATS 0", "DEBUG HTSTATS-KEY h"] {
        assert!(both.texts(line).iter().all(|text| text.contains("elements")), "{line}");
    }
    // The replication id differs, and so do the commands that a script may call.
    let id = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("master_replid:"));
        line.expect("the field is there").to_string()
    };
    let before = both.texts("INFO replication").map(|text| id(&text));
    both.same(&["DEBUG CHANGE-REPL-ID"]);
    let after = both.texts("INFO replication").map(|text| id(&text));
    assert!(before.iter().zip(&after).all(|(a, b)| a != b && b.len() == 40), "{before:?} {after:?}");
    for (allowed, is_error) in [("0", true), ("1", false), ("0", true)] {
        both.same(&[&format!("DEBUG SET-DISABLE-DENY-SCRIPTS {allowed}")]);
        let script = &["EVAL", "return redis.pcall('BLPOP', 'nosuch', 0)", "0"];
        let [ours, theirs] = both.links.each_mut().map(|link| link.call(script).expect("a reply"));
        assert_eq!(ours, theirs);
        assert_eq!(matches!(ours, Value::Error(_)), is_error, "{ours:?}");
    }
    let [strand, _] = &mut both.links;
    for name in ["SEGFAULT", "PANIC", "OOM", "RESTART", "LEAK", "SDSLEN", "MALLCTL", "STRUCTSIZE"] {
        let reply = text(strand.call(&["DEBUG", name, "x"]).expect("a reply"));
        assert!(reply.starts_with(&format!("ERR DEBUG {name} is not supported: ")), "{reply}");
    }
}

#[test]
fn clients_are_listed_and_closed_as_in_redis() {
    let mut both = both(&[]);
    both.same(&[
        "CLIENT KILL MAXAGE",
        "CLIENT KILL ID 999999 ID 99998",
        "CLIENT KILL TYPE replica SKIPME no",
        "CLIENT KILL SKIPME maybe",
        "CLIENT PAUSE 0 WRITE x",
        "CLIENT LIST TYPE normal ID 1",
        "CLIENT SETNAME me",
        "WATCH k",
        "SET k v",
        "MULTI",
    ]);
    let fields = |line: &str| -> Vec<(String, String)> {
        let pair = |field: &str| field.split_once('=').map(|(a, b)| (a.to_string(), b.to_string()));
        line.trim_end().split(' ').filter_map(pair).collect()
    };
    // Compare the common fields, in redis-server's order. Strand adds two.
    let mut lists = both.servers.each_ref().map(|server| server.connect().expect("it listens"));
    let [ours, theirs] = lists.each_mut().map(|link| {
        let list = text(link.call(&["CLIENT", "LIST"]).expect("a reply"));
        list.lines().map(fields).collect::<Vec<_>>()
    });
    assert_eq!((ours.len(), theirs.len()), (2, 2), "{ours:?}");
    for (our, their) in ours.iter().zip(&theirs) {
        let names = |line: &[(String, String)]| line.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(our)[..their.len()], names(their)[..]);
        assert_eq!(names(our)[their.len()..], ["lib-name", "lib-ver"]);
        for name in ["name", "flags", "db", "sub", "psub", "ssub", "multi", "user", "redir", "resp"] {
            let of = |line: &[(String, String)]| line.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
            assert_eq!(of(our), of(their), "{name}");
        }
    }
    // Kill clients by age: first no client is old enough; then some are, and the caller is spared.
    let [strand, _] = &mut lists;
    let mut kill = |age: &str| text(strand.call(&["CLIENT", "KILL", "MAXAGE", age]).expect("a reply"));
    assert_eq!(kill("x"), "ERR maxage is not an integer or out of range");
    assert_eq!(kill("0"), "ERR maxage should be greater than 0");
    assert_eq!(kill("1000000"), "Int(0)");
    comes_true(|| kill("1") == "Int(1)");
}
