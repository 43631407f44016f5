//! PING ECHO SELECT HELLO AUTH RESET QUIT, gates before authentication. Texts are those of redis-server 7.0.15.

use crate::fixture::{End, Server};

const HELLO_2: &str = "*14|$6|server|$5|redis|$7|version|$6|7.0.15|$5|proto|:2|$2|id|:1|$4|mode|$10|standalone|$4|role|$6|master|\
    $7|modules|*0|";

#[test]
fn ping_echo_and_select_reply_as_redis_server_does() {
    let mut server = Server::new();
    let mut peer = server.connect();
    peer.script(
        &server,
        &[
            ("PING", "+PONG|"),
            ("ping hello", "$5|hello|"),
            ("PING a b", "-ERR wrong number of arguments for 'ping' command|"),
            ("ECHO x", "$1|x|"),
            ("ECHO", "-ERR wrong number of arguments for 'echo' command|"),
            ("FOO a b", "-ERR unknown command 'FOO', with args beginning with: 'a' 'b' |"),
            ("SELECT x", "-ERR value is not an integer or out of range|"),
            ("SELECT 16", "-ERR DB index is out of range|"),
            ("SELECT -1", "-ERR DB index is out of range|"),
            (
                "SELECT 3000000000",
                "-ERR value is out of range, value must between -2147483648 and 2147483647|",
            ),
            ("SET a 1", "+OK|"),
            ("SELECT 3", "+OK|"),
            ("GET a", "$-1|"),
            ("SELECT 0", "+OK|"),
            ("GET a", "$1|1|"),
        ],
    );
    assert_eq!(peer.send(&server, b"PING\r\n\r\n  set  b '2 3'\r\nget b\r\n"), "+PONG|+OK|$3|2 3|");
}

#[test]
fn hello_in_all_its_forms() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let hello_3 = HELLO_2.replace("*14", "%7").replace(":2|", ":3|");
    peer.script(
        &server,
        &[
            ("HELLO", HELLO_2),
            ("HELLO 3", &hello_3),
            ("HELLO", &hello_3),
            ("GET nokey", "_|"),
            ("HELLO 4", "-NOPROTO unsupported protocol version|"),
            ("HELLO x", "-ERR Protocol version is not an integer or out of range|"),
            ("HELLO 2 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'|"),
            ("HELLO 2 FOO", "-ERR Syntax error in HELLO option 'FOO'|"),
            (
                "HELLO 2 SETNAME 'a b'",
                "-ERR Client names cannot contain spaces, newlines or special characters.|",
            ),
            ("HELLO 2 AUTH foo bar", "-WRONGPASS invalid username-password pair or user is disabled.|"),
            ("HELLO 2 auth default any setname me", HELLO_2),
            ("CLIENT GETNAME", "$2|me|"),
        ],
    );
}

#[test]
fn a_password_gates_by_the_table_s_flags() {
    let mut server = Server::with("requirepass secret");
    let mut peer = server.connect();
    let needs_auth = "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
        <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time|";
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.|";
    peer.script(
        &server,
        &[
            ("PING", "-NOAUTH Authentication required.|"),
            ("GET a", "-NOAUTH Authentication required.|"),
            ("CLIENT ID", "-NOAUTH Authentication required.|"),
            ("KEYS *", "-NOAUTH Authentication required.|"),
            ("FOO", "-ERR unknown command 'FOO', with args beginning with: |"),
            ("GET", "-ERR wrong number of arguments for 'get' command|"),
            ("HELLO 3", needs_auth),
            ("HELLO 3 AUTH default x", wrong),
            ("AUTH x", wrong),
            ("AUTH other secret", wrong),
            ("AUTH secrets", wrong),
            ("AUTH a b c", "-ERR syntax error|"),
            ("RESET", "+RESET|"),
            ("AUTH default secret", "+OK|"),
            ("PING", "+PONG|"),
            ("RESET", "+RESET|"),
            ("PING", "-NOAUTH Authentication required.|"),
            ("HELLO 2 AUTH default secret SETNAME n", HELLO_2),
            ("CLIENT GETNAME", "$1|n|"),
            ("CONFIG SET requirepass ''", "+OK|"),
            ("RESET", "+RESET|"),
            ("PING", "+PONG|"),
            ("AUTH default anything", "+OK|"),
        ],
    );
    let no_password = peer.run(&server, "AUTH secret");
    assert!(
        no_password.starts_with("-ERR AUTH <password> called without any password configured"),
        "{no_password}"
    );
}

#[test]
fn setting_a_password_leaves_open_sessions_alone() {
    let mut server = Server::new();
    let (mut old, mut admin) = (server.connect(), server.connect());
    admin.script(&server, &[("CONFIG SET requirepass x", "+OK|"), ("PING", "+PONG|")]);
    assert_eq!(old.run(&server, "PING"), "+PONG|");
    assert_eq!(server.connect().run(&server, "PING"), "-NOAUTH Authentication required.|");
}

#[test]
fn limits_are_tight_before_authentication() {
    let mut server = Server::with("requirepass secret");
    for (input, reply) in [
        ("*11\r\n", "-ERR Protocol error: unauthenticated multibulk length|"),
        ("*10\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length|"),
    ] {
        let mut peer = server.connect();
        assert_eq!(peer.send(&server, input.as_bytes()), reply);
        assert_eq!(peer.ended, Some(End::Close));
    }
    let mut peer = server.connect();
    assert_eq!(peer.run(&server, "AUTH secret"), "+OK|");
    let many = format!("DEL {}", "k ".repeat(40));
    assert_eq!(peer.run(&server, &many), ":0|");
}

#[test]
fn reset_puts_everything_back() {
    let mut server = Server::new();
    let mut peer = server.connect();
    peer.run(&server, "HELLO 3 SETNAME me");
    peer.script(
        &server,
        &[
            ("SELECT 5", "+OK|"),
            ("CLIENT REPLY OFF", ""),
            ("PING", ""),
            ("RESET", "+RESET|"),
            ("GET a", "$-1|"),
        ],
    );
    let info = peer.run(&server, "CLIENT INFO");
    assert!(info.contains(" name= ") && info.contains(" db=0 ") && info.contains(" resp=2"), "{info}");
}

#[test]
fn quit_and_protocol_errors_close_after_the_replies() {
    let mut server = Server::new();
    for (input, replies) in [
        ("PING\r\nQUIT\r\nPING\r\n", "+PONG|+OK|"),
        ("QUIT now\r\n", "+OK|"),
        ("PING\r\n*x\r\nPING\r\n", "+PONG|-ERR Protocol error: invalid multibulk length|"),
        ("*1\r\n$x\r\n", "-ERR Protocol error: invalid bulk length|"),
        ("*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'|"),
        ("PING \"a\r\n", "-ERR Protocol error: unbalanced quotes in request|"),
    ] {
        let mut peer = server.connect();
        assert_eq!(peer.send(&server, input.as_bytes()), replies, "{input}");
        assert_eq!(peer.ended, Some(End::Close), "{input}");
        assert!(!peer.session.wants_read());
        peer.ended = None;
        assert_eq!(peer.send(&server, b""), "");
        assert_eq!(peer.ended, Some(End::Close), "it stays closed");
    }
    drop(server);
}

#[test]
fn every_split_of_a_scenario_gives_the_same_replies() {
    let scenario: Vec<u8> = [
        "SET k v1",
        "GET k",
        "HELLO 3",
        "HSET h f v g w",
        "HGETALL h",
        "NOSUCH x",
        "GET",
        "CLIENT REPLY SKIP",
        "PING",
        "SELECT 1",
        "GET k",
        "SELECT 0",
        "INCR n",
        "DEBUG SLEEP 0",
        "KEYS zz*",
        "RESET",
        "GET k",
        "CLIENT ID",
    ]
    .iter()
    .flat_map(|line| crate::fixture::command(line))
    .chain(b"ping inline\r\nset q \"a b\"\r\nget q\r\n".iter().copied())
    .collect();
    let whole = {
        let mut server = Server::new();
        server.connect().send(&server, &scenario)
    };
    assert!(whole.ends_with("$6|inline|+OK|$3|a b|"), "{whole}");
    for cut in 0..=scenario.len() {
        let mut server = Server::new();
        let mut peer = server.connect();
        let mut replies = peer.send(&server, &scenario[..cut]);
        replies += &peer.send(&server, &scenario[cut..]);
        assert_eq!(replies, whole, "cut at {cut}");
    }
    let mut server = Server::new();
    let mut peer = server.connect();
    let mut replies = String::new();
    for byte in &scenario {
        replies += &peer.send(&server, std::slice::from_ref(byte));
    }
    assert_eq!(replies, whole);
}
