//! Users and their rights, checked through sessions. The texts are those of redis-server 7.0.15.

use crate::fixture::{Asked, End, Server, Stop, command, words};
use strand_engine::TABLE;
use strand_engine::Turn;

pub const NO_KEY: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments|";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.|";

pub fn no_command(name: &str) -> String {
    format!("-NOPERM this user has no permissions to run the '{name}' command|")
}

#[test]
fn a_user_may_do_what_it_may_and_nothing_else() {
    let mut server = Server::new();
    let (mut admin, mut bob) = (server.connect(), server.connect());
    admin.script(
        &server,
        &[
            ("ACL SETUSER bob on >pw +get +set +keys +acl|whoami ~x* %R~r*", "+OK|"),
            ("MSET x 1 r 2 z 3", "+OK|"),
        ],
    );
    bob.script(
        &server,
        &[
            ("AUTH bob no", WRONG),
            ("ACL WHOAMI", "$7|default|"),
            ("AUTH bob pw", "+OK|"),
            ("ACL WHOAMI", "$3|bob|"),
            ("GET x", "$1|1|"),
            ("GET r", "$1|2|"),
            ("SET x 2", "+OK|"),
            ("GET z", NO_KEY),
            ("SET r 1", NO_KEY),
            ("KEYS z", "*1|$1|z|"),
            ("PING", &no_command("ping")),
            ("client list", &no_command("client|list")),
            ("get", "-ERR wrong number of arguments for 'get' command|"),
            ("HELLO 3 AUTH bob no", WRONG),
            ("ACL WHOAMI", "$3|bob|"),
            ("RESET", "+RESET|"),
            ("ACL WHOAMI", "$7|default|"),
            ("GET z", "$1|3|"),
        ],
    );
    let stats = admin.run(&server, "INFO everything");
    assert!(
        stats.contains("|cmdstat_ping:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0|"),
        "{stats}"
    );
    assert!(
        stats.contains("|errorstat_NOPERM:count=4|") && stats.contains("|errorstat_WRONGPASS:count=2|"),
        "{stats}"
    );
}

#[test]
fn rights_change_for_sessions_that_live() {
    let mut server = Server::new();
    let (mut admin, mut bob) = (server.connect(), server.connect());
    assert_eq!(admin.run(&server, "ACL SETUSER bob on nopass +@all ~*"), "+OK|");
    assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
    assert!(admin.run(&server, "CLIENT LIST").contains(" cmd=auth user=bob "));
    assert_eq!(bob.run(&server, "GET a"), "$-1|");
    assert_eq!(admin.run(&server, "ACL SETUSER bob -get resetkeys ~b"), "+OK|");
    assert_eq!(bob.run(&server, "GET b"), no_command("get"));
    assert_eq!(bob.run(&server, "SET b 1"), "+OK|");
    assert_eq!(admin.run(&server, "ACL SETUSER bob off"), "+OK|");
    assert_eq!(bob.run(&server, "SET b 1"), "+OK|", "who is in stays in");
    assert_eq!(server.connect().run(&server, "AUTH bob x"), WRONG);
    let wakes = bob.wakes.count();
    assert_eq!(admin.run(&server, "ACL DELUSER bob nobody"), ":1|");
    assert!(bob.wakes.count() > wakes);
    assert_eq!(admin.run(&server, "ACL SETUSER bob on nopass +@all ~*"), "+OK|");
    assert_eq!((bob.run(&server, "PING").as_str(), bob.ended), ("", Some(End::Close)), "another bob");
}

#[test]
fn a_user_that_removes_itself_gets_the_reply() {
    let mut server = Server::new();
    let (mut admin, mut bob) = (server.connect(), server.connect());
    assert_eq!(admin.run(&server, "ACL SETUSER bob on nopass +@all ~* &*"), "+OK|");
    assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
    assert_eq!(bob.send(&server, b"ACL DELUSER bob\r\nPING\r\n"), ":1|");
    assert_eq!(bob.ended, Some(End::Close));
    // After the user is removed, a running search stops and a running change is finished.
    let mut bob = server.connect();
    bob.hold_jobs = true;
    assert_eq!(admin.run(&server, "ACL SETUSER bob on nopass +@all ~* &*"), "+OK|");
    bob.feed(b"AUTH bob x\r\nKEYS *\r\n", 99);
    assert_eq!(bob.drive(&server), Stop::Parked);
    assert_eq!(admin.run(&server, "ACL DELUSER bob"), ":1|");
    assert_eq!((bob.drive(&server), bob.ended), (Stop::Ended, Some(End::Abort)));
}

#[test]
fn a_transaction_that_removes_its_own_user_gets_the_reply() {
    let mut server = Server::new();
    let (mut admin, mut bob) = (server.connect(), server.connect());
    admin.run(&server, "ACL SETUSER bob on nopass ~* +@all");
    bob.script(&server, &[("AUTH bob x", "+OK|"), ("MULTI", "+OK|")]);
    for line in ["SET a 1", "CLIENT SETNAME me", "ACL DELUSER bob"] {
        assert_eq!(bob.run(&server, line), "+QUEUED|");
    }
    bob.hold_jobs = true;
    bob.feed(b"EXEC\r\n", usize::MAX);
    assert_eq!(bob.drive(&server), Stop::Parked);
    // One job sets the key, the session sets the name, and another job removes the user.
    for _ in 0..2 {
        let job = bob.job.take().expect("a job");
        let done = job.run(server.now, &|| {});
        bob.drive(&server);
        bob.session.lane_done(done);
        bob.drive(&server);
    }
    assert_eq!(bob.replies(), "*3|+OK|+OK|:1|");
    assert_eq!(bob.ended, Some(End::Close));
    assert_eq!(admin.run(&server, "GET a"), "$1|1|");
}

#[test]
fn clients_are_killed_by_user() {
    let mut server = Server::new();
    let (mut admin, mut a, mut b) = (server.connect(), server.connect(), server.connect());
    assert_eq!(admin.run(&server, "ACL SETUSER bob on nopass"), "+OK|");
    assert_eq!(a.run(&server, "AUTH bob x"), "+OK|");
    admin.script(
        &server,
        &[("CLIENT KILL USER nobody", "-ERR No such user 'nobody'|"), ("CLIENT KILL USER bob", ":1|")],
    );
    assert_eq!((a.drive(&server), b.run(&server, "PING").as_str()), (Stop::Ended, "+PONG|"));
}

#[test]
fn the_default_user_has_the_password_of_the_configuration() {
    let mut server = Server::with("requirepass foo");
    let mut admin = server.connect();
    let digest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
    admin.script(
        &server,
        &[
            ("ACL LIST", "-NOAUTH Authentication required.|"),
            ("AUTH foo", "+OK|"),
            ("ACL USERS", "*1|$7|default|"),
            ("ACL LIST", &format!("*1|$93|user default on #{digest} ~* &* +@all|")),
            ("ACL SETUSER default >bar <foo", "+OK|"),
            ("CONFIG GET requirepass", "*2|$11|requirepass|$3|foo|"),
        ],
    );
    let mut peer = server.connect();
    peer.script(&server, &[("AUTH foo", WRONG), ("AUTH bar", "+OK|"), ("PING", "+PONG|")]);
    assert_eq!(admin.run(&server, "ACL SETUSER default nopass off"), "+OK|");
    let mut peer = server.connect();
    peer.script(&server, &[("PING", "-NOAUTH Authentication required.|"), ("AUTH default bar", WRONG)]);
    assert_eq!(admin.run(&server, "ACL SETUSER default on"), "+OK|");
    assert_eq!(peer.run(&server, "PING"), "+PONG|");
    assert!(peer.run(&server, "HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(server.try_connect(false).is_err(), "protected");
    let long = "x".repeat(70_000);
    assert!(
        admin.run(&server, &format!("CONFIG SET requirepass {long}")).starts_with("-ERR CONFIG SET failed")
    );
    assert_eq!(admin.run(&server, "CONFIG SET requirepass foo"), "+OK|");
    assert!(server.try_connect(false).is_ok());
    assert_eq!(peer.run(&server, "PING"), "-NOAUTH Authentication required.|");
}

#[test]
fn the_log_tells_what_was_denied() {
    let mut server = Server::with("acllog-max-len 2");
    let (mut admin, mut bob) = (server.connect(), server.connect());
    admin.script(&server, &[("ACL SETUSER bob on >pw +get ~x", "+OK|"), ("ACL LOG", "*0|")]);
    bob.script(&server, &[("AUTH bob pw", "+OK|"), ("GET y", NO_KEY), ("auth bob no", WRONG)]);
    server.advance_ms(1500);
    bob.script(&server, &[("GET y", NO_KEY), ("PING", &no_command("ping"))]);
    server.advance_ms(250);
    let log = admin.run(&server, "ACL LOG");
    let entry = |count: u32, reason: &str, object: &str, age: &str| {
        let bulk = |s: &str| format!("${}|{s}|", s.len());
        let head =
            format!("*14|$5|count|:{count}|$6|reason|{}$7|context|$8|toplevel|$6|object|", bulk(reason));
        format!("{head}{}$8|username|$3|bob|$11|age-seconds|{}$11|client-info|", bulk(object), bulk(age))
    };
    assert!(log.starts_with(&format!("*2|{}", entry(1, "command", "ping", "0.25"))), "{log}");
    assert!(log.contains(&entry(2, "key", "y", "0.25")), "{log}");
    assert!(log.contains(" cmd=ping user=bob redir=-1"), "{log}");
    admin.script(
        &server,
        &[
            ("ACL LOG -1", "*0|"),
            ("ACL LOG x", "-ERR value is not an integer or out of range|"),
            ("ACL LOG RESET", "+OK|"),
            ("ACL LOG", "*0|"),
        ],
    );
}

#[test]
fn the_log_tells_where_it_was_denied() {
    let mut server = Server::with("acllog-max-len 100");
    let (mut admin, mut bob) = (server.connect(), server.connect());
    admin.run(&server, "ACL SETUSER bob on >pw +@all -incr ~*");
    bob.script(&server, &[("AUTH bob pw", "+OK|"), ("INCR n", &no_command("incr")), ("MULTI", "+OK|")]);
    bob.script(&server, &[("INCR n", &no_command("incr"))]);
    assert!(bob.run(&server, "EXEC").starts_with("-EXECABORT"));
    assert!(
        bob.run(&server, "EVAL \"redis.call('incr','n')\" 0")
            .starts_with("-ERR The user executing the script")
    );
    let newest = admin.run(&server, "ACL LOG 1");
    assert!(newest.contains(" cmd=eval "), "the command that ran the script: {newest}");
    // Rights that are lost between MULTI and EXEC, on a worker and on a helper thread.
    let long = format!("MSET {}", (0..3000).map(|n| format!("k{n} 1")).collect::<Vec<_>>().join(" "));
    for others in ["GET n", &long] {
        admin.run(&server, "ACL SETUSER bob +incr");
        bob.script(&server, &[("MULTI", "+OK|"), ("INCR n", "+QUEUED|"), (others, "+QUEUED|")]);
        admin.run(&server, "ACL SETUSER bob -incr");
        assert!(bob.run(&server, "EXEC").starts_with("*2|-NOPERM ACLs rules changed"));
        let newest = admin.run(&server, "ACL LOG 1");
        assert!(newest.contains(" cmd=exec "), "{newest}");
        assert!(others == long || newest.contains(" flags=x ") && newest.contains(" multi=2 "), "{newest}");
    }
    let log = admin.run(&server, "ACL LOG");
    let contexts: Vec<&str> =
        log.split("context|").skip(1).filter_map(|rest| rest.split('|').nth(1)).collect();
    assert_eq!(contexts, ["multi", "lua", "toplevel"], "{log}");
    assert!(log.starts_with("*3|*14|$5|count|:3|"), "{log}");
}

#[test]
fn only_an_address_with_failed_logins_waits() {
    let mut server = Server::with("login-failures-max 3");
    let (mut admin, mut peer) = (server.connect(), server.connect());
    assert_eq!(admin.run(&server, "ACL SETUSER bob on >pw +@all ~*"), "+OK|");
    for _ in 0..4 {
        assert_eq!(peer.run(&server, "AUTH bob no"), WRONG, "a few errors are everybody's");
    }
    peer.feed(&[command("AUTH bob pw"), command("GET a")].concat(), usize::MAX);
    let Stop::Sleep(until_us) = peer.drive(&server) else { panic!("it is tried at once") };
    assert_eq!(until_us, server.now.mono_us + 250_000);
    assert_eq!(admin.run(&server, "PING"), "+PONG|", "others go on");
    server.advance_ms(100);
    assert_eq!(
        (peer.drive(&server), peer.replies().as_str()),
        (Stop::Sleep(until_us), ""),
        "woken too early"
    );
    server.advance_ms(150);
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Read, "+OK|$-1|"));
    peer.feed(&command("HELLO 2 AUTH bob no"), usize::MAX);
    assert!(matches!(peer.drive(&server), Stop::Sleep(_)));
    server.advance_ms(10_000);
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Read, WRONG));
    assert_eq!(peer.run(&server, "AUTH bob pw"), "+OK|", "it is forgotten");
    let stats = admin.run(&server, "INFO commandstats");
    assert!(stats.contains("cmdstat_auth:calls=6,"), "{stats}");
}

#[test]
fn acl_files_are_loaded_and_saved() {
    let mut server = Server::with_acl_file("aclfile users.acl", "user bob on nopass +get ~b\n").unwrap();
    let (mut admin, mut bob) = (server.connect(), server.connect());
    assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
    admin.script(&server, &[("ACL SETUSER eve on", "+OK|"), ("ACL SAVE", "+OK|")]);
    let saved = String::from_utf8(server.acl_files.lock()["users.acl"].clone()).unwrap();
    assert_eq!(
        saved,
        "user bob on nopass ~b resetchannels -@all +get\nuser default on nopass ~* &* +@all\nuser eve on resetchannels \
         -@all\n"
    );
    server.acl_files.lock().insert("users.acl".into(), b"user bob\nuser bob\n".into());
    let error = admin.run(&server, "ACL LOAD");
    assert_eq!(
        error,
        "-ERR WARNING: Duplicate user 'bob' found on line 2. WARNING: ACL errors detected, no change to the previously \
         active ACL rules was performed|"
    );
    assert_eq!(bob.run(&server, "GET b"), "$-1|");
    server.acl_files.lock().insert("users.acl".into(), saved.into());
    assert_eq!(admin.run(&server, "ACL LOAD"), "+OK|");
    assert_eq!(
        (bob.run(&server, "GET b").as_str(), bob.ended),
        ("", Some(End::Close)),
        "as redis-server 7.0 does"
    );
    assert_eq!(admin.run(&server, "CONFIG REWRITE"), "+OK|");
    let rewritten =
        server.asked.try_iter().find_map(|a| if let Asked::Rewritten(t) = a { Some(t) } else { None });
    assert!(!rewritten.unwrap().contains("user "), "users are in their own file");
    server.acl_files.lock().clear();
    let error = "-ERR Error loading ACLs, opening file 'users.acl': No such file or directory|";
    assert_eq!(admin.run(&server, "ACL LOAD"), error);
}

#[test]
fn users_come_from_the_configuration_and_go_back() {
    let mut server = Server::with("user bob on nopass (+get ~b)\nuser eve off\nrequirepass x");
    let mut admin = server.connect();
    admin.script(
        &server,
        &[("AUTH x", "+OK|"), ("ACL USERS", "*3|$3|bob|$7|default|$3|eve|"), ("CONFIG REWRITE", "+OK|")],
    );
    let Ok(Asked::Rewritten(text)) = server.asked.try_recv() else { panic!("nothing was written") };
    assert!(
        text.contains("\nuser bob on nopass resetchannels -@all (~b resetchannels -@all +get)\n"),
        "{text}"
    );
    let none = "-ERR This Redis instance is not configured to use an ACL file. ";
    assert!(
        admin.run(&server, "ACL LOAD").starts_with(none) && admin.run(&server, "ACL SAVE").starts_with(none)
    );
    for (config, acl, part) in [
        ("user bob on +@nope", "", "Unknown command"),
        ("user bob on\nuser bob off", "", "Duplicate"),
        ("user default on\nuser default off", "", "Duplicate"),
        ("user bob on\naclfile users.acl", "", "only be one"),
        ("aclfile users.acl", "nonsense", "users.acl:1 should start"),
        ("aclfile nosuch.acl", "", "No such file"),
        (&format!("requirepass {}", "x".repeat(70_000)), "", "more than 65536 bytes"),
    ] {
        let error = Server::with_acl_file(config, acl).err().expect("an error");
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn jobs_know_what_their_user_may_read() {
    let mut server = Server::new();
    let (mut admin, mut bob) = (server.connect(), server.connect());
    admin.script(
        &server,
        &[("ACL SETUSER bob on nopass +ft.search +rx.grep ~a* %R~b* (+ft.search %W~c*) (+get ~d)", "+OK|")],
    );
    // The fixture's service tells what the user may do with these keys.
    assert_eq!(admin.run(&server, "FT.SEARCH x y a b c d"), "+FT.SEARCH ran: a=rw b=rw c=rw d=rw|");
    assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
    assert_eq!(bob.run(&server, "FT.SEARCH x y a b c d"), "+FT.SEARCH ran: a=rw b=r c=w d=|");
    assert_eq!(bob.run(&server, "RX.GREP x y a b c d"), "+RX.GREP ran: a=rw b=r c= d=|");
    assert_eq!(bob.run(&server, "FT._LIST"), no_command("ft._list"));
}

#[test]
fn passwords_are_made_of_random_bits() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let bad = "-ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096|";
    peer.script(
        &server,
        &[
            ("ACL GENPASS", &format!("$64|{}|", "a5".repeat(32))),
            ("ACL GENPASS 5", "$2|a5|"),
            ("ACL GENPASS 1", "$1|a|"),
            ("ACL GENPASS 4096", &format!("$1024|{}|", "a5".repeat(512))),
            ("ACL GENPASS 0", bad),
            ("ACL GENPASS 4097", bad),
            ("ACL GENPASS x", "-ERR value is not an integer or out of range|"),
        ],
    );
}

#[test]
fn a_job_that_waits_begins_by_the_rights_of_then() {
    let long = format!("MSET {}", (0..3000).map(|i| format!("k{i} v")).collect::<Vec<_>>().join(" "));
    // A user is changed while its command waits for a helper thread. Each pair is the change and the expected reply.
    for (change, reply) in [
        ("ACL SETUSER bob +get", "+OK|".to_string()),
        ("ACL SETUSER bob -mset", no_command("mset")),
        ("ACL SETUSER bob resetkeys ~k1", NO_KEY.to_string()),
        ("ACL DELUSER bob", String::new()),
    ] {
        let mut server = Server::new();
        let (mut admin, mut bob) = (server.connect(), server.connect());
        assert_eq!(admin.run(&server, "ACL SETUSER bob on nopass +mset ~*"), "+OK|");
        assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
        bob.hold_jobs = true;
        bob.feed(&command(&long), usize::MAX);
        assert_eq!(bob.drive(&server), Stop::Parked);
        let job = bob.job.take().expect("a job");
        assert!(!admin.run(&server, change).starts_with('-'));
        // Either the session or the helper thread notices the change first.
        if change.contains("DELUSER") {
            bob.drive(&server);
            assert_eq!(bob.ended, Some(End::Abort));
            assert_eq!(admin.run(&server, "ACL SETUSER bob on nopass +mset ~*"), "+OK|", "another bob");
        }
        let done = job.run(server.now, &|| {});
        bob.session.lane_done(done);
        bob.drive(&server);
        assert_eq!(bob.replies(), reply, "{change}");
        let written = if reply == "+OK|" { 3000 } else { 0 };
        assert_eq!(admin.run(&server, "DBSIZE"), format!(":{written}|"), "{change}");
        let denials = usize::from(reply.contains("NOPERM"));
        assert!(admin.run(&server, "ACL LOG").starts_with(&format!("*{denials}|")), "{change}");
    }
}

#[test]
fn a_search_that_waits_sees_the_keys_of_then() {
    let mut server = Server::new();
    let (mut admin, mut bob) = (server.connect(), server.connect());
    assert_eq!(admin.run(&server, "ACL SETUSER bob on nopass +ft.search +rx.match ~*"), "+OK|");
    assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
    bob.hold_jobs = true;
    bob.feed(&command("FT.SEARCH x y a b"), usize::MAX);
    assert_eq!(bob.drive(&server), Stop::Parked);
    assert_eq!(admin.run(&server, "ACL SETUSER bob resetkeys ~b"), "+OK|");
    let done = bob.job.take().expect("a job").run(server.now, &|| {});
    bob.session.lane_done(done);
    bob.drive(&server);
    assert_eq!(bob.replies(), "+FT.SEARCH ran: a= b=rw|");
    // A text that turns out to be hard is checked again before it begins on the hard lane.
    bob.feed(&command("RX.MATCH set hard"), usize::MAX);
    assert_eq!(bob.drive(&server), Stop::Parked);
    let job = bob.job.take().expect("a job");
    assert!(job.is_hard());
    assert_eq!(admin.run(&server, "ACL DELUSER bob"), ":1|");
    let done = job.run(server.now, &|| {});
    assert_eq!(done.reply_bytes(), "-NOAUTH Authentication required.\r\n".len());
}

#[test]
fn a_paused_command_runs_by_the_rights_at_its_run() {
    for (change, reply, end) in [
        ("ACL SETUSER bob -set", no_command("set"), None),
        ("ACL SETUSER bob resetkeys ~b", NO_KEY.to_string(), None),
        ("ACL DELUSER bob", String::new(), Some(End::Close)),
    ] {
        let mut server = Server::new();
        let (mut admin, mut bob) = (server.connect(), server.connect());
        assert_eq!(admin.run(&server, "ACL SETUSER bob on nopass +@all ~*"), "+OK|");
        assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
        assert_eq!(admin.run(&server, "CLIENT PAUSE 10000 WRITE"), "+OK|");
        bob.feed(&command("SET a 1"), usize::MAX);
        assert!(matches!(bob.drive(&server), Stop::Sleep(_)));
        assert!(!admin.run(&server, change).starts_with('-'));
        assert_eq!(admin.run(&server, "CLIENT UNPAUSE"), "+OK|");
        bob.drive(&server);
        assert_eq!((bob.replies(), bob.ended), (reply, end), "{change}");
        assert_eq!(admin.run(&server, "EXISTS a"), ":0|", "{change}");
    }
}

#[test]
fn a_long_key_is_checked_beside_the_worker() {
    let mut server = Server::new();
    let (mut admin, mut bob) = (server.connect(), server.connect());
    assert_eq!(admin.run(&server, "ACL SETUSER bob on nopass +get +set ~*[a-f]:cart*"), "+OK|");
    assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
    let long = "x".repeat(100_000);
    bob.hold_jobs = true;
    for (key, reply) in [(format!("{long}a:cart"), "+OK|"), (format!("{long}g:cart"), NO_KEY)] {
        bob.feed(&command(&format!("SET {key} v")), usize::MAX);
        assert_eq!(bob.drive(&server), Stop::Parked);
        let job = bob.job.take().expect("a job");
        assert!(job.is_heavy());
        let looks = std::cell::Cell::new(0);
        let done = job.run(server.now, &|| looks.set(looks.get() + 1));
        assert!(looks.get() > 0, "it lets others go first");
        bob.session.lane_done(done);
        bob.drive(&server);
        assert_eq!(bob.replies(), reply);
    }
    assert_eq!(bob.run(&server, "SET a:cart v"), "+OK|", "a short one is no job");
    assert_eq!(bob.run(&server, &format!("SET b:cart {long}")), "+OK|", "nor is a long value");
    assert_eq!(admin.run(&server, "DBSIZE"), ":3|");
}

#[test]
fn the_data_of_a_service_ends_with_its_user() {
    let mut server = Server::new();
    let (mut admin, mut peer) = (server.connect(), server.connect());
    let gone =
        |server: &Server| server.asked.try_iter().filter(|a| matches!(a, Asked::ClientGone(_))).count();
    assert_eq!(admin.run(&server, "ACL SETUSER bob on nopass +@all ~*"), "+OK|");
    assert_eq!(peer.run(&server, "AUTH bob x"), "+OK|");
    assert_eq!(peer.run(&server, "RX.MATCH set text"), "+RX.MATCH ran Worker|");
    assert_eq!(peer.run(&server, "AUTH bob x"), "+OK|");
    assert_eq!(gone(&server), 0, "the same user");
    assert_eq!(peer.run(&server, "AUTH default x"), "+OK|");
    assert_eq!(gone(&server), 1);
}

#[test]
fn rights_that_are_taken_away_end_in_the_middle_of_a_turn() {
    for (change, replies, end) in [
        ("ACL SETUSER bob -set", format!("+OK|{}{}", no_command("set"), no_command("set")), None),
        ("ACL DELUSER bob", "+OK|".to_string(), Some(End::Close)),
        ("ACL SETUSER bob resetkeys ~c", format!("+OK|{NO_KEY}+OK|"), None),
    ] {
        for rights in ["+@all -@dangerous ~*", "+@all ~* &*"] {
            let mut server = Server::with("slowlog-log-slower-than 0");
            let (mut admin, mut bob) = (server.connect(), server.connect());
            assert_eq!(admin.run(&server, &format!("ACL SETUSER bob on nopass {rights}")), "+OK|");
            assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
            let now = server.now;
            *server.on_clock.lock() = Some(Box::new(move || {
                admin.feed(&command(change), usize::MAX);
                let Turn::Lane(job) = admin.session.run(now) else { panic!("it is a job") };
                admin.session.lane_done(job.run(now, &|| {}));
            }));
            bob.feed(&["SET a 1", "SET b 1", "SET c 1"].map(command).concat(), usize::MAX);
            bob.drive(&server);
            assert_eq!((bob.replies(), bob.ended), (replies.clone(), end), "{change} {rights}");
        }
    }
}

#[test]
fn a_user_without_rights_is_denied_every_command() {
    let mut server = Server::with("enable-debug-command yes\nenable-module-command yes");
    let (mut admin, mut bob) = (server.connect(), server.connect());
    assert_eq!(admin.run(&server, "ACL SETUSER bob on nopass"), "+OK|");
    assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
    let mut asked = 0;
    for command in TABLE.rows() {
        let rows = command.subcommands.iter().map(|s| (Some(s), s.arity)).chain([(None, command.arity)]);
        for (sub, arity) in rows.filter(|(sub, _)| sub.is_some() || command.subcommands.is_empty()) {
            let words = [Some(command.name), sub.map(|s| s.name)].into_iter().flatten();
            let line: Vec<&str> =
                words.chain(std::iter::repeat("1")).take(arity.unsigned_abs() as usize).collect();
            let name = sub.map_or(command.name.to_string(), |s| format!("{}|{}", command.name, s.name));
            let said = bob.run(&server, &line.join(" "));
            if ["auth", "hello", "quit", "reset"].contains(&command.name) {
                // Skip these commands, because a client becomes another user with them.
                assert!(!said.contains("NOPERM"), "{name}: {said}");
                bob = server.connect();
                assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
                continue;
            }
            // For every refused command, EXEC must say that nothing was run.
            let want = match name.as_str() {
                "exec" => no_command(&name)
                    .replace("-NOPERM", "-EXECABORT Transaction discarded because of: NOPERM"),
                _ => no_command(&name),
            };
            assert_eq!(said, want);
            asked += 1;
        }
    }
    assert!(asked > 150, "{asked}");
}

#[test]
fn a_command_whose_rights_take_long_to_check_may_wait() {
    let mut server = Server::new();
    let (mut admin, mut bob, mut monitor) = (server.connect(), server.connect(), server.connect());
    let patterns: Vec<String> = (0..9000).map(|i| format!("~{i:060}:*")).collect();
    let rules = format!("ACL SETUSER bob on nopass +@all {} ~list", patterns.join(" "));
    assert_eq!(admin.run(&server, &rules), "+OK|");
    assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
    assert_eq!(monitor.run(&server, "MONITOR"), "+OK|");
    assert_eq!(bob.run(&server, "BLPOP list 0"), "");
    assert!(monitor.hears(&server).contains("\"BLPOP\" \"list\" \"0\""));
    assert_eq!(admin.run(&server, "RPUSH list v"), ":1|");
    assert_eq!(bob.hears(&server), "*2|$4|list|$1|v|");
    monitor.hears(&server);
    assert_eq!(bob.run(&server, "GET list"), "$-1|");
    assert_eq!(monitor.hears(&server).matches("\"GET\"").count(), 1);
    let script = "return redis.call('get',KEYS[1])";
    let denied = bob.send(&server, &words(&["EVAL", script, "1", "other"]));
    assert!(denied.starts_with("-NOPERM"), "{denied}");
}
