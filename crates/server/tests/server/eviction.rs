//! `maxmemory` compared with redis-server: options, errors and effects.

use crate::harness::{STRAND, is_true_within};
use std::path::Path;
use std::time::Duration;
use strand_testkit::process::Server;
use strand_wire::client::Value;

/// Maximum wait for a condition, in milliseconds.
const TRUE_MS_MAX: u64 = 20_000;
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

struct Peer {
    name: &'static str,
    client: strand_testkit::client::Client,
    server: Server,
}

/// Both servers, with these options.
fn both(options: &[&str]) -> [Peer; 2] {
    let peer = |name, server: Server| Peer { name, client: server.connect().expect("it accepts"), server };
    let redis = Server::redis(options, None).expect("redis-server is installed (make setup) and starts");
    [peer("strand", strand(options)), peer("redis", redis)]
}

fn strand(options: &[&str]) -> Server {
    Server::strand(Path::new(STRAND), options, None).expect("strand starts")
}

impl Peer {
    fn call(&mut self, words: &str) -> Value {
        let words: Vec<&str> = words.split(' ').collect();
        self.client.call(&words).expect("a reply")
    }
    fn int(&mut self, words: &str) -> i64 {
        match self.call(words) {
            Value::Int(n) => n,
            other => panic!("{} {words}: {other:?}", self.name),
        }
    }
    /// A number from the server's INFO.
    fn info(&mut self, field: &str) -> i64 {
        let Value::Bulk(text) = self.call("INFO everything") else { panic!("INFO is text") };
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{} has no number {field}", self.name))
    }
    /// Creates an index, and writes documents until keys are evicted. From then on, more than half of the most keys must
    /// stay.
    #[track_caller]
    fn keeps_most_keys_beside(
        &mut self,
        index: &str,
        (batches, batch_len): (usize, usize),
        mut text: impl FnMut() -> String,
    ) {
        self.call(index);
        let (mut most, mut least_after) = (0, i64::MAX);
        for batch in 0..batches {
            for i in 0..batch_len {
                let document = ["HSET", &format!("d:{batch}:{i}"), "t", &text()];
                self.client.send(&document).expect("it reads");
            }
            for _ in 0..batch_len {
                assert_eq!(self.client.reply().expect("a reply"), Value::Int(1));
            }
            let keys = self.int("DBSIZE");
            most = most.max(keys);
            if self.info("evicted_keys") > 0 {
                least_after = least_after.min(keys);
            }
        }
        assert!(least_after < most, "{index}: {most}: keys are evicted");
        assert!(least_after > most / 2, "{index}: {least_after} of {most}");
    }
    fn set_config(&mut self, name: &str, value: &str) {
        assert_eq!(
            self.call(&format!("CONFIG SET {name} {value}")),
            Value::Simple("OK".into()),
            "{}",
            self.name
        );
    }
    /// Sets `maxmemory` to the memory in use plus `more_bytes`.
    fn limit(&mut self, more_bytes: i64) -> i64 {
        let limit = self.info("used_memory") + more_bytes;
        self.set_config("maxmemory", &limit.to_string());
        limit
    }
    /// Runs SET with a value of `bytes` bytes. Returns true when the value was set, false when memory was denied.
    fn set(&mut self, key: &str, bytes: usize) -> bool {
        match self.client.call(&[b"SET", key.as_bytes(), &vec![b'x'; bytes]]).expect("a reply") {
            Value::Simple(_) => true,
            Value::Error(text) => {
                assert_eq!(String::from_utf8_lossy(&text), OUT_OF_MEMORY, "{}", self.name);
                false
            }
            other => panic!("{}: {other:?}", self.name),
        }
    }
    fn exists(&mut self, key: &str) -> bool {
        self.int(&format!("EXISTS {key}")) == 1
    }
    #[track_caller]
    fn comes_true(&mut self, mut what: impl FnMut(&mut Peer) -> bool) {
        let is_true = is_true_within(Duration::from_millis(TRUE_MS_MAX), || what(self));
        assert!(is_true, "{}: it does not come true", self.name);
    }
}

#[test]
fn maxmemory_options_and_errors_equal_redis_server_s() {
    let [mut strand, mut redis] = both(&["--maxmemory-samples", "7"]);
    for words in [
        "CONFIG GET maxmemory",
        "CONFIG GET maxmemory-samples",
        "CONFIG GET maxmemory-eviction-tenacity",
        "CONFIG GET maxmemory-policy",
        "CONFIG SET maxmemory -1",
        "CONFIG SET maxmemory x",
        "CONFIG SET maxmemory 1tb",
        "CONFIG SET maxmemory 50%",
        "CONFIG SET maxmemory ",
        "CONFIG SET maxmemory kb",
        "CONFIG SET maxmemory +1",
        "CONFIG SET maxmemory 2gb",
        "CONFIG GET maxmemory",
        "CONFIG SET maxmemory-samples 0",
        "CONFIG SET maxmemory-samples 2147483648",
        "CONFIG SET maxmemory-samples 5",
        "CONFIG SET maxmemory-eviction-tenacity 101",
        "CONFIG SET maxmemory-eviction-tenacity -1",
        "CONFIG SET maxmemory-eviction-tenacity 100",
        "CONFIG SET maxmemory-policy lru",
        "SET kept 1",
        "HSET hash a 1",
        "CONFIG SET maxmemory 1",
        "SET key 1",
        "APPEND kept 2",
        "SETRANGE kept 1 2",
        "INCR kept",
        "HSET hash b 2",
        "MSET a 1 b 2",
        "COPY kept copy",
        "GETEX kept EX 100",
        "GET kept",
        "HGETALL hash",
        "PERSIST kept",
        "RENAME kept key",
        "DEL key",
        "HDEL hash a",
        "DBSIZE",
        // With this policy no key may be evicted, so the error comes again.
        "CONFIG SET maxmemory-policy volatile-lru",
        "SET key 1",
        "CONFIG SET maxmemory-policy allkeys-random",
        "SET key 1",
        // A denied call does not report wrong arguments.
        "SET key",
        "SET key 1 FOO",
        "CONFIG SET maxmemory 0",
        "SET key 1",
    ] {
        assert_eq!(strand.call(words), redis.call(words), "{words}");
    }
    for field in ["maxmemory", "evicted_keys"] {
        assert_eq!(strand.info(field), redis.info(field), "{field}");
    }
    for limits in [
        "normal 0 0 +1",
        "normal 0 0 01",
        "normal 0 0 -1",
        "normal 0 0 ",
        "normal 0 0  1",
        "normal 0 0 1 ",
        "\"normal\" 0 0 0",
        "pubsub kb b 1",
        "",
    ] {
        let set = ["CONFIG", "SET", "client-output-buffer-limit", limits];
        let replies = [&mut strand, &mut redis].map(|peer| peer.client.call(&set).expect("a reply"));
        assert_eq!(replies[0], replies[1], "{limits:?}");
        let [ours, theirs] =
            [&mut strand, &mut redis].map(|peer| peer.call("CONFIG GET client-output-buffer-limit"));
        assert_eq!(ours, theirs, "after {limits:?}");
    }
}

#[test]
fn without_eviction_writes_are_denied_until_there_is_room() {
    for mut peer in both(&[]) {
        peer.limit(4 << 20);
        let stored = (0..2000).take_while(|i| peer.set(&format!("key{i}"), 10_000)).count();
        // Other allocations (buffers, caches of threads) take a part of the 4 MiB.
        assert!((150..600).contains(&stored), "{}: {stored}", peer.name);
        assert_eq!(peer.call("GET none"), Value::Null);
        peer.comes_true(|peer| !peer.set("key", 10_000));
        assert_eq!(peer.info("evicted_keys"), 0);
        let delete = |peer: &mut Peer, from: usize| {
            (from..from + 50).for_each(|i| assert_eq!(peer.int(&format!("DEL key{i}")), 1));
        };
        delete(&mut peer, 0);
        peer.comes_true(|peer| peer.set("key", 10_000));
        // One command may exceed the limit by any number of bytes. The next command is denied. (Other threads of the
        // server allocate, too: memory that was enough a moment ago may be too much for a moment.)
        peer.comes_true(|peer| matches!(peer.call("SETRANGE key 100000000 x"), Value::Int(_)));
        peer.comes_true(|peer| !peer.set("other", 1));
        assert_eq!(peer.int("STRLEN key"), 100_000_001);
        assert_eq!(peer.int("DEL key"), 1);
        delete(&mut peer, 50);
        peer.comes_true(|peer| peer.set("other", 1));
    }
}

#[test]
fn lru_keeps_hot_keys_and_the_limit_holds() {
    for policy in ["allkeys-lru", "allkeys-lfu"] {
        for mut peer in both(&["--maxmemory-policy", policy]) {
            // Values so large that the memory of buffers and threads makes no difference.
            (0..600).for_each(|i| assert!(peer.set(&format!("old{i}"), 40_000)));
            if policy == "allkeys-lru" {
                // Uses are distinguished by the second, so wait two seconds.
                peer.comes_true(|peer| peer.int("OBJECT IDLETIME old599") >= 2);
            }
            let limit = peer.limit(4 << 20);
            for i in 0..400 {
                if i % 10 == 0 {
                    (0..50).for_each(|hot| drop(peer.call(&format!("GET old{hot}"))));
                }
                assert!(peer.set(&format!("new{i}"), 40_000), "{} {policy}: new{i}", peer.name);
            }
            let hot = (0..50).filter(|i| peer.exists(&format!("old{i}"))).count();
            let cold = (50..600).filter(|i| peer.exists(&format!("old{i}"))).count();
            assert!(hot >= 45 && cold < 500, "{} {policy}: {hot} of 50 hot, {cold} of 550 cold", peer.name);
            peer.comes_true(|peer| peer.info("used_memory") <= limit + (1 << 20));
            peer.set_config("maxmemory", "0");
            // A slice of eviction may still be running.
            peer.comes_true(|peer| peer.info("evicted_keys") == 1000 - peer.int("DBSIZE"));
            let evicted = peer.info("evicted_keys");
            assert!(evicted > 150, "{} {policy}: {evicted}", peer.name);
            let peak = peer.info("used_memory_peak");
            assert_eq!(peer.call("CONFIG RESETSTAT"), Value::Simple("OK".into()));
            assert_eq!(peer.info("evicted_keys"), 0, "{}", peer.name);
            assert!(peer.info("used_memory_peak") >= peak, "{}", peer.name);
            assert!(peer.info("total_eviction_exceeded_time") < 20_000);
        }
    }
}

#[test]
fn volatile_ttl_evicts_only_the_keys_that_expire_soonest() {
    for mut peer in both(&["--maxmemory-policy", "volatile-ttl"]) {
        for i in 0..300 {
            assert!(peer.set(&format!("ttl{i}"), 160_000) && peer.set(&format!("stays{i}"), 1000));
            peer.int(&format!("EXPIRE ttl{i} {}", 1000 + i * 100));
        }
        // Go over the limit by far more than threads may still allocate, or give back: by about 105 values.
        peer.limit(-(16 << 20));
        peer.comes_true(|peer| peer.set("one more", 1) && peer.info("evicted_keys") >= 85);
        let left: Vec<usize> = (0..300).filter(|i| peer.exists(&format!("ttl{i}"))).collect();
        assert!(left.len() < 220, "{}: {}", peer.name, left.len());
        let mean = left.iter().sum::<usize>() / left.len();
        assert!(mean > 175, "{}: the mean of those left is {mean}", peer.name);
        assert!((0..300).all(|i| peer.exists(&format!("stays{i}"))), "{}", peer.name);
    }
}

#[test]
fn writers_far_over_the_limit_are_denied_without_evictable_keys() {
    let policy = ["--maxmemory-policy", "volatile-lru"];
    let [_, redis] = both(&policy);
    let server = strand(&[&policy[..], &["--shards", "16384"]].concat());
    let client = server.connect().expect("it accepts");
    for mut peer in [Peer { name: "strand", client, server }, redis] {
        // Memory is far over the limit, and the keyspace has more shards than one round visits.
        (0..30).for_each(|i| assert!(peer.set(&format!("stays{i}"), 1 << 20)));
        peer.set("ttl", 1);
        peer.int("EXPIRE ttl 1000");
        peer.set_config("maxmemory", "8mb");
        peer.comes_true(|peer| !peer.set("one more", 1) && peer.info("evicted_keys") == 1);
        assert_eq!(peer.int("EXISTS ttl"), 0, "{}", peer.name);
        // While there may be something to evict, Strand admits a write beyond a limit that was lowered.
        let keys = peer.int("DBSIZE");
        assert!(keys == 30 || (peer.name == "strand" && keys == 31), "{}: {keys}", peer.name);
    }
}

#[test]
fn one_command_larger_than_the_limit_is_denied() {
    let huge = vec![b'x'; 40 << 20];
    for mut peer in both(&["--maxmemory", "20mb"]) {
        let reply = peer.client.call(&[&b"SET"[..], b"huge", &huge]).expect("a reply");
        assert_eq!(reply, Value::Error(OUT_OF_MEMORY.into()), "{}", peer.name);
        // The memory of the denied request is freed soon.
        peer.comes_true(|peer| peer.call("SET small x") == Value::Simple("OK".into()));
        assert_eq!(peer.int("DBSIZE"), 1, "{}", peer.name);
    }
}

#[test]
fn a_result_that_is_larger_than_its_arguments_denies_the_next_writes() {
    for mut peer in both(&[]) {
        type Words<'w> = &'w dyn Fn(usize) -> Vec<String>;
        let writes: [(&str, Words<'_>); 2] = [
            ("BITOP", &|i| vec!["BITOP".into(), "NOT".into(), format!("not{i}"), "big".into()]),
            ("EVAL", &|i| {
                let script = "return redis.call('setrange', KEYS[1], 3000000, 'x')";
                vec!["EVAL".into(), script.into(), "1".into(), format!("eval{i}")]
            }),
        ];
        for (name, words) in writes {
            peer.set_config("maxmemory", "0");
            peer.call("FLUSHALL");
            // Another thread frees the values of the round before.
            peer.comes_true(|peer| peer.info("used_memory") < 8 << 20);
            assert!(peer.set("big", 3_000_000));
            peer.limit(7 << 20);
            let mut is_stored = |i| !matches!(peer.client.call(&words(i)).expect("a reply"), Value::Error(_));
            let stored = (0..20).filter(|i| is_stored(*i)).count();
            // Other memory may become free meanwhile.
            assert!((1..=12).contains(&stored), "{} {name}: {stored}", peer.name);
        }
    }
}

#[test]
fn what_waits_for_a_replica_evicts_no_key() {
    for mut peer in both(&["--maxmemory-policy", "allkeys-lru"]) {
        let no_limit = ["CONFIG", "SET", "client-output-buffer-limit", "replica 0 0 0"];
        assert_eq!(peer.client.call(&no_limit).expect("a reply"), Value::Simple("OK".into()));
        (0..400).for_each(|i| assert!(peer.set(&format!("idle{i}"), 10_000)));
        let mut replica = peer.server.connect().expect("it accepts");
        // It reads nothing, so the whole stream waits in the server.
        replica.send(&["PSYNC", "?", "-1"]).expect("it is sent");
        peer.comes_true(|peer| peer.info("connected_slaves") == 1);
        peer.limit(6 << 20);
        (0..20_000).for_each(|i| assert!(peer.set(&format!("hot{}", i % 10), 5000), "{}: {i}", peer.name));
        assert_eq!((peer.info("evicted_keys"), peer.int("DBSIZE")), (0, 410), "{}", peer.name);
    }
}

#[test]
fn values_that_wait_for_a_replica_too_are_still_data() {
    for mut peer in both(&["--maxmemory-policy", "allkeys-lru"]) {
        let no_limit = ["CONFIG", "SET", "client-output-buffer-limit", "replica 0 0 0"];
        assert_eq!(peer.client.call(&no_limit).expect("a reply"), Value::Simple("OK".into()));
        let mut replica = peer.server.connect().expect("it accepts");
        // It reads nothing, so every value waits for it.
        replica.send(&["PSYNC", "?", "-1"]).expect("it is sent");
        peer.comes_true(|peer| peer.info("connected_slaves") == 1);
        peer.limit(20 << 20);
        let stored = (0..100).filter(|i| peer.set(&format!("key{i}"), 1_000_000)).count();
        assert_eq!(stored, 100, "{}", peer.name);
        peer.comes_true(|peer| peer.int("DBSIZE") < 30);
    }
}

#[test]
fn a_lower_limit_evicts_at_once_without_a_write() {
    for mut peer in both(&["--maxmemory-policy", "allkeys-random"]) {
        (0..500).for_each(|i| assert!(peer.set(&format!("key{i}"), 40_000)));
        let limit = peer.limit(-(8 << 20));
        peer.comes_true(|peer| {
            peer.info("evicted_keys") > 150 && peer.info("used_memory") <= limit + (1 << 20)
        });
        assert!(peer.int("DBSIZE") > 100, "{}", peer.name);
    }
}

#[test]
fn the_text_index_forgets_what_was_evicted() {
    let server = strand(&["--maxmemory-policy", "allkeys-random"]);
    let client = server.connect().expect("it accepts");
    let mut peer = Peer { name: "strand", client, server };
    peer.call("FT.CREATE index PREFIX 1 doc: SCHEMA body TEXT");
    for i in 0..500 {
        let body = format!("common word{i} {}", "x".repeat(5000));
        peer.client.call(&["HSET", &format!("doc:{i}"), "body", &body]).expect("a reply");
    }
    let found = |peer: &mut Peer| match peer.call("FT.SEARCH index common LIMIT 0 0") {
        Value::Array(items) => items[0].clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(found(&mut peer), Value::Int(500));
    // Indexing frees memory as it continues, so set the limit again and again.
    peer.comes_true(|peer| {
        peer.limit(-(1 << 20));
        peer.info("evicted_keys") > 100
    });
    peer.set_config("maxmemory", "0");
    // A slice of eviction may still be running.
    peer.comes_true(|peer| found(peer) == Value::Int(peer.int("DBSIZE")));
    assert!(peer.int("DBSIZE") < 400);
}

#[test]
fn the_memory_of_a_text_index_that_is_about_to_commit_evicts_no_key() {
    const INDEXES: i64 = 4;
    let server = strand(&["--maxmemory-policy", "allkeys-lru"]);
    let mut peer = Peer { name: "strand", client: server.connect().expect("it accepts"), server };
    for i in 0..INDEXES {
        peer.call(&format!("FT.CREATE i{i} PREFIX 1 d: SCHEMA t TEXT"));
    }
    for i in 0..2000 {
        assert!(peer.set(&format!("k{i}"), 500));
    }
    let before = peer.info("used_memory_indexes");
    peer.limit(30 << 20);
    // An index commits its first document at once, and later documents after a second.
    let commits = peer.info("search_commits") + 2 * INDEXES;
    let (mut most, mut documents) = (0, 0);
    let ended = is_true_within(Duration::from_millis(TRUE_MS_MAX), || {
        assert_eq!(peer.int(&format!("HSET d:{documents} t hello")), 1);
        documents += 1;
        most = most.max(peer.info("used_memory_indexes"));
        peer.info("search_commits") >= commits
    });
    assert!(ended, "{} of {commits} commits", peer.info("search_commits"));
    assert!(most - before > INDEXES * (10 << 20), "{before}, {most}: the library needs memory for documents");
    assert_eq!((peer.info("evicted_keys"), peer.int("DBSIZE")), (0, 2000 + documents));
}

/// A commit of a text index needs memory, for which no key must go: evicting keys does not free the memory.
#[test]
fn a_text_index_that_commits_in_time_costs_no_keys() {
    let server = strand(&["--maxmemory-policy", "allkeys-lru", "--maxmemory", "22000000"]);
    let mut peer = Peer { name: "strand", client: server.connect().expect("it accepts"), server };
    let index = "FT.CREATE i PREFIX 1 d: SCHEMA t TEXT";
    peer.keeps_most_keys_beside(index, (150, 100), || "pad ".repeat(400));
}

/// Deleted documents and merges take memory in an index until a merge ends. No key must go for this memory.
#[test]
fn an_index_that_merges_costs_no_keys() {
    for index in ["FT.CREATE i PREFIX 1 d: SCHEMA t TEXT", "RX.INDEX CREATE i PREFIX d:"] {
        let server = strand(&["--maxmemory-policy", "allkeys-lru", "--maxmemory", "40000000"]);
        let mut peer = Peer { name: "strand", client: server.connect().expect("it accepts"), server };
        let mut rng = fastrand::Rng::with_seed(3);
        peer.keeps_most_keys_beside(index, (600, 50), || {
            let words: Vec<String> = (0..160).map(|_| format!("w{}", rng.u32(..5000))).collect();
            words.join(" ")
        });
    }
}

/// What the profiler takes does not count against `maxmemory`.
#[test]
fn no_key_is_evicted_for_a_profile() {
    let server = strand(&["--enable-debug-command", "yes", "--maxmemory-policy", "allkeys-lru"]);
    let (address, client) = (server.address.to_string(), server.connect().expect("it accepts"));
    let mut peer = Peer { name: "strand", client, server };
    peer.call("DEBUG POPULATE 20000 k 1000");
    peer.limit(16 << 20);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cpu.pb.gz").display().to_string();
    let said = crate::harness::strand(&[
        "profile",
        "cpu",
        "--seconds",
        "1",
        "--server",
        &address,
        "--output",
        &file,
    ]);
    assert!(said.status.success(), "{said:?}");
    (0..50).for_each(|_| assert!(peer.set("written", 1)));
    for field in ["used_memory_profiler", "mem_not_counted_for_evict"] {
        assert!(
            is_true_within(Duration::from_millis(TRUE_MS_MAX), || peer.info(field) > 64 << 20),
            "{field}"
        );
    }
    assert!(peer.set("written", 1));
    assert_eq!((peer.info("evicted_keys"), peer.int("DBSIZE")), (0, 20_001));
}

/// Garbage and tables of scripts are no data: they evict no key, whether the interpreter runs or waits.
#[test]
fn no_key_is_evicted_for_the_memory_of_a_script() {
    for mut peer in both(&["--maxmemory-policy", "allkeys-lru", "--maxmemory-samples", "5"]) {
        (0..2000).for_each(|i| _ = peer.call(&format!("SET key:{i} {}", "x".repeat(1000))));
        peer.limit(4 << 20);
        let mut other = peer.server.connect().expect("it accepts");
        let script = "local t = {} for i = 1, 300000 do t[i] = 'some text ' .. i end for i = 1, 20000000 do end return #t";
        for _ in 0..2 {
            other.send(&["EVAL", script, "0"]).expect("sent");
            // The other client writes while the script runs (redis-server lets it wait), and afterwards.
            for i in 0..500 {
                assert_eq!(
                    peer.call(&format!("SET more:{} x", i % 10)),
                    Value::Simple("OK".into()),
                    "{}",
                    peer.name
                );
                std::thread::sleep(Duration::from_micros(200));
            }
            assert_eq!(other.reply().expect("a reply"), Value::Int(300_000), "{}", peer.name);
        }
        assert_eq!((peer.int("DBSIZE"), peer.info("evicted_keys")), (2010, 0), "{}", peer.name);
    }
}
