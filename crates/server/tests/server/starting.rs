//! The start of a server with data: what clients get while the data is loaded. What the kernel is told about the process.

use crate::harness::{STRAND, Server, comes_true};
use crate::saving::{Link, call, folder, info, link, start};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

/// Starts a server, and connects as soon as the port is open. The server reports that it is ready only after loading.
fn connect_at_once(dir: &std::path::Path, options: &[&str]) -> (std::process::Child, Link) {
    let dir = dir.to_str().expect("a plain path");
    let port = strand_testkit::process::free_port().expect("loopback has ports").to_string();
    let args = ["serve", "--http-port", "0", "--port", &port, "--bind", "127.0.0.1", "--dir", dir];
    let mut command = std::process::Command::new(STRAND);
    let command = command.args(args).args(options).stdout(std::process::Stdio::piped());
    let child = command.spawn().expect("it starts");
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port.parse().expect("a number")));
    let mut client = None;
    comes_true(|| {
        client = Link::connect(address).ok();
        client.is_some()
    });
    (child, client.expect("connected"))
}

/// As with redis-server, small data is loaded before a client that waits for the port gets a reply.
#[test]
fn a_client_that_connects_at_the_start_gets_no_error_when_there_is_little_data() {
    let folder = folder();
    for round in 0..5 {
        for options in [&["--save", "60 1"][..], &["--appendonly", "yes"]] {
            let (mut child, mut client) = connect_at_once(folder.path(), options);
            assert_eq!(call(&mut client, &["SET", "k", "v"]), "OK", "{round} {options:?}");
            client.send(&["SHUTDOWN", "SAVE"]).expect("sent");
            assert!(child.wait().expect("our child").success());
        }
    }
}

#[test]
fn a_loading_server_replies_with_loading() {
    let folder = folder();
    let first = start(folder.path(), &[]);
    let mut client = link(&first);
    for i in 0..3000 {
        call(&mut client, &["SET", &format!("key:{i}"), "value"]);
    }
    call(&mut client, &["SET", "short", "x", "PX", "1"]);
    assert_eq!(call(&mut client, &["SAVE"]), "OK");
    drop((client, first));
    let options = ["--key-load-delay", "5000", "--enable-debug-command", "yes"];
    let (mut child, mut client) = connect_at_once(folder.path(), &options);
    let loading = "LOADING Redis is loading the dataset in memory";
    for args in [&["GET", "key:1"][..], &["SET", "key:1", "x"], &["PING"], &["SAVE"], &["DBSIZE"]] {
        assert_eq!(call(&mut client, args), loading, "{args:?}");
    }
    assert_eq!(info(&mut client, "loading"), "1");
    for field in ["loading_start_time", "loading_total_bytes", "loading_loaded_bytes", "loading_eta_seconds"]
    {
        info(&mut client, field).parse::<u64>().expect("a number");
    }
    call(&mut client, &["LASTSAVE"]).parse::<i64>().expect("a number");
    assert_eq!(call(&mut client, &["CONFIG", "SET", "key-load-delay", "0"]), "OK");
    comes_true(|| info(&mut client, "loading") == "0");
    assert_eq!(call(&mut client, &["GET", "key:1"]), "value");
    assert_eq!(info(&mut client, "rdb_last_load_keys_loaded"), "3000");
    client.send(&["SHUTDOWN", "NOSAVE"]).expect("sent");
    assert!(child.wait().expect("our child").success());
}

/// The lines on the standard output, and the log, of a server from its start to its end.
fn said(dir: &std::path::Path, options: &[&str]) -> (String, String) {
    let dir = dir.to_str().expect("a plain path");
    let args = ["serve", "--http-port", "0", "--port", "0", "--bind", "127.0.0.1", "--dir", dir];
    let mut command = std::process::Command::new(STRAND);
    let command = command.args(args).args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut text = String::new();
    out.read_line(&mut text).expect("text");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
    out.read_to_string(&mut text).expect("text");
    let ended = child.wait_with_output().expect("our child");
    assert!(ended.status.success(), "{ended:?}");
    (text, String::from_utf8(ended.stderr).expect("text"))
}

/// The standard output has the line once, also when loading ends before the main thread is ready. The log has the line only
/// if the log is a file or JSON, because a terminal would show plain lines twice.
#[test]
fn the_server_announces_once_that_it_is_ready() {
    let ready = "Ready to accept connections on 127.0.0.1:";
    let folder = folder();
    for _ in 0..10 {
        let (out, log) = said(folder.path(), &["--appendonly", "yes"]);
        assert!(out.starts_with(ready) && out.lines().count() == 1, "{out}");
        assert!(!log.contains(ready), "{log}");
    }
    let file = folder.path().join("log");
    let (out, _) = said(folder.path(), &["--logfile", file.to_str().expect("a plain path")]);
    let log = std::fs::read_to_string(file).expect("there");
    assert!(out.starts_with(ready) && log.contains(&format!("INFO {ready}")), "{out} {log}");
    let (out, log) = said(folder.path(), &["--log-format", "json"]);
    let line = log.lines().find(|line| line.contains(ready)).expect("logged");
    assert!(out.starts_with(ready) && line.starts_with('{') && line.ends_with('}'), "{out} {log}");
}

/// As in redis-server, `appendonly` without an append-only file starts an empty server. The log says so, and what it says
/// brings the data back.
#[test]
fn a_snapshot_that_is_not_read_is_named_in_the_log() {
    let folder = folder();
    let first = start(folder.path(), &[]);
    let mut client = link(&first);
    assert_eq!(call(&mut client, &["SET", "k", "v"]), "OK");
    assert_eq!(call(&mut client, &["SAVE"]), "OK");
    drop((client, first));
    let mut empty = start(folder.path(), &["--appendonly", "yes"]);
    let mut client = link(&empty);
    assert_eq!(call(&mut client, &["DBSIZE"]), "0");
    let log = empty.folder.log_text();
    assert!(log.contains("WARN dump.rdb is not read, because appendonly is yes"), "{log}");
    client.send(&["SHUTDOWN", "NOSAVE"]).expect("sent");
    assert!(empty.end().success());
    let mut mended = start(folder.path(), &["--appendonly", "no"]);
    let mut client = link(&mended);
    assert_eq!(call(&mut client, &["CONFIG", "SET", "appendonly", "yes"]), "OK");
    comes_true(|| info(&mut client, "aof_rewrite_in_progress") == "0");
    client.send(&["SHUTDOWN", "NOSAVE"]).expect("sent");
    assert!(mended.end().success());
    let last = start(folder.path(), &["--appendonly", "yes"]);
    comes_true(|| call(&mut link(&last), &["GET", "k"]) == "v");
    assert!(!last.folder.log_text().contains("is not read"));
}

/// `oom-score-adj` at the start, by CONFIG SET, and after a change of the role.
#[test]
fn the_kernel_is_told_which_server_to_end_first() {
    let options = ["--oom-score-adj", "relative", "--oom-score-adj-values", "10 20 30"];
    let server = Server::start(&options);
    let file =
        |pid: String| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("a process");
    let score = || file(server.pid().to_string()).trim().parse::<i32>().expect("a number");
    // The server began with the value of this process.
    let base: i32 = file("self".into()).trim().parse().expect("a number");
    let wanted = |more: i32| (base + more).min(1000);
    assert_eq!(score(), wanted(10));
    let mut client = link(&server);
    for (request, expected) in [
        (&["REPLICAOF", "127.0.0.1", "1"][..], wanted(20)),
        (&["REPLICAOF", "NO", "ONE"], wanted(10)),
        (&["CONFIG", "SET", "oom-score-adj-values", "900 901 902", "oom-score-adj", "absolute"], 900),
        (&["CONFIG", "SET", "oom-score-adj", "yes"], wanted(900)),
        (&["CONFIG", "SET", "oom-score-adj", "no"], base),
        (&["CONFIG", "SET", "oom-score-adj-values", "1 2 3"], base),
    ] {
        assert_eq!(call(&mut client, request), "OK");
        assert_eq!(score(), expected, "{request:?}");
    }
}
