//! Events of keys over real sockets: the bytes that redis-server sends for writes, expiry and eviction, for scripts and
//! for commands that waited.

use crate::harness::{Client, Server, comes_true, command};
use std::path::Path;
use strand_testkit::process::Server as Process;

/// Commands whose changes have names, in the order of redis-server's events.
const CHANGES: &[&str] = &[
    "SET s 1",
    "SET s 2",
    "SET s 3 EX 100",
    "SET s 4 KEEPTTL",
    "SET s 4 XX GET",
    "SET s 5 NX",
    "SETEX s 100 v",
    "PSETEX s 100000 v",
    "SETNX s v",
    "SETNX t v",
    "GETSET s 1",
    "GETDEL t",
    "GETEX s EX 100",
    "GETEX s PERSIST",
    "GETEX s PERSIST",
    "GETEX s EXAT 1",
    "MSET a 1 b 2",
    "MSETNX a 1 c 2",
    "MSETNX c 1 d 2",
    "APPEND a xyz",
    "SETRANGE a 1 zz",
    "SETRANGE a 0 \"\"",
    "INCR b",
    "DECRBY b 3",
    "INCRBYFLOAT b 1.5",
    "SETBIT bits 7 1",
    "BITFIELD bits SET u8 0 2",
    "BITOP OR bits2 bits a",
    "BITOP AND bits2 no1 no2",
    "PFADD hll a b",
    "PFADD hll a b",
    "PFMERGE hll2 hll",
    "DEL a nosuch",
    "UNLINK b c d",
    "SET k v",
    "EXPIRE k 100",
    "PEXPIRE k 100000 NX",
    "PERSIST k",
    "PERSIST k",
    "EXPIRE k -1",
    "SET k v",
    "SET l v",
    "RENAME k l",
    "RENAMENX l m",
    "SET l v",
    "RENAMENX l m",
    "COPY l n",
    "COPY l n",
    "COPY l n REPLACE",
    "COPY l n DB 1",
    "MOVE l 1",
    "MOVE n 1",
    "SELECT 1",
    "MOVE n 0",
    "DEL l",
    "SELECT 0",
    "HSET h f v",
    "HSET h f v g w",
    "HSETNX h f x",
    "HSETNX h i x",
    "HMSET h f 1",
    "HINCRBY h f 2",
    "HINCRBYFLOAT h f 1.5",
    "HDEL h g nosuch",
    "HDEL h nosuch",
    "HDEL h f i",
    "LPUSH q 1 2",
    "RPUSH q 3",
    "LPUSHX nosuch 1",
    "RPUSHX q 4",
    "LINSERT q BEFORE 3 x",
    "LINSERT q BEFORE no x",
    "LSET q 0 z",
    "LREM q 0 x",
    "LREM q 0 no",
    "LTRIM q 0 10",
    "LPOP q",
    "RPOP q 1",
    "LMOVE q q LEFT RIGHT",
    "LMOVE q p LEFT RIGHT",
    "RPOPLPUSH q p",
    "RPOPLPUSH nosuch p",
    "LMPOP 2 nosuch p LEFT COUNT 10",
    "SADD u 1 2 3",
    "SADD u 1",
    "SREM u 1 9",
    "SREM u 9",
    "SMOVE u w 2",
    "SMOVE u w nosuch",
    "SMOVE u w 3",
    "SPOP w",
    "SADD w 1 2 3",
    "SPOP w 10",
    "SADD w 1 2",
    "SADD x 2 3",
    "SINTERSTORE y w x",
    "SUNIONSTORE y w x",
    "SDIFFSTORE y w x",
    "SINTERSTORE y w nosuch",
    "ZADD z 1 a 2 b 3 c",
    "ZADD z 1 a",
    "ZADD z XX 1 nosuch",
    "ZADD z INCR 1 a",
    "ZINCRBY z 1 a",
    "ZREM z a",
    "ZREM z a",
    "ZPOPMIN z",
    "ZPOPMAX z 5",
    "ZADD z 1 a 2 b 3 c 4 d",
    "ZMPOP 1 z MIN COUNT 1",
    "ZMPOP 1 z MAX",
    "ZREMRANGEBYSCORE z 9 10",
    "ZREMRANGEBYRANK z 0 0",
    "ZADD z 0 a 0 b 0 c",
    "ZREMRANGEBYLEX z [a [a",
    "ZREMRANGEBYSCORE z 0 0",
    "ZADD z 1 a",
    "ZUNIONSTORE z2 1 z",
    "ZINTERSTORE z2 2 z w",
    "ZDIFFSTORE z2 1 z",
    "ZRANGESTORE z3 z 0 -1",
    "ZRANGESTORE z3 nosuch 0 -1",
    "ZUNIONSTORE z2 1 nosuch",
    "GEOADD g 13 38 P 15 37 C",
    "GEOADD g 13 38 P",
    "GEORADIUS g 15 37 200 km STORE g2",
    "GEOSEARCHSTORE g2 g FROMLONLAT 15 37 BYRADIUS 1 m",
    "XADD st 1-1 f v",
    "XADD st MAXLEN 1 2-1 f v",
    "XADD st MAXLEN 9 3-1 f v",
    "XTRIM st MAXLEN 1",
    "XTRIM st MAXLEN 1",
    "XADD st 4-1 f v",
    "XDEL st 4-1",
    "XDEL st 9-1",
    "XSETID st 9-1",
    "XGROUP CREATE st gr 0",
    "XGROUP CREATE st2 gr $ MKSTREAM",
    "XGROUP SETID st gr 0",
    "XGROUP CREATECONSUMER st gr c1",
    "XGROUP CREATECONSUMER st gr c1",
    "XREADGROUP GROUP gr c2 STREAMS st >",
    "XREADGROUP GROUP gr c2 STREAMS st 0",
    "XACK st gr 3-1",
    "XCLAIM st gr c3 0 3-1 FORCE",
    "XAUTOCLAIM st gr c4 0 0",
    "XGROUP DELCONSUMER st gr c1",
    "XGROUP DESTROY st gr",
    "XGROUP DESTROY st gr",
    "MULTI",
    "SET tx 1",
    "INCR tx",
    "LPUSH txl a",
    "RPOP txl",
    "EXEC",
    "RPUSH sl 3 1 2",
    "SORT sl STORE sorted",
    "SORT nosuch STORE sorted",
    "FLUSHALL",
];

/// Commands that only read, and that find missing keys.
const MISSES: &[&str] = &[
    "SET s v",
    "GET nosuch",
    "GET s",
    "EXISTS nosuch s",
    "TTL nosuch",
    "TYPE nosuch",
    "HGET nosuch f",
    "MGET nosuch s",
    "LRANGE nosuch 0 -1",
    "OBJECT ENCODING nosuch",
    "STRLEN nosuch",
    "SMEMBERS nosuch",
    "ZSCORE nosuch m",
    "XLEN nosuch",
    "DEL nosuch",
    "INCR s2",
    "LPOP nosuch",
    "TOUCH nosuch",
    "EVAL redis.call('get','s')redis.call('set',KEYS[1],'1') 1 new",
    "EVAL redis.call('get','s')redis.call('append',KEYS[1],'1')redis.call('rpush',KEYS[2],'1') 2 new2 list2",
    "EVAL redis.call('get','s')redis.call('lrange',KEYS[1],0,-1)redis.call('hgetall',KEYS[1]) 1 nosuch",
    "EVAL redis.call('get','s')redis.call('sinter',KEYS[1],KEYS[2]) 2 nosuch nosuch2",
    "FLUSHALL",
];

/// The events of the commands, as a subscriber of all channels gets them, until the message `end`.
fn events(address: std::net::SocketAddr, letters: &str, lines: &[&str]) -> Vec<String> {
    let (mut listener, mut client) = (Client::connect(address), Client::connect(address));
    client.call(&format!("CONFIG SET notify-keyspace-events {letters}"), "+OK\r\n");
    listener.send(&command("PSUBSCRIBE __key*"));
    (0..6).for_each(|_| _ = listener.line());
    let mut batch = Vec::new();
    for line in lines {
        let words: Vec<String> = line.split(' ').map(|word| word.trim_matches('"').to_string()).collect();
        batch.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        words.iter().for_each(|w| batch.extend_from_slice(format!("${}\r\n{w}\r\n", w.len()).as_bytes()));
    }
    client.send(&batch);
    client.send(&command("PUBLISH __key_end end"));
    let mut found = Vec::new();
    loop {
        // A message has nine lines: *4 $8 pmessage $6 __key* $n channel $m text
        let lines: Vec<String> = (0..9).map(|_| listener.line()).collect();
        if lines[6] == "__key_end" {
            return found;
        }
        found.push(format!("{} {}", lines[6], lines[8]));
    }
}

#[test]
fn key_events_equal_redis_server_s() {
    let theirs = Process::redis(&[], None).expect("redis-server is installed (make setup) and starts");
    let ours =
        Process::strand(Path::new(crate::harness::STRAND), &["--workers", "2"], None).expect("strand starts");
    for (letters, lines) in [
        ("AKE", CHANGES),
        ("KEA$n", CHANGES),
        ("Eg", CHANGES),
        ("K$lsh", CHANGES),
        ("Kz", CHANGES),
        ("Etn", CHANGES),
        ("KEm", MISSES),
    ] {
        let (ours, theirs) = (events(ours.address, letters, lines), events(theirs.address, letters, lines));
        let first =
            ours.iter().zip(&theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
        let around = |all: &[String]| all[first.saturating_sub(2)..(first + 4).min(all.len())].to_vec();
        assert!(
            ours == theirs,
            "{letters}: event {first} of {}: {:?}, redis-server: {:?}",
            theirs.len(),
            around(&ours),
            around(&theirs)
        );
        assert!(!ours.is_empty(), "{letters}");
    }
}

/// Scripts that start on a worker, are undone there, and run again elsewhere. Their events come once and in order,
/// with the scripts' own messages.
const SCRIPTS: &[&str] = &[
    "EVAL redis.call('set',KEYS[1],'v')redis.call('publish','__key_own','m')redis.call('incr',KEYS[2]) 2 a n",
    "EVAL redis.call('set',KEYS[1],'v')redis.call('incr',KEYS[1])for\ti=1,300000\tdo\tend\tredis.call('del',KEYS[1]) 1 a",
    "EVAL redis.call('incr',KEYS[1])redis.call('publish','__key_own','m')redis.call('rpush','list','x') 1 n",
    "EVAL redis.call('rpop','list')redis.call('incr',KEYS[1])redis.call('get','nosuch') 1 n",
    "EVAL redis.call('set',KEYS[1],'v')redis.call('flushall')redis.call('set',KEYS[1],'w') 1 a",
    "EVAL redis.call('incr',KEYS[1])return(redis.call('incr',KEYS[2])) 2 n a",
    "EVAL for\ti=1,2000\tdo\tredis.call('incr',KEYS[1])end 1 n",
    "EVAL for\ti=1,50000\tdo\tredis.call('incr',KEYS[1])end 1 n",
    "EVAL redis.call('set',KEYS[1],'v','pxat',1000)return(redis.call('get',KEYS[1])) 1 e",
    "EVAL redis.call('set',KEYS[1],'v','pxat',1000)redis.call('get',KEYS[1])redis.call('set','un','v')redis.call('get',KEYS[1]) 1 e",
    "EVAL redis.call('set',KEYS[1],'v','pxat',1000)redis.call('get',KEYS[1])for\ti=1,300000\tdo\tend\tredis.call('set',KEYS[1],'w') 1 e",
    "DEL n a e un",
];

/// Long scripts that write several keys. Their events come key by key.
const LONG_SCRIPTS: &[&str] = &[
    "EVAL redis.call('set',KEYS[1],'v')redis.call('incr',KEYS[2])for\ti=1,300000\tdo\tend\tredis.call('del',KEYS[1]) 2 a n",
    "EVAL for\ti=1,3000\tdo\tredis.call('incr',KEYS[1])redis.call('set','un'..i,'v')end 1 n",
];

/// Transactions in which a key expires that the transaction has made. Without a read of a long list, the transaction runs
/// on a worker. With that read, it runs on copies.
fn expiring_in_exec(is_long: bool) -> Vec<&'static str> {
    let read = if is_long { "LRANGE long 0 -1" } else { "LLEN long" };
    vec![
        "EVAL for\ti=1,5000\tdo\tredis.call('rpush',KEYS[1],i)end 1 long",
        "MULTI",
        "SET e v PXAT 1000",
        "GET e",
        "SADD e 1",
        read,
        "EXEC",
        "DEL e",
        "MULTI",
        "SET e v",
        read,
        "PEXPIREAT e 1000",
        "SET e v PXAT 1000",
        "HSET e f v",
        "EXEC",
        "DEL e long",
    ]
}

#[test]
fn events_of_keys_that_expire_in_the_transaction_that_made_them_equal_redis_server_s() {
    let theirs = Process::redis(&[], None).expect("redis-server is installed (make setup) and starts");
    let ours =
        Process::strand(Path::new(crate::harness::STRAND), &["--workers", "2"], None).expect("strand starts");
    for is_long in [false, true] {
        let lines = expiring_in_exec(is_long);
        assert_eq!(events(ours.address, "AKE", &lines), events(theirs.address, "AKE", &lines), "{is_long}");
    }
    let expired = |of: &Process| {
        let stats = Client::connect(of.address).bulk("INFO stats");
        stats.lines().find(|line| line.starts_with("expired_keys:")).map(str::to_owned)
    };
    assert_eq!(expired(&ours).as_deref(), Some("expired_keys:4"));
    assert_eq!(expired(&ours), expired(&theirs));
}

#[test]
fn events_of_scripts_come_once_even_after_a_restart() {
    let theirs = Process::redis(&[], None).expect("redis-server is installed (make setup) and starts");
    let ours =
        Process::strand(Path::new(crate::harness::STRAND), &["--workers", "2"], None).expect("strand starts");
    for (lines, is_key_by_key) in [(SCRIPTS, false), (LONG_SCRIPTS, true)] {
        let (mut ours, mut theirs) =
            (events(ours.address, "AKE", lines), events(theirs.address, "AKE", lines));
        if is_key_by_key {
            ours.sort();
            theirs.sort();
        }
        let first = ours.iter().zip(&theirs).position(|(a, b)| a != b);
        assert_eq!(first.map(|at| (at, &ours[at], &theirs[at])), None);
        assert_eq!(ours.len(), theirs.len());
    }
}

/// A blocked call, and the command that serves it.
const SERVED: &[(&str, &str)] = &[
    ("BLPOP l 0", "RPUSH l 1"),
    ("BRPOP l 0", "RPUSH l 1 2"),
    ("BLMOVE a b LEFT RIGHT 0", "RPUSH a 1"),
    ("BRPOPLPUSH a b 0", "LPUSH a 1 2"),
    ("BLMPOP 0 2 x y LEFT COUNT 2", "RPUSH y 1 2 3"),
    ("BZPOPMIN z 0", "ZADD z 1 m"),
    ("BZPOPMAX z 0", "ZADD z 1 m 2 n"),
    ("BZMPOP 0 1 zz MIN", "ZADD zz 1 m"),
    ("XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "XADD s 1-1 f v"),
    ("XREAD BLOCK 0 STREAMS s $", "XADD s 2-1 f v"),
];

/// The events of each step of [`SERVED`].
fn served_events(address: std::net::SocketAddr) -> Vec<String> {
    let (mut listener, mut pusher) = (Client::connect(address), Client::connect(address));
    pusher.call("CONFIG SET notify-keyspace-events AKE", "+OK\r\n");
    pusher.call("XGROUP CREATE s g $ MKSTREAM", "+OK\r\n");
    listener.send(&command("PSUBSCRIBE __key*"));
    (0..6).for_each(|_| _ = listener.line());
    let mut found = Vec::new();
    for (wait, push) in SERVED {
        let mut waiter = Client::connect(address);
        waiter.send(&command(wait));
        comes_true(|| pusher.bulk("INFO clients").contains("blocked_clients:1"));
        pusher.send(&command(push));
        let reply = pusher.line();
        if reply.starts_with('$') {
            pusher.line();
        }
        // The blocked call is served.
        waiter.line();
        pusher.send(&command("PUBLISH __key_end end"));
        pusher.line();
        loop {
            let lines: Vec<String> = (0..9).map(|_| listener.line()).collect();
            if lines[6] == "__key_end" {
                break;
            }
            found.push(format!("{wait}: {} {}", lines[6], lines[8]));
        }
    }
    found
}

#[test]
fn events_of_served_blocked_calls_equal_redis_server_s() {
    let theirs = Process::redis(&[], None).expect("redis-server is installed (make setup) and starts");
    for workers in ["1", "3"] {
        let ours = Process::strand(Path::new(crate::harness::STRAND), &["--workers", workers], None);
        let ours = served_events(ours.expect("strand starts").address);
        assert!(ours.len() > 2 * SERVED.len());
        assert_eq!(ours, served_events(theirs.address), "{workers} workers");
        Client::connect(theirs.address).call("FLUSHALL", "+OK\r\n");
    }
}

#[test]
fn expiry_and_eviction_send_events() {
    let server = Server::start(&[
        "--workers",
        "2",
        "--enable-debug-command",
        "yes",
        "--notify-keyspace-events",
        "Exe",
    ]);
    let mut listener = server.connect();
    listener.send(&command("PSUBSCRIBE __keyevent@*"));
    (0..6).for_each(|_| _ = listener.line());
    let mut client = server.connect();
    // No client looks at the first key, so active expiry finds it. A look-up finds the second key.
    client.call("SET lone v PX 1", "+OK\r\n");
    let (mut channel, mut key) = (String::new(), String::new());
    let mut next = |listener: &mut Client| {
        (0..7).for_each(|_| channel = listener.line());
        (0..2).for_each(|_| key = listener.line());
        format!("{channel} {key}")
    };
    assert_eq!(next(&mut listener), "__keyevent@0__:expired lone");
    client.call("DEBUG SET-ACTIVE-EXPIRE 0", "+OK\r\n");
    client.call("SELECT 3", "+OK\r\n");
    client.call("SET looked-at v PX 1", "+OK\r\n");
    comes_true(|| client.line_of("EXISTS looked-at", 0) == ":0");
    assert_eq!(next(&mut listener), "__keyevent@3__:expired looked-at");
    client.call("CONFIG SET maxmemory-policy allkeys-random", "+OK\r\n");
    client.call("SET victim v", "+OK\r\n");
    client.call("CONFIG SET maxmemory 1", "+OK\r\n");
    client.send(&command("SET more v"));
    assert_eq!(next(&mut listener), "__keyevent@3__:evicted victim");
}

/// Steps on hashes whose fields expire, and the events that Redis 7.4 sends.
const FIELDS: &[(&str, &str)] = &[
    ("HSET h a 1 b 2 c 3", "hset"),
    ("HPEXPIREAT h 4152300156125 FIELDS 2 a b", "hexpire"),
    ("HPERSIST h FIELDS 1 a", "hpersist"),
    ("HPEXPIREAT h 1 FIELDS 1 a", "hdel"),
    ("HGETEX h EX 1000 FIELDS 2 b c", "hexpire"),
    ("HGETEX h PERSIST FIELDS 2 b nosuch", "hpersist"),
    ("HGETEX h PXAT 1 FIELDS 2 b b", "hdel"),
    ("HGETEX h FIELDS 1 c", ""),
    ("HSETEX h EX 1000 FIELDS 2 d 1 e 2", "hset hexpire"),
    ("HSETEX h FIELDS 1 d 1", "hset"),
    ("HSETEX h PXAT 1 FIELDS 1 d 1", "hset hdel"),
    ("HGETDEL h FIELDS 2 e e", "hdel"),
    ("HPEXPIRE h 0 FIELDS 1 c", "hdel del"),
    ("HSETEX h PX 1 FIELDS 2 a 1 b 2", "hset hexpire hexpired del"),
    ("HSET h lasting v", "hset"),
    ("HSETEX h PX 1 FIELDS 2 a 1 b 2", "hset hexpire hexpired"),
    ("HSETEX h FNX PXAT 1 FIELDS 1 lasting v", ""),
    ("HSETEX h FXX PXAT 1 FIELDS 1 lasting v", "hset hdel del"),
    // Nothing is created.
    ("HSETEX h PXAT 1 FIELDS 1 a v", ""),
    ("HSET h a v", "hset"),
];

/// MSETEX of a few keys runs on the worker, of thousands of keys beside it.
#[test]
fn msetex_sends_the_events_of_set() {
    let server = Server::start(&["--workers", "1", "--notify-keyspace-events", "KEA"]);
    let (mut listener, mut client) = (server.connect(), server.connect());
    listener.send(&command("PSUBSCRIBE __keyspace@0__:k7"));
    (0..6).for_each(|_| _ = listener.line());
    let long: Vec<String> = (0..5000).map(|n| format!("k{n} v")).collect();
    let long = format!("MSETEX 5000 {}", long.join(" "));
    for (step, events) in [
        ("MSETEX 2 k6 v k7 v EX 100", "set expire"),
        ("MSETEX 2 k6 v k7 v KEEPTTL", "set"),
        ("MSETEX 1 k7 v", "set"),
        (&format!("{long} EX 100"), "set expire"),
        (&format!("{long} XX PX 100000"), "set expire"),
        (&format!("{long} KEEPTTL"), "set"),
        (&long, "set"),
    ] {
        client.send(&command(step));
        for event in events.split(' ') {
            let last = (0..9).map(|_| listener.line()).last();
            assert_eq!(last.as_deref(), Some(event), "{}", &step[..step.len().min(40)]);
        }
    }
}

#[test]
fn expiry_of_fields_sends_events() {
    let server = Server::start(&["--workers", "2", "--notify-keyspace-events", "KEA"]);
    let (mut listener, mut client) = (server.connect(), server.connect());
    listener.send(&command("PSUBSCRIBE __keyspace@0__:h"));
    (0..6).for_each(|_| _ = listener.line());
    for (step, events) in FIELDS {
        client.send(&command(step));
        for event in events.split(' ').filter(|event| !event.is_empty()) {
            assert_eq!((0..9).map(|_| listener.line()).last().as_deref(), Some(event), "{step}");
        }
    }
    // No unexpected event came.
    client.send(&command("DEL h"));
    assert_eq!((0..9).map(|_| listener.line()).last().as_deref(), Some("del"));
}
