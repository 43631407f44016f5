//! INFO TIME SHUTDOWN DEBUG LOLWUT and the statistics.

use crate::fixture::{Asked, End, Peer, Server, Stop};

fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let start =
        info.find(&format!("|{name}:")).unwrap_or_else(|| panic!("{name} in {info}")) + name.len() + 2;
    &info[start..start + info[start..].find('|').expect("lines end")]
}

#[test]
fn info_has_redis_s_sections_and_fields() {
    let mut server = Server::new();
    let mut peer = server.connect();
    peer.script(
        &server,
        &[
            ("SET a 1 EX 100", "+OK|"),
            ("SET b 2", "+OK|"),
            ("INFO nosuch", "$0||"),
            ("INFO modules", "$11|# Modules||"),
        ],
    );
    server.advance_ms(90_000_000);
    peer.script(
        &server,
        &[
            ("SELECT 3", "+OK|"),
            ("SET c 3", "+OK|"),
            ("GET", "-ERR wrong number of arguments for 'get' command|"),
            ("INCR c", ":4|"),
            ("HGET c f", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ],
    );
    let info = peer.run(&server, "INFO everything");
    for (name, want) in [
        ("redis_version", "7.0.15"),
        ("strand_version", env!("CARGO_PKG_VERSION")),
        ("process_id", "42"),
        ("tcp_port", "6379"),
        ("uptime_in_seconds", "90000"),
        ("uptime_in_days", "1"),
        ("connected_clients", "1"),
        ("used_memory", "1048576"),
        ("used_memory_human", "1.00M"),
        ("mem_fragmentation_ratio", "3.00"),
        ("total_connections_received", "1"),
        ("rejected_connections", "0"),
        ("used_cpu_sys", "1.000002"),
        ("used_cpu_user", "0.000003"),
        ("role", "master"),
        ("cluster_enabled", "0"),
        ("search_indexes", "0"),
        ("cmdstat_set", "calls=3,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0"),
        ("cmdstat_get", "calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0"),
        ("cmdstat_hget", "calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1"),
        ("errorstat_ERR", "count=1"),
        ("errorstat_WRONGTYPE", "count=1"),
        ("db3", "keys=1,expires=0,avg_ttl=0,subexpiry=0"),
    ] {
        assert_eq!(field(&info, name), want, "{name}");
    }
    assert_eq!(field(&info, "run_id").len(), 40);
    let default = peer.run(&server, "INFO");
    assert!(
        default.contains("# Server|")
            && default.contains("|# Keyspace|")
            && !default.contains("# Commandstats")
    );
    let two = peer.run(&server, "INFO clients CPU");
    assert!(two.contains("# Clients|") && two.contains("||# CPU|") && !two.contains("# Server"), "{two}");
    assert!(peer.run(&server, "INFO all").contains("# Commandstats|"));
    peer.run(&server, "HELLO 3");
    assert_eq!(peer.run(&server, "INFO modules"), "=15|txt:# Modules||");
}

#[test]
fn ticks_make_rates_and_expire_keys() {
    let mut server = Server::new();
    let mut peer = server.connect();
    for _ in 0..20 {
        (0..50).for_each(|_| drop(peer.run(&server, "PING")));
        server.advance_ms(100);
        server.engine.tick(server.now);
    }
    let ops: u64 = field(&peer.run(&server, "INFO stats"), "instantaneous_ops_per_sec").parse().unwrap();
    assert!((400..=600).contains(&ops), "{ops}");
    peer.run(&server, "SET a 1 PX 50");
    // Fields of hashes expire, too: two by themselves, and one when a client reads the hash.
    for hash in ["h", "read"] {
        peer.run(&server, &format!("HSET {hash} a 1 b 2 c 3"));
    }
    peer.run(&server, "HPEXPIRE h 50 FIELDS 2 a b");
    server.advance_ms(100);
    (0..20).for_each(|_| server.engine.tick(server.now));
    peer.run(&server, "HPEXPIRE read 10 FIELDS 1 a");
    server.advance_ms(20);
    peer.run(&server, "HLEN read");
    let stats = peer.run(&server, "INFO stats");
    assert_eq!(["expired_keys", "expired_subkeys"].map(|name| field(&stats, name)), ["1", "3"]);
    peer.run(&server, "CONFIG RESETSTAT");
    assert_eq!(field(&peer.run(&server, "INFO stats"), "expired_subkeys"), "0");
}

#[test]
fn time_is_the_driver_s() {
    let mut server = Server::new();
    let mut peer = server.connect();
    assert_eq!(peer.run(&server, "TIME"), "*2|$10|1700000000|$6|123456|");
}

#[test]
fn shutdown_asks_the_host() {
    let mut server = Server::new();
    let (mut peer, mut later) = (server.connect(), server.connect());
    peer.script(
        &server,
        &[
            ("SHUTDOWN FOO", "-ERR syntax error|"),
            ("SHUTDOWN NOSAVE SAVE", "-ERR syntax error|"),
            ("SHUTDOWN NOW ABORT", "-ERR syntax error|"),
            ("SHUTDOWN ABORT", "-ERR No shutdown in progress.|"),
            ("SHUTDOWN SAVE", "-ERR Errors trying to SHUTDOWN. Check logs.|"),
        ],
    );
    assert!(server.asked.try_iter().next().is_none());
    assert_eq!(peer.run(&server, "SHUTDOWN NOSAVE NOW"), "");
    assert_eq!(peer.ended, Some(End::Close));
    assert!(matches!(server.asked.try_recv(), Ok(Asked::Shutdown(r)) if r.now && !r.force));
    // The server stops already: another SHUTDOWN ends its connection, and ABORT comes too late.
    assert_eq!(later.run(&server, "SHUTDOWN ABORT"), "-ERR No shutdown in progress.|");
    assert_eq!(later.run(&server, "SHUTDOWN SAVE"), "");
    assert_eq!(later.ended, Some(End::Close));
}

#[test]
fn debug_is_off_unless_allowed() {
    let not_allowed = "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run \
        it from a local connection, otherwise you need to set this option in the configuration file, and then restart the \
        server.|";
    let mut server = Server::with("enable-debug-command local\nrequirepass x\nprotected-mode no");
    let (mut near, mut far) = (server.connect(), server.try_connect(false).unwrap());
    assert_eq!(
        far.run(&server, "DEBUG SLEEP 0"),
        not_allowed,
        "this comes before the password, as in redis-server"
    );
    assert_eq!(near.run(&server, "DEBUG SLEEP 0"), "-NOAUTH Authentication required.|");
    let mut server = Server::new();
    assert_eq!(server.connect().run(&server, "DEBUG OBJECT a"), not_allowed);
}

#[test]
fn debug_sleep_stops_its_own_session_only() {
    let mut server = Server::with("enable-debug-command yes");
    let (mut a, mut b) = (server.connect(), server.connect());
    a.feed(b"DEBUG SLEEP 1.5\r\nPING\r\n", 99);
    assert_eq!(a.drive(&server), Stop::Sleep(server.now.mono_us + 1_500_000));
    assert_eq!(b.run(&server, "PING"), "+PONG|");
    server.advance_ms(1000);
    assert!(matches!(a.drive(&server), Stop::Sleep(_)));
    server.advance_ms(500);
    assert_eq!((a.drive(&server), a.replies().as_str()), (Stop::Read, "+OK|+PONG|"));
    a.script(&server, &[("DEBUG SLEEP x", ""), ("PING", "+OK|+PONG|")]);
}

#[test]
fn debug_digests_are_those_of_redis_server() {
    let mut server = Server::with("enable-debug-command yes");
    let mut peer = server.connect();
    peer.script(
        &server,
        &[
            ("DEBUG DIGEST", "+0000000000000000000000000000000000000000|"),
            ("SET a 1", "+OK|"),
            ("HSET h f v g 12", ":2|"),
            ("SET e x PX 100000000", "+OK|"),
            ("SELECT 3", "+OK|"),
            ("SET a 1", "+OK|"),
            // These are the replies of redis-server 7.0.15.
            ("DEBUG DIGEST", "+5b423277ce84bd3ecf4c9bd97eb94fae6457d3a7|"),
            (
                "DEBUG DIGEST-VALUE a nokey",
                "*2|+b4fc66738120fba0b5aa500ab5c2bf89cea1c5da|+0000000000000000000000000000000000000000|",
            ),
            ("SELECT 0", "+OK|"),
            (
                "DEBUG DIGEST-VALUE h e",
                "*2|+8530acc75d5274eb0fc0da86f28ed5533274a6d4|+0745672cb1bf060476eedeb8a28f5ffe1ff5a2be|",
            ),
            ("DEBUG DIGEST-VALUE", "*0|"),
            (
                "DEBUG DIGEST x",
                "-ERR unknown subcommand or wrong number of arguments for 'DIGEST'. Try DEBUG HELP.|",
            ),
        ],
    );
}

#[test]
fn debug_helps_tests_of_clients() {
    let mut server = Server::with("enable-debug-command yes");
    let mut peer = server.connect();
    peer.script(
        &server,
        &[
            ("DEBUG FOO", "-ERR unknown subcommand or wrong number of arguments for 'FOO'. Try DEBUG HELP.|"),
            (
                "DEBUG SLEEP",
                "-ERR unknown subcommand or wrong number of arguments for 'SLEEP'. Try DEBUG HELP.|",
            ),
            ("DEBUG OBJECT nokey", "-ERR no such key|"),
            ("DEBUG ERROR 'foo bar'", "-foo bar|"),
            ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK|"),
            ("DEBUG PROTOCOL double", "$5|3.141|"),
            ("DEBUG PROTOCOL map", "*6|:0|:0|:1|:1|:2|:0|"),
            ("DEBUG PROTOCOL push", "-ERR RESP2 is not supported by this command|"),
            ("DEBUG PROTOCOL bignum", "$37|1234567999999999999999999999999999999|"),
        ],
    );
    assert!(
        peer.run(&server, "DEBUG PROTOCOL x")
            .starts_with("-ERR Wrong protocol type name. Please use one of the following: string|")
    );
    peer.run(&server, "SET k v");
    let object = peer.run(&server, "DEBUG OBJECT k");
    assert!(object.starts_with("+Value at:0x") && object.contains(" encoding:embstr "), "{object}");
    peer.run(&server, "HELLO 3");
    peer.script(
        &server,
        &[
            ("DEBUG PROTOCOL string", "$11|Hello World|"),
            ("DEBUG PROTOCOL double", ",3.141|"),
            ("DEBUG PROTOCOL null", "_|"),
            ("DEBUG PROTOCOL set", "~3|:0|:1|:2|"),
            ("DEBUG PROTOCOL map", "%3|:0|#f|:1|#t|:2|#f|"),
            (
                "DEBUG PROTOCOL attrib",
                "|1|$14|key-popularity|*2|$7|key:123|:90|$39|Some real reply following the attribute|",
            ),
            (
                "DEBUG PROTOCOL push",
                ">2|$16|server-cpu-usage|:42|$40|Some real reply following the push reply|",
            ),
            ("DEBUG PROTOCOL verbatim", "=29|txt:This is a verbatim\nstring|"),
            ("DEBUG PROTOCOL true", "#t|"),
            ("DEBUG PROTOCOL bignum", "(1234567999999999999999999999999999999|"),
        ],
    );
}

#[test]
fn lolwut_names_both_versions() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let art = peer.run(&server, "LOLWUT");
    assert!(art.ends_with(&format!("Strand {}. Redis ver. 7.0.15\n|", env!("CARGO_PKG_VERSION"))), "{art}");
    assert!(art.contains('o'));
    peer.script(&server, &[("LOLWUT VERSION x", "-ERR value is not an integer or out of range|")]);
}

#[test]
fn the_command_family_reads_the_table() {
    let mut server = Server::new();
    let mut peer = server.connect();
    assert_eq!(peer.run(&server, "COMMAND GETKEYS GET k"), "*1|$1|k|");
    assert!(peer.run(&server, "COMMAND COUNT").starts_with(':'));
    peer.script(
        &server,
        &[
            ("COMMAND GETKEYS PING x", "-ERR The command has no key arguments|"),
            ("COMMAND FOO", "-ERR unknown subcommand 'FOO'. Try COMMAND HELP.|"),
        ],
    );
    assert!(peer.run(&server, "INFO commandstats").contains(
        "cmdstat_command|getkeys:calls=2,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1"
    ));
}

#[test]
fn the_mean_time_to_live_is_that_of_the_keys_that_expire() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let line = |peer: &mut Peer, server: &Server| {
        let text = peer.run(server, "INFO keyspace");
        let from = text.find("db0:").expect("there are keys");
        text[from..].split('|').next().expect("a line").to_string()
    };
    peer.script(
        &server,
        &[
            ("MSET a 1 b 2 c 3", "+OK|"),
            ("PEXPIRE a 1000", ":1|"),
            ("SET b v PX 3000", "+OK|"),
            ("HSET h f v", ":1|"),
            ("PEXPIRE h 5000", ":1|"),
        ],
    );
    assert_eq!(line(&mut peer, &server), "db0:keys=4,expires=3,avg_ttl=3000,subexpiry=0");
    // The dataset differs by an expiry, by a value, and by a field that expires before its key.
    peer.script(
        &server,
        &[
            ("PEXPIRE a 7000", ":1|"),
            ("SET b w KEEPTTL", "+OK|"),
            ("HPEXPIRE h 50 FIELDS 1 f", "*1|:1|"),
            ("HSET h g v", ":1|"),
        ],
    );
    assert_eq!(line(&mut peer, &server), "db0:keys=4,expires=3,avg_ttl=5000,subexpiry=1");
    peer.script(
        &server,
        &[("PERSIST a", ":1|"), ("COPY h h2", ":1|"), ("RENAME b c", "+OK|"), ("DEL h", ":1|")],
    );
    assert_eq!(line(&mut peer, &server), "db0:keys=3,expires=2,avg_ttl=4000,subexpiry=1");
    server.advance_ms(3500);
    peer.script(&server, &[("EXISTS a c h2", ":2|")]);
    assert_eq!(line(&mut peer, &server), "db0:keys=2,expires=1,avg_ttl=1500,subexpiry=0");
    peer.script(&server, &[("SET h2 v", "+OK|")]);
    assert_eq!(line(&mut peer, &server), "db0:keys=2,expires=0,avg_ttl=0,subexpiry=0");
}

#[test]
fn sections_are_shown_once_and_in_order() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let mut titles = |line: &str| -> Vec<String> {
        let text = peer.run(&server, line);
        text.split('|').filter_map(|l| l.strip_prefix("# ")).map(str::to_string).collect()
    };
    let default =
        "Server Clients Memory Persistence Stats Replication CPU Modules Errorstats Cluster Keyspace Search";
    assert_eq!(titles("INFO").join(" "), default);
    assert_eq!(titles("INFO default").join(" "), default);
    assert_eq!(titles("INFO cpu DEFAULT cpu nosuch").join(" "), default);
    assert_eq!(titles("INFO keyspace server Keyspace").join(" "), "Server Keyspace");
    assert_eq!(titles("INFO nosuch").len(), 0);
    let all = "Server Clients Memory Persistence Stats Replication CPU Modules Commandstats Errorstats Latencystats Cluster Keyspace \
               Search Importstats";
    assert_eq!(titles("INFO all").join(" "), all);
    assert_eq!(titles("INFO everything").join(" "), all);
    assert_eq!(titles("INFO all modules keysizes").join(" "), all.replace(" Search", " Keysizes Search"));
}

#[test]
fn keysizes_tell_how_large_values_are() {
    let mut server = Server::new();
    let mut peer = server.connect();
    assert_eq!(peer.run(&server, "INFO keysizes"), "$12|# Keysizes||");
    for line in [
        "SET a v",
        "SET b 1234",
        "APPEND e \"\"",
        "RPUSH l 1 2 3",
        "SADD s 1",
        "ZADD z 1 a 2 b",
        "HSET h f v",
        "XADD x 1-1 f v",
    ] {
        peer.run(&server, line);
    }
    let long = "x".repeat(3000);
    peer.run(&server, &format!("SETRANGE b 0 {long}"));
    peer.run(&server, "SET gone v PX 1");
    server.advance_ms(1);
    peer.script(&server, &[("SELECT 3", "+OK|"), ("SET a v", "+OK|")]);
    let text = peer.run(&server, "INFO keysizes");
    let want = "# Keysizes|db0_distrib_strings_sizes:0=1,1=1,2K=1|db0_distrib_lists_items:2=1|db0_distrib_sets_items:1=1|\
                db0_distrib_zsets_items:2=1|db0_distrib_hashes_items:1=1|db3_distrib_strings_sizes:1=1||";
    assert_eq!(text.split_once('|').expect("a bulk string").1, want);
}
