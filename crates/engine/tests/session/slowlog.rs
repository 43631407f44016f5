//! SLOWLOG: which commands are timed, kept and shown.

use crate::fixture::{Server, command};
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn slow_commands_are_logged_with_the_newest_first() {
    let mut server = Server::new();
    let mut peer = server.connect();
    server.step_us.store(20_000, Relaxed);
    let (many, values) = (format!("MGET{}", " k".repeat(16)), format!("*16|{}", "$1|v|".repeat(16)));
    peer.script(
        &server,
        &[
            ("CLIENT SETNAME me", "+OK|"),
            ("SLOWLOG RESET", "+OK|"),
            ("SET k v", "+OK|"),
            ("MGET k k", "*2|$1|v|$1|v|"),
            ("PING", "+PONG|"),
            (&many, &values),
            ("KEYS *", "*1|$1|k|"),
        ],
    );
    // Each of these commands was sent alone, so each was timed by itself.
    let keys = values.replace("$1|v|", "$1|k|").replace("*16|", "");
    let want: Vec<String> = [
        "*2|$4|KEYS|$1|*|",
        &format!("*17|$4|MGET|{keys}"),
        "*1|$4|PING|",
        "*3|$4|MGET|$1|k|$1|k|",
        "*3|$3|SET|$1|k|$1|v|",
        "*2|$7|SLOWLOG|$5|RESET|",
    ]
    .iter()
    .enumerate()
    .map(|(i, args)| format!("*6|:{}|:1700000000|:20000|{args}$15|127.0.0.1:40001|$2|me|", 6 - i))
    .collect();
    assert_eq!(peer.run(&server, "SLOWLOG GET"), format!("*6|{}", want.concat()));
    assert_eq!(peer.run(&server, "SLOWLOG LEN"), ":7|");
    // With a low threshold every command is timed. Without a threshold none is.
    peer.script(
        &server,
        &[
            ("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 2", "+OK|"),
            ("GET k", "$1|v|"),
            (
                "AUTH secret",
                "-ERR AUTH <password> called without any password configured for the default user. Are you \
              sure your configuration is correct?|",
            ),
            ("SLOWLOG LEN", ":2|"),
        ],
    );
    let shown = peer.run(&server, "SLOWLOG GET 2");
    assert!(shown.contains("|*2|$4|AUTH|$10|(redacted)|") && !shown.contains("secret"), "{shown}");
    peer.script(
        &server,
        &[
            ("CONFIG SET slowlog-log-slower-than -1", "+OK|"),
            ("SLOWLOG RESET", "+OK|"),
            ("KEYS *", "*1|$1|k|"),
            ("SLOWLOG LEN", ":0|"),
        ],
    );
}

#[test]
fn a_fast_command_is_not_kept() {
    let mut server = Server::new();
    let mut peer = server.connect();
    server.step_us.store(9_999, Relaxed);
    peer.script(&server, &[("KEYS *", "*0|"), ("MGET k", "*1|$-1|"), ("SLOWLOG GET -1", "*0|")]);
    server.step_us.store(10_000, Relaxed);
    peer.script(
        &server,
        &[("MGET k", "*1|$-1|"), ("CONFIG SET slowlog-max-len 0", "+OK|"), ("SLOWLOG LEN", ":0|")],
    );
}

#[test]
fn neighbours_in_a_pipeline_share_a_reading_of_the_clock() {
    let mut server = Server::new();
    let mut peer = server.connect();
    peer.script(&server, &[("SET k v", "+OK|"), ("CONFIG RESETSTAT", "+OK|")]);
    server.step_us.store(1600, Relaxed);
    let pipeline = [command("GET k").repeat(40), command("SET k v"), command("HGETALL h"), command("GET k")];
    peer.send(&server, &pipeline.concat());
    server.step_us.store(0, Relaxed);
    let stats = peer.run(&server, "INFO commandstats");
    // Forty calls of one command are timed as sixteen, sixteen and eight together.
    for line in [
        "cmdstat_get:calls=41,usec=6400,usec_per_call=156.10,",
        "cmdstat_set:calls=1,usec=1600,",
        "cmdstat_hgetall:calls=1,usec=1600,",
    ] {
        assert!(stats.contains(line), "no {line} in {stats}");
    }
    let stats = peer.run(&server, "INFO latencystats");
    assert!(
        stats.contains("latency_percentiles_usec_get:p50=100.351,p99=1605.631,p99.9=1605.631|"),
        "{stats}"
    );
    assert_eq!(
        peer.run(&server, "LATENCY HISTOGRAM get nosuch"),
        "*2|$3|get|*4|$5|calls|:41|$14|histogram_usec|*6|:132|:32|:264|:40|:2113|:41|"
    );
    // A transaction is timed as a whole, and each of its commands by itself.
    peer.run(&server, "CONFIG RESETSTAT");
    server.step_us.store(1000, Relaxed);
    let transaction =
        [command("MULTI"), command("GET k"), command("GET k"), command("INCR n"), command("EXEC")];
    peer.send(&server, &transaction.concat());
    server.step_us.store(0, Relaxed);
    let stats = peer.run(&server, "INFO commandstats");
    for line in [
        "cmdstat_get:calls=2,usec=1000,",
        "cmdstat_incr:calls=1,usec=1000,",
        "cmdstat_exec:calls=1,usec=4000,",
    ] {
        assert!(stats.contains(line), "no {line} in {stats}");
    }
}

#[test]
fn latency_is_not_shown_while_tracking_is_off() {
    let mut server = Server::new();
    let mut peer = server.connect();
    peer.script(&server, &[("GET k", "$-1|"), ("CONFIG SET latency-tracking no", "+OK|")]);
    assert!(!peer.run(&server, "INFO latencystats").contains("usec"));
    peer.script(
        &server,
        &[
            ("GET k", "$-1|"),
            ("CONFIG SET latency-tracking yes latency-tracking-info-percentiles 100", "+OK|"),
        ],
    );
    assert!(peer.run(&server, "INFO latencystats").contains("usec_get:p100=0.001|"));
    assert!(peer.run(&server, "LATENCY HISTOGRAM GET").contains("|calls|:1|"));
}

#[test]
fn long_events_are_kept_by_their_kind() {
    let mut server = Server::new();
    let mut peer = server.connect();
    server.step_us.store(7_000, Relaxed);
    peer.script(&server, &[("GET k", "$-1|"), ("LATENCY LATEST", "*0|")]);
    peer.script(
        &server,
        &[("CONFIG SET latency-monitor-threshold 7", "+OK|"), ("GET k", "$-1|"), ("KEYS *", "*0|")],
    );
    server.step_us.store(6_999, Relaxed);
    peer.script(
        &server,
        &[
            ("GET k", "$-1|"),
            (
                "LATENCY LATEST",
                "*3|*4|$7|command|:1700000000|:7|:7|*4|$12|fast-command|:1700000000|:7|:7|\
             *4|$14|command-queued|:1700000000|:7|:7|",
            ),
            ("LATENCY HISTORY command", "*1|*2|:1700000000|:7|"),
            ("LATENCY HISTORY nosuch", "*0|"),
            ("LATENCY GRAPH expire-cycle", "-ERR No samples available for event 'expire-cycle'|"),
            ("LATENCY RESET nosuch", ":0|"),
            ("LATENCY RESET fast-command nosuch", ":1|"),
            ("LATENCY RESET", ":2|"),
            ("LATENCY RESET", ":0|"),
        ],
    );
    assert!(peer.run(&server, "LATENCY DOCTOR").contains("Nothing has taken 7 ms"));
}

#[test]
fn phases_follow_the_fields_of_redis() {
    let mut server = Server::with("slowlog-log-slower-than 500000\nlatency-monitor-threshold 100");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    assert_eq!(admin.run(&server, "CLIENT PAUSE 2000 WRITE"), "+OK|");
    assert_eq!(peer.run(&server, "SET k v"), "", "it is paused");
    server.advance_ms(2_500);
    server.step_us.store(600_000, Relaxed);
    peer.drive(&server);
    server.step_us.store(0, Relaxed);
    assert_eq!(peer.replies(), "+OK|");
    // Then the client's socket was full for a while.
    server.engine.flushed(peer.session.id(), 1_234);
    let plain = "*6|:0|:1700000002|:600000|*3|$3|SET|$1|k|$1|v|$15|127.0.0.1:40002|$0||";
    assert_eq!(admin.run(&server, "SLOWLOG GET 1"), format!("*1|{plain}"));
    let phases = "$6|queued|:0|$6|parked|:2500000|$9|executing|:600000|$8|flushing|:1234|$9|parked-on|$5|pause|$7|held-by|";
    let with = plain.replacen("*6|", "*7|", 1);
    assert_eq!(admin.run(&server, "SLOWLOG GET 1 PHASES"), format!("*1|{with}*12|{phases}$-1|"));
    admin.run(&server, "HELLO 3");
    assert_eq!(admin.run(&server, "SLOWLOG GET -1 phases"), format!("*1|{with}%6|{phases}_|"));
    let wrong = "-ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.|";
    admin.script(&server, &[("SLOWLOG GET 1 WHAT", wrong), ("SLOWLOG GET 1 PHASES x", wrong)]);
    // LATENCY has the wait too.
    assert!(admin.run(&server, "LATENCY LATEST").contains("$14|command-parked|:1700000002|:2500|:2500|"));
    assert!(admin.run(&server, "LATENCY DOCTOR").contains("command-parked"));
}
