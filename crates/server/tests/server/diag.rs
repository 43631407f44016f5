//! What a server reports about itself: the ledger compared with the allocator, `strand doctor`, `strand bundle`.

use crate::harness::{Client, Server, comes_true, is_true_within, strand};
use crate::http::{Site, site};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Maximum share of memory without a purpose: 3 %.
const OTHER_SHARE_MAX: f64 = 0.03;

#[test]
fn the_ledger_agrees_with_the_allocator() {
    let server = Server::start(&["--enable-debug-command", "yes", "--workers", "2"]);
    let mut client = server.connect();
    agrees(&mut client, 1e6);
    client.call("DEBUG POPULATE 200000 str 250", "+OK\r\n");
    client.call("DEBUG POPULATE 100000 short 20", "+OK\r\n");
    let mut pipeline = Vec::new();
    for i in 0..60_000 {
        let line = match i % 4 {
            0 => format!("HSET h:{} field:{i} value:{i}", i % 2000),
            1 => format!("ZADD z:{} {i} member:{i}", i % 50),
            2 => format!("SADD s:{} member:{i}", i % 500),
            _ => format!("RPUSH l:{} element:{i}", i % 100),
        };
        pipeline.extend(crate::harness::command(&line));
    }
    client.send(&pipeline);
    (0..60_000).for_each(|_| assert!(client.line().starts_with(':')));
    agrees(&mut client, 60e6);
    let info = client.bulk("INFO memory");
    for name in ["used_memory_other", "used_memory_history", "used_memory_statistics"] {
        assert!(info.contains(&format!("\r\n{name}:")), "{info}");
    }
}

/// Waits until more than `used_min` bytes are in use, and the purposes explain them. Garbage is freed gradually, and
/// samples are taken each second.
fn agrees(client: &mut Client, used_min: f64) {
    let mut told = Value::Null;
    let mut agree = || {
        told = json(&client.bulk("DIAG MEMORY"));
        let (used, other) =
            (told["used"].as_f64().expect("a number"), told["other"].as_f64().expect("a number"));
        used > used_min && other.abs() <= (used * OTHER_SHARE_MAX).max(OTHER_BYTES)
    };
    let agree = is_true_within(AGREE_MAX, &mut agree);
    assert!(agree, "{told}");
}

/// What an empty server may leave unexplained: threads that begin after the memory of the start was counted have
/// stacks, queues and caches (410 kB of 9.2 MB on a busy machine).
const OTHER_BYTES: f64 = 600e3;
/// Longest time until the ledger agrees.
const AGREE_MAX: std::time::Duration = std::time::Duration::from_secs(20);

/// The bytes of a purpose, when DIAG MEMORY, INFO memory, MEMORY STATS and /metrics say the same. `None` while they
/// change.
fn bytes_of(site: &Site, purpose: &str) -> Option<u64> {
    let mut client = site.resp();
    let told = json(&client.bulk("DIAG MEMORY"));
    let purposes = told["purposes"].as_array().expect("an array");
    let of_purpose =
        purposes.iter().find(|p| p["name"] == purpose).unwrap_or_else(|| panic!("{purpose} in {told}"));
    let bytes = of_purpose["bytes"].as_u64().expect("a number");
    let info = client.bulk("INFO memory");
    let metrics = site.http().get("/metrics").text();
    client.send(&crate::harness::command("MEMORY STATS"));
    let stats: Vec<String> = (0..STATS_LINES).map(|_| client.line()).collect();
    let in_stats = stats.windows(2).any(|lines| lines[0] == purpose && lines[1] == format!(":{bytes}"));
    assert!(info.contains(&format!("\r\nused_memory_{purpose}:")), "{purpose}: {info}");
    assert!(metrics.contains(&format!("\nstrand_used_memory_{purpose} ")), "{purpose}: {metrics}");
    assert!(stats.iter().any(|line| line == purpose), "{purpose}: {stats:?}");
    let in_info = info.contains(&format!("\r\nused_memory_{purpose}:{bytes}\r\n"));
    let in_metrics = metrics.contains(&format!("\nstrand_used_memory_{purpose} {bytes}\n"));
    (in_info && in_metrics && in_stats).then_some(bytes)
}

/// The first lines of MEMORY STATS. They have every purpose.
const STATS_LINES: usize = 70;

#[test]
fn trigram_indexes_and_regular_expressions_are_purposes_of_their_own() {
    let site = site(&["--enable-debug-command", "yes", "--workers", "1"]);
    let mut client = site.resp();
    let is_at = |purpose: &str, bytes: u64| comes_true(|| bytes_of(&site, purpose) == Some(bytes));
    is_at("trigrams", 0);
    is_at("regexes", 0);
    // Beside more data than the small objects that no purpose counts.
    client.call("DEBUG POPULATE 100000 other 200", "+OK\r\n");
    let mut pipeline = Vec::new();
    for i in 0..DOCUMENTS {
        let text = format!("line-{}-of-ticket-{i}-is-{:x}", i % 7, i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        pipeline.extend(crate::harness::command(&format!("SET doc:{i} {text}")));
    }
    client.send(&pipeline);
    (0..DOCUMENTS).for_each(|_| assert_eq!(client.line(), "+OK"));
    client.call("RX.INDEX CREATE i PREFIX doc:", "+OK\r\n");
    comes_true(|| bytes_of(&site, "trigrams") > Some(1 << 20));
    is_at("indexes", 0);
    is_at("regexes", 0);
    client.call("RX.SET s ID a [a-z]{2,60}[0-9] ID b x.{40}y", "+OK\r\n");
    let mut compiled = None;
    comes_true(|| {
        compiled = bytes_of(&site, "regexes");
        compiled > Some(1_000)
    });
    client.call("RX.MATCH s abc1-x0123456789", "*1\r\n$1\r\na\r\n");
    comes_true(|| bytes_of(&site, "regexes") > compiled);
    // The history keeps both, and the ledger still agrees with the allocator.
    comes_true(|| {
        let newest = json(&client.bulk("DIAG LIVE SERIES memory.regexes,memory.trigrams"));
        let value = |name: &str| newest["values"][name].as_f64();
        value("memory.regexes") > Some(0.0) && value("memory.trigrams") > Some(0.0)
    });
    agrees(&mut client, 30e6);
    client.call("RX.INDEX DROP i", "+OK\r\n");
    client.call("RX.DEL s", ":1\r\n");
    is_at("trigrams", 0);
    is_at("regexes", 0);
}

/// Keys under a trigram index: some megabytes of postings.
const DOCUMENTS: u64 = 40_000;

#[test]
fn doctor_says_what_is_wrong_and_with_its_exit_code() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let address = server.address.to_string();
    let mut client = server.connect();
    comes_true(|| json(&client.bulk("DIAG SERIES"))["levels"][0]["rows"].as_u64() > Some(0));
    client.call("DEBUG POPULATE 20000 k 100", "+OK\r\n");
    client.call("CONFIG SET maxmemory 1mb", "+OK\r\n");
    let said = strand(&["doctor", "--server", &address]);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(said.status.code(), Some(3), "{text}");
    assert!(text.contains("alert: ") && text.contains("[maxmemory]") && text.contains("To do: "), "{text}");
    let said = strand(&["doctor", "--server", &address, "--json"]);
    assert_eq!(json(&String::from_utf8_lossy(&said.stdout))["findings"][0]["rule"], "maxmemory");
    // No server listens at this port.
    let port = strand_testkit::process::free_port().expect("loopback has ports");
    let said = strand(&["doctor", "--server", &format!("127.0.0.1:{port}")]);
    assert!(said.status.code() == Some(1) && !said.stderr.is_empty(), "{said:?}");
}

#[test]
fn a_bundle_has_every_entry_and_no_secret() {
    let site = site(&["--requirepass", "planted-secret-1", "--slowlog-log-slower-than", "0"]);
    let mut client = site.resp();
    client.call("AUTH planted-secret-1", "+OK\r\n");
    client.call("ACL SETUSER ann on >planted-secret-2 ~* +@all", "+OK\r\n");
    client.call("CONFIG SET masterauth planted-secret-3", "+OK\r\n");
    // Put secrets where nobody should put them.
    client.call("CLIENT SETNAME planted-secret-1", "+OK\r\n");
    client.call("SET planted-secret-1 planted-secret-4", "+OK\r\n");
    (0..300).for_each(|_| _ = client.bulk("GET planted-secret-1"));
    comes_true(|| json(&client.bulk("DIAG SERIES"))["levels"][0]["rows"].as_u64() > Some(0));
    let output = site.server.folder.0.join("bundle.tar.zst").display().to_string();
    let address = site.server.address.to_string();
    let made =
        strand(&["bundle", "--server", &address, "--password", "planted-secret-1", "--output", &output]);
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(made.status.success(), "{said} {}", String::from_utf8_lossy(&made.stderr));
    let digest = said.lines().find_map(|l| l.strip_prefix("digest ")).expect("it is told").to_string();
    let shown = strand(&["bundle", "show", &output, "--digest", &digest]);
    let list = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.status.success(), "{list}");
    for name in [
        "acl.json",
        "clients.txt",
        "config.json",
        "diag/doctor.json",
        "diag/log.txt",
        "diag/memory.json",
        "diag/phases.json",
        "diag/slowlog.json",
        "diag/system.json",
        "history/seconds.json",
        "imports.json",
        "info.txt",
        "profiles/allocs.folded.txt",
        "profiles/allocs.pb.gz",
        "profiles/heap.folded.txt",
        "profiles/heap.pb.gz",
        "search/indexes.json",
    ] {
        assert!(list.contains(name), "{name} in {list}");
        let entry = strand(&["bundle", "show", &output, "--entry", name]);
        let text = String::from_utf8_lossy(&entry.stdout).into_owned();
        assert!(entry.status.success() && text.len() > 1, "{name}: {text}");
        assert!(!text.contains("planted-secret"), "{name}: {text}");
        assert!(!text.contains("NOPERM") && !text.contains("unknown command"), "{name}: {text}");
    }
    let entry = |name: &str| {
        let said = strand(&["bundle", "show", &output, "--entry", name]);
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    assert!(entry("acl.json").contains("#(digest)") && entry("clients.txt").contains("(redacted)"));
    assert!(entry("diag/slowlog.json").contains("arguments left out"));
    assert!(
        entry("diag/log.txt").contains("Ready to accept connections")
            || !entry("diag/log.txt").trim().is_empty()
    );
    let threads = json(&entry("diag/system.json"))["threads"].as_str().expect("a text").to_string();
    let (_, worker) = threads.split_once(" worker-0 ").unwrap_or_else(|| panic!("{threads}"));
    // The report must have the functions that the worker is in. An older kernel has no descriptors of threads.
    let mut of_worker =
        worker.lines().skip(1).take_while(|line| !line.starts_with(|c: char| c.is_ascii_digit()));
    let is_there = of_worker.any(|line| line.starts_with("    ") && line.contains("strand::driver::worker"));
    assert!(is_there || threads.contains("there are no stacks of the program"), "{threads}");
    // Each of these fails: a changed byte, another digest, an existing output file, a missing right.
    let bytes = std::fs::read(&output).expect("it was written");
    let changed = site.server.folder.0.join("changed");
    let mut bad = bytes.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    std::fs::write(&changed, bad).expect("the folder is ours");
    let refused = strand(&["bundle", "show", &changed.display().to_string()]);
    assert!(refused.status.code() == Some(1) && refused.stdout.is_empty(), "{refused:?}");
    assert_eq!(strand(&["bundle", "show", &output, "--digest", "00"]).status.code(), Some(1));
    let again =
        strand(&["bundle", "--server", &address, "--password", "planted-secret-1", "--output", &output]);
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(std::fs::read(&output).expect("it stays"), bytes);
}

#[test]
fn a_bundle_comes_over_http_too() {
    let site = site(&["--requirepass", "planted-secret-1", "--slowlog-log-slower-than", "0"]);
    let mut client = site.resp();
    client.call("AUTH planted-secret-1", "+OK\r\n");
    client.call("ACL SETUSER ann on >planted-secret-2 ~* +@all", "+OK\r\n");
    client.call("ACL SETUSER watcher on >planted-secret-3 +diag", "+OK\r\n");
    client.call("ACL SETUSER reader on >wonder ~* +@read", "+OK\r\n");
    client.call("CLIENT SETNAME planted-secret-1", "+OK\r\n");
    client.call("SET planted-secret-1 planted-secret-3", "+OK\r\n");
    let login = |word: &str| format!("Authorization: Basic {word}\r\n");
    let mut http = site.http();
    // These are the logins default:planted-secret-1, watcher:planted-secret-3 and reader:wonder.
    let admin = login("ZGVmYXVsdDpwbGFudGVkLXNlY3JldC0x");
    let watcher = login("d2F0Y2hlcjpwbGFudGVkLXNlY3JldC0z");
    let reader = login("cmVhZGVyOndvbmRlcg==");
    let path = |name: &str| site.server.folder.0.join(name).display().to_string();
    let saved = |http: &mut crate::http::Http, login: &str, name: &str| {
        let answer = http.ask("GET /v1/bundle", login, b"");
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, "application/zstd"),
            "{}",
            answer.text()
        );
        std::fs::write(path(name), &answer.body).expect("the folder is ours");
        let shown = strand(&["bundle", "show", &path(name)]);
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        String::from_utf8_lossy(&shown.stdout).into_owned()
    };
    let list = saved(&mut http, &admin, "all.tar.zst");
    let entry = |name: &str, of: &str| {
        let said = strand(&["bundle", "show", &path(name), "--entry", of]);
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let names = list.lines().filter_map(|line| line.trim().split_once("  ").map(|(_, name)| name));
    let names: Vec<&str> = names.filter(|name| name.contains('.')).collect();
    assert!(names.len() >= 26, "{list}");
    for name in names {
        let text = entry("all.tar.zst", name);
        assert!(
            text.len() > 1 && !text.contains("planted-secret") && !text.contains("NOPERM"),
            "{name}: {text}"
        );
    }
    assert!(entry("all.tar.zst", "clients.txt").contains("(redacted)"));
    assert!(entry("all.tar.zst", "acl.json").contains("#(digest)"));
    assert!(entry("all.tar.zst", "diag/slowlog.json").contains("arguments left out"));
    // The bundle has what the user's rights allow. For a forbidden command, the entry says that it is forbidden.
    saved(&mut http, &watcher, "some.tar.zst");
    assert!(entry("some.tar.zst", "config.json").contains("NOPERM"));
    assert!(entry("some.tar.zst", "diag/memory.json").contains("purposes"));
    let refused = http.ask("GET /v1/bundle", &reader, b"");
    assert!(refused.status == 403 && refused.text().contains("NOPERM"), "{}", refused.text());
    assert_eq!(site.http().get("/v1/bundle").status, 401);
    // Ten clients ask at once, but only one bundle is made at a time.
    let ask = || {
        let (mut http, admin) = (site.http(), admin.clone());
        std::thread::spawn(move || http.ask("GET /v1/bundle", &admin, b"").status)
    };
    let threads: Vec<_> = (0..10).map(|_| ask()).collect();
    let told: Vec<u16> = threads.into_iter().map(|thread| thread.join().expect("each is answered")).collect();
    assert!(told.contains(&200) && told.iter().all(|status| matches!(status, 200 | 503)), "{told:?}");
    saved(&mut http, &admin, "again.tar.zst");
}

/// The stacks of a profile as text, with the largest first.
fn folded(kind: &[&str], address: &str) -> String {
    let said = strand(&[&["profile"], kind, &["--server", address, "--folded"]].concat());
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stdout).into_owned()
}

#[test]
fn an_expensive_command_is_in_the_top_rows_of_the_profiles() {
    let site = site(&[]);
    let address = site.server.address.to_string();
    let mut client = site.resp();
    // Put 256 MiB into strings by APPEND.
    let part = "x".repeat(8 << 20);
    for i in 0..32 {
        let key = format!("k:{i:02}");
        client.send(format!("*3\r\n$6\r\nAPPEND\r\n$4\r\n{key}\r\n${}\r\n{part}\r\n", part.len()).as_bytes());
        client.expect(format!(":{}\r\n", part.len()).as_bytes());
    }
    for kind in ["heap", "allocs"] {
        let text = folded(&[kind], &address);
        let sum = |has: &dyn Fn(&str) -> bool| -> u64 {
            let lines = text.lines().filter(|line| has(line));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
        };
        // The memory of a large argument is allocated while it is received (`body_spare`), and then becomes the
        // string.
        let is_culprit = |line: &str| line.starts_with("string;") || line.contains("body_spare");
        let (all, data) = (sum(&|_| true), sum(&is_culprit));
        assert!(all > 200 << 20 && data > all / 2, "{kind}: {data} of {all}: {text}");
    }
    // A bundle has both profiles in both forms, made from one dump.
    let bundle = site.server.folder.0.join("bundle.tar.zst").display().to_string();
    assert!(strand(&["bundle", "--server", &address, "--output", &bundle]).status.success());
    for kind in ["heap", "allocs"] {
        let entry = |form: &str| {
            let name = format!("profiles/{kind}.{form}");
            let said = strand(&["bundle", "show", &bundle, "--entry", &name]);
            String::from_utf8_lossy(&said.stdout).into_owned()
        };
        let is_culprit = |line: &str| line.starts_with("string;") || line.contains("body_spare");
        let text = entry("folded.txt");
        assert!(text.lines().any(is_culprit), "{kind}: {text}");
        assert!(entry("pb.gz").starts_with("\u{1f}\u{fffd}"), "{kind}");
    }
    client.call("DIAG PROFILE MEMORY FOLDED", "-ERR syntax error\r\n");
    // The output is in pprof's format, compressed by gzip. An existing file is not overwritten.
    let output = site.server.folder.0.join("heap.pb.gz").display().to_string();
    let write = || strand(&["profile", "heap", "--server", &address, "--output", &output]);
    assert!(write().status.success());
    assert_eq!(std::fs::read(&output).expect("it was written")[..2], [0x1f, 0x8b]);
    assert_eq!(write().status.code(), Some(1));
    let mut http = site.http();
    let answer = http.get("/debug/pprof/heap");
    assert_eq!((answer.status, answer.body[..2].to_vec()), (200, vec![0x1f, 0x8b]));
    assert_eq!(http.get("/debug/pprof/nothing").status, 404);
    assert_eq!(http.get("/debug/pprof/heap?format=what").status, 400);
    assert_eq!(http.get("/debug/pprof/profile?seconds=0").status, 400);
    // Take a profile of processor time while another client's script runs.
    let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let busy = std::thread::spawn({
        let (mut busy, is_over) = (site.resp(), is_over.clone());
        move || {
            for _ in 0..10_000 {
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                busy.send(b"EVAL \"for i=1,2000000 do local x = i * 2 end return 1\" 0\r\n");
                busy.expect(b":1\r\n");
            }
        }
    });
    comes_true(|| {
        let text = folded(&["cpu", "--seconds", "1"], &address);
        text.lines().next().is_some_and(|line| line.contains("lua"))
    });
    client.send(b"DIAG PROFILE CPU START SECONDS 5\r\n");
    let length: usize = client.line()[1..].parse().expect("a length");
    let number = client.line();
    assert_eq!(number.len(), length);
    let mut second = site.resp();
    second.send(b"DIAG PROFILE CPU START\r\n");
    assert!(second.line().starts_with("-BUSY "));
    assert_eq!(http.get("/debug/pprof/profile?seconds=1").status, 503);
    second.send(b"DIAG PROFILE CPU STOP 1\r\n");
    assert!(second.line().starts_with("-ERR no such profile"));
    // A short profile can be taken, too. Afterwards its number is not valid any more.
    client.bulk(&format!("DIAG PROFILE CPU STOP {number} FOLDED"));
    second.send(format!("DIAG PROFILE CPU STOP {number}\r\n").as_bytes());
    assert!(second.line().starts_with("-ERR no such profile"));
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    busy.join().expect("all its scripts ended well");
}

#[test]
fn reports_are_there_over_http_too() {
    let site = site(&[]);
    let mut http = site.http();
    for name in ["bigkeys", "doctor", "hotkeys", "memory", "phases", "slowlog"] {
        let answer = http.get(&format!("/v1/diag/{name}"));
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, "application/json"),
            "{}",
            answer.text()
        );
        assert!(json(&answer.text()).is_object());
    }
    assert_eq!(http.get("/v1/diag/nothing").status, 404);
    assert_eq!(http.get("/v1/diag/").status, 404);
}

#[test]
fn a_server_can_be_live_but_not_ready() {
    let site = site(&["--dir", "."]);
    let mut http = site.http();
    let ready = http.get("/readyz");
    assert_eq!((ready.status, json(&ready.text())["ready"].as_bool()), (200, Some(true)));
    assert_eq!(http.get("/livez").status, 200);
    // A snapshot cannot be written and there are save points, so writes are refused.
    let mut client = site.resp();
    client.send(b"*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$4\r\nsave\r\n$6\r\n3600 1\r\n");
    client.expect(b"+OK\r\n");
    client.call("SET k v", "+OK\r\n");
    std::fs::create_dir_all(site.server.folder.0.join("dump.rdb/full")).expect("the folder is ours");
    client.send(b"BGSAVE\r\n");
    assert!(client.line().starts_with('+'));
    comes_true(|| http.get("/readyz").status == 503);
    let told = json(&http.get("/readyz").text());
    assert!(told["reasons"][0].as_str().is_some_and(|why| why.contains("writes are refused")), "{told}");
    assert_eq!(http.get("/livez").status, 200);
    assert!(client.bulk("DIAG DOCTOR").contains("persistence"));
    // Writes are not refused any more, and the snapshot still cannot be written.
    client.call("CONFIG SET stop-writes-on-bgsave-error no", "+OK\r\n");
    comes_true(|| http.get("/readyz").status == 200);
    assert!(client.bulk("DIAG DOCTOR").contains("\"snapshot\""));
}

#[test]
fn a_replica_without_its_primary_is_reported() {
    let site = site(&["--replicaof", "127.0.0.1 1"]);
    let (mut http, mut client) = (site.http(), site.resp());
    let doctor = client.bulk("DIAG DOCTOR");
    assert!(doctor.contains("\"primary-link\"") && doctor.contains("read old data"), "{doctor}");
    assert_eq!(http.get("/readyz").status, 200);
    client.call("CONFIG SET replica-serve-stale-data no", "+OK\r\n");
    let told = http.get("/readyz");
    assert!(told.status == 503 && told.text().contains("replica-serve-stale-data"), "{}", told.text());
    assert!(client.bulk("DIAG DOCTOR").contains("get MASTERDOWN"));
}

#[test]
fn the_log_is_json_on_request_and_its_levels_change_at_run_time() {
    let server = Server::start(&["--log-format", "json"]);
    let mut client = server.connect();
    let say = |client: &mut crate::harness::Client, word: &str| {
        let script = format!("redis.log(redis.LOG_DEBUG,'{word}')");
        client.send(format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len()).as_bytes());
        client.expect(b"$-1\r\n");
    };
    let has = |word: &str| server.folder.log_text().contains(word);
    say(&mut client, "first-word");
    client.call("CONFIG SET log-levels strand::driver::host=debug", "+OK\r\n");
    // The new levels take effect a moment later.
    comes_true(|| {
        say(&mut client, "second-word");
        has("second-word")
    });
    let refusal = client.line_of("CONFIG SET log-levels strand::driver::host=off,nothing", 0);
    assert!(refusal.contains("argument must be part=level"), "{refusal}");
    client.call("CONFIG SET log-levels strand::driver::host=off", "+OK\r\n");
    let mut words = 0;
    comes_true(|| {
        words += 1;
        let word = format!("later-word-{words}.");
        say(&mut client, &word);
        !has(&word)
    });
    assert!(!has("first-word"), "{}", server.folder.log_text());
    let log = server.folder.log_text();
    let lines: Vec<Value> = log.lines().map(json).collect();
    let line = lines.iter().find(|line| line["message"].as_str().is_some_and(|m| m.contains("second-word")));
    let line = line.expect("it is there");
    assert_eq!(
        (line["level"].as_str(), line["target"].as_str()),
        (Some("DEBUG"), Some("strand::driver::host"))
    );
    assert!(line["time_ms"].is_u64() && line["thread"].is_string(), "{line}");
}

#[test]
fn systemd_s_watchdog_is_notified() {
    let folder = crate::harness::Folder::new();
    let path = folder.0.join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("the folder is ours");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("not zero");
    let server = Server::start_env(
        &[("NOTIFY_SOCKET", &path.display().to_string()), ("WATCHDOG_USEC", "200000")],
        &["--supervised", "systemd"],
    );
    let mut lives = 0;
    for _ in 0..20 {
        let mut message = [0; 256];
        let bytes = socket.recv(&mut message).expect("it tells its manager");
        lives += usize::from(&message[..bytes] == b"WATCHDOG=1\n");
        if lives == 3 {
            break;
        }
    }
    assert_eq!(lives, 3);
    drop(server);
}

/// Accepts requests like a collector, and returns the body of the next one to `path`.
fn collected(listener: &std::net::TcpListener, path: &str) -> Value {
    use std::io::{Read, Write};
    for _ in 0..20 {
        let (mut stream, _) = listener.accept().expect("the server sends");
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("not zero");
        let mut got = Vec::new();
        let mut part = [0; 65536];
        let (head, body) = loop {
            let length = stream.read(&mut part).expect("the request comes");
            assert!(length > 0, "a whole request comes");
            got.extend_from_slice(&part[..length]);
            let Some(end) = got.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&got[..end]).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let length: usize = length.expect("it is told").parse().expect("a number");
            if got.len() >= end + 4 + length {
                break (head, got[end + 4..].to_vec());
            }
        };
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").expect("the server takes it");
        if head.starts_with(&format!("POST {path} ")) {
            return json(&String::from_utf8_lossy(&body));
        }
    }
    panic!("nothing came to {path}");
}

#[test]
fn a_collector_gets_figures_and_spans_of_slow_commands() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
    let site = site(&["--slowlog-log-slower-than", "0", "--otlp-endpoint", &endpoint]);
    let mut client = site.resp();
    client.call("SET planted-key planted-value", "+OK\r\n");
    (0..300).for_each(|_| client.call("GET planted-key", "$13\r\nplanted-value\r\n"));
    let metrics = collected(&listener, "/v1/metrics");
    let metrics = &metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let used =
        metrics.as_array().expect("an array").iter().find(|metric| metric["name"] == "strand.memory.used");
    assert!(
        used.expect("it is there")["gauge"]["dataPoints"][0]["asDouble"].as_f64() > Some(1e6),
        "{metrics}"
    );
    // A command of less than a microsecond has no phase, and a batch may have only such commands.
    let (mut spans, mut phase) = (Vec::new(), None);
    for _ in 0..10 {
        let traces = collected(&listener, "/v1/traces");
        let text = traces.to_string();
        assert!(!text.contains("planted"), "arguments are data: {text}");
        spans = traces["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("an array").clone();
        phase = spans.iter().find(|span| span["name"] == "executing").cloned();
        if phase.is_some() {
            break;
        }
        (0..300).for_each(|_| client.call("GET planted-key", "$13\r\nplanted-value\r\n"));
    }
    let phase = phase.expect("a batch has a command that took a microsecond");
    let command = spans.iter().find(|span| span["spanId"] == phase["parentSpanId"]).expect("its command");
    assert_eq!((&command["traceId"], command["kind"].as_u64()), (&phase["traceId"], Some(2)));
    // The metrics have this trace as an exemplar, too.
    let mut http = site.http();
    let open =
        http.ask("GET /metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n", b"").text();
    assert!(open.contains(" # {trace_id=\""), "{open}");
}

#[test]
fn metrics_exist_in_prometheus_and_openmetrics_format() {
    let site = site(&[]);
    let mut client = site.resp();
    client.call("PING", "+PONG\r\n");
    let mut http = site.http();
    let plain = http.get("/metrics");
    assert!(
        plain.header("content-type").starts_with("text/plain; version=0.0.4")
            && !plain.text().contains("# EOF")
    );
    let open = http.ask("GET /metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n", b"");
    assert!(open.header("content-type").starts_with("application/openmetrics-text"));
    assert!(open.text().ends_with("# EOF\n") && open.text().contains("# TYPE strand_commands counter\n"));
    for text in [plain.text(), open.text()] {
        assert!(
            text.contains("strand_command_latency_microseconds{command=\"ping\",percentile=\"99\"}"),
            "{text}"
        );
        // Every sample follows the declaration of its metric.
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        assert!(samples.clone().count() > 100 && samples.clone().all(|line| line.starts_with("strand_")));
    }
}
