//! DUMP and RESTORE: options and errors, values that redis-server dumps and restores, and damaged payloads.

use crate::cost::{Cost, LONG_ELEMENTS};
use crate::fixture::{Fixture, START_MS};
use proptest::prelude::*;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use strand_rdb::Crc64;
use strand_testkit::client::Client;
use strand_testkit::process::Server;
use strand_wire::args::Argv;
use strand_wire::client::Value as Reply;

/// The bytes of the bulk string that is the reply.
fn bulk(reply: &[u8]) -> Vec<u8> {
    let (head, rest) = reply.split_at(reply.iter().position(|b| *b == b'\n').expect("a line") + 1);
    assert_eq!(head[0], b'$', "{}", reply.escape_ascii());
    rest[..rest.len() - 2].to_vec()
}

fn text(reply: Vec<u8>) -> String {
    String::from_utf8_lossy(&reply).replace("\r\n", "|")
}

/// A payload with this version and body, and with its correct checksum.
fn sealed(version: u16, body: &[u8]) -> Vec<u8> {
    let mut payload = [body, &version.to_le_bytes()].concat();
    payload.extend_from_slice(&Crc64::of(&payload).to_le_bytes());
    payload
}

#[test]
fn payload_is_restored_with_the_given_options() {
    for all_long in [false, true] {
        let mut f = Fixture::new();
        f.all_long = all_long;
        f.script(&[("SET s hello", "+OK|"), ("HSET h f v g 12", ":2|"), ("DUMP none", "$-1|")]);
        let (s, h) = (bulk(&f.run_args(&["DUMP", "s"])), bulk(&f.run_args(&["DUMP", "h"])));
        let restore = |f: &mut Fixture, key: &str, ttl: &str, payload: &[u8], more: &[&str]| {
            let mut args = vec![b"RESTORE".to_vec(), key.into(), ttl.into(), payload.to_vec()];
            args.extend(more.iter().map(|word| word.as_bytes().to_vec()));
            text(f.run_args(&args))
        };
        assert_eq!(restore(&mut f, "t", "0", &s, &[]), "+OK|");
        assert_eq!(restore(&mut f, "t", "0", &h, &[]), "-BUSYKEY Target key name already exists.|");
        assert_eq!(restore(&mut f, "t", "x", &h, &["FOO"]), "-ERR syntax error|");
        assert_eq!(restore(&mut f, "t", "500", &h, &["replace"]), "+OK|");
        f.script(&[("HGET t g", "$2|12|"), ("PTTL t", ":500|"), ("OBJECT ENCODING t", "$8|listpack|")]);
        let at = (START_MS + 700).to_string();
        assert_eq!(restore(&mut f, "t", &at, &s, &["REPLACE", "ABSTTL"]), "+OK|");
        f.script(&[("PTTL t", ":700|"), ("GET t", "$5|hello|")]);
        assert_eq!(restore(&mut f, "t", "1", &s, &["REPLACE", "ABSTTL"]), "+OK|");
        assert_eq!(f.run("EXISTS t"), ":0|", "it had expired");
        assert_eq!(restore(&mut f, "t", "9223372036854775807", &s, &[]), "+OK|");
        assert_eq!(f.run("EXISTS t"), ":1|");
        assert_eq!(restore(&mut f, "idle", "0", &s, &["IDLETIME", "1000"]), "+OK|");
        assert_eq!(f.run("OBJECT IDLETIME idle"), ":1000|");
        f.keyspace.settings().lfu.store(1, Ordering::Relaxed);
        assert_eq!(restore(&mut f, "often", "0", &s, &["FREQ", "77"]), "+OK|");
        assert_eq!(f.run("OBJECT FREQ often"), ":77|");
        // What replaces a key is as new.
        f.run("SET other v");
        assert_eq!(f.run("COPY other often REPLACE"), ":1|");
        assert_eq!(f.run("OBJECT FREQ often"), ":5|");
        for (ttl, payload, more, error) in [
            ("0", &s[..], &["IDLETIME"][..], "ERR syntax error"),
            ("0", &s, &["IDLETIME", "x"], "ERR value is not an integer or out of range"),
            ("0", &s, &["IDLETIME", "-1"], "ERR Invalid IDLETIME value, must be >= 0"),
            ("0", &s, &["FREQ", "256"], "ERR Invalid FREQ value, must be >= 0 and <= 255"),
            ("0", &s, &["FREQ", "1", "IDLETIME", "1"], "ERR syntax error"),
            ("0", &s, &["IDLETIME", "1", "FREQ", "1"], "ERR syntax error"),
            ("x", &s, &[], "ERR value is not an integer or out of range"),
            ("-1", &s, &[], "ERR Invalid TTL value, must be >= 0"),
            ("0", b"", &[], "ERR DUMP payload version or checksum are wrong"),
            ("0", &s[2..], &[], "ERR DUMP payload version or checksum are wrong"),
            ("0", &sealed(13, b"\0\x01a"), &[], "ERR DUMP payload version or checksum are wrong"),
            ("0", &sealed(10, b""), &[], "ERR Bad data format"),
            ("0", &sealed(10, b"\0\x02a"), &[], "ERR Bad data format"),
            ("0", &sealed(10, b"\x04\0"), &[], "ERR Bad data format"),
            ("0", &sealed(10, b"\x04\x02\x01a\x01b\x01a\x01c"), &[], "ERR Bad data format"),
            ("0", &sealed(10, b"\x07\x00\x00"), &[], "ERR Bad data format"),
            ("0", &sealed(10, b"\x63"), &[], "ERR Bad data format"),
        ] {
            assert_eq!(restore(&mut f, "new", ttl, payload, more), format!("-{error}|"), "{more:?}");
            assert_eq!(f.run("EXISTS new"), ":0|");
        }
    }
}

/// A payload may have fields that are due by now. The journal removes them behind the RESTORE, so the fixture's second
/// keyspace has what this one has.
#[test]
fn due_fields_of_a_payload_expire_after_the_restore() {
    for all_long in [false, true] {
        let mut f = Fixture::new();
        f.all_long = all_long;
        f.script(&[("HSET h f 1.5 g x", ":2|"), ("HPEXPIRE h 100 FIELDS 1 f", "*1|:1|")]);
        f.script(&[("HSET due f 1", ":1|"), ("HPEXPIRE due 100 FIELDS 1 f", "*1|:1|")]);
        let (h, due) = (bulk(&f.run_args(&["DUMP", "h"])), bulk(&f.run_args(&["DUMP", "due"])));
        f.advance_ms(200);
        for key in ["a", "b", "c"] {
            assert_eq!(f.run_args(&[&b"RESTORE"[..], key.as_bytes(), b"0", &h]), b"+OK\r\n");
        }
        f.script(&[("HINCRBY a f 1", ":1|"), ("HSETNX b f new", ":1|"), ("RENAME c d", "+OK|")]);
        f.script(&[("HDEL d g", ":1|"), ("EXISTS d", ":0|")]);
        assert_eq!(f.run_args(&[&b"RESTORE"[..], b"e", b"0", &due]), b"+OK\r\n");
        f.script(&[("EXISTS e", ":0|"), ("SET e text", "+OK|")]);
    }
}

#[test]
fn large_values_are_handled_on_the_lane() {
    let mut f = Fixture::new();
    let mut args = vec!["HSET".to_string(), "h".into()];
    (0..10_000).for_each(|i| args.extend([format!("field{i}"), format!("value{i}")]));
    f.run_args(&args);
    f.pauses.set(0);
    let payload = bulk(&f.run_args(&["DUMP", "h"]));
    assert!(f.pauses.get() > 1, "DUMP pauses");
    f.pauses.set(0);
    assert_eq!(f.run_args(&[&b"RESTORE"[..], b"i", b"0", &payload]), b"+OK\r\n");
    assert!(f.pauses.get() > 100, "RESTORE pauses");
    f.script(&[("HLEN i", ":10000|"), ("HGET i field77", "$7|value77|")]);
    f.run_args(&["SET", "s", &"x".repeat(1 << 20)]);
    f.pauses.set(0);
    let payload = bulk(&f.run_args(&["DUMP", "s"]));
    assert!(payload.len() < 1 << 14 && f.pauses.get() > 10, "a string is compressed in steps");
    assert!(Cost::Payload(0).elements(Argv::from_slices(&[&payload]).args(), 1) >= LONG_ELEMENTS);
    f.run("SET small x");
    let small = bulk(&f.run_args(&["DUMP", "small"]));
    assert!(Cost::Payload(0).elements(Argv::from_slices(&[&small]).args(), 1) < LONG_ELEMENTS);
}

fn redis() -> (Server, Client) {
    let server = Server::redis(&["--enable-debug-command", "yes"], None).expect("redis-server");
    let client = server.connect().expect("a connection");
    (server, client)
}

fn of(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Bulk(bytes) | Reply::Simple(bytes) => bytes.to_vec(),
        other => panic!("no text: {other:?}"),
    }
}

/// Commands that make values of every type that Strand has, small and large. Each comes with the key that it sets.
fn makers() -> Vec<Vec<Vec<u8>>> {
    let words = |line: &str| line.split(' ').map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>();
    let many = |head: &str, each: &dyn Fn(usize) -> String, n: usize| {
        let all: Vec<String> = std::iter::once(head.to_string()).chain((0..n).map(each)).collect();
        words(&all.join(" "))
    };
    vec![
        words("SET k 12345"),
        words("SET k -9223372036854775808"),
        words("SET k 007"),
        words("SET k hello"),
        [words("SET k"), vec![Vec::new()]].concat(),
        [words("SET k"), vec![b"a\0\xff\r\n".repeat(50_000)]].concat(),
        [
            words("SET k"),
            vec![(0..100_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect()],
        ]
        .concat(),
        words("HSET k f v"),
        words("HSET k 1 -1 2 4096 3 99999999999 4 0.5"),
        many("HSET k", &|i| format!("field{i} {}", i * 7), 300),
        many("HSET k", &|i| format!("field{i} {}", "v".repeat(i % 90)), 300),
        many("HSET k", &|i| format!("field{i} value{i}"), 3000),
    ]
}

#[test]
fn values_are_exchanged_with_redis_server() {
    let (_server, mut theirs) = redis();
    for maker in makers() {
        let shown =
            maker[..maker.len().min(3)].iter().map(|w| w.escape_ascii().to_string()).collect::<Vec<_>>();
        let mut ours = Fixture::new();
        ours.run_args(&maker);
        theirs.call(&["FLUSHALL"]).unwrap();
        theirs.call(&maker).unwrap();
        let digest = of_digest(&mut theirs, "k");
        let dumped = bulk(&ours.run_args(&["DUMP", "k"]));
        assert_eq!(of(theirs.call(&[&b"RESTORE"[..], b"l", b"0", &dumped]).unwrap()), b"OK", "{shown:?}");
        assert_eq!(of_digest(&mut theirs, "l"), digest, "{shown:?}: ours restored there");
        let dumped = of(theirs.call(&["DUMP", "k"]).unwrap());
        assert_eq!(ours.run_args(&[&b"RESTORE"[..], b"m", b"0", &dumped]), b"+OK\r\n", "{shown:?}");
        let again = bulk(&ours.run_args(&["DUMP", "m"]));
        assert_eq!(of(theirs.call(&[&b"RESTORE"[..], b"n", b"0", &again]).unwrap()), b"OK", "{shown:?}");
        assert_eq!(of_digest(&mut theirs, "n"), digest, "{shown:?}: theirs restored here");
        let command = ["OBJECT", "ENCODING", "k"];
        let mut encodings = vec![of(theirs.call(&command).unwrap()), bulk(&ours.run_args(&command))];
        encodings.push(bulk(&ours.run_args(&["OBJECT", "ENCODING", "m"])));
        encodings.dedup();
        assert_eq!(encodings.len(), 1, "{shown:?}");
    }
}

fn of_digest(client: &mut Client, key: &str) -> Vec<u8> {
    match client.call(&["DEBUG", "DIGEST-VALUE", key]).unwrap() {
        Reply::Array(all) => of(all.into_iter().next().expect("one digest")),
        other => panic!("no digest: {other:?}"),
    }
}

/// Restores `body` with a correct checksum. Then the key is either missing, or has a value that can be dumped and
/// restored.
fn restore_any(f: &mut Fixture, version: u16, body: &[u8]) {
    f.run("DEL k l");
    let reply = f.run_args(&[&b"RESTORE"[..], b"k", b"0", &sealed(version, body)]);
    let restored = reply == b"+OK\r\n";
    assert!(restored || reply.starts_with(b"-ERR "), "{}", reply.escape_ascii());
    assert_eq!(f.run("EXISTS k"), format!(":{}|", u8::from(restored)));
    if restored {
        let dumped = bulk(&f.run_args(&["DUMP", "k"]));
        assert_eq!(f.run_args(&[&b"RESTORE"[..], b"l", b"0", &dumped]), b"+OK\r\n");
        assert_eq!(f.run("OBJECT ENCODING k"), f.run("OBJECT ENCODING l"));
    }
}

static BODIES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();

/// The values of [`makers`] as DUMP encodes them, without version and checksum. Of long ones only the beginning.
fn bodies() -> Vec<Vec<u8>> {
    let body = |maker: Vec<Vec<u8>>| {
        let mut f = Fixture::new();
        f.run_args(&maker);
        let mut dumped = bulk(&f.run_args(&["DUMP", "k"]));
        dumped.truncate(dumped.len() - 10);
        dumped.truncate(2048);
        dumped
    };
    makers().into_iter().map(body).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_payloads_give_a_whole_value_or_none(
        maker in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        long in any::<bool>(),
    ) {
        let bodies = BODIES.get_or_init(bodies);
        let mut body = bodies[maker.index(bodies.len())].clone();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let mut f = Fixture::new();
        f.all_long = long;
        restore_any(&mut f, 10, &body);
    }

    #[test]
    fn made_up_payloads_give_a_whole_value_or_none(
        value_type in 0u8..32,
        version in prop::sample::select(vec![9u16, 10, 12, 80]),
        body in prop::collection::vec(any::<u8>(), 0..48),
    ) {
        restore_any(&mut Fixture::new(), version, &[&[value_type], &body[..]].concat());
    }
}
