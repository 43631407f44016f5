//! Commands on the lane: they keep their order, end with their session, and make no other client wait.

use crate::fixture::{Asked, End, Peer, Server, Stop, command};
use std::sync::atomic::Ordering::Relaxed;

fn parked(server: &Server, peer: &mut Peer, input: &[u8]) {
    peer.hold_jobs = true;
    peer.feed(input, usize::MAX);
    assert_eq!(peer.drive(server), Stop::Parked);
}

#[test]
fn later_commands_wait_for_the_job_in_order() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    parked(&server, &mut a, b"SET a 1\r\nKEYS *\r\nGET a\r\nKEYS nokey\r\nPING\r\n");
    assert_eq!(a.replies(), "+OK|");
    assert_eq!(b.run(&server, "SET a 2"), "+OK|", "others go on");
    assert_eq!(a.drive(&server), Stop::Parked, "woken too early it waits on");
    a.feed(b"ECHO more\r\n", 99);
    assert_eq!((a.drive(&server), a.replies().as_str()), (Stop::Parked, ""));
    let job = a.job.take().unwrap();
    assert_eq!(job.name(), "keys");
    let done = job.run(server.now, &|| {});
    assert_eq!(done.reply_bytes(), "*1|$1|a|".len() + 3);
    a.session.lane_done(done);
    assert_eq!((a.drive(&server), a.replies().as_str()), (Stop::Parked, "*1|$1|a|$1|2|"));
    let job = a.job.take().unwrap();
    a.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!((a.drive(&server), a.replies().as_str()), (Stop::Read, "*0|+PONG|$4|more|"));
}

#[test]
fn services_go_through_the_host() {
    let mut server = Server::new();
    let mut peer = server.connect();
    assert_eq!(peer.run(&server, "FT._LIST"), "+FT._LIST ran|");
}

#[test]
fn a_session_that_ends_cancels_its_job() {
    let mut server = Server::new();
    let (mut gone, mut killed, mut admin) = (server.connect(), server.connect(), server.connect());
    parked(&server, &mut gone, b"KEYS *\r\n");
    let cancel = gone.job.as_ref().unwrap().cancel_handle();
    assert!(!cancel.load(Relaxed));
    drop(gone.session);
    assert!(cancel.load(Relaxed));

    parked(&server, &mut killed, b"KEYS *\r\n");
    let job = killed.job.take().unwrap();
    let cancel = job.cancel_handle();
    assert_eq!(admin.run(&server, "CLIENT KILL ID 2"), ":1|");
    assert_eq!((killed.drive(&server), killed.ended), (Stop::Ended, Some(End::Abort)));
    assert!(cancel.load(Relaxed));
    let done = job.run(server.now, &|| {});
    assert_eq!(done.reply_bytes(), 0, "it does not even begin");
    killed.session.lane_done(done);
    assert_eq!((killed.drive(&server), killed.replies().as_str()), (Stop::Ended, ""));
}

#[test]
fn a_job_that_panicked_is_an_error_for_its_client() {
    let mut server = Server::new();
    let mut peer = server.connect();
    parked(&server, &mut peer, b"KEYS *\r\nPING\r\n");
    peer.session.lane_done(strand_engine::LaneDone::panicked());
    assert_eq!(peer.drive(&server), Stop::Read);
    assert_eq!(peer.replies(), "-ERR the command failed inside the server, see its log|+PONG|");
    let info = peer.run(&server, "INFO commandstats");
    assert!(
        info.contains("cmdstat_keys:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1"),
        "{info}"
    );
}

#[test]
fn a_parked_session_is_not_idle() {
    let mut server = Server::with("timeout 1");
    let mut peer = server.connect();
    parked(&server, &mut peer, b"KEYS *\r\n");
    assert_eq!(peer.session.idle_deadline_us(), None);
    server.advance_ms(5000);
    assert_eq!(peer.drive(&server), Stop::Parked);
    let job = peer.job.take().unwrap();
    peer.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Read, "*0|"));
}

#[test]
fn info_of_many_shards_runs_on_the_lane() {
    let mut server = Server::with("shards 512");
    let mut peer = server.connect();
    peer.run(&server, "SET a 1");
    parked(&server, &mut peer, b"INFO keyspace\r\n");
    let job = peer.job.take().unwrap();
    peer.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!(peer.drive(&server), Stop::Read);
    assert!(peer.replies().contains("|db0:keys=1,expires=0,avg_ttl=0,subexpiry=0|"));
}

#[test]
fn long_listings_run_on_the_lane() {
    let mut server = Server::new();
    let mut crowd: Vec<Peer> = (0..300).map(|_| server.connect()).collect();
    let mut peer = crowd.pop().unwrap();
    for line in ["CLIENT LIST", "COMMAND DOCS", "COMMAND"] {
        parked(&server, &mut peer, &command(line));
        let job = peer.job.take().unwrap();
        peer.session.lane_done(job.run(server.now, &|| {}));
        while peer.drive(&server) == Stop::Flush {}
        assert!(peer.replies().len() > 10_000, "{line}");
    }
    peer.hold_jobs = false;
    assert_eq!(peer.run(&server, "CLIENT LIST FOO"), "-ERR syntax error|");
    assert_eq!(peer.run(&server, "CLIENT LIST ID 7").matches("id=").count(), 1);
}

#[test]
fn many_arguments_run_on_the_lane() {
    let mut server = Server::new();
    let mut peer = server.connect();
    for (head, word) in [
        ("CLIENT LIST ID", " 1"),
        ("COMMAND DOCS", " get"),
        ("COMMAND INFO", " get"),
        ("CONFIG GET", " *"),
        ("INFO", " server"),
    ] {
        for (words, stop) in [(3, Stop::Read), (100, Stop::Parked)] {
            peer.hold_jobs = true;
            peer.feed(&command(&(head.to_string() + &word.repeat(words))), usize::MAX);
            assert_eq!(peer.drive(&server), stop, "{head} {words}");
            if let Some(job) = peer.job.take() {
                peer.session.lane_done(job.run(server.now, &|| {}));
                peer.drive(&server);
            }
            let replies = peer.replies();
            assert!(replies.len() > 100 && !replies.contains("-ERR"), "{head} {words}: {replies}");
        }
    }
    peer.hold_jobs = false;
    let all = peer.run(&server, "CONFIG GET *");
    assert_eq!(peer.run(&server, &format!("CONFIG GET{}", " [a-z]*".repeat(500))), all);
}

#[test]
fn more_command_names_than_there_are_by_far_are_refused() {
    let mut server = Server::new();
    let mut peer = server.connect();
    for head in ["COMMAND DOCS", "COMMAND INFO"] {
        let many = |n| format!("{head}{}", " nosuch".repeat(n));
        assert!(peer.run(&server, &many(1024)).starts_with('*'));
        assert_eq!(peer.run(&server, &many(1025)), "-ERR too many command names: expected at most 1024|");
    }
}

#[test]
fn disk_commands_run_on_the_lane_to_their_end_even_without_a_client() {
    let mut server = Server::new();
    let mut peer = server.connect();
    parked(&server, &mut peer, &command("CONFIG REWRITE"));
    let job = peer.job.take().unwrap();
    assert!(server.asked.try_recv().is_err());
    drop(peer);
    job.run(server.now, &|| {});
    assert!(matches!(server.asked.try_recv(), Ok(Asked::Rewritten(_))));
}

#[test]
fn a_client_that_leaves_before_its_job_begins_frees_the_arguments_or_counts_until_the_job_begins() {
    let mut server = Server::with("maxclients 3");
    let (mut watcher, mut reader, mut writer) = (server.connect(), server.connect(), server.connect());
    let large = "x".repeat(100_000);
    let held = |watcher: &mut Peer| {
        let info = watcher.run(&server, "INFO memory");
        let line = info.split('|').find_map(|l| l.strip_prefix("used_memory_jobs:")).expect("a line");
        line.parse::<usize>().expect("a number")
    };
    parked(&server, &mut reader, &command(&format!("KEYS {large}")));
    assert!(held(&mut watcher) > 100_000);
    let unread = reader.job.take().unwrap();
    drop(reader);
    assert_eq!(held(&mut watcher), 0);
    parked(&server, &mut writer, &command(&format!("MSET{}", format!(" k {large}").repeat(2100))));
    let job = writer.job.take().unwrap();
    drop(writer);
    assert!(held(&mut watcher) > 100_000, "the command is done although its client is gone");
    let now = server.now;
    let first = server.try_connect(true).expect("there is room for one");
    assert!(server.try_connect(true).is_err(), "the writer counts");
    assert_eq!(unread.run(now, &|| {}).reply_bytes(), 0);
    assert_eq!(job.run(now, &|| {}).reply_bytes(), 5);
    drop((first, server.try_connect(true).expect("the writer is done")));
}

#[test]
fn a_text_is_searched_where_it_belongs() {
    let mut server = Server::new();
    let mut peer = server.connect();
    assert_eq!(peer.run(&server, "RX.MATCH set short"), "+RX.MATCH ran Worker|", "no hop");
    assert_eq!(peer.run(&server, "RX.MATCH set lane"), "+RX.MATCH ran Lane|");
    assert_eq!(peer.run(&server, "RX.MATCH set hard"), "+RX.MATCH ran Hard|");
    // The text is too long for the worker. If it proves hard on the lane, it moves to the hard lane.
    let long = format!("RX.MATCH set {}", "x".repeat(2 << 20));
    peer.feed(&command(&long), usize::MAX);
    peer.hold_jobs = true;
    assert_eq!(peer.drive(&server), Stop::Parked);
    let job = peer.job.take().unwrap();
    assert!(job.is_heavy() && !job.is_hard());
    peer.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Read, "+RX.MATCH ran Lane|"));
    parked(&server, &mut peer, &command("RX.MATCH set hard"));
    let job = peer.job.take().unwrap();
    assert!(job.is_hard());
    peer.session.lane_done(job.run(server.now, &|| {}));
    assert_eq!((peer.drive(&server), peer.replies().as_str()), (Stop::Read, "+RX.MATCH ran Hard|"));
}

#[test]
fn the_host_hears_of_clients_that_are_gone_and_have_used_a_service() {
    let mut server = Server::new();
    let (mut a, mut b) = (server.connect(), server.connect());
    assert_eq!(a.run(&server, "SET a 1"), "+OK|");
    assert_eq!(b.run(&server, "RX.MATCH set short"), "+RX.MATCH ran Worker|");
    let id = b.session.id();
    drop((a, b));
    assert!(matches!(server.asked.try_recv(), Ok(Asked::ClientGone(gone)) if gone == id));
    assert!(server.asked.try_recv().is_err());
}

#[test]
fn a_long_write_keeps_the_expiry_of_a_hash_whose_fields_expire() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let pairs: String = (0..20_000).map(|i| format!(" k{i} v")).collect();
    let fields: String = (0..35_000).map(|i| format!(" k{i}")).collect();
    let expires = |peer: &mut Peer, server: &Server| {
        let info = peer.run(server, "INFO keyspace");
        info.split("expires=").nth(1).map(|rest| rest.split(',').next().unwrap_or_default().to_owned())
    };
    let setup = [("HSET h f v g v", ":2|"), ("HEXPIRE h 1000 FIELDS 1 f", "*1|:1|"), ("EXPIRE h 500", ":1|")];
    for line in [format!("HSET h{pairs}"), format!("HDEL h f{fields}"), format!("HDEL h f g{fields}")] {
        peer.script(&server, &setup);
        peer.run(&server, &line);
        let is_gone = peer.run(&server, "EXISTS h") == ":0|";
        assert_eq!(peer.run(&server, "TTL h"), if is_gone { ":-2|" } else { ":500|" });
        let expected = (!is_gone).then(|| "1".to_owned());
        assert_eq!(expires(&mut peer, &server), expected);
        peer.run(&server, "DEL h");
        assert_eq!(peer.run(&server, "SET other x"), "+OK|");
        assert_eq!(expires(&mut peer, &server).as_deref(), Some("0"), "{}", &line[..20]);
        peer.run(&server, "DEL other");
    }
}
