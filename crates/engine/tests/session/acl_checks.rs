//! Checks of rights that are too long for a worker.

use crate::acl::{NO_KEY, no_command};
use crate::fixture::{Peer, Server, Stop, command};
use strand_engine::Turn;

#[test]
fn many_keys_against_many_patterns_are_checked_beside_the_worker() {
    const KEYS: usize = 400;
    let mut server = Server::new();
    let (mut admin, mut bob) = (server.connect(), server.connect());
    let patterns: Vec<String> = (0..100).map(|i| format!("~{i}:*")).collect();
    let rules = format!("ACL SETUSER bob on nopass +mget +mset +copy {}", patterns.join(" "));
    assert_eq!(admin.run(&server, &rules), "+OK|");
    assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
    let keys = |last: &str| {
        (1..KEYS).map(|i| format!("{}:k", i % 100)).chain([last.to_string()]).collect::<Vec<_>>()
    };
    let pairs = |last: &str| keys(last).iter().map(|k| format!("{k} v")).collect::<Vec<_>>().join(" ");
    assert_eq!(bob.run(&server, &format!("MSET {}", pairs("5:k"))), "+OK|");
    assert_eq!(bob.run(&server, &format!("MSET {}", pairs("x"))), NO_KEY);
    assert_eq!(bob.run(&server, &format!("MGET {}", keys("x").join(" "))), NO_KEY);
    bob.hold_jobs = true;
    bob.feed(&command(&format!("MGET {}", keys("7:k").join(" "))), usize::MAX);
    assert_eq!(bob.drive(&server), Stop::Parked);
    bob.hold_jobs = false;
    let done = bob.job.take().expect("a job").run(server.now, &|| {});
    bob.session.lane_done(done);
    bob.drive(&server);
    assert_eq!(bob.replies(), format!("*{KEYS}|{}", "$1|v|".repeat(KEYS)));
    assert_eq!(admin.run(&server, "EXISTS x"), ":0|");
    let stats = admin.run(&server, "INFO commandstats");
    assert!(
        stats.contains("cmdstat_mget:calls=1,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0"),
        "{stats}"
    );
    assert!(admin.run(&server, "ACL LOG").contains("|$5|count|:2|$6|reason|$3|key|"));
    bob.run(&server, "COPY 1:k y");
    assert_eq!(bob.run(&server, "GET 1:k"), no_command("get"));
}

/// Feeds `line`, whose rights a job checks. Runs the job and the session. Returns the replies.
#[track_caller]
fn checked(server: &Server, peer: &mut Peer, line: &str) -> String {
    peer.hold_jobs = true;
    peer.feed(&command(line), usize::MAX);
    assert_eq!(peer.drive(server), Stop::Parked, "{line:.30}");
    peer.hold_jobs = false;
    let done = peer.job.take().expect("a job").run(server.now, &|| {});
    peer.session.lane_done(done);
    peer.drive(server);
    peer.replies()
}

#[test]
fn a_long_check_of_a_command_that_stays_with_its_session_is_made_beside_the_worker() {
    let mut server = Server::new();
    let (mut admin, mut bob, mut monitor) = (server.connect(), server.connect(), server.connect());
    let patterns: Vec<String> = (0..100).map(|i| format!("~{i}:* &{i}:*")).collect();
    let commands = "+mget +mset +watch +multi +exec +unwatch +subscribe +discard";
    let rules = format!("ACL SETUSER bob on nopass resetchannels {commands} {}", patterns.join(" "));
    assert_eq!(admin.run(&server, &rules), "+OK|");
    assert_eq!(bob.run(&server, "AUTH bob x"), "+OK|");
    monitor.run(&server, "MONITOR");
    let names = |last: &str| {
        (1..400).map(|i| format!("{}:k", i % 100)).chain([last.to_string()]).collect::<Vec<_>>().join(" ")
    };
    // WATCH runs on the session after the check.
    assert_eq!(checked(&server, &mut bob, &format!("WATCH {}", names("5:k"))), "+OK|");
    assert_eq!(checked(&server, &mut bob, &format!("WATCH {}", names("x"))), NO_KEY);
    // A queued command is checked before it is queued, and again by EXEC, which therefore is long.
    assert_eq!(bob.run(&server, "MULTI"), "+OK|");
    assert_eq!(checked(&server, &mut bob, &format!("MGET {}", names("7:k"))), "+QUEUED|");
    let reply = checked(&server, &mut bob, "EXEC");
    assert_eq!(reply, format!("*1|*400|{}", "$-1|".repeat(400)));
    bob.script(&server, &[("MULTI", "+OK|")]);
    assert_eq!(checked(&server, &mut bob, &format!("MGET {}", names("x"))), NO_KEY);
    bob.script(&server, &[("EXEC", "-EXECABORT Transaction discarded because of previous errors.|")]);
    let seen = monitor.hears(&server);
    assert_eq!((seen.matches("\"WATCH\"").count(), seen.matches("\"MGET\"").count()), (1, 1), "{seen}");
    let stats = admin.run(&server, "INFO commandstats");
    for part in ["watch:calls=1,usec=0,usec_per_call=0.00,rejected_calls=1", "exec:calls=2,"] {
        assert!(stats.contains(&format!("cmdstat_{part}")), "{stats}");
    }
    let log = admin.run(&server, "ACL LOG");
    assert!(log.contains("|$7|context|$5|multi|") && log.contains("|$7|context|$8|toplevel|"), "{log}");
    // SUBSCRIBE checks its channels in several turns.
    let refused = bob.run(&server, &format!("SUBSCRIBE {}", names("x")));
    assert!(
        refused.starts_with("-NOPERM this user has no permissions to access one of the channels"),
        "{refused}"
    );
    bob.feed(&command(&format!("SUBSCRIBE {}", names("9:k"))), usize::MAX);
    let turns = (1..1000).find(|_| !matches!(bob.session.run(server.now), Turn::Again));
    assert!(turns.is_some_and(|turns| turns > 3), "{turns:?}");
    bob.drive(&server);
    assert!(bob.replies().ends_with("*3|$9|subscribe|$3|9:k|:100|"));
}
