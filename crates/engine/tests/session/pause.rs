//! CLIENT PAUSE: which commands wait, and what the waits change.

use crate::blocking::{blocks, replies};
use crate::fixture::{Server, Stop, words};

#[test]
fn a_pause_of_all_commands_stops_no_clock() {
    let mut server = Server::new();
    let (mut a, mut waiter, mut pusher) = (server.connect(), server.connect(), server.connect());
    blocks(&mut waiter, &server, "BLPOP k 0.2");
    a.run(&server, "CLIENT PAUSE 500 ALL");
    pusher.feed(b"RPUSH k 1\r\n", usize::MAX);
    assert!(matches!(pusher.drive(&server), Stop::Sleep(_)));
    server.advance_ms(300);
    assert_eq!(replies(&mut waiter, &server), "*-1|");
    server.advance_ms(300);
    assert_eq!(replies(&mut pusher, &server), ":1|");
    // A wait that begins during a pause begins after the pause.
    a.run(&server, "CLIENT PAUSE 500 WRITE");
    waiter.feed(b"BLPOP k 0.1\r\n", usize::MAX);
    assert!(matches!(waiter.drive(&server), Stop::Sleep(_)));
    server.advance_ms(600);
    assert_eq!(replies(&mut waiter, &server), "*2|$1|k|$1|1|");
}

#[test]
fn a_pause_of_writes_stops_every_script_that_may_write() {
    let mut server = Server::new();
    let mut admin = server.connect();
    let library = "#!lua name=l\nredis.register_function('w', function() return 1 end)\n\
        redis.register_function{function_name='r', callback=function() return 1 end, flags={'no-writes'}}";
    assert_eq!(admin.send(&server, &words(&["FUNCTION", "LOAD", library])), "$1|l|");
    admin.run(&server, "CLIENT PAUSE 500 WRITE");
    let declared = "#!lua flags=no-writes\nreturn 1";
    for (call, is_paused) in [
        (&["EVAL", "return 1", "0"][..], true),
        (&["EVAL", "#!lua\nreturn 1", "0"], true),
        (&["EVAL", declared, "0"], false),
        (&["EVAL_RO", "return 1", "0"], false),
        (&["FCALL", "w", "0"], true),
        (&["FCALL", "r", "0"], false),
        (&["FCALL_RO", "r", "0"], false),
        (&["PFCOUNT", "hll"], true),
        (&["PUBLISH", "channel", "text"], true),
        (&["SPUBLISH", "channel", "text"], true),
        (&["GET", "k"], false),
    ] {
        let mut client = server.connect();
        client.feed(&words(call), usize::MAX);
        assert_eq!(matches!(client.drive(&server), Stop::Sleep(_)), is_paused, "{call:?}");
    }
    for (call, is_paused) in [("FCALL w 0", true), ("FCALL r 0", false)] {
        let mut client = server.connect();
        // What is queued during a pause of writes waits, too.
        admin.run(&server, "CLIENT UNPAUSE");
        client.script(&server, &[("MULTI", "+OK|"), (call, "+QUEUED|")]);
        admin.run(&server, "CLIENT PAUSE 500 WRITE");
        client.feed(b"EXEC\r\n", usize::MAX);
        assert_eq!(matches!(client.drive(&server), Stop::Sleep(_)), is_paused, "{call}");
    }
}

#[test]
fn a_paused_client_counts_as_blocked() {
    let mut server = Server::new();
    let (mut a, mut writer, mut leaver) = (server.connect(), server.connect(), server.connect());
    a.run(&server, "CLIENT PAUSE 500 WRITE");
    for client in [&mut writer, &mut leaver] {
        client.feed(b"SET k 1\r\n", usize::MAX);
        assert!(matches!(client.drive(&server), Stop::Sleep(_)));
    }
    assert!(a.run(&server, "INFO clients").contains("blocked_clients:2|"));
    drop(leaver);
    assert!(a.run(&server, "INFO clients").contains("blocked_clients:1|"));
    server.advance_ms(600);
    assert_eq!(replies(&mut writer, &server), "+OK|");
    assert!(a.run(&server, "INFO clients").contains("blocked_clients:0|"));
}

/// Many changed keys wait to be indexed: writes of indexed keys wait, and nothing else does.
#[test]
fn writes_of_indexed_keys_wait_while_the_indexes_are_behind() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let engine = server.engine.clone();
    let keyspace = engine.keyspace();
    let take_all = || (0..keyspace.shards()).for_each(|shard| drop(keyspace.take_touched(shard)));
    keyspace.track(&[b"d:".to_vec()]);
    // Less than one key.
    keyspace.set_touched_bytes_max(1);
    let library = "#!lua name=l\nredis.register_function{function_name='r', callback=function() return 1 end, \
                   flags={'no-writes'}}";
    assert_eq!(peer.send(&server, &words(&["FUNCTION", "LOAD", library])), "$1|l|");
    let queued = &["MULTI", "SET a 1", "HSET d:9 f 1"];
    for (calls, waits) in [
        (&["HSET d:3 f 1"][..], true),
        (&["DEL a b d:3"], true),
        (&["COPY a d:3"], true),
        (&["EVAL return(1) 1 d:3"], true),
        (queued, false),
        (&["MULTI", "SET a 1", "HSET d:9 f 1", "EXEC"], true),
        (&["MULTI", "SET a 1", "EXEC"], false),
        (&["SELECT 1", "HSET d:3 f 1"], false),
        (&["SELECT 1", "MOVE d:3 0"], true),
        (&["SELECT 1", "COPY a d:3 DB 0"], true),
        (&["SELECT 1", "MULTI", "SELECT 0", "HSET d:3 f 1", "EXEC"], true),
        (&["SELECT 1", "MULTI", "HSET d:3 f 1", "EXEC"], false),
        (&["EVAL return(1) 1 a"], false),
        (&["EVAL return(1) 0"], true),
        (&["EVAL_RO return(1) 0"], false),
        (&["EVAL_RO return(1) 1 d:3"], false),
        (&["FCALL r 1 d:3"], false),
        (&["HGET d:1 f"], false),
        (&["SET e:1 v"], false),
        (&["FLUSHALL"], false),
    ] {
        take_all();
        peer.run(&server, "HSET d:1 f 1");
        let mut client = server.connect();
        let (last, before) = calls.split_last().expect("a call");
        before.iter().for_each(|call| assert!(client.run(&server, call).starts_with('+'), "{call}"));
        client.feed(&words(&last.split(' ').collect::<Vec<_>>()), usize::MAX);
        assert_eq!(matches!(client.drive(&server), Stop::Sleep(_)), waits, "{calls:?}");
        if waits {
            server.advance_ms(10);
            assert!(matches!(client.drive(&server), Stop::Sleep(_)), "the keys still wait");
            take_all();
            server.advance_ms(10);
            assert_ne!(replies(&mut client, &server), "", "{calls:?}");
        }
    }
    take_all();
    let phases = peer.run(&server, "DIAG PHASES");
    assert!(phases.contains(r#""on":"indexes""#), "{phases}");
    // The last index is dropped.
    peer.run(&server, "HSET d:1 f 1");
    keyspace.track(&[]);
    assert_eq!((keyspace.touched_len(), peer.run(&server, "HSET d:3 f 2").as_str()), (0, ":1|"));
}
