//! Consumer groups in long transactions. The corpus has what one session sees of groups.

use crate::blocking::{blocks, replies};
use crate::fixture::{Server, Stop};
use crate::long_transactions::{finish, queued};

#[test]
fn a_long_transaction_changes_groups_and_outdates_no_watch() {
    let mut server = Server::new();
    let (mut peer, mut watcher, mut waiter) = (server.connect(), server.connect(), server.connect());
    let mut exec = |server: &Server, line: &str| {
        let counts = (0..5000).map(|n| format!("INCR n{n}"));
        let job = queued(server, &mut peer, counts.chain([line.to_owned()]));
        let replies = finish(server, &mut peer, job, &|| ());
        assert!(replies.starts_with("*5000|") || replies.starts_with("*5001|"), "{replies:.60}");
        replies.splitn(5002, '|').last().unwrap_or_default().to_owned()
    };
    for n in 1..=4 {
        watcher.run(&server, &format!("XADD x {n}-0 a b"));
    }
    watcher.script(&server, &[("XGROUP CREATE x held $", "+OK|"), ("XGROUP CREATE x plain 0", "+OK|")]);
    waiter.feed(b"XREADGROUP GROUP held c BLOCK 0 STREAMS x >\r\n", usize::MAX);
    assert!(matches!(waiter.drive(&server), Stop::Blocked(_)));
    let pending = |n: usize| format!("XPENDING x g - + {n}");
    const SMALL_ID: &str =
        "-ERR The ID specified in XADD is equal or smaller than the target stream top item|";
    for (line, look, seen) in [
        ("XGROUP CREATE x g 0", "XINFO CONSUMERS x g".to_owned(), "*0|"),
        (
            "XREADGROUP GROUP g c COUNT 2 STREAMS x >",
            "XPENDING x g".to_owned(),
            "*4|:2|$3|1-0|$3|2-0|*1|*2|$1|c|$1|2|",
        ),
        ("XACK x g 1-0", "XPENDING x g".to_owned(), "*4|:1|$3|2-0|$3|2-0|*1|*2|$1|c|$1|1|"),
        ("XCLAIM x g d 0 2-0 IDLE 0 RETRYCOUNT 7 JUSTID", pending(1), "*1|*4|$3|2-0|$1|d|:0|:7|"),
        ("XAUTOCLAIM x g e 0 0 JUSTID", pending(1), "*1|*4|$3|2-0|$1|e|:0|:7|"),
        ("XGROUP SETID x g 4-0", "XREADGROUP GROUP g c STREAMS x >".to_owned(), "*-1|"),
        ("XGROUP DELCONSUMER x g e", "XPENDING x g".to_owned(), "*4|:0|$-1|$-1|*-1|"),
        ("XGROUP CREATECONSUMER x plain f", "XGROUP DELCONSUMER x plain f".to_owned(), ":0|"),
        ("XGROUP DESTROY x g", "XGROUP DESTROY x g".to_owned(), ":0|"),
        ("XSETID x 9-0", "XADD x 9-0 a b".to_owned(), SMALL_ID),
        ("XGROUP DESTROY x held", "XGROUP DESTROY x held".to_owned(), ":0|"),
    ] {
        watcher.script(&server, &[("WATCH x", "+OK|")]);
        exec(&server, line);
        watcher.script(&server, &[("MULTI", "+OK|"), ("ECHO a", "+QUEUED|")]);
        assert_eq!(watcher.run(&server, "EXEC"), "*1|$1|a|", "{line}");
        assert_eq!(watcher.run(&server, &look), seen, "{line}");
    }
    waiter.drive(&server);
    assert!(waiter.replies().starts_with("-NOGROUP"), "its group is gone");
}

#[test]
fn a_group_that_is_set_back_serves_its_waiting_reader() {
    let mut server = Server::new();
    let mut peer = server.connect();
    for is_long in [false, true] {
        let mut waiter = server.connect();
        peer.run(&server, "FLUSHALL");
        peer.run(&server, "XADD s 1-1 f v");
        peer.run(&server, "XGROUP CREATE s g $");
        blocks(&mut waiter, &server, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
        let set_back = "XGROUP SETID s g 0".to_owned();
        if is_long {
            let counts = (0..5000).map(|n| format!("INCR n{n}"));
            let job = queued(&server, &mut peer, counts.chain([set_back]));
            finish(&server, &mut peer, job, &|| ());
        } else {
            peer.run(&server, &set_back);
        }
        let entry = "*1|*2|$1|s|*1|*2|$3|1-1|*2|$1|f|$1|v|";
        assert_eq!(replies(&mut waiter, &server), entry, "long: {is_long}");
    }
}
