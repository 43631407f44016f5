//! Strand compared with Debian's redis-server: equal commands, equal replies. docs/differences.md lists what may
//! differ. `random.rs` sends random commands; this file has the corpus and all other comparisons.

mod random;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use strand_commands::dispatch;
use strand_commands::spec::CommandSpec;
use strand_engine::TABLE;
use strand_testkit::compare::Policy;
use strand_testkit::differential::{Delivery, Difference, Pair, describe, words};
use strand_testkit::env_number;
use strand_testkit::generate::{Generator, NOT_GENERATED};
use strand_testkit::process::Server;
use strand_testkit::quoting;
use strand_wire::args::Argv;
use strand_wire::client::Value;

/// Commands that are not in redis-server 7.0, or whose documentation differs. The comparison of COMMAND INFO leaves
/// them out.
const NOT_IN_REDIS: &[&str] = &[
    "delex",
    "diag",
    "delif",
    "delifeq",
    "digest",
    "ft._list",
    "ft.changes",
    "ft.create",
    "ft.dropindex",
    "ft.info",
    "ft.search",
    "hexpire",
    "hexpireat",
    "hexpiretime",
    "hgetdel",
    "hgetex",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hpexpiretime",
    "hpttl",
    "hsetex",
    "httl",
    "hreplace",
    "import.status",
    "import.version",
    "blmovem",
    "lmovem",
    "msetex",
    "rx.captures",
    "rx.check",
    "rx.del",
    "rx.findall",
    "rx.grep",
    "rx.index",
    "rx.list",
    "rx.match",
    "rx.replace",
    "rx.set",
    "rx.stats",
    "rx.stream",
    "setif",
    "waitaof",
    "xackdel",
    "xdelex",
];
/// Commands that have arguments of Redis 7.2, so that their arity differs.
const NEWER_THAN_REDIS: &[&str] = &["zrank", "zrevrank"];
/// Subcommands of Redis 7.2 that client libraries send when they connect.
const SUBCOMMANDS_OF_7_2: &[&str] = &["client|setinfo", "client|no-touch"];

fn servers() -> (Server, Server) {
    // Turn the delay after failed logins off, because redis-server does not delay a client.
    let args = &["--login-failures-max", "0"];
    // `make sequences` sets this to the release build.
    let binary = std::env::var_os("STRAND_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_strand").into());
    let strand = Server::strand(Path::new(&binary), args, None).expect("strand starts");
    (strand, Server::redis(&[], None).expect("redis-server is installed (make setup) and starts"))
}

fn corpus_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/corpus");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("the corpus is there").flatten().map(|e| e.path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "txt"));
    files.sort();
    assert!(files.len() >= 4, "only {} corpus files", files.len());
    files
}

#[test]
fn the_corpus_gets_the_same_replies() {
    let (ours, theirs) = servers();
    let mut all: Vec<Difference> = Vec::new();
    let mut commands = 0;
    for file in corpus_files() {
        // The protocol changes only replies, so each byte by itself once is enough.
        for (protocol, delivery) in [(2, Delivery::Whole), (3, Delivery::Whole), (3, Delivery::Bytewise)] {
            let mut pair = Pair::open(&ours, &theirs, protocol, delivery).expect("both answer");
            let (count, differences) = pair.run_corpus(&file).expect("the corpus runs");
            commands += count;
            for mut d in differences {
                d.command = format!(
                    "{} RESP{protocol} {delivery:?}: {}",
                    file.file_name().unwrap_or_default().display(),
                    d.command
                );
                all.push(d);
            }
        }
    }
    println!("{commands} commands of the corpus compared");
    assert!(all.is_empty(), "{}", describe(&all));
}

/// Commands that are neither generated nor in the corpus, each with the place where it is compared.
const NOWHERE_HERE: &[(&str, &str)] = &[
    ("bgrewriteaof", "writes files; own tests"),
    ("bgsave", "writes files; own tests"),
    ("debug", "redis-server is started without it; own tests"),
    ("migrate", "takes a second server; own tests"),
    ("monitor", "changes the connection; own tests"),
    ("pfselftest", "takes a second; it says OK"),
    ("psync", "the connection becomes a replica's; own test"),
    ("quit", "closes the connection; own tests"),
    ("replconf", "as psync; own test"),
    ("save", "writes files; own tests"),
    ("script|debug", "refused by name: there is no debugger"),
    ("shutdown", "ends the server; own tests"),
    ("sync", "as psync; own test"),
];

/// Each command must be generated or in the corpus, so that its reply is compared in RESP2 and in RESP3, including
/// its shape.
#[test]
fn every_command_of_redis_server_is_compared() {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for file in corpus_files() {
        let text = std::fs::read_to_string(&file).expect("the corpus can be read");
        for line in text.lines().map(|line| line.trim().trim_start_matches(['~', '^', '?'])) {
            let words = quoting::split(line).unwrap_or_default();
            let word = |at: usize| words.get(at).map(|word| String::from_utf8_lossy(word).to_lowercase());
            known.extend(word(0));
            known.extend(word(1).and_then(|sub| Some(format!("{}|{sub}", word(0)?))));
        }
    }
    let is_compared = |container: &str, name: &str| {
        let elsewhere = [NOT_IN_REDIS, SUBCOMMANDS_OF_7_2].concat();
        known.contains(name)
            || NOT_GENERATED.iter().all(|(n, _)| *n != container)
            || elsewhere.iter().any(|n| *n == container || *n == name)
            || NOWHERE_HERE.iter().any(|(n, _)| *n == container || *n == name)
    };
    let mut missing = Vec::new();
    for c in TABLE.rows() {
        let names = c.subcommands.iter().map(|s| format!("{}|{}", c.name, s.name));
        let names: Vec<String> = if c.subcommands.is_empty() { vec![c.name.into()] } else { names.collect() };
        missing.extend(names.into_iter().filter(|name| !is_compared(c.name, name)));
    }
    assert!(missing.is_empty(), "neither generated nor in the corpus: {missing:?}");
}

#[test]
fn scan_walks_visit_the_same_keys() {
    let (ours, theirs) = servers();
    let mut walks: Vec<Vec<BTreeSet<Vec<u8>>>> = Vec::new();
    for server in [&ours, &theirs] {
        let mut client = server.connect().expect("answers");
        for i in 0..5_000 {
            client.call(&["SET", &format!("key:{i}"), "v"]).expect("answers");
        }
        for i in 0..300 {
            client.call(&["HSET", &format!("hash:{i}"), "f", "v"]).expect("answers");
            client.call(&["HSET", "big", &format!("field:{i}"), &format!("{i}")]).expect("answers");
            client.call(&["ZADD", "zset", &format!("{i}"), &format!("member:{i}")]).expect("answers");
        }
        let walks_of = [
            &["SCAN", "0"][..],
            &["SCAN", "0", "COUNT", "1000"],
            &["SCAN", "0", "MATCH", "key:1*", "COUNT", "77"],
            &["SCAN", "0", "TYPE", "hash"],
            &["HSCAN", "big", "0", "COUNT", "20"],
            &["HSCAN", "big", "0", "MATCH", "field:*7"],
            &["ZSCAN", "zset", "0", "COUNT", "20"],
            &["ZSCAN", "zset", "0", "MATCH", "member:*7"],
        ];
        walks.push(walks_of.iter().map(|first| walk(&mut |args| client.call(args), first)).collect());
    }
    for (i, (a, b)) in walks[0].iter().zip(&walks[1]).enumerate() {
        assert_eq!(a, b, "walk {i} differs");
        assert!(!a.is_empty());
    }
}

fn walk(call: &mut dyn FnMut(&[&str]) -> io::Result<Value>, first: &[&str]) -> BTreeSet<Vec<u8>> {
    let at = if first[0] == "SCAN" { 1 } else { 2 };
    let (mut cursor, mut seen) = (String::from("0"), BTreeSet::new());
    for _ in 0..100_000 {
        let mut args = first.to_vec();
        args[at] = &cursor;
        let Ok(Value::Array(mut reply)) = call(&args) else { panic!("{first:?} failed") };
        let (Some(Value::Array(items)), Some(Value::Bulk(next))) = (reply.pop(), reply.pop()) else {
            panic!("not a scan reply")
        };
        seen.extend(items.into_iter().map(|v| match v {
            Value::Bulk(b) => b,
            other => panic!("{other:?} in a scan reply"),
        }));
        cursor = String::from_utf8(next).expect("a number");
        if cursor == "0" {
            return seen;
        }
    }
    panic!("{first:?} does not end")
}

#[test]
fn every_command_is_in_the_corpus_or_the_generator() {
    let mut named = BTreeSet::new();
    for file in corpus_files() {
        for line in std::fs::read_to_string(&file).expect("readable").lines().filter(|l| !l.starts_with('#'))
        {
            let args = quoting::split(line.trim_start_matches(['~', '^', '?'])).unwrap_or_default();
            named.extend(args.first().map(|a| String::from_utf8_lossy(a).to_ascii_lowercase()));
        }
    }
    for c in TABLE.rows().iter() {
        let excluded = NOT_GENERATED.iter().any(|(name, _)| *name == c.name);
        let own_tests = NOT_GENERATED.iter().any(|(name, why)| *name == c.name && why.contains("own test"));
        assert!(
            !excluded || own_tests || named.contains(c.name),
            "{} is neither generated nor in a corpus",
            c.name
        );
    }
    for (name, _) in NOT_GENERATED {
        assert!(TABLE.rows().iter().any(|c| c.name == *name), "{name} is excluded and does not exist");
    }
}

#[test]
fn command_info_equals_redis_server_s() {
    let (ours, theirs) = servers();
    // In RESP3, flags and categories are sets, and everything else has an order.
    let mut pair = Pair::open(&ours, &theirs, 3, Delivery::Whole).expect("both answer");
    let mut all = Vec::new();
    let compared = |c: &&CommandSpec| !NOT_IN_REDIS.contains(&c.name) && !NEWER_THAN_REDIS.contains(&c.name);
    for c in TABLE.rows().iter().filter(compared) {
        let mut names: Vec<String> = c.subcommands.iter().map(|s| format!("{}|{}", c.name, s.name)).collect();
        names.retain(|n| !SUBCOMMANDS_OF_7_2.contains(&n.as_str()));
        // A container lists its subcommands, and Strand's list differs from Redis's, so compare each subcommand by
        // itself.
        if c.subcommands.is_empty() {
            names.push(c.name.into());
        }
        for name in names {
            let difference =
                pair.compare(&words(&["COMMAND", "INFO", &name]), Policy::Exact).expect("both answer");
            let real =
                |d: &Difference| !Policy::Exact.accepts(&without_notes(&d.ours), &without_notes(&d.theirs));
            all.extend(difference.filter(real));
        }
    }
    assert!(all.is_empty(), "{}", describe(&all));
}

/// Random rules for a user, then random commands on random keys of that user.
#[test]
fn random_users_have_the_same_rights() {
    const USERS: usize = 150;
    const COMMANDS_EACH: usize = 25;
    const OTHER_RULES: [&str; 22] = [
        "~a",
        "~key:*",
        "~*",
        "~[a-c]",
        "~{tag}x",
        "%R~k*",
        "%W~k*",
        "%R~*",
        "%W~[bc]",
        "%RW~d",
        "resetkeys",
        "+@all",
        "-@all",
        "+get|a",
        "+ping|x",
        "(+get ~a)",
        "(+@read %R~*)",
        "(+@all %W~key:1)",
        "(~b)",
        "clearselectors",
        "reset",
        "+nosuch",
    ];
    let (ours, theirs) = servers();
    let seed = env_number("STRAND_SEED", 7);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut generator = Generator::new(TABLE.rows(), seed, 1_700_000_000);
    let mut pair = Pair::open(&ours, &theirs, 2, Delivery::Whole).expect("both answer");
    let mut names: Vec<String> = Vec::new();
    for c in TABLE.rows().iter().filter(|c| !NOT_IN_REDIS.contains(&c.name)) {
        names.push(c.name.into());
        names.extend(c.subcommands.iter().map(|s| format!("{}|{}", c.name, s.name)));
        names.extend(c.categories().names().map(|category| format!("@{category}")));
    }
    names.retain(|n| !SUBCOMMANDS_OF_7_2.contains(&n.as_str()));
    let mut all = Vec::new();
    for _ in 0..USERS {
        all.extend(
            pair.compare(&words(&["ACL", "SETUSER", "bob", "reset"]), Policy::Exact).expect("both answer"),
        );
        for _ in 0..rng.usize(1..10) {
            let sign = if rng.u8(0..3) == 0 { "-" } else { "+" };
            let rule = match rng.bool() {
                true => format!("{sign}{}", names[rng.usize(0..names.len())]),
                false => OTHER_RULES[rng.usize(0..OTHER_RULES.len())].into(),
            };
            let line = words(&["ACL", "SETUSER", "bob", &rule]);
            all.extend(pair.compare(&line, Policy::Exact).expect("both answer"));
        }
        for _ in 0..COMMANDS_EACH {
            let mut line = words(&["ACL", "DRYRUN", "bob"]);
            line.extend(generator.command());
            // When a command has a wrong number of keys, redis-server checks no key, or it checks the keys that a
            // less strict count finds. Strand checks the keys that it finds.
            let argv = Argv::from_slices(&line[3..]);
            let followed = TABLE.resolve(argv.args()).map(|f| dispatch::key_positions(f.spec, argv.args()));
            if matches!(followed, Ok(Err(_))) {
                continue;
            }
            all.extend(pair.compare(&line, Policy::Exact).expect("both answer"));
        }
    }
    assert!(all.is_empty(), "seed {seed}: {}", describe(&all));
}

/// ACL categories have the commands of redis-server's, for commands that both servers have.
#[test]
fn acl_categories_have_redis_server_s_commands() {
    let (ours, theirs) = servers();
    let mut clients = [&ours, &theirs].map(|s| s.connect().expect("answers"));
    let mut cat = |of: usize, args: &[&str]| -> BTreeSet<String> {
        let Ok(Value::Array(names)) = clients[of].call(args) else { panic!("{args:?} fails") };
        let text =
            |v| if let Value::Bulk(b) = v { String::from_utf8(b).expect("text") } else { panic!("{v:?}") };
        names.into_iter().map(text).collect()
    };
    let categories = cat(1, &["ACL", "CAT"]);
    assert!(categories.len() == 21 && cat(0, &["ACL", "CAT"]).is_superset(&categories));
    let mut known: BTreeSet<String> = BTreeSet::new();
    for c in TABLE.rows().iter().filter(|c| !NOT_IN_REDIS.contains(&c.name)) {
        known.insert(c.name.into());
        known.extend(c.subcommands.iter().map(|s| format!("{}|{}", c.name, s.name)));
    }
    known.retain(|name| {
        !SUBCOMMANDS_OF_7_2.contains(&name.as_str())
            && !NOT_IN_REDIS.iter().any(|c| name.starts_with(&format!("{c}|")))
    });
    for category in &categories {
        let both = |names: &BTreeSet<String>| names.intersection(&known).cloned().collect::<BTreeSet<_>>();
        for words in [&["ACL", "CAT"][..], &["COMMAND", "LIST", "FILTERBY", "ACLCAT"]] {
            let [a, b] = [0, 1].map(|of| cat(of, &[words, &[category.as_str()]].concat()));
            assert_eq!(both(&a), both(&b), "{words:?} {category}");
        }
    }
}

/// Removes the notes of key specs, which are prose and differ.
fn without_notes(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(without_notes).collect()),
        Value::Set(items) => Value::Set(items.iter().map(without_notes).collect()),
        Value::Map(pairs) => {
            let pairs = pairs.iter().filter(|(name, _)| *name != Value::Bulk(b"notes".to_vec()));
            Value::Map(pairs.map(|(name, value)| (name.clone(), without_notes(value))).collect())
        }
        other => other.clone(),
    }
}

/// Compares the answers to raw bytes, until the server closes or stays silent.
#[test]
fn malformed_requests_get_the_same_answer() {
    let (ours, theirs) = servers();
    let cases: &[&[u8]] = &[
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n+5\r\nhello\r\n",
        b"*1\r\n$536870913\r\n",
        b"*1\r\n$-2\r\n",
        b"*1\r\n$abc\r\n",
        b"*abc\r\n",
        b"*-5\r\n*1\r\n$4\r\nPING\r\n",
        b"*0\r\n*1\r\n$4\r\nPING\r\n",
        b"\r\n\r\nPING\r\n",
        b"PING\n",
        b"SET k \"unbalanced\r\n",
        b"SET k 'a b'\r\nGET k\r\n",
        b"SET k \"\\x41\\n\"\r\nGET k\r\n",
        b"GET 'a'b\r\n",
        b"ECHO \"a\"\"b\"\r\n",
        b"nosuchcommand with args\r\n",
        b"GET\r\n",
        b"QUIT\r\nPING\r\n",
        b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
        b"*2\r\n$4\r\nECHO\r\n$5\r\nab\r\nc\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
    ];
    let mut wrong = Vec::new();
    let longs = [
        vec![b'a'; 70_000],
        [b"*".to_vec(), vec![b'1'; 70_000]].concat(),
        [b"*1\r\n$".to_vec(), vec![b'1'; 70_000]].concat(),
    ];
    for case in cases.iter().copied().chain(longs.iter().map(Vec::as_slice)) {
        // A server that gets no processor time seems silent, so it has more time to answer the second time.
        let ask = |ms| [&ours, &theirs].map(|s| raw(s, case, ms).expect("the connection works"));
        let [a, b] = Some(ask(150)).filter(|[a, b]| a == b).unwrap_or_else(|| ask(3000));
        if a != b {
            let shown = |b: &[u8]| String::from_utf8_lossy(&b[..b.len().min(120)]).into_owned();
            let [a, b] = [(shown(&a.0), a.1), (shown(&b.0), b.1)];
            wrong.push(format!("{:?}\n  strand {a:?}\n  redis  {b:?}", shown(case)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The server's answer to `bytes`, and whether it closes. The answer ends with `silence_ms` without a byte.
fn raw(server: &Server, bytes: &[u8], silence_ms: u64) -> io::Result<(Vec<u8>, bool)> {
    let mut client = server.connect()?;
    let stream = client.stream();
    stream.set_read_timeout(Some(Duration::from_millis(silence_ms)))?;
    // The server may close during the write.
    let _ = stream.write_all(bytes);
    let (mut out, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok((out, true)),
            Ok(n) => out.extend_from_slice(&buffer[..n]),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok((out, false));
            }
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok((out, true)),
            Err(e) => return Err(e),
        }
    }
}
