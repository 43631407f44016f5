//! SLOWLOG: what is timed, what is kept, what is shown.

use crate::fixture::Server;
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn what_may_be_slow_is_timed_and_the_newest_are_shown_first() {
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
    let want = "*3|*6|:3|:1700000000|:20000|*2|$4|KEYS|$1|*|$15|127.0.0.1:40001|$2|me|\
                *6|:2|:1700000000|:20000|*17|$4|MGET|KEYS$15|127.0.0.1:40001|$2|me|\
                *6|:1|:1700000000|:20000|*2|$7|SLOWLOG|$5|RESET|$15|127.0.0.1:40001|$2|me|";
    let want = want.replace("MGET|KEYS", &format!("MGET|{}", "$1|k|".repeat(16)));
    assert_eq!(peer.run(&server, "SLOWLOG GET"), want);
    assert_eq!(peer.run(&server, "SLOWLOG LEN"), ":4|");
    // With a low threshold every command is timed; with none, nothing is.
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
